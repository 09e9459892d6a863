"""Training loop of pretraining and fine-tuning: steps, evaluations and checkpoints.

A step is a function of (configuration, inputs, step): batches, masks, dropout and initial weights
are keyed, not drawn from a generator's state. So a killed run that resumes from a checkpoint
repeats the lost steps exactly on a CPU with the same number of threads and processes. On a GPU it
repeats them up to rounding: some kernels add in an order that varies.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from model.attention import seed_dropout
from model.bert import Block
from model.data.batches import to_device
from model.optim import Optimizer
from model.training.checkpoints import Checkpoints
from model.training.distributed import HostCopy, ProcessGroup
from model.training.log import CurveWriter, JsonLines
from model.training.progress import Amounts, TrainingProgress
from model.training.stopping import StopRequest
from schemas.errors import CheckpointError, DivergenceError, TrainingError
from schemas.model_configs import CheckpointConfig

_LOGGER = logging.getLogger(__name__)
_SHOWN_NAMES = 8


class GlobalBatch(Protocol):
    """Batch of one training step, from the view of one process."""

    @property
    def micro_batches(self) -> Sequence[Any]:
        """Micro-batches of this process, at least one; each has `to(device)`."""

    @property
    def tokens(self) -> int:
        """Number of tokens of the batch, over all processes."""


Batch = TypeVar("Batch", bound=GlobalBatch)


class StepMetrics(NamedTuple):
    """Results of one step over all processes.

    Attributes:
        loss: Loss of the global batch.
        sums: Totals of `Trainer.compute_loss`.
        gradient_norm: Norm before clipping.
        learning_rate: Learning rate of the step.
        waited: Seconds that this process waited for the batch.
    """

    loss: float
    sums: Sequence[float]
    gradient_norm: float
    learning_rate: float
    waited: float


class _QueuedStep(NamedTuple):
    """A step whose results may still be computed on a GPU."""

    batch: Any
    learning_rate: float
    waited: float
    results: HostCopy
    """Loss and other sums, seconds, 1 if a checkpoint is due, 1 if a stop is requested, norm."""


class TrainingState(BaseModel):
    """State of a training without its tensors, as checkpoints hold it."""

    model_config = ConfigDict(extra="forbid")

    done: Amounts = Field(default_factory=Amounts)
    """Amount of training so far; see `Stopwatch` for the seconds."""


State = TypeVar("State", bound=TrainingState)


def resume_from_checkpoint(
    checkpoints: Checkpoints, *, model: nn.Module, optimizer: Optimizer, state: State
) -> State:
    """Load the newest checkpoint; return its state, or the given one if there is no checkpoint.

    Raises:
        CheckpointError: The checkpoint does not match the model, or cannot be read.
    """
    latest = checkpoints.latest()
    if latest is None:
        return state
    where, tensors = latest.info.url, latest.tensors
    try:
        state = type(state).model_validate(latest.state)
        model.load_state_dict(tensors["model"])
    except (RuntimeError, KeyError, ValidationError) as error:
        raise CheckpointError(
            f"{where}: the checkpoint does not match the model: {error}. Delete the folder to "
            "start again."
        ) from error
    optimizer.load_state_dict(tensors["optimizer"], where=where)
    _LOGGER.info("resuming after step %d from %s", state.done.steps, where)
    return state


class Stopwatch:
    """Training time over all starts of a run, in seconds.

    It includes waiting for batches and training steps, but not setup, evaluations and checkpoints.
    """

    def __init__(self, seconds: float) -> None:
        """Start with the `seconds` of earlier starts."""
        self._earlier = seconds
        self._started: float | None = time.perf_counter()

    @property
    def seconds(self) -> float:
        running = 0.0 if self._started is None else time.perf_counter() - self._started
        return self._earlier + running

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pause during the block: evaluation, checkpoints."""
        self._earlier, self._started = self.seconds, None
        try:
            yield
        finally:
            self._started = time.perf_counter()


