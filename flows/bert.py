"""The whole of a recipe: corpus, pretraining, fine-tuning, evaluation.

Each part that has something to build is a flow run of its own within this one, so that Prefect's
pages show it by itself. Parts whose artifacts are all there are tasks of this flow: a flow run
costs a second.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from prefect import Flow, flow
from prefect.client.schemas.objects import State

from flows.corpus import CORPUS, build_corpus
from flows.engine.stages import Step
from flows.evaluation import EVALUATION, evaluate
from flows.finetuning import FINETUNING, finetune
from flows.orchestration.flow_parts import FLOW_OPTIONS, steps_of
from flows.orchestration.flow_session import RecipeParameter, Session, begun
from flows.orchestration.step_tasks import error_of_state, run_steps
from flows.pretraining import PRETRAINING, pretrain


class Part(NamedTuple):
    """A flow of its own, and the stages whose steps it runs."""

    stages: tuple[str, ...]
    flow: Flow[..., Any]


PARTS = (
    Part(CORPUS, build_corpus),
    Part(PRETRAINING, pretrain),
    Part(FINETUNING, finetune),
    Part(EVALUATION, evaluate),
)


@flow(name="bertloom", **FLOW_OPTIONS)
def bert(
    recipe: RecipeParameter,
    changes: list[str] | None = None,
    store: str | None = None,
    rebuild: list[str] | None = None,
    until: str = "",
) -> list[dict[str, Any]]:
    """Run a recipe. The references to all artifacts, in order.

    Args:
        recipe: what to run: a packaged recipe's name, a file, or all of it as JSON.
        changes: `KEY=VALUE` texts, as of `bertloom run --set`.
        store: in place of the recipe's own.
        rebuild: stages to build even if they are there: `all`, stage names or step labels.
        until: a stage or a step: it and what it needs are run; "" for all.

    Raises:
        Exception: as the first step that failed; the steps that do not depend on it have run.
    """
    with begun(recipe, changes=changes, store=store, rebuild=rebuild, until=until) as found:
        parts = [(part, steps_of(found.run.steps, part.stages)) for part in PARTS]
        parts = [(part, steps) for part, steps in parts if steps]
        states: dict[str, State[Any]] = {}
        for part, steps in parts:
            is_found = all(step.label in found.cached for step in steps)
            if is_found or len(parts) == 1:
                run_steps(steps, states=states)
            else:
                _run_within(found, part, steps, recipe, states)
    return [ref._asdict() for ref in found.results()]


def _run_within(
    found: Session,
    part: Part,
    steps: list[Step],
    recipe: RecipeParameter,
    states: dict[str, State[Any]],
) -> None:
    own = {step.label for step in steps}
    needed = {label for step in steps for label in step.inputs.values()} - own
    # One state stands for all steps of a part.
    waited = {id(states[label]): states[label] for label in sorted(needed) if label in states}
    ended: Any = part.flow(recipe=recipe, wait_for=list(waited.values()), return_state=True)
    state: State[Any] = ended
    if state.is_completed():
        states.update(dict.fromkeys(own & found.done.keys(), _as_node(state)))
    elif not own & found.failures.keys():
        raise error_of_state(state) or RuntimeError(f"{part.flow.name} ended as {state}")


def _as_node(state: State[Any]) -> State[Any]:
    """A part's state as one that an edge of the run's graph starts from.

    Edges are from tasks, by their ids, but the node of a flow run has the flow run's id.
    """
    details = state.state_details
    named = details.model_copy(update={"task_run_id": details.flow_run_id})
    return state.model_copy(update={"state_details": named})
