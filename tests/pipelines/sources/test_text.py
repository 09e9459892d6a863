"""The source `text`: .txt, .jsonl and .parquet files, written here."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import random
import textwrap
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from support import complexity

from pipelines.books.layout import join_wrapped_lines
from pipelines.counters import Counters, check_balance
from pipelines.documents.plan import item_identity, plan, raw_inputs
from pipelines.io import lines
from pipelines.io.splits import RawDocument, RecordTracker, Split
from pipelines.sources import text
from schemas.corpus_configs import DocumentsConfig, TextSource
from schemas.errors import CorruptInputError, InputError, MissingInputError

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def config_of(path: Path, **options: Any) -> TextSource:
    return TextSource(name="mine", paths=(str(path),), **options)


def read_all(config: TextSource) -> tuple[list[Split], list[RawDocument], Counters]:
    counters = Counters()
    splits = text.plan(config)
    documents = [raw for split in splits for raw in text.read(split, config, counters.count)]
    check_balance(counters, "rows", where="test")
    return splits, documents, counters


DOCUMENTS = [[f"line {row} of document {n}" for row in range(n % 4 + 1)] for n in range(100)]
TXT = "\n\n".join("\n".join(document) for document in DOCUMENTS) + "\n"


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("target_split_bytes", [1024, 1025, 2000, 1 << 20])
def test_txt_documents_do_not_depend_on_splits_or_compression(
    tmp_path: Path, suffix: str, target_split_bytes: int
) -> None:
    plain = tmp_path / "plain" / "a.txt"
    plain.parent.mkdir()
    plain.write_text(TXT)
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESSORS[suffix](TXT.encode()))
    splits, documents, counters = read_all(config_of(path, target_split_bytes=target_split_bytes))
    assert len(splits) == 1 if suffix or target_split_bytes == 1 << 20 else len(splits) > 2
    assert [raw.paragraphs for raw in documents] == DOCUMENTS
    assert counters["rows-in"] == counters["rows-kept"] == 100
    places = [int(raw.document_id.rpartition(":")[2]) for raw in documents]
    assert all(
        TXT[place:].startswith(raw.paragraphs[0])
        for place, raw in zip(places, documents, strict=True)
    )
    if not suffix:
        assert [raw.byte_start for raw in documents] == places
    else:
        assert {(raw.byte_start, raw.byte_end) for raw in documents} == {(0, path.stat().st_size)}


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_blank_lines_of_spaces_end_documents_too(tmp_path: Path, line_end: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(
        ("\ufeff\n\none\n  two  words \n \t\n\n\nthree").replace("\n", line_end).encode()
    )
    _, documents, _ = read_all(config_of(path))
    assert [raw.paragraphs for raw in documents] == [["one", "two words"], ["three"]]


def test_other_encodings_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("caf\xe9\n\nplain\n\n".encode("latin-1") + b"\x00\x01\x02")
    _, documents, counters = read_all(config_of(tmp_path / "a.txt"))
    assert [raw.paragraphs for raw in documents] == [["caf\xe9"], ["plain"]]
    assert counters["rows-decoded-as-iso-8859-1"] == 1
    assert counters["rows-dropped-undecodable"] == 1


def test_utf_16_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("text\n".encode("utf-16"))
    with pytest.raises(InputError, match="iconv"):
        read_all(config_of(tmp_path / "a.txt"))


def test_empty_files_give_nothing(tmp_path: Path) -> None:
    for name in ("a.txt", "b.jsonl"):
        (tmp_path / name).write_bytes(b"")
        splits, documents, counters = read_all(config_of(tmp_path / name))
        assert [split.file.name for split in splits] == [name], "it is planned, so it can be noted"
        assert (documents, counters) == ([], {})


ROWS = [{"id": n, "text": f"text {n}\n\nmore", "title": f"Title {n}"} for n in range(50)]
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("target_split_bytes", [1024, 1 << 20])
def test_json_rows(tmp_path: Path, suffix: str, target_split_bytes: int) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESSORS[suffix](JSONL.encode()))
    config = config_of(
        path, target_split_bytes=target_split_bytes, id_column="id", title_column="title"
    )
    splits, documents, _ = read_all(config)
    assert len(splits) == (1 if suffix or target_split_bytes == 1 << 20 else 3)
    assert [raw.document_id for raw in documents] == [f"mine:{n}" for n in range(50)]
    assert [raw.title for raw in documents] == [f"Title {n}" for n in range(50)]
    assert documents[7].paragraphs == ["text 7", "more"]


def test_json_ids_are_places_and_do_not_depend_on_splits(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(JSONL)
    ids = {
        target_split_bytes: [
            raw.document_id
            for raw in read_all(config_of(path, target_split_bytes=target_split_bytes))[1]
        ]
        for target_split_bytes in (1024, 1100, 1 << 20)
    }
    assert ids[1024] == ids[1100] == ids[1 << 20]
    assert ids[1024][:2] == ["mine:a.jsonl:0", f"mine:a.jsonl:{len(JSONL.splitlines()[0]) + 1}"]


def test_bad_rows_are_counted_and_end_nothing(tmp_path: Path) -> None:
    rows = [
        '{"text": "first", "id": "a"}',
        '{"text": "cut off',
        "[1, 2]",
        "",
        '{"other": 1}',
        '{"text": null}',
        '{"text": "  \\n "}',
        '{"text": 17}',
        '{"text": "no id", "id": null}',
        "[" * 100_000,
        '{"text": "last", "id": "z"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    _, documents, counters = read_all(config_of(tmp_path / "a.jsonl", id_column="id"))
    assert [raw.document_id for raw in documents] == ["mine:a", "mine:z"]
    del counters["raw-bytes"]
    assert counters == {
        "rows-in": 10,
        "rows-kept": 2,
        "rows-dropped-malformed-json": 3,
        "rows-dropped-no-text": 4,
        "rows-dropped-no-id": 1,
    }


def test_a_missing_key_names_those_found(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "x", "url": "y"}\n')
    with pytest.raises(InputError, match=r"'text'.*text_column.*'body', 'url'"):
        text.plan(config_of(tmp_path / "a.jsonl"))


def write_parquet(path: Path, rows: list[dict[str, Any]], *, group: int = 10) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)


@pytest.mark.parametrize("target_split_bytes", [1024, 1 << 20])
def test_parquet_rows(tmp_path: Path, target_split_bytes: int) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, ROWS)
    splits, documents, counters = read_all(
        config_of(path, target_split_bytes=target_split_bytes, title_column="title")
    )
    assert len(splits) == (1 if target_split_bytes == 1 << 20 else 3)
    assert [raw.document_id for raw in documents] == [f"mine:a.parquet:{n}" for n in range(50)]
    assert documents[49].paragraphs == ["text 49", "more"]
    assert documents[49].title == "Title 49"
    assert 0 < documents[0].byte_end <= documents[49].byte_start < path.stat().st_size
    assert counters["rows-kept"] == 50


def test_parquet_ids_and_missing_text(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [{"text": "x", "key": "k"}, {"text": None, "key": "l"}])
    _, documents, counters = read_all(config_of(tmp_path / "a.parquet", id_column="key"))
    assert [raw.document_id for raw in documents] == ["mine:k"]
    assert counters["rows-dropped-no-text"] == 1


def test_parquet_columns_are_checked(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", [{"body": "x", "text": 1}])
    with pytest.raises(InputError, match=r"'words'.*'body', 'text'"):
        text.plan(config_of(tmp_path / "a.parquet", text_column="words"))
    with pytest.raises(InputError, match="int64"):
        text.plan(config_of(tmp_path / "a.parquet"))


def test_dictionary_and_large_strings_are_text(tmp_path: Path) -> None:
    column = pa.array(["x", "y"]).dictionary_encode()
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": pa.array(["z"], pa.large_string())}), tmp_path / "b.parquet")
    _, documents, _ = read_all(config_of(tmp_path))
    assert [raw.paragraphs for raw in documents] == [["x"], ["y"], ["z"]]


def test_damaged_input_is_an_error(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", ROWS)
    stored = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(stored[:-10])
    with pytest.raises(CorruptInputError, match="Parquet"):
        text.plan(config_of(tmp_path / "a.parquet"))
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(TXT.encode())[:-20])
    with pytest.raises(CorruptInputError, match="no end"):
        read_all(config_of(tmp_path / "b.txt.gz"))


def test_other_files_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(MissingInputError):
        text.plan(config_of(tmp_path))


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    (tmp_path / "a.txt").write_bytes(b"x" * (1 << 20))
    with pytest.raises(InputError, match="1,000 bytes"):
        read_all(config_of(tmp_path / "a.txt"))


LINES = "".join(f"Sentence {n} is here. It has a second part.\n" for n in range(3000))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("document", "text", "expected"),
    [
        ("file", "a\n\nb\nc\n\n\nd", [["a", "b", "c", "d"]]),
        ("line", "a\n\nb\nc\n\n\nd", [["a"], ["b"], ["c"], ["d"]]),
        ("blank-line", "a\n\nb\nc\n\n\nd", [["a"], ["b", "c"], ["d"]]),
    ],
)
def test_what_ends_a_document_is_chosen(
    tmp_path: Path, document: str, text: str, expected: list[list[str]], suffix: str
) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESSORS[suffix](text.encode()))
    _, documents, counters = read_all(config_of(path, document_delimiter=document))
    assert [raw.paragraphs for raw in documents] == expected
    assert len({raw.document_id for raw in documents}) == len(expected)
    assert counters["rows-cut"] == 0


@pytest.mark.parametrize("document", ["file", "line", "blank-line"])
@pytest.mark.parametrize("target_split_bytes", [1024, 5000, 1 << 20])
def test_documents_do_not_depend_on_splits_whatever_ends_them(
    tmp_path: Path, document: str, target_split_bytes: int
) -> None:
    (tmp_path / "a.txt").write_text(TXT + LINES + "x" * 9000 + "\n\n" + TXT)
    options = {"document_delimiter": document, "max_document_bytes": 2048}
    whole = read_all(config_of(tmp_path / "a.txt", **options))
    cut = read_all(config_of(tmp_path / "a.txt", target_split_bytes=target_split_bytes, **options))
    assert cut[1:] == whole[1:]
    if document == "line":
        assert len(cut[0]) > 1 or target_split_bytes > 5000


def test_a_long_document_is_cut_where_a_sentence_ends(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LINES)
    config = config_of(tmp_path / "a.txt", max_document_bytes=10_000)
    _, documents, counters = read_all(config)
    assert len(documents) == len({raw.document_id for raw in documents}) == 14
    assert counters["rows-cut"] == 13
    assert counters["files-without-blank-line"] == 0  # the last part is short
    assert "".join(f"{line}\n" for raw in documents for line in raw.paragraphs) == LINES
    assert all(sum(map(len, raw.paragraphs)) <= 10_000 for raw in documents)


@pytest.mark.parametrize("document", ["blank-line", "file"])
def test_text_document_stays_within_limit_when_lines_end_no_sentence(
    tmp_path: Path, document: str
) -> None:
    lines = ["A one.", "B two.", *(letter * 950 for letter in "cde")]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    config = config_of(tmp_path / "a.txt", max_document_bytes=1024, document_delimiter=document)
    _, documents, counters = read_all(config)
    assert [raw.paragraphs for raw in documents] == [lines[:2], *([line] for line in lines[2:])]
    assert counters["rows-cut"] == 3


@pytest.mark.parametrize("limit", [1024, 1500, 4000])
def test_text_document_stays_within_limit_whatever_its_lines(tmp_path: Path, limit: int) -> None:
    generator = random.Random(5)
    lines = [
        "w" * generator.randint(0, 1200) + generator.choice(["", ".", "\n"]) for _ in range(200)
    ]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    config = config_of(tmp_path / "a.txt", max_document_bytes=limit, document_delimiter="file")
    _, documents, _ = read_all(config)
    assert max(raw.byte_end - raw.byte_start for raw in documents) <= limit + 1  # a line end
    written = "".join("".join(raw.paragraphs) for raw in documents)
    assert written == "".join(lines).replace("\n", "")


def test_parquet_string_that_is_not_utf_8_stays_within_limit(tmp_path: Path) -> None:
    written = LINES.replace("second", "caf\u00e9")
    column = pa.array([written.encode("latin-1")], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    config = config_of(tmp_path / "a.parquet", max_document_bytes=50_000)
    _, documents, counters = read_all(config)
    assert counters["rows-cut"] == len(documents) - 1 == 2
    assert "".join(f"{line}\n" for raw in documents for line in raw.paragraphs) == written


WALK = (
    "They walked along the well-known river until noon without saying very much, for each of them "
    "was busy with a private anxiety. Mary went first. Nobody in the village had yet opened so "
    "much as a single shutter to see them go, and the road was long."
)
GERMAN = (
    "Am Morgen gingen die Leute aus dem Dorf mit ihren Kindern an den Fluss hinunter, wo der "
    "alte Fischer seine Netze in der Sonne trocknete und niemand ein Wort mit dem Fremden sprach."
)


@pytest.mark.parametrize("target_split_bytes", [1024, 1 << 20])
@pytest.mark.parametrize("width", [40, 72, 100])
@pytest.mark.parametrize("document", ["blank-line", "file"])
def test_hard_wrapped_lines_are_joined(
    tmp_path: Path, document: str, width: int, target_split_bytes: int
) -> None:
    paragraphs = [WALK, GERMAN] * 20
    text = "\n\n".join(textwrap.fill(paragraph, width) for paragraph in paragraphs)
    (tmp_path / "a.txt").write_text(text)
    config = config_of(
        tmp_path / "a.txt", document_delimiter=document, target_split_bytes=target_split_bytes
    )
    _, documents, _ = read_all(config)
    assert [paragraph for raw in documents for paragraph in raw.paragraphs] == paragraphs
    assert len(documents) == (1 if document == "file" else len(paragraphs))


def test_hard_wrapped_lines_are_joined_when_one_is_wrapped_early(tmp_path: Path) -> None:
    first, rest = WALK[:130].rsplit(" ", 1)[0], WALK[130:].split(" ", 1)[1]
    paragraph = f"{first} {rest}"
    lines = textwrap.wrap(first, 60) + textwrap.wrap(rest, 55)
    (tmp_path / "a.txt").write_text("\n".join(lines))
    _, documents, _ = read_all(config_of(tmp_path / "a.txt"))
    assert documents[0].paragraphs == [paragraph]


@pytest.mark.parametrize(
    "lines",
    [
        [f"{sentence}." for sentence in WALK.split(". ")],
        WALK.lower().replace(".", " .").replace(",", " ,").split(" , "),
        [WALK, GERMAN],
        ["The Walk to the River", WALK],
        ["he said , `` not a word of it to the others in the village '' .", "she went ."],
        ["a short line", "a short word", "a short list"],
        ["Whatever the river brings", "It takes away again by night", "And nobody is there to see"],
    ],
)
@pytest.mark.parametrize("document", ["blank-line", "file"])
def test_lines_that_are_not_wrapped_stay_paragraphs(
    tmp_path: Path, lines: list[str], document: str
) -> None:
    (tmp_path / "a.txt").write_text("\n".join(lines))
    _, documents, _ = read_all(config_of(tmp_path / "a.txt", document_delimiter=document))
    assert [raw.paragraphs for raw in documents] == [lines]


def test_each_line_is_a_document_when_lines_are_hard_wrapped(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(textwrap.fill(WALK, 72))
    _, documents, _ = read_all(config_of(tmp_path / "a.txt", document_delimiter="line"))
    assert [raw.paragraphs[0] for raw in documents] == textwrap.wrap(WALK, 72)


def test_hard_wrapped_lines_without_spaces_are_joined_without_one(tmp_path: Path) -> None:
    text = "山の上に立って遠くの海を眺めていると昔のことが思い出されてなかなか帰れなかった。" * 3
    lines = [text[at : at + 38] for at in range(0, len(text), 38)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    _, documents, _ = read_all(config_of(tmp_path / "a.txt"))
    assert documents[0].paragraphs == [text]


@pytest.mark.parametrize(
    "unit", [f"{WALK[:60]}\n", "and so on\n", "well-\nknown ", "\n", ") ", "of a walk "]
)
def test_joining_wrapped_lines_takes_linear_time(unit: str) -> None:
    complexity.assert_linear(join_wrapped_lines, unit)


def test_one_sentence_per_line_of_the_reference_stays(real_data: Path) -> None:
    path = real_data / "golden" / "sample_text.txt"
    _, documents, _ = read_all(config_of(path))
    lines = [" ".join(line.split()) for line in path.read_text().splitlines() if line.strip()]
    assert [line for raw in documents for line in raw.paragraphs] == lines


def test_a_line_without_end_is_cut_and_never_held_whole(tmp_path: Path) -> None:
    """100 MB without a line end used to be one document of 1.75 GB of memory."""
    sentence = "This is one of many sentences of a text without any line end. "
    (tmp_path / "a.txt").write_text(sentence * 50_000)
    config = config_of(tmp_path / "a.txt", max_document_bytes=100_000)
    tracemalloc.start()
    splits = text.plan(config)
    counters = Counters()
    made = [raw for split in splits for raw in text.read(split, config, counters.count)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * 50_000 * len(sentence)  # the documents themselves are kept here
    assert counters["rows-cut"] == len(made) - 1 >= 30
    for raw in made:
        assert " ".join(raw.paragraphs).endswith("line end.")
    assert sum(raw.paragraphs[0].count("sentences") for raw in made) == 50_000


@pytest.mark.parametrize("text_of", ["文は続く。", "日本", "x", "caf\u00e9 "])
def test_a_cut_never_parts_a_character(tmp_path: Path, text_of: str) -> None:
    for name, stored in (
        ("a.txt", text_of * 4000),
        ("a.jsonl", json.dumps({"text": text_of * 4000})),
    ):
        (tmp_path / name).write_text(stored)
        config = config_of(tmp_path / name, max_document_bytes=1024)
        _, documents, counters = read_all(config)
        assert len(documents) >= 4
        assert counters["rows-decoded-as-iso-8859-1"] == 0
        made = "".join(line for raw in documents for line in raw.paragraphs)
        assert made.replace(" ", "") == (text_of * 4000).replace(" ", "")
        assert len({raw.document_id for raw in documents}) == len(documents)


def test_a_long_row_is_cut_into_numbered_documents(tmp_path: Path) -> None:
    row = {"text": LINES, "id": "a"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    config = config_of(tmp_path / "a.jsonl", id_column="id", max_document_bytes=50_000)
    _, documents, counters = read_all(config)
    assert [raw.document_id for raw in documents] == ["mine:a", "mine:a#2", "mine:a#3"]
    assert counters["rows-cut"] == 2
    assert "".join(f"{line}\n" for raw in documents for line in raw.paragraphs) == LINES


@pytest.mark.parametrize("field", ["text", "id", "title"])
def test_half_a_character_costs_only_its_row(tmp_path: Path, field: str) -> None:
    rows = [{"id": str(n), "text": f"text {n}", "title": "t"} for n in range(3)]
    rows[1][field] += "\ud800"
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    config = config_of(tmp_path / "a.jsonl", id_column="id", title_column="title")
    _, documents, counters = read_all(config)
    assert [raw.document_id for raw in documents] == ["mine:0", "mine:2"]
    assert counters["rows-dropped-lone-surrogate"] == 1
    assert counters.examples["rows-dropped-lone-surrogate"][0].text.startswith("a.jsonl, byte 4")


@pytest.mark.parametrize("field", ["text", "id"])
def test_strings_of_parquet_that_are_no_utf_8(tmp_path: Path, field: str) -> None:
    values = {"text": [b"one", b"two", b"three"], "id": [b"a", b"b", b"c"]}
    values[field][1] = b"caf\xe9"
    columns = {name: pa.array(items, pa.binary()) for name, items in values.items()}
    strings = {
        name: pa.StringArray.from_buffers(3, *column.buffers()[1:])
        for name, column in columns.items()
    }
    pq.write_table(pa.table(strings), tmp_path / "a.parquet")
    _, documents, counters = read_all(config_of(tmp_path / "a.parquet", id_column="id"))
    if field == "text":
        assert [raw.paragraphs for raw in documents] == [["one"], ["caf\u00e9"], ["three"]]
        assert counters["rows-decoded-as-iso-8859-1"] == 1
    else:
        assert [raw.document_id for raw in documents] == ["mine:a", "mine:c"]
        assert counters.examples["rows-dropped-undecodable"][0].text == "a.parquet, row 1"


def test_files_of_one_name_give_documents_of_different_ids(tmp_path: Path) -> None:
    for folder, stored in (("one", "first"), ("two", "second"), ("three", "first")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text(stored)
    paths = [str(tmp_path / name) for name in ("one", "two", "three")]
    found = [
        read_all(TextSource(name="mine", paths=tuple(order)))[1] for order in (paths, paths[::-1])
    ]
    assert [raw.paragraphs for raw in found[0]] == [raw.paragraphs for raw in found[1]]
    assert sorted(raw.paragraphs[0] for raw in found[0]) == ["first", "second"]
    ids = {raw.document_id for raw in found[0]}
    assert ids == {raw.document_id for raw in found[1]}
    assert len(ids) == 2


def write_small(folder: Path, *, number: int) -> None:
    """Texts of a line or two, some compressed, one of rows, one that is empty."""
    for n in range(number):
        suffix = (*COMPRESSORS, "", "", "")[n % 7]
        data = COMPRESSORS[suffix](f"Text {n}.\nIts second line.\n\nAnother {n}.".encode())
        (folder / f"{n:04d}.txt{suffix}").write_bytes(data)
    (folder / "0007a.jsonl").write_text(JSONL)
    (folder / "0009a.txt").write_text(" \n")


def test_small_files_are_read_together_as_each_alone(tmp_path: Path) -> None:
    write_small(tmp_path, number=100)
    splits, documents, counters = read_all(config_of(tmp_path))
    assert len(splits) < 5
    apart, wanted, counted = read_all(config_of(tmp_path, target_split_bytes=1024))
    assert len(apart) > 100
    assert sorted(documents) == sorted(wanted)
    assert counters.pop("files-without-text") == 1
    assert counters == counted
    digests = {path.name: sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    names = [raw.document_id.removeprefix("mine:").rpartition(":")[0] for raw in documents]
    assert [raw.file for raw in documents] == [digests[name] for name in names]


def test_a_group_is_of_bounded_size(tmp_path: Path) -> None:
    for n in range(100):
        (tmp_path / f"{n}.txt").write_text(f"{n}" * 100)
    splits = text.plan(config_of(tmp_path, target_split_bytes=16 << 10))
    assert max(split.end for split in splits) <= 2048
    assert len(splits) > 5


def test_a_file_more_changes_its_own_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_ONE_IN", 16)
    write_small(tmp_path, number=200)
    before = {split.file.sha256 for split in text.plan(config_of(tmp_path))}
    (tmp_path / "0100a.txt").write_text("One more.")
    after = {split.file.sha256 for split in text.plan(config_of(tmp_path))}
    assert len(before) > 5
    assert len(after - before) in (1, 2)  # two, where the new one ends a group


def test_a_group_is_read_on_where_another_stopped(tmp_path: Path) -> None:
    write_small(tmp_path, number=30)
    config = config_of(tmp_path)
    _, wanted, counted = read_all(config)
    found, counters = list[RawDocument](), Counters()
    for split in text.plan(config):
        first = RecordTracker()
        for raw in itertools.islice(text.read(split, config, counters.count, first), 9):
            found.append(raw)
        rest = RecordTracker(**first.state())
        found += text.read(split, config, counters.count, rest)
    assert (found, counters) == (wanted, counted)


def test_each_file_of_a_group_is_a_raw_input(tmp_path: Path) -> None:
    folders = [tmp_path / "here", tmp_path / "there"]
    for folder in folders:
        folder.mkdir()
        write_small(folder, number=5)
    configs = [DocumentsConfig(sources=(config_of(folder),)) for folder in folders]
    inputs = raw_inputs(configs[0])
    assert sorted(raw.name for raw in inputs) == sorted(path.name for path in folders[0].iterdir())
    (here,), (there,) = map(plan, configs)
    assert here.split != there.split
    same = item_identity(here, "text"), item_identity(there, "text")
    assert same[0] == same[1], "where it lies is nothing to it"
