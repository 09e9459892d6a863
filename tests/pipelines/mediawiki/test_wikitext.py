"""`pipelines.mediawiki.wikitext`: one page's wikitext becomes text passages."""

# ruff: noqa: RUF001 - punctuation of several scripts
from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.dump_parts import read_articles
from pipelines.mediawiki.dropped_text import DroppedText
from pipelines.mediawiki.wikitext import WikiSettings, clean_wikitext, is_redirect, wiki_settings

EN = wiki_settings("en")
IT = wiki_settings("it")
JA = wiki_settings("ja")


def clean(text: str, markup: WikiSettings = EN) -> str:
    """The paragraphs of `text`, one a line."""
    return "\n".join(clean_wikitext(text, markup))


PROSE = [
    ("plain text", "plain text"),
    ("one\ntwo\n\nthree", "one two\nthree"),
    ("a [[link]] and [[target|label]]s.", "a link and labels."),
    ("[[Star Trek: Voyager]] and [[wikt:word|word]].", "Star Trek: Voyager and word."),
    ("[[:en:Bear|bear]], [[:en:Wolf]]", "bear, Wolf"),
    ("''i'' '''b''' '''''both'''''", "i b both"),
    ("L''''armonium''' suona", "L'armonium suona"),
    ("[[a|''b'' {{lang|fr|c}}]] d", "b c d"),
    ("[http://x.org a label] and [https://x.org] end", "a label and end"),
    ("[http://x.org ''a'' {{nowrap|b}}] end", "a b end"),
    ("see http://x.org/a?b=c now", "see now"),
    ("a&nbsp;b &amp;nbsp; c &ndash; d&#33;", "a b c – d!"),
    ("soft\u00adhyphen zero\u200bwidth \u200fmark", "softhyphen zerowidth mark"),
    ("a<br>b<br/>c", "a b c"),
    ("a<br><br />b", "a\nb"),
    ("<blockquote>quoted</blockquote><poem>a\nb</poem>", "quoted\na b"),
    ("x<sup>2</sup>, 10<sup>-6</sup>, 19<sup>th</sup>, H<sub>2</sub>O", "x², 10⁻⁶, 19th, H2O"),
    ("''x''<sub>''n''</sub>", "xn"),
    ("<nowiki>[[not a link]] '' ''</nowiki>", "[[not a link]] '' ''"),
    ("<nowiki>*</nowiki> no list", "* no list"),
    ("a<!-- b -->c<!-- d", "ac"),
    ("{{a\n\nOne <!-- b --> two <!-- c --> three", "One two three"),  # open braces looked ahead
    ("{{a\n\nx<nowiki>[1]</nowiki> y<nowiki>[2]</nowiki> z", "x[1] y[2] z"),
    ("a<ref>b</REF > c<ref name=n>d<ref>e</ref> f", "a c f"),
    ("one\n<!-- a comment\n\nof lines -->\ntwo", "one two"),
    ("__NOTOC__\ntext __FILE__", "text __FILE__"),
    ("a <tt>b</tt> <span style='color:red'>c</span> <code>print</code>", "a b c print"),
]

GONE = [
    "* list\n# list\n; term\n: indented\n preformatted",
    "{| class=x\n| cell {{x}}\n{|\n| nested\n|}\n|}",
    "== Heading ==\n=== Another ===\n",
    "{{Infobox|a={{b|{{c}}}}|d=[[e]]\n|f={|\n|}\n}}",
    "[[File:a.jpg|thumb|A [[b|c]] with [[d]]]]",
    "[[Category:x]][[es:Alemán]]{{DEFAULTSORT:x}}{{Main|y}}",
    "<ref>a {{cite}} [[b]]</ref><ref name=x />",
    "<gallery>\na.jpg|b\n</gallery><timeline>x</timeline>",
    "<table><tr><td>a<table><tr><td>b</td></tr></table></td></tr></table>",
    "<ul><li>a<ul><li>b</li></ul></li></ul>",
    "<syntaxhighlight lang=c>\nint main() {{}}\n</syntaxhighlight>",
    "<math>\\frac{a}{{b}}</math>",
    "#REDIRECT [[x]]",
    "<includeonly>a</includeonly>{{{1|}}}",
    "----",
]

