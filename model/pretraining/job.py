"""A phase of pretraining as it is handed to the processes that train it. No torch here."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from model.training.machines import current_machines, run_job_on_machines
from model.training.progress import forward_progress
from model.training.workers import local_folder, run_job, write_job
from schemas.manifest import StageInput
from schemas.model_configs import PretrainConfig

PROGRAM = "model.pretraining.process"
"""Module that runs a job in one process, or starts torchrun for several."""


class TrainingJob(BaseModel):
    """Everything that training needs to know, on one machine or several."""

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
            MachinesError: A machine did not come.
        """
        folder, machines = self.folder(), current_machines()
        with forward_progress(folder):
            if machines is None:
                job_file = write_job(self, name=self.name, folder=folder)
                run_job(PROGRAM, job_file, name=self.name)
            else:
                run_job_on_machines(machines, PROGRAM, self, name=self.name, folder=folder)
