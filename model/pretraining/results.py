"""Results of a finished training: files, counters and statistics of its artifact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from model.encoder.hf_weights import save_model
from model.pretraining.checks import find_warnings, held_out_caution
from model.pretraining.job import TrainingJob
from model.pretraining.setup import open_model
from model.pretraining.snapshots import Snapshots
from model.pretraining.state import PhaseState
from model.training.artifact_files import (
    CURVES_FILE,
    CURVES_FOLDER,
    EVENTS_FOLDER,
    OPTIMIZER_FILE,
    STATE_FILE,
    TIMINGS_FILE,
    to_json,
)
from model.training.checkpoints import Checkpoints, LoadedCheckpoint
from model.training.health import warnings_json
from pipelines.io.stage_inputs import input_file
from pipelines.wordpiece.vocab_files import PAD, VOCAB_FILE, read_vocab
from schemas.errors import CheckpointError


class FinishedTraining(NamedTuple):
    """The result of a phase.

    Attributes:
        files: content of each file of the artifact, by name.
        snapshots: folder and files of each model along the way (`Snapshots.files`).
        records: local file of each record of how it went, by name.
        counters, statistics, notes: as in `StageOutput`.
    """

    files: dict[str, bytes]
    snapshots: Iterator[tuple[str, dict[str, bytes]]]
    records: dict[str, Path]
    counters: dict[str, int]
    statistics: dict[str, Any]
    notes: tuple[str, ...]


def read_finished(job: TrainingJob) -> FinishedTraining:
    """Return the result of a finished job.

    Raises:
        CheckpointError: There is no checkpoint, or the training has not finished.
    """
    latest, state = _read_last_checkpoint(job)
    vocab = input_file(job.vocabulary, VOCAB_FILE)
    model = open_model(job, vocab=vocab)
    model.load_state_dict(latest.tensors["model"])
    pad_id = read_vocab(vocab).index(PAD)
    snapshots = Snapshots(job)
    files = {
        **save_model(model, pad_token_id=pad_id),
        OPTIMIZER_FILE: latest.files["optimizer"],
        STATE_FILE: to_json(_next_phase_state(job, state)),
    }
    return FinishedTraining(
        files=files,
        snapshots=snapshots.files(model, pad_token_id=pad_id),
        records=_records(job),
        counters={
            "instances": state.instances,
            "steps": state.done.steps,
            "tokens": state.done.tokens,
        },
        statistics=_statistics(job, state, snapshots=snapshots),
        notes=_notes(state),
    )


def _read_last_checkpoint(job: TrainingJob) -> tuple[LoadedCheckpoint, PhaseState]:
    """Return the last checkpoint of a finished training and its state."""
    checkpoints = Checkpoints(
        f"{job.work}/checkpoints", keep_last=job.config.checkpoints.save_total_limit
    )
    latest = checkpoints.latest()
    if latest is None:
        raise CheckpointError(f"{job.work}: expected a finished training, found no checkpoint")
    state = PhaseState.from_json(latest.state, where=latest.info.url)
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
    found = {name: folder / name for name in (CURVES_FILE, TIMINGS_FILE)}
    # Their own names hold the machine's.
    for number, path in enumerate(sorted((folder / EVENTS_FOLDER).glob("*tfevents*"))):
        found[f"{EVENTS_FOLDER}/events.out.tfevents.{number}"] = path
    return {name: path for name, path in found.items() if path.is_file()}


def _statistics(job: TrainingJob, state: PhaseState, *, snapshots: Snapshots) -> dict[str, Any]:
    along = {
        step: {"held_out": _held_out(found["evaluation"]), "tokens": found["tokens"]}
        for step, found in snapshots.measured().items()
    }
    caution = held_out_caution(job.instances.counters) if state.evaluation else ""
    return {
        "objective": job.config.objective,
        "max_seq_length": job.instances.statistics["max_seq_length"],
        "vocab_size": job.vocabulary.statistics["vocab_size"],
        "held_out": _held_out(state.evaluation),
        **({"held_out_caution": caution} if caution else {}),
        "warnings": warnings_json(find_warnings(job, state)),
        **({"snapshots": along} if along else {}),
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
