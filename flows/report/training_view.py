"""What pretraining came to, and the numbers at the head of the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.formats import time_text
from flows.report.result_tables import Row, Table, main_results, marked, percent
from flows.report.run_view import Fact
from schemas.manifest import Manifest


def of_stage(manifests: Mapping[str, Manifest], stage: str) -> list[tuple[str, Manifest]]:
    """Label and manifest of every step of a stage, in the run's order."""
    return [item for item in manifests.items() if item[1].stage == stage]


def pretraining_table(manifests: Mapping[str, Manifest]) -> Table | None:
    """A row for each phase; None without any."""
    found = of_stage(manifests, "pretrain")
    if not found:
        return None
    header = (
        "phase", "length", "updates", "tokens", "held-out loss", "perplexity", "masked LM accuracy",
        "next sentence accuracy", "took",
    )  # fmt: skip
    rows = [_phase_row(label, manifest) for label, manifest in found]
    notes = (
        "Losses in nats per predicted token, accuracies in %, all on held-out documents that no "
        "phase has trained on.",
    )
    return Table("Phases", header, tuple(rows), notes)


def _phase_row(label: str, manifest: Manifest) -> Row:
    counters, statistics = manifest.counters, manifest.statistics
    held_out = statistics.get("held_out", {})

    def number(name: str, factor: float, digits: int) -> str:
        value = held_out.get(name)
        return f"{factor * value:,.{digits}f}" if isinstance(value, (int, float)) else ""

    return Row(
        (
            label.partition(".")[2] or label,
            str(statistics.get("max_seq_length", "")),
            f"{counters.get('steps', 0):,}",
            f"{counters.get('tokens', 0):,}",
            number("mlm_loss", 1, 3),
            number("perplexity", 1, 2),
            number("mlm_accuracy", 100, 1),
            number("nsp_accuracy", 100, 1),
            time_text(manifest.produced_by.seconds),
        )
    )


def summary_facts(manifests: Mapping[str, Manifest]) -> list[Fact]:
    """The numbers of corpus and pretraining that a reader looks for first."""
    facts = []
    if (documents := manifests.get("build-documents")) is not None:
        words = documents.counters.get("words")
        note = f"{words:,} words" if words is not None else ""
        kept = documents.counters.get("documents-kept")
        if kept is not None:
            facts.append(Fact("documents", f"{kept:,}", note))
    if (tokens := manifests.get("build-tokens")) is not None and "tokens" in tokens.counters:
        sentences = tokens.counters.get("sentences")
        note = f"{sentences:,} sentences" if sentences is not None else ""
        facts.append(Fact("tokens", f"{tokens.counters['tokens']:,}", note))
    if instances := of_stage(manifests, "build-instances"):
        total = sum(item.counters.get("instances", 0) for _, item in instances)
        lengths = ", ".join(
            str(item.statistics.get("max_seq_length", "?")) for _, item in instances
        )
        facts.append(Fact("instances", f"{total:,}", f"of up to {lengths} tokens"))
    for label, phase in _finetuned_phases(manifests)[-1:]:
        perplexity = phase.statistics.get("held_out", {}).get("perplexity")
        if isinstance(perplexity, (int, float)):
            name = label.partition(".")[2] or label
            facts.append(Fact("held-out perplexity", f"{perplexity:,.2f}", f"after {name}"))
    return facts


def _finetuned_phases(manifests: Mapping[str, Manifest]) -> list[tuple[str, Manifest]]:
    """The phases that trainings began from, of which the results are; all, where none did."""
    phases = of_stage(manifests, "pretrain")
    used = {ref.artifact_id for _, cell in of_stage(manifests, "finetune") for ref in cell.inputs}
    return [item for item in phases if item[1].artifact_id in used] or phases


def best_metrics(tables: dict[str, Any]) -> list[Fact]:
    """Of each task the best entry's main metric on dev: of restarts their mean and deviation."""
    best: dict[str, tuple[float, dict[str, Any]]] = {}
    for row in main_results(tables):
        shown = next((row[k] for k in ("mean", "ensemble", "best") if row[k] is not None), None)
        if shown is not None and (row["task"] not in best or shown > best[row["task"]][0]):
            best[row["task"]] = (shown, row)
    return [
        Fact(f"{task}, {row['metric']}", *_result_texts(row, shown))
        for task, (shown, row) in best.items()
    ]


def _result_texts(row: Mapping[str, Any], shown: float) -> tuple[str, str]:
    """A result's number, and what it is of."""
    entry = "" if row["entry"] == row["task"] else f"{row['entry']}, "
    if row["sd"] is None or row["mean"] is None:
        return marked(percent(shown), row), f"{entry}on dev{_cut_text(row)}"
    told = f"{entry}{len(row['runs'])} restarts on dev, best {percent(row['best'])}"
    told = told.removesuffix(", best ") + _cut_text(row)
    return marked(percent(row["mean"], row["sd"]), row), told


def _cut_text(row: Mapping[str, Any]) -> str:
    return f" ({'; '.join(row['cut'])})" if row.get("cut") else ""
