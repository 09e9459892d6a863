"""Phases of a trial: augmentation data first, if any, then its training data."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

from model.finetuning.batches import TaskStep, epoch_order, task_batches
from model.finetuning.setup import AUGMENTATION, TRAIN, Split, TrialSetup


class Phase(NamedTuple):
    """Phase of a trial: the training data, or the augmentation before it."""

    name: str
    split: Split
    batches: int
    """Steps per epoch."""

    start: int
    """Steps of the phases before it."""

    steps: int
    """Steps of the phase; the learning rate ends at 0 there."""

    whole: int
    """Steps of all epochs; more than `steps` if `max_steps` ends the phase early."""

    @property
    def end(self) -> int:
        """Steps of the trial at the end of the phase."""
        return self.start + self.steps


@dataclass
class TrialState:
    """State of a trial without its tensors.

    Attributes:
        steps: Steps in all phases.
        examples, tokens: Total units and tokens trained on.
        loss, losses: Sum and number of the losses since the curve's last line.
        seconds: Training time (`model.training.loop.Stopwatch`).
    """

    steps: int = 0
    examples: int = 0
    tokens: int = 0
    loss: float = 0.0
    losses: int = 0
    seconds: float = 0.0


def phases_of(setup: TrialSetup) -> tuple[Phase, ...]:
    """Return the phases of a trial in order; each has its own schedule and optimizer state."""
    found: list[Phase] = []
    config = setup.job.config
    for name, epochs in ((AUGMENTATION, config.augmentation_epochs), (TRAIN, config.num_epochs)):
        if name not in setup.splits:
            continue
        split = setup.splits[name]
        batches = -(-split.features.units // config.batch_size)
        whole = steps = batches * epochs
        if config.max_steps is not None:
            steps = min(steps, config.max_steps)
        start = found[-1].end if found else 0
        found.append(Phase(name, split, batches, start, steps, whole))
    return tuple(found)


def steps_of(phase: Phase, setup: TrialSetup, *, done: int) -> Generator[TaskStep]:
    """Yield the batches of a phase after the first `done`; each epoch has its own order."""
    config, features = setup.job.config, phase.split.features
    while done < phase.steps:
        epoch, begin = divmod(done, phase.batches)
        order = epoch_order(
            features.units,
            seed=config.seed,
            restart=config.restart,
            phase=phase.name,
            epoch=epoch,
        )
        left = min(phase.batches - begin, phase.steps - done)
        yield from task_batches(
            features,
            order[begin * config.batch_size : (begin + left) * config.batch_size],
            batch=config.batch_size,
            per_device_max_tokens=config.per_device_max_tokens,
        )
        done += left
