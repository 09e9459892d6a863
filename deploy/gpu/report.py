"""Write the results of a GPU machine into docs/how-to/gpu.md.

    python -m deploy.gpu.report FOLDER [FOLDER ...] [--page docs/how-to/gpu.md]

The folders are those that `check.sh` and `train.sh` wrote. Only the part of the page between the
two markers is replaced.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deploy.gpu.train import RESULTS_FILE
from flows.formatting import format_bytes, format_duration, format_metric
from model.tables.results import task_label
from model.task_results import DEV, EvaluationResult, find_score
from model.training.artifact_files import CURVES_FILE, TIMINGS_FILE
from schemas.errors import UsageError

BEGIN = "<!-- written by python -m deploy.gpu.report -->"
END = "<!-- end of the written part -->"
NO_GPU = "**No GPU has run bertloom yet.**"

Record = dict[str, Any]


def main() -> None:
    """Write the page, or end with an error."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--page", type=Path, default=Path("docs/how-to/gpu.md"))
    options = parser.parse_args()
    try:
        write_page(options.folders, options.page)
    except UsageError as error:
        sys.exit(f"error: {error}")


def write_page(folders: Sequence[Path], page: Path) -> None:
    """Replace the written part of a page.

    Raises:
        UsageError: The folders have no results, or the page has no markers.
    """
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise UsageError(f"{page}: expected the lines {BEGIN} and {END} once each")
    before, rest = text.split(BEGIN)
    lines = list(report_lines(Results(folders)))
    page.write_text("\n".join([before + BEGIN, *lines, END + rest.split(END)[1]]), encoding="utf-8")


class Results:
    """Files that came back from a GPU machine, of which any but `machine.json` can be missing.

    Raises:
        UsageError: No folder has a `machine.json`.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        """Read the files of folders; the first folder that has a file wins."""
        self._folders = folders
        machine = self._text("machine.json")
        if not machine:
            names = ", ".join(map(str, folders))
            raise UsageError(f"{names}: expected machine.json, which check.sh and train.sh write")
        self.machine: Record = json.loads(machine)
        self.tests = self._text("tests.txt").strip().rpartition("\n")[2].strip("= ")
        self.bench: list[Record] = [
            json.loads(line) for line in self._text("bench.jsonl").splitlines()
        ]
        self.steps: list[Record] = json.loads(self._text(RESULTS_FILE) or "{}").get("steps", [])

    def of(self, stage: str, state: str = "done") -> list[Record]:
        """Return the records of a stage's steps in a state."""
        return [step for step in self.steps if (step["stage"], step["state"]) == (stage, state)]

    def curves(self) -> Path | None:
        """Return the folder with the curves of the last phase, also of one that was stopped."""
        found = [
            path.parent
            for folder in self._folders
            for path in sorted(folder.glob(f"pretrain.*/{CURVES_FILE}"))
            if path.with_name(TIMINGS_FILE).is_file()
        ]
        return found[-1] if found else None

    def _text(self, name: str) -> str:
        paths = (folder / name for folder in self._folders)
        path = next(filter(Path.is_file, paths), None)
        return path.read_text(encoding="utf-8") if path else ""


def report_lines(results: Results) -> Iterator[str]:
    """Yield the lines of the written part."""
    machine = results.machine
    if machine["gpu"]:
        memory = format_bytes(machine["gpu_bytes"])
        card = f"one {machine['gpu']} with {memory}, driver {machine['driver']}"
        yield f"Measured on {card}, CUDA {machine['cuda']}, {_software(machine)}:"
    else:
        yield f"{NO_GPU} These are the results of a try on a CPU, {_software(machine)}:"
    yield from ["", "<!-- not run here: needs a GPU -->", "```console"]
    yield from ["$ deploy/gpu/check.sh", "$ deploy/gpu/train.sh", "```", ""]
    if results.tests:
        yield from [f"Tests: {results.tests}.", ""]
    if results.bench:
        yield from [*_table(_BENCH_TITLES, map(_bench_cells, results.bench)), ""]
    yield from _pretraining_lines(results)
    yield from _task_lines(results)


