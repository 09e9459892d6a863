"""`pipelines.mediawiki.languages`: every file keeps the contract of docs/corpus.md."""

# ruff: noqa: RUF001 - many scripts
from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from support.dump_builder import dump, page

from flows.report.corpus import DroppedText, dropped_text, unknown_templates
from pipelines.counters import DROPPED_TEMPLATE
from pipelines.counters import Counters as Counts
from pipelines.documents.job import build_documents
from pipelines.mediawiki.languages import COMMON, FOLDER, codes, language_file, read_file
from pipelines.mediawiki.templates import (
    DROP,
    compile_rule,
    counter_name,
    first_lowered,
    language_words,
    rule_for,
)
from pipelines.mediawiki.wikitext import UnknownTemplates, clean_wikitext, wiki_settings
from pipelines.sources import wikipedia
from schemas.corpus_configs import DocumentsConfig, WikipediaSource
from schemas.errors import ConfigError
from schemas.execution_configs import ExecutionConfig

LARGEST = set("en ceb de fr sv nl ru es it arz pl ja zh vi war uk ar pt fa ca".split())  # noqa: SIM905
_SYMBOLS = re.compile(r"\w|[A-Z]+[a-z]?|ka|TeX|LaTeX|HSwMS")


def test_the_largest_wikis_have_a_file() -> None:
    assert LARGEST | {"ro", "ko", "af", "et"} <= set(codes())


@pytest.mark.parametrize("code", [COMMON, *codes()])
def test_a_file_keeps_the_contract(code: str) -> None:
    own, joined = read_file(FOLDER / f"{code}.yaml"), language_file(code)
    assert own.like in ("", *codes())
    if code != COMMON:
        assert joined.template_namespaces
        assert joined.namespaces == joined.namespaces.lower()
        assert len(joined.months) == 12
        assert len(joined.months_in_dates) in (0, 12)
        assert {"to", "and", "or", "by"} <= set(joined.words)
    for form in joined.dates.model_dump().values():
        assert form.format(day="1", month="2", year="3")
    codes_with_size = {unit for units in joined.sizes.values() for unit in units}
    assert {*joined.counterparts, *joined.counterparts.values()} <= codes_with_size
    assert [title for title in joined.closing_sections if title != title.lower().strip()] == []


@pytest.mark.parametrize("code", [COMMON, *codes()])
def test_every_rule_of_a_file_can_be_used(code: str) -> None:
    own = read_file(FOLDER / f"{code}.yaml")
    language = "en" if code == COMMON else code
    for pattern in own.templates:
        assert compile_rule(pattern, language_words(language)) is not None, pattern
    for expression, pattern in own.name_patterns.items():
        groups = re.compile(expression).groups
        assert compile_rule(pattern, language_words(language), ["x"] * groups) is not None, pattern
    names = Counter(first_lowered(name) for line in own.templates.values() for name in line.split())
    assert [name for name, count in names.items() if count > 1] == []


def test_what_is_common_writes_no_words() -> None:
    for pattern in language_file(COMMON).templates:
        rest = re.sub(r"\{[^{}]*\}", " ", pattern)
        words = [word for word in re.findall(r"[^\W\d_]+", rest) if not _SYMBOLS.fullmatch(word)]
        assert pattern == DROP or words == [], pattern


def test_a_name_is_read_as_mediawiki_reads_it() -> None:
    assert counter_name("Modèle:nombre_12 ", "fr") == "nombre 12"
    assert counter_name("template: Nowrap", "fr") == "nowrap"
    assert counter_name("subst:Foo", "en") == "foo"
    for name in ("Nobr", "nobr", "NOBR", "Modèle:Nobr", "template:nobr", "MODÈLE: nobr "):
        assert clean_wikitext(f"a {{{{{name}|b}}}} c", wiki_settings("fr")) == ["a b c"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\ntemplates: {a: b}\ntemplates: {c: d}", "line 3: the key 'templates' stands"),
        ("name: x\nmonth: []", "month"),
        ("name: [", "not a valid file of a language"),
    ],
)
def test_a_bad_file_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "xx.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_file(tmp_path / "xx.yaml")


@pytest.mark.parametrize("pattern", ["{1", "a]", "[a", "{}", "{nosuchfunction 1}"])
def test_a_bad_pattern_is_an_error(pattern: str) -> None:
    with pytest.raises(ConfigError):
        compile_rule(pattern, language_words("en"))


