# ruff: noqa: RUF001 - texts in several scripts
"""The source `text`: .txt, .jsonl and .parquet files, written here."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import textwrap
import tracemalloc
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import complexity
from support.dump_builder import COMPRESS

from pipelines.books.layout import join_wrapped_lines
from pipelines.counters import Counters, check_balance
from pipelines.documents.plan import item_identity, plan, raw_inputs
from pipelines.io import lines
from pipelines.io.splits import RawText, Split
from pipelines.sources import text
from schemas.corpus_configs import DocumentsConfig, TextSource
from schemas.errors import CorruptInputError, InputError, MissingInputError


def config_of(path: Path, **options: Any) -> TextSource:
    return TextSource(name="mine", paths=(str(path),), **options)


def read_all(config: TextSource) -> tuple[list[Split], list[tuple[str, RawText]], Counters]:
    counters = Counters()
    splits = text.plan(config)
    documents = [raw for split in splits for raw in text.read(split, config, counters.count)]
    check_balance(counters, "rows", where="test")
    return splits, documents, counters


def read(
    path: Path, content: str | bytes, **options: Any
) -> tuple[list[tuple[str, RawText]], Counters]:
    """Write a file and return its documents."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_all(config_of(path, **options))[1:]


def paragraphs(documents: list[tuple[str, RawText]]) -> list[Sequence[str]]:
    return [raw.paragraphs for _, raw in documents]


def ids(documents: list[tuple[str, RawText]]) -> list[str]:
    return [document_id.removeprefix("mine:") for document_id, _ in documents]


def joined(documents: list[tuple[str, RawText]]) -> str:
    return "".join(f"{line}\n" for _, raw in documents for line in raw.paragraphs)


DOCUMENTS = [[f"line {row} of document {n}" for row in range(n % 4 + 1)] for n in range(100)]
TXT = "\n\n".join("\n".join(document) for document in DOCUMENTS) + "\n"
LINES = "".join(f"Sentence {n} is here. It has a second part.\n" for n in range(3000))


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("target_split_bytes", [1024, 1025, 1 << 20])
def test_txt_documents_do_not_depend_on_splits_or_compression(
    tmp_path: Path, suffix: str, target_split_bytes: int
) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](TXT.encode()))
    splits, documents, counters = read_all(config_of(path, target_split_bytes=target_split_bytes))
    assert len(splits) == 1 if suffix or target_split_bytes == 1 << 20 else len(splits) > 2
    assert paragraphs(documents) == DOCUMENTS
    assert counters["rows-in"] == counters["rows-kept"] == 100
    places = [int(document_id.rpartition(":")[2]) for document_id, _ in documents]
    for start, (_, raw) in zip(places, documents, strict=True):
        assert TXT[start:].startswith(raw.paragraphs[0])
        assert raw.byte_start == (0 if suffix else start)
    assert not suffix or {raw.byte_end for _, raw in documents} == {path.stat().st_size}


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("delimiter", "content", "expected"),
    [
        ("file", "a\n\nb\nc\n\n\nd", [["a", "b", "c", "d"]]),
        ("line", "a\n\nb\nc\n\n\nd", [["a"], ["b"], ["c"], ["d"]]),
        ("blank-line", "a\n\nb\nc\n\n\nd", [["a"], ["b", "c"], ["d"]]),
        ("blank-line", "\ufeff\n\na\n  b  c \n \t\n\nd", [["a", "b c"], ["d"]]),
        ("blank-line", "\r\na\r\n  b  c \r\n \t\r\n\r\nd", [["a", "b c"], ["d"]]),
    ],
)
def test_delimiter_ends_documents(
    tmp_path: Path, delimiter: str, content: str, expected: list[list[str]], suffix: str
) -> None:
    stored = COMPRESS[suffix](content.encode())
    documents, counters = read(tmp_path / f"a.txt{suffix}", stored, document_delimiter=delimiter)
    assert paragraphs(documents) == expected
    assert len(set(ids(documents))) == len(expected)
    assert counters["rows-cut"] == 0


