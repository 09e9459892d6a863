"""The command that takes artifacts of earlier code as those of today's."""

from __future__ import annotations

from flows.bert import bert
from flows.cli.console import print_json, print_table, say
from flows.cli.options import (
    ChangesOption,
    JsonOption,
    RecipeArgument,
    StoreOption,
    UntilOption,
)
from flows.engine.adopting import adopt as adopt_artifacts
from flows.recipes.files import load_recipe
from flows.store.artifacts import ArtifactStore


def adopt(
    recipe: RecipeArgument,
    changes: ChangesOption = None,
    store: StoreOption = None,
    until: UntilOption = "",
    as_json: JsonOption = False,
) -> None:
    """Take the artifacts that are there as those of today's code, as you know them to be.

    Those of the recipe whose keys differ in nothing but code: for an edit that changes no byte.
    Manifests and lineage say which were adopted.
    """
    loaded = load_recipe(recipe, changes=changes or (), store=store)
    opened = ArtifactStore(loaded.store, create=False)
    done = adopt_artifacts(loaded, bert.steps(loaded, until), store=opened)
    if as_json:
        print_json([step._asdict() for step in done])
        return
    rows = [
        (step.label, step.state, step.artifact_id, f"of {step.of}" if step.of else step.reason)
        for step in done
    ]
    print_table(("step", "state", "artifact", ""), rows)
    count = sum(step.state == "adopted" for step in done)
    say(f"{count} of {len(done)} adopted; `bertloom plan {recipe}` says what a run would build")
