"""Choices that depend on the GPUs of a machine: precision and number of processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.training_builder import SmallCorpus
from torch.distributed.run import config_from_args, parse_args

from model.pretraining import module
from model.pretraining.job import train_on_all_gpus
from model.training.distributed import choose_precision
from model.training.machines import Rendezvous
from model.training.stopping import StopRequest
from model.training.workers import child_environment
from schemas.base_configs import Precision

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
    ("changes", "environment", "processes"),
    [
        ({"device": "auto"}, {}, 4),
        ({"device": "auto"}, {"WORLD_SIZE": "4"}, None),
        ({"device": "auto", "num_processes": 1}, {}, None),
        ({"device": "cpu"}, {}, None),
        ({"device": "cpu", "num_processes": 2}, {}, 2),
    ],
)
def test_auto_starts_one_process_per_gpu(
    changes: dict[str, Any],
    environment: dict[str, str],
    processes: int | None,
    small_corpus: SmallCorpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[list[str]] = []
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["process", "job.json"])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(os, "execve", lambda _file, command, _environment: calls.append(command))
    monkeypatch.setattr(module, "train", lambda job, stop: calls.append(["train"]))
    train_on_all_gpus(small_corpus.job(tmp_path, **changes), stop=StopRequest())
    [command] = calls
    if processes is None:
        assert command == ["train"]
    else:
        assert f"--nproc-per-node={processes}" in command
        assert command[-2:] == ["model.pretraining.job", "job.json"]


@pytest.mark.parametrize(
    ("changes", "processes"), [({"device": "auto"}, 4), ({"device": "cpu"}, 1)]
)
def test_each_of_several_machines_joins_their_rendezvous(
    changes: dict[str, Any],
    processes: int,
    small_corpus: SmallCorpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = Rendezvous("node-0:29500", nnodes=4, node_rank=3, id="1").torchrun_options()
    calls: list[list[str]] = []
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(sys, "argv", ["process", "job.json", *options])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(os, "execve", lambda _file, command, _environment: calls.append(command))
    train_on_all_gpus(small_corpus.job(tmp_path, **changes), stop=StopRequest())
    [command] = calls
    assert {*options, f"--nproc-per-node={processes}"} <= set(command)
    assert "--standalone" not in command
    config, _, _ = config_from_args(parse_args(command[3:]))
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (4, 4, processes)
    assert (config.rdzv_endpoint, config.rdzv_configs["rank"]) == ("node-0:29500", 3)


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
