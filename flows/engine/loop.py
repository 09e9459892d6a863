"""Running a recipe in this process, without any server.

A step begins when all that it needs is there; steps that do not need each other run side by side,
up to the recipe's limit.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from flows.engine.retries import RETRY_DELAYS, is_passing
from flows.engine.running import (
    RunPlan,
    Say,
    StepRef,
    execute_step,
    failed_line,
    finish_run,
    load_results,
    start_run,
    step_limit,
)
from flows.engine.stages import Step
from flows.engine.steps import StepResult
from flows.store.processes import ended_by_a_second_signal
from flows.store.runs import RunState
from schemas.recipe import Recipe

_LOGGER = logging.getLogger(__name__)
_THREADS = "bertloom-step"
_STOP_SECONDS = 0.5


def run_in_this_process(
    recipe: Recipe, *, say: Say, rebuild: Sequence[str], until: str
) -> list[StepResult]:
    """Run a recipe's steps; see `flows.engine.engines.run_recipe`."""
    run = start_run(recipe, rebuild=rebuild, until=until, engine="local")
    done: dict[str, StepRef] = {}
    failures: dict[str, Exception] = {}
    limit = step_limit(recipe.execution)
    try:
        if limit == 1:
            _one_by_one(run, done, failures, say)
        else:
            _side_by_side(run, done, failures, say, limit=limit)
    except BaseException as error:  # a signal: what was finished is there, and is recorded
        said = {**failures, "": error}
        finish_run(run, state="interrupted", results=_in_order(run, done), failures=said)
        raise
    state: RunState = "failed" if failures else "completed"
    finish_run(run, state=state, results=_in_order(run, done), failures=failures)
    if failures:
        raise next(iter(failures.values()))
    return load_results(run, _in_order(run, done))


def _in_order(run: RunPlan, done: Mapping[str, StepRef]) -> list[StepRef]:
    return [done[step.label] for step in run.steps if step.label in done]


def _one_by_one(
    run: RunPlan, done: dict[str, StepRef], failures: dict[str, Exception], say: Say
) -> None:
    for step in run.steps:
        blocked = [label for label in step.inputs.values() if label not in done]
        if blocked:
            say(_not_run(step, blocked))
            continue
        try:
            done[step.label] = _with_retries(run, step, done, say)
        except Exception as error:  # raised again by the caller, when independent steps have run
            failures[step.label] = error
            say(failed_line(step.label, error))


def _side_by_side(
    run: RunPlan,
    done: dict[str, StepRef],
    failures: dict[str, Exception],
    say: Say,
    *,
    limit: int,
) -> None:
    waiting = list(run.steps)
    running: dict[Future[StepRef], Step] = {}
    stopping = threading.Event()
    with _threads(limit, stopping) as pool:
        while waiting or running:
            ready = [s for s in waiting if all(label in done for label in s.inputs.values())]
            for step in ready[: limit - len(running)]:
                waiting.remove(step)
                running[pool.submit(_with_retries, run, step, dict(done), say, stopping)] = step
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                step = running.pop(future)
                error = future.exception()
                if error is None:
                    done[step.label] = future.result()
                elif isinstance(error, Exception):
                    failures[step.label] = error
                    say(failed_line(step.label, error))
                else:
                    raise error
    for step in waiting:
        say(_not_run(step, [label for label in step.inputs.values() if label not in done]))


@contextlib.contextmanager
def _threads(limit: int, stopping: threading.Event) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(max_workers=limit, thread_name_prefix=_THREADS)
    try:
        yield pool
    except BaseException:
        # A signal reaches this thread alone: the others are told, those that train and those that
        # wait for another run or another try.
        stopping.set()
        pool.shutdown(wait=False, cancel_futures=True)
        _stop_steps()
        raise
    pool.shutdown()


def _stop_steps() -> None:
    """Wait for the steps in progress, of which trainings are asked to stop.

    A job of Beam goes on to its end. Whoever cannot wait sends a second signal: this process is
    gone then, as after a crash, which loses nothing.
    """
    from model.processes.launcher import stop_running_calls

    _LOGGER.warning("stopping the steps in progress; a second signal ends them at once")
    with ended_by_a_second_signal():
        while any(thread.name.startswith(_THREADS) for thread in threading.enumerate()):
            # More than once: one that was just about to start has no process to be asked yet.
            stop_running_calls()
            time.sleep(_STOP_SECONDS)


def _not_run(step: Step, blocked: Sequence[str]) -> str:
    return f"{step.label}  not run: needs {', '.join(blocked)}"


def _with_retries(
    run: RunPlan,
    step: Step,
    done: Mapping[str, StepRef],
    say: Say,
    stopping: threading.Event | None = None,
) -> StepRef:
    inputs = {name: done[label] for name, label in step.inputs.items()}
    for delay in (*RETRY_DELAYS, None):
        try:
            return execute_step(run, step.label, inputs=inputs, say=say, stopping=stopping)
        except Exception as error:
            if delay is None or not is_passing(error) or (stopping and stopping.is_set()):
                raise
            say(f"{step.label}  {error}; trying again in {delay:g} s")
            if stopping is None:
                time.sleep(delay)
            elif stopping.wait(delay):
                raise
    raise AssertionError("unreachable: the last try returns or raises")
