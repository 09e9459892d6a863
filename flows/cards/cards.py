"""Write and read the cards of artifacts: `artifacts/STAGE/ATTEMPT/README.md`."""

from __future__ import annotations

from collections.abc import Mapping

from flows.cards.ancestors import find_ancestors
from flows.run.events import Event, StepFinished
from flows.store.artifacts import CARD, ArtifactStore
from flows.store.runs import read_run
from schemas.errors import ArtifactNotFoundError, ConfigError
from schemas.manifest import Manifest
from schemas.publish_configs import CardsConfig

DATASET_STAGES = ("build-documents", "build-tokens", "build-instances", "build-examples")
MODEL_STAGES = ("pretrain", "finetune", "evaluate")
_STAGES = (*DATASET_STAGES, *MODEL_STAGES)


class CardListener:
    """Listener that writes the card of each artifact that a run builds."""

    def on_event(self, event: Event) -> None:
        """Write a card next to a new artifact."""
        if isinstance(event, StepFinished) and not event.result.was_cached:
            manifest = event.result.manifest
            if has_card(manifest):
                write_card(manifest, store=event.run.store, cards=event.run.recipe.cards)


def card_of(
    manifest: Manifest,
    *,
    store: ArtifactStore,
    cards: CardsConfig,
    exported: Mapping[tuple[str, str], str] | None = None,
) -> str:
    """Return the card of an artifact.

    Args:
        manifest: Manifest of the artifact.
        store: Store of the artifact and its ancestors.
        cards: Licenses and attribution from the recipe.
        exported: Glob pattern of exported files by configuration and split; None: as in the store.

    Raises:
        ConfigError: The artifact has no card.
    """
    # Lazy imports: huggingface_hub would slow down every start of `bertloom run`.
    from flows.cards.dataset_cards import dataset_card
    from flows.cards.model_cards import model_card

    check_has_card(manifest)
    ancestors = find_ancestors(store, manifest)
    if manifest.stage in MODEL_STAGES:
        return str(model_card(manifest, ancestors=ancestors, cards=cards))
    return str(dataset_card(manifest, ancestors=ancestors, cards=cards, exported=exported))


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


def card_path(manifest: Manifest) -> str:
    """Return the path of an artifact's card, relative to the root of the store."""
    return f"{manifest.artifact_path}/{CARD}"


def write_card(manifest: Manifest, *, store: ArtifactStore, cards: CardsConfig) -> None:
    """Write or replace the card of an artifact."""
    text = card_of(manifest, store=store, cards=cards)
    store.backend.replace(card_path(manifest), f"{text}\n".encode())


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
