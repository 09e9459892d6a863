"""Available CPU share, and the wait policy of threads in each process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.paths import ROOT

from model.finetuning.jobs import EvaluationJob
from model.launch import core_share
from model.launch.core_share import SPIN_VARIABLES, CoreShare, measure_core_share
from model.launch.launcher import Worker

QUIET = {"GOMP_SPINCOUNT": "20000", "KMP_BLOCKTIME": "1"}
BUSY = {"GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "0"}

SITE = """
import importlib.util, sys
from importlib.abc import MetaPathFinder
class Finder(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {names!r}:
            return importlib.util.spec_from_file_location(name, {folder!r} + '/' + name + '.py')
sys.meta_path.insert(0, Finder())
import model.launch.core_share
model.launch.core_share.measure_core_share = lambda: model.launch.core_share.CoreShare(2, {share})
"""
"""Replaces the measurement, and modules by those of a test."""

WITHOUT_TORCH = """
import os, sys
os.environ["WITHOUT_TORCH"] = str("torch" not in sys.modules)
"""
DISPLAY_SETTINGS = (
    f"{WITHOUT_TORCH}\nimport torch  # OpenMP writes its settings to standard error\n"
)


def site(folder: Path, share: float, **modules: str) -> dict[str, str]:
    """Return the environment of a process with a fixed share and replaced modules."""
    names = [name.replace("__", ".") for name in modules]
    for name, code in zip(names, modules.values(), strict=True):
        (folder / f"{name}.py").write_text(code)
    text = SITE.format(names=names, folder=str(folder), share=share)
    (folder / "sitecustomize.py").write_text(text)
    given = {name: value for name, value in os.environ.items() if name not in SPIN_VARIABLES}
    path = os.pathsep.join((str(folder), str(ROOT)))
    return {**given, "PYTHONPATH": path, "OMP_DISPLAY_ENV": "VERBOSE"}


def test_share_is_measured_and_formatted() -> None:
    measured = measure_core_share(seconds=0.02)
    assert 0 < measured.available_fraction <= 1
    assert measured.cores >= 1
    assert "1.9 of 2 cores" in CoreShare(2, 0.97).text
    assert "1.0 of 2 cores" in CoreShare(2, 0.5).text
    assert "2.0 times" in CoreShare(2, 0.5).text


def test_core_share_excludes_cpu_used_by_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    # A sleeping thread uses no CPU time, like one that waits for a core.
    class Asleep:
        def __init__(self, data: bytes) -> None:
            time.sleep(0.01)

    monkeypatch.setattr(core_share.hashlib, "sha256", Asleep)
    found = measure_core_share(seconds=0.05)
    assert found.available_fraction < 0.5
    assert found.is_busy


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert measure_core_share(seconds=0.01).cores == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    assert measure_core_share(seconds=0.01).cores == len(os.sched_getaffinity(0))


def displayed(text: str) -> str:
    """Return the spin count that GNU OpenMP reports."""
    [found] = [line for line in text.splitlines() if "GOMP_SPINCOUNT" in line]
    return found.split("'")[1]


PROBE = f"""
from pydantic import BaseModel
class Question(BaseModel):
    name: str = ""
def environment(question: Question, *, stop) -> dict:
    return {{name: os.environ.get(name) for name in (*{SPIN_VARIABLES!r}, "WITHOUT_TORCH")}}
"""


def test_process_of_trials_and_evaluations_bounds_spinning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in SPIN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in site(tmp_path, 0.5, model__probe=DISPLAY_SETTINGS + PROBE).items():
        monkeypatch.setenv(name, value)
    process = Worker()
    try:
        question = EvaluationJob.model_construct(name="the probe")  # any pydantic model
        answer = process.call("model.probe:environment", question)
    finally:
        process.end()
    assert answer == {**BUSY, "OMP_WAIT_POLICY": None, "WITHOUT_TORCH": "True"}
    output = capfd.readouterr().err
    assert displayed(output) == BUSY["GOMP_SPINCOUNT"]
    assert CoreShare(2, 0.5).text in output


def test_choice_of_the_user_wins() -> None:
    code = """
from model.launch.core_share import limit_thread_spinning
for own in ({"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "PASSIVE"}, {"KMP_BLOCKTIME": "200"}):
    environ = dict(own)
    assert limit_thread_spinning(environ) is not None
    assert environ == own
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_predict_and_evaluate_commands_bound_spinning(tmp_path: Path) -> None:
    environment = site(
        tmp_path, 0.98, model__finetuning__prediction=f"{DISPLAY_SETTINGS}\nPredictor = None"
    )
    code = """
import os
from flows.model_loading import open_predictors
from flows.cli.models import answer_file
from model.tasks import find_task
from schemas.errors import ConfigError
for ask in (
    lambda: open_predictors("no-such-model", store="no-such-store"),
    lambda: answer_file(
        find_task("sst-2"), "x", model="no-such", split="dev", store="no-such"
    ),
):
    try:
        ask()
    except ConfigError:
        pass
print(os.environ["WITHOUT_TORCH"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True"
    assert displayed(done.stderr) == QUIET["GOMP_SPINCOUNT"]
