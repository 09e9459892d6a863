"""Cards of artifacts: made, written beside them, and read again.

artifacts/STAGE/ATTEMPT/README.md
"""

from __future__ import annotations

import json
import re

from flows.cards.ancestors import find_ancestors
from flows.cards.dataset_cards import Layout, dataset_card
from flows.cards.model_cards import model_card
from flows.cards.parts import Part, parts_of
from flows.run.events import Event, StepFinished
from flows.store.artifacts import CARD, ArtifactStore
from schemas.card_configs import CardsConfig
from schemas.errors import ArtifactCorruptError, ConfigError
from schemas.manifest import Manifest
from schemas.sealed import read_page, sealed_page

_SAID = "bertloom cards"
_SAID_LINE = re.compile(rf"^<!-- {_SAID} (\{{.*\}}) -->$", re.MULTILINE)
_MODELS = ("pretrain", "finetune", "evaluate")
_TABLES = ("documents", "tokens", "instances")


def has_card(manifest: Manifest) -> bool:
    """Whether an artifact is one that people load: rows of a corpus or a task, or a model."""
    return manifest.stage in _MODELS or is_dataset(manifest)


def is_dataset(manifest: Manifest) -> bool:
    """Whether it holds rows that people load."""
    return manifest.table in _TABLES or manifest.table.endswith("-examples")


def card_of(
    manifest: Manifest,
    *,
    store: ArtifactStore,
    cards: CardsConfig,
    layout: Layout | None = None,
) -> str:
    """The card of an artifact.

    Args:
        manifest: of the artifact.
        store: where it and what it was made from are.
        cards: what the recipe says of licences.
        layout: how its rows lie; None: as in the store.

    Raises:
        ConfigError: the artifact has none: it holds neither rows nor a model.
        ArtifactCorruptError: the manifest of something that it was made from is damaged.
    """
    if not has_card(manifest):
        raise ConfigError(
            f"{manifest.artifact_id} of {manifest.stage} has no card: expected an artifact with "
            "rows (documents, tokens, instances, examples) or a model (pretrain, finetune, "
            "evaluate)"
        )
    ancestors = find_ancestors(store, manifest)
    if not is_dataset(manifest):
        return model_card(manifest, ancestors=ancestors, cards=cards)
    parts = parts_of(manifest)
    return dataset_card(
        manifest,
        ancestors=ancestors,
        parts=parts,
        layout=layout or Layout({(p.config, p.split): _pattern(p) for p in parts}, "ipc"),
        cards=cards,
    )


def _pattern(part: Part) -> str:
    """Glob pattern of the files of a split in the store, whatever their physical names."""
    first = part.entries[0].path
    folder, _, name = first.rpartition("/")
    if folder:
        return f"data/{folder}/*.arrow"
    if name.startswith("part-"):
        return "data/part-*.arrow"
    return f"data/{name.removesuffix('.arrow')}-????????????.arrow"


class CardListener:
    """Listener that writes the card of each artifact that a run builds."""

    def on_event(self, event: Event) -> None:
        """Write a card next to a new artifact."""
        if isinstance(event, StepFinished) and not event.result.was_cached:
            manifest = event.result.manifest
            if has_card(manifest):
                write_card(manifest, store=event.run.store, cards=event.run.recipe.cards)


def card_path(manifest: Manifest) -> str:
    """Where the card lies, relative to the root of the store."""
    return f"{manifest.location}/{CARD}"


def write_card(manifest: Manifest, *, store: ArtifactStore, cards: CardsConfig) -> None:
    """Write the card beside an artifact, in the place of one that is there."""
    text = card_of(manifest, store=store, cards=cards)
    # What the recipe said, for cards that are made later, such as that of an export.
    said = json.dumps(cards.model_dump(), ensure_ascii=False).replace(">", "\\u003e")
    page = f"{text}\n<!-- {_SAID} {said} -->\n".encode()
    store.backend.replace(card_path(manifest), sealed_page(page))


def cards_said(manifest: Manifest, *, store: ArtifactStore) -> CardsConfig:
    """What was said of licences when an artifact, or else its documents, were made.

    Raises:
        ArtifactCorruptError: a card is not what was written.
    """
    for found in find_ancestors(store, manifest).manifests:
        if found is manifest or found.stage == "build-documents":
            page = read_card(found, store=store)
            if page is not None and (said := _SAID_LINE.search(page)):
                return CardsConfig.model_validate_json(said[1])
    return CardsConfig()


def read_card(manifest: Manifest, *, store: ArtifactStore) -> str | None:
    """Return the card of an artifact, None if it has none.

    Raises:
        ArtifactCorruptError: it is not what was written.
    """
    stored = store.backend.read_if_exists(card_path(manifest))
    if stored is None:
        return None
    try:
        return read_page(stored).decode()
    except ValueError as error:
        raise ArtifactCorruptError(
            f"{store.url(card_path(manifest))}: {error}; `bertloom card {manifest.artifact_id} "
            "--write` writes it anew"
        ) from error
