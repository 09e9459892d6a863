"""Inline templates that carry words, by name.

Templates cannot be expanded without the wiki that holds them. Most that stand inside a sentence do
one of a few simple things with their arguments, so that the sentence keeps its words; all others
(infoboxes, notices, citations, navigation) have nothing to say in a text and are left out.
"""

# ruff: noqa: RUF001 - typographic characters are what these templates are for
from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

from pipelines import wikitext_renderers as render
from pipelines.wikitext_renderers import APOSTROPHE, PIPE, Renderer
from pipelines.wikitext_words import LANGUAGE_CODES

_SHIP_PREFIXES = ("USS", "HMS", "SS", "RMS", "MV", "HMAS", "HMCS", "SMS", "USNS", "INS")

_Rows = Sequence[tuple[Renderer, str]]


def _table(rows: _Rows) -> dict[str, Renderer]:
    """Names are separated by blanks, and have underscores for blanks."""
    return {name.replace("_", " "): renderer for renderer, names in rows for name in names.split()}


_COMMON: _Rows = (
    # Templates that set their first argument in some style.
    (
        render.argument(1),
        "nowrap nobr nowraplinks no_wrap small smaller small2 big larger huge smallcaps sc "
        "small_caps smallcaps_all aut allcaps caps uc em strong bold italic i b u underline mvar "
        "math var mono code key kbd key_press samp tt unicode polytonic iast hebrew hebrew-large "
        "vanchor visible_anchor abbr abbrlink tooltip h:title hover_title noitalic no_italics "
        "overline clarify_span citation_needed_span cl-span cn-span tl tlx tlp tag chem2 sub stack "
        "normal script script/arabic script/hebrew script/greek gloss notatypo linktext "
        "cite_quran plain flag flagu flagcountry flag_country tutto_attaccato ta maiuscoletto cas "
        "c c_sharp java-lang nihongo2 zh-hans zh-hant proper_name highlight dfn q ins mark wide "
        "noflip spelling ruby-ja grey gray lcfirst ucfirst currency sic",
    ),
    (render.argument(2), "word color colour fgcolor lang_eo rtl-lang ltr-lang"),
    (
        render.last_argument,
        "transl transliteration translit wikt-lang font_color fontcolor font_colour w wp",
    ),
    (render.in_language, "lang langue langx"),
    (
        render.linked,
        "ill interlanguage_link link-interwiki illm ill2 仮リンク interlang iw iwlink",
    ),
    (render.joined(""), "chem gaps not_a_typo mp mpl"),
    (render.joined(" "), "oldstyledate old_style_date"),
    (render.joined("-"), "sclass sclass- dash_year"),
    (render.with_reading, "ruby 読み仮名"),
    (render.nihongo, "nihongo nihongo3 nihongo4 nihongo_foot"),
    # Signs of the phonetic alphabet in running text; IPA-de and the like are pronunciations.
    (render.pronounced("", ""), "ipa ipalink ipa_link api fonem"),
    (render.pronounced("/", "/"), "ipaslink ipa_slink"),
    (render.pronounced("[", "]"), "ipablink ipa_blink"),
    # Numbers and measures.
    (render.fraction, "frac fraction sfrac fract"),
    (render.convert, "convert"),
    (render.cvt, "cvt"),
    (render.units, "units"),
    (render.scientific, "val"),
    (render.power_of_ten, "e exp"),
    (render.number, "formatnum number numero num nts"),
    (render.superscript, "sup"),
    (render.around("√", ""), "sqrt radic"),
    (render.around("", " Ma"), "ma mya"),
    (render.coordinates, "coord"),
    (render.money("US$"), "us$ usd"),
    (render.money("€"), "€ euro eur"),
    (render.money("£"), "£ gbp"),
    (render.money("¥"), "¥ jpy yen cny"),
    (render.money("₹"), "inr indian_rupee"),
    # Dates.
    (render.as_of, "as_of asof"),
    (render.approximate("c."), "circa c. ca ca."),
    (render.approximate("fl."), "floruit fl. fl"),
    (render.approximate("r."), "reign r."),
    (render.approximate("b."), "born b."),
    (render.approximate("d."), "died d."),
    (render.year("BCE"), "bce"),
    (render.year("CE"), "ce"),
    (render.year("BC"), "bc"),
    (render.year("AD"), "ad"),
    (
        render.date,
        "birth_date birth_date_and_age birth-date birth-date_and_age birth_year_and_age bda dob "
        "death_date death_date_and_age dda date start_date end_date start_date_and_age dts "
        "release_date 生年月日 生年月日と年齢 死亡年月日と没年齢 没年月日と没年齢",
    ),
    # Quotations and citations in running text.
    (
        render.quoted,
        "quote blockquote cquote quotation bq block_quote poemquote poem_quote quote1 "
        "centered_quote citazione bquote quotes cquote2",
    ),
    (render.verse, "bibleref bibleverse bibleref2 bibleref2c bibleverse-nb bv"),
    (render.authors, "harvtxt"),
    # Names of ships.
    *((render.ship(prefix), prefix.lower()) for prefix in _SHIP_PREFIXES),
    # Characters.
    (render.constant("—"), "mdash emdash em_dash — mdashb"),
    (render.constant("–"), "ndash endash en_dash –"),
    (render.constant(" – "), "snd spnd sndash spaced_ndash spaced_en_dash dash"),
    (render.constant(" — "), "smd spaced_em_dash spaced_mdash"),
    (render.constant(" · "), "· dot"),
    (render.constant(" • "), "• bull"),
    (render.constant(" "), "nbsp space spaces thinsp thin_space hair_space nnbsp"),
    (render.constant("\n\n"), "pb paragraph_break paragraph br br0 break"),
    (render.constant(PIPE), "! !-"),
    (render.constant("="), "="),
    (render.constant(","), ","),
    (render.constant("("), "("),
    (render.constant(")"), ")"),
    (render.constant("`"), "`"),
    (render.constant(APOSTROPHE), "'"),
    (render.constant(f"{APOSTROPHE}s"), "'s"),
    (render.constant(f'{APOSTROPHE}"'), "'\" '_\""),
    (render.constant(f'"{APOSTROPHE}'), "\"' \"_'"),
    (render.constant('"'), '-"'),
    (render.constant("π"), "pi"),
    (render.constant("ℓ"), "ell"),
    (render.constant("ħ"), "hbar"),
    (render.constant("⇌"), "eqm"),
    (render.constant("ʻ"), "okina"),
    (render.constant("ʾ"), "hamza"),
    (render.constant("ʿ"), "ayin"),
    (render.constant("TeX"), "tex"),
    (render.constant("LaTeX"), "latex"),
    (render.constant("Lord"), "lord"),
    (render.accidental, "music"),
    (render.around("♠", ""), "spades"),
    (render.around("♥", ""), "hearts"),
    (render.around("♦", ""), "diamonds"),
    (render.around("♣", ""), "clubs"),
)