TEMPLATES = [
    ("{{convert|93000|sqft|m2|abbr=on}}", "93,000 sq ft (8,600 m²)"),
    ("{{convert|5|to|10|km|mi}}", "5 to 10 km (3.1 to 6.2 mi)"),
    ("{{convert|5|ft|10|in|m}}", "5 ft 10 in"),
    ("{{convert|1|mi|km}}", "1 mi (1.6 km)"),
    ("{{convert|1.5|km|mi nmi}}", "1.5 km (0.93 mi; 0.81 nmi)"),
    ("{{convert|1000|metres|ft}}", "1,000 m (3,300 ft)"),
    ("{{convert|-5|m2|sqft|1}}", "-5 m² (-53.8 sq ft)"),
    ("{{convert|0|km|mi}}", "0 km (0 mi)"),
    ("{{convert|5|km|mi|0}}", "5 km (3 mi)"),
    ("{{convert|20|C|F}}", "20 °C"),
    ("{{convert|5|km|kg}}", "5 km"),
    ("{{convert|1/2|mi|km}}", "1/2 mi"),
    ("{{convert|5|km|mi|disp=out}}", "5 km"),
    ("{{convert|300|/sqmi|/km2}}", "300/sq mi (120/km²)"),
    ("a {{convert|6|ft|adj=on}} wall", "a 6 ft (1.8 m) wall"),
    ("{{cvt|111866|km}}", "111,866 km (69,510 mi)"),
    ("{{lang|de|Wissenschaft}} ({{lang-de|''Wort''}})", "Wissenschaft (Wort)"),
    ("{{transl|ar|ALA|''ilāh''}}", "ilāh"),
    ("{{nowrap|''n'' {{=}} 2}}", "n = 2"),
    ("{{nowrap|1=a = b}}", "a = b"),
    ("{{circa|1417}}", "c. 1417"),
    ("3{{frac|1|2}} and {{frac|3|1|2}}", "31/2 and 3 1/2"),
    ("{{abbr|no.|number}} 10", "no. 10"),
    ("{{as of|2007|7}} and {{as of|2017|lc=y}}", "As of July 2007 and as of 2017"),
    ("{{ill|Name|fr|Nom|lt=label}} {{ill|Name|fr}}", "label Name"),
    ("1417{{ndash}}1701{{snd}}a{{mdash}}b", "1417–1701 – a—b"),
    ("''GQ''{{'}}s critic", "GQ's critic"),
    ("{{val|6.241|e=18|u=m}}", "6.241 × 10¹⁸ m"),
    ("{{formatnum:1234567}}", "1,234,567"),
    ("{{birth date|1935|1|8}}", "January 8, 1935"),
    ("{{harvtxt|Chiu|Wong|1991}} show", "Chiu and Wong (1991) show"),
    ("{{nihongo|'''Ranma'''|らんま|Ranma}} is", "Ranma (らんま, Ranma) is"),
    ("{{nowrap|a {{lang|fr|b [[c|d]]}}}} e", "a b d e"),
    ("{{USS|Enterprise|CV-6}}", "USS Enterprise (CV-6)"),
    ("a {{!}} b", "a | b"),
    ("use {{Ada/kw|for}} here", "use for here"),
]

MENDED = [
    ("X ({{IPAc-en|x}}) is", "X is"),
    ("X ({{IPAc-en|x}}; born 1 May) is", "X (born 1 May) is"),
    ("X ({{lang|fr|Y}}, {{IPA|y}}) is", "X (Y) is"),
    ("X (IPA: {{IPA|/x/}}, ''Y'') is", "X (Y) is"),
    ("X ({{IPAc-en|x}} or {{IPAc-en|y}}; 406–453) is", "X (406–453) is"),
    ("a sound {{IPA|[ɬ]}} here", "a sound [ɬ] here"),
    ("one {{x}}, two {{x}}.", "one, two."),
    ("one,{{x}}, two", "one, two"),
    ("the main() call and .NET 4", "the main() call and .NET 4"),
    ("'''X''' (<ref>y</ref>) z", "X z"),
]


