"""Two runs of one recipe share its work; and how far it is from the command to a stage."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
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
import json, os, sys
from pathlib import Path

import pytest

from support.fake_stages import STAGES, installed
from flows.running import run_recipe
from schemas.corpus_configs import InstancesConfig
from schemas.execution_configs import ExecutionConfig

folder, engine, *limits = sys.argv[1:]
with installed(Path(folder, engine), pytest.MonkeyPatch()) as fakes:
    fakes.write("stages", STAGES + {SLOWLY!r})
    trials = {{f"t{{number}}": InstancesConfig(seed=number) for number in range({TRIALS})}}
    for turn, limit in enumerate(map(int, limits)):
        os.environ["MEETING"] = f"{{folder}}/meeting-{{turn}}"
        fakes.calls.clear()
        execution = ExecutionConfig(max_parallel_steps=limit)
        store = f"{{folder}}/store-{{turn}}"
        recipe = fakes.recipe(store, build_instances=trials, execution=execution)
        results = run_recipe(recipe, engine=engine, log=lambda line: None)
        print(json.dumps([fakes.calls.count("instances"), len(results)]))
"""


@pytest.mark.slow
@pytest.mark.network
def test_two_processes_of_different_engines_share_twelve_trials(
    prefect_server: None, tmp_path: Path
) -> None:
    """Each process runs the recipe with one step and with two steps at a time."""
    from prefect.settings import get_current_settings

    variables = {"LEAST": str(LEAST), "PREFECT_API_URL": str(get_current_settings().api.url)}
    for turn in range(2):
        (tmp_path / f"meeting-{turn}").mkdir()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, str(tmp_path), engine, *limits],
            env={**os.environ, "PYTHONPATH": PYTHONPATH, **variables},
            stdout=subprocess.PIPE, text=True,
        )
        for engine, limits in {"local": "12", "prefect": "21"}.items()
    ]  # fmt: skip
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], printed
    counts = [map(json.loads, text.splitlines()[-2:]) for text in printed]
    for turn, ((one, some), (other, all_of)) in enumerate(zip(*counts, strict=True)):
        assert some == all_of == TRIALS + 3
        assert one + other == TRIALS  # none is built twice
        assert min(one, other) >= LEAST
        pointers = list(ArtifactStore(f"{tmp_path}/store-{turn}").pointers("build-instances"))
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
