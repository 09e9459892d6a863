"""Dropped and unusual records of `build-documents` are counted and noted in its manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.corpus_builder import as_input
from support.dump_builder import dump, page

from pipelines.counters import Counters
from pipelines.documents.exclusions import kept_rows, shard_items
from pipelines.documents.job import build_documents
from schemas.corpus_configs import DocumentsConfig, TextSource, WikipediaSource
from schemas.errors import InputError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageOutput

TEXT = "The quick brown fox jumps over the lazy dog number"


def build(output: Path, *sources: Any, workers: int = 1) -> StageOutput:
    return build_documents(
        DocumentsConfig(sources=sources),
        inputs={},
        output=str(output),
        execution=ExecutionConfig(workers=workers),
    )


def read_by_later_stages(made: StageOutput, output: Path, *, remove: bool) -> list[str]:
    documents = as_input("documents", made, str(output))
    counters = Counters()
    return [
        name
        for piece in shard_items(documents, remove_duplicates=remove)
        for _, batch in kept_rows(piece, counters)
        for name in batch.column("document_id").to_pylist()
    ]


def write_rows(path: Path, rows: list[tuple[str, str]]) -> None:
    lines = (json.dumps({"id": name, "text": text}) for name, text in rows)
    path.write_text("\n".join(lines))


def test_a_repeated_id_is_dropped_counted_and_said_wherever_it_comes(tmp_path: Path) -> None:
    """50 rows of one id were all kept under it, and no note said so."""
    write_rows(tmp_path / "a.jsonl", [("same", f"{TEXT} {n}") for n in range(50)])
    write_rows(tmp_path / "b.jsonl", [("same", f"{TEXT} b"), ("other", f"{TEXT} other")])
    counters_of_runs = []
    for workers, target_split_bytes in ((1, 1 << 20), (1, 1024), (2, 1024)):
        output = tmp_path / f"{workers}-{target_split_bytes}"
        source = TextSource(
            name="mine",
            paths=(f"{tmp_path}/*.jsonl",),
            id_column="id",
            target_split_bytes=target_split_bytes,
        )
        made = build(output, source, workers=workers)
        counters = made.counters
        assert counters["documents-in"] == counters["documents-in@mine"] == 52
        assert counters["documents-kept"] == counters["documents-kept@mine"] == 2
        assert counters["documents-dropped-repeated-id@mine"] == 50
        assert any("documents-dropped-repeated-id 50" in note for note in made.notes)
        for remove in (True, False):
            assert sorted(read_by_later_stages(made, output, remove=remove)) == [
                "mine:other",
                "mine:same",
            ]
        assert any(note.endswith("in a.jsonl; 'mine:same' is kept") for note in made.notes) is (
            target_split_bytes == 1024  # larger, both files are one split
        )
        counters_of_runs.append(made.counters)
    assert counters_of_runs[0] == counters_of_runs[1] == counters_of_runs[2]


def counts_of_rows(made: StageOutput, output: Path, source: str) -> dict[str, int]:
    """Return the counts of the documents that later stages read."""
    counts = dict.fromkeys(("documents-kept", "sentences", "words", "characters"), 0)
    for piece in shard_items(as_input("documents", made, str(output)), remove_duplicates=False):
        for _, batch in kept_rows(piece, Counters()):
            for row in batch.select(["source", "sentences"]).to_pylist():
                if source in ("", row["source"]):
                    counts["documents-kept"] += 1
                    counts["sentences"] += len(row["sentences"])
                    counts["words"] += sum(len(text.split()) for text in row["sentences"])
                    counts["characters"] += sum(map(len, row["sentences"]))
    return counts


@pytest.mark.parametrize("max_shard_bytes", [1 << 30, 1 << 20])
def test_counts_are_of_documents_without_repeated_ids(tmp_path: Path, max_shard_bytes: int) -> None:
    for name, count in (("a", 30), ("b", 7)):
        rows = [(f"id {n % 5}", f"{TEXT} {name}. {'Ωραία πόλη, 東京. ' * n}") for n in range(count)]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    write_dump(tmp_path / "old.xml", ("Ada", 7, 100, f"{TEXT} old"), ("Bob", 8, 5, f"{TEXT} b"))
    write_dump(tmp_path / "new.xml", ("Ada", 7, 200, f"{TEXT} new."), ("Bob", 8, 5, f"{TEXT} b"))
    sources = (
        TextSource(name="a", paths=(f"{tmp_path}/a.jsonl",), id_column="id"),
        TextSource(name="b", paths=(f"{tmp_path}/b.jsonl",), id_column="id"),
        WikipediaSource(name="w", paths=(f"{tmp_path}/*.xml",)),
    )
    config = DocumentsConfig(sources=sources, max_shard_bytes=max_shard_bytes)
    output = tmp_path / "out"
    made = build_documents(
        config, inputs={}, output=str(output), execution=ExecutionConfig(workers=1)
    )
    for source in ("", "a", "b", "w"):
        suffix = f"@{source}" if source else ""
        expected = counts_of_rows(made, output, source)
        assert {name: made.counters[f"{name}{suffix}"] for name in expected} == expected
        dropped = made.counters[f"documents-dropped-repeated-id{suffix}"]
        assert made.counters[f"documents-in{suffix}"] == expected["documents-kept"] + dropped


def test_file_whose_documents_all_have_repeated_ids_is_noted(tmp_path: Path) -> None:
    write_dump(tmp_path / "old.xml", ("Ada", 7, 100, f"{TEXT} old"))
    write_dump(tmp_path / "new.xml", ("Ada", 7, 200, f"{TEXT} new"))
    made = build(tmp_path / "out", WikipediaSource(name="w", paths=(f"{tmp_path}/*.xml",)))
    assert any("old.xml (1 pages; dropped: repeated-id 1)" in note for note in made.notes)


def write_dump(path: Path, *pages: tuple[str, int, int, str]) -> None:
    made = [page(number, text, title=t, revision=revision) for t, number, revision, text in pages]
    path.write_bytes(dump(made))


def test_a_page_of_two_dumps_is_taken_in_its_newest_revision(tmp_path: Path) -> None:
    write_dump(tmp_path / "old.xml", ("Ada", 7, 100, f"{TEXT} old"), ("Bob", 8, 5, f"{TEXT} b"))
    write_dump(tmp_path / "new.xml", ("Ada", 7, 200, f"{TEXT} new"), ("Bob", 8, 5, f"{TEXT} b"))
    made = build(tmp_path / "out", WikipediaSource(name="w", paths=(f"{tmp_path}/*.xml",)))
    kept = read_by_later_stages(made, tmp_path / "out", remove=True)
    assert sorted(kept) == ["w:7:200", "w:8:5"]
    assert made.counters["documents-dropped-repeated-id"] == 2


def test_an_input_that_gives_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{TEXT} 1")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "blank.txt").write_text("\n\n \n")
    write_dump(tmp_path / "none.xml")
    write_dump(tmp_path / "redirects.xml", ("A", 1, 1, "#REDIRECT [[B]]"))
    made = build(
        tmp_path / "out",
        TextSource(name="mine", paths=(f"{tmp_path}/*.txt",)),
        WikipediaSource(name="w", paths=(f"{tmp_path}/*.xml",)),
    )
    notes = " ".join(made.notes)
    assert "files-without-text 2, the first of them blank.txt" in notes
    assert "none.xml (empty), redirects.xml (1 pages; dropped: redirect 1)" in notes


def test_sources_that_give_no_document_at_all_are_an_error(tmp_path: Path) -> None:
    write_dump(tmp_path / "redirects.xml", ("A", 1, 1, "#REDIRECT [[B]]"))
    with pytest.raises(InputError, match=r"no document.*redirects\.xml \(1 pages.*redirect 1"):
        build(tmp_path / "out", WikipediaSource(name="w", paths=(f"{tmp_path}/*.xml",)))


def test_records_left_out_are_noted_with_the_first_of_them(tmp_path: Path) -> None:
    good = json.dumps({"text": TEXT})
    (tmp_path / "a.jsonl").write_text(f'{good}\n{{"text": \n{{"text": "{TEXT}\\ud800"}}')
    made = build(tmp_path / "out", TextSource(name="mine", paths=(f"{tmp_path}/a.jsonl",)))
    notes = " ".join(made.notes)
    first = f"the first of them a.jsonl, byte {len(good) + 1:,}"
    assert f"rows-dropped-malformed-json 1, {first}" in notes
    assert "rows-dropped-lone-surrogate 1" in notes


def test_one_endless_document_is_noted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{TEXT} {n}.\n" for n in range(3000)))
    source = TextSource(name="mine", paths=(f"{tmp_path}/a.txt",))
    (note,) = build(tmp_path / "out", source).notes
    assert "files-without-blank-line 1, the first of them a.txt. Each of these" in note
    short = source.model_copy(update={"max_document_bytes": 50_000})
    notes = build(tmp_path / "short", short).notes
    assert any("rows-cut 3, the first of them a.txt, byte" in note for note in notes)
    chosen = source.model_copy(update={"document_delimiter": "file"})
    assert build(tmp_path / "file", chosen).notes == ()