@pytest.mark.parametrize("code", ["ja", "pt", "ru", "zh", "ar"])
def test_english_words_stay_out_of_other_languages(code: str) -> None:
    for template in ("convert|5|km|mi", "convert|1|to|2|sqmi", "convert|3|furlong|km", "as of|2007",
                     "circa|1417", "BCE|44", "harvtxt|A|B|1999", "ordinal|5", "sclass|X|y",
                     "death date and age|1990|2|3|1916|5|1", "birth date|1990|2|3",
                     "US patent|12345"):  # fmt: skip
        (text,) = clean_wikitext(f"1 {{{{{template}}}}} 2", wiki_settings(code))
        english = "mile|kilomet|to|furlong|As|since|BCE|and|th|class|aged|February|patent"
        assert not re.search(rf"\b(?:\d*{english})", text), (template, text)


def rendered(code: str, wikitext: str) -> str:
    holes = UnknownTemplates()
    text = "\n".join(clean_wikitext(wikitext, wiki_settings(code), holes))
    assert holes.total == 0, holes.most_common()
    return text


TEXT_OF_TEMPLATES = [
    ("fr", "Né le {{date|11|novembre|1866}} à Moulins.", "Né le 11 novembre 1866 à Moulins."),
    ("fr", "Né le {{Date de naissance-|1|1|1900}} ici.", "Né le 1er janvier 1900 ici."),
    ("fr", "Fondée au {{s-|XIII|e}}, Berlin a été", "Fondée au XIIIe siècle, Berlin a été"),
    ("fr", "Au {{XIXe siècle}}, le {{1er}} roi", "Au XIXe siècle, le 1er roi"),
    ("fr", "long de {{unité|12|km}}, {{unité|30|m|s|-1}}", "long de 12 km, 30 m s⁻¹"),
    ("fr", "{{Modèle:Unité|1234567.5|habitants}} là", "1 234 567,5 habitants là"),
    ("fr", "à {{convert|1.5|km|mi}}, {{convert|2|to|3|mi|km}}",
     "à 1,5 km (0,93 mi), 2 à 3 mi (3,2 à 4,8 km)"),
    ("de", "Am {{Datum|3|10|1990}} fuhr er {{convert|1234.5|km|mi}}.",
     "Am 3. Oktober 1990 fuhr er 1234,5 km (767,1 mi)."),
    ("it", "Nel {{secolo|19}} a {{M|1|k|m}} da {{russo|Я}}", "Nel XIX secolo a 1 km da Я"),
    ("es", "Nació el {{fecha|1|5|1990}} a {{unidad|12|km}}", "Nació el 1 de mayo de 1990 a 12 km"),
    ("ja", "{{生年月日と年齢|1926|6|1}}に{{convert|12|km}}の",
     "1926年6月1日に12キロメートル (7.5マイル)の"),
    ("ja", "{{死亡年月日と没年齢|1926|6|1|1962|8|5}}に", "1962年8月5日（36歳没）に"),
    ("en", "{{convert|1|-|3|-|5|ft}} by {{RailGauge|1435mm}}",
     "1–3–5 ft (0.30–0.91–1.5 m) by 1,435 mm"),
    ("en", "10{{nbs}}km for {{CAD|5000}} is {{angbr|a}}", "10 km for C$5,000 is ⟨a⟩"),
    ("en", "1.2 {{solar luminosity}}, {{US patent|123456}}", "1.2 L☉, U.S. patent 123,456"),
    ("ar", "طوله {{convert|5|km|mi}} وعرضه {{تحويل|12|m}}.",
     "طوله 5 كم (3.1 ميل) وعرضه 12 م (39 قدم)."),
    ("ar", "{{تاريخ الميلاد والعمر|1990|5|1}} هو", "1 مايو 1990 هو"),
    ("ar", "قال {{اقتباس مضمن|نعم}} {{صلى}} ثم", "قال «نعم» ﷺ ثم"),
    ("fa", "در {{تاریخ تولد|1990|5|1}} و {{convert|3|km}} بود",
     "در 1 مه 1990 و 3 کیلومتر (1٫9 مایل) بود"),
    ("ca", "El {{data|11|10|1866}} al {{segle|19}}.", "El 11 d'octubre de 1866 al segle XIX."),
    ("pt", "Nasceu em {{dni|1|5|1990}} a {{converter|5|km|mi}}.",
     "Nasceu em 1 de maio de 1990 a 5 km (3,1 mi)."),
    ("pt", "são {{unidade|12|km}} e {{fmtn|1234567}} no {{século|XIX}}",
     "são 12 km e 1 234 567 no século XIX"),
    ("ro", "Născut la {{data nașterii|1990|5|1}}, {{convert|25|km}}, {{convert|3|km}}",
     "Născut la 1 mai 1990, 25 km (16 mi), 3 km (1,9 mi)"),
    ("ru", "Родился {{дата|1|5|1990}}, {{convert|5|km|mi}}, {{convert|21|km}}, {{s|1,5 м}}",
     "Родился 1 мая 1990 года, 5 км (3,1 миль), 21 км (13 миль), 1,5 м"),
    ("ru", "роман {{нп3|Имя|Слово|en|Name}} и {{lang-en|word}}", "роман Слово и word"),
    ("uk", "Народився {{дата|1|5|1990}}, {{convert|2|km}}",
     "Народився 1 травня 1990 року, 2 км (1,2 миль)"),
    ("pl", "Urodzony {{data|1|5|1990}}, {{convert|5|km|mi}}",
     "Urodzony 1 maja 1990, 5 km (3,1 mi)"),
    ("nl", "Geboren op {{datum|1|5|1990}}, {{convert|5|km|mi}} in de {{eeuw|19}}",
     "Geboren op 1 mei 1990, 5 km (3,1 mi) in de 19e eeuw"),
    ("sv", "Född {{datum|1990|5|1}}, {{enhet|12345|km}}", "Född 1 maj 1990, 12 345 km"),
    ("ko", "{{출생일|1990|5|1}}에 {{llang|en|word}} {{임시링크|이름|en|Name}}",
     "1990년 5월 1일에 word 이름"),
    ("zh", "{{出生日期|1990|5|1}}，{{convert|5|km}}，{{le|名|N}}",
     "1990年5月1日，5公里 (3.1英里)，名"),
    ("vi", "Sinh {{ngày sinh|1990|5|1}}, {{convert|5|km}}",
     "Sinh 1 tháng 5 năm 1990, 5 km (3,1 mi)"),
    ("af", "Gebore op {{datum|1|5|1990}}, {{convert|5|km}}", "Gebore op 1 Mei 1990, 5 km (3,1 mi)"),
    ("et", "Sündis {{kuupäev|1|5|1990}}, {{convert|5|km}}", "Sündis 1. mai 1990, 5 km (3,1 mi)"),
    ("ceb", "Sa {{birth date|1990|5|1}} {{nowrap|a b}}", "Sa Mayo 1, 1990 a b"),
    ("war", "Han {{birth date|1990|5|1}}, {{convert|5|km}}", "Han Mayo 1, 1990, 5 km (3.1 mi)"),
    ("arz", "{{تاريخ الميلاد|1990|5|1}} في", "1 مايو 1990 في"),
    ("simple", "{{convert|5|km|mi}} on {{birth date|1990|5|1}}", "5 km (3.1 mi) on May 1, 1990"),
    ("en", "two H2PO{{su|b=4|p=−}} ions, As{{su|b=4|p=3−}}", "two H2PO4⁻ ions, As4³⁻"),
    ("en", "CO{{sub|2}} and x{{sup|3}} and SO{{subsup||4|2−}}", "CO2 and x³ and SO4²⁻"),
    ("en", "The word {{IPA-de|bɛʁˈliːn}} rhymes.", "The word [bɛʁˈliːn] rhymes."),
    ("en", "It is pronounced {{IPAc-en|lang|n|j|uː}} here.", "It is pronounced /njuː/ here."),
    ("en", "It is pronounced {{IPA|fr|paʁi|lang}} here.", "It is pronounced paʁi here."),
    ("en", "Say {{respell|bur|LIN}} twice.", "Say bur-LIN twice."),
    ("en", "Born {{circa}} 1417, {{née}} Smith", "Born c. 1417, née Smith"),
    ("en", "He wrote {{sic}} and {{audio|x.ogg|heard}} it", "He wrote [sic] and heard it"),
    ("de", "Fluss ({{lang-de|Spree}}), {{enS|river}}", "Fluss (Spree), river"),
    ("de", "Der {{Höhe|1141|DE-NHN}} hohe Berg, {{Bibel|Mt|5|3}}", "Der 1141 m hohe Berg, Mt 5,3"),
    ("ar", "نهر {{ألمانية|Spree}} طويل", "نهر (بالألمانية: Spree) طويل"),
    ("ar", "نهر {{إنج|river}} و{{فرنسية|fleuve}}", "نهر (بالإنجليزية: river) و(بالفرنسية: fleuve)"),
    ("ar", "زار {{وإو|عر=برلين|تر=Berlin|لغ=de}} أمس", "زار برلين أمس"),
    ("es", "a 45{{esd}}km de {{esd|5 km}}", "a 45 km de 5 km"),
    ("es", "en el {{siglo|XIX||s}} y el siglo {{siglo|V|a}}", "en el siglo XIX y el siglo V a. C."),
    ("ja", "人口は{{formatnum:{{nowrap|12345}}}}人", "人口は12,345人"),
    ("ja", "{{JPN}}と{{FRA}}の{{lang|fr|Paris}}", "日本とフランスのParis"),
    ("fr", "Le roi {{souverain2|Louis XIV}} vint.", "Le roi Louis XIV vint."),
    ("fr", "le mot {{grec ancien|λόγος|lógos}}, {{etc.}}", "le mot λόγος / lógos, etc."),
    ("he", "העיר {{כ}}ב{{גרמנית|Berlin}} היא{{ש}}גדולה", "העיר בBerlin היא גדולה"),
    ("he", 'לפי {{תנ"ך|בראשית|א|ב}} היה', "לפי ספר בראשית, פרק א, פסוק ב היה"),
    ("it", "a quota 1.000 {{m s.l.m.}} nel bosco", "a quota 1.000 m s.l.m. nel bosco"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "wikitext", "text"), TEXT_OF_TEMPLATES)
