"""The loop of every training: batches in, updates out, checkpoints on the way.

What a step does follows from (configuration, inputs, step) alone: batches, masks, dropout and new
weights are keyed, never drawn from a state. So a run that is killed and goes on from a checkpoint
repeats the steps it lost to the bit, on the same device with as many threads and processes.
"""

from __future__ import annotations

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from model.encoder.dropout import seed_dropout
from model.launch.distributed import ProcessGroup
from model.launch.stopping import StopRequest
from model.optim.optimizer import Optimizer
from model.training.checkpoints import Checkpoints
from schemas.errors import CheckpointError, DivergenceError, TrainingError
from schemas.model_configs import CheckpointConfig

_SHOWN_NAMES = 8


class GlobalBatch(Protocol):
    """What one update of the weights is made from, as this process sees it."""

    @property
    def micro_batches(self) -> Sequence[Any]:
        """This process's share, at least one; each has `to(device)`."""


Batch = TypeVar("Batch", bound=GlobalBatch)


class StepFound(NamedTuple):
    """What all processes found in one step.

    Attributes:
        loss: of the global batch, which the gradient is of.
        sums: those of `Training.loss`, added up.
        gradient_norm: before clipping.
        rate: learning rate of the update.
        seconds: of training in all (`Stopwatch`), by the first process's clock.
        waited: seconds until this process had the batch, which are among them.
    """

    loss: float
    sums: list[float]
    gradient_norm: float
    rate: float
    seconds: float
    waited: float


class Training(ABC, Generic[Batch]):
    """What is trained: its data, loss, schedule, evaluation and state. `Trainer` does the rest."""

    name: str
    """What people see."""

    model: nn.Module
    optimizer: Optimizer
    """Both on the device; the loop looks at the optimizer anew in each step."""

    checkpoint_config: CheckpointConfig
    is_bf16: bool
    is_compiled: bool = False
    is_resumed: bool
    """Whether it goes on from a checkpoint of its own."""

    total_steps: int | None = None
    advice: str
    """What to do about a loss that diverges."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Updates of the weights so far."""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Spent training so far, see `Stopwatch`."""

    @abstractmethod
    def batches(self) -> Generator[Batch]:
        """What is left to learn from, a batch a step; ends with the budget."""

    @abstractmethod
    def rate(self) -> float:
        """Learning rate of the next update."""

    @abstractmethod
    def dropout_key(self, number: int) -> int:
        """Key of the dropout in a micro-batch of the next step."""

    @abstractmethod
    def loss(
        self, model: nn.Module, micro_batch: Any, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The micro-batch's share of the batch's loss, and the sums of it that are wanted, (K,)."""

    @abstractmethod
    def mean_loss(self, batch: Batch, sums: list[float]) -> float:
        """The batch's loss from the sums of all its micro-batches."""

    @abstractmethod
    def note_step(self, batch: Batch, found: StepFound) -> None:
        """Count a step in the state, and show it."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What changes from step to step and is no tensor, as plain JSON values."""

    @abstractmethod
    def learnt_from(self, batch: Batch) -> tuple[str, list[str]]:
        """What a batch holds, such as `examples`, and their names over all processes."""

    def rise(self, loss: float) -> str:
        """What is wrong with a finite loss, after those before it; "" for nothing."""
        del loss
        return ""

    def evaluation_is_due(self) -> bool:
        """Whether to evaluate after the last step."""
        return False

    def evaluate(self) -> Mapping[str, float] | None:
        """Measures on held-out data, `loss` among them; None where there are no new ones."""
        return None

    def note_evaluation(self, found: Mapping[str, float]) -> bool:
        """Record an evaluation; return whether to keep this model as the best so far."""
        del found
        return False

    def keep_snapshot(self) -> None:
        """Keep the model of the last step where it is to stay, before a checkpoint says that the
        step is passed."""

    def sync(self) -> None:
        """Have the record on the disk before a checkpoint says that it is there."""


