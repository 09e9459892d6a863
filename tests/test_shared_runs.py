"""Two runs of one recipe share its work; and how far it is from the command to a stage."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_stages import FakeStages, installed

from flows.store.artifacts import ArtifactStore

TRIALS = 12
SLOWLY = """

_instances = instances


def instances(config, *, inputs, output, execution):
    import os
    import time

    if "MEETING" in os.environ:
        # Each process builds a trial while the other does: none waits for the other's.
        meeting = Path(os.environ["MEETING"])
        (meeting / str(os.getpid())).touch()
        deadline = time.monotonic() + 60
        while len(list(meeting.iterdir())) < 2:
            assert time.monotonic() < deadline, "the other run builds nothing"
            time.sleep(0.02)
    time.sleep(float(os.environ["SECONDS"]))
    return _instances(config, inputs=inputs, output=output, execution=execution)
"""
RUN = f"""
import json, sys, time
from pathlib import Path

import pytest

from fake_stages import STAGES, installed
from flows.bert import run_recipe
from schemas.configs import ExecutionConfig, InstancesConfig

code, store, go, engine, limit = sys.argv[1:]
with installed(Path(code), pytest.MonkeyPatch()) as fakes:
    fakes.write("stages", STAGES + {SLOWLY!r})
    trials = {{f"t{{number}}": InstancesConfig(seed=number) for number in range({TRIALS})}}
    execution = ExecutionConfig(parallel_steps=int(limit))
    recipe = fakes.recipe(store, build_instances=trials, execution=execution)
    Path(code, "ready").touch()
    while not Path(go).exists():
        time.sleep(0.01)
    results = run_recipe(recipe, engine=engine, say=lambda line: None)
    print(json.dumps([fakes.calls.count("instances"), len(results)]))
"""


def share(folder: Path, *, engine: str, limit: int, **environment: str) -> list[list[int]]:
    """Two processes that run one recipe at once: the trials that each built, and its results."""
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    (folder / "meeting").mkdir()
    processes = []
    for name in ("a", "b"):
        arguments = [str(folder / name), str(folder / "store"), str(folder / "go")]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", RUN, *arguments, engine, str(limit)],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(paths),
                    **({} if engine == "prefect" else {"MEETING": str(folder / "meeting")}),
                    # Prefect's server is slow to begin a run; both are to find some work left.
                    "SECONDS": "2" if engine == "prefect" else "0.3",
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


def check_shared(folder: Path, told: list[list[int]], *, least: int = TRIALS // 4) -> None:
    (one, some), (other, all_of) = told
    assert some == all_of == TRIALS + 3
    assert one + other == TRIALS  # none is built twice
    assert min(one, other) >= least
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
    check_shared(tmp_path, told, least=1)  # one may begin seconds before the other


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStages]:
    with installed(tmp_path / "code", monkeypatch) as found:
        yield found


def test_from_the_command_to_a_stage_there_are_eight_frames_at_most(
    fakes: FakeStages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import __main__ as command

    root = Path(__file__).parents[1]
    ours = [str(root / name) for name in ("bertloom", "flows", "model", "pipelines", "schemas")]
    found: list[list[str]] = []
    documents = fakes.module.documents

    def look(*given: object, **named: object) -> object:
        frames = traceback.extract_stack()
        found.append(
            [f"{f.filename}:{f.name}" for f in frames if f.filename.startswith(tuple(ours))]
        )
        return documents(*given, **named)

    monkeypatch.setattr(fakes.module, "documents", look)
    recipe = tmp_path / "recipe.yaml"
    written = fakes.recipe(str(tmp_path / "store")).model_dump_json(exclude={"store", "execution"})
    recipe.write_text(written)
    store = str(tmp_path / "store")
    monkeypatch.setattr(
        sys, "argv", ["bertloom", "run", str(recipe), "--store", store, "--engine", "local"]
    )
    with contextlib.suppress(SystemExit):
        command.main()
    [frames] = found
    assert frames[0].endswith("app.py:main")
    assert len(frames) <= 8, frames
