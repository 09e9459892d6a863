"""A phase of pretraining as it is handed to the processes that train it. No torch here."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from model.launch.launcher import local_folder, run_job
from pipelines.progress import forward_progress
from schemas.manifest import StageInput
from schemas.model_configs import PretrainConfig


class TrainingJob(BaseModel):
    """Everything that training needs to know; a file of it can be handed to torchrun by hand."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Name in messages, such as `pretrain.phase-1`."""

    config: PretrainConfig
    instances: StageInput
    vocabulary: StageInput
    checkpoint: StageInput | None = None
    """The artifact of the phase before, if the configuration starts from one."""

    work: str
    """URL of the folder for checkpoints; training resumes from its newest one."""

    def folder(self) -> Path:
        """Local folder for curves and this job's own files: `work` itself where that is local."""
        return local_folder(self.work)

    def run(self) -> None:
        """Train in worker processes to the end of the budget.

        Raises:
            BertloomError: as the training says.
            ConfigError: its data is in memory, which its processes do not share.
            RunnerError: A process was killed; a rerun resumes from the last checkpoint.
        """
        folder = self.folder()
        with forward_progress(folder):
            run_job(
                "model.pretraining.process",
                self,
                name=self.name,
                folder=folder,
                # `auto`: the process counts the GPUs, because this one does not load torch.
                num_processes=1
                if self.config.num_processes == "auto"
                else self.config.num_processes,
            )
