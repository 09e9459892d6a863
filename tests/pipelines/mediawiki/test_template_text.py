"""Text that templates write: dates, centuries, numbers, keys, pronunciations, current dates."""

# ruff: noqa: RUF001 - many scripts
from __future__ import annotations

from pathlib import Path

import pytest
from support.dump_builder import dump, page

from pipelines.counters import DROPPED_TEMPLATE
from pipelines.counters import Counters as Counts
from pipelines.mediawiki.dropped_text import DroppedText
from pipelines.mediawiki.wikitext import UnknownTemplates, clean_wikitext, wiki_settings
from pipelines.sources import wikipedia
from schemas.corpus_configs import WikipediaSource

TIMESTAMP = "2019-03-07T09:05:00Z"


def written(language: str, wikitext: str) -> str:
    holes = UnknownTemplates()
    paragraphs = clean_wikitext(wikitext, wiki_settings(language), holes, timestamp=TIMESTAMP)
    assert holes.total == 0, holes.most_common()
    return "\n".join(paragraphs)


@pytest.mark.parametrize(
    ("language", "template", "text"),
    [
        # A whole date as one argument, and what follows it
        ("fr", "date|29 9 2019", "29 septembre 2019"),
        ("fr", "date-|1 janvier 1995", "1er janvier 1995"),
        ("fr", "date|01/02/1903", "1er février 1903"),
        ("fr", "date|2018-03-12|en aéronautique", "12 mars 2018"),
        ("fr", "date|15 janvier 2006|en musique", "15 janvier 2006"),
        ("fr", "date-|30 septembre", "30 septembre"),
        ("fr", "date-|mai 2007", "mai 2007"),
        ("fr", "date|1|janvier|1995", "1er janvier 1995"),
        ("de", "Datum|3.10.1990", "3. Oktober 1990"),
        ("es", "fecha|1/5/1990", "1 de mayo de 1990"),
        ("ru", "дата|1.5.1990", "1 мая 1990 года"),
        ("no", "dato|17.5.1814", "17. mai 1814"),
        ("ja", "生年月日|1926/6/1", "1926年6月1日"),
        ("en", "start date|29 September 2019", "29 September 2019"),
        # Ordinals of centuries
        ("fr", "s|XII", "XIIe siècle"),
        ("fr", "s-|XXI", "XXIe siècle"),
        ("fr", "s|I", "Ier siècle"),
        ("fr", "s|XIX|e", "XIXe siècle"),
        ("fr", "s|19", "XIXe siècle"),
        ("fr", "-s-|V", "Ve siècle av. J.-C."),
        ("fr", "s2|XVI||XVII", "XVIe et XVIIe siècles"),
        ("fr", "millénaire|II", "IIe millénaire"),
        ("fr", "République|V", "Ve République"),
        # Numbers and units
        ("fr", "unité|8700471 habitants", "8 700 471 habitants"),
        ("fr", "nombre|24000|ports", "24 000 ports"),
        ("fr", "formatnum:9000", "9 000"),
        ("de", "formatnum:9000", "9.000"),
        ("es", "formatnum:9000", "9000"),
        ("pl", "formatnum:12345.5", "12 345,5"),
        ("it", "formatnum:1234567", "1 234 567"),
        ("fr", "tmp|2|°C", "2 °C"),
        ("fr", "convert|1,5|km|mi", "1,5 km (0,93 mi)"),
        ("en", "convert|1,500|km|mi", "1,500 km (930 mi)"),
        ("de", "convert|5|ft|10|in|cm", "5 ft 10 in"),
        ("en", "convert|1|km|mi nmi m ft", "1 km (0.62 mi; 0.54 nmi; 1,000 m)"),
        ("en", "convert|−5|to|5|m|ft", "−5 to 5 m (-16 to 16 ft)"),
        ("fr", "tmp|-12,5|°C", "-12,5 °C"),
        ("es", "unidad|12 km", "12 km"),
        ("en", "RailGauge|1435", "1,435 mm"),
        ("da", "brøk|1|2", "1/2"),
        ("ja", "formatnum:{{#expr: 12000 + 345 * 2}}", "12,690"),
        ("fr", "#expr: 10 / 4 round 1", "2.5"),
        # Keys
        ("en", "keypress|Rubout", "Rubout"),
        ("en", "key press|Ctrl|Alt|Del", "Ctrl+Alt+Del"),
        ("de", "Taste|Strg|C", "Strg+C"),
        ("fr", "touche|Maj", "Maj"),
        ("ru", "клавиша|Ctrl|V", "Ctrl+V"),
        ("pl", "klawisz|F1", "F1"),
        # Wraps around text and quotations
        ("en", "Avoid wrap|a–b", "a–b"),
        ("sv", "No break|a–b", "a–b"),
        ("cs", "cizojazyčně|en|word", "word"),
        ("fi", "kieli|en|word", "word"),
        ("tr", "dil|en|word", "word"),
        ("he", "ה|מילה", "מילה"),
        ("de", '"|Wort', "„Wort“"),
        ("es", '"|palabra', "«palabra»"),
        ("it", '"|parola', "«parola»"),
        ("fr", '"|mot', "« mot »"),
        ("de", "Zitat|Text=Das ist so.", "„Das ist so.“"),
        # The time of the revision
        ("en", "CURRENTYEAR", "2019"),
        ("en", "LOCALMONTHNAME", "March"),
        ("ru", "CURRENTMONTHNAMEGEN", "марта"),
        ("en", "CURRENTMONTH", "03"),
        ("en", "CURRENTDAY", "7"),
        ("en", "REVISIONDAY2", "07"),
        ("en", "CURRENTTIME", "09:05"),
        ("fr", "ANNÉEACTUELLE", "2019"),
        ("de", "JETZIGES_JAHR", "2019"),
        ("xx", "CURRENTYEAR", "2019"),
        ("en", "age|1950|3|8", "68"),
        ("de", "Alter|1950|3|7", "69"),
        ("fr", "âge|8|3|1950", "68"),
        ("en", "age|1950|3|8|1960|3|8", "10"),
    ],
)
def test_template_writes_text_that_reader_sees(language: str, template: str, text: str) -> None:
    assert written(language, f"x {{{{{template}}}}} y.") == f"x {text} y."


