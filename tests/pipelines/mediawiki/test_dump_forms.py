"""Dumps in other clothes: a namespace prefix, UTF-16, a piece without its frame."""

from __future__ import annotations

import bz2
import codecs
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.counters import Counters, check_balance
from pipelines.io.splits import RawDocument
from pipelines.sources import wikipedia
from schemas.corpus_configs import WikipediaSource
from schemas.errors import CorruptInputError, InputError

PAGES = "".join(
    f"<page><title>Page {n}</title><ns>0</ns><id>{n}</id><revision><id>{n}0</id>"
    f"<text>The caf\u00e9 number {n} of \u6771\u4eac \U0001f600 is open. See page &lt; {n}.</text>"
    "</revision></page>\n"
    for n in range(30)
)
SITE = '<siteinfo><namespaces><namespace key="0"/></namespaces></siteinfo>'
DUMP = f'<mediawiki version="0.11" xml:lang="en">{SITE}\n{PAGES}</mediawiki>\n'


def prefixed(text: str, prefix: str) -> str:
    names = ("mediawiki", "siteinfo", "namespaces", "namespace", "page", "title", "ns", "id")
    for name in (*names, "revision", "text"):
        for end in (">", " ", "/>"):
            text = text.replace(f"<{name}{end}", f"<{prefix}:{name}{end}")
        text = text.replace(f"</{name}>", f"</{prefix}:{name}>")
    return text.replace("<" + prefix + ":mediawiki ", f'<{prefix}:mediawiki xmlns:{prefix}="x" ')


def read(path: Path, **options: object) -> tuple[list[RawDocument], Counters]:
    counters = Counters()
    config = WikipediaSource.model_validate(
        {"name": "w", "paths": (str(path),), "target_split_bytes": 1024, **options}
    )
    splits = wikipedia.plan(config)
    found = [raw for split in splits for raw in wikipedia.read(split, config, counters.count)]
    check_balance(counters, "pages", where="test")
    return found, counters


def told(documents: list[RawDocument]) -> list[tuple[str, str, list[str]]]:
    return [(raw.document_id, raw.title, raw.paragraphs) for raw in documents]


@pytest.fixture
def plain(tmp_path: Path) -> list[tuple[str, str, list[str]]]:
    (tmp_path / "plain.xml").write_text(DUMP)
    documents = told(read(tmp_path / "plain.xml")[0])
    assert len(documents) == 30
    return documents


@pytest.mark.parametrize("prefix", ["m", "ns0", "media-wiki.x"])
@pytest.mark.parametrize("suffix", ["", ".bz2"])
def test_elements_may_have_a_prefix(
    tmp_path: Path, plain: list[tuple[str, str, list[str]]], prefix: str, suffix: str
) -> None:
    """Pages with a namespace prefix are read."""
    text = prefixed(DUMP, prefix)
    assert f"<{prefix}:page><{prefix}:title>" in text
    stored = text.encode()
    (tmp_path / f"a.xml{suffix}").write_bytes(bz2.compress(stored) if suffix else stored)
    documents, counters = read(tmp_path / f"a.xml{suffix}")
    assert told(documents) == plain
    assert counters["pages-in"] == counters["pages-kept"] == 30


def test_a_prefixed_dump_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(prefixed(DUMP, "m")[:-200])
    with pytest.raises(CorruptInputError, match="the XML ends without </m:mediawiki>"):
        read(tmp_path / "a.xml")


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".bz2": bz2.compress,
    ".gz": gzip.compress,
}
MARKS = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}


@pytest.mark.parametrize("encoding", MARKS)
@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("declared", ["", '<?xml version="1.0" encoding="UTF-16"?>\n'])
@pytest.mark.parametrize("marked", [True, False])
def test_utf_16_is_read(
    tmp_path: Path,
    plain: list[tuple[str, str, list[str]]],
    encoding: str,
    suffix: str,
    declared: str,
    marked: bool,
) -> None:
    """It was refused, and the error did not hold the word UTF-16."""
    stored = (MARKS[encoding] if marked else b"") + (declared + DUMP).encode(encoding)
    (tmp_path / f"a.xml{suffix}").write_bytes(COMPRESSORS[suffix](stored))
    documents, counters = read(tmp_path / f"a.xml{suffix}")
    assert told(documents) == plain
    size = (tmp_path / f"a.xml{suffix}").stat().st_size
    assert {(raw.byte_start, raw.byte_end) for raw in documents} == {(0, size)}
    assert counters["raw-bytes"] == size


@pytest.mark.parametrize("encoding", MARKS)
@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_utf_16_that_ends_within_a_character_is_truncated(
    tmp_path: Path, plain: list[tuple[str, str, list[str]]], encoding: str, suffix: str
) -> None:
    path = tmp_path / f"a.xml{suffix}"
    path.write_bytes(COMPRESSORS[suffix]((MARKS[encoding] + f"{DUMP}\n".encode(encoding))[:-1]))
    with pytest.raises(CorruptInputError) as error:
        read(path)
    assert error.value.offset == path.stat().st_size
    documents, counters = read(path, on_corrupt="keep-whole-pages")
    assert told(documents) == plain
    assert counters["files-truncated"] == 1


def test_utf_16_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_bytes(DUMP.encode("utf-16")[:-101])
    with pytest.raises(CorruptInputError):
        read(tmp_path / "a.xml")
    kept, counters = read(tmp_path / "a.xml", on_corrupt="keep-whole-pages")
    assert len(kept) == counters["pages-kept"] == 29


def test_utf_32_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_bytes(DUMP.encode("utf-32"))
    with pytest.raises(InputError, match=r"is UTF-32.*iconv"):
        read(tmp_path / "a.xml")


def test_pages_without_their_frame_are_named(tmp_path: Path) -> None:
    """The error was `line 1, column 3`."""
    (tmp_path / "a.xml").write_text(PAGES)
    with pytest.raises(InputError, match=r"expected <mediawiki> before the first.*<page>.*put"):
        read(tmp_path / "a.xml")


def test_pages_with_attributes_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(DUMP.replace("<page>", '<page xml:space="preserve">'))
    with pytest.raises(InputError, match=r"expected pages to begin with <page>.*xml:space"):
        read(tmp_path / "a.xml")
