"""Distributed training: the process group that torchrun starts, or a single process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Literal, NamedTuple, TypeVar

import torch
import torch.distributed as dist

from model.training.workers import WORKER_VARIABLE
from schemas.base_configs import Precision
from schemas.errors import ConfigError
from schemas.model_configs import PretrainConfig

# Ranks wait while the main process writes a large checkpoint to a slow disk.
_TIMEOUT = timedelta(minutes=30)

Value = TypeVar("Value")


class ProcessGroup(NamedTuple):
    """Processes that train together."""

    rank: int
    """Rank of this process, from 0."""

    world_size: int
    """Number of processes."""

    device: torch.device
    """Device of this process."""

    local_rank: int = 0
    """Rank of this process on its machine, from 0."""

    @property
    def is_main_process(self) -> bool:
        """True for the process that writes files and logs."""
        return self.rank == 0

    def all_reduce_tensor(self, values: torch.Tensor) -> torch.Tensor:
        """Sum a tensor on this process's device over all processes, in place, and return it.

        The host does not wait for a GPU.
        """
        if self.world_size > 1:
            dist.all_reduce(values)
        return values

    def all_gather(self, values: Sequence[Value]) -> list[Value]:
        """Return the values of all processes, in the order of ranks."""
        if self.world_size == 1:
            return list(values)
        gathered: list[list[Value]] = [[]] * self.world_size
        dist.all_gather_object(gathered, list(values))
        return list(itertools.chain.from_iterable(gathered))

    def barrier(self) -> None:
        """Wait until all processes call this."""
        if self.world_size > 1:
            dist.barrier()


class HostCopy:
    """Copy of a tensor to the host that starts at once; only `read` waits for it."""

    def __init__(self, values: torch.Tensor) -> None:
        self._values = values
        self._event: torch.cuda.Event | None = None
        if values.is_cuda:
            # Only copies to pinned memory are asynchronous.
            self._values = torch.empty_like(values, device="cpu", pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def read(self) -> list[float]:
        """Wait for the copy, not for work queued after it, and return the values."""
        if self._event is not None:
            self._event.synchronize()
        values: list[float] = self._values.tolist()
        return values


def choose_device(name: str, *, local_rank: int = 0) -> torch.device:
    """Return the device for `auto`, `cpu` or `cuda` in a configuration.

    Raises:
        ConfigError: There is no GPU for this process.
    """
    num_gpus = torch.cuda.device_count()
    if name == "cpu" or (name == "auto" and not num_gpus):
        return torch.device("cpu")
    if local_rank >= num_gpus:
        raise ConfigError(
            f"device: expected a GPU for process {local_rank + 1}, got {num_gpus} GPUs. Set device "
            "to cpu, or use fewer processes."
        )
    return torch.device("cuda", local_rank)


def choose_worker_device(name: str) -> torch.device:
    """Return the device of this worker process: concurrent workers take the GPUs in turn.

    Raises:
        ConfigError: There is no GPU.
    """
    number = int(os.environ.get(WORKER_VARIABLE, "0"))
    return choose_device(name, local_rank=number % max(1, torch.cuda.device_count()))


def choose_precision(name: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """Return the precision of autocast for a configuration, and set that of fp32 products.

    `auto` is bf16 on GPUs that have it. Unless fp32 is requested, GPUs round factors to TF32.
    """
    is_gpu = device.type == "cuda"
    torch.set_float32_matmul_precision("high" if is_gpu and name != "fp32" else "highest")
    torch.backends.cudnn.allow_tf32 = name != "fp32"  # the BiLSTM's
    if name == "auto":
        is_supported = is_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16" if is_supported else "fp32"
    return name


def device_name(device: torch.device) -> str:
    """Return the model name of a GPU, or `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


@contextmanager
def init_distributed(config: PretrainConfig) -> Iterator[ProcessGroup]:
    """Join the process group if torchrun started this process; leave it at the end."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = choose_device(config.device, local_rank=local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world_size == 1:
        yield ProcessGroup(0, 1, device)
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_TIMEOUT)
    yield ProcessGroup(dist.get_rank(), world_size, device, local_rank)
    # Not after an error: the other ranks would fail on the closed connection, and report that
    # before this process has written the cause. The process ends in any case.
    dist.destroy_process_group()