@pytest.mark.parametrize("delimiter", ["file", "line", "blank-line"])
@pytest.mark.parametrize("target_split_bytes", [1024, 5000])
def test_cut_documents_do_not_depend_on_splits(
    tmp_path: Path, delimiter: str, target_split_bytes: int
) -> None:
    (tmp_path / "a.txt").write_text(TXT + LINES + "x" * 9000 + "\n\n" + TXT)
    options = {"document_delimiter": delimiter, "max_document_bytes": 2048}
    whole = read_all(config_of(tmp_path / "a.txt", **options))
    cut = read_all(config_of(tmp_path / "a.txt", target_split_bytes=target_split_bytes, **options))
    assert cut[1:] == whole[1:]
    assert delimiter != "line" or len(cut[0]) > 1


FRENCH = "Le caf\xe9 \xe9tait ferm\xe9, et la m\xe8re de l'enfant ne s'arr\xeata pas."
RUSSIAN = "Утром старик вышел из дома и медленно пошёл к реке, над которой стоял туман."
UKRAINIAN = "Уранці дід вийшов з хати й повільно пішов до річки, над якою стояв густий туман."
POLISH = "Rano starzec wyszedł z domu i powoli ruszył w stronę rzeki, nad którą była mgła."
CZECH = "Ráno vyšel stařec z domu a pomalu se vydal k řece, nad níž ležela hustá mlha."
TURKISH = "Sabahleyin yaşlı adam evden çıktı ve yoğun sisin altındaki ırmağa doğru yürüdü."
GREEK = "Το πρωί ο γέρος βγήκε από το σπίτι και περπάτησε αργά προς το κρύο ποτάμι."
HEBREW = "בבוקר יצא הזקן מן הבית והלך לאט אל הנהר, שמעליו עמד ערפל כבד וקר מאוד."
ARABIC = "في الصباح خرج الرجل العجوز من البيت ومشى ببطء نحو النهر تحت ضباب كثيف."
JAPANESE = "朝、老人は家を出て、ゆっくりと川のほうへ歩いていった。水は冷たく、霧が濃かった。"
SIMPLIFIED = "早晨，老人走出家门，慢慢地向河边走去。河水很冷，水面上笼罩着一层浓雾。"
TRADITIONAL = "早晨，老人走出家門，慢慢地向河邊走去。河水很冷，水面上籠罩著一層濃霧。"
KOREAN = "아침에 노인은 집을 나와 천천히 강 쪽으로 걸어갔다. 물은 차가웠고 안개가 짙었다."
ENCODED = [
    *((RUSSIAN, name) for name in ("koi8-r", "cp1251", "iso8859-5", "cp866")),
    *((UKRAINIAN, name) for name in ("koi8-u", "cp1251")),
    *((text, name) for text in (POLISH, CZECH) for name in ("cp1250", "iso8859-2")),
    *((FRENCH, name) for name in ("cp1252", "latin-1", "utf-32", "utf-16-be")),
    *((TURKISH, name) for name in ("cp1254", "iso8859-9")),
    *((GREEK, name) for name in ("cp1253", "iso8859-7")),
    *((HEBREW, "cp1255"), (ARABIC, "cp1256"), (KOREAN, "cp949")),
    *((JAPANESE, name) for name in ("euc-jp", "cp932", "iso2022-jp", "utf-16", "utf-16-le")),
    *((SIMPLIFIED, name) for name in ("gb18030", "gbk", "utf-16-be")),
    *((TRADITIONAL, name) for name in ("big5", "utf-16-le")),
]


@pytest.mark.parametrize(("text", "encoding"), ENCODED, ids=[name for _, name in ENCODED])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_encoding_is_decided_once_for_a_file(
    tmp_path: Path, text: str, encoding: str, suffix: str
) -> None:
    """The shortest documents alone would be taken for another encoding."""
    words = text.split() if " " in text else [text[:4], text[4:9]]
    written = [*words, text, *(f"{number}: {text}" for number in range(40))]
    stored = "\n\n".join(["An ASCII line first." * 9, *written, ""]).encode(encoding)
    (tmp_path / f"a.txt{suffix}").write_bytes(COMPRESS[suffix](stored))
    for options in ({}, {"target_split_bytes": 1024}):
        splits, documents, counters = read_all(config_of(tmp_path, **options))
        assert len(splits) == 1
        assert [raw.paragraphs[0] for _, raw in documents[1:]] == written
        assert len(set(ids(documents))) == len(documents)
        (counter,) = (name for name in counters if name.startswith("files-decoded-as-"))
        assert counters[counter] == 1
        assert counters.locations[counter] == f"a.txt{suffix}"


