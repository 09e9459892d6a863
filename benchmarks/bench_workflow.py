"""A run that has nothing left to do, as a whole process.

    python -m benchmarks.bench_workflow [--repeat 5] [--store FOLDER]

Runs the recipe `sample-full`, 88 steps, once with minimal training (or uses a `--store` that has it
all). Then times whole processes, start-up included: `bertloom run` with either engine, `bertloom
plan`, `bertloom lineage`. The peer, interleaved in the same run, is a plain Prefect flow of 88
tasks whose second run finds everything in Prefect's result cache. It has its own Prefect database,
filled by an earlier run. Prints medians.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.timing import parser_for, ratio, take_turns
from flows.recipes.loader import load_recipe

GOALS = {"run, local": 3.0, "run, prefect": 12.0, "plan": 1.5, "lineage": 1.5}
PEER = """
import sys
from prefect import flow, task
from prefect.cache_policies import INPUTS, TASK_SOURCE

@task(persist_result=True, cache_policy=TASK_SOURCE + INPUTS, result_storage_key=None)
def step(number, before):
    return number

@flow(persist_result=True)
def chain():
    futures = [step.submit(number, 0) for number in range(88)]
    return [future.result() for future in futures]

chain()
"""


def small_changes() -> list[str]:
    """Return `--set` options that keep every step of the sample, with very short training."""
    recipe = load_recipe("sample-full")
    changes = [f"pretrain.{name}.budget.max_steps=2" for name in recipe.pretrain]
    changes += [f"pretrain.{name}.evaluation.max_eval_samples=8" for name in recipe.pretrain]
    changes += [f"finetune.{name}.max_steps=1" for name in recipe.finetune]
    changes += [f"build_instances.{name}.dupe_factor=1" for name in recipe.build_instances]
    return changes


def timed(command: list[str], *, cwd: Path, env: dict[str, str]) -> float:
    """Return the seconds of a whole process, which must succeed."""
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, encoding="utf-8", check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return time.perf_counter() - began


def main() -> int:
    parser = parser_for(__doc__, repeat=5)
    parser.add_argument(
        "--store", help="one where `bertloom run sample-full` has run; with the sample next to it"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        store = Path(options.store).absolute() if options.store else here / "runs/store"
        sample = store.parent / "sample"
        env = {**os.environ, "PREFECT_HOME": str(here / "prefect"), "BERTLOOM_SAMPLE": str(sample)}
        for name in ("DO_NOT_TRACK", "PREFECT_SERVER_ANALYTICS_ENABLED"):
            env[name] = {"DO_NOT_TRACK": "1"}.get(name, "false")
        env["PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"] = "120"
        ours = [sys.executable, "-m", "flows"]
        changes = [] if options.store else [f"--set={text}" for text in small_changes()]
        run = [*ours, "run", "sample-full", "--store", str(store), *changes]
        if not options.store:
            timed([*ours, "sample", str(sample)], cwd=here, env=env)
        first = timed([*run, "--engine", "local"], cwd=here, env=env)
        print(f"first run, 88 steps: {first:.1f} s")
        commands = {
            "run, local": [*run, "--engine", "local"],
            "run, prefect": [*run, "--engine", "prefect"],
            "plan": [*ours, "plan", "sample-full", "--store", str(store), *changes],
            "lineage": [*ours, "lineage", "sample-full/tabulate", "--store", str(store)],
            "bare Prefect, 88 cached tasks": [sys.executable, "-c", PEER],
        }
        for name in ("run, prefect", "bare Prefect, 88 cached tasks"):
            timed(commands[name], cwd=here, env=env)  # makes the database, and the peer's cache
        sides = {
            name: partial(timed, command, cwd=here, env=env) for name, command in commands.items()
        }
        seconds = take_turns(sides, repeat=options.repeat, warmup=0)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, values in seconds.items():
        goal = f"  (goal {GOALS[name]:g})" if name in GOALS else ""
        spread = f"{min(values):.2f} to {max(values):.2f}"
        print(f"{name:<30} {medians[name]:6.2f} s  ({spread}){goal}")
    peer = seconds["bare Prefect, 88 cached tasks"]
    print(f"the local engine against bare Prefect: {ratio(seconds['run, local'], peer)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