def resume(
    checkpoints: Checkpoints,
    *,
    model: nn.Module,
    optimizer: Optimizer,
    load_state: Callable[[dict[str, Any], str], None],
) -> bool:
    """Load the newest checkpoint, if there is one; whether there is.

    Args:
        checkpoints: of the run.
        model, optimizer: to be filled.
        load_state: takes what `Training.state` gave, and the checkpoint's URL.

    Raises:
        CheckpointError: it does not fit the model, or cannot be read.
    """
    latest = checkpoints.latest()
    if latest is None:
        return False
    where = latest.saved.url
    try:
        load_state(latest.state, where)
        model.load_state_dict(latest.tensors["model"])
    except (RuntimeError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{where}: the checkpoint does not fit the model: {error}. Delete the folder to begin "
            "anew"
        ) from error
    optimizer.load_state_tensors(latest.tensors["optimizer"], where=where)
    return True


class Stopwatch:
    """Seconds spent training, over all starts of a run.

    In pretraining and fine-tuning alike they are those from the begin of the loop on in which
    batches are laid out or waited for and updates are made. Evaluations, checkpoints, and what is
    opened before the first batch are not in them.
    """

    def __init__(self, seconds: float) -> None:
        """`seconds` were spent by earlier starts."""
        self._earlier = seconds
        self._started: float | None = time.perf_counter()

    @property
    def seconds(self) -> float:
        running = 0.0 if self._started is None else time.perf_counter() - self._started
        return self._earlier + running

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time in this block is not training: evaluation, checkpoints."""
        self._earlier, self._started = self.seconds, None
        try:
            yield
        finally:
            self._started = time.perf_counter()


class Trainer(Generic[Batch]):
    """Runs a training step by step, on one process or several."""

    def __init__(
        self,
        training: Training[Batch],
        *,
        group: ProcessGroup,
        checkpoints: Checkpoints,
        stop: StopRequest,
    ) -> None:
        self.training, self.group, self.checkpoints = training, group, checkpoints
        self._stop = stop
        self._stops = False
        self._model = _wrapped(training, group=group)
        self._clock = Stopwatch(training.seconds)
        self._saved_at = time.monotonic()
        self._saved_step = training.steps if training.is_resumed else None

    def run(self) -> None:
        """Train to the end of the budget.

        Raises:
            CheckpointError: one cannot be written.
            DivergenceError: the loss is not finite or keeps rising.
            TrainingError: it was asked to stop, and has written a checkpoint.
        """
        self.training.model.train()
        with contextlib.closing(self.training.batches()) as batches:
            began = time.perf_counter()
            for batch in batches:
                self._check_stop()
                checkpoint_is_due = self._step(batch, waited=time.perf_counter() - began)
                self._after_step(checkpoint_is_due)
                began = time.perf_counter()

    def close(self) -> None:
        """Release the DDP wrapper before the process group is destroyed.

        The end of DistributedDataParallel waits for threads of its process group, and would wait
        for ever if it came after the group's.
        """
        del self._model

    def evaluate(self) -> float | None:
        """Evaluate; return the held-out loss if this model is to be kept as the best so far."""
        with self._clock.paused():
            found = self.training.evaluate()
        if found is None:
            return None
        loss = found["loss"]
        if not math.isfinite(loss):
            raise DivergenceError(
                f"{self.training.name}: after step {self.training.steps} the loss on held-out "
                f"documents is {loss}: the last updates have spoilt the weights, which are not "
                f"saved; {self._kept()}. {self.training.advice}"
            )
        return loss if self.training.note_evaluation(found) else None

    def save(self, *, loss: float | None = None) -> None:
        """Write a checkpoint; with a held-out loss, it is kept until a later one is lower."""
        with self._clock.paused():
            self.training.sync()
            if self.group.is_main_process:
                self.checkpoints.save(
                    self.training.steps,
                    tensors={
                        "model": self.training.model.state_dict(),
                        "optimizer": self.training.optimizer.state_tensors(),
                    },
                    state=self.training.state(),
                    loss=loss,
                )
            self.group.barrier()
        self._saved_step = self.training.steps
        self._saved_at = time.monotonic()

    def save_unsaved(self, *, older_than: float = 0.0) -> None:
        """Write a checkpoint if there is none of this step, and none of the last seconds."""
        steps = self.training.steps
        if steps and self._saved_step != steps and time.monotonic() - self._saved_at > older_than:
            self.save()

    def _step(self, batch: Batch, *, waited: float) -> bool:
        """One update of the weights; whether a checkpoint is due by the first process's clock."""
        training = self.training
        rate = training.rate()
        sums = self._gradients(batch)
        norm = float(training.optimizer.step(learning_rate=rate))
        training.optimizer.zero_grad()
        totals, seconds, checkpoint_is_due = self._exchanged(sums.tolist())
        loss = training.mean_loss(batch, totals)
        problem = _problem(loss, norm) or training.rise(loss)
        if problem:
            raise self._divergence(problem, batch)
        training.note_step(batch, StepFound(loss, totals, norm, rate, seconds, waited))
        return checkpoint_is_due

    def _gradients(self, batch: Batch) -> torch.Tensor:
        """Accumulate the gradients of this process's share; its sums, float64 (K,)."""
        training, device = self.training, self.group.device
        last = len(batch.micro_batches) - 1
        sums = torch.zeros((), dtype=torch.float64, device=device)
        for number, micro_batch in enumerate(batch.micro_batches):
            seed_dropout(training.model, training.dropout_key(number))
            with self._gradients_shared(number == last):
                with torch.autocast(device.type, torch.bfloat16, enabled=training.is_bf16):
                    loss, found = training.loss(self._model, micro_batch.to(device), batch)
                # DistributedDataParallel takes the mean over processes; what is wanted is the sum.
                share: torch.Tensor = loss * self.group.world_size
                share.backward()  # type: ignore[no-untyped-call]
            sums = sums + found.to(torch.float64)
        return sums

    def _gradients_shared(self, is_last: bool) -> AbstractContextManager[Any]:
        if is_last or not isinstance(self._model, DistributedDataParallel):
            return contextlib.nullcontext()
        no_sync: AbstractContextManager[Any] = self._model.no_sync()
        return no_sync

    def _exchanged(self, sums: list[float]) -> tuple[list[float], float, bool]:
        """Sums over all processes, and what the first one's clock says: one exchange a step."""
        every = self.training.checkpoint_config.save_minutes * 60
        is_due = every < time.monotonic() - self._saved_at
        clock = [self._clock.seconds, float(is_due)] if self.group.is_main_process else [0.0, 0.0]
        asked = float(bool(self._stop.reason))
        *totals, seconds, due, stops = self.group.all_reduce_sum([*sums, *clock, asked])
        if stops:
            self._stops = True
            self._stop.request("another process of the training was asked to stop")
        return totals, seconds, bool(due)

    def _divergence(self, problem: str, batch: Batch) -> DivergenceError:
        # All processes are here: losses and norms are the same in each.
        what, names = self.training.learnt_from(batch)
        more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
        error = DivergenceError(
            f"{self.training.name}, step {self.training.steps + 1}: {problem}. The batch had the "
            f"{what} {', '.join(names[:_SHOWN_NAMES])}{more}; {self._kept()}. "
            f"{self.training.advice}"
        )
        error.add_note(f"all {what} of the batch: {' '.join(names)}")
        return error

    def _kept(self) -> str:
        if self._saved_step is None:
            return "there is no checkpoint yet"
        return (
            f"the last good checkpoint is that of step {self._saved_step} in {self.checkpoints.url}"
        )

    def _after_step(self, checkpoint_is_due: bool) -> None:
        best_loss = self.evaluate() if self.training.evaluation_is_due() else None
        with self._clock.paused():
            self.training.keep_snapshot()
        every = self.training.checkpoint_config.save_steps
        is_due = checkpoint_is_due or (every and self.training.steps % every == 0)
        if is_due or best_loss is not None:
            self.save(loss=best_loss)

    def _check_stop(self) -> None:
        # Several processes stop where all know of it, at the exchange after a step: one that was
        # asked since then would wait at its checkpoint for others that are in the next step.
        if not (self._stops or (self.group.world_size == 1 and self._stop.reason)):
            return
        training = self.training
        self.save_unsaved()
        of = "" if training.total_steps is None else f" of {training.total_steps}"
        raise TrainingError(
            f"{training.name}: stopped after step {training.steps}{of} ({self._stop.reason}); the "
            f"next run goes on from there, by the checkpoints in {self.checkpoints.url}"
        )


def _problem(loss: float, norm: float) -> str:
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    return "" if math.isfinite(norm) else f"the gradient's norm is {norm}"


def _wrapped(training: Training[Any], *, group: ProcessGroup) -> nn.Module:
    wrapped = training.model
    if training.is_compiled:
        wrapped = torch.compile(wrapped, dynamic=True)  # type: ignore[assignment]
    if group.world_size > 1:
        ids = [group.device.index] if group.device.type == "cuda" else None
        wrapped = DistributedDataParallel(wrapped, device_ids=ids)
    return wrapped
