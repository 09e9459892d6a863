"""Running a recipe: with Prefect, or without any server in this process.

The results are the same; they come from `flows.runs.execute_step` either way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from flows.runs import (
    RETRY_DELAYS,
    RunPlan,
    Say,
    StepRef,
    execute_step,
    is_passing,
    load_results,
    start_run,
    write_record,
)
from flows.stage_table import Step
from flows.stages import StepResult
from schemas.errors import ConfigError
from schemas.recipe import Recipe

# Set before Prefect is imported, where the user has not said otherwise.
_PREFECT_SETTINGS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # A first start on an empty database has taken 16 s on an idle machine; Prefect waits 20.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # A run that was killed is told by its missing heartbeat.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # The steps' own lines say what happens; Prefect's log goes to its server all the same.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
}


def prepare_prefect() -> None:
    """No telemetry, time for a cold start, a quiet console: unless the user says otherwise."""
    for name, value in _PREFECT_SETTINGS.items():
        os.environ.setdefault(name, value)


def run_recipe(
    recipe: Recipe,
    *,
    say: Say,
    engine: str = "prefect",
    rebuild: Sequence[str] = (),
    until: str = "",
) -> list[StepResult]:
    """Run a recipe.

    Args:
        recipe: what to run.
        say: is given a line of text for each step as it ends.
        engine: `prefect` or `local`.
        rebuild: stages to build even if they are there: `all`, stage names or step labels.
        until: a stage or a step: it and what it needs are run; "" for all.

    Returns:
        The result of every step, in order.

    Raises:
        BertloomError: a step failed; those that do not depend on it have run.
    """
    if engine not in ENGINES:
        raise ConfigError(f"unknown engine {engine!r}: choose one of {', '.join(ENGINES)}")
    return ENGINES[engine](recipe, say, rebuild, until)


def _with_prefect(recipe: Recipe, say: Say, rebuild: Sequence[str], until: str) -> list[StepResult]:
    prepare_prefect()
    try:
        from flows.corpus import build_corpus  # Prefect takes a second or two to load
        from flows.evaluation import evaluate
        from flows.finetuning import finetune
        from flows.pretraining import pretrain
        from flows.tasks import run_flow
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prefect":
            raise
        raise ConfigError(
            "Prefect is not installed: pip install 'bertloom[flows]', or use --engine local"
        ) from error
    if recipe.build_examples:
        # Without an aim all is run; a recipe may name examples alone, to look at them.
        flow = finetune if until.partition(".")[0] == "finetune" else evaluate
    else:
        flow = pretrain if recipe.pretrain else build_corpus
    return run_flow(flow, recipe, say=say, rebuild=rebuild, until=until)


def _in_this_process(
    recipe: Recipe, say: Say, rebuild: Sequence[str], until: str
) -> list[StepResult]:
    run = start_run(recipe, rebuild=rebuild, until=until)
    done: dict[str, StepRef] = {}
    failures: dict[str, Exception] = {}
    for step in run.steps:
        blocked = [label for label in step.inputs.values() if label not in done]
        if blocked:
            say(f"{step.label}  not run: needs {', '.join(blocked)}")
            continue
        try:
            done[step.label] = _with_retries(run, step, done, say)
        except KeyboardInterrupt:
            _record(run, "interrupted", done, failures)
            raise
        except Exception as error:  # raised again below, when independent steps have run
            failures[step.label] = error
            say(f"{step.label}  FAILED: {error}")
    _record(run, "failed" if failures else "completed", done, failures)
    if failures:
        raise next(iter(failures.values()))
    return load_results(recipe, list(done.values()))


def _with_retries(run: RunPlan, step: Step, done: Mapping[str, StepRef], say: Say) -> StepRef:
    inputs = {name: done[label] for name, label in step.inputs.items()}
    for delay in (*RETRY_DELAYS, None):
        try:
            return execute_step(
                run.recipe,
                step.label,
                inputs=inputs,
                run_id=run.run_id,
                rebuild=step.label in run.rebuilt,
                say=say,
            )
        except Exception as error:
            if delay is None or not is_passing(error):
                raise
            say(f"{step.label}  {error}; trying again in {delay:g} s")
            time.sleep(delay)
    raise AssertionError("unreachable: the last try returns or raises")


def _record(
    run: RunPlan, state: str, done: Mapping[str, StepRef], failures: Mapping[str, Exception]
) -> None:
    texts = {label: f"{type(error).__name__}: {error}" for label, error in failures.items()}
    write_record(run, state=state, results=list(done.values()), failures=texts)


ENGINES: dict[str, Callable[[Recipe, Say, Sequence[str], str], list[StepResult]]] = {
    "prefect": _with_prefect,
    "local": _in_this_process,
}
