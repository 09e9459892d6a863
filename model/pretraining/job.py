"""A phase of pretraining as it is handed to the processes that train it. No torch here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from model.training.checkpoints import Checkpoints
from model.training.machines import Rendezvous, current_machines, train_on_machines
from model.training.progress import forward_progress
from model.training.workers import call_in_new_worker, local_folder
from schemas.manifest import StageInput
from schemas.model_configs import PretrainConfig

JOB_FILE = "job.json"
TRAIN = "model.pretraining.process:train_on_all_gpus"
"""Function that a worker calls with a job."""


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

    rendezvous: Rendezvous | None = None
    """Rendezvous of several machines. None: this machine alone."""

    def folder(self) -> Path:
        """Local folder for curves and this job's own files: `work` itself where that is local."""
        return local_folder(self.work)

    def checkpoints(self) -> Checkpoints:
        """Newest states of the training, to resume from."""
        keep_last = self.config.checkpoints.save_total_limit
        return Checkpoints(f"{self.work}/checkpoints", keep_last=keep_last)

    def snapshots(self) -> Checkpoints:
        """Models of the steps in `config.kept_steps`, with what was measured then."""
        return Checkpoints(f"{self.work}/snapshots", keep_last=len(self.config.kept_steps) or 1)

    def run(self) -> None:
        """Train in other processes to the end of the budget.

        Raises:
            BertloomError: as the training says.
            ConfigError: its data is in memory, which its processes do not share.
            RunnerError: A process was killed; a rerun resumes from the last checkpoint.
            MachinesError: A machine did not come.
        """
        machines = current_machines()
        with forward_progress(self.folder()):
            if machines is None:
                call_in_new_worker(TRAIN, self)
            else:
                job_file = self.write(self.folder())
                train_on_machines(machines, train_job_file, job_file, name=self.name)

    def write(self, folder: Path) -> Path:
        """Write the job to a folder, for other processes, and return the path of the file."""
        folder.mkdir(parents=True, exist_ok=True)
        job_file = folder / JOB_FILE
        job_file.touch(mode=0o600)  # URLs in it may hold credentials
        job_file.write_text(self.model_dump_json(indent=2), encoding="utf-8")
        return job_file


def train_job_file(job_file: Path, rendezvous: Rendezvous, should_stop: Callable[[], bool]) -> None:
    """Train the job of a file in the processes of this machine, one of several; see `run`."""
    job = TrainingJob.model_validate_json(job_file.read_bytes())
    job = job.model_copy(update={"rendezvous": rendezvous})
    call_in_new_worker(TRAIN, job, should_stop=should_stop)
