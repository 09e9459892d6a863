"""Checkpoints and fine-tuned models by the names that a command is given."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flows.cli.options import open_store
from flows.lineage.resolve import artifact_of_path, resolve
from flows.run.preflight import check_checkpoint
from flows.store.artifact import Artifact
from flows.store.runs import read_run, run_ids
from model.evaluate import STAGE as EVALUATE
from model.pretrain import STAGE as PRETRAIN
from model.processes.core_share import bound_spinning
from model.training.artifact_files import OPTIMIZER_FILE, STATE_FILE
from pipelines.io.file_systems import file_system
from schemas.errors import ArtifactNotFoundError, ConfigError
from schemas.manifest import Manifest

if TYPE_CHECKING:
    from model.filling import MaskFiller
    from model.finetuning.prediction import Predictor

_TRAINING_FILES = (OPTIMIZER_FILE, STATE_FILE)
"""Files of a checkpoint that only a training reads."""


def checkpoint_folder(name: str, *, store: str | None) -> str:
    """Return the folder or URL of a checkpoint. The files of an artifact are checked.

    Raises:
        ConfigError: The name is no folder, URL or artifact, or cannot be read.
        MissingInputError: The folder has another layout.
        ArtifactCorruptError: A file of the artifact is not what was written.
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
    if is_checkpoint and (artifact := artifact_of_path(name)) is not None:
        return artifact.folder(exclude=_TRAINING_FILES)
    if is_checkpoint:
        return name if "://" in name else str(Path(name).absolute())
    if is_folder and (fault := check_checkpoint(name, needs_vocabulary=False)) is not None:
        raise fault
    artifact = _artifact(name, store=store)
    if "config.json" not in artifact.files:
        raise ConfigError(f"{name}: expected an artifact of pretrain or finetune, got {artifact}")
    return artifact.folder(exclude=_TRAINING_FILES)


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
    """Return the id of the best pretraining of the newest run with one.

    Raises:
        ConfigError: The store has none.
    """
    opened = open_store(store)
    for run_id in reversed(run_ids(opened)):
        steps = read_run(opened, run_id).steps
        phases = [step for step in steps if step.label.partition(".")[0] == PRETRAIN.name]
        if phases:
            manifests = [opened.read_manifest(phase.manifest) for phase in phases]
            return best_checkpoint(manifests).artifact_id
    pointers = list(opened.pointers(PRETRAIN.name))
    if not pointers:
        raise ConfigError(
            f"{opened.root}: no pretrained model in this store: name one by --model, another "
            "store by --store, or train one: `bertloom quickstart FOLDER`"
        )
    return max(pointers, key=lambda pointer: pointer.committed).artifact_id


def best_checkpoint(phases: Sequence[Manifest]) -> Manifest:
    """Return the last phase, or an earlier one with a lower held-out perplexity."""

    def perplexity(manifest: Manifest) -> float:
        return float(manifest.statistics.get("held_out", {}).get("perplexity", math.inf))

    return min(reversed(phases), key=perplexity)


def answers(
    predictors: Sequence[Predictor], examples: pa.Table, *, progress: str = ""
) -> list[dict[str, Any]]:
    """As `model.finetuning.prediction.answer`, of predictors that `open_predictors` opened."""
    from model.finetuning.prediction import answer  # loads torch

    return answer(predictors, examples, progress=progress)


def _models(name: str, *, store: str | None) -> tuple[list[str], float | None]:
    """Folders of the models, and the threshold that an evaluation tuned for them together."""
    if (Path(name) / "config.json").is_file() or "://" in name:
        return [checkpoint_folder(name, store=store)], None
    artifact = _artifact(name, store=store)
    manifest = artifact.manifest
    if manifest.stage != EVALUATE.name:
        return [checkpoint_folder(name, store=store)], None
    trials = artifact.upstream()
    members = [trials[name] for name in manifest.statistics["members"]]
    for member in members:
        statistics = member.manifest.statistics
        if statistics.get("method") == "majority":
            raise ConfigError(
                f"{name}: expected a model, got {member}, a majority-class baseline that always "
                f"predicts {statistics.get('majority')}"
            )
    folders = [member.folder(exclude=_TRAINING_FILES) for member in members]
    return folders, float(manifest.statistics["threshold"])


def _artifact(name: str, *, store: str | None) -> Artifact:
    try:
        opened = open_store(store)
        return opened.artifact(resolve(name, store=opened))
    except ArtifactNotFoundError as error:
        raise ConfigError(
            f"{name}: no folder with a config.json, and no artifact: {error}"
        ) from error