class Trainer(ABC, Generic[Batch]):
    """Runs a training step by step, on one process or several.

    A subclass has the data, the loss, the schedule and the log. Its hooks have the names of
    PyTorch Lightning and of Hugging Face's Trainer.

    Attributes:
        model, optimizer: On the device; the optimizer may change between steps.
        wrapped_model: The model, for DDP if there are several processes.
        done: Amount of training so far.
        progress: Progress file; `on_step_end` sets its details.
    """

    advice: str
    """Advice for a diverging loss."""

    total_steps: int | None = None

    def __init__(
        self,
        name: str,
        *,
        model: nn.Module,
        optimizer: Optimizer,
        state: TrainingState,
        group: ProcessGroup,
        checkpoints: Checkpoints,
        checkpoint_config: CheckpointConfig,
        stop: StopRequest,
        log: CurveWriter | JsonLines | None,
        progress: TrainingProgress,
        is_bf16: bool,
        is_compiled: bool = False,
    ) -> None:
        self.name, self.model, self.optimizer = name, model, optimizer
        self.group, self.checkpoints, self.is_bf16 = group, checkpoints, is_bf16
        self.done, self.progress = state.done, progress
        self._log = log
        self._state, self._checkpoint_config, self._stop = state, checkpoint_config, stop
        # A GPU must not wait for the host. A CPU has computed a step when it is queued.
        self._reads_late = group.device.type != "cpu"
        self._is_stopping = self._should_save = False
        self._queued: _QueuedStep | None = None
        self.wrapped_model = wrap_model(model, group=group, is_compiled=is_compiled)
        self._clock = Stopwatch(self.done.seconds)
        self._saved_at = time.monotonic()
        self._saved_step = self.done.steps  # 0: none

    @abstractmethod
    def batches(self) -> Generator[Batch]:
        """Yield the remaining batches, one per step, until the budget is reached."""

    @abstractmethod
    def learning_rate(self) -> float:
        """Return the learning rate of the next step."""

    @abstractmethod
    def dropout_key(self, number: int) -> int:
        """Return the dropout key of a micro-batch of the next step."""

    @abstractmethod
    def compute_loss(
        self, micro_batch: Any, batch: Batch
    ) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
        """Return the micro-batch's share of the batch's loss, and numbers to be summed."""

    @abstractmethod
    def on_step_end(self, batch: Batch, metrics: StepMetrics) -> str:
        """Log the last counted step; return why the losses diverge, or "".

        On a GPU the next step is already queued.
        """

    def after_step(self) -> None:
        """Do what is due after a step, before its checkpoint, such as an evaluation."""

    @abstractmethod
    def batch_contents(self, batch: Batch) -> tuple[str, list[str]]:
        """Return the kind of a batch's contents, such as `examples`, and their names."""

    def run(self) -> None:
        """Train to the end of the budget.

        Raises:
            CheckpointError: A checkpoint cannot be written.
            DivergenceError: The loss is not finite or keeps rising.
            TrainingError: A stop was requested, and a checkpoint has been written.
        """
        self.model.train()
        with contextlib.closing(self.batches()) as batches:
            start = time.perf_counter()
            for batch in batches:
                self._check_stop()
                self._step(batch, waited=time.perf_counter() - start)
                self.after_step()
                self._save_if_due()
                start = time.perf_counter()
        self._finish_step()

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def release_model(self) -> None:
        """Release the DDP wrapper before the process group is destroyed.

        The destructor of DistributedDataParallel waits for threads of its process group, and would
        block forever after the group's end.
        """
        del self.wrapped_model

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Finish the last step, and pause the clock during the block: evaluation, snapshots."""
        self._finish_step()
        with self._clock.paused():
            yield

    def save(self) -> None:
        """Write a checkpoint."""
        with self.paused():
            if self._log is not None:
                self._log.sync()
            if self.group.is_main_process:
                self.checkpoints.save(
                    self.done.steps,
                    tensors={
                        "model": self.model.state_dict(),
                        "optimizer": self.optimizer.state_dict(),
                    },
                    state=self._state.model_dump(),
                )
            self.group.barrier()
        self._saved_step = self.done.steps
        self._saved_at = time.monotonic()
        self._should_save = False

    def save_if_needed(self, *, older_than: float = 0.0) -> None:
        """Write a checkpoint, unless this step or the last seconds have one."""
        age = time.monotonic() - self._saved_at
        if self._saved_step != self.done.steps and age > older_than:
            self.save()

    def _save_if_due(self) -> None:
        """Write a checkpoint if the configuration asks for one after this step."""
        save_steps = self._checkpoint_config.save_steps
        is_save_step = bool(save_steps) and self.done.steps % save_steps == 0
        if self._should_save or is_save_step:
            self.save()

    def _step(self, batch: Batch, *, waited: float) -> None:
        """Queue one step, then read the results of the step before it."""
        learning_rate = self.learning_rate()
        sums = self._accumulate_gradients(batch)
        norm = self.optimizer.step(learning_rate=learning_rate)
        self.optimizer.zero_grad()
        results = HostCopy(torch.cat([self._synchronize(sums), norm.to(torch.float64).view(1)]))
        self._finish_step()
        self._queued = _QueuedStep(batch, learning_rate, waited, results)
        self.done.steps += 1
        self.done.tokens += batch.tokens
        if not self._reads_late:
            self._finish_step()

    def _finish_step(self) -> None:
        """Wait for the results of the queued step, if any, check and log them."""
        if self._queued is None:
            return
        (batch, learning_rate, waited, results), self._queued = self._queued, None
        loss, *sums, seconds, should_save, num_stops, norm = results.read()
        self.done.seconds = seconds
        self._should_save |= bool(should_save)
        if num_stops and self.group.world_size > 1:
            self._is_stopping = True
            self._stop.request("another process of the training was asked to stop")
        metrics = StepMetrics(loss, sums, norm, learning_rate, waited)
        problem = _find_problem(loss, norm) or self.on_step_end(batch, metrics)
        if problem:
            raise self._divergence(problem, batch)
        self.progress.update(self.done)

    def _accumulate_gradients(self, batch: Batch) -> torch.Tensor:
        """Accumulate the gradients of this process's share; return loss and sums, float64."""
        device, last = self.group.device, len(batch.micro_batches) - 1
        total = torch.zeros((), dtype=torch.float64, device=device)
        for number, micro_batch in enumerate(batch.micro_batches):
            # A GPU draws the numbers of all micro-batches from one generator.
            if number == 0 or device.type == "cpu":
                seed_dropout(self.model, self.dropout_key(number))
            with self._sync_gradients(number == last):
                with torch.autocast(device.type, torch.bfloat16, enabled=self.is_bf16):
                    loss, sums = self.compute_loss(micro_batch.to(device), batch)
                # DistributedDataParallel averages over processes; the loss needs the sum.
                share: torch.Tensor = loss * self.group.world_size
                share.backward()  # type: ignore[no-untyped-call]
            values = [value.to(torch.float64) for value in (loss.detach(), *sums)]
            total = total + torch.stack(values)
        return total

    def _sync_gradients(self, is_last: bool) -> AbstractContextManager[Any]:
        if is_last or not isinstance(self.wrapped_model, DistributedDataParallel):
            return contextlib.nullcontext()
        no_sync: AbstractContextManager[Any] = self.wrapped_model.no_sync()
        return no_sync

    def _synchronize(self, sums: torch.Tensor) -> torch.Tensor:
        """Return sums over all processes and the first one's clock, in one all-reduce per step."""
        save_seconds = self._checkpoint_config.save_minutes * 60
        is_due = time.monotonic() - self._saved_at > save_seconds
        clock = [self._clock.seconds, float(is_due)] if self.group.is_main_process else [0.0, 0.0]
        stop = float(bool(self._stop.reason))
        host = torch.tensor([*clock, stop], dtype=torch.float64)
        return self.group.all_reduce_tensor(torch.cat([sums, to_device(host, sums.device)]))

    def _divergence(self, problem: str, batch: Batch) -> DivergenceError:
        # Losses and norms are equal in all processes, so all of them get here.
        kind, names = self.batch_contents(batch)
        more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
        error = DivergenceError(
            f"{self.name}, step {self.done.steps}: {problem}. The batch had the "
            f"{kind} {', '.join(names[:_SHOWN_NAMES])}{more}; {self.last_checkpoint()}. "
            f"{self.advice}"
        )
        error.add_note(f"all {kind} of the batch: {' '.join(names)}")
        return error

    def last_checkpoint(self) -> str:
        """Return a clause about the last checkpoint, for messages."""
        if not self._saved_step:
            return "there is no checkpoint yet"
        return (
            f"the last good checkpoint is that of step {self._saved_step} in {self.checkpoints.url}"
        )

    def _check_stop(self) -> None:
        # Several processes stop only at the all-reduce after a step, where all know of the request:
        # a process that stopped elsewhere would wait at its checkpoint for the others.
        if not (self._is_stopping or (self.group.world_size == 1 and self._stop.reason)):
            return
        self.save_if_needed()
        of = "" if self.total_steps is None else f" of {self.total_steps}"
        raise TrainingError(
            f"{self.name}: stopped after step {self.done.steps}{of} ({self._stop.reason}), "
            f"saved in {self.checkpoints.url}. Run the same command to continue."
        )


def _find_problem(loss: float, norm: float) -> str:
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    return "" if math.isfinite(norm) else f"the gradient's norm is {norm}"


def compile_blocks(model: nn.Module) -> None:
    """Compile each block of a model when it first runs; all share the compiled code."""
    for module in model.modules():
        if isinstance(module, Block):
            module.compile(dynamic=True)


def wrap_model(model: nn.Module, *, group: ProcessGroup, is_compiled: bool = False) -> nn.Module:
    """Return the model that computes the loss: for several processes, it sums their gradients."""
    if is_compiled:
        compile_blocks(model)
    if group.world_size == 1:
        return model
    # Without static_graph, which fails if the first backward pass is under no_sync.
    ids = [group.device.index] if group.device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)