@pytest.mark.parametrize(
    ("unit", "encoding"),
    [(RUSSIAN, "koi8-r"), (JAPANESE, "cp932"), (SIMPLIFIED, "gb18030"), (SIMPLIFIED, "utf-16")],
    ids=["koi8-r", "cp932", "gb18030", "utf-16"],
)
def test_long_line_in_another_encoding_is_not_cut_within_a_character(
    tmp_path: Path, unit: str, encoding: str
) -> None:
    documents, counters = read(
        tmp_path / "a.txt", (unit * 200).encode(encoding), max_document_bytes=1024
    )
    assert len(documents) >= 10
    assert counters["rows-in"] == counters["rows-kept"]
    assert "".join(joined(documents).split()) == "".join((unit * 200).split())


def test_json_rows_in_another_encoding_are_read(tmp_path: Path) -> None:
    rows = [json.dumps({"text": f"{n}: {RUSSIAN}"}, ensure_ascii=False) for n in range(9)]
    documents, _ = read(tmp_path / "a.jsonl", "\n".join(rows).encode("koi8-r"))
    assert paragraphs(documents) == [[f"{n}: {RUSSIAN}"] for n in range(9)]


def test_damaged_records_are_dropped_and_counted(tmp_path: Path) -> None:
    for written, encoding, bad in (
        (RUSSIAN, "utf-8", b"\xd0 \xff"),
        (RUSSIAN, "utf-8", b"\x00\x01"),
        (FRENCH, "cp1252", b"\x81\x8d"),
        (JAPANESE, "euc-jp", b"\xff\xfe"),
        (FRENCH, "cp1252", b"\x00\x01"),
    ):
        good = [f"{number}: {written}" for number in range(40)]
        content = "\n\n".join(good).encode(encoding) + b"\n\nbad " + bad + b" bad\n"
        documents, counters = read(tmp_path / "a.txt", content)
        assert paragraphs(documents) == [[paragraph] for paragraph in good]
        assert counters["rows-dropped-undecodable"] == 1
        assert counters.locations["rows-dropped-undecodable"].startswith("a.txt, byte")


def test_text_in_no_known_encoding_is_dropped_and_counted(tmp_path: Path) -> None:
    content = bytes(range(128, 256)) + b"\n\n" + bytes(range(256)) + b"\n\nplain\n"
    documents, counters = read(tmp_path / "a.txt", content)
    assert paragraphs(documents) == [["plain"]]
    assert counters["rows-dropped-undecodable"] == counters["rows-in"] - 1 >= 2


@pytest.mark.parametrize("name", ["a.txt", "b.jsonl"])
def test_empty_file_is_planned_so_that_it_can_be_noted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    splits, documents, counters = read_all(config_of(tmp_path))
    assert [split.file.name for split in splits] == [name]
    assert (documents, counters) == ([], {})


ROWS = [{"id": n, "text": f"text {n}\n\nmore", "title": f"Title {n}"} for n in range(50)]
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("target_split_bytes", [1024, 1 << 20])
def test_json_rows(tmp_path: Path, suffix: str, target_split_bytes: int) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](JSONL.encode()))
    places = config_of(path, target_split_bytes=target_split_bytes)
    named = places.model_copy(update={"id_column": "id", "title_column": "title"})
    splits, documents, _ = read_all(named)
    assert len(splits) == (1 if suffix or target_split_bytes == 1 << 20 else 3)
    assert ids(documents) == [str(n) for n in range(50)]
    assert [raw.title for _, raw in documents] == [f"Title {n}" for n in range(50)]
    assert documents[7][1].paragraphs == ["text 7", "more"]
    starts = itertools.accumulate((len(line) + 1 for line in JSONL.splitlines()), initial=0)
    expected = [f"{path.name}:{start}" for start in starts][:-1]
    assert ids(read_all(places)[1]) == expected


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
    documents, counters = read(tmp_path / "a.jsonl", "\n".join(rows), id_column="id")
    assert ids(documents) == ["a", "z"]
    del counters["raw-bytes"]
    assert counters == {
        "rows-in": 10,
        "rows-kept": 2,
        "rows-dropped-malformed-json": 3,
        "rows-dropped-no-text": 4,
        "rows-dropped-no-id": 1,
    }


