"""Evaluations written by hand, for the tests of tables and submissions."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from model.tables.compare import read_samples
from model.tables.results import Evaluation, ResultRow, result_rows
from model.task_results import EvaluationResult
from model.tasks import TASKS
from model.tasks.row_terms import RowTerms, StoredTerms, mean_terms, write_row_terms
from schemas.manifest import FileEntry, StageInput

BASE = {
    "start": "phase-2",
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "num_attention_heads": 2,
    "method": "fine-tune",
}
SCRATCH = BASE | {"start": "scratch"}
ROWS = 1_000
"""Number of dev rows."""


def written(
    entry: str,
    task: str,
    runs: Sequence[float | None],
    *,
    model: Mapping[str, Any] = BASE,
    other_point: float | None = None,
    more: Mapping[str, Mapping[str, float | None]] | None = None,
    ensemble: int = 1,
    ensemble_value: float | None = None,
    prefix: str = "",
    baseline: float | None = None,
) -> dict[str, Any]:
    """Statistics of an `evaluate` artifact whose best point has one restart for each of `runs`.

    Args:
        other_point: dev score of a second grid point with one restart.
        more: further metrics of the chosen model, by split.
        ensemble_value: what the ensemble scores on dev.
        baseline: Score of the majority class on dev.
    """
    metric = TASKS[task].metrics[0]
    cells = [
        _cell(f"{prefix}bs16-lr2e-05-ep3-r{n}", 3, n, metric, run) for n, run in enumerate(runs)
    ]
    if other_point is not None:
        cells.append(_cell(f"{prefix}bs16-lr2e-05-ep4-r0", 4, 0, metric, other_point))

    def dev(cell: dict[str, Any]) -> float:
        value = cell["metrics"]["dev"][metric]
        return -1.0 if value is None or math.isnan(value) else float(value)

    best = max(cells, key=dev)
    chosen = best["metrics"]["dev"][metric] if ensemble == 1 else ensemble_value
    metrics: dict[str, dict[str, float | None]] = {"dev": {metric: chosen}}
    for split, values in (more or {}).items():
        metrics.setdefault(split, {}).update(values)
    return {
        "task": task,
        "kind": TASKS[task].type,
        "entry": entry,
        "metric": metric,
        "metrics": metrics,
        "baseline": {} if baseline is None else {"dev": {metric: baseline}},
        "majority_label": next(iter(TASKS[task].labels), ""),
        "cells": cells,
        "best": best["name"],
        "best_point": f"{prefix}bs16-lr2e-05-ep3",
        "ensemble": ensemble,
        "threshold": 0.0,
        "method": model["method"],
        "model": dict(model),
    }


def _cell(name: str, epochs: int, restart: int, metric: str, value: float | None) -> dict[str, Any]:
    return {
        "name": name,
        "batch_size": 16,
        "learning_rate": 2e-5,
        "num_epochs": epochs,
        "restart": restart,
        "metrics": {"dev": {metric: value}},
    }


def evaluations(*entries: dict[str, Any]) -> list[Evaluation]:
    """Return the evaluations as the stage reads them."""
    return [
        Evaluation(
            item["entry"],
            EvaluationResult.from_statistics(item, where=item["entry"]),
            samples=read_samples(item["entry"], stored_terms(item)),
        )
        for item in entries
    ]


def row_terms(evaluation: dict[str, Any]) -> list[tuple[str, dict[str, RowTerms]]]:
    """Return scores of dev rows with the means of the best point's restarts and of the baseline.

    The first rows are right: a better restart is right wherever a worse one is.
    """
    metric = evaluation["metric"]
    scores = {
        cell["name"]: cell["metrics"]["dev"][metric]
        for cell in evaluation["cells"]
        if cell["name"].startswith(evaluation["best_point"])
    }
    scores[""] = evaluation["baseline"].get("dev", {}).get(metric)
    return [
        (name, {metric: mean_terms([float(row < score * ROWS) for row in range(ROWS)])})
        for name, score in scores.items()
        if score is not None and math.isfinite(score)
    ]


def stored_terms(evaluation: dict[str, Any]) -> list[StoredTerms]:
    """Return `row_terms` as they are read from an artifact."""
    return [
        StoredTerms(metric, trial, evaluation["task"], item)
        for trial, metrics in row_terms(evaluation)
        for metric, item in metrics.items()
    ]


def results(*entries: dict[str, Any]) -> list[ResultRow]:
    """Return the rows of results of evaluations."""
    return result_rows(evaluations(*entries))


def artifact(
    folder: Path,
    evaluation: dict[str, Any],
    *,
    predictions: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> StageInput:
    """An `evaluate` artifact on disk, with predictions by split."""
    target = folder / evaluation["entry"]
    target.mkdir(parents=True, exist_ok=True)
    files = []
    for split, items in (predictions or {}).items():
        content = "".join(f"{json.dumps(item)}\n" for item in items).encode()
        (target / f"predictions-{split}.jsonl").write_bytes(content)
        files.append(
            FileEntry(
                path=f"predictions-{split}.jsonl",
                stored_name=f"predictions-{split}.jsonl",
                size_bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
            )
        )
    if "cells" in evaluation:
        terms = row_terms(evaluation)
        files.append(write_row_terms(terms, rows=evaluation["task"], output=str(target)))
    return StageInput(
        name=evaluation["entry"],
        artifact_id="0" * 16,
        data=str(target),
        files=tuple(files),
        statistics=evaluation,
    )
