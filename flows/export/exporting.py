"""`bertloom export`: an artifact as a folder that other people's tools open."""

from __future__ import annotations

from typing import Literal, get_args

from flows.cards.cards import card_of, has_card, is_dataset
from flows.cards.dataset_cards import Layout
from flows.cards.parts import Part, parts_of
from flows.export.folders import NewFolder, new_folder
from flows.export.models import model_of, write_model, write_tokenizer
from flows.export.rows import Form, RowsWritten, splits_written, write_part
from flows.run.stages import summarize
from flows.run.step_execution import stage_input
from flows.store.artifacts import CARD, ArtifactStore
from schemas.card_configs import CardsConfig
from schemas.errors import ConfigError, UsageError
from schemas.manifest import Manifest

Format = Literal["hf", "parquet", "arrow-stream"]
FORMATS = get_args(Format)


def export(
    manifest: Manifest,
    target: str,
    *,
    store: ArtifactStore,
    form: Format = "hf",
    cards: CardsConfig | None = None,
) -> str:
    """Write an artifact as a new folder, with its card. The same artifact gives the same bytes.

    Args:
        manifest: of an artifact that holds rows, or a model.
        target: path or fsspec URL of the folder, new or empty.
        store: where the artifact is.
        form: `hf`: rows as Parquet, models in Hugging Face's layout; of rows also `parquet`, or
            `arrow-stream`, which `datasets.Dataset.from_file` maps into memory.
        cards: what is known of licences.

    Returns:
        What was written, for people: `22,338 train, 297 held_out`.

    Raises:
        UsageError: there is something at the target, or no such format of the artifact.
        ConfigError: the artifact holds neither rows nor a model.
        ArtifactCorruptError: it is not what its manifest says.
    """
    said = cards or CardsConfig()
    if form not in FORMATS:
        raise UsageError(f"format {form}: choose one of {', '.join(FORMATS)}")
    if is_dataset(manifest):
        return _export_rows(manifest, target, store=store, form=form, cards=said)
    if not has_card(manifest):
        raise ConfigError(
            f"{manifest.artifact_id} of {manifest.stage}: expected an artifact with rows "
            "(documents, tokens, instances, examples) or a model (pretrain, finetune, evaluate)"
        )
    if form != "hf":
        raise UsageError(f"format {form}: {manifest.stage} holds a model: use hf")
    model = model_of(manifest, store=store)
    with new_folder(target) as folder:
        source = stage_input("model", model, store=store)
        write_model(source, folder=folder, pools=model.stage == "pretrain")
        folder.write(CARD, card_of(manifest, store=store, cards=said).encode())
    return summarize(manifest)


def _export_rows(
    manifest: Manifest, target: str, *, store: ArtifactStore, form: Format, cards: CardsConfig
) -> str:
    parts = parts_of(manifest)
    source = stage_input(manifest.table, manifest, store=store)
    written_as: Form = "parquet" if form == "hf" else form
    with new_folder(target) as folder:
        written = [write_part(part, source, folder=folder, form=written_as) for part in parts]
        _write_vocabulary(manifest, store=store, folder=folder)
        layout = _layout(parts, written, form=written_as)
        card = card_of(manifest, store=store, cards=cards, layout=layout)
        folder.write(CARD, card.encode())
    return splits_written(parts)


def _write_vocabulary(manifest: Manifest, *, store: ArtifactStore, folder: NewFolder) -> None:
    """Beside rows of token ids, what they are ids of."""
    if (ref := manifest.input("vocabulary")) is not None:
        vocabulary = store.read_manifest(ref.manifest)
        write_tokenizer(stage_input("vocabulary", vocabulary, store=store), folder=folder)


def _layout(parts: list[Part], written: list[RowsWritten], *, form: Form) -> Layout:
    named = [((part.config, part.split), found) for part, found in zip(parts, written, strict=True)]
    return Layout(
        patterns={name: found.pattern for name, found in named},
        form="parquet" if form == "parquet" else "ipc",
        features={config: found.features for (config, _), found in named},
        sizes={name: found.size for name, found in named},
    )
