"""From dump to table with input and store in a bucket behind a failing network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support.fake_gcs import FakeGcs, gcs_environment

from benchmarks.object_store import Proxy, S3Server, environment
from flows.cli.doctor import check_store
from flows.sample import write_sample
from flows.store.artifacts import CARD, ArtifactStore
from pipelines.io.file_systems import file_system

pytestmark = pytest.mark.network

_RECIPE = """
name: buckets
build_documents:
  sources:
    - {{kind: wikipedia, name: wiki, paths: ["{raw}/*.xml.bz2"], target_split_bytes: 4096}}
    - {{kind: books, name: tales, paths: ["{raw}/books.tar.gz"], target_split_bytes: 32768}}
build_vocabulary: {{vocab_size: 400}}
build_instances:
  short: {{max_seq_length: 32, held_out_fraction: 0.1, masking: {{max_predictions_per_seq: 6}}}}
pretrain:
  first: &phase
    instances: short
    model: {{num_hidden_layers: 1, hidden_size: 16, num_attention_heads: 2,
        max_position_embeddings: 32}}
    budget: {{max_steps: 4}}
    batch: {{global_batch_size: 8, per_device_max_tokens: 4096}}
    checkpoints: {{save_steps: 2}}
    num_threads: 1
  second:
    {{<<: *phase, model: null, init_from_phase: first, optimizer_state: restore,
        budget: {{max_steps: 2}}}}
build_examples:
  cola: {{task: cola, data_dir: "{raw}/tasks/cola", max_samples: {{train: 32, dev: 32, test: 8}}}}
finetune:
  cola:
    examples: cola
    init_from_phase: second
    max_seq_length: 32
    batch_size: [16]
    learning_rate: [1.0e-3]
    num_epochs: [1]
    restarts: 1
    num_threads: 1
"""
# Every item is recorded, however little work it is.
_COMMAND = (
    "from pipelines.beam import shard_job as jobs; jobs.MIN_REMOTE_SECONDS = 0.0; "
    "from flows.cli.app import main; main()"
)
_RETRIED = ("500", "503", "reset", "torn", "lost", "cut")

FAULTY_RUNS = int(os.environ.get("BERTLOOM_FAULTS") or 1)
"""Seeds of the faults; $BERTLOOM_FAULTS sets the number of seeds."""


class _Place(NamedTuple):
    """A bucket, and what a process needs to know to use it by a URL."""

    url: str
    server: str

    def environment(self, endpoint: str) -> dict[str, str]:
        is_gcs = self.url.startswith("gs:")
        return gcs_environment(endpoint) if is_gcs else environment(endpoint)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a dump, books and a labeled set to local disk."""
    folder = tmp_path_factory.mktemp("world") / "raw"
    write_sample(str(folder), articles=60, tales=2, pages_per_stream=20)
    return folder


@pytest.fixture(scope="module")
def undisturbed(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the contents that a run with a local store publishes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = _run(folder, raw=str(raw), store=str(folder / "store"), more={}, workers=1)
    assert done.returncode == 0, done.stderr
    return _contents(str(folder / "store"))


@pytest.fixture(params=["s3", "gs"])
def place(request: pytest.FixtureRequest, raw: Path) -> _Place:
    """A bucket that holds the raw files."""
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        found = _Place(request.getfixturevalue("bucket"), server.url)
    else:
        gcs: FakeGcs = request.getfixturevalue("gcs")
        found = _Place("gs://bucket", gcs.url)
    fs, path = file_system(found.url)
    for file in raw.rglob("*"):
        if file.is_file():
            fs.pipe_file(f"{path}/raw/{file.relative_to(raw)}", file.read_bytes())
    return found


def _run(
    folder: Path, *, raw: str, store: str, more: dict[str, str], workers: int
) -> subprocess.CompletedProcess[str]:
    recipe = folder / "buckets.yaml"
    recipe.write_text(_RECIPE.format(raw=raw), encoding="utf-8")
    options = ["--store", store, "--engine", "local", "--workers", str(workers)]
    # What was digested and fetched before is not known to it.
    given = {**os.environ, **more, "BERTLOOM_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", _COMMAND, "run", str(recipe), *options]
    return subprocess.run(command, env=given, capture_output=True, text=True)


def _contents(store: str) -> dict[str, str]:
    """Content digest by stage and key, of what is published."""
    pointers = ArtifactStore(store, create=False).pointers()
    return {f"{pointer.stage} {pointer.cache_key}": pointer.content_digest for pointer in pointers}


@pytest.mark.failures
@pytest.mark.parametrize("seed", range(1, FAULTY_RUNS + 1))
def test_whole_flow_completes_when_one_request_in_twenty_fails(
    seed: int, place: _Place, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    store = f"{place.url}/store"
    with Proxy(place.server, one_in=20, seed=seed, faults=_RETRIED) as proxy:
        more = place.environment(proxy.url)
        done = _run(tmp_path, raw=f"{place.url}/raw", store=store, more=more, workers=2)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert set(proxy.harmed) == set(_RETRIED)
    assert sum(proxy.harmed.values()) >= len(proxy.requests) // 20
    assert _contents(store) == undisturbed
    assert {finding.state for finding in check_store(store)} == {"ok"}
    assert _left_over(store) == []


def _left_over(name: str) -> list[str]:
    """Files that belong to no artifact and are no record that is kept."""
    store = ArtifactStore(name, create=False)
    known = set()
    for pointer in store.pointers():
        manifest = store.manifest(pointer.manifest)
        known |= {manifest.manifest_path, f"{manifest.artifact_path}/{CARD}"}
        known |= {f"{manifest.data_path}/{entry.stored_name}" for entry in manifest.files}
    passing = ("artifacts", "leases", "probe", "quarantine", "tombstones", "work")
    return sorted({path for top in passing for path in store.backend.stat(top)} - known)
