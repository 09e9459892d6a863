"""Scalars for TensorBoard, next to the JSON lines and never in place of them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_LOGGER = logging.getLogger(__name__)


class EventFiles:
    """Event files of a run in a folder; nothing is written where tensorboard is not installed.

    Args:
        folder: local folder; every start of the run adds a file to it.
        resume_step: readers are told to forget what earlier starts wrote of later steps.
    """

    def __init__(self, folder: Path, *, resume_step: int) -> None:
        begun = folder.is_dir() and any(folder.iterdir())
        self._writer = _writer(folder, purge_step=resume_step + 1 if begun else None)

    def add(self, group: str, values: Mapping[str, float | str]) -> None:
        """Add the numbers of one step, `values["step"]`, under `group/`."""
        if self._writer is None:
            return
        for name, value in values.items():
            if name != "step":
                self._writer.add_scalar(f"{group}/{name}", float(value), int(values["step"]))

    def flush(self) -> None:
        """Write out what waits in memory, which is else done every two minutes."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Write out what is left and end the thread that writes."""
        if self._writer is not None:
            self._writer.close()


def _writer(folder: Path, *, purge_step: int | None) -> SummaryWriter | None:
    try:
        # start-up: 240 ms, and it may not be installed
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        _say_once(str(error))
        return None
    return SummaryWriter(log_dir=str(folder), purge_step=purge_step)


@functools.cache
def _say_once(reason: str) -> None:
    _LOGGER.warning(
        "no event files for TensorBoard are written (%s): pip install 'bertloom[model]' brings it; "
        "the curves' JSON lines and pictures do not need it",
        reason,
    )
