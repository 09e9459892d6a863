"""Documents of exclusion tables are counted, and vocabulary and tokens do not have them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from support.corpus_builder import as_input

from pipelines.build_documents import build_documents
from pipelines.build_tokens import build_tokens
from pipelines.build_vocabulary import build_vocabulary
from pipelines.documents.exclusions import CONTAMINATED, EXCLUSIONS_FILE, shard_items
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile, input_file
from schemas.arrow import EXCLUDED_DOCUMENTS
from schemas.corpus_configs import DocumentsConfig, TextSource, TokensConfig, VocabularyConfig
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput

HERE = ExecutionConfig()


def build(folder: Path) -> StageInput:
    """Six documents in two shards; the last equals the first."""
    texts = [f"This is the text of document number {n} of them." for n in range(5)]
    rows = [{"id": f"d{n}", "text": text} for n, text in enumerate([*texts, texts[0]])]
    for name, some in (("a", rows[:3]), ("b", rows[3:])):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, some)))
    source = TextSource(
        name="mine", paths=(f"{folder}/*.jsonl",), id_column="id", target_split_bytes=1024
    )
    data = str(folder / "documents")
    made = build_documents(
        DocumentsConfig(sources=(source,)), inputs={}, output=data, execution=HERE
    )
    return as_input("documents", made, data)


def left_out(folder: Path, documents: StageInput, *names: str) -> StageInput:
    """Return an artifact that excludes the documents with these ids."""
    rows = []
    for piece in shard_items(documents, remove_duplicates=False):
        with open_shard(piece.file) as reader:
            ids = reader.read_all().column("document_id").to_pylist()
        rows += [(name, piece.path, row) for row, name in enumerate(ids) if name[5:] in names]
    assert len(rows) == len(names)
    columns = [*zip(*rows, strict=True), [CONTAMINATED] * len(rows), ["a test"] * len(rows)]
    arrays = [
        pa.array(column, kind)
        for column, kind in zip(columns, EXCLUDED_DOCUMENTS.types, strict=True)
    ]
    data = str(folder / "contamination")
    with ShardWriter(EXCLUSIONS_FILE, schema=EXCLUDED_DOCUMENTS, output=data) as shard:
        shard.write(pa.record_batch(arrays, schema=EXCLUDED_DOCUMENTS))
    return as_input("contamination", StageOutput(files=(shard.entry(),)), data)


def test_documents_that_are_left_out_are_counted_by_reason(tmp_path: Path) -> None:
    documents = build(tmp_path)
    given = {"documents": documents, "contamination": left_out(tmp_path, documents, "d1", "d3")}
    words = build_vocabulary(
        VocabularyConfig(vocab_size=150), inputs=given, output=str(tmp_path / "v"), execution=HERE
    )
    given["vocabulary"] = as_input("vocabulary", words, str(tmp_path / "v"))
    made = build_tokens(TokensConfig(), inputs=given, output=str(tmp_path / "t"), execution=HERE)
    for counters in (words.counters, made.counters):
        assert {name: n for name, n in counters.items() if name.startswith("documents")} == {
            "documents-in": 6,
            "documents-kept": 3,
            "documents-dropped-contaminated": 2,
            "documents-dropped-duplicate": 1,
        }
    tokens = as_input("tokens", made, str(tmp_path / "t"))
    kept = []
    for entry in tokens.files:
        with open_shard(InputFile.of(tokens, entry)) as reader:
            kept += reader.read_all().column("document_id").to_pylist()
    assert kept == ["mine:d0", "mine:d2", "mine:d4"]


def test_pieces_are_what_they_were_where_nothing_is_left_out(tmp_path: Path) -> None:
    """And a shard without such a document is not done again for those of others."""
    documents = build(tmp_path)
    table = input_file(left_out(tmp_path, documents, "d1"), EXCLUSIONS_FILE)
    plain = shard_items(documents, remove_duplicates=True)
    fewer = shard_items(documents, remove_duplicates=True, exclusions=[table])
    assert [set(piece.identity()) for piece in plain] == 2 * [{"shard", "repeated", "left-out"}]
    same = [a.identity() == b.identity() for a, b in zip(plain, fewer, strict=True)]
    assert same == [False, True]
