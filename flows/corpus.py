"""The corpus: from raw dumps to instances."""

from __future__ import annotations

from flows.run.graph import Step, StepGraph
from model import build_examples
from pipelines import (
    build_documents,
    build_instances,
    build_tokens,
    build_vocabulary,
    find_contamination,
    find_near_duplicates,
)
from schemas.corpus_configs import ContaminationConfig, ContaminationRules
from schemas.recipe import Recipe

STAGES = (
    build_documents.STAGE,
    find_contamination.STAGE,
    find_near_duplicates.STAGE,
    build_vocabulary.STAGE,
    build_tokens.STAGE,
    build_instances.STAGE,
)


def corpus_steps(recipe: Recipe, graph: StepGraph) -> None:
    """Add the corpus steps of a recipe: documents, vocabulary, tokens, instances."""
    if recipe.build_documents is None:
        return
    documents = graph.add(build_documents.STAGE, recipe.build_documents)
    excluded = _find_contamination(recipe, graph, documents)
    near = None
    if recipe.find_near_duplicates is not None:
        near = graph.add(
            find_near_duplicates.STAGE,
            recipe.find_near_duplicates,
            documents=documents,
            contamination=excluded,
        )
    vocabulary = graph.add(
        build_vocabulary.STAGE,
        recipe.build_vocabulary,
        documents=documents,
        contamination=excluded,
        near_duplicates=near,
    )
    tokens = graph.add(
        build_tokens.STAGE,
        recipe.build_tokens,
        documents=documents,
        vocabulary=vocabulary,
        contamination=excluded,
        near_duplicates=near,
    )
    for name, config in recipe.build_instances.items():
        graph.add(build_instances.STAGE, config, name, tokens=tokens, vocabulary=vocabulary)


def _find_contamination(recipe: Recipe, graph: StepGraph, documents: Step) -> Step | None:
    """Add the search for the texts of tasks, and the examples of these tasks before it."""
    if (rules := recipe.decontaminate) is None:
        return None
    examples = {
        f"{find_contamination.EXAMPLES}{task}": graph.add(
            build_examples.STAGE, recipe.build_examples[task], task
        )
        for task in rules.tasks
    }
    config = ContaminationConfig(
        **{name: getattr(rules, name) for name in ContaminationRules.model_fields},
        remove_duplicates=recipe.build_tokens.remove_duplicates,
    )
    return graph.add(find_contamination.STAGE, config, documents=documents, **examples)
