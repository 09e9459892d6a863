"""Two runs of one recipe share its work; and how far it is from the command to a stage."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest
from support.fake_stages import FakeStages
from support.paths import PYTHONPATH, ROOT

from flows.store.artifacts import ArtifactStore
from schemas.recipe import Recipe

TRIALS = 12
LEAST = TRIALS // 3
SLOWLY = """

_instances = instances


def instances(config, *, inputs, output, execution):
    import os
    import time
    from collections import Counter

    # Each process begins its first, second and further trial only when the other has come as far,
    # until each has begun a third of them: neither waits for the other's, however late it began.
    meeting, own = Path(os.environ["MEETING"]), str(os.getpid())
    (meeting / f"{own}-{config.seed}").touch()
    deadline = time.monotonic() + 300
    while True:
        begun = Counter(path.name.partition("-")[0] for path in meeting.iterdir())
        if len(begun) == 2 and min(begun.values()) >= min(begun[own], int(os.environ["LEAST"])):
            break
        assert time.monotonic() < deadline, "the other run builds nothing"
        time.sleep(0.02)
    time.sleep(0.1)
    return _instances(config, inputs=inputs, output=output, execution=execution)
"""
RUN = f"""
import json, sys, time
from pathlib import Path

import pytest

from support.fake_stages import STAGES, installed
from flows.running import run_recipe
from schemas.corpus_configs import InstancesConfig
from schemas.execution_configs import ExecutionConfig

code, store, go, engine, limit = sys.argv[1:]
with installed(Path(code), pytest.MonkeyPatch()) as fakes:
    fakes.write("stages", STAGES + {SLOWLY!r})
    trials = {{f"t{{number}}": InstancesConfig(seed=number) for number in range({TRIALS})}}
    execution = ExecutionConfig(max_parallel_steps=int(limit))
    recipe = fakes.recipe(store, build_instances=trials, execution=execution)
    Path(code, "ready").touch()
    while not Path(go).exists():
        time.sleep(0.01)
    results = run_recipe(recipe, engine=engine, log=lambda line: None)
    print(json.dumps([fakes.calls.count("instances"), len(results)]))
"""


def share(folder: Path, *, engine: str, limit: int, **environment: str) -> list[list[int]]:
    """Two processes that run one recipe at once: the trials that each built, and its results."""
    (folder / "meeting").mkdir()
    processes = []
    for name in ("a", "b"):
        arguments = [str(folder / name), str(folder / "store"), str(folder / "go")]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", RUN, *arguments, engine, str(limit)],
                env={
                    **os.environ,
                    "PYTHONPATH": PYTHONPATH,
                    "MEETING": str(folder / "meeting"),
                    "LEAST": str(LEAST),
                    **environment,
                },
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    deadline = time.monotonic() + 120
    while not all((folder / name / "ready").exists() for name in ("a", "b")):
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in processes)
        time.sleep(0.02)
    (folder / "go").touch()
    told = [process.communicate(timeout=400)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    return [json.loads(text.splitlines()[-1]) for text in told]


def check_shared(folder: Path, told: list[list[int]]) -> None:
    (one, some), (other, all_of) = told
    assert some == all_of == TRIALS + 3
    assert one + other == TRIALS  # none is built twice
    assert min(one, other) >= LEAST
    pointers = list(ArtifactStore(str(folder / "store")).pointers("build-instances"))
    assert len(pointers) == TRIALS


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 2])
def test_two_processes_share_twelve_trials(tmp_path: Path, limit: int) -> None:
    check_shared(tmp_path, share(tmp_path, engine="local", limit=limit))


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("limit", [1, 2])
def test_two_processes_share_twelve_trials_with_prefect(
    prefect_server: None, tmp_path: Path, limit: int
) -> None:
    from prefect.settings import get_current_settings

    url = str(get_current_settings().api.url)
    told = share(tmp_path, engine="prefect", limit=limit, PREFECT_API_URL=url)
    check_shared(tmp_path, told)


MAX_FRAMES = 6
"""Calls of bertloom from the command's function to that of a stage, which is not counted."""

MAX_PREFECT_FRAMES = 9
"""The same with Prefect, whose own frames are not counted."""

OURS = tuple(str(ROOT / name) for name in ("bertloom", "flows", "model", "pipelines", "schemas"))


def own_frames() -> list[str]:
    """Return our functions on this thread's stack, outermost first."""
    frames = traceback.extract_stack()
    return [
        f"{Path(frame.filename).relative_to(ROOT)}:{frame.name}"
        for frame in frames
        if frame.filename.startswith(OURS)
    ]


def call_command(recipe: Recipe, folder: Path, *options: str) -> None:
    """`bertloom run` of a recipe, in this process."""
    from flows import __main__ as command

    file = folder / "recipe.yaml"
    file.write_text(recipe.model_dump_json(exclude={"store", "execution"}))
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SystemExit):
        patch.setattr(
            sys, "argv", ["bertloom", "run", str(file), "--store", recipe.store, *options]
        )
        command.main()


def look_from_documents(fakes: FakeStages, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record our frames at each call of the stage."""
    found: list[list[str]] = []
    documents = fakes.module.documents

    def look(*given: object, **named: object) -> object:
        found.append(own_frames())
        return documents(*given, **named)

    monkeypatch.setattr(fakes.module, "documents", look)
    return found


def test_command_reaches_stage_in_few_calls(
    fakes: FakeStages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = look_from_documents(fakes, monkeypatch)
    call_command(fakes.recipe(str(tmp_path / "store")), tmp_path, "--engine", "local")
    [frames] = found
    assert frames[0].endswith("app.py:main")
    assert len(frames) <= 1 + MAX_FRAMES, "\n".join(frames)


@pytest.mark.slow
@pytest.mark.network
def test_command_reaches_stage_in_few_calls_with_prefect(
    prefect_server: None, fakes: FakeStages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = look_from_documents(fakes, monkeypatch)
    call_command(fakes.recipe(str(tmp_path / "store")), tmp_path, "--engine", "prefect")
    [frames] = found
    assert frames[0].endswith("app.py:main")
    assert [name.rpartition(":")[2] for name in frames].count("execute_step") == 1
    assert len(frames) <= 1 + MAX_PREFECT_FRAMES, "\n".join(frames)
