"""Checkpoints and fine-tuned models by the names that a command is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flows.cli.options import open_store
from flows.lineage.names import resolve
from flows.run.preflight import check_checkpoint
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run, run_ids
from model.evaluate import STAGE as EVALUATE
from model.pretrain import STAGE as PRETRAIN
from model.processes.core_share import bound_spinning
from pipelines.io.file_systems import file_system
from schemas.errors import ArtifactNotFoundError, ConfigError
from schemas.manifest import Manifest

if TYPE_CHECKING:
    from model.filling import MaskFiller
    from model.finetuning.prediction import Predictor


def checkpoint_folder(name: str, *, store: str | None) -> str:
    """The folder of a checkpoint: a path, a URL or an artifact of the store.

    Raises:
        ConfigError: there is nothing of that name, or its URL cannot be read.
        MissingInputError: it is a folder, but of another layout; says how to convert it.
    """
    try:
        fs, path = file_system(name)
        is_checkpoint = fs.exists(f"{path.rstrip('/')}/config.json")
        is_folder = is_checkpoint or fs.isdir(path)
    except Exception as error:  # each protocol's client has exceptions of its own
        raise ConfigError(
            f"{name}: expected a folder, a URL or an artifact that can be read, got "
            f"{type(error).__name__}: {error}. Check the address, the network and the credentials"
        ) from error
    if is_checkpoint:
        return name if "://" in name else str(Path(name).absolute())
    if is_folder and (fault := check_checkpoint(name, needs_vocabulary=False)) is not None:
        raise fault
    opened, manifest = _artifact(name, store=store)
    if not any(entry.path == "config.json" for entry in manifest.files):
        raise ConfigError(
            f"{name}: artifact {manifest.artifact_id} is of {manifest.stage} and holds no model: "
            "expected one of pretrain or finetune"
        )
    return opened.url(manifest.data)


def open_predictors(name: str, *, store: str | None) -> list[Predictor]:
    """A fine-tuned model, or the models of an ensemble.

    Raises:
        ConfigError: there is none of that name.
        CheckpointError: it was not fine-tuned here.
    """
    bound_spinning()
    from model.finetuning.prediction import Predictor  # loads torch, after its threads are limited

    folders, threshold = _models(name, store=store)
    predictors = [Predictor.open(folder) for folder in folders]
    if threshold is None:
        return predictors
    return [dataclasses.replace(predictor, threshold=threshold) for predictor in predictors]


def open_filler(name: str, *, store: str | None) -> MaskFiller:
    """A pretrained model that fills masks.

    Args:
        name: an artifact, a folder or a URL; "" for the newest pretraining of the store's last run
            that has one.
        store: as of `open_store`.

    Raises:
        ConfigError: there is none of that name.
        CheckpointError: it has no masked LM head.
    """
    bound_spinning()
    from model.filling import MaskFiller  # loads torch, after its threads are limited

    return MaskFiller.open(checkpoint_folder(name or newest_pretrained(store), store=store))


def newest_pretrained(store: str | None) -> str:
    """Id of the last pretraining of the newest run with one; else of the store's newest.

    Raises:
        ConfigError: the store has none.
    """
    opened = open_store(store)
    for run_id in reversed(run_ids(opened)):
        steps = read_run(opened, run_id).steps
        labels = [step for step in steps if step.label.partition(".")[0] == PRETRAIN.name]
        if labels:
            return opened.read_manifest(labels[-1].manifest).artifact_id
    pointers = list(opened.pointers(PRETRAIN.name))
    if not pointers:
        raise ConfigError(
            f"{opened.root}: no pretrained model in this store: name one by --model, another "
            "store by --store, or train one: `bertloom quickstart FOLDER`"
        )
    return max(pointers, key=lambda pointer: pointer.committed).artifact_id


def answers(
    predictors: Sequence[Predictor], examples: pa.Table, *, progress: str = ""
) -> list[dict[str, Any]]:
    """As `model.finetuning.prediction.answer`, of predictors that `open_predictors` opened."""
    from model.finetuning.prediction import answer  # loads torch

    return answer(predictors, examples, progress=progress)


def _models(name: str, *, store: str | None) -> tuple[list[str], float | None]:
    """Folders of the models, and the threshold that an evaluation tuned for them together."""
    if (Path(name) / "config.json").is_file() or "://" in name:
        return [name], None
    opened, manifest = _artifact(name, store=store)
    if manifest.stage != EVALUATE.name:
        return [checkpoint_folder(name, store=store)], None
    trials = {ref.name: ref.manifest for ref in manifest.inputs}
    members = [opened.read_manifest(trials[name]) for name in manifest.statistics["members"]]
    for member in members:
        if member.statistics.get("method") == "majority":
            raise ConfigError(
                f"{member.artifact_id} is a majority, which is no model: it always answers "
                f"{member.statistics.get('majority')}"
            )
    folders = [opened.url(member.data) for member in members]
    return folders, float(manifest.statistics["threshold"])


def _artifact(name: str, *, store: str | None) -> tuple[ArtifactStore, Manifest]:
    try:
        opened = open_store(store)
        return opened, resolve(name, store=opened)
    except ArtifactNotFoundError as error:
        raise ConfigError(
            f"{name}: no folder with a config.json, and no artifact: {error}"
        ) from error
