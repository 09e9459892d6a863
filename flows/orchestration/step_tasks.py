"""Steps of a recipe as the tasks of a Prefect flow; the flows themselves are in their own modules.

A thin adapter. Prefect's own result cache is not used: a task asks the artifact store, and where
the artifact is there it ends in a state named `Cached`. Tasks are given the states of those they
need, so that the run's graph has edges, and return small references.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.futures import PrefectFuture
from prefect.states import Completed
from prefect.tasks import Task

from flows.engine.retries import RETRY_DELAYS, is_passing
from flows.engine.running import StepRef, execute_step, failed_line, step_limit
from flows.engine.stages import Step
from flows.orchestration.flow_session import Session, session
from flows.orchestration.views import show_found, watched
from schemas.stage import entry_label


def _may_pass(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    error = error_of_state(state)
    return error is not None and is_passing(error)


def error_of_state(state: State[Any]) -> BaseException | None:
    """What a task or flow failed with."""
    if isinstance(state.data, BaseException):
        return state.data
    found = state.result(raise_on_failure=False)
    return found if isinstance(found, BaseException) else None


@task(
    name="bertloom-step",
    task_run_name="{title}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=len(RETRY_DELAYS),
    retry_delay_seconds=list(RETRY_DELAYS),
    retry_condition_fn=_may_pass,
)
def run_step_task(title: str, labels: list[str], inputs: dict[str, Any]) -> Any:
    """The steps of a bundle; the result is their `StepRef`s as dictionaries.

    Args:
        title: what people see.
        labels: of the steps.
        inputs: states or references of the tasks whose artifacts they read, by label.
    """
    del title, inputs
    found = session()
    refs = [_run_step(found, label) for label in labels]
    result = [ref._asdict() for ref in refs]
    if all(ref.was_cached for ref in refs):
        show_found(found.run, refs)
        return Completed(name="Cached", message=", ".join(r.manifest for r in refs), data=result)
    return result


def _run_step(found: Session, label: str) -> StepRef:
    step = found.run.by_label[label]
    inputs = {name: found.done[needed] for name, needed in step.inputs.items()}
    if label in found.cached:
        ref = execute_step(found.run, label, inputs=inputs, say=found.say, stopping=found.stopping)
    else:
        with watched(found.run, label) as view:
            ref = execute_step(
                found.run, label, inputs=inputs, say=found.say, stopping=found.stopping
            )
            view.show(ref)
    found.done[label] = ref
    return ref


class Bundle(NamedTuple):
    """Steps that are one task: a step, or the cells of a grid where all artifacts are there."""

    title: str
    steps: tuple[Step, ...]

    def needs(self) -> list[str]:
        """Labels of the steps that these read from."""
        return list(dict.fromkeys(label for s in self.steps for label in s.inputs.values()))


def bundles(steps: Sequence[Step], *, cached: frozenset[str]) -> list[Bundle]:
    """The steps in order, as tasks."""
    found = []
    for entry, group in itertools.groupby(steps, key=lambda step: entry_label(step.label)):
        cells = tuple(group)
        if len(cells) > 1 and all(cell.label in cached for cell in cells):
            found.append(Bundle(f"{entry} ({len(cells)} trials)", cells))
        else:
            found += [Bundle(cell.label, (cell,)) for cell in cells]
    return found


def run_steps(steps: Sequence[Step], *, states: dict[str, State[Any]]) -> None:
    """Run steps in the flow one is in. What became of them is in the session.

    A step starts when what it needs is there, as many at once as the recipe's execution allows.
    One that failed keeps those from running that need it, and no others.

    Args:
        steps: each after those that it needs.
        states: by label, the states of the tasks of this flow run; added to.
    """
    found = session()
    waiting = bundles(steps, cached=found.cached)
    limit = step_limit(found.run.recipe.execution)
    if limit == 1:
        _one_by_one(found, waiting, states)
        return
    try:
        _side_by_side(found, waiting, states, limit=limit)
    except Exception:  # none of a step's; those under way end by themselves
        raise
    except BaseException:
        # A signal reaches this thread alone, and Prefect ends no flow, and no part of one, before
        # the tasks in its other threads have ended.
        found.stop()
        raise


def _one_by_one(found: Session, waiting: list[Bundle], states: dict[str, State[Any]]) -> None:
    # In this thread, the main one, so that a signal interrupts the step itself.
    for bundle in waiting:
        if _is_blocked(found, bundle):
            _say_blocked(found, bundle)
            continue
        state: State[Any] = run_step_task(**_arguments(found, bundle, states), return_state=True)
        _note(found, bundle, state, states)


def _side_by_side(
    found: Session, waiting: list[Bundle], states: dict[str, State[Any]], *, limit: int
) -> None:
    ended: SimpleQueue[PrefectFuture[Any]] = SimpleQueue()
    running: dict[str, Bundle] = {}
    while True:
        for bundle in [bundle for bundle in waiting if not _is_blocked(found, bundle)]:
            if len(running) == limit:
                break
            waiting.remove(bundle)
            future = run_step_task.submit(**_arguments(found, bundle, states))
            running[str(future.task_run_id)] = bundle
            future.add_done_callback(ended.put)
        if not running:
            break
        future = ended.get()
        future.wait()  # it has ended; this fetches its state
        _note(found, running.pop(str(future.task_run_id)), future.state, states)
    for bundle in waiting:
        _say_blocked(found, bundle)


def _is_blocked(found: Session, bundle: Bundle) -> bool:
    return any(label not in found.done for label in bundle.needs())


def _say_blocked(found: Session, bundle: Bundle) -> None:
    missing = dict.fromkeys(entry_label(n) for n in bundle.needs() if n not in found.done)
    found.say(f"{bundle.title}  not run: needs {', '.join(missing)}")


def _arguments(found: Session, bundle: Bundle, states: dict[str, State[Any]]) -> dict[str, Any]:
    inputs = {
        label: states[label] if label in states else found.done[label]._asdict()
        for label in bundle.needs()
    }
    return {
        "title": bundle.title,
        "labels": [step.label for step in bundle.steps],
        "inputs": inputs,
    }


def _note(found: Session, bundle: Bundle, state: State[Any], states: dict[str, State[Any]]) -> None:
    if state.is_completed():
        states.update(dict.fromkeys((step.label for step in bundle.steps), state))
        return
    error = error_of_state(state) or RuntimeError(str(state))
    failed = next(step.label for step in bundle.steps if step.label not in found.done)
    found.failures[failed] = error
    found.say(failed_line(failed, error))
