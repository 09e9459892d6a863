"""Files, disk space and packages are checked, and times estimated, before a run starts."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
import yaml
from support.cli_runner import Cli
from support.finetuning_builder import VOCAB, write_checkpoint

import bertloom
from flows.run import estimates
from flows.run.estimates import format_estimate
from flows.run.graph import Step
from flows.run.plan import PlannedStep
from flows.run.preflight import check_checkpoint, check_inputs
from flows.run.stages import STAGES
from pipelines.io import raw_files
from pipelines.wordpiece.tokenizer import tokenizer_json
from pipelines.wordpiece.vocab_files import (
    FIXED_TOKENS,
    TOKENIZER_FILE,
    VOCAB_FILE,
    vocab_text,
)
from schemas.corpus_configs import VocabularyConfig
from schemas.errors import BertloomError, ConfigError, InputError, NetworkError, VocabularyError
from schemas.finetune_configs import ExamplesConfig
from schemas.model_configs import PretrainConfig

WHOLE = vocab_text([*FIXED_TOKENS, "a", "##b"])
WRONG = {
    "empty": "",
    "no-special-tokens": "a\nb\n",
    "duplicate": vocab_text([*FIXED_TOKENS, "a", "a"]),
    "json": '{"model": {"type": "WordPiece"}}',
}


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path)
        return
    yield "memory://preflight"
    fsspec.filesystem("memory").rm("/preflight", recursive=True)


@pytest.fixture
def closed_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of a port that refuses connections."""
    monkeypatch.setattr(raw_files, "READ_RETRY_DELAYS", ())
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def write(url: str, text: str) -> str:
    with fsspec.open(url, "wb") as stream:
        stream.write(text.encode())
    return url


def vocabulary_step(vocab_file: str) -> Step:
    config = VocabularyConfig(vocab_file=vocab_file)
    return Step("build-vocabulary", STAGES["build-vocabulary"], config, {})


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_preflight_refuses_file_that_is_no_vocabulary(folder: str, text: str) -> None:
    path = write(f"{folder}/vocab.txt", text)
    with pytest.raises(VocabularyError, match=path):
        check_inputs([vocabulary_step(path)])


@pytest.mark.parametrize("name", ["", "/gone.txt", "/vocab.txt/below"])
def test_preflight_refuses_path_that_is_no_file(folder: str, name: str) -> None:
    check_inputs([vocabulary_step(write(f"{folder}/vocab.txt", WHOLE))])
    with pytest.raises(VocabularyError, match=folder):
        check_inputs([vocabulary_step(folder + name)])


@pytest.mark.network
@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json"])
def test_preflight_reports_url_that_cannot_be_read(closed_server: str, name: str) -> None:
    with pytest.raises(InputError, match="no-such-protocol://folder/"):
        check_inputs([vocabulary_step(f"no-such-protocol://folder/{name}")])
    with pytest.raises(NetworkError) as raised:
        check_inputs([vocabulary_step(f"{closed_server}/{name}")])
    assert raised.value.file == f"{closed_server}/{name}"
    examples = ExamplesConfig(task="cola", data_dir=f"{closed_server}/cola")
    with pytest.raises(NetworkError):
        check_inputs([Step("build-examples", STAGES["build-examples"], examples, {})])


