"""Fixtures that more than one test module uses."""

from __future__ import annotations

import functools
import gc
import os
import signal
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pydantic import BaseModel
    from support.cli_runner import Cli
    from support.counting_fs import CountedFiles
    from support.fake_gcs import FakeGcs
    from support.fake_stages import FakeStages
    from support.training_builder import SmallCorpus

    from benchmarks.object_store import S3Server
    from flows.store.artifacts import ArtifactStore
    from flows.store.runs import RunRecord
    from schemas.manifest import StageInput


# A shell starts background jobs with SIGINT ignored, and child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

if "PYTEST_XDIST_WORKER" in os.environ:
    # Before torch is loaded: each of the processes that share the machine's cores takes one.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Before gcsfs is loaded, which then has the class that a stand-in of GCS can serve.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

# No test fails by a clock: a busy machine draws and tries its examples slowly. Nor by chance: the
# examples are the same each time, unless $BERTLOOM_FUZZ asks for new ones.
settings.register_profile(
    "any-machine",
    deadline=None,
    derandomize="BERTLOOM_FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-machine")


def pytest_xdist_auto_num_workers() -> int:
    """Run three processes on two cores: tests wait a third of their time for other processes."""
    cores = psutil.cpu_count(logical=False) or 1
    return cores + cores // 2


# The longest modules come first: started last, one would run while the other process has no work.
_LONGEST = (
    "test_doc_outputs",
    "test_real_corpus",
    "test_prefect_deployments",
    "test_sample",
    "test_training",
    "test_finetune",
    "test_whole_flow",
    "test_complexity",
    "test_every_task",
    "test_killed",
    "test_shared_runs",
    "test_prefect_server",
    "test_task_commands",
    "test_object_store",
    "test_failing_stores",
    "test_pretrain",
    "test_prefect_flows",
    "test_damage",
    "test_accelerator",
    "test_cli",
    "test_health",
    "test_workers",
    "test_docs",
    "test_layers",
    "test_corpus",
    "test_snapshots",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the tests of the longest modules to the front, the others as they were."""
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let garbage collection run rarely, and never visit the modules that tests import."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


def find_real_data() -> Path | None:
    """The folder of real dumps, books and vocabularies, which stays outside the project."""
    named = os.environ.get("BERTLOOM_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    return folder if (folder / "README.md").is_file() else None


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real data, or skip with the path that was searched."""
    folder = find_real_data()
    if folder is None:
        pytest.skip("no real data: set BERTLOOM_DATA to its folder, or put it at ../shared/data")
    return folder


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command, run in the test's own process."""
    from support.cli_runner import Cli

    return Cli(capsys)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A folder for a store."""
    return str(tmp_path / "store")


@pytest.fixture
def store(root: str) -> ArtifactStore:
    """An empty store in a folder."""
    from flows.store.artifacts import ArtifactStore

    return ArtifactStore(root)


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStages]:
    """The stages of the corpus, replaced by tiny ones."""
    from support.fake_stages import installed

    with installed(tmp_path / "code", monkeypatch) as found:
        yield found


@pytest.fixture(scope="module")
def prefect_server() -> Iterator[None]:
    """A Prefect server of a module, on an empty database; also an idle one uses CPU."""
    from flows.prefect_settings import set_prefect_defaults

    set_prefect_defaults()
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with (
        prefect_test_harness(server_startup_timeout=300),
        # Each flow run waits a second for its heartbeat's thread.
        temporary_settings(updates={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        yield


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep cached digests out of the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("BERTLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(autouse=True, scope="session")
def _without_fsync() -> Iterator[None]:
    """Do not wait for the disk after each file: no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No digests are remembered from before the test."""
    monkeypatch.setenv("BERTLOOM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def counted() -> Iterator[type[CountedFiles]]:
    """Reads of `counted://` URLs, from none on."""
    import fsspec
    from support.counting_fs import PROTOCOL, CountedFiles

    fsspec.register_implementation(PROTOCOL, CountedFiles, clobber=True)
    CountedFiles.fetched.clear()
    CountedFiles.bytes_read.clear()
    CountedFiles.faults.clear()
    yield CountedFiles
    CountedFiles.clear_instance_cache()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny BERT in Hugging Face's layout."""
    from support.finetuning_builder import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "bert")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StageInput]:
    """Examples of a task of each type."""
    from support.finetuning_builder import all_kinds

    return all_kinds(tmp_path_factory.mktemp("kinds"))


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> SmallCorpus:
    """Instances to pretrain on; a test that changes them takes a copy."""
    from support.training_builder import SmallCorpus

    return SmallCorpus(tmp_path_factory.mktemp("small-corpus"))


@pytest.fixture
def same_threads() -> Iterator[None]:
    """The number of threads that torch uses, as it was before the test."""
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def one_thread(same_threads: None) -> None:
    """One thread for torch during the test."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def one_worker() -> Iterator[None]:
    """The worker process that trainings of a module share ends with it."""
    from model.training.workers import end_workers

    yield
    end_workers()


@pytest.fixture(scope="module")
def in_process() -> Iterator[None]:
    """Make calls for worker processes in this one: a new one takes seconds to load torch."""
    import torch

    from model.training import worker_process, workers
    from model.training.stopping import StopRequest

    def call(_worker: object, function: str, argument: BaseModel, **_: object) -> dict[str, Any]:
        return worker_process._call(function, argument.model_dump_json(), stop=StopRequest())

    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers.Worker, "call", call)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def reported_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[ArtifactStore, RunRecord]:
    """A finished run whose figures are drawn and kept; a test that changes it takes a copy."""
    from support.report_builder import whole_run

    from flows.report.page import report_page

    store, record = whole_run(tmp_path_factory.mktemp("whole"))
    report_page(store, record)
    return store, record


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """Start an S3 server for this test run; all its clients share what botocore reads from disk."""
    from botocore import loaders

    from benchmarks.object_store import S3Server

    with S3Server() as started, pytest.MonkeyPatch.context() as patch:
        patch.setattr(loaders, "create_loader", functools.cache(loaders.create_loader))
        yield started


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket of it."""
    import fsspec

    from benchmarks.object_store import environment

    for name, value in environment(s3_server.url).items():
        monkeypatch.setenv(name, value)
    yield s3_server.make_bucket(f"corpora-{uuid.uuid4().hex[:12]}")
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGcs]:
    """A GCS in this process; a request that it does not know fails the test."""
    import fsspec
    from support.fake_gcs import FakeGcs, use_gcs

    with FakeGcs() as server:
        use_gcs(server.url, monkeypatch)
        yield server
    fsspec.get_filesystem_class("gs").clear_instance_cache()
    assert server.unknown == []
