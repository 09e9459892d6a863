"""Export an artifact as a folder that other libraries open."""

from __future__ import annotations

from typing import Literal, get_args

from flows.cards.cards import CARD, MODEL_STAGES, card_of, check_has_card
from flows.cards.splits import DEFAULT, Suffix, splits_of
from flows.export.atomic_folder import atomic_folder
from flows.export.models import published_model, write_model, write_tokenizer
from flows.export.rows import write_split
from flows.run.stages import summarize
from flows.run.step_execution import stage_input
from flows.store.artifacts import ArtifactStore
from schemas.errors import UsageError
from schemas.manifest import Manifest
from schemas.publish_configs import CardsConfig

Format = Literal["hf", "parquet", "arrow-stream"]
FORMATS = get_args(Format)


def export(
    manifest: Manifest,
    target: str,
    *,
    store: ArtifactStore,
    format: Format = "hf",
    cards: CardsConfig | None = None,
) -> str:
    """Write an artifact and its card to a new folder. Equal artifacts give equal bytes.

    Args:
        manifest: Manifest of an artifact that holds rows or a model.
        target: Path or fsspec URL of the folder, new or empty.
        store: Store of the artifact.
        format: `hf`: rows as Parquet, models in the layout of Hugging Face. Rows also: `parquet`,
            or `arrow-stream`, which `datasets.Dataset.from_file` maps into memory.
        cards: Licenses and attribution for the card.

    Returns:
        A summary of what was written, such as `22,338 train, 297 held_out`.

    Raises:
        UsageError: The folder is not empty, or the artifact has no such format.
        ConfigError: The artifact cannot be exported.
        ArtifactCorruptError: A file of the artifact does not match its manifest.
    """
    check_has_card(manifest)
    is_model = manifest.stage in MODEL_STAGES
    formats = FORMATS[:1] if is_model else FORMATS
    if format not in formats:
        raise UsageError(
            f"--format: expected {' or '.join(formats)} for {manifest.stage}, got {format}."
        )
    cards = cards or CardsConfig()
    if is_model:
        return _write_model(manifest, target, store=store, cards=cards)
    suffix: Suffix = "arrow" if format == "arrow-stream" else "parquet"
    return _write_rows(manifest, target, store=store, suffix=suffix, cards=cards)


def _write_model(
    manifest: Manifest, target: str, *, store: ArtifactStore, cards: CardsConfig
) -> str:
    model = published_model(manifest, store=store)
    with atomic_folder(target) as folder:
        source = stage_input("model", model, store=store)
        write_model(source, folder=folder, add_pooling=model.stage == "pretrain")
        folder.write(CARD, card_of(manifest, store=store, cards=cards).encode())
    return summarize(manifest)


def _write_rows(
    manifest: Manifest, target: str, *, store: ArtifactStore, suffix: Suffix, cards: CardsConfig
) -> str:
    splits = splits_of(manifest)
    source = stage_input(manifest.table_name, manifest, store=store)
    with atomic_folder(target) as folder:
        for split in splits:
            write_split(split, source, folder=folder, suffix=suffix)
        if (ref := manifest.input("vocabulary")) is not None:  # meaning of the token ids
            vocabulary = store.read_manifest(ref.manifest)
            write_tokenizer(stage_input("vocabulary", vocabulary, store=store), folder=folder)
        card = card_of(manifest, store=store, cards=cards, suffix=suffix)
        folder.write(CARD, card.encode())
    return ", ".join(f"{s.rows:,} {s.name if s.config == DEFAULT else s.config}" for s in splits)