@pytest.mark.parametrize(("wikitext", "text"), PROSE + TEMPLATES + MENDED)
def test_text_is_kept(wikitext: str, text: str) -> None:
    assert clean(wikitext) == text


@pytest.mark.parametrize("wikitext", GONE)
def test_what_is_no_text_goes_and_its_surroundings_stay(wikitext: str) -> None:
    assert clean(wikitext) == ""
    assert clean(f"Before it.\n\n{wikitext}\n\nAfter it.") == "Before it.\nAfter it."


def test_closing_sections_end_at_a_heading_of_their_level() -> None:
    page = "A.\n== See also ==\ntext\n=== Sub ===\nb\n== C ==\nD.\n== References ==\ne"
    assert clean(page) == "A.\nD."
    assert clean("A.\n== Voci correlate ==\nb", IT) == "A."
    assert clean("あ。\n== 脚注 ==\nb\n== 歴史 ==\nい。", JA) == "あ。\nい。"
    # Comments and templates have no headings.
    assert clean("A.\n<!--\n== References ==\n-->\nB.") == "A. B."


PROSE_SECTION = (
    "The notes program was the best known of them all, and it kept what was written by hand as "
    "ink.<ref>A</ref> It could be read by others, and many of its owners bought it only for that."
)


def test_a_closing_section_that_holds_prose_is_text() -> None:
    page = f"A.\n== Software ==\n=== Notes ===\n{PROSE_SECTION}\n=== Other ===\nB.\n"
    said = PROSE_SECTION.replace("<ref>A</ref>", "")
    assert clean(page) == f"A.\n{said}\nB."
    notes = "== Notes ==\n{{reflist}}\n* C is long, " + "x " * 60
    assert clean(page + notes) == f"A.\n{said}\nB."
    works = "Smith, J. (1999). ''A title of a work that is long, and goes on and on and on''. Xy."
    assert clean(f"A.\n== Sources ==\n{works}\n\n{works}\n\n{works}") == "A."
    assert (
        clean("A.\n== References ==\n" + "* [[B]]: " + "c " * 90 + f"\n{PROSE_SECTION[:150]}.")
        == "A."
    )
    prose = "これは本文であって注釈の一覧ではない。" * 6
    assert clean(f"あ。\n== 注釈 ==\n{prose}\n", JA) == f"あ。\n{prose}"


@pytest.mark.parametrize(
    "tag",
    ['<ref name = "Smith <i>x</i>">t</ref>', '<ref name = "a > b">t</ref>', '<ref name="a > b" />',
     '<ref name = "Smith "the" 2004">t</ref>', '<ref name="<x>" />',
     '<ref name = "Man Known as "Father of <i>Hills</i>" Dies">t</ref>',
     '<ref name = "Man Known as "Father of <i>Hills</i>" Dies" />',
     '<ref name = "Man Known as "Fathe...">t</ref>', '<REF name = "Man "Fathe <i>...">t</REF>',
     '<ref name = "Man "Father" {{cite|t}}</ref>', '<ref name=a<b>t</ref>'],
)  # fmt: skip
def test_reference_with_any_quotes_is_left_out(tag: str) -> None:
    assert clean(f"A{tag} b.<ref name=c>d</ref> e") == "A b. e"


