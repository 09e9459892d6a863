"""Held-out documents are chosen by id, and no instance has tokens of both parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.counting_fs import CountedFiles

from pipelines.counters import check_balance
from pipelines.instances import HELD_OUT, TRAINING, build_shard, is_held_out, split_id
from pipelines.instances import plan as instance_plan
from pipelines.instances.build_shard import held_out_mask
from pipelines.instances.job import build_instances
from pipelines.instances.plan import plan, pool_numbers
from pipelines.io.files import write_text_file
from pipelines.io.shards import ShardWriter, open_shard
from pipelines.io.stage_inputs import InputFile
from pipelines.seeds import key_for
from pipelines.shard_job.work import WorkResult, sum_counters
from schemas.arrow import tokens_schema
from schemas.corpus_configs import InstancesConfig, MaskingConfig
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import FileEntry, StageInput, StageOutput

FIRST = 104  # id of the first token that is not special
UNMASKED = MaskingConfig(strategy="none")
Ids = list[list[str]]  # of the documents of each shard


class Corpus:
    """Token shards in which all tokens of a document are one id, that of no other document."""

    def __init__(self, folder: Path, ids: Ids, *, sentences: int = 12, batches: int = 3) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.ids = folder, ids
        self.of_token = [
            (shard, row) for shard, names in enumerate(ids) for row in range(len(names))
        ]
        self.vocab_size = FIRST + len(self.of_token)
        self.schema = tokens_schema(self.vocab_size)
        special = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        pieces = ["[PAD]", *(f"[unused{n}]" for n in range(99)), *special]
        pieces += [f"d{n}" for n in range(len(self.of_token))]
        text = "\n".join(pieces) + "\n"
        vocab = write_text_file("vocab.txt", text, output=str(folder))
        self.vocabulary = StageInput(
            name="vocabulary",
            artifact_id="v",
            data=str(folder),
            files=(vocab,),
            statistics={"vocab_size": self.vocab_size},
        )
        self._token = iter(range(FIRST, self.vocab_size))
        self._rng = np.random.default_rng(0)
        files = [
            self._write(number, names, sentences=sentences, batches=batches)
            for number, names in enumerate(ids)
        ]
        self.tokens = StageInput(
            name="tokens", artifact_id="t", data=str(folder), files=tuple(files)
        )

    def _write(self, number: int, names: list[str], *, sentences: int, batches: int) -> FileEntry:
        path = f"part-{number:05d}.arrow"
        with ShardWriter(path, schema=self.schema, output=str(self.folder)) as shard:
            for part in np.array_split(np.array(names, object), batches):
                sizes = [
                    self._rng.integers(3, 30, self._rng.integers(1, 2 * sentences)) for _ in part
                ]
                ids = [[next(self._token)] * int(size.sum()) for size in sizes]
                lengths = [size.tolist() for size in sizes]
                columns = [part.tolist(), ids, lengths, [None] * len(part)]
                arrays = [
                    pa.array(column, field.type)
                    for column, field in zip(columns, self.schema, strict=True)
                ]
                shard.write(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
        return shard.entry()

    def held_out(self, share: float) -> set[tuple[int, int]]:
        """(shard, row) of the documents that are held out, one key at a time."""
        return {
            (shard, row)
            for shard, row in self.of_token
            if key_for(0, "held-out", self.ids[shard][row]) < share * 2**64
        }

    def work(self, config: InstancesConfig, output: Path) -> list[WorkResult]:
        """The work on all pieces, without Beam."""
        output.mkdir(parents=True, exist_ok=True)
        work = build_shard.BuildInstanceShard(
            config=config,
            vocab=InputFile.of(self.vocabulary, self.vocabulary.files[0]),
            vocab_size=self.vocab_size,
            output=str(output),
        )
        work.setup()
        return [work.process(piece) for piece in plan(config, self.tokens)]

    def build(self, config: InstancesConfig, output: Path, *, workers: int = 1) -> StageOutput:
        """The whole stage."""
        output.mkdir(parents=True)
        return build_instances(
            config,
            inputs={"tokens": self.tokens, "vocabulary": self.vocabulary},
            output=str(output),
            execution=ExecutionConfig(workers=workers),
        )


def names(*sizes: int) -> Ids:
    """Ids of documents in shards of these sizes."""
    return [[f"doc/{shard}/{row}" for row in range(size)] for shard, size in enumerate(sizes)]


def names_of(part: str, count: int) -> list[str]:
    """Ids that are all held out at a share of a half, or none of them."""
    numbered = (f"doc/{number}" for number in range(100 * count))
    wanted = [
        name
        for name in numbered
        if (key_for(0, "held-out", name) < 1 << 63) == (part == "held-out")
    ]
    return wanted[:count]


def entries_of(made: Sequence[WorkResult] | StageOutput) -> list[FileEntry]:
    if isinstance(made, StageOutput):
        return list(made.files)
    return [entry for report in made for entry in report.files]


def rows_of(entries: Sequence[FileEntry], output: Path, *, part: str) -> Iterator[dict[str, Any]]:
    """Rows of the training or the held-out instances, with the number of their token shard."""
    for entry in entries:
        if entry.statistics["part"] == part:
            with open_shard(str(output / entry.stored_name)) as reader:
                for row in reader.read_all().to_pylist():
                    own, pool = entry.statistics["token_shard"], pool_numbers(entry)
                    yield {**row, "shard": own, "segment_b_shard": pool[row["segment_b_shard"]]}


def documents_in(rows: Iterator[dict[str, Any]]) -> tuple[set[tuple[int, int]], set[int]]:
    """The documents that rows say they are from, and the ids of all their tokens."""
    documents: set[tuple[int, int]] = set()
    tokens: set[int] = set()
    for row in rows:
        documents.add((row["shard"], row["document_row"]))
        if row["next_sentence_label"] != -1:
            documents.add((row["segment_b_shard"], row["segment_b_row"]))
        tokens.update(row["input_ids"])
    return documents, tokens


@given(
    st.lists(st.text(min_size=1)),
    st.floats(0, 1) | st.sampled_from([0.0, 0.005, 0.5, 1.0, 2.0**-64, 2.0**-70]),
    st.floats(0, 1),
)
def test_a_document_is_chosen_by_its_key_alone(ids: list[str], share: float, more: float) -> None:
    is_chosen = is_held_out(ids, share=share)
    assert is_chosen.dtype == np.bool_
    assert is_chosen.tolist() == [key_for(0, "held-out", name) < share * 2**64 for name in ids]
    nested = is_held_out(ids, share=max(share, more))
    assert (nested | ~is_chosen).all()


def test_the_share_is_that_of_the_documents_and_the_choice_is_for_good() -> None:
    ids = [f"enwiki/{number}" for number in range(100_000)]
    for share in (0.005, 0.1, 0.5):
        assert is_held_out(ids, share=share).mean() == pytest.approx(share, rel=0.15)
    chosen = np.flatnonzero(is_held_out(ids, share=0.005))
    # Models of one version are evaluated on documents that those of another have not seen either.
    assert chosen[:5].tolist() == [281, 369, 379, 781, 1129]


def test_edited_page_stays_in_its_part() -> None:
    def chosen(revision: int) -> list[int]:
        names = [f"wiki:{page}:{revision}" for page in range(200)]
        split_ids = [split_id(name, revision) for name in names]
        table = pa.table({"document_id": names, "split_id": split_ids})
        return np.flatnonzero(held_out_mask(table, share=0.3)).tolist()

    assert 30 < len(chosen(7)) < 90
    assert chosen(7) == chosen(7000)


@pytest.mark.parametrize("group", [2, 256])
@pytest.mark.parametrize("negative_pool_bytes", [1 << 10, 1 << 30])
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_no_instance_has_tokens_of_the_other_part(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    negative_pool_bytes: int,
    group: int,
) -> None:
    """Checks the rows that instances refer to, and their tokens."""
    monkeypatch.setattr(instance_plan, "HELD_OUT_SHARDS", group)
    corpus = Corpus(tmp_path, names(60, 1, 50, 0, 70))
    config = InstancesConfig(
        max_seq_length=64,
        negative_pool_bytes=negative_pool_bytes,
        held_out_fraction=share,
        dupe_factor=2,
        masking=UNMASKED,
    )
    entries = entries_of(corpus.work(config, tmp_path / "out"))
    expected = corpus.held_out(share)
    assert len(expected) > 3
    others = set(corpus.of_token) - expected
    seen = {}
    for part, allowed in (("training", others), ("held-out", expected)):
        documents, tokens = documents_in(rows_of(entries, tmp_path / "out", part=part))
        assert documents == allowed
        seen[part] = {corpus.of_token[token - FIRST] for token in tokens if token >= FIRST}
        assert seen[part] == allowed
        rows = list(rows_of(entries, tmp_path / "out", part=part))
        is_random = [row["next_sentence_label"] for row in rows]
        assert np.mean(is_random) == pytest.approx(0.5, abs=0.15)
        for row in rows:
            a, b = row["input_ids"][1], row["input_ids"][-2]
            assert corpus.of_token[a - FIRST] == (row["shard"], row["document_row"])
            assert corpus.of_token[b - FIRST] == (row["segment_b_shard"], row["segment_b_row"])
    assert {row["dupe_index"] for row in rows_of(entries, tmp_path / "out", part="held-out")} == {0}


def test_the_same_documents_at_every_length_seed_and_pass(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, names(40, 30))
    usual = InstancesConfig(max_seq_length=64, held_out_fraction=0.1, masking=UNMASKED)
    rows = []
    changes: list[dict[str, Any]] = [
        {}, {"dupe_factor": 3}, {"max_seq_length": 128}, {"seed": 7}, {"pairing": "none"},
    ]  # fmt: skip
    for number, change in enumerate(changes):
        output = tmp_path / str(number)
        entries = entries_of(corpus.work(usual.model_copy(update=change), output))
        rows.append(list(rows_of(entries, output, part="held-out")))
        assert documents_in(iter(rows[-1]))[0] == corpus.held_out(0.1)
        training = documents_in(rows_of(entries, output, part="training"))[0]
        assert training == set(corpus.of_token) - corpus.held_out(0.1)
    assert rows[0] == rows[1]  # also the instances do not depend on the passes


def test_files_and_counts_of_the_stage(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "tokens", [*names(60, 50), names_of("training", 30)])
    config = InstancesConfig(max_seq_length=64, held_out_fraction=0.5, dupe_factor=2)
    made = corpus.build(config, tmp_path / "one")
    assert [entry.path for entry in made.files] == [
        *(f"part-0000{shard}-pass-0{n}.arrow" for shard in range(3) for n in range(2)),
        "__held-out__/held-out-00000.arrow",
        "__held-out__/held-out-00001.arrow",
    ]  # a shard that nothing is held out of has no such file
    held_out, documents = len(corpus.held_out(0.5)), len(corpus.of_token)
    counters = made.counters
    assert counters["documents-in"] == 2 * documents
    assert counters["documents-dropped-held-out"] == 2 * held_out
    assert counters["documents-kept"] == 2 * (documents - held_out)
    assert counters["held-out-documents-in"] == counters["held-out-documents-kept"] == held_out
    for part, prefix in (("training", ""), ("held-out", "held-out-")):
        entries = [entry for entry in made.files if entry.statistics["part"] == part]
        rows = list(rows_of(entries, tmp_path / "one", part=part))
        tokens = sum(len(row["input_ids"]) for row in rows)
        assert counters[f"{prefix}instances"] == len(rows) == sum(e.rows or 0 for e in entries)
        assert counters[f"{prefix}tokens"] == tokens
        assert tokens == sum(int(entry.statistics["tokens"]) for entry in entries)
        labels = [row["next_sentence_label"] for row in rows]
        assert counters[f"{prefix}random-next"] == sum(labels)
    statistics = made.statistics
    assert statistics["held_out_instances"] == counters["held-out-instances"]
    fill = counters["tokens"] / (counters["instances"] * 64)
    assert statistics["mean_fill"] == pytest.approx(fill, abs=1e-6)
    again = corpus.build(config, tmp_path / "two", workers=2)
    assert {e.path: e.sha256 for e in again.files} == {e.path: e.sha256 for e in made.files}
    assert (again.counters, again.statistics) == (made.counters, made.statistics)


@pytest.mark.parametrize("part", ["training", "held-out"])
def test_a_corpus_that_is_all_one_part(tmp_path: Path, part: str) -> None:
    ids = names_of(part, 30)
    corpus = Corpus(tmp_path / "tokens", [ids[:20], ids[20:]])
    made = corpus.build(InstancesConfig(held_out_fraction=0.5), tmp_path / "out")
    rows: dict[object, list[int]] = {"training": [], "held-out": []}
    for entry in made.files:
        rows[entry.statistics["part"]].append(entry.rows or 0)
    assert len(rows["training"]) == 2  # written even if they are empty
    assert made.statistics["held_out_instances"] == sum(rows["held-out"])
    if part == "training":
        assert rows["held-out"] == []
        assert made.counters["documents-kept"] == 30
    else:
        assert rows["training"] == [0, 0]
        assert made.counters["documents-dropped-held-out"] == 30
        assert made.counters["held-out-instances"] > 30
        assert made.counters["held-out-random-next"] > 10
        assert made.statistics["mean_fill"] == 0.0


def test_a_document_held_out_alone_is_followed_by_its_own_text(tmp_path: Path) -> None:
    ids = [*names_of("training", 20), *names_of("held-out", 1)]
    corpus = Corpus(tmp_path, [ids[:10], ids[10:]])
    config = InstancesConfig(max_seq_length=64, held_out_fraction=0.5, masking=UNMASKED)
    entries = entries_of(corpus.work(config, tmp_path / "out"))
    rows = list(rows_of(entries, tmp_path / "out", part="held-out"))
    assert len(rows) > 1
    for row in rows:
        assert row["next_sentence_label"] == 0
        assert (row["segment_b_shard"], row["segment_b_row"]) == (1, 10)


def test_documents_without_tokens_are_counted_in_their_part(tmp_path: Path) -> None:
    """And a held-out file may hold no instance."""
    corpus = Corpus(tmp_path, [names_of("training", 5), names_of("held-out", 1)])
    entry = corpus.tokens.files[1]
    with ShardWriter(entry.path, schema=corpus.schema, output=str(tmp_path)) as shard:
        row = {"document_id": corpus.ids[1][0], "token_ids": [], "sentence_lengths": []}
        shard.write(pa.RecordBatch.from_pylist([row], schema=corpus.schema))
    files = (corpus.tokens.files[0], shard.entry())
    corpus.tokens = corpus.tokens.model_copy(update={"files": files})
    reports = corpus.work(InstancesConfig(held_out_fraction=0.5), tmp_path / "out")
    counters = sum_counters(reports)
    assert counters["held-out-documents-in"] == 1
    assert counters["held-out-documents-dropped-no-token"] == 1
    check_balance(counters, "held-out-documents", where="test")
    check_balance(counters, "documents", where="test")
    assert [(e.path, e.rows) for e in entries_of(reports)][-1] == (
        "__held-out__/held-out-00001.arrow",
        0,
    )


@pytest.mark.parametrize(
    ("shards", "share", "sizes"),
    [
        (3, 0.5, [3]),
        (256, 0.005, [256]),
        (257, 0.005, [128, 129]),  # no item has few documents only
        (700, 0.005, [233, 233, 234]),
        (40, 0.5, [10, 10, 10, 10]),  # at most 128 MiB in memory
        (3, 0.0, []),
    ],
)
def test_held_out_documents_of_many_shards_are_few_items(
    shards: int, share: float, sizes: list[int]
) -> None:
    entries = tuple(
        FileEntry(path=f"{n}", stored_name=f"{n}", size_bytes=25 << 20, sha256=f"{n:064x}", rows=9)
        for n in range(shards)
    )
    tokens = StageInput(name="tokens", artifact_id="t", data="x", files=entries)
    items = plan(InstancesConfig(held_out_fraction=share, dupe_factor=2), tokens)
    groups = [item.own for item in items if item.part == HELD_OUT]
    assert [len(group) for group in groups] == sizes
    numbers = [shard.number for group in groups for shard in group]
    assert numbers == list(range(shards if sizes else 0))
    assert [item.number for item in items] == list(range(2 * shards + len(sizes)))


def built_of(folder: Path, ids: list[str], *, sentences: int = 12, **options: Any) -> StageOutput:
    """The stage on one shard."""
    corpus = Corpus(folder / "tokens", [ids], sentences=sentences, batches=1)
    return corpus.build(InstancesConfig(max_seq_length=64, **options), folder / "out")


def notes_on(output: StageOutput, topic: str) -> list[str]:
    return [note for note in output.notes if note.startswith(topic)]


@pytest.mark.parametrize(
    ("training", "held_out", "fraction", "has_note"),
    [
        (40, 0, 0.5, True),  # none is held out
        (60, 1, 0.5, True),
        (10, 4, 0.5, True),  # too few documents for any fraction
        (60, 40, 0.5, False),
        (60, 1, 0.0, False),  # not wanted
    ],
)
def test_small_held_out_sets_are_noted(
    tmp_path: Path, training: int, held_out: int, fraction: float, has_note: bool
) -> None:
    ids = [*names_of("training", training), *names_of("held-out", held_out)]
    output = built_of(tmp_path / "corpus", ids, held_out_fraction=fraction)
    assert len(notes_on(output, "held out")) == has_note


@pytest.mark.parametrize(
    ("documents", "options", "has_note"),
    [
        (1, {}, True),
        (2, {}, False),
        (9, {"random_next_prob": 0.0}, True),
        (9, {"random_next_prob": 1.0}, True),
        (1, {"pairing": "none"}, False),
    ],
)
def test_constant_labels_are_noted_with_a_remedy(
    tmp_path: Path, documents: int, options: dict[str, Any], has_note: bool
) -> None:
    ids = [f"book/{number}" for number in range(documents)]
    output = built_of(tmp_path / "corpus", ids, sentences=40, held_out_fraction=0.0, **options)
    notes = notes_on(output, "next sentence prediction is constant")
    assert len(notes) == has_note
    assert all("pairing" in note for note in notes)


def test_passes_over_a_shard_fetch_it_once_and_change_no_byte(
    tmp_path: Path, counted: type[CountedFiles]
) -> None:
    shards, others, passes = 12, 2, 5
    corpus = Corpus(tmp_path / "tokens", names(*[40] * shards), batches=1)
    size = max(entry.size_bytes for entry in corpus.tokens.files)
    config = InstancesConfig(
        max_seq_length=64,
        held_out_fraction=0.2,
        dupe_factor=passes,
        negative_pool_bytes=others * size,
    )
    here = {e.path: e.sha256 for r in corpus.work(config, tmp_path / "a") for e in r.files}
    corpus.tokens = corpus.tokens.model_copy(update={"data": f"counted://{tmp_path}/tokens"})
    there = {e.path: e.sha256 for r in corpus.work(config, tmp_path / "b") for e in r.files}
    assert there == here
    planned = plan(config, corpus.tokens)
    pools = {item.pool[0]: len(item.pool) for item in planned if item.part == TRAINING}
    assert all(pool >= 1 + others for pool in pools.values())
    # Each shard with its pool for all passes, and all shards again for their held-out documents.
    fetches = counted.fetched.total()
    assert fetches <= sum(pools.values()) + shards
    assert fetches < passes * sum(pools.values()) / 2
