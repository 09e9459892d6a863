"""Training loop of pretraining and fine-tuning: steps, evaluations and checkpoints.

A step is a function of (configuration, inputs, step): batches, masks, dropout and initial weights
are keyed, not drawn from a generator's state. So a killed run that resumes from a checkpoint
repeats the lost steps exactly on a CPU with the same number of threads and processes. On a GPU it
repeats them up to rounding: some kernels add in an order that varies.
"""

from __future__ import annotations

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from model.attention import seed_dropout
from model.bert import Block
from model.data.batches import to_device
from model.optim import Optimizer
from model.training.checkpoints import Checkpoints
from model.training.distributed import HostCopy, ProcessGroup
from model.training.stopping import StopRequest
from schemas.errors import CheckpointError, DivergenceError, TrainingError
from schemas.model_configs import CheckpointConfig

_SHOWN_NAMES = 8


class GlobalBatch(Protocol):
    """Batch of one training step, from the view of one process."""

    @property
    def micro_batches(self) -> Sequence[Any]:
        """Micro-batches of this process, at least one; each has `to(device)`."""


Batch = TypeVar("Batch", bound=GlobalBatch)


class Logger(Protocol):
    """Log of a training."""

    def flush(self) -> None:
        """Write all lines to disk. Called before a checkpoint."""


class StepMetrics(NamedTuple):
    """Results of one step over all processes.

    Attributes:
        loss: Loss of the global batch.
        sums: Totals of `TrainingModule.training_step`, then those of `TrainingModule.count_work`.
        gradient_norm: Norm before clipping.
        learning_rate: Learning rate of the step.
        seconds: Total training time (`Stopwatch`) on the first process.
        waited: Seconds that this process waited for the batch, part of `seconds`.
    """

    loss: float
    sums: list[float]
    gradient_norm: float
    learning_rate: float
    seconds: float
    waited: float


class _QueuedStep(NamedTuple):
    """A step whose results may still be computed on a GPU."""

    batch: Any
    number: int
    learning_rate: float
    waited: float
    results: HostCopy
    """Sums of the loss, seconds, 1 if a checkpoint is due, 1 if a stop is requested, norm."""


class TrainingModule(ABC, Generic[Batch]):
    """Data, loss, schedule, evaluation and state of a training; `Trainer` runs it.

    Hooks have the names of PyTorch Lightning (`training_step`) and of callbacks of Hugging Face's
    Trainer (`on_step_end`).
    """

    name: str
    """Name in messages."""

    model: nn.Module
    optimizer: Optimizer
    """Model and optimizer on the device; the optimizer may change between steps."""

    logger: Logger
    checkpoint_config: CheckpointConfig
    is_bf16: bool
    is_compiled: bool = False
    is_resumed: bool
    """True if the training resumes from one of its checkpoints."""

    total_steps: int | None = None
    advice: str
    """Advice for a diverging loss."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Number of finished steps."""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Training time so far, see `Stopwatch`."""

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
    def training_step(
        self, model: nn.Module, micro_batch: Any, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the micro-batch's share of the batch's loss, and its sums (K,)."""

    @abstractmethod
    def mean_loss(self, batch: Batch, sums: list[float]) -> float:
        """Return the batch's loss from the sums of its micro-batches."""

    def count_work(self, batch: Batch) -> Sequence[float]:
        """Return numbers of this process's share of a batch, to be summed over all processes."""
        del batch
        return ()

    @abstractmethod
    def count_step(self, batch: Batch) -> None:
        """Count a step in the state, before its results are known."""

    @abstractmethod
    def on_step_end(self, batch: Batch, metrics: StepMetrics) -> str:
        """Log the last counted step; return why the losses diverge, or "".

        On a GPU the next step is already queued.
        """

    def after_step(self, trainer: Trainer[Batch]) -> None:
        """Do what is due after a step, before its checkpoint, such as an evaluation."""
        del trainer

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the state without tensors, as JSON values."""

    @abstractmethod
    def batch_contents(self, batch: Batch) -> tuple[str, list[str]]:
        """Return the kind of a batch's contents, such as `examples`, and their names."""