@pytest.mark.parametrize(
    "indented",
    ["One.\n\u200e:Two.", "One.\n&nbsp;:Two.", "One.\n''':Two'''.", "One.\n\t: Two.",
     "One.\n'':Two.''", "One.<br>:Two.", "One. <br /> ::Two."],
)  # fmt: skip
def test_colon_that_begins_a_line_of_text_is_dropped(indented: str) -> None:
    assert clean(indented) == "One. Two."


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("One: two. He said:three. <ref>a</ref>: four", "One: two. He said:three.: four"),
        # A list that is numbered by hand.
        ("These are:\n35. One\n36.\n\n37. Three\n\nText.", "These are:\nText."),
        ("1. FC is a club.\n\nIt plays.", "1. FC is a club.\nIt plays."),
        ("In\n1999. It was.", "In 1999. It was."),
        # A closing bracket that nothing opens.
        ("He left. ) She came.", "He left. She came."),
        ("He left.{{x}}) She (or he) came; a) one.", "He left. She (or he) came; a) one."),
        # A sentence that lost its formula.
        ("First one. So <math>\\sqrt{x}</math> holds. Last one.", "First one. Last one."),
        ("The vector <math>x</math> is short.", "The vector x is short."),
        ("See e.g. Figure <math>\\pi</math> here. Next.", "Next."),
        # A formula on a separate line.
        ("One stays. The law is\n:<math>\\frac{a}{b}</math>\nwhere a is big. Two stays.",
         "One stays. Two stays."),
        ("The law is as follows.\n\n:<math>\\frac{a}{b}</math>\n\nThen it holds.",
         "The law is as follows.\nThen it holds."),
        # Titles in bold and above lists are headings.
        ("'''Title'''\n\nText is here.\n\nThe cities\n* A\n* B\n\nThese are:\n* C",
         "Text is here.\nThese are:"),
    ],
)  # fmt: skip
def test_lines_and_sentences(page: str, text: str) -> None:
    assert clean(page) == text


BLOCKS = [
    ("en", "{{quote|The mill burned.}}"),
    ("en", "{{Cquote\n|1=The mill burned.\n|2=A miller}}"),
    ("en", "{{poem quote|\n:The mill burned.\n}}"),
    ("en", "<blockquote>The mill burned.</blockquote>"),
    ("en", "<blockquote>\n  The mill burned.\n</blockquote>"),
    ("en", "<center>The mill burned.</center>"),
    ("en", "<poem>\n::The mill burned.\n</poem>"),
    ("es", "{{cita|The mill burned.}}"),
    ("fr", "{{vers|The mill burned.}}"),
    ("en", "{{quote\n|text=The [[fire|mill]] burned.\n|author=[[a|b]]}}"),
    ("en", "{{rquote|right|The mill burned.|A miller}}"),
    ("it", "{{Quote\n |testo = The mill burned.\n |autore = X}}"),
    ("ru", "{{цитата|текст=The mill burned.}}"),
    ("cs", "{{Citát|The mill burned.|A miller}}"),
    ("da", "{{Citat|The mill burned.|A miller}}"),
    ("fi", "{{Sitaatti|The mill burned.|A miller}}"),
    ("fi", "{{lainaus|The mill burned.}}"),
    ("hu", "{{idézet|The mill burned.|A miller}}"),
    ("no", "{{sitat|The mill burned.|A miller}}"),
    ("nn", "{{sitat|The mill burned.}}"),
    ("tr", "{{Alıntı|The mill burned.|A miller}}"),
]


@pytest.mark.parametrize(("language", "block"), BLOCKS)
@pytest.mark.parametrize("after", [" He saw it.", "\nHe saw it.", "\t{{x}} He saw it.", "\n He"])
def test_text_on_line_of_block_is_kept(language: str, block: str, after: str) -> None:
    """A line that begins with a blank in the page itself is preformatted."""
    paragraphs = clean(f"She wrote: {block}{after}", wiki_settings(language)).split("\n")
    last = ["He saw it."] if "saw" in after else []
    assert paragraphs == ["She wrote:", "The mill burned.", *last]


@pytest.mark.parametrize(("language", "block"), BLOCKS)
@pytest.mark.parametrize("mark", [":", " ;"])
def test_list_mark_behind_block_on_its_line_is_text(language: str, block: str, mark: str) -> None:
    wikitext = f"She wrote: {block}{mark} he saw it.\n: a list item"
    paragraphs = clean(wikitext, wiki_settings(language)).split("\n")
    assert paragraphs == ["She wrote:", "The mill burned.", "he saw it."]


