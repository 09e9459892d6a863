"""Checkpoints and fine-tuned models by the names that users write."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flows.lineage.resolve import open_artifact, open_store
from flows.run.preflight import check_checkpoint
from flows.store.artifact import StoredArtifact
from flows.store.artifact_paths import artifact_of_path
from flows.store.runs import read_run, run_ids
from model.hf_config import download_advice
from model.task_results import read_evaluation
from model.training.artifact_files import OPTIMIZER_FILE, STATE_FILE
from model.training.workers import library_settings
from pipelines.io.file_systems import file_system
from pipelines.io.hub import is_hub_url, pin_revision
from schemas.errors import ArtifactNotFoundError, ConfigError
from schemas.manifest import Manifest

if TYPE_CHECKING:
    from model.filling import MaskFiller
    from model.finetuning.prediction import Predictor

_TRAINING_FILES = (OPTIMIZER_FILE, STATE_FILE)
"""Files of a checkpoint that only a training reads."""


def checkpoint_folder(name: str, *, store: str | None) -> str:
    """Return the folder or URL of a checkpoint. The files of an artifact are checked.

    A URL of the Hugging Face Hub gets the commit of its branch or tag.

    Raises:
        ConfigError: The name is no folder, URL or artifact, or cannot be read.
        InputError: The folder has another layout, or the Hub has no such checkpoint.
        ArtifactCorruptError: A file of the artifact is not what was written.
    """
    if is_hub_url(name):
        folder = pin_revision(name)
        check_checkpoint(folder, needs_vocabulary=False)
        return folder
    try:
        fs, path = file_system(name)
        is_checkpoint = fs.exists(f"{path.rstrip('/')}/config.json")
        is_folder = is_checkpoint or fs.isdir(path)
    except Exception as error:  # every protocol has other exceptions
        raise ConfigError(
            f"{name}: expected a folder, a URL or an artifact that can be read, got "
            f"{type(error).__name__}: {error}. Check the address, the network and the credentials"
        ) from error
    if is_checkpoint and artifact_of_path(name) is None:
        return name if "://" in name else str(Path(name).absolute())
    if is_folder and not is_checkpoint:
        check_checkpoint(name, needs_vocabulary=False)
    artifact = _find_artifact(name, store)
    if "config.json" not in artifact.files:
        raise ConfigError(f"{name}: expected an artifact of pretrain or finetune, got {artifact}")
    return artifact.folder(exclude=_TRAINING_FILES)


def open_predictors(name: str, *, store: str | None) -> list[Predictor]:
    """Return a fine-tuned model, or the models of an ensemble.

    Raises:
        ConfigError: There is no such model.
        CheckpointError: bertloom did not fine-tune the model.
    """
    os.environ.update(library_settings())
    from model.finetuning.prediction import Predictor  # lazy: torch reads these settings

    if not ((Path(name) / "config.json").is_file() or "://" in name):
        artifact = _find_artifact(name, store)
        if artifact.manifest.stage == "evaluate":
            threshold = read_evaluation(artifact.manifest).threshold
            predictors = [Predictor.open(folder) for folder in _member_folders(artifact)]
            return [dataclasses.replace(item, threshold=threshold) for item in predictors]
    return [Predictor.open(checkpoint_folder(name, store=store))]


def open_filler(name: str, *, store: str | None) -> MaskFiller:
    """Return a pretrained model that fills masks.

    Args:
        name: Artifact, folder or URL. "": best pretraining of the newest run with one.
        store: Folder or URL of the store. None: the default store.

    Raises:
        ConfigError: There is no such model.
        CheckpointError: The model has no masked LM head.
    """
    os.environ.update(library_settings())
    from model.filling import MaskFiller  # lazy: torch reads these settings

    return MaskFiller.open(checkpoint_folder(name or _newest_pretrained(store), store=store))


def best_checkpoint(phases: Sequence[Manifest]) -> Manifest:
    """Return the last phase, or an earlier one with a lower held-out perplexity."""

    def perplexity(manifest: Manifest) -> float:
        return float(manifest.statistics.get("held_out", {}).get("perplexity", math.inf))

    return min(reversed(phases), key=perplexity)


def _newest_pretrained(store: str | None) -> str:
    """Return the id of the best pretraining of the newest run with one."""
    opened = open_store(store)
    for run_id in reversed(run_ids(opened)):
        steps = read_run(opened, run_id).steps
        phases = [step for step in steps if step.label.partition(".")[0] == "pretrain"]
        if phases:
            manifests = [opened.read_manifest(phase.manifest) for phase in phases]
            return best_checkpoint(manifests).artifact_id
    raise ConfigError(
        f"{opened.root}: expected a run with a pretraining, found none. Pass --model or another "
        "--store, or train a model: `bertloom quickstart FOLDER`"
    )


def _member_folders(evaluation: StoredArtifact) -> list[str]:
    """Return the folders of the models that an evaluation chose."""
    trials = evaluation.upstream()
    members = [trials[name] for name in read_evaluation(evaluation.manifest).members]
    return [member.folder(exclude=_TRAINING_FILES) for member in members]


def _find_artifact(name: str, store: str | None) -> StoredArtifact:
    try:
        return open_artifact(name, store)
    except ArtifactNotFoundError as error:
        raise ConfigError(
            f"{name}: expected a folder with a config.json, or an artifact{download_advice(name)}. "
            f"{error}"
        ) from error
