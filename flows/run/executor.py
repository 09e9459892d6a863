"""Execute the steps of a run in this process."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from types import FrameType
from typing import Any

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    wait_chain,
    wait_fixed,
)

from flows.run.graph import Step
from flows.run.run import RETRY_DELAYS, Run, poll_delays
from flows.run.step_execution import StepResult, is_transient
from flows.store.leases import LeaseHolder

_LOGGER = logging.getLogger(__name__)


def run_steps(run: Run) -> None:
    """Execute every step as soon as its inputs are ready, `run.max_parallel` concurrently.

    A step that another run builds is deferred while other steps are ready. A failed step skips the
    steps that need it, and no others.
    """
    pending = dict(run.by_label)
    running: dict[Future[StepResult | LeaseHolder], Step] = {}
    due: dict[str, float] = defaultdict(float)
    delays: dict[str, Iterator[float]] = defaultdict(poll_delays)
    with _executor(run) as executor:
        while True:
            started = {step.label for step in running.values()}
            ready = [s for s in pending.values() if s.label not in started and run.is_ready(s)]
            now = time.monotonic()
            for step in [s for s in ready if due[s.label] <= now][
                : run.max_parallel - len(running)
            ]:
                running[executor.submit(_retrying(run, step), run.execute, step)] = step
            if not running:
                if not ready:
                    break
                run.wait(max(0.0, min(due[step.label] for step in ready) - now))
                continue
            later = [due[s.label] - now for s in ready if due[s.label] > now]
            for future in wait(running, min(later, default=None), FIRST_COMPLETED).done:
                step = running.pop(future)
                if isinstance(_outcome(run, step, future), LeaseHolder):
                    due[step.label] = time.monotonic() + next(delays[step.label])
                else:
                    del pending[step.label]
    for step in pending.values():
        run.skip(step)


def _retrying(run: Run, step: Step) -> Retrying:
    """Return a caller that tries again after a transient error."""

    def report(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, Exception):
            run.fail(step, error, retry_delay=state.upcoming_sleep)

    return Retrying(
        retry=retry_if_exception(is_transient),
        stop=stop_after_attempt(1 + len(RETRY_DELAYS)),
        wait=wait_chain(*(wait_fixed(delay) for delay in RETRY_DELAYS)),
        sleep=run.wait,
        before_sleep=report,
        reraise=True,
    )


def _outcome(
    run: Run, step: Step, future: Future[StepResult | LeaseHolder]
) -> StepResult | LeaseHolder | None:
    """Return what a step ended with; report its error to the run and return None."""
    try:
        return future.result()
    except Exception as error:
        run.fail(step, error)
        return None


class _InlineExecutor(Executor):
    """Runs each call in the thread that submits it, where a signal interrupts the call itself."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextlib.contextmanager
def _executor(run: Run) -> Iterator[Executor]:
    if run.max_parallel == 1:
        yield _InlineExecutor()
        return
    pool = ThreadPoolExecutor(run.max_parallel, thread_name_prefix="bertloom-step")
    try:
        yield pool
    except BaseException:
        # A signal reaches this thread alone, and a Beam job in another one runs to its end.
        run.stop()
        _LOGGER.warning("stopping the steps in progress; a second signal ends them immediately")
        with end_on_second_signal():
            pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


@contextlib.contextmanager
def end_on_second_signal() -> Iterator[None]:
    """Let SIGINT and SIGTERM end this process immediately while the block runs.

    The store is as after a crash then: what was finished is cached, the next run resumes.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        os._exit(128 + number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        handlers = {number: signal.signal(number, end) for number in numbers}
    except ValueError:  # only the main thread can set handlers
        yield
        return
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
