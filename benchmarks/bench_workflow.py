"""A run that has nothing left to do, as a whole process.

    python -m benchmarks.bench_workflow [--repeat 5] [--store FOLDER]

Runs the recipe `sample-full`, 88 steps, once with minimal training (or uses a `--store` that has it
all). Then times whole processes, start-up included: `bertloom run` with either engine, `bertloom
plan`, `bertloom lineage`. The peer, interleaved in the same run, is a plain Prefect flow of 88
tasks whose second run finds everything in Prefect's result cache. It has its own Prefect database,
filled by an earlier run. Prints medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from flows.recipes.loader import load_recipe

BARS = {"run, local": 3.0, "run, prefect": 12.0, "plan": 1.5, "lineage": 1.5}
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
    """`--set` texts that leave every step of the sample and next to no training."""
    recipe = load_recipe("sample-full")
    changes = [f"pretrain.{name}.budget.max_steps=2" for name in recipe.pretrain]
    changes += [f"pretrain.{name}.evaluation.max_eval_samples=8" for name in recipe.pretrain]
    changes += [f"finetune.{name}.max_steps=1" for name in recipe.finetune]
    changes += [f"build_instances.{name}.dupe_factor=1" for name in recipe.build_instances]
    return changes


def timed(command: list[str], *, cwd: Path, env: dict[str, str]) -> float:
    """Seconds of a whole process, which has to end well."""
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, encoding="utf-8", check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
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
            "run, prefect": run,
            "plan": [*ours, "plan", "sample-full", "--store", str(store), *changes],
            "lineage": [*ours, "lineage", "sample-full/tabulate", "--store", str(store)],
            "bare Prefect, 88 cached tasks": [sys.executable, "-c", PEER],
        }
        for name in ("run, prefect", "bare Prefect, 88 cached tasks"):
            timed(commands[name], cwd=here, env=env)  # makes the database, and the peer's cache
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(options.repeat):
            for name, command in commands.items():
                seconds[name].append(timed(command, cwd=here, env=env))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, values in seconds.items():
        bar = f"  (bar {BARS[name]:g})" if name in BARS else ""
        spread = f"{min(values):.2f} to {max(values):.2f}"
        print(f"{name:<30} {medians[name]:6.2f} s  ({spread}){bar}")
    ratio = medians["bare Prefect, 88 cached tasks"] / medians["run, local"]
    print(f"the local engine against bare Prefect: {ratio:.1f}x")
    missed = [name for name, bar in BARS.items() if medians[name] > bar]
    print("all within their bars" if not missed else f"above their bars: {', '.join(missed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
