"""Results of a training step on a GPU are read one step late, so that the host never waits."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from support.finetuning_builder import (
    sentiment,
    text_rows,
    trial_config,
    trial_job,
    write_checkpoint,
)
from support.training_builder import SmallCorpus, curve_lines

from model import bert
from model.finetuning.trial import train_trial
from model.pretraining import evaluation
from model.pretraining.loop import PretrainingTrainer, train
from model.pretraining.setup import open_setup
from model.training import loop
from model.training.distributed import ProcessGroup
from model.training.stopping import StopRequest
from schemas.errors import DivergenceError


@pytest.fixture
def meta_device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Device whose tensors have no values: reading one raises an error."""
    monkeypatch.setattr(bert, "_has_flash", lambda x, depth: True)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)  # meta has none
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    return torch.device("meta")


def test_results_of_a_step_are_read_after_the_next_step_is_queued(
    small_corpus: SmallCorpus,
    tmp_path: Path,
    meta_device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []

    class Recorded:
        def __init__(self, values: torch.Tensor) -> None:
            assert values.is_meta
            self.size = len(values)
            self.number = sum("queue" in event for event in events) + 1
            events.append(f"queue {self.number}")

        def read(self) -> list[float]:
            events.append(f"read {self.number}")
            return [1.0] * (self.size - 4) + [0.5, 0.0, 0.0, 1.0]

    monkeypatch.setattr(loop, "HostCopy", Recorded)
    job = small_corpus.job(tmp_path, budget={"max_steps": 4}, checkpoints={"save_steps": 0})
    group = ProcessGroup(0, 1, meta_device)
    trainer = PretrainingTrainer(open_setup(job, group=group), stop=StopRequest())
    with contextlib.closing(trainer):
        trainer.run()  # reading a value of a meta tensor raises an error
    assert events[:4] == ["queue 1", "queue 2", "read 1", "queue 3"]
    assert events[-3:] == ["queue 4", "read 3", "read 4"]


def test_late_reading_changes_nothing_in_curves_and_checkpoints(
    small_corpus: SmallCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = []
    for name in ("at-once", "late"):
        if name == "late":
            _read_late(monkeypatch)
        job = small_corpus.job(
            tmp_path / name,
            evaluation={"eval_steps": 5, "max_eval_samples": 8},
            snapshot_steps=(4,),
            logging_steps=2,
        )
        train(job, stop=StopRequest())
        checkpoints.append(job.checkpoints().latest())
    at_once, late = checkpoints
    assert at_once is not None
    assert late is not None
    for kind in ("model", "optimizer"):
        for tensor_name, tensor in at_once.tensors[kind].items():
            assert torch.equal(late.tensors[kind][tensor_name], tensor)
    states = [
        {**each.state, "done": {**each.state["done"], "seconds": 0}} for each in (at_once, late)
    ]
    assert states[0] == states[1]
    assert curve_lines(tmp_path / "late") == curve_lines(tmp_path / "at-once")


def test_late_reading_changes_nothing_in_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"augmentation": text_rows(20, split="augmentation")}
    examples = sentiment(tmp_path / "examples", **more)
    config = trial_config(write_checkpoint(tmp_path / "bert"), checkpoints={"save_steps": 3})
    files = []
    for name in ("at-once", "late"):
        if name == "late":
            _read_late(monkeypatch)
        job = trial_job(tmp_path / name, examples, config=config)
        train_trial(job, stop=StopRequest())
        actual = {path.name: path.read_bytes() for path in job.results().iterdir()}
        del actual["timing.json"]
        files.append(actual)
    assert files[0] == files[1]


def test_held_out_evaluation_reads_its_sums_once(
    small_corpus: SmallCorpus,
    tmp_path: Path,
    meta_device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reduced = []

    def reduce(_group: ProcessGroup, values: torch.Tensor) -> torch.Tensor:
        assert values.is_meta
        reduced.append(len(values))
        return torch.tensor([8.0, 2.0, 4.0, 1.0, 4.0, 2.0, 12.0])

    monkeypatch.setattr(ProcessGroup, "all_reduce_tensor", reduce)
    batch = {"global_batch_size": 8, "per_device_max_tokens": 64}
    job = small_corpus.job(tmp_path, batch=batch)
    setup = open_setup(job, group=ProcessGroup(0, 1, meta_device))
    evaluator = evaluation.HeldOutEvaluator.open(setup)
    assert evaluator is not None
    assert len(list(evaluator._batches())) > 1
    metrics = evaluator.evaluate(setup.model, is_bf16=False)  # reading a meta tensor raises
    assert reduced == [7]
    assert [metrics[name] for name in ("mlm_loss", "mlm_accuracy", "unigram_loss")] == [2, 0.5, 3]
    assert [metrics[name] for name in ("loss", "nsp_loss", "nsp_accuracy")] == [4, 2, 0.5]


def test_late_divergence_names_its_step(
    small_corpus: SmallCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _read_late(monkeypatch)
    compute_loss = PretrainingTrainer.compute_loss

    def nan_in_step_3(self: PretrainingTrainer, *batches: Any) -> Any:
        loss, sums = compute_loss(self, *batches)
        return (loss * math.nan if self.done.steps == 2 else loss), sums

    monkeypatch.setattr(PretrainingTrainer, "compute_loss", nan_in_step_3)
    job = small_corpus.job(tmp_path, checkpoints={"save_steps": 2})
    with pytest.raises(DivergenceError, match=r"step 3: the loss is nan.*step 2"):
        train(job, stop=StopRequest())


def _read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trainers read late on a CPU, too."""
    init = loop.Trainer.__init__

    def init_late(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self._reads_late = True

    monkeypatch.setattr(loop.Trainer, "__init__", init_late)
