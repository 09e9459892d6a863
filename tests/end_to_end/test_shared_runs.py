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

from flows.cli.app import main
from flows.store.artifacts import ArtifactStore

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


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize(
    "limits", [{"local": 1, "prefect": 2}, {"local": 2, "prefect": 1}], ids=["1 and 2", "2 and 1"]
)
def test_two_processes_of_different_engines_share_twelve_trials(
    prefect_server: None, tmp_path: Path, limits: dict[str, int]
) -> None:
    from prefect.settings import get_current_settings

    (tmp_path / "meeting").mkdir()
    variables = {
        "MEETING": str(tmp_path / "meeting"),
        "LEAST": str(LEAST),
        "PREFECT_API_URL": str(get_current_settings().api.url),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, str(tmp_path / engine), f"{tmp_path}/store",
             f"{tmp_path}/go", engine, str(limit)],
            env={**os.environ, "PYTHONPATH": PYTHONPATH, **variables},
            stdout=subprocess.PIPE, text=True,
        )
        for engine, limit in limits.items()
    ]  # fmt: skip
    deadline = time.monotonic() + 120
    while not all((tmp_path / engine / "ready").exists() for engine in limits):
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in processes)
        time.sleep(0.02)
    (tmp_path / "go").touch()
    printed = [process.communicate(timeout=400)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], printed
    (one, some), (other, all_of) = [json.loads(text.splitlines()[-1]) for text in printed]
    assert some == all_of == TRIALS + 3
    assert one + other == TRIALS  # none is built twice
    assert min(one, other) >= LEAST
    pointers = list(ArtifactStore(f"{tmp_path}/store").pointers("build-instances"))
    assert len(pointers) == TRIALS


MAX_FRAMES = {"local": 6, "prefect": 8}
"""Calls of bertloom by engine, from the command's function to that of a stage. The stage and
Prefect's own frames are not counted."""

OURS = tuple(str(ROOT / name) for name in ("bertloom", "flows", "model", "pipelines", "schemas"))


def own_frames() -> list[str]:
    """Return our functions on this thread's stack, outermost first."""
    frames = traceback.extract_stack()
    return [
        f"{Path(frame.filename).relative_to(ROOT)}:{frame.name}"
        for frame in frames
        if frame.filename.startswith(OURS)
    ]


@pytest.mark.parametrize(
    "engine",
    ["local", pytest.param("prefect", marks=[pytest.mark.slow, pytest.mark.network])],
)
def test_command_reaches_stage_in_few_calls(
    request: pytest.FixtureRequest,
    fakes: FakeStages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
) -> None:
    if engine == "prefect":
        request.getfixturevalue("prefect_server")
    found: list[list[str]] = []
    documents = fakes.module.documents

    def look(*arguments: object, **options: object) -> object:
        found.append(own_frames())
        return documents(*arguments, **options)

    monkeypatch.setattr(fakes.module, "documents", look)
    recipe, file = fakes.recipe(str(tmp_path / "store")), tmp_path / "recipe.yaml"
    file.write_text(recipe.model_dump_json(exclude={"store", "execution"}))
    command = ["bertloom", "run", str(file), "--store", recipe.store, "--engine", engine]
    monkeypatch.setattr(sys, "argv", command)
    with contextlib.suppress(SystemExit):
        main()
    [frames] = found
    assert frames[0].endswith("app.py:main")
    assert [name.rpartition(":")[2] for name in frames].count("execute_step") == (
        engine == "prefect"
    )
    assert len(frames) <= 1 + MAX_FRAMES[engine], "\n".join(frames)
