"""Small artifacts for tests of the store."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from flows.run.artifact_inputs import input_ref
from flows.store.activity import heartbeat_path, new_heartbeat
from flows.store.artifacts import ArtifactStore, Attempt
from flows.store.pointers import now
from flows.store.process_identity import this_process
from pipelines.io.files import write_text_file
from pipelines.io.shards import ShardWriter
from schemas.arrow import tokens_schema
from schemas.fingerprint import cache_key, content_digest
from schemas.json_files import dump_json
from schemas.manifest import Environment, FileEntry, Manifest, ProducedBy, StageInput

STAGE = "build-tokens"
MISSING_PID = 2**22 + 1  # above the largest possible number


def produced_by(run_id: str = "r") -> ProducedBy:
    """Return the run that built an artifact."""
    return ProducedBy(
        run_id=run_id,
        runner="local",
        platform="Linux",
        started_at="",
        ended_at="",
        duration_seconds=1.0,
    )


def describe(attempt: Attempt, files: Any, /, **changes: Any) -> Manifest:
    """Return the manifest of an attempt; `changes` are fields of it."""
    spec = {"stage": STAGE, "seed": 0, **changes.pop("spec", {})}
    fields: dict[str, Any] = {
        "artifact_id": attempt.artifact_id,
        "stage": STAGE,
        "stage_version": 1,
        "cache_key": cache_key(spec),
        "cache_key_inputs": spec,
        "content_digest": content_digest(files),
        "artifact_path": attempt.location,
        "files": tuple(files),
        "counters": {},
        "statistics": {},
        "table_name": "",
        "notes": (),
        "raw_inputs": (),
        "inputs": (),
        "produced_by": produced_by(),
        "environment": Environment(python="3.11.7", platform="Linux", packages={}),
        "config": {},
    }
    return Manifest(**{**fields, **changes})


def file_entry(path: str, **changes: Any) -> FileEntry:
    """Return the entry of a file of three bytes; `changes` are fields of it."""
    fields = {"stored_name": f"{path}-x", "size_bytes": 3, "sha256": "1" * 64, **changes}
    return FileEntry(path=path, **fields)


def prepared(store: ArtifactStore, text: str = "one", **changes: Any) -> Manifest:
    """Return the manifest of an attempt with one file, which is not committed."""
    attempt = store.begin(STAGE)
    entry = write_text_file("vocab.txt", text, output=attempt.output)
    return describe(attempt, [entry], **changes)


def published(store: ArtifactStore, text: str = "one", **changes: Any) -> Manifest:
    """Publish an artifact with one file."""
    return store.commit(prepared(store, text, **changes)).manifest


def write_run(store: ArtifactStore, run_id: str, **changes: Any) -> None:
    """Write the record of a run of this process."""
    record = {
        "run_id": run_id,
        "state": "completed",
        "started": now(),
        "updated_at": now(),
        "recipe": {"name": "fake"},
        **this_process().model_dump(),
        **changes,
    }
    store.backend.replace(f"runs/{run_id}/run.json", dump_json(record))


def write_heartbeat(store: ArtifactStore, run_id: str, *, age: float = 0.0, **changes: Any) -> None:
    """Write the last heartbeat of a run, by default of this process; `age` in seconds."""
    heartbeat = new_heartbeat(run_id).model_copy(update={"beat_at": time.time() - age, **changes})
    store.backend.replace(heartbeat_path(run_id), heartbeat.to_json())


def publish_shard(store: ArtifactStore) -> Manifest:
    """Publish tokens with one shard."""
    schema = tokens_schema(100)
    tokens = {
        "document_id": ["a", "b"],
        "token_ids": [[1, 2], [3]],
        "sentence_lengths": [[2], [1]],
        "split_id": [None, None],
    }
    attempt = store.begin(STAGE)
    with ShardWriter("part-00000.arrow", schema=schema, output=attempt.output) as writer:
        writer.write(pa.record_batch(tokens, schema=schema))
    return store.commit(describe(attempt, [writer.entry()], table_name="tokens")).manifest


def file_of(store: ArtifactStore, manifest: Manifest) -> str:
    return f"{manifest.data_path}/{manifest.files[0].stored_name}"


def damage(store: ArtifactStore, manifest: Manifest, data: bytes) -> None:
    store.backend.replace(file_of(store, manifest), data)


def input_from(manifest: Manifest, name: str = "documents") -> dict[str, Any]:
    """Return arguments of `published` for an artifact that is built from another."""
    spec = {"of": manifest.artifact_id, "inputs": {name: {"content": manifest.content_digest}}}
    return {"spec": spec, "inputs": (input_ref(name, manifest),)}


HOLD = """
import sys, time
from flows.store.activity import ActiveRun
from flows.store.artifacts import ArtifactStore
from flows.store.leases import Lease, acquire_or_holder

store = ArtifactStore(sys.argv[1])
with ActiveRun(store, "theirs") as run, acquire_or_holder(run, *sys.argv[2:]) as lease:
    print("held" if isinstance(lease, Lease) else lease, flush=True)
    time.sleep(1_000)
"""


@contextmanager
def held_by_another(root: str, stage: str, key: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that holds a lease."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, root, stage, key], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def as_given(name: str, folder: str) -> StageInput:
    """Return the files of a folder as an input."""
    files = [
        FileEntry(
            path=path.name,
            stored_name=path.name,
            size_bytes=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in sorted(Path(folder).iterdir())
    ]
    return StageInput(name=name, artifact_id="1" * 16, data=folder, files=tuple(files))
