"""The corpus: from raw dumps to instances."""

from __future__ import annotations

from flows.engine.stages import RecipeSteps, Step
from flows.orchestration.part import part
from model import build_examples
from pipelines import (
    build_documents,
    build_instances,
    build_tokens,
    build_vocabulary,
    find_contamination,
    find_near_duplicates,
)
from schemas.contamination_configs import ContaminationConfig, ContaminationRules
from schemas.recipe import Recipe


@part(
    "bertloom-corpus",
    modules=(
        build_documents,
        find_contamination,
        find_near_duplicates,
        build_vocabulary,
        build_tokens,
        build_instances,
    ),
)
def build_corpus(recipe: Recipe, steps: RecipeSteps) -> None:
    """Documents, a vocabulary learnt from them, tokens of both; of these, sets of instances."""
    if recipe.build_documents is None:
        return
    documents = steps.add(build_documents.STAGE, recipe.build_documents)
    found = _contamination(recipe, steps, documents)
    near = None
    if recipe.find_near_duplicates is not None:
        near = steps.add(
            find_near_duplicates.STAGE,
            recipe.find_near_duplicates,
            documents=documents,
            contamination=found,
        )
    vocabulary = steps.add(
        build_vocabulary.STAGE,
        recipe.build_vocabulary,
        documents=documents,
        contamination=found,
        near_duplicates=near,
    )
    tokens = steps.add(
        build_tokens.STAGE,
        recipe.build_tokens,
        documents=documents,
        vocabulary=vocabulary,
        contamination=found,
        near_duplicates=near,
    )
    for name, config in recipe.build_instances.items():
        steps.add(build_instances.STAGE, config, name, tokens=tokens, vocabulary=vocabulary)


def _contamination(recipe: Recipe, steps: RecipeSteps, documents: Step) -> Step | None:
    """The search for the texts of tasks, whose examples are read before those of others."""
    if (rules := recipe.decontaminate) is None:
        return None
    examples = {
        f"{find_contamination.EXAMPLES}{task}": steps.add(
            build_examples.STAGE, recipe.build_examples[task], task
        )
        for task in rules.tasks
    }
    config = ContaminationConfig(
        **{name: getattr(rules, name) for name in ContaminationRules.model_fields},
        remove_duplicates=recipe.build_tokens.remove_duplicates,
    )
    return steps.add(find_contamination.STAGE, config, documents=documents, **examples)