@pytest.mark.parametrize(
    "block", ["{|\n| cell\n|}", "<div>", "<ref>a</ref>", "<gallery>\na.jpg\n</gallery>"]
)
def test_list_mark_counts_at_start_of_line_only(block: str) -> None:
    dropped = DroppedText()
    assert clean_wikitext(f"{block}: Text.\n: item", EN, dropped=dropped) == ["Text."]
    assert dropped.characters["list"] == len(": item")
    assert clean(f"{block}\n* item\n\nText.") == "Text."


@pytest.mark.parametrize(
    "block",
    ["{{pb}}", "<hr>", "{|\n| cell\n|}", "<gallery>\na.jpg\n</gallery>", "<references />",
     "<ul><li>item</li></ul>", "<h3>Title</h3>", "=== Title ===", "{{quote|* item}}",
     "{{quote|\n{|\n| cell\n|}\n}}", "<pre>code</pre>", "<br><br>"],
)  # fmt: skip
def test_text_after_block_without_text_is_kept(block: str) -> None:
    assert clean(f"One stays.\n{block} Two stays.") == "One stays.\nTwo stays."


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("{{nowrap|n {{=}} 5}} holds.", "n = 5 holds."),
        ("{{nowrap|{{math|1=a = b}}}} holds.", "a = b holds."),
        ("{{nowrap|[[Sum|a=b]] c}} holds.", "a=b c holds."),
        ("{{nowrap|[[x|''a''=b|c]]}} holds.", "a=b|c holds."),
        ("{{nowrap|[http://x.org a=b] c}} holds.", "a=b c holds."),
        ("{{nowrap|<math>n = 5</math> c}} holds.", "n = 5 c holds."),
        ("{{nowrap|a {{!}} b}} {{=}} c", "a | b = c"),
        ("{{=}} is a sign.", "= is a sign."),
        ("Its {{sic|wierd}} name", "Its wierd [sic] name"),
        ("It {{sic|recie|ved}} it", "It recieved [sic] it"),
        ("It {{sic|hide=y|recie|ved|reason=x}} it", "It recieved it"),
        ("In {{sic|1=May|nolink=y}} it", "In May [sic] it"),
        ("I {{Sic}} was{{sic|?}}", "I [sic] was[sic?]"),
        ("{{HMS|Brave|1797}} {{HMS|Brave|1797|6}}", "HMS Brave (1797) HMS Brave"),
        ("{{USS|Iowa|BB-61|1}} {{SS|Iowa|1920|2}} {{MV|Iowa|1920|3}}", "BB-61 Iowa Iowa (1920)"),
        ("{{ship|French ship|Orient|1791|2}} {{ship||Orient}}", "Orient Orient"),
        ("A<section begin=x />b c<section end=x/> d", "Ab c d"),
        ("One\n<section begin=x/>\ntwo <section end=x />three", "One two three"),
        ("[[[town|village]]: more text] stays", "[village: more text] stays"),
        ("It is [[[town]]] now", "It is [town] now"),
        ("[[File:a.jpg|thumb|One [[a]].\n\nTwo [[b|c]].\n\nThree.]] Text", "Text"),
        ("The data are at http://x.org/data. The next is here.",
         "The data are at. The next is here."),
        ("It (see http://x.org/a_(b)), and http://x.org/c, is", "It (see), and, is"),
        ("データはhttp://x.org/a。次は", "データは。次は"),
    ],
)  # fmt: skip
def test_words_and_marks_of_line_are_kept(wikitext: str, text: str) -> None:
    assert clean(wikitext) == text


