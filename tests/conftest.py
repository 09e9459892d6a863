"""Fixtures that more than one test module uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from command_runs import Cli

    from flows.store.artifacts import ArtifactStore
    from flows.store.runs import RunRecord


if "PYTEST_XDIST_WORKER" in os.environ:
    # Before torch is loaded: each of the processes that share the machine's cores takes one.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def find_real_data() -> Path | None:
    """The folder of real dumps, books and vocabularies, which stays outside the project."""
    named = os.environ.get("BERTLOOM_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    return folder if (folder / "README.md").is_file() else None


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The real data, or a skip that says where it was looked for."""
    folder = find_real_data()
    if folder is None:
        pytest.skip("no real data: set BERTLOOM_DATA to its folder, or put it at ../shared/data")
    return folder


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command, run in the test's own process."""
    from command_runs import Cli

    return Cli(capsys)


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """A Prefect server of this test run, on an empty database; it takes ten seconds to start."""
    from flows.orchestration.server import prepare_prefect

    prepare_prefect()
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with (
        prefect_test_harness(server_startup_timeout=120),
        # Each flow run waits a second for its heartbeat's thread.
        temporary_settings(updates={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        yield


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Digests remembered by tests go to a folder of their own, not to the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("BERTLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def reported_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[ArtifactStore, RunRecord]:
    """A finished run whose figures are drawn and kept; a test that changes it takes a copy."""
    from report_runs import whole_run

    from flows.report.page import report_page

    store, record = whole_run(tmp_path_factory.mktemp("whole"))
    report_page(store, record)
    return store, record
