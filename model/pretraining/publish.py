"""Artifact of a finished phase: files, counters, statistics and warnings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save as save_tensors
from torch import Tensor

from model.hf_weights import save_model
from model.pretraining.evaluation import held_out_caution
from model.pretraining.job import TrainingJob
from model.pretraining.setup import PhaseState, open_model
from model.training.artifact_files import (
    CURVES_FILE,
    CURVES_FOLDER,
    EVENTS_FOLDER,
    OPTIMIZER_FILE,
    STATE_FILE,
    TIMINGS_FILE,
    chunks_of,
    snapshot_folder,
    to_json,
    write_file,
)
from model.training.checkpoints import LoadedCheckpoint
from model.training.health import TrainingWarning, check_end, check_unigram, warnings_json
from pipelines.io.stage_inputs import input_file
from pipelines.wordpiece.vocab_files import (
    PAD,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    read_vocab,
)
from schemas.errors import CheckpointError
from schemas.manifest import RawInput, StageOutput

_TOKENIZER_FILES = (VOCAB_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE)
"""Files by which `transformers` loads the tokenizer."""


def publish(job: TrainingJob, *, output: str, raw_inputs: tuple[RawInput, ...] = ()) -> StageOutput:
    """Write the artifact of a finished job: model, optimizer state, snapshots and records.

    Args:
        job: Finished job.
        output: URL of the folder to write to.
        raw_inputs: Files outside the store that the phase started from.

    Raises:
        CheckpointError: There is no checkpoint, the training has not finished, or a snapshot is
            missing or damaged.
    """
    latest, state = _read_last_checkpoint(job)
    model, tensors = open_model(job), latest.tensors
    pad_id = read_vocab(input_file(job.vocabulary, VOCAB_FILE)).index(PAD)
    tokenizer = {name: input_file(job.vocabulary, name).read() for name in _TOKENIZER_FILES}

    def model_files(weights: Mapping[str, Tensor]) -> dict[str, bytes]:
        model.load_state_dict(weights)
        return {**save_model(model, pad_token_id=pad_id), **tokenizer}

    contents = {
        **model_files(tensors["model"]),
        OPTIMIZER_FILE: save_tensors(tensors["optimizer"], metadata={"format": "pt"}),
        STATE_FILE: to_json(_next_phase_state(job, state)),
    }
    files = [write_file(path, [data], output=output) for path, data in sorted(contents.items())]
    measured = {}
    for step in job.config.kept_steps:
        snapshot = job.snapshots().at_step(step)
        measured[step] = snapshot.state["measured"]
        for name, data in sorted(model_files(snapshot.tensors["model"]).items()):
            files.append(write_file(f"{snapshot_folder(step)}/{name}", [data], output=output))
    files += [
        write_file(path, chunks_of(local), output=output, excluded_from_digest=True)
        for path, local in sorted(_records(job).items())
    ]
    return StageOutput(
        files=tuple(files),
        counters={
            "instances": state.instances,
            "steps": state.done.steps,
            "tokens": state.done.tokens,
        },
        statistics=_statistics(job, state, measured),
        notes=_notes(state),
        raw_inputs=raw_inputs,
    )


def _read_last_checkpoint(job: TrainingJob) -> tuple[LoadedCheckpoint, PhaseState]:
    """Return the last checkpoint of a finished training and its state."""
    latest = job.checkpoints().latest()
    if latest is None:
        raise CheckpointError(f"{job.work}: expected a finished training, found no checkpoint")
    state = PhaseState.model_validate(latest.state)
    if not state.is_finished:
        raise CheckpointError(
            f"{latest.info.url}: expected a finished training, found one after step "
            f"{state.done.steps}: rerun to resume"
        )
    return latest, state


def _next_phase_state(job: TrainingJob, state: PhaseState) -> dict[str, Any]:
    """Return the state that a following phase needs."""
    # The time is part of the result only if the budget is in minutes.
    by_time = job.config.budget.max_minutes is not None
    seconds = state.earlier_phases.seconds + state.done.seconds if by_time else 0.0
    return {
        "optimizer": job.config.optimizer.name,
        "steps": state.earlier_phases.steps + state.done.steps,
        "tokens": state.earlier_phases.tokens + state.done.tokens,
        "seconds": seconds,
    }


def _records(job: TrainingJob) -> dict[str, Path]:
    """Return all records of the training: how often a line is written is no part of the result."""
    folder = job.folder() / CURVES_FOLDER
    paths = {name: folder / name for name in (CURVES_FILE, TIMINGS_FILE)}
    # Their own names hold the machine's.
    for number, path in enumerate(sorted((folder / EVENTS_FOLDER).glob("*tfevents*"))):
        paths[f"{EVENTS_FOLDER}/events.out.tfevents.{number}"] = path
    return {name: path for name, path in paths.items() if path.is_file()}


def _statistics(
    job: TrainingJob, state: PhaseState, measured: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the statistics of a phase, and of its snapshots with what was `measured` then."""
    snapshots = {
        str(step): {"held_out": _held_out(values["evaluation"]), "tokens": values["tokens"]}
        for step, values in measured.items()
    }
    caution = held_out_caution(job.instances.counters) if state.evaluation else ""
    return {
        "objective": job.config.objective,
        "max_seq_length": job.instances.statistics["max_seq_length"],
        "vocab_size": job.vocabulary.statistics["vocab_size"],
        "held_out": _held_out(state.evaluation),
        **({"held_out_caution": caution} if caution else {}),
        "warnings": warnings_json(find_warnings(job, state)),
        **({"snapshots": snapshots} if snapshots else {}),
    }


def _held_out(evaluation: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in evaluation.items() if name != "step"}


def _notes(state: PhaseState) -> tuple[str, ...]:
    notes = [f"trained on {', then on '.join(state.trained_on)}"]
    if not state.evaluation:
        notes.append(
            "not evaluated: the instances have no held-out documents "
            "(build_instances.NAME.held_out_fraction)"
        )
    return tuple(notes)


def find_warnings(job: TrainingJob, state: PhaseState) -> list[TrainingWarning | None]:
    """Check a finished phase; None stands for a passed check."""
    if not state.evaluation:
        return []
    loss, lowest = state.evaluation["mlm_loss"], state.lowest_evaluation
    earlier = {f"after step {lowest['step']:,.0f}": lowest["mlm_loss"]}
    before = job.checkpoint.statistics if job.checkpoint is not None else {}
    loss_before = before.get("held_out", {}).get("mlm_loss")
    if loss_before is not None and before["objective"] == job.config.objective:
        earlier[f"at the end of {job.config.init_from_phase}"] = loss_before
    return [check_unigram(loss, state.evaluation["unigram_loss"]), check_end(loss, earlier)]
