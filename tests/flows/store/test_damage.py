"""One flipped bit anywhere in a store is found by `verify`, and nothing is made from it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.cli_runner import Cli
from support.corpus_builder import as_input, run_corpus, small_recipe, small_sample
from support.report_builder import corpus_run
from support.store_builder import add_cards, describe, prepared, published

from flows.cards.cards import has_card
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.leases import LeaseHolder, lease_path
from flows.store.pointers import key_path, pointer_to
from flows.store.record_checks import check_records, find_missing_items
from flows.store.verification import verify
from model.finetune import finetune
from model.pretrain import pretrain
from model.training.artifact_files import write_file
from pipelines.build_instances import build_instances
from pipelines.build_tokens import build_tokens
from pipelines.build_vocabulary import build_vocabulary
from pipelines.documents.duplicates_table import DUPLICATES_FILE, rows_by_shard
from pipelines.io.stage_inputs import check_files, input_file
from pipelines.wordpiece.vocab_files import VOCAB_FILE
from schemas.checksummed import dump_json, dump_line, load_json
from schemas.errors import ArtifactCorruptError, DeterminismError
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import TrialConfig
from schemas.manifest import Manifest, StageInput, StageOutput
from schemas.model_configs import BudgetConfig, PretrainConfig
from schemas.recipe import Recipe


def flip(path: Path, position: int, bit: int) -> bytes:
    """Flip one bit of a file; the file as it was."""
    before = path.read_bytes()
    data = bytearray(before)
    data[position] ^= 1 << bit
    path.write_bytes(data)
    return before


# One bit anywhere


def _kind(path: str) -> str:
    """Files of one kind have one folder in the store and one end of their names."""
    parts = path.split("/")
    end = parts[-1].rpartition(".")[2]
    if parts[0] == "artifacts":
        name = re.sub(r"[-_]?[0-9a-f]{12}(?=\.)|\d", "", parts[-1])
        return "manifest" if parts[3:] == ["manifest.json"] else f"{parts[1]} {name}"
    if parts[0] == "runs":
        return f"runs {re.sub('[0-9a-f]{32}', '', parts[-1])}"
    deeper = "conflicts" if "conflicts" in parts else "figures" if "figures" in parts else ""
    return " ".join(part for part in (parts[0], deeper, end) if part)


_FILES = {
    "pretrain": ("config.json", "model.safetensors", "timing.jsonl", "curves.png"),
    "build-examples": ("train.arrow", "dev.arrow"),
    "finetune": ("model.safetensors", "predictions-dev.jsonl"),
    "evaluate": ("predictions-test.jsonl", "metrics.json"),
    "tabulate": ("tables.md", "results.json"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    """A store with every kind of file that runs leave, of every stage."""
    store, record = corpus_run(tmp_path_factory.mktemp("whole"))
    steps = {step.label: step.manifest for step in record.steps}
    tokens = store.read_manifest(steps["build-tokens"])
    for stage, names in _FILES.items():
        attempt = store.begin(stage)
        files = [
            write_file(name, [bytes(range(256))], output=attempt.output, is_record="timing" in name)
            for name in names
        ]
        spec = {"stage": stage}
        store.commit(describe(attempt, files, stage=stage, spec=spec))
    store.pin(tokens, reason="a test")
    parts = {"build-tokens": tokens.path}
    pointer = pointer_to(tokens).model_copy(update={"parts": parts})
    for name in ("corpus/test/1", "corpus/test/latest"):
        store.swap_ref(name, pointer, expected=None)
    loser = prepared(store, "other", spec={"seed": 8})
    published(store, "one", spec={"seed": 8})
    with pytest.raises(DeterminismError):
        store.commit(loser)
    gone = published(store, "gone", spec={"seed": 9})
    [pointer] = [item for item in store.pointers() if item.artifact_id == gone.artifact_id]
    store.quarantine(pointer.path, expected=pointer.to_json(), reason="a test")
    store.backend.replace("tombstones/y.json", pointer.to_json())
    holder = LeaseHolder(
        holder="r", host="h", system="s", pid=1, process_start=0.0, expires_at=0.0, token="t"
    )
    add_cards(store)
    store.backend.replace(lease_path("build-tokens", "0" * 64), dump_json(holder.model_dump()))
    return store


def _flips(store: ArtifactStore, each: int) -> Iterator[tuple[str, Path, int, int]]:
    """`each` places in a file of each kind, drawn from the kind's name."""
    kinds: dict[str, str] = {}
    root = Path(store.root)
    there = {pointer.manifest.rpartition("/")[0] for pointer in store.pointers()}
    for path in sorted(item for item in root.rglob("*") if item.is_file() and item.stat().st_size):
        name = path.relative_to(root).as_posix()
        # What was withdrawn, or lost a race, does not exist for readers.
        if not name.startswith("artifacts/") or "/".join(name.split("/")[:3]) in there:
            kinds.setdefault(_kind(name), path.as_posix())
    for kind, name in sorted(kinds.items()):
        path = Path(name)
        for number in range(each):
            drawn = hashlib.blake2b(f"{kind} {number}".encode(), digest_size=8).digest()
            position = int.from_bytes(drawn, "big")
            yield kind, path, position // 8 % path.stat().st_size, position % 8


