"""Models along pretraining that are kept, and fine-tunings that start from them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.finetuning_builder import sentiment, trial_config, trial_job
from support.training_builder import (
    SmallCorpus,
    as_phase,
    curve_lines,
    published,
    tiny_config,
)

from flows.bert import recipe_steps
from model.bert import BertForPretraining
from model.finetuning.setup import open_trial
from model.pretraining.evaluation import HeldOutEvaluator
from model.pretraining.job import TrainingJob
from model.pretraining.loop import PretrainingTrainer, train
from model.pretraining.publish import publish
from model.pretraining.setup import PretrainingSetup
from model.training.artifact_files import at_snapshot, snapshot_folder, without_snapshots
from model.training.stopping import StopRequest
from schemas.errors import CheckpointError, ConfigError
from schemas.manifest import StageOutput
from schemas.model_configs import PretrainConfig
from schemas.recipe import Recipe

STEPS = (4, 7, 12)

pytestmark = pytest.mark.usefixtures("same_threads")


def contents(output: StageOutput) -> dict[str, str]:
    return {entry.path: entry.sha256 for entry in output.files if not entry.excluded_from_digest}


def test_snapshot_equals_model_of_short_training(small_corpus: SmallCorpus, tmp_path: Path) -> None:
    output = published(small_corpus.job(tmp_path / "whole", snapshot_steps=STEPS))
    files = contents(output)
    folders = {path.rpartition("/")[0] for path in files if "/" in path}
    assert folders == {snapshot_folder(4), snapshot_folder(7)}  # the last is the phase's own
    schedule = {"warmup_ratio": 0.2, "total_budget": 12}
    for step in (4, 7):
        short = published(
            small_corpus.job(tmp_path / str(step), budget={"max_steps": step}, schedule=schedule)
        )
        for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer.json"):
            assert files[f"{snapshot_folder(step)}/{name}"] == contents(short)[name]
        snapshot = output.statistics["snapshots"][str(step)]
        assert snapshot["held_out"] == short.statistics["held_out"]
        assert snapshot["tokens"] == short.counters["tokens"]
    # Snapshots change nothing else.
    plain = published(small_corpus.job(tmp_path / "plain"))
    assert {name: digest for name, digest in files.items() if "/" not in name} == contents(plain)
    assert "snapshots" not in plain.statistics
    lines = curve_lines(tmp_path / "whole")
    assert [line["step"] for line in lines if line["kind"] != "train"] == [4, 7, 12]


def break_after_step(patch: pytest.MonkeyPatch, step: int) -> None:
    """Let training raise MemoryError after an update, before anything of it is saved."""
    on_step_end = PretrainingTrainer.on_step_end

    def break_after_step(self: PretrainingTrainer, *arguments: Any) -> str:
        reason = on_step_end(self, *arguments)
        if self.done.steps == step:
            raise MemoryError
        return reason

    patch.setattr(PretrainingTrainer, "on_step_end", break_after_step)


def published_after_break(job: TrainingJob, step: int) -> dict[str, str]:
    """Return the files of a training that fails after a step and is resumed."""
    with pytest.MonkeyPatch.context() as patch:
        break_after_step(patch, step)
        with pytest.raises(MemoryError):
            train(job, stop=StopRequest())
    return contents(published(job))


def test_resumed_run_has_all_snapshots(small_corpus: SmallCorpus, tmp_path: Path) -> None:
    whole = published(small_corpus.job(tmp_path / "whole", snapshot_steps=STEPS))
    # After a snapshot and before the next checkpoint; after a checkpoint that is later than one.
    for step in (8, 10):
        job = small_corpus.job(tmp_path / str(step), snapshot_steps=STEPS)
        assert published_after_break(job, step) == contents(whole)
    for path in (tmp_path / "10" / "snapshots").glob("step-00000004-*"):
        path.unlink()
    with pytest.raises(CheckpointError, match="step 4"):
        publish(job, output=str(tmp_path / "artifact"), raw_inputs=())


class ScriptedEvaluator:
    """Evaluator that returns the held-out losses of LOSSES."""

    def __init__(self, setup: PretrainingSetup) -> None:
        self._state = setup.state

    def evaluate(self, _model: BertForPretraining, *, is_bf16: bool) -> dict[str, float]:
        del is_bf16
        loss = LOSSES[self._state.done.steps]
        metrics = {"loss": loss, "mlm_loss": loss, "perplexity": loss}
        return {**metrics, "mlm_accuracy": 0.0, "unigram_loss": 6.0}


LOSSES = {3: 5.0, 6: 4.0, 9: 4.5, 12: 4.2}


def test_last_model_is_published_when_an_earlier_one_has_lower_held_out_loss(
    small_corpus: SmallCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldOutEvaluator, "open", ScriptedEvaluator)
    job = small_corpus.job(tmp_path, evaluation={"eval_steps": 3}, checkpoints={})
    output = published(job)
    saved = job.checkpoints().list()
    assert [checkpoint.step for checkpoint in saved] == [12]
    assert output.counters["steps"] == 12
    assert output.statistics["held_out"]["loss"] == LOSSES[12]


def test_finetuning_starts_from_snapshot(small_corpus: SmallCorpus, tmp_path: Path) -> None:
    job = small_corpus.job(tmp_path / "phase", snapshot_steps=STEPS)
    phase = as_phase(job, published(job))
    examples = sentiment(tmp_path / "sst", train=4, dev=2)
    config = trial_config(None, init_from_phase="phase-1", max_seq_length=16)
    embeddings = []
    for start in (at_snapshot(phase, 4), at_snapshot(phase, 7), without_snapshots(phase)):
        weights = load_file(f"{start.data}/model.safetensors")
        opened = open_trial(trial_job(tmp_path / "work", examples, config=config, checkpoint=start))
        embeddings.append(weights["bert.embeddings.word_embeddings.weight"])
        assert torch.equal(opened.model.bert.embeddings.word.weight, embeddings[-1])
        assert not opened.notes  # vocabulary and casing are part of the snapshot
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(embeddings, 2))
    with pytest.raises(ConfigError, match="step 5"):
        at_snapshot(phase, 5)


# Recipes


def recipe(phase: PretrainConfig | None = None, **entries: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "steps",
            "build_documents": {"sources": [{"kind": "books", "name": "b", "paths": ["/none"]}]},
            "build_instances": {"length-32": {"max_seq_length": 32}},
            "pretrain": {"phase-1": (phase or tiny_config(snapshot_steps=STEPS[:2])).model_dump()},
            "build_examples": {"sst": {"task": "sst-2", "data_dir": "/none"}},
            "finetune": {
                name: {"examples": "sst", "max_seq_length": 32, "restarts": 1, **entry}
                for name, entry in entries.items()
            },
        }
    )


def test_steps_without_snapshot_are_refused() -> None:
    with pytest.raises(ValueError, match=r"finetune.a.init_from_step: .*4, 7, 12"):
        recipe(a={"init_from_phase": "phase-1", "init_from_step": 5})
    with pytest.raises(ValueError, match="init_from_step"):
        recipe(a={"init_checkpoint": "x", "init_from_step": 4})
    for wrong in (
        {"snapshot_steps": [3, 13]},
        {"snapshot_steps": [7, 4]},
        {"snapshot_steps": [7], "budget": {"max_tokens": 5}},
    ):
        with pytest.raises(ValueError, match="snapshot_steps"):
            tiny_config(**wrong)


GRID = {"batch_size": 8, "learning_rate": 1e-4, "num_epochs": 1, "init_from_phase": "phase-1"}


def test_snapshot_of_last_step_has_the_cache_key_of_the_phase() -> None:
    entries = {
        "plain": GRID,
        "last": {**GRID, "init_from_step": 12},
        "first": {**GRID, "init_from_step": 4},
    }
    configs = {step.label: step.config for step in recipe_steps(recipe(**entries))}
    plain, last, first = (
        configs[f"finetune.{name}.bs8-lr0.0001-ep1-r0"].cache_key_fields() for name in entries
    )
    assert plain == last
    assert first == {**plain, "init_from_step": 4}
    starts = [configs[f"evaluate.{name}"].model_dump()["start"] for name in entries]
    assert starts == ["phase-1", "phase-1 at step 12", "phase-1 at step 4"]
