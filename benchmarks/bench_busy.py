"""Training next to busy processes: the cost of threads that spin while they wait.

    python -m benchmarks.bench_busy [--steps 300] [--repeat 3]

Trains the first phase of the sample for some steps in a separate process, as a run does, with the
default limit on spinning and with the default of GNU's OpenMP (GOMP_SPINCOUNT=300000). Each variant
runs on a quiet machine and next to one busy loop per core, with one training and with two at a
time, interleaved. Prints medians of the seconds that the trainings record; loading torch is not
included. Needs an otherwise idle machine.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.timing import parser_for
from flows.lineage.resolve import resolve
from flows.recipes.loader import load_recipe
from flows.run.step_execution import stage_input
from flows.running import run_recipe
from flows.sample import write_sample
from flows.store.artifacts import ArtifactStore
from model.launch.core_share import SPIN_VARIABLES
from model.launch.launcher import child_environment
from model.pretraining.job import TrainingJob

PHASE = "phase-1"
VARIANTS = {"bounded": {}, "torch's own": {"GOMP_SPINCOUNT": "300000"}}
GOAL_IDLE, GOAL_BUSY = 1.05, 2.5


class Situation(NamedTuple):
    """Load on the machine while a training is timed."""

    trainings: int
    """Side by side."""

    loops: int
    """Number of busy loops."""


def prepared_job(folder: Path, *, steps: int) -> TrainingJob:
    """The sample's first phase, on instances that are made for it."""
    os.environ["BERTLOOM_SAMPLE"] = str(folder / "sample")
    write_sample(str(folder / "sample"))
    recipe = load_recipe(
        "sample",
        overrides=[
            f"pretrain.{PHASE}.budget.max_steps={steps}",
            f"pretrain.{PHASE}.evaluation.max_eval_samples=8",
        ],
        store=str(folder / "store"),
    )
    run_recipe(recipe, engine="local", until="build-instances", log=lambda _: None)
    config = recipe.pretrain[PHASE]
    store = ArtifactStore(recipe.store, create=False)
    inputs = {
        "instances": f"sample/build-instances.{config.instances}",
        "vocabulary": "sample/build-vocabulary",
    }
    given = {
        name: stage_input(name, resolve(ref, store=store), store=store)
        for name, ref in inputs.items()
    }
    return TrainingJob(name=f"pretrain.{PHASE}", config=config, work=str(folder), **given)


@contextlib.contextmanager
def busy_loops(number: int) -> Iterator[None]:
    """Keep a number of processes busy during the block."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])  # our own text, no shell
        for _ in range(number)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def seconds(job: TrainingJob, situation: Situation, variant: dict[str, str]) -> float:
    """Seconds per training; the mean of several."""
    given = {
        name: value for name, value in child_environment().items() if name not in SPIN_VARIABLES
    }
    with tempfile.TemporaryDirectory() as folder, busy_loops(situation.loops):
        processes = []
        for number in range(situation.trainings):
            work = Path(folder, str(number))
            work.mkdir()
            file = work / "job.json"
            file.write_text(
                job.model_copy(update={"work": str(work)}).model_dump_json(), encoding="utf-8"
            )
            command = [sys.executable, "-m", "model.pretraining.process", str(file)]
            processes.append(
                subprocess.Popen(command, env={**given, **variant}, stderr=subprocess.DEVNULL)
            )
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit(f"a training ended with {max(codes)}")
        return statistics.mean(
            _clock(Path(folder, str(number))) for number in range(situation.trainings)
        )


def _clock(work: Path) -> float:
    """Seconds of a training, by its own record; loading torch is not in them."""
    lines = (work / "curves" / "timing.jsonl").read_text(encoding="utf-8").splitlines()
    return float(json.loads(lines[-1])["seconds"])


def report(found: dict[tuple[Situation, str], list[float]]) -> int:
    """Print medians and ratios. Return how many miss their goals."""
    medians = {key: statistics.median(values) for key, values in found.items()}
    for (situation, variant), values in found.items():
        spread = f"{min(values):.1f} to {max(values):.1f}"
        print(
            f"{situation.trainings} training(s), {situation.loops} loops, {variant:<12}"
            f" {medians[situation, variant]:7.1f} s  ({spread})"
        )
    missed = 0
    for trainings in sorted({situation.trainings for situation, _ in found}):
        idle, busy = sorted({key for key, _ in found if key.trainings == trainings})
        cost = medians[idle, "bounded"] / medians[idle, "torch's own"]
        print(f"{trainings} training(s), quiet, bounded against torch's own: {cost:.2f}x", end="")
        print(f" (goal {GOAL_IDLE})")
        missed += cost > GOAL_IDLE
        for variant in VARIANTS:
            ratio = medians[busy, variant] / medians[idle, variant]
            print(f"{trainings} training(s), with busy loops over quiet, {variant}: {ratio:.2f}x")
            missed += variant == "bounded" and ratio > GOAL_BUSY
    return missed


def main() -> int:
    parser = parser_for(__doc__, repeat=3)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    situations = [Situation(*pair) for pair in itertools.product((1, 2), (0, cores))]
    found: dict[tuple[Situation, str], list[float]] = {
        (situation, variant): [] for situation in situations for variant in VARIANTS
    }
    with tempfile.TemporaryDirectory() as folder:
        job = prepared_job(Path(folder), steps=options.steps)
        for _, (situation, variant) in itertools.product(range(options.repeat), found):
            found[situation, variant].append(seconds(job, situation, VARIANTS[variant]))
    missed = report(found)
    print(f"{missed} miss their goals (with busy loops {GOAL_BUSY})" if missed else "all goals met")
    return 0


if __name__ == "__main__":
    sys.exit(main())
