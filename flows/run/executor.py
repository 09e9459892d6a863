"""The order in which the steps of a run are executed, and their execution in this process."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import FrameType
from typing import Any

from flows.run.graph import Step
from flows.run.run import RETRY_DELAYS, Run, poll_delays
from flows.run.step_execution import is_transient

Submit = Callable[[Step], Future[Any] | None]
"""Executes a step: now, and returns None, or in another thread."""

_LOGGER = logging.getLogger(__name__)


def run_steps(run: Run, submit: Submit) -> None:
    """Submit every step as soon as its inputs are ready, `run.max_parallel` concurrently.

    A step that another run builds comes after the other steps that are ready. A failed step skips
    the steps that need it, and no others.

    Args:
        run: Run that has started.
        submit: Executes a step and reports its failure to the run.
    """
    pending, running, delays = dict(run.by_label), set[Future[Any]](), poll_delays()
    with _stop_on_error(run, running):
        while True:
            ready = [step for step in pending.values() if run.is_ready(step)]
            has_slot = len(running) < run.max_parallel
            available = (step for step in ready if has_slot and run.claim(step))
            if (step := next(available, None)) is not None:
                del pending[step.label]
                if (future := submit(step)) is not None:
                    running.add(future)
                delays = poll_delays()
            elif running:
                timeout = next(delays) if ready and has_slot else None
                done, _ = wait(running, timeout, FIRST_COMPLETED)
                running -= done
                for future in done:
                    future.result()
            elif ready:
                run.wait(next(delays))
            else:
                break
    for step in pending.values():
        run.skip(step)


@contextlib.contextmanager
def _stop_on_error(run: Run, running: set[Future[Any]]) -> Iterator[None]:
    """Stop the steps in progress if the block ends with an error or a signal."""
    try:
        yield
    except BaseException:
        run.stop()
        # A signal reaches this thread alone, and a Beam job in another one runs to its end.
        if unfinished := [future for future in running if not future.done()]:
            _LOGGER.warning("stopping the steps in progress; a second signal ends them immediately")
            with end_on_second_signal():
                wait(unfinished)
        raise


@contextlib.contextmanager
def local_executor(run: Run) -> Iterator[Submit]:
    """Yield a function that executes a step in this process, without a server.

    It tries again after a transient error. With `run.max_parallel` 1, steps run in this thread,
    where a signal interrupts them.
    """

    def execute(step: Step) -> None:
        for delay in (*RETRY_DELAYS, None):
            try:
                run.execute(step)
                break
            except Exception as error:
                retry_delay = delay if is_transient(error) else None
                run.fail(step, error, retry_delay=retry_delay)
            if retry_delay is None or run.stopping.wait(retry_delay):
                break

    if run.max_parallel == 1:
        yield execute
        return
    with ThreadPoolExecutor(run.max_parallel, thread_name_prefix="bertloom-step") as pool:
        yield lambda step: pool.submit(execute, step)


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