# Names that mean one thing on one wiki and another elsewhere (`cn` asks for a source on most).
_BY_LANGUAGE: dict[str, _Rows] = {
    "de": ((render.last_argument, "spra farbe"),),
    "es": ((render.argument(1), "versalita versalitas unidad esd"),),
    "fr": ((render.argument(1), "citation unité nb souligner heure"),),
    "it": (
        (render.argument(1), "cn citazione_necessaria senza_fonte chiarire russo greco arabo"),
        (render.argument(1), "boxarrotondato sottolineato"),
        (render.metric, "m"),
        (render.constant("m s.l.m."), "m_s.l.m."),
    ),
    "ja": (
        (render.argument(1), "en fr de es el la nl pt ru zh ko it ar"),
        (
            render.argument(1),
            "要出典範囲 いつ範囲 疑問点範囲 要検証範囲 独自研究範囲 誰範囲 要説明範囲",
        ),
        (render.argument(1), "補助漢字フォント jisx0213フォント cjkv 縦書き 下線 太字 拡張漢字"),
        (render.with_reading, "よみがな ふりがな 読み"),
    ),
}


def is_block(renderer: Renderer) -> bool:
    """Whether the template may hold several paragraphs."""
    return renderer is render.quoted


_LANGUAGE_TEMPLATE = re.compile(r"lang-([a-z]{2,3})(?:-[a-z]+)*")


@functools.cache
def renderers(language: str) -> Mapping[str, Renderer]:
    """The table of a wiki in `language`: lower-cased template name to its renderer."""
    return _table((*_COMMON, *_BY_LANGUAGE.get(language, ())))


def renderer_for(name: str, language: str) -> Renderer | None:
    """What writes the template `name` (as in the page), or None if it has nothing to say."""
    name = name.strip().replace("_", " ").lower()
    found = renderers(language).get(name)
    if found is None:
        if name.startswith("lang-") and (match := _LANGUAGE_TEMPLATE.fullmatch(name)):
            found = render.argument(1) if match[1] in LANGUAGE_CODES or len(match[1]) == 3 else None
        elif name.startswith("formatnum:"):
            found = render.formatted(name.removeprefix("formatnum:"))
    return found
