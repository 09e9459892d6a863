"""The processes of one training run: `torchrun` starts them, each has a rank.

One process is the ordinary case and needs none of this; then every function here is the identity.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist

from schemas.errors import ConfigError
from schemas.model_configs import PretrainConfig

# A rank may wait while another writes a large checkpoint to a slow disk.
_TIMEOUT = timedelta(minutes=30)


class Ranks(NamedTuple):
    """Who this process is among those that train together."""

    rank: int
    """From 0."""

    size: int
    """Processes in all."""

    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and speaks to people."""
        return self.rank == 0

    def add_up(self, numbers: Sequence[float]) -> list[float]:
        """Each number summed over all ranks; every rank must call this the same number of times."""
        if self.size == 1:
            return list(numbers)
        # NCCL reduces what is on its GPU only.
        where = self.device if self.device.type == "cuda" else torch.device("cpu")
        sums = torch.tensor(numbers, dtype=torch.float64, device=where)
        dist.all_reduce(sums)
        found: list[float] = sums.tolist()
        return found

    def gather(self, numbers: Sequence[int]) -> list[int]:
        """The numbers of all ranks, those of the first first; each below 2 ** 53 in size."""
        if self.size == 1:
            return list(numbers)
        counts = [0.0] * self.size
        counts[self.rank] = float(len(numbers))
        sizes = [int(count) for count in self.add_up(counts)]
        places = [0.0] * sum(sizes)
        before = sum(sizes[: self.rank])
        places[before : before + len(numbers)] = map(float, numbers)
        return [int(number) for number in self.add_up(places)]

    def wait(self) -> None:
        """Return when all ranks have come here."""
        if self.size > 1:
            self.add_up([0.0])


def choose_device(name: str, *, local_rank: int = 0) -> torch.device:
    """The device of a configuration's `auto`, `cpu` or `cuda`, for a process of this machine.

    Raises:
        ConfigError: a GPU is asked for, and there is none for this process.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device: expected auto, cpu or cuda, found {name!r}")
    found = torch.cuda.device_count()
    if name == "cpu" or (name == "auto" and not found):
        return torch.device("cpu")
    if local_rank >= found:
        raise ConfigError(
            f"device: expected a GPU for process {local_rank + 1}, found {found}: set device to "
            "cpu, or use fewer processes"
        )
    return torch.device("cuda", local_rank)


def device_name(device: torch.device) -> str:
    """What its maker calls a GPU; `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


@contextmanager
def joined_ranks(config: PretrainConfig) -> Iterator[Ranks]:
    """Join the other processes that torchrun started, if it did; leave them at the end."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = choose_device(config.device, local_rank=local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if count == 1:
        yield Ranks(0, 1, device)
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=_TIMEOUT)
    yield Ranks(dist.get_rank(), count, device)
    # Not after an error: the others would learn of the broken connection before this process has
    # said why, and theirs would be the message that is kept. The process ends in any case.
    dist.destroy_process_group()
