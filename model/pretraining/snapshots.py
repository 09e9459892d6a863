"""Snapshots: models of the steps that the configuration of a pretraining phase names.

They are written atomically to the work folder, before any checkpoint of the same or a later step.
So a killed run that resumes after such a step finds its snapshot, and one that resumes before it
writes the snapshot again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from model.encoder.heads import BertForPretraining
from model.encoder.hf_weights import save_model
from model.pretraining.job import TrainingJob
from model.training.artifact_files import snapshot_folder
from model.training.checkpoints import Checkpoints


class Snapshots:
    """Snapshots of one job."""

    def __init__(self, job: TrainingJob) -> None:
        """Nothing is touched yet."""
        self.steps = job.config.kept_steps
        self._checkpoints = Checkpoints(f"{job.work}/snapshots", keep_last=len(self.steps) or 1)

    def keep(self, step: int, *, model: nn.Module, measured: Mapping[str, Any]) -> None:
        """Write the model of a step, if it is not there; when this returns, it is on disk.

        Args:
            step: updates done in the phase.
            model: a `BertForPretraining`.
            measured: what is known of it, as plain JSON values.

        Raises:
            CheckpointError: it cannot be written.
        """
        if any(saved.step == step for saved in self._checkpoints.list()):
            return
        self._checkpoints.save(
            step, tensors={"model": model.state_dict()}, state={"measured": dict(measured)}
        )

    def measured(self) -> dict[str, dict[str, Any]]:
        """Return the measurements of each snapshot by step.

        Raises:
            CheckpointError: A snapshot is missing or damaged.
        """
        return {
            str(step): dict(self._checkpoints.at_step(step).state["measured"])
            for step in self.steps
        }

    def files(
        self, model: BertForPretraining, *, pad_token_id: int
    ) -> Iterator[tuple[str, dict[str, bytes]]]:
        """The folder of each in the artifact, and its files in Hugging Face's layout; one snapshot
        in memory at a time.

        Args:
            model: of their shape; takes their weights one after another.
            pad_token_id: id of [PAD].

        Raises:
            CheckpointError: one is not there, or is damaged.
        """
        for step in self.steps:
            model.load_state_dict(self._checkpoints.at_step(step).tensors["model"])
            yield snapshot_folder(step), save_model(model, pad_token_id=pad_token_id)