def _software(machine: Record) -> str:
    return f"{machine['cores']} cores, PyTorch {machine['torch']}, Python {machine['python']}"


_BENCH_TITLES = (
    *("model", "length", "library", "mode", "precision", "tokens/s", "utilization", "memory"),
    *("loss", "loss on CPU"),
)


def _bench_cells(row: Record) -> list[str]:
    cells = [row["preset"], str(row["length"]), row["side"], row["mode"], row["precision"]]
    if row["problem"]:
        return [*cells, str(row["problem"]).partition("\n")[0].replace("|", "/"), "", "", "", ""]
    utilization, memory = row["utilization"], row["memory_bytes"]
    return [
        *cells,
        f"{row['tokens_per_second']:,.0f}",
        "" if utilization is None else f"{utilization:.1%}",
        "" if memory is None else format_bytes(memory),
        *("" if row[name] is None else f"{row[name]:.4f}" for name in ("loss", "cpu_loss")),
    ]


def _pretraining_lines(results: Results) -> Iterator[str]:
    """Yield the table of the phases and the throughput."""
    rows = [_phase_cells(step) for step in results.of("pretrain")]
    if rows:
        titles = ("phase", "steps", "tokens", "time", "held-out LM loss", "perplexity")
        yield from [*_table(titles, rows), ""]
    if (folder := results.curves()) is None:
        return
    whole, _, _ = (folder / TIMINGS_FILE).read_text(encoding="utf-8").rpartition("\n")
    if records := [json.loads(line) for line in whole.splitlines()]:
        speeds = sorted(record["tokens_per_second"] for record in records)
        name = "model_flops_utilization"
        utilization = max((record[name] for record in records if name in record), default=None)
        share = "" if utilization is None else f", model-FLOP utilization up to {utilization:.1%}"
        yield from [f"Median throughput: {speeds[len(speeds) // 2]:,.0f} tokens/s{share}.", ""]


def _phase_cells(step: Record) -> list[str]:
    counters, held_out = step["counters"], step["statistics"]["held_out"]
    return [
        step["label"],
        f"{counters['steps']:,}",
        f"{counters['tokens']:,}",
        format_duration(step["seconds"]),
        *(
            f"{held_out[name]:.3f}" if name in held_out else ""
            for name in ("mlm_loss", "perplexity")
        ),
    ]


def _task_lines(results: Results) -> Iterator[str]:
    """Yield the table of the tasks, and how many trials did not run."""
    evaluations = results.of("evaluate")
    if evaluations:
        titles = ("task", "start", "metric on dev", "restarts", "mean", "majority class")
        yield from [*_table(titles, map(_task_cells, evaluations)), ""]
    if missing := [*results.of("finetune", "skipped"), *results.of("finetune", "failed")]:
        total = sum(step["stage"] == "finetune" for step in results.steps)
        yield from [f"{len(missing)} of {total} fine-tunings did not run or failed.", ""]


def _task_cells(step: Record) -> list[str]:
    result = EvaluationResult.from_statistics(step["statistics"], where=step["label"])
    scores = result.scores(DEV, result.metric)
    majority = find_score(result.baseline, DEV, result.metric)
    return [
        task_label(result.task, result.model.data),
        result.model.start,
        result.metric,
        str(scores.restarts),
        "" if scores.mean is None else format_metric(result.metric, scores.mean, sd=scores.sd),
        "" if majority is None else format_metric(result.metric, majority),
    ]


def _table(titles: Sequence[str], rows: Iterator[list[str]] | Sequence[list[str]]) -> list[str]:
    """Return a Markdown table."""
    cells = [list(titles), ["---"] * len(titles), *rows]
    return [f"| {' | '.join(row)} |" for row in cells]


if __name__ == "__main__":
    main()
