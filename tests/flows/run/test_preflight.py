"""Files that a recipe names are checked before a run starts, and by `plan`."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
import yaml
from support.cli_runner import Cli
from support.finetuning_builder import VOCAB, write_checkpoint

from flows.run.graph import Step
from flows.run.preflight import check_checkpoint, check_examples, check_inputs
from model import pretrain
from pipelines import build_vocabulary
from pipelines.io import raw_files
from pipelines.wordpiece.tokenizer import tokenizer_json
from pipelines.wordpiece.vocab_files import (
    FIXED_TOKENS,
    TOKENIZER_FILE,
    VOCAB_FILE,
    vocab_text,
)
from schemas.corpus_configs import VocabularyConfig
from schemas.errors import ConfigError, InputError, NetworkError, VocabularyError
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
    return Step("build-vocabulary", build_vocabulary.STAGE, config, {})


def test_preflight_accepts_vocabulary(folder: str) -> None:
    check_inputs([vocabulary_step(write(f"{folder}/vocab.txt", WHOLE))])


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_preflight_refuses_file_that_is_no_vocabulary(folder: str, text: str) -> None:
    path = write(f"{folder}/vocab.txt", text)
    with pytest.raises(VocabularyError, match=path):
        check_inputs([vocabulary_step(path)])


@pytest.mark.parametrize("name", ["", "/gone.txt", "/vocab.txt/below"])
def test_preflight_refuses_path_that_is_no_file(folder: str, name: str) -> None:
    write(f"{folder}/vocab.txt", WHOLE)
    with pytest.raises(VocabularyError, match=folder):
        check_inputs([vocabulary_step(folder + name)])


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json"])
def test_preflight_refuses_vocabulary_when_protocol_is_unknown(name: str) -> None:
    with pytest.raises(InputError, match="no-such-protocol://folder/"):
        check_inputs([vocabulary_step(f"no-such-protocol://folder/{name}")])


def test_preflight_refuses_vocabulary_of_another_case(folder: str) -> None:
    text = tokenizer_json([*FIXED_TOKENS, "a", "##b"], lowercase=False)
    with pytest.raises(VocabularyError):
        check_inputs([vocabulary_step(write(f"{folder}/tokenizer.json", text))])


def write_recipe(folder: Path, *, vocab_file: str) -> str:
    (folder / "books").mkdir()
    (folder / "books" / "one.txt").write_text("A sentence of a book. And one more of them.\n")
    recipe = {
        "name": "given-vocabulary",
        "store": "store",
        "build_documents": {"sources": [{"kind": "text", "name": "t", "paths": ["books"]}]},
        "build_vocabulary": {"vocab_file": vocab_file},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return str(folder / "recipe.yaml")


@pytest.mark.parametrize("vocab_file", ["gone.txt", "books", "books/one.txt"])
def test_run_and_plan_refuse_wrong_vocabulary_before_first_step(
    cli: Cli, tmp_path: Path, vocab_file: str
) -> None:
    recipe = write_recipe(tmp_path, vocab_file=vocab_file)
    for command in (("plan", recipe), ("run", recipe, "--engine", "local")):
        result = cli(*command)
        assert result.code == 1
        assert str(tmp_path / vocab_file) in result.err
    assert not list((tmp_path / "store").glob("**/manifest*.json"))


def test_run_accepts_wrong_vocabulary_when_its_step_is_not_run(cli: Cli, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, vocab_file="gone.txt")
    result = cli("run", recipe, "--engine", "local", "--until", "build-documents")
    assert result.code == 0, result.err


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_preflight_refuses_checkpoint_with_wrong_vocabulary(tmp_path: Path, text: str) -> None:
    folder = write_checkpoint(tmp_path / "bert")
    Path(folder, VOCAB_FILE).write_text(text)
    error = check_checkpoint(folder, needs_vocabulary=True)
    assert isinstance(error, VocabularyError)
    assert check_checkpoint(folder, needs_vocabulary=False) is None


def test_preflight_refuses_tokenizer_with_other_rules(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "bert")
    Path(folder, VOCAB_FILE).unlink()
    described = json.loads(tokenizer_json(VOCAB, lowercase=True))
    Path(folder, TOKENIZER_FILE).write_text(json.dumps(described))
    assert check_checkpoint(folder, needs_vocabulary=True) is None
    described["normalizer"]["strip_accents"] = False
    Path(folder, TOKENIZER_FILE).write_text(json.dumps(described))
    assert isinstance(check_checkpoint(folder, needs_vocabulary=True), VocabularyError)


def examples_recipe(folder: Path, *, train: str) -> str:
    """Write a recipe that builds a corpus and the examples of one task."""
    (folder / "train.tsv").write_text(train)
    (folder / "dev.tsv").write_text("sentence\tlabel\na b\t0\nc d\t1\n")
    recipe = Path(write_recipe(folder, vocab_file=write(f"{folder}/vocab.txt", WHOLE)))
    content = yaml.safe_load(recipe.read_text())
    content["build_examples"] = {"task": {"task": "single-sentence", "data_dir": "."}}
    content["finetune"] = {
        "task": {"examples": "task", "init_checkpoint": write_checkpoint(folder / "bert")}
    }
    recipe.write_text(yaml.safe_dump(content))
    return str(recipe)


@pytest.mark.parametrize("train", ["", "review\tstars\na b\t0\n", "{}", "PAR1"])
def test_run_and_plan_refuse_wrong_task_file_before_first_step(
    cli: Cli, tmp_path: Path, train: str
) -> None:
    recipe = examples_recipe(tmp_path, train=train)
    for command in (("plan", recipe), ("run", recipe, "--engine", "local")):
        result = cli(*command)
        assert result.code == 1
        assert str(tmp_path / "train.tsv") in result.err
    assert not list((tmp_path / "store").glob("**/manifest*.json"))


def test_plan_accepts_right_task_files(cli: Cli, tmp_path: Path) -> None:
    recipe = examples_recipe(tmp_path, train="sentence\tlabel\na b\t0\nc d\t1\n")
    result = cli("plan", recipe)
    assert result.code == 0, result.err


@pytest.mark.network
@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json"])
def test_preflight_reports_network_error_of_vocabulary(closed_server: str, name: str) -> None:
    with pytest.raises(NetworkError) as raised:
        check_inputs([vocabulary_step(f"{closed_server}/{name}")])
    assert raised.value.file == f"{closed_server}/{name}"


@pytest.mark.network
def test_preflight_reports_network_error_of_task_folder(closed_server: str) -> None:
    error = check_examples(ExamplesConfig(task="cola", data_dir=f"{closed_server}/cola"))
    assert isinstance(error, NetworkError)
    assert error.file == f"{closed_server}/cola"


def test_preflight_refuses_to_compile_without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    config = PretrainConfig.model_validate(
        {
            "instances": "length-128",
            "model": {"preset": "tiny"},
            "budget": {"max_steps": 1},
            "compile": True,
        }
    )
    step = Step("pretrain", pretrain.STAGE, config, {})
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
