"""Export an artifact as a folder that other libraries open."""

from __future__ import annotations

from flows.cards.cards import CARD, MODEL_STAGES, card_of, check_has_card
from flows.cards.splits import DEFAULT, splits_of
from flows.export.atomic_folder import AtomicFolder, atomic_folder
from flows.export.models import published_model, write_model, write_tokenizer
from flows.export.rows import write_split
from flows.run.stages import summarize
from flows.run.step_execution import stage_input
from flows.store.artifacts import ArtifactStore
from schemas.manifest import Manifest
from schemas.publish_configs import CardsConfig


def export(
    manifest: Manifest, target: str, *, store: ArtifactStore, cards: CardsConfig | None = None
) -> str:
    """Write an artifact and its card to a new folder. Equal artifacts give equal bytes.

    Rows are Parquet; a model has the layout of Hugging Face.

    Args:
        manifest: Manifest of an artifact that holds rows or a model.
        target: Path or fsspec URL of the folder, new or empty.
        store: Store of the artifact.
        cards: Licenses and attribution for the card.

    Returns:
        A summary of what was written, such as `22,338 train, 297 held_out`.

    Raises:
        UsageError: The folder is not empty.
        ConfigError: The artifact cannot be exported.
        ArtifactCorruptError: A file of the artifact does not match its manifest.
    """
    check_has_card(manifest)
    is_model = manifest.stage in MODEL_STAGES
    model = published_model(manifest, store=store) if is_model else None
    with atomic_folder(target) as folder:
        if model is not None:
            source = stage_input("model", model, store=store)
            write_model(source, folder=folder, add_pooling=model.stage == "pretrain")
            summary = summarize(manifest)
        else:
            summary = _write_rows(manifest, folder, store=store)
        card = card_of(manifest, store=store, cards=cards or CardsConfig())
        folder.write(CARD, card.encode())
    return summary


def _write_rows(manifest: Manifest, folder: AtomicFolder, *, store: ArtifactStore) -> str:
    splits = splits_of(manifest)
    source = stage_input(manifest.table_name, manifest, store=store)
    for split in splits:
        write_split(split, source, folder=folder)
    if (ref := manifest.input("vocabulary")) is not None:  # meaning of the token ids
        vocabulary = store.read_manifest(ref.manifest)
        write_tokenizer(stage_input("vocabulary", vocabulary, store=store), folder=folder)
    return ", ".join(f"{s.rows:,} {s.name if s.config == DEFAULT else s.config}" for s in splits)
