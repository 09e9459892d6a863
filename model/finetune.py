"""Stage `finetune`: one trial of a grid on one task (paper, section 4).

The artifact is a fine-tuned model in Hugging Face's layout with its tokenizer, its predictions on
dev, their scores, and the record of the training. One worker process trains all trials of a run
(`model.training.workers`); this module does not load torch.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from model.finetuning.jobs import RECORDS, TrialJob
from model.hf_config import check_layout, checkpoint_raw_inputs
from model.training.artifact_files import (
    OPTIMIZER_FILE,
    STATE_FILE,
    at_snapshot,
    without_snapshots,
    write_folder,
)
from model.training.progress import forward_progress
from model.training.workers import call_in_worker
from pipelines.io.stage_inputs import check_files
from pipelines.progress import current_step_name
from pipelines.wordpiece.vocab_files import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import TrialConfig
from schemas.manifest import RawInput, StageInput, StageOutput
from schemas.trial_names import trial_name

if TYPE_CHECKING:
    from model.finetuning import trial as trial  # runs elsewhere: part of the key


def raw_inputs(config: TrialConfig) -> tuple[RawInput, ...]:
    """Return the files of the checkpoint outside the store that the trial starts from, if any.

    Raises:
        MissingInputError: There is no checkpoint in Hugging Face's layout with its vocabulary.
        VocabularyError: The vocabulary is not a WordPiece vocabulary.
    """
    if config.init_checkpoint is None:
        return ()
    check_layout(config.init_checkpoint, needs_vocabulary=True)
    return checkpoint_raw_inputs(
        config.init_checkpoint, optional=(TOKENIZER_FILE, TOKENIZER_CONFIG_FILE)
    )


def finetune(
    config: TrialConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
    work: str,
) -> StageOutput:
    """Train a trial, resuming from the last checkpoint in `work`, and score it on dev.

    Args:
        config: Method and hyper-parameters.
        inputs: `examples`; `checkpoint` with init_from_phase, `vocabulary` for a new model.
        output: URL of the folder to write to.
        execution: Unused; the configuration names the device.
        work: URL of the folder for checkpoints, the same for every run of this trial.

    Raises:
        TaskDataError: The training data is missing or has no labels.
        ConfigError: Sequences exceed the model's positions, or the configuration is invalid.
        CheckpointError: A checkpoint cannot be written or read.
        ArtifactCorruptError: An input differs from its manifest.
        DivergenceError: The loss is not finite.
        TrainingError: A stop was requested; the next run resumes.
        RunnerError: The process was killed; the next run resumes.
    """
    del execution
    examples = inputs["examples"]
    checkpoint = inputs.get("checkpoint")
    if checkpoint is not None:
        at = config.init_from_step
        checkpoint = without_snapshots(checkpoint) if at is None else at_snapshot(checkpoint, at)
    job = TrialJob(
        name=current_step_name(f"finetune {examples.statistics['task']} {trial_name(config)}"),
        config=config,
        examples=examples,
        checkpoint=checkpoint,
        vocabulary=inputs.get("vocabulary"),
        work=work,
        result_folder=f"result-{uuid.uuid4().hex}",
    )
    if job.checkpoint is not None:
        # Read by the folder's URL, like a checkpoint outside the store.
        check_files(job.checkpoint, without=(OPTIMIZER_FILE, STATE_FILE))
    try:
        with forward_progress(job.folder()):
            result = call_in_worker("model.finetuning.trial:train_trial", job)
        files = write_folder(job.results(), output=output, records=RECORDS)
    finally:
        shutil.rmtree(job.results(), ignore_errors=True)
    return StageOutput(
        files=files,
        counters=result["counters"],
        statistics=result["statistics"],
        notes=tuple(result["notes"]),
        raw_inputs=raw_inputs(config),
    )
