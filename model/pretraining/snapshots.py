"""Models along a phase of pretraining that are kept: of the steps that its configuration names.

They lie beside the checkpoints in the work folder, each whole or not there, and are written before
any checkpoint of that step or a later one. So a run that was killed and goes on after such a step
finds its snapshot, and one that goes on before it makes it again, or meets that of its first try.
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
    """The snapshots of one job."""

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
        """What is known of each, by step.

        Raises:
            CheckpointError: one is not there, or is damaged.
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
