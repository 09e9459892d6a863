"""The corpus: from raw dumps to instances."""

from __future__ import annotations

from flows.engine.stages import RecipeSteps
from flows.orchestration.part import part
from pipelines import build_documents, build_instances, build_tokens, build_vocabulary
from schemas.recipe import Recipe


@part("bertloom-corpus", modules=(build_documents, build_vocabulary, build_tokens, build_instances))
def build_corpus(recipe: Recipe, steps: RecipeSteps) -> None:
    """Documents, a vocabulary learnt from them, tokens of both; of these, sets of instances."""
    if recipe.build_documents is None:
        return
    documents = steps.add(build_documents.STAGE, recipe.build_documents)
    vocabulary = steps.add(build_vocabulary.STAGE, recipe.build_vocabulary, documents=documents)
    tokens = steps.add(
        build_tokens.STAGE, recipe.build_tokens, documents=documents, vocabulary=vocabulary
    )
    for name, config in recipe.build_instances.items():
        steps.add(build_instances.STAGE, config, name, tokens=tokens, vocabulary=vocabulary)
