"""Processes and machines of a training: how many there are, and what they exchange."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from support.training_builder import SmallCorpus
from torch.distributed.run import config_from_args, parse_args
from torch.nn.parallel import DistributedDataParallel

from model.pretraining import job as job_module
from model.pretraining import loop, process
from model.pretraining.job import JoinedTraining, Rendezvous
from model.pretraining.loop import PretrainingTrainer
from model.pretraining.setup import open_setup
from model.training.distributed import ProcessGroup, choose_precision
from model.training.stopping import StopRequest
from model.training.workers import child_environment
from schemas.base_configs import Precision
from schemas.errors import TrainingError

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def _default_products() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("_default_products")
@pytest.mark.parametrize(
    ("name", "device", "has_bf16", "precision", "products"),
    [
        ("auto", GPU, True, "bf16", "high"),
        ("auto", GPU, False, "fp32", "high"),
        ("fp32", GPU, True, "fp32", "highest"),
        ("bf16", GPU, True, "bf16", "high"),
        ("auto", CPU, False, "fp32", "highest"),
        ("bf16", CPU, False, "bf16", "highest"),
    ],
)
def test_precision_depends_on_device(
    name: Precision,
    device: torch.device,
    has_bf16: bool,
    precision: str,
    products: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bf16)
    assert choose_precision(name, device) == precision
    assert torch.get_float32_matmul_precision() == products


@pytest.mark.parametrize(
    ("changes", "nnodes", "processes"),
    [
        ({"device": "auto"}, 1, 4),
        ({"device": "auto", "num_processes": 1}, 1, None),
        ({"device": "cpu"}, 1, None),
        ({"device": "cpu", "num_processes": 2}, 1, 2),
        ({"device": "auto"}, 4, 4),
        ({"device": "cpu"}, 4, 1),
    ],
)
def test_torchrun_starts_the_processes_of_this_machine(
    changes: dict[str, Any],
    nnodes: int,
    processes: int | None,
    small_corpus: SmallCorpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands: list[list[str]] = []

    def start(command: list[str], **_: Any) -> subprocess.Popen[bytes]:
        commands.append(command)
        return subprocess.Popen(["true"])

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(process, "start_module", start)
    monkeypatch.setattr(loop, "train", lambda job, stop: commands.append(["train"]))
    job = small_corpus.job(tmp_path, **changes)
    if nnodes > 1:
        rendezvous = Rendezvous("node-0:29500", nnodes=nnodes, node_rank=3, id="1")
        job = job.model_copy(update={"rendezvous": rendezvous})
    process.train_on_all_gpus(job, stop=StopRequest())
    [command] = commands
    if processes is None:
        assert command == ["train"]
        return
    assert command[-3:-1] == ["-m", "model.pretraining.process"]
    config, _, _ = config_from_args(parse_args(command[1:]))
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (
        nnodes,
        nnodes,
        processes,
    )
    if nnodes > 1:
        assert (config.rdzv_endpoint, config.rdzv_configs["rank"]) == ("node-0:29500", 3)


def test_joined_training_tells_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendezvous = Rendezvous("node-0:29500", nnodes=2, node_rank=1, id="1")
    may_end = threading.Event()

    def train(job_file: Path, own: Rendezvous, should_stop: Callable[[], bool]) -> None:
        assert (job_file, own) == (tmp_path / "job.json", rendezvous)
        may_end.wait()
        if should_stop():
            raise TrainingError("stopped")

    def join() -> JoinedTraining:
        return JoinedTraining(str(tmp_path / "job.json"), rendezvous)

    monkeypatch.setattr(job_module, "train_job_file", train)
    first, second = join(), join()
    assert first.failure() is None
    second._stopped.set()
    may_end.set()
    assert second.stop() == "stopped"
    assert first._result.result(60) is None
    assert first.failure() == ""


def test_processes_do_not_inherit_ranks_of_another_torchrun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
    for name in names:
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7")
    environment = child_environment()
    assert not set(names) & set(environment)
    assert environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "7"


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
