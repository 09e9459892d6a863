"""A real Spark whose executors are killed half-way: the files are those of `local` still.

Takes minutes: `make failures`. Skips, and says what is missing, as the tests of engines do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clusters import job_servers, spark_cluster
from support.corpus_builder import STAGES, digests, run_corpus, small_recipe, small_sample

from schemas.execution_configs import ExecutionConfig

pytestmark = [pytest.mark.failures, pytest.mark.network]


def _kill_one_executor(application: Path) -> bool:
    """Kill the first executor of an application that has finished a task, and others to do."""
    for log in sorted(application.glob("*/stderr")):
        if "Finished task" not in log.read_text(errors="replace"):
            continue
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_java = (process / "exe").readlink().name == "java"
                if is_java and (process / "cwd").readlink() == log.parent:
                    os.kill(int(process.name), signal.SIGKILL)
                    return True
    return False


class _Killer:
    """Kills one executor of each application of a cluster."""

    def __init__(self, cluster: Path) -> None:
        self._cluster = cluster
        self.killed: set[str] = set()

    def work(self, ended: threading.Event) -> None:
        """Look for executors until the event is set."""
        while not ended.wait(0.05):
            for application in self._cluster.glob("worker-*/app-*"):
                if application.name not in self.killed and _kill_one_executor(application):
                    self.killed.add(application.name)


@contextlib.contextmanager
def _killing(cluster: Path) -> Iterator[_Killer]:
    killer, ended = _Killer(cluster), threading.Event()
    thread = threading.Thread(target=killer.work, args=(ended,))
    thread.start()
    try:
        yield killer
    finally:
        ended.set()
        thread.join()


def test_an_executor_killed_in_each_stage_changes_no_byte(tmp_path: Path) -> None:
    servers = str(job_servers())
    recipe = small_recipe(small_sample(tmp_path / "sample"))
    local = run_corpus(recipe, tmp_path / "local")
    with spark_cluster(tmp_path / "spark", workers=2) as (master, home):
        fields = {"master": master, "home": home, "job_server": servers}
        how = ExecutionConfig.model_validate({"runner": "spark", "spark": fields})
        with _killing(tmp_path / "spark") as killer:
            made = run_corpus(recipe, tmp_path / "run", execution=how)
    assert digests(made) == digests(local)
    assert len(killer.killed) == len(STAGES)
