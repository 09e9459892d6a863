"""Stages and runs in Markdown, for Prefect's pages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import quote

from flows.cards.cards import card_body, has_card
from flows.formatting import format_duration
from flows.lineage.graph import upstream_graph
from flows.lineage.text_formats import tree_lines
from flows.run.run import Run
from flows.run.stages import get_stage, summarize
from flows.run.step_execution import StepResult
from flows.store.runs import report_path
from schemas.trial_names import entry_label


def stage_title(results: Sequence[StepResult]) -> str:
    """Return a line on what the steps of a stage hold: `build-tokens: 1,234 documents`."""
    stage, manifests = results[0].manifest.stage, [result.manifest for result in results]
    if len(manifests) == 1:
        return f"{results[0].label}: {summarize(manifests[0])}"
    return f"{stage}: {get_stage(stage).summary_of(manifests)}"


def stage_markdown(results: Sequence[StepResult], *, run: Run) -> str:
    """Return the steps of a stage, the lineage of the last one, and the card of a single one."""
    rows = [
        (
            result.label,
            summarize(result.manifest),
            "cached" if result.was_cached else format_duration(result.seconds),
            result.manifest.artifact_id,
        )
        for result in results
    ]
    lines = _table(("step", "contents", "time", "artifact"), rows)
    for result in results:
        lines += [f"> {result.label}: {_plain(note)}\n" for note in result.manifest.notes]
        lines += [f"> **Warning**, {result.label}: {_plain(w)}\n" for w in result.warnings]
    label, manifest = results[-1].label, results[-1].manifest
    tree = tree_lines(upstream_graph([manifest], store=run.store))
    lines += [f"Lineage of {_plain(label)}:\n", "```text", *tree, "```", ""]
    if len(results) == 1 and has_card(manifest):
        lines.append(card_body(manifest, store=run.store, cards=run.recipe.cards))
    return "\n".join(lines)


def run_markdown(run: Run, *, title: str) -> str:
    """Return what failed, where the run's report is, and its results."""
    address = run.store.url(report_path(run.run_id))
    url = browser_url(address)
    lines = [f"**{_plain(label)}** failed: {_plain(str(e))}\n" for label, e in run.failures.items()]
    lines += [f"**{_plain(title)}**. {f'[Report]({url})' if url else 'Report'}: `{address}`", ""]
    results = [
        (result.label, summarize(result.manifest), result.manifest.artifact_id)
        for result in run.results()
        if get_stage(result.manifest.stage).has_metrics
        and entry_label(result.label) == result.label
    ]
    if results:
        lines += _table(("step", "result", "artifact"), results)
    lines += [f"`bertloom report {run.run_id} --store {run.store.root}` writes it again."]
    return "\n".join(lines)


def browser_url(address: str) -> str:
    """Return the URL by which a browser opens a file of a store, or "".

    S3 and Google Cloud ask for a login. $AWS_ENDPOINT_URL is the server of another S3.

    >>> browser_url("gs://bucket/a b.html"), browser_url("memory://store/a.html")
    ('https://storage.cloud.google.com/bucket/a%20b.html', '')
    """
    scheme, separator, path = address.partition("://")
    if not separator:
        return f"file://{quote(address)}"
    bucket, _, key = path.partition("/")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if scheme == "s3" and endpoint:
        return f"{endpoint.rstrip('/')}/{quote(path)}"
    if scheme == "s3":
        return f"https://console.aws.amazon.com/s3/object/{bucket}?prefix={quote(key)}"
    return f"https://storage.cloud.google.com/{quote(path)}" if scheme == "gs" else ""


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [*("| " + " | ".join(_plain(cell) for cell in row) + " |" for row in lines), ""]


def _plain(text: str) -> str:
    """Return a text that stays in its table cell and is not read as markup."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