@pytest.mark.slow
def test_verify_finds_every_flipped_bit(
    whole: ArtifactStore, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(capsys)
    sound = cli("verify", "--store", whole.root)
    assert (sound.code, "CORRUPT" in sound.out) == (0, False), sound
    flips = list(_flips(whole, 2))
    kinds = {kind for kind, *_ in flips}
    folders = {"keys", "refs", "pins", "runs", "reports", "pieces", "quarantine", "leases"}
    assert folders <= {kind.split()[0] for kind in kinds}, kinds
    assert "pieces blobs" in kinds
    assert len(flips) >= 60
    missed = []
    for kind, path, position, bit in flips:
        before = flip(path, position, bit)
        try:
            if cli("verify", "--store", whole.root, "--no-quarantine").code != 1:
                missed.append(f"{kind}: bit {bit} of byte {position}")
        finally:
            path.write_bytes(before)
    assert missed == []
    assert cli("verify", "--store", whole.root).code == 0


_UNNOTICED = {
    "leases json",
    "pins json",
    "quarantine json",
    "quarantine conflicts json",
    "tombstones json",
    "reports json",
    "reports figures json",
}
"""Kinds of files whose deletion loses nothing but what they say themselves."""


@pytest.mark.slow
def test_verify_finds_every_deleted_file(whole: ArtifactStore) -> None:
    outcomes: dict[str, str] = {}
    for kind, path, *_ in _flips(whole, 1):
        if path.name == "FORMAT.json" or ".locks" in path.parts:
            continue
        before = path.read_bytes()
        path.unlink()
        try:
            outcomes[kind] = _outcome(whole)
        finally:
            path.write_bytes(before)
    vocabulary = {kind for kind in outcomes if kind.startswith("pieces")}
    assert {kind for kind, outcome in outcomes.items() if not outcome} <= _UNNOTICED | vocabulary
    kinds = {kind.split()[0] for kind, outcome in outcomes.items() if outcome == "error"}
    assert {"keys", "refs", "runs", "reports", "manifest", "build-tokens"} <= kinds, outcomes
    assert outcomes["build-documents README.md"] == "error"
    assert _outcome(whole) == ""


def _outcome(store: ArtifactStore) -> str:
    """Return what verification reports: an error, a note, or nothing."""
    results = verify(store, list(store.pointers()), deep=False)
    problems = check_records(store, has_card=has_card)
    if store.corrupt_pointers() or problems or not all(item.is_ok for item in results):
        return "error"
    return "note" if any(find_missing_items(store)) else ""


def test_every_byte_of_a_record_counts() -> None:
    record = {"id": "a", "n": 1.5, "nested": {"list": [1, "é"]}, "sha": "x"}
    stored, line = dump_json(record), dump_line(json.dumps(record)).encode()
    for data in (stored, line):
        assert load_json(data) == record
        for position in range(len(data)):
            for bit in range(8):
                changed = bytearray(data)
                changed[position] ^= 1 << bit
                with pytest.raises(ValueError):  # noqa: PT011 - one of many texts
                    load_json(bytes(changed))


def test_a_record_without_a_digest_is_damage_where_all_have_one(tmp_path: Path) -> None:
    store = ArtifactStore(str(tmp_path / "store"))
    store.backend.replace("runs/r/run.json", b'{"run_id": "r"}\n')
    (problem,) = check_records(store)
    assert problem.path == "runs/r/run.json"


# Records of pieces


class _Corpus(NamedTuple):
    recipe: Recipe
    root: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> _Corpus:
    """A store in which the four corpus stages ran."""
    folder = tmp_path_factory.mktemp("built")
    root = folder / "store"
    recipe = small_recipe(small_sample(folder / "sample")).model_copy(update={"store": str(root)})
    run_recipe(recipe, log=lambda _: None, engine="local")
    return _Corpus(recipe, root)


@pytest.fixture
def corpus(built: _Corpus, tmp_path: Path) -> _Corpus:
    """A copy of it."""
    root = tmp_path / "store"
    shutil.copytree(built.root, root)
    return _Corpus(built.recipe.model_copy(update={"store": str(root)}), root)


def _run(corpus: _Corpus) -> dict[str, Manifest]:
    results = run_recipe(corpus.recipe, log=lambda _: None, engine="local")
    return {result.label: result.manifest for result in results}


def _held(manifests: Mapping[str, Manifest]) -> dict[str, Any]:
    return {
        label: (manifest.content, manifest.logical_content, manifest.counters, manifest.statistics)
        for label, manifest in manifests.items()
    }


def test_a_damaged_record_of_a_piece_publishes_no_false_count(corpus: _Corpus) -> None:
    """One bit in a digit of every record: they used to be believed, and the run said 100 %."""
    first = _run(corpus)
    records = sorted((corpus.root / "pieces").rglob("*.json"))
    assert len(records) > 10
    for path in records:
        found = re.search(rb'"(?!version)[a-z-]+": (\d)', path.read_bytes())
        flip(path, found.start(1) if found else 40, 0)  # one of an empty shard counts nothing
    shutil.rmtree(corpus.root / "keys")
    again = _run(corpus)
    assert _held(again) == _held(first)
    reused = [manifest.produced_by.reuse for manifest in again.values()]
    assert [reuse.pieces_reused for reuse in reused if reuse] == [0] * len(again)


def test_withdrawing_an_artifact_takes_the_records_that_it_came_from(
    corpus: _Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record that was written wrongly, and carries the digest of what was written."""
    first = _run(corpus)
    for path in (corpus.root / "pieces" / "build-tokens").rglob("*.json"):
        value = load_json(path.read_bytes())
        value["files"][0]["logical"] = "0" * 32
        path.write_bytes(dump_json(value))
    shutil.rmtree(corpus.root / "keys" / "build-tokens")
    wrong = _run(corpus)
    assert wrong["build-tokens"].logical_content != first["build-tokens"].logical_content
    cli = Cli(capsys)
    assert cli("verify", "--store", str(corpus.root)).code == 0  # the bytes are what they say
    said = cli("verify", "--store", str(corpus.root), "--rows")
    assert said.code == 1
    assert "quarantined" in said.err
    assert not list((corpus.root / "pieces" / "build-tokens").rglob("*.json"))
    right = _run(corpus)
    assert _held(right) == _held(first)
    assert cli("verify", "--store", str(corpus.root), "--rows").code == 0


def test_damaged_bytes_take_the_records_of_their_piece_alone(
    corpus: _Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    first = _run(corpus)
    tokens = first["build-tokens"]
    flip(corpus.root / tokens.data / tokens.files[0].object, 300, 3)
    assert Cli(capsys)("verify", "--store", str(corpus.root)).code == 1
    again = _run(corpus)
    assert _held(again) == _held(first)
    reuse = again["build-tokens"].produced_by.reuse
    assert reuse is not None
    assert reuse.pieces_reused == reuse.pieces - 1


# Damaged inputs


def test_nothing_is_made_from_a_damaged_shard(
    corpus: _Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    """Token ids are changed on disk."""
    first = _run(corpus)
    tokens = first["build-tokens"]
    path = corpus.root / tokens.data / tokens.files[0].object
    data = bytearray(path.read_bytes())
    data[512:552] = bytes(byte ^ 1 for byte in data[512:552])
    path.write_bytes(data)
    shutil.rmtree(corpus.root / "keys" / "build-instances")
    shutil.rmtree(corpus.root / "pieces" / "build-instances")
    with pytest.raises(ArtifactCorruptError, match="run `bertloom verify`") as caught:
        _run(corpus)
    text = str(caught.value)
    for wanted in (tokens.artifact_id, tokens.files[0].path, tokens.files[0].sha256):
        assert wanted in text
    assert hashlib.sha256(data).hexdigest() in text
    assert not (corpus.root / "keys" / "build-instances").exists()
    assert Cli(capsys)("verify", "--store", str(corpus.root)).code == 1
    assert _held(_run(corpus)) == _held(first)


class _Stages(NamedTuple):
    recipe: Recipe
    outputs: dict[str, StageOutput]
    folder: Path


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> _Stages:
    folder = tmp_path_factory.mktemp("stages")
    recipe = small_recipe(small_sample(folder / "sample"))
    return _Stages(recipe, run_corpus(recipe, folder / "out"), folder / "out")


def _given(stages: _Stages) -> dict[str, StageInput]:
    return {
        name: as_input(name, stages.outputs[f"build-{name}"], str(stages.folder / f"build-{name}"))
        for name in ("documents", "vocabulary", "tokens")
    }


@pytest.mark.parametrize(
    ("stage", "name", "path", "position"),
    [
        ("vocabulary", "documents", "part-00000-000.arrow", 0),
        ("vocabulary", "documents", "part-00001-000.arrow", -1),
        ("vocabulary", "documents", DUPLICATES_FILE, 200),
        ("tokens", "documents", "part-00001-000.arrow", 3),
        ("tokens", "documents", DUPLICATES_FILE, -3),
        ("tokens", "vocabulary", VOCAB_FILE, 2000),
        ("instances", "tokens", "part-00002.arrow", 0),
        ("instances", "tokens", "part-00001.arrow", 900),
        ("instances", "vocabulary", VOCAB_FILE, 9),
    ],
)
def test_a_stage_reads_no_damaged_input(
    stages: _Stages, tmp_path: Path, stage: str, name: str, path: str, position: int
) -> None:
    """Whatever part of the file the stage has a use for."""
    given = _given(stages)
    entry = next(entry for entry in given[name].files if entry.path == path)
    file = Path(given[name].data, entry.object)
    config: Any = (
        next(iter(stages.recipe.build_instances.values()))
        if stage == "instances"
        else getattr(stages.recipe, f"build_{stage}")
    )
    build: Any = {
        "vocabulary": build_vocabulary,
        "tokens": build_tokens,
        "instances": build_instances,
    }[stage]
    before = flip(file, position, 2)
    rows_by_shard.cache_clear()  # of what the stage before read in this process
    try:
        with pytest.raises(ArtifactCorruptError, match="is damaged: expected") as caught:
            build(config, inputs=given, output=str(tmp_path), execution=ExecutionConfig())
    finally:
        file.write_bytes(before)
    for wanted in (path, f"{name} {given[name].artifact_id}", entry.sha256):
        assert wanted in str(caught.value)


def _checkpoint(folder: Path) -> StageInput:
    store = ArtifactStore(str(folder))
    attempt = store.begin("pretrain")
    names = ("config.json", "model.safetensors", "optimizer.safetensors", "vocab.txt")
    files = [write_file(name, [name.encode() * 20], output=attempt.output) for name in names]
    files.append(write_file("timing.jsonl", [b"{}"], output=attempt.output, is_record=True))
    return StageInput(
        name="checkpoint", artifact_id="c" * 16, data=attempt.output, files=tuple(files)
    )


def test_training_starts_from_no_damaged_checkpoint(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path / "store")
    check_files(checkpoint)
    path = Path(checkpoint.data, "model.safetensors")
    before = flip(path, 100, 5)
    examples = StageInput(
        name="examples",
        artifact_id="e" * 16,
        data=checkpoint.data,
        files=(),
        statistics={"task": "cola"},
    )
    given = {"checkpoint": checkpoint, "examples": examples, "instances": examples}
    how: dict[str, Any] = {
        "output": str(tmp_path / "out"),
        "execution": ExecutionConfig(),
        "work": str(tmp_path / "work"),
    }
    cell = TrialConfig(
        examples="x", init_from_phase="phase", batch_size=2, learning_rate=1e-3, num_epochs=1
    )
    with pytest.raises(ArtifactCorruptError, match=r"model\.safetensors of checkpoint c+ is"):
        finetune(cell, inputs=given, **how)
    phase = PretrainConfig(instances="x", init_from_phase="phase", budget=BudgetConfig(max_steps=1))
    with pytest.raises(ArtifactCorruptError, match=r"model\.safetensors of checkpoint c+ is"):
        pretrain(phase, inputs={**given, "vocabulary": examples}, **how)
    path.write_bytes(before)
    optimizer = Path(checkpoint.data, "optimizer.safetensors")
    optimizer.unlink()
    check_files(checkpoint, without=("optimizer.safetensors",))
    with pytest.raises(ArtifactCorruptError, match="no such file"):
        check_files(checkpoint)
    with pytest.raises(ArtifactCorruptError, match="expected a file tokenizer"):
        input_file(checkpoint, "tokenizer.json")


def test_a_damaged_pointer_is_no_hit(corpus: _Corpus) -> None:
    first = _run(corpus)
    manifest = first["build-tokens"]
    path = corpus.root / key_path(manifest.stage, manifest.cache_key)
    flip(path, path.read_bytes().index(manifest.content.encode()) + 10, 0)
    assert _held(_run(corpus)) == _held(first)