@pytest.mark.parametrize("field", ["text", "id", "title"])
def test_half_a_character_costs_only_its_row(tmp_path: Path, field: str) -> None:
    rows = [{"id": str(n), "text": f"text {n}", "title": "t"} for n in range(3)]
    rows[1][field] += "\ud800"
    content = "\n".join(json.dumps(row) for row in rows)
    documents, counters = read(tmp_path / "a.jsonl", content, id_column="id", title_column="title")
    assert ids(documents) == ["0", "2"]
    assert counters["rows-dropped-lone-surrogate"] == 1
    assert counters.locations["rows-dropped-lone-surrogate"].startswith("a.jsonl, byte 4")


@pytest.mark.parametrize("target_split_bytes", [1024, 1 << 20])
def test_parquet_rows(tmp_path: Path, target_split_bytes: int) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=10)
    splits, documents, counters = read_all(
        config_of(path, target_split_bytes=target_split_bytes, title_column="title")
    )
    assert len(splits) == (1 if target_split_bytes == 1 << 20 else 3)
    assert ids(documents) == [f"a.parquet:{n}" for n in range(50)]
    (_, first), *_, (_, last) = documents
    assert (last.paragraphs, last.title) == (["text 49", "more"], "Title 49")
    assert 0 < first.byte_end <= last.byte_start < path.stat().st_size
    assert counters["rows-kept"] == 50


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
        (pa.array(["z", None], pa.large_string()), ["z"]),
    ],
    ids=["dictionary", "large"],
)
def test_parquet_strings_of_any_type_are_text(
    tmp_path: Path, column: pa.Array, texts: list[str]
) -> None:
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    _, documents, counters = read_all(config_of(tmp_path))
    assert paragraphs(documents) == [[text] for text in texts]
    assert counters["rows-dropped-no-text"] == 2 - len(texts)


@pytest.mark.parametrize("field", ["text", "id"])
def test_parquet_string_that_is_not_utf_8_costs_only_its_row(tmp_path: Path, field: str) -> None:
    columns = {"text": pa.array(["x", "y", "z"]), "id": pa.array(["a", "b", "c"])}
    columns[field] = pa.array([b"a", b"caf\xe9", b"c"], pa.binary()).view(pa.string())
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    _, documents, counters = read_all(config_of(tmp_path, id_column="id"))
    assert ids(documents) == ["a", "c"]
    assert counters.locations["rows-dropped-undecodable"] == "a.parquet, row 1"


def test_missing_columns_name_those_that_exist(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "x", "url": "y"}\n')
    pq.write_table(pa.table({"body": ["x"], "text": [1]}), tmp_path / "a.parquet")
    for name, column, message in (
        ("a.jsonl", "text", r"'text'.*text_column.*'body', 'url'"),
        ("a.parquet", "words", r"'words'.*'body', 'text'"),
        ("a.parquet", "text", "int64"),
    ):
        with pytest.raises(InputError, match=message):
            text.plan(config_of(tmp_path / name, text_column=column))


def test_damaged_or_missing_input_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(MissingInputError):
        read_all(config_of(tmp_path))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    with pytest.raises(CorruptInputError, match="Parquet"):
        read(tmp_path / "a.parquet", (tmp_path / "a.parquet").read_bytes()[:-10])
    with pytest.raises(CorruptInputError, match="cut off"):
        read(tmp_path / "b.txt.gz", gzip.compress(TXT.encode())[:-20])


def test_json_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    with pytest.raises(InputError, match="1,000 bytes"):
        read(tmp_path / "a.jsonl", b"x" * (1 << 20))


# Documents at the maximum size.


def test_long_document_is_cut_where_a_sentence_ends(tmp_path: Path) -> None:
    documents, counters = read(tmp_path / "a.txt", LINES, max_document_bytes=10_000)
    assert len(documents) == len(set(ids(documents))) == 14
    assert counters["rows-cut"] == 13
    assert counters["files-without-blank-line"] == 0  # the last part is short
    assert joined(documents) == LINES
    assert all(sum(map(len, raw.paragraphs)) <= 10_000 for _, raw in documents)
    row = json.dumps({"text": LINES, "id": "a"})
    documents, counters = read(tmp_path / "a.jsonl", row, id_column="id", max_document_bytes=50_000)
    assert ids(documents) == ["a", "a#2", "a#3"]
    assert counters["rows-cut"] == 2
    assert joined(documents) == LINES


