"""`pipelines.mediawiki.variants`: words between `-{` and `}-` in wikis with language variants."""

# ruff: noqa: RUF001 - many scripts
from __future__ import annotations

import pickle
import time

import pytest

from pipelines.mediawiki.variants import CONVERTERS, converter_code
from pipelines.mediawiki.wikitext import UnknownTemplates, clean_wikitext, wiki_settings


def shown(language: str, wikitext: str) -> str:
    holes = UnknownTemplates()
    text = "\n".join(clean_wikitext(wikitext, wiki_settings(language), holes))
    assert holes.total == 0
    return text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        # The main variant, its fallbacks in order, then the first of the others
        ("-{zh-hant:滑鼠;zh-hans:鼠标}-", "鼠标"),
        ("-{zh-tw:滑鼠;zh-cn:鼠标;zh:老鼠}-", "老鼠"),
        ("-{zh-hk:的士;zh-tw:計程車}-", "計程車"),
        ("-{zh-hk:的士}-", "的士"),
        ("-{zh-Hans:鼠标; zh-Hant:滑鼠;}-", "鼠标"),
        ("-{計程車=>zh-cn:出租车}-", "出租车"),
        ("-{計程車=>zh-cn:出租车;zh-tw:小黃}-", "小黃"),
        # Flags
        ("-{A|zh-cn:鼠标;zh-tw:滑鼠}-", "鼠标"),
        ("-{T;A|zh-cn:鼠标;zh-tw:滑鼠}-", "鼠标"),
        ("-{A|鼠标}-", "鼠标"),
        ("-{H|zh-cn:鼠标;zh-tw:滑鼠}-", ""),
        ("-{H|滑鼠=>zh-cn:鼠标}-", ""),
        ("-{H|zh-cn:鼠标;\nzh-tw:滑鼠;\n}-", ""),
        ("-{-|zh-cn:鼠标;zh-tw:滑鼠}-", ""),
        ("-{T|zh-cn:鼠标;zh-tw:滑鼠}-", ""),
        ("-{T|鼠标}-", ""),
        ("-{D|zh-cn:鼠标;zh-tw:滑鼠}-", "大陆：鼠标；臺灣：滑鼠；"),
        ("-{H;D|滑鼠=>zh-cn:鼠标}-", "滑鼠⇒大陆：鼠标；"),
        ("-{N|zh-hk}-", "香港"),
        ("-{R|鼠标;滑鼠:a}-", "鼠标;滑鼠:a"),
        ("-{zh;zh-hans;zh-hant|鼠标}-", "鼠标"),
        ("-{X|zh-cn:鼠标;zh-tw:滑鼠}-", "鼠标"),
        # Text without rules, and semicolons and colons in the text of rules
        ("-{鼠标}-", "鼠标"),
        ("-{}-", ""),
        ("-{比率1:2}-", "比率1:2"),
        ("-{zh-cn:甲&amp;乙;丙;zh-tw:丁}-", "甲&乙;丙"),
        ("-{zh-cn:甲&lt;;zh-tw:丁}-", "甲<"),
        # Nesting, links, templates and tags
        ("-{zh-hant:-{滑鼠}-;zh-hans:-{鼠-{标}-}-}-", "鼠标"),
        ("-{zh-hans:[[鼠|鼠标]];zh-hant:{{lang|en|x}}}-", "鼠标"),
        ("-{zh-hant:鼠;zh-hans:{{lang|en|mouse}}}-", "mouse"),
        ("[[鼠|-{zh-cn:鼠标;zh-tw:滑鼠}-]]", "鼠标"),
        ("[[-{zh-cn:鼠标;zh-tw:滑鼠}-]]", "鼠标"),
        ("{{nobr|-{zh-cn:鼠标;zh-tw:滑鼠}-}}", "鼠标"),
        ("{{nobr|-{R|鼠|标}-}}", "鼠|标"),
        ("'''-{zh-cn:鼠标;zh-tw:滑鼠}-'''", "鼠标"),
        ("-{zh-hans:鼠标\n;zh-hant:滑鼠\n}-", "鼠标"),
        ("-{zh-cn:鼠标<ref>-{a}-</ref>;zh-tw:滑鼠}-", "鼠标"),
        # Not markup of variants
        ("a-{{lang|en|b}}-c", "a-b-c"),
        ("<nowiki>-{</nowiki>甲<nowiki>}-</nowiki>", "-{甲}-"),
        ("甲}-", "甲}-"),
    ],
)
def test_variant_markup_shows_text_of_default_variant(markup: str, text: str) -> None:
    assert shown("zh", f"前文{markup}后文。") == f"前文{text}后文。"


