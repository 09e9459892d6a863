"""The sample corpus: its world, its truth, its files."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import re
import subprocess
import sys
import tarfile
from collections import Counter
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

import fsspec
import pytest
from command_runs import Cli

from flows.sample import Article, Page, World, write_articles, write_pages, write_sample, write_tale
from flows.sample.draws import Draws
from flows.sample.wording import Sentence, a, cap, plain_text, texts
from flows.sample.world import Entity, everything, region_name
from pipelines.mediawiki.wikitext import clean_wikitext
from pipelines.mediawiki.words import markup_for

GOLDEN = "3d59c258361e4e730b0aae66f17ab8a112914a5b0d91da376e19eb7bdde94d4c"
"""Digest of the default corpus, so that no one changes it without noticing."""
BAD = r"[\[\]{}<>|_]|''|  | ,|\.\.|\bNone\b|\b([Tt]he|a|an|of) \1\b"
NEVER_PROSE = ("Quillmark", "Tallystone", "Itemward", "Platemark", "Navstone", "Boxstone",
               "Hatnoteworthy", "Unseenremark")  # fmt: skip
"""Words of `texts/markup.txt` that occur in what a cleaner drops, and nowhere else."""
WRONG_ARTICLE = r"\b[Aa] [aeio]\w|\b[Aa]n [bcdfgjklmnpqrstvwxyz]\w"
NS = "{http://www.mediawiki.org/xml/export-0.11/}"


@pytest.fixture(scope="module")
def articles() -> list[Article]:
    return list(write_articles(World(0, 400)))


@pytest.fixture(scope="module")
def pages() -> list[Page]:
    return list(write_pages(World(0, 400)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("sample")
    write_sample(str(target), articles=130, tales=3)
    return target


def _digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def _entities(world: World) -> list[Entity]:
    return [entity for _, entities in world.regions() for entity in entities]


# The world


def test_a_region_is_the_same_whenever_it_is_built() -> None:
    first, again = World(3, 400).region(2), World(3, 100).region(2)
    assert [e.title for e in everything(first)] == [e.title for e in everything(again)]
    other = World(4, 400).region(2)
    assert [e.title for e in everything(first)] != [e.title for e in everything(other)]


def test_titles_are_unique() -> None:
    titles = Counter(e.title for e in _entities(World(0, 3000)))
    assert len(titles) == 3000


def test_region_names_are_unique() -> None:
    assert len({region_name(7, index).name for index in range(3000)}) == 3000


@pytest.mark.parametrize("index", range(6))
def test_the_facts_agree(index: int) -> None:
    region = World(1, 100).region(index)
    for person in region.persons:
        assert person.born < person.moved < person.masterpiece_year < person.died
        if person.spouse is not None:
            assert person.spouse.spouse is person
            assert person.spouse.woman != person.woman
            assert person.spouse.home is person.home
        if person.teacher is not None:
            assert person.teacher.born + 18 <= person.born
            assert person.born + 14 < person.teacher.died
    for event in region.events:
        for somebody in (event.hero, event.witness):
            assert somebody.born + 16 <= event.year <= somebody.died
            assert event in somebody.events
    for building in region.buildings:
        assert building.architect.moved <= building.built <= building.architect.died
        if building.damaged_by is not None:
            assert building.built < building.damaged_by.year < building.damaged_by.repaired
    for work in region.works:
        assert work.subject.kind != "event" or work.subject.year <= work.year


def test_bad_arguments_say_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="articles is 0, expected"):
        write_sample(str(tmp_path), articles=0)
    with pytest.raises(ValueError, match="date is '2026', expected eight digits"):
        write_sample(str(tmp_path), date="2026")
    with pytest.raises(ValueError, match="size_mb is -1, expected"):
        write_sample(str(tmp_path), size_mb=-1)
    assert not list(tmp_path.iterdir())


# The text


def test_plain_text_knows_its_own_markup() -> None:
    assert (
        plain_text("'''A''' saw the [[B (x)|b]]s, ''c'' and [[d]]s.") == "A saw the bs, c and ds."
    )
    assert plain_text("in 12&nbsp;May, 3&ndash;4") == "in 12 May, 3\N{EN DASH}4"
    for odd in (
        "{{convert|1|km}}",
        "x<ref>y</ref>",
        "''Book'''s",
        "[[Town, Land|]]",
        "A &amp;amp; B",
    ):
        assert plain_text(f"It was {odd} then.") is None


def test_articles_and_capitals() -> None:
    assert a("otter") == "an otter"
    assert a("[[barge]]") == "a [[barge]]"
    assert cap("the [[x]]") == "The [[x]]"
    assert cap("[[A (b)|word]]s") == "[[A (b)|Word]]s"


def test_there_is_enough_prose_of_enough_kinds(articles: list[Article]) -> None:
    words = sum(len(sentence.split()) for a in articles for sentence in a.sentences())
    story = sum(len(p.split()) for n in range(12) for p in _tale(n))
    assert words + story > 300_000
    assert len({article.entity.kind for article in articles}) == 15
    wikitext = sum(len(article.wikitext) for article in articles)
    prose = sum(len(sentence) + 1 for a in articles for sentence in a.sentences())
    assert prose / wikitext > 0.5


def _tale(number: int) -> list[str]:
    return write_tale(World(0, 400), number).paragraphs()


def test_sentences_are_well_formed(articles: list[Article]) -> None:
    for article in articles:
        for sentence in article.sentences():
            assert re.match(r"[\"']?[^\W_a-z]", sentence), sentence
            assert sentence[-1] in '.!?"', sentence
            assert not re.search(BAD, sentence), sentence
            assert not re.search(WRONG_ARTICLE, sentence), sentence


def test_tales_are_well_formed() -> None:
    for number in range(12):
        paragraphs = _tale(number)
        assert len(paragraphs) > 200
        for text in paragraphs:
            assert text.count('"') % 2 == 0, text
            assert not re.search(BAD, text), text
            assert not re.search(WRONG_ARTICLE, text), text


@pytest.mark.parametrize("file", ["articles", "mentions", "daily", "facts"])
def test_every_wording_can_be_said(file: str) -> None:
    regions = [World(0, 1).region(index) for index in range(8)]
    things = [thing for region in regions for thing in everything(region)]
    for name, text in texts(file).items():
        about = [x for x in things if x.kind == ("town" if file == "daily" else name)]
        items = [item for *_, blocks in text.parts for block in blocks for item in block]
        for sentence in (item for item in items if isinstance(item, Sentence)):
            for say, fact, value, expected in sentence.wordings:
                fit = [x for x in about if say in sentence.fitting(x)]
                assert fit, (
                    name,
                    fact,
                    value,
                    expected,
                )  # a wording for nothing would never be read
                for thing in fit[:9]:
                    said = say(thing, Draws(0, "said"))
                    assert "$" not in said, said
                    assert "None" not in said, said


def test_wordings_vary(articles: list[Article]) -> None:
    # A wording is what is left when names (capitals) and numbers are taken out of a sentence.
    shapes = Counter(
        re.sub(r"\b[^\W\d_a-z]\S*|\d\S*", "_", sentence)
        for x in articles
        for sentence in x.sentences()
    )
    assert len(shapes) > 2000
    assert max(shapes.values()) < 0.02 * sum(shapes.values())


def test_one_fact_is_told_in_several_articles(articles: list[Article]) -> None:
    told = [" ".join(article.sentences()) for article in articles[:100]]
    hero = World(0, 400).region(0).events[0].hero
    assert sum(hero.name in text for text in told) >= 3
    assert hero.kind == "person"


# The markup and the cleaner


MARKUP = r"""
{{Infobox  {{convert|  {{lang|  {{nowrap|  {{circa|  {{frac|  {{IPA|  {{sfn|  {{cite book  {{coord|
{{reflist  {{#if:  {{#ifeq:  {{quote|  {{citation needed  {{about|  {{Short description|  {{abbr|
{{DEFAULTSORT:  {{disambiguation  {{stub}}  {{Navbox  <ref>  <ref name="  <ref group=note>
<references />  <!--  <nowiki>  <math>  <code>  <sup>  <sub>  <br />  <gallery  <poem>  <blockquote>
<syntaxhighlight  <table  <noinclude>  <onlyinclude>  __NOTOC__  ~~~~  {|  rowspan=  colspan=  |+
[[File:  [[Image:  [[Category:  [[de:  [https://  ISBN  RFC  ----  '''  '''s  ]]s  |]]
#History|history  \n*  \n**  \n#  \n#*  \n;  \n:  \n::  \n==S  \n===  \n====  &nbsp;  &ndash;
&amp;amp;  #REDIRECT  #redirect  #Redirect:
"""


@pytest.mark.parametrize("markup", re.split(r"  |\n", MARKUP.strip()))
def test_every_kind_of_markup_occurs(pages: list[Page], markup: str) -> None:
    assert any(markup.replace("\\n", "\n") in page.text for page in pages)


def test_scripts_and_accents_occur(pages: list[Page]) -> None:
    text = "".join(page.text for page in pages)
    for script in ("å", "é", "ñ", "[а-я]{4}", "[α-ω]{4}", "[一-鿿]{2}"):  # noqa: RUF001
        assert len(re.findall(script, text)) > 5, script


def test_every_kind_of_page_occurs(pages: list[Page]) -> None:
    sorts = Counter(page.sort for page in pages)
    assert sorts["article"] == 400
    assert sorts["malformed"] == 1
    for sort in ("stub", "duplicate", "disambiguation", "redirect", "empty", "other"):
        assert sorts[sort] >= 4
    texts = Counter(page.text for page in pages if page.sort in ("article", "duplicate"))
    assert sum(count == 2 for count in texts.values()) == sorts["duplicate"]
    assert {page.namespace for page in pages} == {0, 1, 2, 3, 4, 6, 10, 14, 828}
    assert max(Counter((page.namespace, page.title) for page in pages).values()) == 1


def test_the_cleaner_finds_the_truth_and_nothing_else(articles: list[Article]) -> None:
    markup = markup_for("en", {})
    for article in articles:
        paragraphs = clean_wikitext(article.wikitext, markup)
        text = re.sub(r"\s+", " ", "\n".join(paragraphs))
        missing = [sentence for sentence in article.sentences() if sentence not in text]
        assert not missing, (article.entity.title, missing)
        for word in NEVER_PROSE:
            assert word not in text, (article.entity.title, word)


def test_paragraphs_stay_whole(articles: list[Article]) -> None:
    markup = markup_for("en", {})
    for article in articles[:60]:
        cleaned = [re.sub(r"\s+", " ", p) for p in clean_wikitext(article.wikitext, markup)]
        for paragraph in article.paragraphs():
            known = [sentence for sentence in paragraph if sentence is not None]
            assert any(all(sentence in p for sentence in known) for p in cleaned), known


# The files


def test_the_same_arguments_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    write_sample(str(tmp_path / "again"), articles=130, tales=3)
    assert _digests(folder) == _digests(tmp_path / "again")
    write_sample(str(tmp_path / "other"), articles=130, tales=3, seed=1)
    changed = _digests(tmp_path / "other")
    assert all(changed[name] != digest for name, digest in _digests(folder).items())


def test_bytes_do_not_depend_on_the_process(folder: Path, tmp_path: Path) -> None:
    # Another hash seed: a set or a dict that leaks its order would show here.
    subprocess.run(
        [sys.executable, "-m", "flows", "sample", str(tmp_path), "--articles=130", "--tales=3"],
        check=True, cwd=Path(__file__).parents[1], env={"PYTHONHASHSEED": "77"}, timeout=60,
    )  # fmt: skip
    assert _digests(folder) == _digests(tmp_path)


def test_the_bytes_of_the_default_are_these() -> None:
    # Every change of the text changes it: then put the new one here and say so in the changelog.
    digest = hashlib.sha256()
    for page in write_pages(World(0, 400)):
        digest.update(f"{page.namespace}\n{page.title}\n{page.text}\n".encode())
    for number in range(12):
        digest.update("\n".join(_tale(number)).encode())
    assert digest.hexdigest() == GOLDEN


def test_the_dump_is_multistream(folder: Path) -> None:
    data = (folder / "samplewiki-20260101-pages-articles-multistream.xml.bz2").read_bytes()
    index = bz2.decompress(
        (folder / "samplewiki-20260101-pages-articles-multistream-index.txt.bz2").read_bytes()
    )
    entries = [line.split(":", 2) for line in index.decode().splitlines()]
    offsets = sorted({int(offset) for offset, _, _ in entries})
    header = bz2.BZ2Decompressor()
    assert header.decompress(data).endswith(b"</siteinfo>\n")
    assert len(data) - len(header.unused_data) == offsets[0]
    for offset in offsets:
        stream = bz2.BZ2Decompressor()
        root = ElementTree.fromstring(b"<x>" + stream.decompress(data[offset:]) + b"</x>")
        listed = [(n, t) for o, n, t in entries if int(o) == offset]
        assert [page.findtext("id") for page in root] == [number for number, _ in listed]
        assert len(root) <= 100
    assert bz2.decompress(stream.unused_data) == b"</mediawiki>\n"


def test_the_xml_is_what_the_pages_say(folder: Path) -> None:
    xml = bz2.decompress(
        (folder / "samplewiki-20260101-pages-articles-multistream.xml.bz2").read_bytes()
    )
    root = ElementTree.fromstring(xml)
    assert root.attrib["version"] == "0.11"
    found = [
        (page.findtext(f"{NS}title"), page.findtext(f"{NS}revision/{NS}text") or "")
        for page in root.iter(f"{NS}page")
    ]
    assert found == [(page.title, page.text) for page in write_pages(World(0, 130))]
    for text in root.iter(f"{NS}text"):
        data = (text.text or "").encode()
        assert int(text.attrib["bytes"]) == len(data)
        assert int(text.attrib["sha1"], 36) == int(hashlib.sha1(data).hexdigest(), 16)
    assert len(list(root.iter(f"{NS}redirect"))) == 28


def test_the_checksums_are_right(folder: Path) -> None:
    lines = (folder / "samplewiki-20260101-sha1sums.txt").read_text().splitlines()
    assert len(lines) == 2
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.sha1((folder / name).read_bytes()).hexdigest() == digest


def test_the_books_have_the_shape_of_gutenberg(folder: Path) -> None:
    data = (folder / "books.tar.gz").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as tar:
        members = tar.getmembers()
        books = [tar.extractfile(member).read() for member in members]  # type: ignore[union-attr]
    assert all((m.mtime, m.uid, m.gid, m.uname) == (0, 0, 0, "") for m in members)
    assert len(books) == 3
    assert [book.startswith(b"\xef\xbb\xbf") for book in books] == [True, False, True]
    for number, book in enumerate(books):
        text = book.decode("utf-8-sig")
        assert text.count("\r\n") == text.count("\n")
        lines = text.split("\r\n")
        prose = [line for line in lines if not line.startswith("***")]
        assert max(len(line) for line in prose[20:]) <= 76
        start = next(i for i, line in enumerate(lines) if line.startswith("*** START OF TH"))
        end = next(i for i, line in enumerate(lines) if line.startswith("*** END OF TH"))
        body = " ".join(" ".join(lines[start:end]).replace("_", "").split())
        for paragraph in write_tale(World(0, 130), number).paragraphs():
            assert paragraph in body
        assert "CONTENTS" in lines
        assert any(line.startswith("[Illustration: ") for line in lines)


def test_a_dump_of_any_size(tmp_path: Path, cli: Cli) -> None:
    options = ["--size-mb", "1.5", "--tales", "0", "--pages-per-stream", "25"]
    said = cli("sample", str(tmp_path), *options, "--compresslevel", "1")
    assert said.code == 0
    (dump,) = tmp_path.glob("*.xml.bz2")
    size = len(bz2.decompress(dump.read_bytes()))
    assert 1_500_000 <= size < 1_750_000
    assert f"{size / 1e6:.1f} MB of XML" in said.out


def test_any_file_system() -> None:
    files = write_sample("memory://sample-corpus", articles=20, tales=1)
    fs = fsspec.filesystem("memory")
    assert fs.exists(files.pages)
    assert fs.exists(files.books)
    assert files.page_count > 20
    fs.rm("/sample-corpus", recursive=True)


def test_bad_options_end_the_command(cli: Cli, tmp_path: Path) -> None:
    said = cli("sample", str(tmp_path), "--compresslevel", "12")
    assert said.code == 1
    assert "compresslevel is 12, expected 1 to 9" in said.err


@pytest.mark.parametrize("seed", range(1, 25))
def test_every_seed_gives_a_corpus(seed: int) -> None:
    for article in islice(write_articles(World(seed, 100)), 0, 100, 3):
        for sentence in article.sentences():
            assert not re.search(BAD, sentence), sentence
            assert not re.search(WRONG_ARTICLE, sentence), sentence
    assert len(write_tale(World(seed, 100), seed).paragraphs()) > 200
