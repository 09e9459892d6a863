"""Stage `pretrain`: one phase of pretraining (paper 3.1, A.2).

The artifact is a checkpoint in Hugging Face's layout, which `transformers` loads, with the
optimizer state for a following phase and the record of the training. Worker processes train
(`model.pretraining.job`); this module loads torch only if there is work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from model.hf_config import checkpoint_raw_inputs
from model.pretraining.job import TrainingJob
from model.training.artifact_files import OPTIMIZER_FILE, STATE_FILE, without_snapshots
from pipelines.io.stage_inputs import check_files
from pipelines.progress import current_step_name
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import RawInput, StageInput, StageOutput
from schemas.model_configs import PretrainConfig

if TYPE_CHECKING:
    from model.pretraining import loop as loop  # runs elsewhere: part of the key


def raw_inputs(config: PretrainConfig) -> tuple[RawInput, ...]:
    """Return the files of the checkpoint outside the store that the phase starts from, if any.

    Raises:
        MissingInputError: The folder has no checkpoint in Hugging Face's layout.
    """
    if config.init_checkpoint is None:
        return ()
    return checkpoint_raw_inputs(config.init_checkpoint)


def pretrain(
    config: PretrainConfig,
    *,
    inputs: Mapping[str, StageInput],
    output: str,
    execution: ExecutionConfig,
    work: str,
) -> StageOutput:
    """Train a phase to the end of its budget, resuming from the last checkpoint in `work`.

    Args:
        config: Model, budget, batches, optimizer and so on.
        inputs: `instances` and `vocabulary`; `checkpoint` with init_from_phase.
        output: URL of the folder to write to.
        execution: Unused; the configuration names the device.
        work: URL of the folder for checkpoints, the same for every run of this phase.

    Raises:
        InstanceDataError: The instances do not match the model or its vocabulary.
        ArtifactCorruptError: An input differs from its manifest.
        CheckpointError: A checkpoint cannot be written or read.
        DivergenceError: The loss is not finite or keeps rising.
        TrainingError: A stop was requested; the next run resumes.
    """
    del execution
    if "checkpoint" in inputs:
        # Read by the folder's URL, like a checkpoint outside the store.
        before = without_snapshots(inputs["checkpoint"])
        is_restored = config.optimizer_state == "restore"
        check_files(before, without=() if is_restored else (OPTIMIZER_FILE, STATE_FILE))
    job = TrainingJob(
        name=current_step_name(f"pretrain {config.instances}"),
        config=config,
        instances=inputs["instances"],
        vocabulary=inputs["vocabulary"],
        checkpoint=inputs.get("checkpoint"),
        work=work,
    )
    job.run()
    from model.pretraining.publish import publish  # lazy: loads torch

    return publish(job, output=output, raw_inputs=raw_inputs(config))
