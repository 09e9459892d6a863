"""Cards of artifacts, as `bertloom card` prints them and `bertloom export` writes them."""

from __future__ import annotations

from flows.cards.ancestors import find_ancestors
from flows.cards.dataset_cards import dataset_body, dataset_metadata
from flows.cards.model_cards import model_body, model_metadata
from flows.cards.splits import Suffix
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run
from schemas.errors import ArtifactNotFoundError, ConfigError
from schemas.manifest import Manifest
from schemas.publish_configs import CardsConfig

CARD = "README.md"
"""Name of the card in an exported folder."""

DATASET_STAGES = ("build-documents", "build-tokens", "build-instances", "build-examples")
MODEL_STAGES = ("pretrain", "finetune", "evaluate")
_STAGES = (*DATASET_STAGES, *MODEL_STAGES)


def card_of(
    manifest: Manifest, *, store: ArtifactStore, cards: CardsConfig, suffix: Suffix = "parquet"
) -> str:
    """Return the card of an artifact: metadata for the Hub in YAML, and the text.

    Args:
        manifest: Manifest of the artifact.
        store: Store of the artifact and its ancestors.
        cards: Licenses and attribution from the recipe.
        suffix: Format of the exported rows that the card describes.

    Raises:
        ConfigError: The artifact has no card.
    """
    check_has_card(manifest)
    ancestors = find_ancestors(store, manifest)
    if manifest.stage in MODEL_STAGES:
        metadata = model_metadata(manifest, ancestors=ancestors, cards=cards)
        return f"---\n{metadata}\n---\n\n{model_body(manifest, ancestors=ancestors, cards=cards)}"
    metadata = dataset_metadata(manifest, ancestors=ancestors, cards=cards, suffix=suffix)
    body = dataset_body(manifest, ancestors=ancestors, cards=cards, suffix=suffix)
    return f"---\n{metadata}\n---\n\n{body}"


def card_body(manifest: Manifest, *, store: ArtifactStore, cards: CardsConfig) -> str:
    """Return the text of a card without its metadata (arguments: `card_of`)."""
    check_has_card(manifest)
    ancestors = find_ancestors(store, manifest)
    if manifest.stage in MODEL_STAGES:
        return model_body(manifest, ancestors=ancestors, cards=cards)
    return dataset_body(manifest, ancestors=ancestors, cards=cards, suffix="parquet")


def has_card(manifest: Manifest) -> bool:
    """Return whether an artifact holds rows or a model that people load."""
    return manifest.stage in _STAGES


def check_has_card(manifest: Manifest) -> None:
    """Raise ConfigError unless an artifact holds rows or a model that people load."""
    if not has_card(manifest):
        expected = f"{', '.join(_STAGES[:-1])} or {_STAGES[-1]}"
        raise ConfigError(
            f"{manifest.artifact_id}: expected an artifact of {expected}, got {manifest.stage}."
        )


def recorded_cards_config(manifest: Manifest, *, store: ArtifactStore) -> CardsConfig:
    """Return the `cards` of the recipe that built an artifact; empty if its run was deleted.

    Raises:
        ArtifactCorruptError: The record of the run is corrupt.
    """
    try:
        recipe = read_run(store, manifest.produced_by.run_id).recipe
    except ArtifactNotFoundError:
        return CardsConfig()
    return CardsConfig.model_validate(recipe.get("cards", {}))
