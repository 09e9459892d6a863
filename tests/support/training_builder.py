"""Small training jobs on a small real corpus, for tests that compare runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.corpus_builder import as_input, run_corpus, small_recipe, small_sample

from model.pretraining.job import TrainingJob
from model.pretraining.loop import train
from model.pretraining.publish import publish
from model.training.stopping import StopRequest
from schemas.corpus_configs import InstancesConfig, MaskingConfig
from schemas.manifest import StageInput, StageOutput
from schemas.model_configs import PretrainConfig

TINY = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "max_position_embeddings": 128,
}
NO_DROPOUT = {**TINY, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class SmallCorpus:
    """Instances at 32 and 64 with some documents held out, and their vocabulary."""

    def __init__(self, folder: Path) -> None:
        recipe = small_recipe(small_sample(folder / "raw"))
        masking = MaskingConfig(max_predictions_per_seq=10)
        recipe = recipe.model_copy(
            update={
                "build_instances": {
                    f"length-{length}": InstancesConfig(
                        max_seq_length=length, held_out_fraction=0.1, masking=masking
                    )
                    for length in (32, 64)
                }
            }
        )
        self.set_outputs(run_corpus(recipe, folder), folder, lengths=(32, 64))

    def set_outputs(
        self, outputs: dict[str, StageOutput], folder: Path, *, lengths: tuple[int, ...]
    ) -> None:
        """Take the vocabulary and the instances of these lengths from the outputs of a run."""
        self.vocabulary = as_input(
            "vocabulary", outputs["build-vocabulary"], str(folder / "build-vocabulary")
        )
        self.instances: dict[int, StageInput] = {}
        for length in lengths:
            stage = f"build-instances.length-{length}"
            self.instances[length] = as_input("instances", outputs[stage], str(folder / stage))

    def job(self, work: Path, *, length: int = 32, **changes: Any) -> TrainingJob:
        """A job of 12 steps, or as the changes to its configuration say."""
        checkpoint = changes.pop("checkpoint", None)
        return TrainingJob(
            name="pretrain test",
            config=tiny_config(length=length, **changes),
            instances=self.instances[length],
            vocabulary=self.vocabulary,
            checkpoint=checkpoint,
            work=str(work),
        )


def tiny_config(*, length: int = 32, **changes: Any) -> PretrainConfig:
    fields: dict[str, Any] = {
        "instances": f"length-{length}",
        "model": TINY,
        "budget": {"max_steps": 12},
        "batch": {"global_batch_size": 16, "per_device_max_tokens": 256},
        "optimizer": {"learning_rate": 1e-3},
        "schedule": {"warmup_ratio": 0.2},
        "evaluation": {"max_eval_samples": 40},
        "checkpoints": {"save_steps": 3},
        "logging_steps": 1,
        "device": "cpu",  # equal to the bit, also on a machine with a GPU
        "num_threads": 1,
        **changes,
    }
    if "init_from_phase" in changes or "init_checkpoint" in changes:
        del fields["model"]
    return PretrainConfig.model_validate(fields)


def start_process(job: TrainingJob, **options: Any) -> subprocess.Popen[str]:
    """Start training in a new process, like `TrainingJob.run`, without waiting for it."""
    folder = Path(job.work)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(job.model_dump_json())
    command = [sys.executable, "-m", "model.pretraining.process", str(folder / "job.json")]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


RUN_JOB = """
import sys
from model.pretraining.job import TrainingJob
from schemas.errors import BertloomError
try:
    TrainingJob.model_validate_json(sys.stdin.read()).run()
except BertloomError as error:
    print(type(error).__name__, error)
"""
"""Program that runs the job on its standard input and prints its error."""


def start_run(job: TrainingJob, **options: Any) -> subprocess.Popen[str]:
    """Start a process that runs a job, in processes below it."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN_JOB],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    assert process.stdin is not None
    process.stdin.write(job.model_dump_json())
    process.stdin.close()
    process.stdin = None  # communicate() would flush it
    return process


def failure(job: TrainingJob) -> dict[str, Any]:
    """Return the failure that a process recorded."""
    facts: dict[str, Any] = json.loads((Path(job.work) / "failure.json").read_text())
    return facts


def curve_lines(work: Path, kind: str = "") -> list[dict[str, Any]]:
    """Return the whole lines of a run's curves, of one kind or of all."""
    file = work / "curves" / "curves.jsonl"
    text = file.read_text() if file.exists() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in lines if kind in ("", line["kind"])]


def train_losses(work: Path) -> list[float]:
    """Return the training loss of each step."""
    return [line["loss"] for line in curve_lines(work, "train")]


def published(job: TrainingJob) -> StageOutput:
    """The artifact of a job that is trained to its end, in `artifact` below its folder."""
    train(job, stop=StopRequest())
    return publish(job, output=str(Path(job.work) / "artifact"), raw_inputs=())


def as_phase(job: TrainingJob, output: StageOutput) -> StageInput:
    return StageInput(
        name="checkpoint",
        artifact_id="0" * 16,
        data=str(Path(job.work) / "artifact"),
        files=output.files,
        statistics=output.statistics,
    )