def test_preflight_checks_vocabulary_and_tokenizer_of_checkpoint(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "bert")
    Path(folder, VOCAB_FILE).write_text(WRONG["duplicate"])
    with pytest.raises(VocabularyError):
        check_checkpoint(folder, needs_vocabulary=True)
    check_checkpoint(folder, needs_vocabulary=False)
    Path(folder, VOCAB_FILE).unlink()
    described = json.loads(tokenizer_json(VOCAB, lowercase=True))
    Path(folder, TOKENIZER_FILE).write_text(json.dumps(described))
    check_checkpoint(folder, needs_vocabulary=True)
    described["normalizer"]["clean_text"] = False
    Path(folder, TOKENIZER_FILE).write_text(json.dumps(described))
    with pytest.raises(VocabularyError):
        check_checkpoint(folder, needs_vocabulary=True)
    # Its rules also apply next to a vocab.txt.
    Path(folder, VOCAB_FILE).write_text(vocab_text(VOCAB))
    with pytest.raises(VocabularyError):
        check_checkpoint(folder, needs_vocabulary=True)


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    """Return a recipe of a corpus with a vocabulary file, and of the examples of a task."""
    (tmp_path / "one.txt").write_text("A sentence of a book. And one more of them.\n")
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\na b\t0\nc d\t1\n")
    recipe = {
        "name": "checked",
        "store": "store",
        "build_documents": {"sources": [{"kind": "text", "name": "t", "paths": ["one.txt"]}]},
        "build_vocabulary": {"vocab_file": write(f"{tmp_path}/vocab.txt", WHOLE)},
        "build_examples": {"task": {"task": "single-sentence", "data_dir": "."}},
        "finetune": {
            "task": {"examples": "task", "init_checkpoint": write_checkpoint(tmp_path / "bert")}
        },
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return str(tmp_path / "recipe.yaml")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("vocab.txt", "a\nb\n"),
        ("train.tsv", ""),
        ("train.tsv", "review\tstars\na b\t0\n"),
        ("train.tsv", "PAR1"),
    ],
)
def test_run_and_plan_refuse_wrong_file_before_first_step(
    cli: Cli, recipe: str, tmp_path: Path, file: str, text: str
) -> None:
    assert cli("plan", recipe).code == 0
    (tmp_path / file).write_text(text)
    for command in (("plan", recipe), ("run", recipe, "--engine", "local")):
        result = cli(*command)
        assert result.code == 1
        assert str(tmp_path / file) in result.err
    assert not list((tmp_path / "store").glob("**/manifest*.json"))
    assert cli("plan", recipe, "--until", "build-documents").code == 0


@pytest.mark.parametrize("file", ["one.txt", "vocab.txt", "train.tsv", "bert/config.json"])
@pytest.mark.parametrize("start", ["command", "python"])
def test_run_refuses_missing_path_before_first_step(
    cli: Cli, recipe: str, tmp_path: Path, file: str, start: str
) -> None:
    (tmp_path / file).unlink()
    missing = str((tmp_path / file).parent if "/" in file else tmp_path)
    if start == "command":
        result = cli("run", recipe, "--engine", "local")
        assert result.code == 1
        assert missing in result.err
    else:
        with pytest.raises(BertloomError, match=missing):
            bertloom.run(recipe)
    assert not list((tmp_path / "store").glob("**/manifest*.json"))
    assert not list((tmp_path / "store").glob("runs/*"))


def test_preflight_refuses_to_compile_without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    model, budget = {"preset": "tiny"}, {"max_steps": 1}
    config = PretrainConfig(instances="x", model=model, budget=budget, compile=True)
    step = Step("pretrain", STAGES["pretrain"], config, {})
    check_inputs([step])
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ConfigError, match="no-such-compiler"):
        check_inputs([step])


def test_run_without_the_sample_names_the_command_that_writes_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BERTLOOM_SAMPLE", raising=False)
    for command in ("run", "plan"):
        result = cli(command, "sample")
        assert result.code == 1
        assert "bertloom sample runs/sample" in result.err


# Expected time, and a disk that is nearly full


def test_earlier_artifacts_of_store_give_expected_time(cli: Cli, recipe: str) -> None:
    assert bertloom.plan(recipe)[0].expected_seconds is None
    assert cli("run", recipe, "--engine", "local", "--until", "build-documents").code == 0
    planned = bertloom.plan(recipe, rebuild=["build-documents"], until="build-documents")
    store = bertloom.open_store(str(Path(recipe).parent / "store"))
    duration = store.artifact("build-documents").manifest.produced_by.duration_seconds
    assert planned[0].expected_seconds == pytest.approx(duration)


def test_stages_without_earlier_artifacts_are_named() -> None:
    seconds = {"build-tokens": 60.0, "finetune.a.r0": None, "finetune.a.r1": None, "tabulate": None}
    planned = [PlannedStep(label, "build", expected_seconds=s) for label, s in seconds.items()]
    line = format_estimate(planned)
    assert "about 1 min 00 s" in line
    assert "2 finetune, 1 tabulate" in line
    assert format_estimate(planned[1:]) == ""


def test_disk_that_is_nearly_full_is_a_warning(
    cli: Cli, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.disk_usage
    for free in (1_000_000, 10**12):
        monkeypatch.setattr(
            estimates.shutil, "disk_usage", lambda path, free=free: real(path)._replace(free=free)
        )
        options = ("--until", "build-documents", "--rebuild", "all")
        result = cli("run", recipe, "--engine", "local", *options)
        assert result.code == 0
        assert ("warning" in result.err) == (free < 10**9)
