"""From dump to table with input and store in a bucket behind a failing network."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from support.fake_gcs import FakeGcs, gcs_environment
from support.full_recipe import whole_recipe
from support.recipe_runs import published, run_recipe_file

from benchmarks.object_store import Proxy, S3Server, environment
from flows.cli.store import check_store
from flows.sample import write_sample
from flows.store.artifacts import ArtifactStore
from pipelines.io.file_systems import file_system

pytestmark = pytest.mark.network

_SHORT = [
    "pretrain.first.budget.max_steps=4",
    "pretrain.first.checkpoints.save_steps=2",
    "pretrain.second.budget.max_steps=2",
    "finetune.cola.restarts=1",
]
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
    store = folder / "store"
    done = _run(folder, raw=str(raw), store=str(store), more={}, workers=1)
    assert done.returncode == 0, done.stderr
    return published(store)


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
    recipe = folder / "whole.yaml"
    text = whole_recipe(pages=f"{raw}/*.xml.bz2", books=f"{raw}/books.tar.gz", tasks=f"{raw}/tasks")
    recipe.write_text(text, encoding="utf-8")
    options = ["--workers", str(workers), *(f"--set={override}" for override in _SHORT)]
    # The process does not know earlier digests and downloads.
    environ = {**os.environ, **more, "BERTLOOM_CACHE": str(folder / "cache")}
    return run_recipe_file(recipe, store, *options, env=environ)


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
    assert published(store) == undisturbed
    assert {finding.state for finding in check_store(store)} == {"ok"}
    assert _left_over(store) == []


def _left_over(name: str) -> list[str]:
    """Files that belong to no artifact and are no record that is kept."""
    store = ArtifactStore(name, create=False)
    known = set()
    for pointer in store.pointers():
        manifest = store.manifest(pointer.manifest)
        known.add(manifest.manifest_path)
        known |= {f"{manifest.data_path}/{entry.stored_name}" for entry in manifest.files}
    passing = ("artifacts", "active", "leases", "probe", "quarantine", "work")
    return sorted({path for top in passing for path in store.backend.stat(top)} - known)