@pytest.mark.parametrize("delimiter", ["blank-line", "file"])
def test_document_stays_within_limit_when_lines_end_no_sentence(
    tmp_path: Path, delimiter: str
) -> None:
    written = ["A one.", "B two.", *(letter * 950 for letter in "cde")]
    options = {"max_document_bytes": 1024, "document_delimiter": delimiter}
    documents, counters = read(tmp_path / "a.txt", "\n".join(written), **options)
    assert paragraphs(documents) == [written[:2], *([line] for line in written[2:])]
    assert counters["rows-cut"] == 3
    draw = random.Random(5)
    written = ["w" * draw.randint(0, 1200) + draw.choice(["", ".", "\n"]) for _ in range(200)]
    documents, _ = read(tmp_path / "a.txt", "\n".join(written), **options)
    assert max(raw.byte_end - raw.byte_start for _, raw in documents) <= 1025  # a line end
    assert joined(documents).replace("\n", "") == "".join(written).replace("\n", "")


def test_line_without_end_is_cut_and_never_held_whole(tmp_path: Path) -> None:
    sentence = "This is one of many sentences of a text without any line end. "
    (tmp_path / "a.txt").write_text(sentence * 50_000)
    tracemalloc.start()
    _, made, counters = read_all(config_of(tmp_path / "a.txt", max_document_bytes=100_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * 50_000 * len(sentence)  # the documents themselves are kept here
    assert counters["rows-cut"] == len(made) - 1 >= 30
    assert all(raw.paragraphs[-1].endswith("line end.") for _, raw in made)
    assert sum(raw.paragraphs[0].count("sentences") for _, raw in made) == 50_000


@pytest.mark.parametrize("unit", ["文は続く。", "日本", "x", "caf\u00e9 "])
def test_cut_never_parts_a_character(tmp_path: Path, unit: str) -> None:
    for name, content in (("a.txt", unit * 4000), ("a.jsonl", json.dumps({"text": unit * 4000}))):
        documents, counters = read(tmp_path / name, content, max_document_bytes=1024)
        assert len(set(ids(documents))) == len(documents) >= 4
        assert not [name for name in counters if "decoded-as" in name]
        written = "".join(joined(documents).split())
        assert written == "".join((unit * 4000).split())


# Hard-wrapped lines.

WALK = (
    "They walked along the well-known river until noon without saying very much, for each of them "
    "was busy with a private anxiety. Mary went first. No one in the village had yet opened so "
    "much as a single shutter to see them go, and the road was long."
)
GERMAN = (
    "Am Morgen gingen die Leute aus dem Dorf mit ihren Kindern an den Fluss hinunter, wo der "
    "alte Fischer seine Netze in der Sonne trocknete und niemand ein Wort mit dem Fremden sprach."
)
HILL = "山の上に立って遠くの海を眺めていると昔のことが思い出されてなかなか帰れなかった。" * 3


@pytest.mark.parametrize("delimiter", ["blank-line", "file", "line"])
def test_hard_wrapped_lines_are_joined_unless_each_is_a_document(
    tmp_path: Path, delimiter: str
) -> None:
    written = [WALK, GERMAN] * 20
    content = "\n\n".join(textwrap.fill(paragraph, 72) for paragraph in written)
    options = {"document_delimiter": delimiter, "target_split_bytes": 1024}
    documents, _ = read(tmp_path / "a.txt", content, **options)
    paragraphs = [paragraph for _, raw in documents for paragraph in raw.paragraphs]
    assert paragraphs == (
        content.replace("\n\n", "\n").split("\n") if delimiter == "line" else written
    )
    assert len(documents) == (1 if delimiter == "file" else len(paragraphs))


@pytest.mark.parametrize(
    ("wrapped", "paragraph"),
    [
        *((textwrap.wrap(WALK, width), WALK) for width in (40, 72, 100)),
        # One line is short.
        (textwrap.wrap(WALK[:130], 60) + textwrap.wrap(WALK[131:], 55), WALK),
        ([HILL[at : at + 38] for at in range(0, len(HILL), 38)], HILL),  # joined without a space
    ],
)
def test_wrapped_lines_are_joined(wrapped: list[str], paragraph: str) -> None:
    assert join_wrapped_lines("\n".join(wrapped)) == [paragraph]


@pytest.mark.parametrize(
    "separate",
    [
        [f"{sentence}." for sentence in WALK.split(". ")],
        WALK.lower().replace(".", " .").replace(",", " ,").split(" , "),
        [WALK, GERMAN],
        ["The Walk to the River", WALK],
        ["he said , `` not a word of it to the others in the village '' .", "she went ."],
        ["a short line", "a short word", "a short list"],
        ["Whatever the river brings", "It takes away again by night", "And no one is there to see"],
    ],
)
def test_lines_that_are_not_wrapped_stay_paragraphs(separate: list[str]) -> None:
    assert join_wrapped_lines("\n".join(separate)) == separate


@pytest.mark.parametrize("unit", [f"{WALK[:60]}\n", "well-\nknown ", "\n", ") ", "of a walk "])
def test_joining_wrapped_lines_takes_linear_time(unit: str) -> None:
    complexity.assert_linear(join_wrapped_lines, unit)


def test_one_sentence_per_line_of_the_reference_stays(real_data: Path) -> None:
    path = real_data / "golden" / "sample_text.txt"
    expected = [" ".join(line.split()) for line in path.read_text().splitlines() if line.strip()]
    assert joined(read_all(config_of(path))[1]).splitlines() == expected


# Groups of small files.


def test_files_of_one_name_give_documents_of_different_ids(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one", "two", "three")]
    for folder, stored in zip(paths, ("first", "second", "first"), strict=True):
        folder.mkdir()
        (folder / "a.txt").write_text(stored)
    first, second = (
        read_all(TextSource(name="mine", paths=tuple(map(str, order))))[1]
        for order in (paths, paths[::-1])
    )
    assert paragraphs(first) == paragraphs(second)
    assert sorted(paragraphs(first)) == [["first"], ["second"]]
    assert len(set(ids(first))) == 2
    assert set(ids(first)) == set(ids(second))


def write_small(folder: Path, *, number: int) -> None:
    """Texts of a line or two, some compressed, one of rows, one that is empty."""
    folder.mkdir(exist_ok=True)
    for n in range(number):
        suffix = (*COMPRESS, "", "", "")[n % 7]
        data = COMPRESS[suffix](f"Text {n}.\nIts second line.\n\nAnother {n}.".encode())
        (folder / f"{n:04d}.txt{suffix}").write_bytes(data)
    (folder / "0007a.jsonl").write_text(JSONL)
    (folder / "0009a.txt").write_text(" \n")


def test_small_files_are_read_together_as_each_alone(tmp_path: Path) -> None:
    write_small(tmp_path, number=50)
    splits, documents, counters = read_all(config_of(tmp_path))
    assert len(splits) < 5
    expected, total = list[tuple[str, RawText]](), Counters()
    for path in sorted(tmp_path.iterdir()):
        (alone,), read_alone, counted = read_all(config_of(path))
        assert "files" not in alone.detail
        expected += read_alone
        total.update(counted)
    assert sorted(documents) == sorted(expected)
    assert counters.pop("files-without-text") == 1
    assert counters == total
    digests = {path.name: sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    names = [name.rpartition(":")[0] for name in ids(documents)]
    assert [raw.file for _, raw in documents] == [digests[name] for name in names]


def test_each_file_of_a_group_is_a_raw_input(tmp_path: Path) -> None:
    folders = [tmp_path / "here", tmp_path / "there"]
    for folder in folders:
        write_small(folder, number=5)
    configs = [DocumentsConfig(sources=(config_of(folder),)) for folder in folders]
    names = sorted(path.name for path in folders[0].iterdir())
    assert sorted(raw.name for raw in raw_inputs(configs[0])) == names
    (here,), (there,) = map(plan, configs)
    assert here.split != there.split
    assert item_identity(here, "text") == item_identity(there, "text")
