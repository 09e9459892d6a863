"""Collective operations of a training step on several processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from support.training_builder import SmallCorpus
from torch.nn.parallel import DistributedDataParallel

from model.pretraining.loop import PretrainingTrainer
from model.pretraining.setup import open_setup
from model.training.distributed import ProcessGroup
from model.training.stopping import StopRequest


@pytest.fixture
def group() -> Iterator[ProcessGroup]:
    """A process that takes itself for one of two."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield ProcessGroup(0, 2, torch.device("cpu"))
    dist.destroy_process_group()


def test_a_step_has_one_reduction_besides_the_gradients(
    group: ProcessGroup,
    small_corpus: SmallCorpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = small_corpus.job(
        tmp_path,
        budget={"max_steps": 6},
        batch={"global_batch_size": 32, "per_device_max_tokens": 128},
        checkpoints={"save_steps": 0},
        logging_steps=100,
    )
    trainer = PretrainingTrainer(open_setup(job, group=group), stop=StopRequest())
    calls: list[str] = []
    for name in ("all_reduce", "all_gather_object", "broadcast", "barrier"):
        monkeypatch.setattr(dist, name, lambda *_, n=name, **__: calls.append(n))
    micro_batches = 0
    with closing(trainer), closing(trainer.batches()) as batches:
        for _, batch in zip(range(3), batches, strict=False):
            micro_batches += len(batch.micro_batches)
            trainer._step(batch, waited=0.0)
    assert micro_batches > 3
    assert calls == ["all_reduce"] * 3
    wrapped = trainer.wrapped_model
    assert isinstance(wrapped, DistributedDataParallel)
    assert wrapped.gradient_as_bucket_view
    trainer.release_model()