@pytest.mark.parametrize(
    ("language", "wikitext", "text"),
    [
        ("fr", "Le {{sic|mot}} est là.", "Le mot [sic] est là."),
        ("zh", "他{{sic|写}}了。", "他写 [原文如此]了。"),
        ("de", "Er sagt: {{Zitat\n |Text = Es ist so.\n |Autor = X}}", "Er sagt: „Es ist so.“"),
    ],
)
def test_quoted_words_are_kept_in_any_language(language: str, wikitext: str, text: str) -> None:
    assert clean(wikitext, wiki_settings(language)) == text


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("<poem>", "</poem>"), ("{{poemquote|", "}}"), ("<POEM style='x'>", "</POEM>"),
     ("{{quote|<poem>", "</poem>}}"), ("<blockquote>", "</blockquote>")],
)  # fmt: skip
def test_all_lines_of_poem_are_kept(opening: str, closing: str) -> None:
    lines = ":The lamp was lit,\n  the boats came in,\n::and over wet\nand salty planks"
    text = clean(f"He wrote:\n{opening}\n{lines}\n{closing}\nIt is read.\n: Not this.")
    poem = "The lamp was lit, the boats came in, and over wet and salty planks"
    assert text == f"He wrote:\n{poem}\nIt is read."


@pytest.mark.parametrize(
    ("language", "paragraphs"),
    [
        ("de", ["1. Mai 1945 war ein Tag ohne Schule.", "2. Mai 1945 war wieder ein Schultag."]),
        ("et", ["6. aprillil algas sõda ja kestis kaua.", "7. aprillil 1939 lõppes see kõik.",
                "8. aprillil tuli rahu kogu riiki."]),
        ("en", ["(1) The king may call the members.", "(2) He has to say why he does so."]),
        ("ja", ["1. これは日付ではなくて文章である。", "2. これも同じように文章である。"]),
    ],
)  # fmt: skip
def test_numbered_paragraphs_of_prose_are_kept(language: str, paragraphs: list[str]) -> None:
    assert clean("\n\n".join(paragraphs), wiki_settings(language)).split("\n") == paragraphs


@pytest.mark.parametrize(
    ("language", "title", "prose"),
    [("en", "Notes", PROSE_SECTION.replace("<ref>A</ref>", "")),
     ("it", "Note", PROSE_SECTION.replace("<ref>A</ref>", "")),
     ("ja", "脚注", "これは本文であって注釈の一覧ではない。" * 6)],
)  # fmt: skip
def test_prose_in_subsection_of_closing_section_is_kept(
    language: str, title: str, prose: str
) -> None:
    page = (
        f"A.\n== {title} ==\n* a\n=== X ===\n{prose}\n=== Y ===\nSmith, J. (1999). B. C.\n"
        f"==== Z ====\n{prose}\n== Next ==\nD."
    )
    assert clean(page, wiki_settings(language)) == f"A.\n{prose}\n{prose}\nD."


@pytest.mark.parametrize(
    ("page", "sentences", "characters"),
    [
        ("One. So <math>\\sqrt{x}</math> is. Two.", {"formula": 1}, {"formula": 8}),
        ('One. Call <code>f("a")</code> now. Two.', {"code": 1}, {"code": 11}),
        ("The law is\n:<math>\\pi</math>\nwhere a is big. Two.", {"formula": 1}, {"formula": 28}),
        ("<math>\\sqrt{x}</math>\n\nOne.", {}, {}),
        ("One.\n* a\n: b\n* [[c|d]]\n", {}, {"list": 15}),
        ("One.\n\n1. a\n2. b", {}, {"list": 8}),
        ("One.\n{|\n|a\n|}\n", {}, {"table": 9}),
        ("One.[[File:a.jpg|b]][[Category:c]]", {}, {"caption": 16}),
        ("One.<ref>a</ref>{{reflist}}", {}, {"reference": 12, "template": 11}),
        ("One.\n== Two ==\nThree.\n\n'''Four'''\n\nFive.", {}, {"heading": 17}),
        ("One.\n== Notes ==\n* a\n=== X ===\nb", {}, {"closing-section": 28}),
        ("One.\n<pre>a</pre>", {}, {"code": 12}),
    ],
)
def test_dropped_text_is_counted(
    page: str, sentences: dict[str, int], characters: dict[str, int]
) -> None:
    dropped = DroppedText()
    clean_wikitext(page, EN, dropped=dropped)
    assert dict(dropped.sentences) == sentences
    counted = {reason: number for reason, number in dropped.characters.items() if number}
    assert counted.keys() == characters.keys()
    assert all(abs(counted[reason] - number) <= 3 for reason, number in characters.items())


