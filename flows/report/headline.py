"""The most important sentence about a run."""

from __future__ import annotations

from flows.report.run_steps import Built, Steps
from flows.run.stages import summarize
from flows.store.runs import RunRecord
from model.tables.render import Tables
from model.tables.results import task_label
from schemas.trial_names import entry_label

_MAX_LABELS = 3


def run_headline(record: RunRecord, steps: Steps, tables: Tables | None) -> str:
    """Return how a run ended if it did not complete, or its most important result."""
    if record.state == "completed":
        return find_headline(steps, tables)
    labels = list(dict.fromkeys(entry_label(label) for label in record.failures if label))
    if record.state == "failed" and labels:
        more = " ..." if len(labels) > _MAX_LABELS else ""
        return f"{', '.join(labels[:_MAX_LABELS])}{more} failed"
    verb = {"failed": "failed", "running": "is running"}.get(record.state, f"was {record.state}")
    return f"The run {verb}"


def find_headline(steps: Steps, tables: Tables | None) -> str:
    """Return the first verdict, the last score, or the size of the corpus; "" for nothing."""
    if tables is not None and tables.headline:
        return tables.headline
    if evaluation := steps.last_of_type("evaluation"):
        name = task_label(evaluation.name, _name_of_data(steps, evaluation))
        return f"{name}: {summarize(evaluation.manifest)}"
    if phase := steps.last_of_type("checkpoint"):
        return f"{phase.label}: {summarize(phase.manifest)}"
    corpus = (steps.last_of_type(name) for name in ("documents", "tokens"))
    return ", ".join(summarize(built.manifest) for built in corpus if built)


def _name_of_data(steps: Steps, evaluation: Built) -> str:
    """Return the name of an evaluation's data; "" if it is the task's own."""
    ids = {ref.artifact_id for ref in evaluation.manifest.inputs}
    names = (
        str(built.statistics.get("data", ""))
        for built in steps.built
        if built.manifest.stage == "build-examples" and built.manifest.artifact_id in ids
    )
    return next(names, "")