def resume_from_checkpoint(
    checkpoints: Checkpoints,
    *,
    model: nn.Module,
    optimizer: Optimizer,
    load_state: Callable[[dict[str, Any], str], None],
) -> bool:
    """Load the newest checkpoint, if any; return whether there was one.

    Args:
        checkpoints: Checkpoints of the run.
        model, optimizer: Targets of the tensors.
        load_state: Function of the result of `TrainingModule.state_dict` and the checkpoint's URL.

    Raises:
        CheckpointError: The checkpoint does not match the model, or cannot be read.
    """
    latest = checkpoints.latest()
    if latest is None:
        return False
    where = latest.info.url
    try:
        load_state(latest.state, where)
        model.load_state_dict(latest.tensors["model"])
    except (RuntimeError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{where}: the checkpoint does not match the model: {error}. Delete the folder to "
            "start again."
        ) from error
    optimizer.load_state_dict(latest.tensors["optimizer"], where=where)
    return True


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


class Trainer(Generic[Batch]):
    """Runs a training step by step, on one process or several."""

    def __init__(
        self,
        training: TrainingModule[Batch],
        *,
        group: ProcessGroup,
        checkpoints: Checkpoints,
        stop: StopRequest,
    ) -> None:
        self.training, self.group, self.checkpoints = training, group, checkpoints
        self._stop = stop
        # A GPU must not wait for the host. A CPU has computed a step when it is queued.
        self._reads_late = group.device.type != "cpu"
        self._is_stopping = self._should_save = False
        self._queued: _QueuedStep | None = None
        self._model = _wrap(training, group=group)
        self._clock = Stopwatch(training.seconds)
        self._saved_at = time.monotonic()
        self._saved_step = training.steps if training.is_resumed else None

    def run(self) -> None:
        """Train to the end of the budget.

        Raises:
            CheckpointError: A checkpoint cannot be written.
            DivergenceError: The loss is not finite or keeps rising.
            TrainingError: A stop was requested, and a checkpoint has been written.
        """
        self.training.model.train()
        with contextlib.closing(self.training.batches()) as batches:
            start = time.perf_counter()
            for batch in batches:
                self._check_stop()
                self._step(batch, waited=time.perf_counter() - start)
                self._after_step()
                start = time.perf_counter()
        self._finish_step()

    def close(self) -> None:
        """Release the DDP wrapper before the process group is destroyed.

        The destructor of DistributedDataParallel waits for threads of its process group, and would
        block forever after the group's end.
        """
        del self._model

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Finish the last step, and pause the clock during the block: evaluation, snapshots."""
        self._finish_step()
        with self._clock.paused():
            yield

    def save(self) -> None:
        """Write a checkpoint."""
        with self.paused():
            self.training.logger.flush()
            if self.group.is_main_process:
                self.checkpoints.save(
                    self.training.steps,
                    tensors={
                        "model": self.training.model.state_dict(),
                        "optimizer": self.training.optimizer.state_dict(),
                    },
                    state=self.training.state_dict(),
                )
            self.group.barrier()
        self._saved_step = self.training.steps
        self._saved_at = time.monotonic()
        self._should_save = False

    def save_if_needed(self, *, older_than: float = 0.0) -> None:
        """Write a checkpoint, unless this step or the last seconds have one."""
        steps = self.training.steps
        if steps and self._saved_step != steps and time.monotonic() - self._saved_at > older_than:
            self.save()

    def _step(self, batch: Batch, *, waited: float) -> None:
        """Queue one step, then read the results of the step before it."""
        training = self.training
        number, learning_rate = training.steps + 1, training.learning_rate()
        sums = self._accumulate_gradients(batch)
        norm = training.optimizer.step(learning_rate=learning_rate)
        training.optimizer.zero_grad()
        results = HostCopy(
            torch.cat([self._synchronize(batch, sums), norm.to(torch.float64).view(1)])
        )
        self._finish_step()
        self._queued = _QueuedStep(batch, number, learning_rate, waited, results)
        training.count_step(batch)
        if not self._reads_late:
            self._finish_step()

    def _finish_step(self) -> None:
        """Wait for the results of the queued step, if any, check and log them."""
        if self._queued is None:
            return
        (batch, number, learning_rate, waited, results), self._queued = self._queued, None
        *sums, seconds, should_save, num_stops, norm = results.read()
        self._should_save |= bool(should_save)
        if num_stops and self.group.world_size > 1:
            self._is_stopping = True
            self._stop.request("another process of the training was asked to stop")
        loss = self.training.mean_loss(batch, sums)
        metrics = StepMetrics(loss, sums, norm, learning_rate, seconds, waited)
        problem = _find_problem(loss, norm) or self.training.on_step_end(batch, metrics)
        if problem:
            raise self._divergence(problem, batch, number=number)

    def _accumulate_gradients(self, batch: Batch) -> torch.Tensor:
        """Accumulate the gradients of this process's share; return its sums, float64 (K,)."""
        training, device = self.training, self.group.device
        last = len(batch.micro_batches) - 1
        sums = torch.zeros((), dtype=torch.float64, device=device)
        for number, micro_batch in enumerate(batch.micro_batches):
            # A GPU draws the numbers of all micro-batches from one generator.
            if number == 0 or device.type == "cpu":
                seed_dropout(training.model, training.dropout_key(number))
            with self._sync_gradients(number == last):
                with torch.autocast(device.type, torch.bfloat16, enabled=training.is_bf16):
                    loss, step_sums = training.training_step(
                        self._model, micro_batch.to(device), batch
                    )
                # DistributedDataParallel averages over processes; the loss needs the sum.
                share: torch.Tensor = loss * self.group.world_size
                share.backward()  # type: ignore[no-untyped-call]
            sums = sums + step_sums.to(torch.float64)
        return sums

    def _sync_gradients(self, is_last: bool) -> AbstractContextManager[Any]:
        if is_last or not isinstance(self._model, DistributedDataParallel):
            return contextlib.nullcontext()
        no_sync: AbstractContextManager[Any] = self._model.no_sync()
        return no_sync

    def _synchronize(self, batch: Batch, sums: torch.Tensor) -> torch.Tensor:
        """Return sums over all processes and the first one's clock, in one all-reduce per step."""
        save_seconds = self.training.checkpoint_config.save_minutes * 60
        is_due = time.monotonic() - self._saved_at > save_seconds
        clock = [self._clock.seconds, float(is_due)] if self.group.is_main_process else [0.0, 0.0]
        stop = float(bool(self._stop.reason))
        counts = self.training.count_work(batch)
        host = torch.tensor([*counts, *clock, stop], dtype=torch.float64)
        return self.group.all_reduce_tensor(torch.cat([sums, to_device(host, sums.device)]))

    def _divergence(self, problem: str, batch: Batch, *, number: int) -> DivergenceError:
        # Losses and norms are equal in all processes, so all of them get here.
        kind, names = self.training.batch_contents(batch)
        more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
        error = DivergenceError(
            f"{self.training.name}, step {number}: {problem}. The batch had the "
            f"{kind} {', '.join(names[:_SHOWN_NAMES])}{more}; {self.last_checkpoint()}. "
            f"{self.training.advice}"
        )
        error.add_note(f"all {kind} of the batch: {' '.join(names)}")
        return error

    def last_checkpoint(self) -> str:
        """Return a clause about the last checkpoint, for messages."""
        if self._saved_step is None:
            return "there is no checkpoint yet"
        return (
            f"the last good checkpoint is that of step {self._saved_step} in {self.checkpoints.url}"
        )

    def _after_step(self) -> None:
        self.training.after_step(self)
        save_steps = self.training.checkpoint_config.save_steps
        is_save_step = bool(save_steps) and self.training.steps % save_steps == 0
        if self._should_save or is_save_step:
            self.save()

    def _check_stop(self) -> None:
        # Several processes stop only at the all-reduce after a step, where all know of the request:
        # a process that stopped elsewhere would wait at its checkpoint for the others.
        if not (self._is_stopping or (self.group.world_size == 1 and self._stop.reason)):
            return
        training = self.training
        self.save_if_needed()
        of = "" if training.total_steps is None else f" of {training.total_steps}"
        raise TrainingError(
            f"{training.name}: stopped after step {training.steps}{of} ({self._stop.reason}), "
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


def _wrap(training: TrainingModule[Any], *, group: ProcessGroup) -> nn.Module:
    model = training.model
    if training.is_compiled:
        compile_blocks(model)
    if group.world_size == 1:
        return model
    # Without static_graph, which fails if the first backward pass is under no_sync.
    ids = [group.device.index] if group.device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)