def test_template_keeps_text_that_reader_sees(code: str, wikitext: str, text: str) -> None:
    assert rendered(code, wikitext) == text


@pytest.mark.parametrize("code", codes())
def test_word_list_drops_templates_without_text_and_no_others(code: str) -> None:
    for name in ("en", "fr", "de", "es", "it", "ru", "la", "ja", "zh", "ar", "lang", "lang-de"):
        rule = rule_for(name, code)
        assert rule is None or not rule.is_drop, name
    for name in language_file(code).templates.get(DROP, "").split():
        assert holes_of(code, f"A {{{{{name}|b}}}} c")[0] == {}, name


def test_page_name_is_title_of_page() -> None:
    title = "ירושלים (סרט)"
    for wikitext, code, text in (
        ("{{PAGENAME}} is here", "en", "ירושלים (סרט) is here"),
        ("'''{{שם הדף בלי הסוגריים}}''' היא עיר", "he", "ירושלים היא עיר"),
    ):
        assert clean_wikitext(wikitext, wiki_settings(code), title=title) == [text]


def holes_of(code: str, wikitext: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the numbers of unknown and of dropped templates by name."""
    holes = UnknownTemplates()
    clean_wikitext(wikitext, wiki_settings(code), holes)
    unknown, dropped = holes.most_common(), holes.most_common(DROPPED_TEMPLATE)
    assert holes.total == sum(number for _, number in unknown)
    assert holes.templates_dropped == sum(number for _, number in dropped)
    return dict(unknown), dict(dropped)


@pytest.mark.parametrize(
    ("code", "wikitext", "unknown", "dropped"),
    [
        ("en", "It{{sfn|A}} is. So.{{sfn|B}} Yes{{fact}}", {}, {"sfn": 1, "fact": 1}),
        ("en", "X ({{IPA-de|x}}, {{IPA|y}}) is", {}, {"IPA-de": 1, "IPA": 1}),
        ("en", "a {{lang-fr|}} b {{audio|x.ogg}}", {}, {"lang-fr": 1, "audio": 1}),
        ("en", "a {{odd|\nx=1\n}} b", {"odd": 1}, {}),
        ("en", "a {{#if:x|y}} b {{#expr:1+x}} c", {"#if": 1, "#expr": 1}, {}),
        ("ja", "面積は{{formatnum:{{面積/県|県}}}}km", {"面積/県": 1}, {}),
        ("en", "a " + "{{nowrap|" * 40 + "{{lang|de|x}}" + "}}" * 40, {"lang": 1}, {}),
        ("fr", "Né à {{Inconnu|a}}, mort.", {"inconnu": 1}, {}),
        ("fr", "Il a {{inconnu}} et {{Modèle:inconnu|b}} là.", {"inconnu": 2}, {}),
        ("fr", "{{inconnu|x}} est une ville.", {"inconnu": 1}, {}),
        ("fr", "Il dort.{{inconnu}} Il rit.{{inconnu|a}}", {}, {}),
        ("fr", "{{inconnu}}\n'''Ville''' de France.\n* a {{inconnu}} b", {}, {}),
        ("fr", "Il dort{{sfn|A}} ici {{coord|1|2}}.<ref>{{x}}</ref>", {}, {"sfn": 1, "coord": 1}),
        (
            "en",
            "A hill at {{coord|51|30|N|0|7|W}}, {{coord|51|N|display=title}} high.",
            {},
            {"coord": 1},
        ),
        ("fr", "Haut de {{date|jour=}} et {{convert|3|furlong}}.", {"convert": 1}, {"date": 1}),
    ],
)
def test_templates_within_sentences_are_counted_as_unknown_or_dropped(
    code: str, wikitext: str, unknown: dict[str, int], dropped: dict[str, int]
) -> None:
    assert holes_of(code, wikitext) == (unknown, dropped)


def test_share_of_dropped_text_counts_what_was_kept_or_dropped_for_its_reason() -> None:
    counters = {
        "characters@en": 90, "characters-dropped-formula@en": 10, "sentences-dropped-formula@en": 2,
        "characters-dropped-table@en": 30, "characters-dropped-list@it": 5, "characters@it": 5,
        "characters": 95, "characters-dropped-formula": 10, "characters-dropped-code@en": 0,
    }  # fmt: skip
    assert dropped_text(counters) == [
        DroppedText("en", "table", None, 30, 0.25),
        DroppedText("en", "formula", 2, 10, 0.1),
        DroppedText("it", "list", None, 5, 0.5),
    ]


def test_a_sentence_with_a_hole_may_be_dropped() -> None:
    holes = UnknownTemplates(drop_sentences=True)
    text = "Un reste. Né à {{inconnu|a}}, il dort. Deux reste{{sfn|A}}, ici."
    assert clean_wikitext(text, wiki_settings("fr"), holes) == ["Un reste. Deux reste, ici."]
    assert holes.total == 1


def test_names_of_holes_are_bounded() -> None:
    holes = UnknownTemplates()
    clean_wikitext("a {{often}} b " * 50, wiki_settings("en"), holes)
    for number in range(9000):
        clean_wikitext(f"a {{{{x{number}}}}} b", wiki_settings("en"), holes)
    assert holes.total == 9050
    assert len(holes.most_common()) == 200
    assert holes.most_common()[0] == ("often", 50)


def test_holes_are_counted_by_name_and_language_is_noted(tmp_path: Path) -> None:
    text = "The {{odd}} town {{Odd|a}} and {{rare}} is{{sfn|A}} large. It is old and stands still."
    pages = [page(n, f"{text} Number {n} is its own text.") for n in range(1, 40)]
    (tmp_path / "x.xml").write_bytes(dump(pages, language="fr"))
    source = WikipediaSource(name="wiki", paths=(f"{tmp_path}/x.xml",), language="en")
    config = DocumentsConfig(sources=(source,), min_sentences=1, min_words=1)
    made = build_documents(
        config, inputs={}, output=str(tmp_path / "out"), execution=ExecutionConfig()
    )
    assert any("declare language fr" in note for note in made.notes)
    counts = {name: n for name, n in made.counters.items() if name.startswith("template-")}
    assert counts == {
        "template-unknown:odd@wiki": 78,
        "template-unknown:rare@wiki": 39,
        "template-dropped:sfn@wiki": 39,
    }
    assert made.counters["templates-unknown@wiki"] == 3 * 39
    (templates,) = unknown_templates(made.counters)
    assert (templates.source, templates.most_frequent) == ("wiki", "odd 78, rare 39")


@pytest.mark.parametrize(("declared", "language"), [("en", "fr"), ("fr", "")])
def test_language_of_the_recipe_wins_over_that_of_the_header(
    tmp_path: Path, declared: str, language: str
) -> None:
    text = "[[Fichier:a.png|b]][[File:c.png]][[Catégorie:d]]Un {{unité|12|km}} [[Category:e]]ici."
    (tmp_path / "x.xml").write_bytes(dump([page(1, text)], language=declared))
    config = WikipediaSource(name="w", paths=(f"{tmp_path}/x.xml",), language=language)
    (split,) = wikipedia.plan(config)
    ((_, document),) = wikipedia.read(split, config, Counts().count)
    assert document.paragraphs == ["Un 12 km ici."]
