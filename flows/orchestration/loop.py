"""Running the steps of a run in this process, without any server."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import FrameType

from flows.engine.stages import Step
from flows.engine.steps import RETRY_DELAYS, StepResult, is_passing
from flows.orchestration.run import Run, look_pauses
from flows.store.leases import Holder

_LOGGER = logging.getLogger(__name__)
Outcome = StepResult | Holder | BaseException


def run_steps(run: Run) -> None:
    """Run every step as soon as its inputs are there, as many at once as the recipe allows.

    What another run builds is passed over, and looked at again while nothing else is left or when
    something else is done. One that failed keeps those from running that need it, and no others.
    """
    waiting = dict(run.by_label)
    later: dict[str, float] = {}
    tries, looks = Counter[str](), defaultdict[str, Iterator[float]](look_pauses)
    running: dict[Future[StepResult | Holder], Step] = {}
    with _pool(run) as pool:
        while True:
            moment = time.monotonic()
            begun = {step.label for step in running.values()}
            ready = [s for s in waiting.values() if s.label not in begun and run.has_inputs(s)]
            due = [step for step in ready if later.get(step.label, moment) <= moment]
            outcomes: list[tuple[Step, Outcome]] = []
            for step in due[: run.limit - len(running)]:
                if pool is not None:
                    running[pool.submit(run.execute, step)] = step
                    continue
                try:
                    outcomes.append((step, run.execute(step)))
                except Exception as error:
                    outcomes.append((step, error))
            pauses = [later[step.label] - moment for step in ready if step not in due]
            if running:
                pause = min(pauses) if pauses and len(running) < run.limit else None
                for future in wait(running, timeout=pause, return_when=FIRST_COMPLETED).done:
                    outcomes.append((running.pop(future), future.exception() or future.result()))
            elif not outcomes:
                if not pauses:
                    break
                time.sleep(min(pauses))
            for step, outcome in outcomes:
                if (wanted := _pause(run, step, outcome, tries=tries, looks=looks)) is None:
                    del waiting[step.label]
                else:
                    later[step.label] = time.monotonic() + wanted
    for step in waiting.values():
        run.say_not_run(step.label, list(step.inputs.values()))


def _pause(
    run: Run,
    step: Step,
    outcome: Outcome,
    *,
    tries: Counter[str],
    looks: dict[str, Iterator[float]],
) -> float | None:
    """Seconds until a step is to be tried again; None where it is over."""
    if isinstance(outcome, Holder):
        return next(looks[step.label])
    if isinstance(outcome, StepResult):
        return None
    if not isinstance(outcome, Exception):
        raise outcome
    if is_passing(outcome) and tries[step.label] < len(RETRY_DELAYS):
        delay = RETRY_DELAYS[tries[step.label]]
        tries[step.label] += 1
        run.say(f"{step.label}  {outcome}; trying again in {delay:g} s")
        return delay
    run.fail(step, outcome)  # raised again at the end, when independent steps have run
    return None


@contextlib.contextmanager
def _pool(run: Run) -> Iterator[ThreadPoolExecutor | None]:
    """Threads for steps side by side; None for one at a time, which a signal interrupts itself."""
    if run.limit == 1:
        yield None
        return
    pool = ThreadPoolExecutor(max_workers=run.limit, thread_name_prefix="bertloom-step")
    try:
        yield pool
    except BaseException:
        # A signal reaches this thread alone. A job of Beam goes on to its end; whoever cannot wait
        # sends a second signal: this process is gone then, as after a crash, which loses nothing.
        run.stop()
        _LOGGER.warning("stopping the steps in progress; a second signal ends them at once")
        with ended_by_a_second_signal():
            pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


@contextlib.contextmanager
def ended_by_a_second_signal() -> Iterator[None]:
    """Within it, SIGINT and SIGTERM end this process at once, without a word to any thread."""

    def end(number: int, _frame: FrameType | None) -> None:
        os._exit(128 + number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {number: signal.signal(number, end) for number in numbers}
    except ValueError:  # not the main thread: signals are somebody else's affair
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
