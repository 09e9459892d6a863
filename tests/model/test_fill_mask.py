"""Mask filling equals transformers' pipeline; errors."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file, save_file
from support.cli_runner import Cli
from support.finetuning_builder import (
    VOCAB,
    sentiment,
    trial_config,
    trial_job,
    write_checkpoint,
    write_tuned,
)

import bertloom
from flows.store.artifacts import ArtifactStore
from model.finetuning.setup import open_trial
from pipelines.wordpiece.tokenizer import tokenizer_json
from schemas.errors import CheckpointError

TEXTS = ["The good [MASK] was a [MASK] one.", "[MASK] film"]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model as pretraining leaves it, with random weights."""
    folder = tmp_path_factory.mktemp("pretrained") / "bert"
    write_checkpoint(folder, initializer_range=0.5)
    (folder / "tokenizer.json").write_text(tokenizer_json(VOCAB, lowercase=True))
    return str(folder)


def test_it_is_transformers_pipeline(pretrained: str) -> None:
    from transformers import pipeline

    theirs = pipeline("fill-mask", model=pretrained, tokenizer=pretrained, top_k=7)
    ours = bertloom.fill(TEXTS, model=pretrained, top_k=7)
    for text, result in zip(TEXTS, ours, strict=True):
        said = theirs(text)
        masks = said if isinstance(said[0], list) else [said]
        assert len(masks) == len(result.masks) == text.count("[MASK]")
        for mask, candidates in zip(masks, result.masks, strict=True):
            assert [each.token_id for each in candidates] == [each["token"] for each in mask]
            expected = [each["score"] for each in mask]
            assert [each.probability for each in candidates] == pytest.approx(expected, rel=1e-4)


def test_the_command_answers_a_line_for_each_text(
    cli: Cli, pretrained: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "".join(f"{text}\n" for text in TEXTS).encode()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(lines)))
    said = cli("fill", "--model", pretrained, "--json", "-k", "2")
    result = [json.loads(line) for line in said.out.splitlines()]
    assert [one["text"] for one in result] == TEXTS
    first = result[0]["masks"][0][0]["token"].removeprefix("##")
    assert first in result[0]["filled"]
    assert "[MASK]" not in result[0]["filled"]
    # Text is lower-cased by the vocabulary's rule, as a tokenizer does.
    one, other = (cli("fill", f"{w} [MASK]", "--model", pretrained) for w in ("Good", "good"))
    assert one.out.splitlines()[1] == other.out.splitlines()[1]


def test_what_cannot_be_filled_is_said(cli: Cli, pretrained: str, tmp_path: Path) -> None:
    tuned = write_tuned(tmp_path / "sst-2", task="sst-2")
    for text, model, message in (
        ("no mask at all", pretrained, "at least one [MASK]"),
        ("[MASK] " + "good " * 600, pretrained, "at most 64 tokens"),
        ("[MASK]", tuned, "bertloom predict"),
        ("[MASK]", "nowhere", "nowhere"),
    ):
        said = cli("fill", text, "--model", model, "--store", str(tmp_path / "none"))
        assert said.code == 1
        assert message in said.err
    empty = ArtifactStore(str(tmp_path / "store")).root
    assert "quickstart" in cli("fill", "[MASK]", "--store", empty).err


def test_fill_refuses_outputs_that_are_not_finite(cli: Cli, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "bert")
    path = Path(folder, "model.safetensors")
    tensors = load_file(path)
    for name in ("cls.predictions.transform.dense.weight", "cls.predictions.decoder.bias"):
        if name in tensors:
            tensors[name] *= 1e38
    tensors["cls.predictions.bias"] += 3e38
    tensors["cls.predictions.transform.LayerNorm.weight"] *= 3e38
    save_file(tensors, path, metadata={"format": "pt"})
    answer = cli("fill", "good [MASK]", "--model", folder)
    assert answer.code == 1
    assert "finite" in answer.err
    assert not answer.out


def test_weights_that_are_not_finite_are_refused(cli: Cli, tmp_path: Path) -> None:
    """Every command that loads a checkpoint fails instead of answering with NaN."""
    bert, tuned = write_checkpoint(tmp_path / "bert"), write_tuned(tmp_path / "tuned", task="sst-2")
    name = "bert.encoder.layer.0.intermediate.dense.weight"
    for folder in (bert, tuned):
        path = Path(folder, "model.safetensors")
        tensors = load_file(path)
        tensors[name][0, 0] = float("nan")
        save_file(tensors, path, metadata={"format": "pt"})
    for command in (("fill", "[MASK]", "--model", bert), ("predict", tuned, "good")):
        answer = cli(*command)
        assert answer.code == 1
        assert name in answer.err
        assert not answer.out
    examples = sentiment(tmp_path / "sst", train=4, dev=2)
    with pytest.raises(CheckpointError, match=name):
        open_trial(trial_job(tmp_path / "work", examples, config=trial_config(bert)))
