"""Train the steps of a kit on this machine, within a time limit.

    python -m deploy.gpu.train --kit build/gpu-kit --out FOLDER [--minutes 6] [--jobs 4]

The steps are those of the recipe, run by the functions of bertloom's stages. First restarts run
before second ones, and trials that the time does not allow are recorded as skipped. `training.json`
is written after each step, and the curves every few seconds, so that a killed run leaves results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from deploy.gpu.plan import DATA_FILE, Plan, PlannedStep, read_plan
from model.stages import STAGES
from model.training.artifact_files import CURVES_FILE, CURVES_FOLDER, TIMINGS_FILE
from model.training.workers import stop_running_calls
from schemas.errors import BertloomError
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import StageInput, StageOutput

RESULTS_FILE = "training.json"
State = Literal["done", "skipped", "failed"]
_STAGES = {stage.name: stage for stage in STAGES}
_COPY_SECONDS = 5.0


def main() -> int:
    """Train, and return 1 if a step failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kit", type=Path, default=Path("build/gpu-kit"))
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--minutes", type=float, default=6.0, help="limit of all trainings")
    parser.add_argument("--jobs", type=int, default=4, help="trials at a time")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bertloom-gpu-") as folder:
        plan = read_plan(options.kit)
        unpack(options.kit / DATA_FILE, Path(folder))
        training = Training(plan, Path(folder), options.out)
        with training.limit(60 * options.minutes):
            training.run(jobs=options.jobs)
    return int(any(record["state"] == "failed" for record in training.records))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the data of a kit."""
    with (
        pa.CompressedInputStream(str(archive), "zstd") as source,
        tarfile.open(fileobj=source, mode="r|") as members,
    ):
        members.extractall(folder, filter="data")


class Training:
    """Runs the steps of a plan and records each of them.

    Attributes:
        records: Results of the steps so far, as in `training.json`.
    """

    def __init__(self, plan: Plan, folder: Path, out: Path) -> None:
        """Take a plan, the folder with its unpacked data, and the folder for results."""
        self.records: list[dict[str, Any]] = []
        self._plan, self._folder, self._out = plan, folder, out
        self._artifacts = {
            label: artifact.model_copy(update={"data": str(folder / artifact.data)})
            for label, artifact in plan.artifacts.items()
        }
        self._lock = threading.Lock()
        self._is_over = False

    @contextlib.contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Stop the trainings of the block after some time, or at SIGTERM."""
        timer = threading.Timer(seconds, self.stop)
        timer.start()
        before = signal.signal(signal.SIGTERM, lambda *_: self.stop())
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
            timer.cancel()

    def stop(self) -> None:
        """Stop running trainings and skip the others; evaluations still run."""
        self._is_over = True
        stop_running_calls()

    def run(self, *, jobs: int) -> None:
        """Pretrain, fine-tune with several trials at a time, and evaluate."""
        for step in self._steps("pretrain"):
            with self._curves_copied(step):
                self._run(step)
        trials = sorted(self._steps("finetune"), key=lambda step: step.config["restart"])
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(self._run, trials))
        for step in self._steps("evaluate"):
            self._run(step)

    def _steps(self, stage: str) -> list[PlannedStep]:
        return [step for step in self._plan.steps if step.stage == stage]

    def _run(self, step: PlannedStep) -> None:
        """Run a step, unless the time is over or what it reads is missing."""
        inputs = {
            name: self._artifacts[label].model_copy(update={"name": name})
            for name, label in step.inputs.items()
            if label in self._artifacts
        }
        if not self._can_run(step, inputs):
            return self._record(step, "skipped")
        started = time.monotonic()
        try:
            output = self._call(step, inputs)
        except (BertloomError, OSError) as error:
            state: State = "skipped" if self._is_over else "failed"
            return self._record(step, state, error=str(error))
        seconds = round(time.monotonic() - started, 2)
        results = output.model_dump(mode="json", include={"counters", "statistics", "notes"})
        return self._record(step, "done", seconds=seconds, **results)

    def _can_run(self, step: PlannedStep, inputs: dict[str, StageInput]) -> bool:
        """Return whether a step has its inputs (an evaluation: one trial) and time."""
        if step.stage == "evaluate":
            return len(inputs) > 1
        return len(inputs) == len(step.inputs) and not self._is_over

    def _call(self, step: PlannedStep, inputs: dict[str, StageInput]) -> StageOutput:
        stage, data = _STAGES[step.stage], self._folder / step.label
        data.mkdir()
        work = {"work": str(self._work(step))} if stage.supports_resume else {}
        config = stage.config.model_validate(step.config)
        output = stage.load()(
            config, inputs=inputs, output=str(data), execution=ExecutionConfig(), **work
        )
        self._artifacts[step.label] = StageInput(
            name=stage.output_type,
            artifact_id=step.label,
            data=str(data),
            files=tuple(entry for entry in output.files if not entry.excluded_from_digest),
            counters=output.counters,
            statistics=output.statistics,
        )
        return output

    def _work(self, step: PlannedStep) -> Path:
        return self._folder / "work" / step.label

    def _record(self, step: PlannedStep, state: State, **results: Any) -> None:
        """Add a step to `training.json`."""
        record = {"label": step.label, "stage": step.stage, "state": state, **results}
        print(f"{step.label}: {state} {results.get('error', '')}".rstrip(), flush=True)
        with self._lock:
            self.records.append({**record, "config": step.config})
            text = json.dumps({"recipe": self._plan.recipe, "steps": self.records}, indent=1)
            draft = self._out / f".{RESULTS_FILE}"
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._out / RESULTS_FILE)

    @contextlib.contextmanager
    def _curves_copied(self, step: PlannedStep) -> Iterator[None]:
        """Copy the curves of a step to a folder of its label every few seconds and at the end."""
        curves, is_ended = self._work(step) / CURVES_FOLDER, threading.Event()
        copies = self._out / step.label
        copies.mkdir(exist_ok=True)

        def copy() -> None:
            while True:
                is_last = is_ended.wait(_COPY_SECONDS)
                for path in filter(Path.is_file, (curves / CURVES_FILE, curves / TIMINGS_FILE)):
                    shutil.copy(path, copies)
                if is_last:
                    return

        thread = threading.Thread(target=copy)
        thread.start()
        try:
            yield
        finally:
            is_ended.set()
            thread.join()


if __name__ == "__main__":
    sys.exit(main())