def test_formula_line_in_quotation_ends_sentence() -> None:
    page = "{{quote\n|text=The law is old.\n: <math>\\pi</math>\nIt holds. It stays.}}"
    assert clean(page) == "The law is old.\nIt holds. It stays."


def test_ordinal_of_dropped_sentence_leaves_no_fragment() -> None:
    page = "Eins bleibt. Am 15. Mai galt <math>\\pi</math> hier. Zwei bleibt."
    assert clean(page, wiki_settings("de")) == "Eins bleibt. Zwei bleibt."
    page = "पहला है। यह <math>\\pi</math> है। दूसरा है।"
    assert clean(page, wiki_settings("hi")) == "पहला है। दूसरा है।"


def test_languages() -> None:
    assert clean("{{formatnum:3.26}} e {{M|1|M|Hz}} a {{TA|4 m}}", IT) == "3,26 e 1 MHz a 4 m"
    assert clean("{{citazione necessaria|Gli scienziati}} credono", IT) == "Gli scienziati credono"
    assert clean("A {{cn|date=May 2018}} b") == "A b"
    assert clean("[[Immagine:x.png|thumb|y]][[Categoria:z]]testo", IT) == "testo"
    assert (
        clean("{{仮リンク|言語中枢|en|Language center}}と{{読み仮名|将|ひき}}", JA)
        == "言語中枢と将（ひき）"
    )
    assert clean("一行目の\n二行目", JA) == "一行目の二行目"
    assert clean("（{{lang|en|X}}、{{IPA|x}}）", JA) == "（X）"
    assert clean("Il dit : « oui » ; non", wiki_settings("fr")) == "Il dit : « oui » ; non"
    assert clean("-{zh-hans:软件; zh-hant:軟體}-好", wiki_settings("zh")) == "软件好"
    assert clean("{{lang-de|a}} [[Datei:x.png]]b", wiki_settings("de-AT")) == "a b"


def test_the_dumps_own_namespaces_count() -> None:
    markup = wiki_settings("xx", {6: "Bildo_loka", 14: "Kategorio", 0: ""})
    assert clean("a [[bildo loka:x.png|b]][[Kategorio:c]][[File:d.png]]", markup) == "a"
    assert clean("a [[Bildo loka:x.png|b]]") == "a b"
    assert pickle.loads(pickle.dumps(markup)) == markup
    assert hash(markup) == hash(wiki_settings("xx", {6: "Bildo_loka", 14: "Kategorio"}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("#REDIRECT [[x]]", True), ("#redirect:[[x]]", True), ("\n# RINVIA [[x]]", True),
     ("#転送 [[x]]", True), ("#WEITERLEITUNG [[x]]", True), ("#REDIRECTION[[x]]", True),
     ("# redirect is a word [[x]]", False), ("REDIRECT [[x]]", False)],
)  # fmt: skip
def test_redirects(text: str, expected: bool) -> None:
    assert is_redirect(text) == expected