@pytest.mark.parametrize(
    ("language", "wikitext", "text"),
    [
        ("sr", "Мрежа -{Ethernet}- и -{sr-ec:реч;sr-el:reč}-.", "Мрежа Ethernet и реч."),
        ("sr", "Аутор -{sr-Latn:Ana;sr-Cyrl:Ана}- пише.", "Аутор Ана пише."),
        ("sr", "Аутор -{pismo|sr-el:Ana;sr-ec:Ана}- пише.", "Аутор Ана пише."),
        ("sh", "Riječ -{sh-cyrl:реч;sh-latn:riječ}- je tu.", "Riječ riječ je tu."),
        ("kk", "Бұл -{kk-latn:söz;kk-cyrl:сөз;kk-arab:ٴسوز}- болды.", "Бұл сөз болды."),
        ("kk", "Бұл -{kk-tr:söz;kk-kz:сөз}- болды.", "Бұл сөз болды."),
        ("uz", "Bu -{uz-cyrl:сўз;uz-latn:soʻz}- edi.", "Bu soʻz edi."),
        ("ku", "Ev -{ku-arab:وشە;ku-latn:peyv}- e.", "Ev peyv e."),
        ("tg", "Ин -{tg-latn:kalima;tg:калима}- аст.", "Ин калима аст."),
        ("iu", "ᐊ -{ike-latn:uqaq;ike-cans:ᐅᖃᖅ}- ᐊ", "ᐊ ᐅᖃᖅ ᐊ"),
        ("gan", "吖-{gan-hant:漢;gan-hans:汉}-字", "吖汉字"),
        ("crh", "Bu -{crh-cyrl:сёз;crh-latn:söz}- edi.", "Bu söz edi."),
        ("wuu", "阿拉-{D|wuu-hans:汉}-字", "阿拉简体：汉；字"),
        ("zh-yue", "我-{yue-hans:汉;yue-hant:漢}-字", "我漢字"),
        ("zh-tw", "前文-{zh-cn:鼠标;zh-tw:滑鼠}-后文", "前文鼠标后文"),
        ("en", "A set -{x}- of words.", "A set -{x}- of words."),
        ("zh-min-nan", "chit -{ê}- jī", "chit -{ê}- jī"),
    ],
)
def test_wikis_with_variants_read_their_markup_and_others_do_not(
    language: str, wikitext: str, text: str
) -> None:
    assert shown(language, wikitext) == text


def test_every_language_with_variants_has_converter_of_its_own() -> None:
    for code, converter in CONVERTERS.items():
        assert converter_code(code) == code
        assert {converter_code(variant) for variant in converter.names} <= {code, ""}
        assert pickle.loads(pickle.dumps(wiki_settings(code))) == wiki_settings(code)


@pytest.mark.parametrize(
    ("wikitext", "paragraphs"),
    [
        ("前文-{未闭合。\n\n后文。", ["前文未闭合。", "后文。"]),
        ("前文-{H|zh-cn:未闭合。\n== 题 ==\n后文。", ["前文zh-cn:未闭合。", "后文。"]),
        ("-{H|zh-cn:鼠标;zh-tw:滑鼠}-\n前文。\n\n后文。", ["前文。", "后文。"]),
        ("前文。-{H|zh-cn:鼠标;zh-tw:滑鼠}- 后文。", ["前文。 后文。"]),
        ("前文（-{H|zh-cn:鼠标}-），后文。", ["前文，后文。"]),
    ],
)
def test_unclosed_or_silent_markup_loses_no_text(wikitext: str, paragraphs: list[str]) -> None:
    assert clean_wikitext(wikitext, wiki_settings("zh")) == paragraphs


@pytest.mark.parametrize(
    "unit", ["-{", "}-", "-{zh-cn:a;", "-{A|", ";zh-cn:b=>", "-{a}-", "-{&", "-{zh:[["]
)
def test_time_for_hostile_markup_is_linear(unit: str) -> None:
    def seconds(count: int) -> float:
        text = f"前-{{{unit * count}}}-后"
        start = time.process_time()
        clean_wikitext(text, wiki_settings("zh"))
        return time.process_time() - start

    seconds(100)
    once = min(seconds(4000) for _ in range(3))
    assert min(seconds(16_000) for _ in range(3)) < 4 * 2 * once + 0.05