@pytest.mark.parametrize("name", ["CURRENTYEAR", "CURRENTMONTHNAME", "age|1950|3|8"])
def test_current_date_is_hole_when_page_has_no_timestamp(name: str) -> None:
    holes = UnknownTemplates()
    clean_wikitext(f"x {{{{{name}}}}} y.", wiki_settings("en"), holes)
    assert holes.total == 1


def test_age_at_a_date_without_a_day_is_a_hole() -> None:
    holes = UnknownTemplates()
    clean_wikitext("x {{age|1950|3|8|1960}} y.", wiki_settings("en"), holes, timestamp=TIMESTAMP)
    assert holes.total == 1


def test_current_date_is_that_of_revision_in_dump(tmp_path: Path) -> None:
    wikitext = "It is {{CURRENTYEAR}} now."
    (tmp_path / "x.xml").write_bytes(dump([page(1, wikitext)], language="en"))
    config = WikipediaSource(name="w", paths=(f"{tmp_path}/x.xml",))
    (split,) = wikipedia.plan(config)
    ((_, document),) = wikipedia.read(split, config, Counts().count)
    assert document.timestamp
    assert document.paragraphs == [f"It is {document.timestamp[:4]} now."]


@pytest.mark.parametrize(
    ("language", "wikitext", "text"),
    [
        ("en", "A dog (named {{IPAc-en|d|ɒ}}, plural ''dogs'') barks.",
         "A dog (named /dɒ/, plural dogs) barks."),
        ("en", "Welsh (or ''Cymraeg'', pronounced {{IPA|x}}) lives.",
         "Welsh (or Cymraeg, pronounced x) lives."),
        ("de", "Der Ort (sprich {{IPA|x}}) liegt.", "Der Ort (sprich x) liegt."),
        ("ja", "音（発音は {{IPA|x}}）だ。", "音（発音は x）だ。"),
        # An aside
        ("en", "X ('''Y''' {{IPA|x}}; {{lang-fr|Z}} {{IPA-fr|z}}) is.", "X (Y; Z) is."),
        ("en", "X (pronounced: {{IPA|x}}) is.", "X is."),
        ("en", "X ({{IPA|x}} or {{IPA|y}}) is.", "X is."),
        ("en", "X ({{IPA|x}}, {{IPA|y}}) is.", "X is."),
    ],
)  # fmt: skip
def test_pronunciation_in_brackets_stays_only_if_word_introduces_it(
    language: str, wikitext: str, text: str
) -> None:
    assert written(language, wikitext) == text


@pytest.mark.parametrize(
    ("language", "wikitext", "text"),
    [
        ("de", "Er sagte „Wort“ danach.", "Er sagte „Wort“ danach."),
        ("de", "Er sagte {{Zitat|Wort}} danach.", "Er sagte „Wort“ danach."),
        ("de", "Er sagte {{Zitat|Wort}}<ref>x</ref> danach.", "Er sagte „Wort“ danach."),
        ("cs", "Slovo „pes“, je tu.", "Slovo „pes“, je tu."),
        ("sk", "Slovo („pes“ ) je tu.", "Slovo („pes“) je tu."),
        ("en", "He said “ word” and (“{{sfn|x}} b”).", "He said “word” and (“b”)."),
        ("en", "He said “{{sfn|x}}” here.", "He said here."),
    ],
)
def test_blank_behind_closing_quotation_mark_stays(language: str, wikitext: str, text: str) -> None:
    assert written(language, wikitext) == text


@pytest.mark.parametrize(
    ("language", "template"),
    [
        ("de", "Metadaten Einwohnerzahl DE-BY|09162000"),
        ("de", "EWZ|DE-NW|05315000"),
        ("ja", "自治体人口/兵庫県|神戸市"),
        ("ja", "formatnum:{{#expr:{{自治体人口/兵庫県|神戸市}} + 1}}"),
        ("nl", "Inwoners Nederland|0363"),
        ("fr", "Données/Toulouse/évolution population|an"),
        ("ru", "Население|Москва|тс"),
        ("en", "Inflation|US|100|1900"),
        ("en", "#invoke:Data|main|x"),
        ("es", "#property:P1082"),
    ],
)
def test_sentence_with_data_of_other_pages_is_dropped_and_counted(
    language: str, template: str
) -> None:
    stop = "。" if language == "ja" else "."
    wikitext = f"One stays{stop} There are {{{{{template}}}}} here{stop} Two stays{stop}"
    holes, dropped = UnknownTemplates(), DroppedText()
    (text,) = clean_wikitext(wikitext, wiki_settings(language), holes, dropped=dropped)
    assert text.replace(" ", "") == f"Onestays{stop}Twostays{stop}"
    assert (holes.total, holes.templates_dropped) == (0, 1)
    assert dropped.sentences == {"unknown-template": 1}
    assert len(holes.most_common(DROPPED_TEMPLATE)) == 1


@pytest.mark.parametrize("expression", ["1 + {{odd}}", "x", "1 / 0"])
def test_expression_without_value_is_hole(expression: str) -> None:
    holes = UnknownTemplates()
    clean_wikitext(f"a {{{{#expr:{expression}}}}} b", wiki_settings("en"), holes)
    assert holes.total == 1
