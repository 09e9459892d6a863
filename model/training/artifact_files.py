"""Artifact files for other programs, stored under their logical names."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from pipelines.io.files import FileWriter
from schemas.errors import ConfigError
from schemas.manifest import FileEntry, StageInput

OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "training_state.json"
"""File next to a pretraining checkpoint: optimizer state for the next phase."""

_SNAPSHOTS = "snapshots/"
"""Prefix of the files of snapshots, one folder per step."""

CURVES_FOLDER = "curves"
CURVES_FILE, TIMINGS_FILE = "curves.jsonl", "timing.jsonl"
EVENTS_FOLDER = "events"
"""Records of a training, outside the content digest."""

_COPY_BYTES = 1 << 24


def write_file(
    path: str, chunks: Iterable[bytes], *, output: str, excluded_from_digest: bool = False
) -> FileEntry:
    """Write a file of an artifact; its stored name is its logical name."""
    with FileWriter(path, output=output, is_only_writer=True) as writer:
        for chunk in chunks:
            writer.file.write(chunk)
    return writer.entry().model_copy(update={"excluded_from_digest": excluded_from_digest})


def write_folder(
    folder: Path, *, output: str, records: Collection[str] = ()
) -> tuple[FileEntry, ...]:
    """Write the files of a local folder to an artifact; `records` names its records."""
    return tuple(
        write_file(
            file.name, chunks_of(file), output=output, excluded_from_digest=file.name in records
        )
        for file in sorted(folder.iterdir())
    )


def snapshot_folder(step: int) -> str:
    """Return the folder of a snapshot in a phase's artifact."""
    return f"{_SNAPSHOTS}step-{step}"


def at_snapshot(phase: StageInput, step: int) -> StageInput:
    """Return the snapshot of a step of a phase, in the form of a separate input artifact.

    Raises:
        ConfigError: The phase has no snapshot of that step.
    """
    prefix = f"{snapshot_folder(step)}/"
    files = [
        entry.model_copy(
            update={
                name: getattr(entry, name).removeprefix(prefix) for name in ("path", "stored_name")
            }
        )
        for entry in phase.files
        if entry.path.startswith(prefix)
    ]
    if not files:
        steps = sorted(
            {int(e.path.split("/")[1][5:]) for e in phase.files if e.path.startswith(_SNAPSHOTS)}
        )
        raise ConfigError(
            f"{phase.name} {phase.artifact_id} has no snapshot of step {step}; it has "
            f"{', '.join(map(str, steps)) or 'none'}: add it to snapshot_steps of the phase"
        )
    return phase.model_copy(
        update={"data": f"{phase.data}/{prefix.rstrip('/')}", "files": tuple(files)}
    )


def without_snapshots(phase: StageInput) -> StageInput:
    """Return a phase with its published model only."""
    files = [entry for entry in phase.files if not entry.path.startswith(_SNAPSHOTS)]
    return phase.model_copy(update={"files": tuple(files)})


def chunks_of(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a local file in chunks."""
    with path.open("rb") as source:
        while chunk := source.read(_COPY_BYTES):
            yield chunk


def to_json(value: Any) -> bytes:
    """Return indented JSON with sorted keys and a final line break."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