BROKEN = [
    ("{{Infobox\n| a = b\n\n'''Text''' stays.", "Text stays."),
    ("Text {{lang|fr|mot stays.\n\nNext.", "Text mot stays.\nNext."),
    ("{| class=x\n| a\n\nText stays.", "Text stays."),
    ("[[File:a.jpg|thumb|b\nText stays.", "Text stays."),
    ("A [[link stays.\n\nB [[c|d]] e.", "A link stays.\nB d e."),
    ("A }} b ]] c |} d.", "A b c |} d."),
    ("A <ref>b\nText stays.", "A\nText stays."),
    ("A <ref name=x> is\nB <ref>c</ref> d.", "A is B d."),
    ("A <!-- b\n\nText stays.", "A\nText stays."),
    ("A <REF>b</REF> c <ref>d</ref >.", "A c."),
    ("A <math>b\n\nC.", "A b\nC."),
    ("<blockquote>A {{nowrap|b</blockquote> c}} d.", "A b\nc d."),
    ("<poem>\n:A b.\n\n== H ==\nC {{nowrap|d</poem> e", "C d\ne"),
    ("{{x|{{y}}\n== H ==\nText stays.\n{{z}}", "Text stays."),
    ("a < b and <foo> c", "a < b and <foo> c"),
]


@pytest.mark.parametrize(("wikitext", "text"), BROKEN)
def test_broken_markup_costs_at_most_its_paragraph(wikitext: str, text: str) -> None:
    assert " ".join(clean(wikitext).split()) == " ".join(text.split())


SEEDS = [
    "{{", "[[", "<", "{|\n", "\n{|", "[http://a ", "<ref>", "<!--", "{{{", "''", "[[File:a", "}}",
    "[[a|", "{{lang|en|", "{{nowrap|", "<math>", "<table>", "&", "(", "( ", "(, ", "\n==a==",
    "\n== References ==", "\n:<math>\\pi</math>", "<REF></ref ", "{{\n\n", "<ul><ul></ul>", "[[[",
    "__", ",,", "\n* {{a}}", "<code>x</code", "<nowiki>", "{{x}}", ". \ufdd1", "-{", "<br>",
    '<ref "', '<ref "a <i>', '<ref a" ', "<ref name=<b ", "<br>:", "\n\t:", "\n'':",
    "{{{!}}", "[[:a:", "{{IPA|x}}", "\ufdec", "\ufdd0 or ", "a: ", " ;", "<sup>",
]  # fmt: skip


PIECES = st.one_of(
    st.sampled_from([*SEEDS, "]]", "</ref>", "|}", "\n|}", "-->", "|", "\n", " ", "a", "b. C",
                     "=", "{{convert|1|m}}", "'", "&nbsp;", "\n*", "\n:", "</table>",
                     "</nowiki>", "）"]),
    st.text(max_size=5),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join), st.sampled_from(["en", "it", "ja", "zh", "fr"]))
def test_any_text_gives_clean_paragraphs(text: str, language: str) -> None:
    for paragraph in clean_wikitext(text, wiki_settings(language)):
        assert paragraph
        assert paragraph == " ".join(paragraph.split())
        assert not re.search("[\ufdd0-\ufdef]", paragraph)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=20).map("".join))
def test_broken_markup_does_not_reach_the_next_section(text: str) -> None:
    if (
        "<nowiki>" in text
        or "<!--" in text
        or re.search(r"References|<(ref|math|table|ul)", text, re.I)
    ):
        return
    assert "Sentinel stays here." in clean(f"{text}\n\n== Next ==\nSentinel stays here.")


RESIDUE = re.compile(
    r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|''|<ref|</|&nbsp;|&amp;|formula_|codice_|(?<!\w)\(\)|\( | ,|  "
)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["en-*.bz2", "it-*.gz", "ja-*.bz2"])
def test_real_pages_hold_no_residue(real_data: Path, pattern: str) -> None:
    markup = wiki_settings(pattern[:2])
    pages = paragraphs = 0
    for path in sorted((real_data / "wikipedia").glob(pattern)):
        for title, text in read_articles(path):
            pages += 1
            said = " ".join(re.findall(r"<nowiki>.*?</nowiki>", text, re.DOTALL))
            said += "".join(re.findall("'{4}|&#39;&#39;", text)).replace("&#39;", "'")
            for paragraph in clean_wikitext(text, markup):
                paragraphs += 1
                for residue in RESIDUE.findall(paragraph):
                    assert residue in said, (title, residue, paragraph)
    assert pages > 100
    assert paragraphs > 10 * pages
