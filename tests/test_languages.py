"""`pipelines.languages`: every file keeps the contract of docs/languages.md."""

# ruff: noqa: RUF001 - many scripts
from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from pipelines.languages import COMMON, FOLDER, codes, language_file, read_file
from pipelines.wikitext import Holes, clean_wikitext, markup_for
from pipelines.wikitext_rules import DROP, compile_rule
from pipelines.wikitext_templates import counted_name, first_lowered, wording_of
from pipelines.wikitext_units import PLURALS
from schemas.errors import ConfigError

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
    forms = PLURALS[joined.plural][0]
    for unit, words in joined.units.items():
        assert len(words.split(" / ")) == forms, f"{unit}: {words}"
    assert [title for title in joined.closing_sections if title != title.lower().strip()] == []


@pytest.mark.parametrize("code", [COMMON, *codes()])
def test_every_rule_of_a_file_can_be_used(code: str) -> None:
    own = read_file(FOLDER / f"{code}.yaml")
    language = "en" if code == COMMON else code
    for pattern in own.templates:
        assert compile_rule(pattern, wording_of(language)) is not None, pattern
    for expression, pattern in own.name_patterns.items():
        groups = re.compile(expression).groups
        assert compile_rule(pattern, wording_of(language), ["x"] * groups) is not None, pattern
    names = Counter(first_lowered(name) for line in own.templates.values() for name in line.split())
    assert [name for name, count in names.items() if count > 1] == []


def test_what_is_common_writes_no_words() -> None:
    for pattern in language_file(COMMON).templates:
        rest = re.sub(r"\{[^{}]*\}", " ", pattern)
        words = [word for word in re.findall(r"[^\W\d_]+", rest) if not _SYMBOLS.fullmatch(word)]
        assert pattern == DROP or words == [], pattern


def test_a_name_is_read_as_mediawiki_reads_it() -> None:
    assert counted_name("Modèle:nombre_12 ", "fr") == "nombre 12"
    assert counted_name("template: Nowrap", "fr") == "nowrap"
    assert counted_name("subst:Foo", "en") == "foo"
    for name in ("Nobr", "nobr", "NOBR", "Modèle:Nobr", "template:nobr", "MODÈLE: nobr "):
        assert clean_wikitext(f"a {{{{{name}|b}}}} c", markup_for("fr")) == ["a b c"]


def test_a_bad_file_is_one_clear_error(tmp_path: Path) -> None:
    for text, message in (
        (
            "name: x\ntemplates: {a: b}\ntemplates: {c: d}",
            "line 3: the key 'templates' stands twice",
        ),
        ("name: x\nmonth: []", "month"),
        ("name: [", "not a valid file of a language"),
    ):
        (tmp_path / "xx.yaml").write_text(text)
        with pytest.raises(ConfigError, match=re.escape(message)):
            read_file(tmp_path / "xx.yaml")


@pytest.mark.parametrize("pattern", ["{1", "a]", "[a", "{}", "{nosuchfunction 1}"])
def test_a_bad_pattern_is_an_error(pattern: str) -> None:
    with pytest.raises(ConfigError):
        compile_rule(pattern, wording_of("en"))


@pytest.mark.parametrize("code", ["ja", "pt", "ru", "zh", "ar"])
def test_english_words_stay_out_of_other_languages(code: str) -> None:
    for template in ("convert|5|km|mi", "convert|1|to|2|sqmi", "convert|3|furlong|km", "as of|2007",
                     "circa|1417", "BCE|44", "harvtxt|A|B|1999", "ordinal|5", "sclass|X|y",
                     "death date and age|1990|2|3|1916|5|1", "birth date|1990|2|3",
                     "US patent|12345"):  # fmt: skip
        (text,) = clean_wikitext(f"1 {{{{{template}}}}} 2", markup_for(code))
        english = "mile|kilomet|to|furlong|As|since|BCE|and|th|class|aged|February|patent"
        assert not re.search(rf"\b(?:\d*{english})", text), (template, text)


def rendered(code: str, wikitext: str) -> str:
    holes = Holes()
    text = "\n".join(clean_wikitext(wikitext, markup_for(code), holes))
    assert holes.total == 0, holes.most_common()
    return text


SAID = [
    ("fr", "Né le {{date|11|novembre|1866}} à Moulins.", "Né le 11 novembre 1866 à Moulins."),
    ("fr", "Né le {{Date de naissance-|1|1|1900}} ici.", "Né le 1er janvier 1900 ici."),
    ("fr", "Fondée au {{s-|XIII|e}}, Berlin a été", "Fondée au XIIIe siècle, Berlin a été"),
    ("fr", "Au {{XIXe siècle}}, le {{1er}} roi", "Au XIXe siècle, le 1er roi"),
    ("fr", "long de {{unité|12|km}}, {{unité|30|m|s|-1}}", "long de 12 km, 30 m s⁻¹"),
    ("fr", "{{Modèle:Unité|1234567.5|habitants}} là", "1 234 567,5 habitants là"),
    ("fr", "à {{convert|1.5|km|mi}}, {{convert|2|to|3|mi|km}}", "à 1,5 kilomètre, 2 à 3 milles"),
    ("de", "Am {{Datum|3|10|1990}} fuhr er {{convert|1234.5|km|mi}}.",
     "Am 3. Oktober 1990 fuhr er 1234,5 Kilometer."),
    ("it", "Nel {{secolo|19}} a {{M|1|k|m}} da {{russo|Я}}", "Nel XIX secolo a 1 km da Я"),
    ("es", "Nació el {{fecha|1|5|1990}} a {{unidad|12|km}}", "Nació el 1 de mayo de 1990 a 12 km"),
    ("ja", "{{生年月日と年齢|1926|6|1}}に{{convert|12|km}}の", "1926年6月1日に12キロメートルの"),
    ("ja", "{{死亡年月日と没年齢|1926|6|1|1962|8|5}}に", "1962年8月5日（36歳没）に"),
    ("en", "{{convert|1|-|3|-|5|ft}} by {{RailGauge|1435mm}}", "1–3–5 feet by 1,435 mm"),
    ("en", "10{{nbs}}km for {{CAD|5000}} is {{angbr|a}}", "10 km for C$5,000 is ⟨a⟩"),
    ("en", "1.2 {{solar luminosity}}, {{US patent|123456}}", "1.2 L☉, U.S. patent 123,456"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "wikitext", "text"), SAID)
def test_templates_write_what_their_language_says(code: str, wikitext: str, text: str) -> None:
    assert rendered(code, wikitext) == text
