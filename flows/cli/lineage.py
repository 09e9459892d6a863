"""Commands that follow data to its source and compare it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from flows.cli import options
from flows.cli.console import echo, print_json
from flows.cli.tables import print_parts, print_result
from flows.lineage.diff import difference
from flows.lineage.document_diff import document_changes
from flows.lineage.queries import Direction, Metric
from flows.lineage.queries import lineage as find_lineage
from flows.lineage.resolve import open_artifact, open_store
from flows.lineage.row_trace import trace_row
from flows.lineage.shards import find_shard
from flows.lineage.text_formats import graph_json, mermaid_text, tree_lines
from flows.store.artifact_paths import artifact_of_path
from model.summaries import score_cut
from schemas.errors import UsageError


def lineage(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[ARTIFACT|FILE|METRIC]",
            help="Artifact as for show; raw file by its path, name, sha256 or published checksum "
            "(sha1:...); or metric (evaluate.cola:dev.matthews). Default: last step of the newest "
            "run that is no table.",
        ),
    ] = "",
    upstream: Annotated[
        bool, typer.Option("--upstream", help="Show upstream lineage. Default, except for files.")
    ] = False,
    downstream: Annotated[
        bool, typer.Option("--downstream", help="Show downstream lineage. Default for raw files.")
    ] = False,
    both: Annotated[bool, typer.Option("--both", help="Show both directions.")] = False,
    as_json: options.Json = False,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print Mermaid text.")] = False,
    show_all: options.All = False,
    store: options.Store = None,
) -> None:
    """Show upstream or downstream lineage."""
    _check_exclusive("--upstream, --downstream and --both", upstream, downstream, both)
    _check_exclusive("--json and --mermaid", as_json, as_mermaid)
    directions: dict[Direction, bool] = {
        "upstream": upstream, "downstream": downstream, "both": both,
    }  # fmt: skip
    direction = next((key for key, is_set in directions.items() if is_set), None)
    located = artifact_of_path(name) if name and store is None else None
    opened = located.store if located is not None else open_store(store)
    result = find_lineage(opened, name, direction=direction, collapse=not show_all)
    graph = result.graph
    metrics = [str(metric) for metric in result.metrics]
    if as_json:
        data = [_metric_json(metric) for metric in result.metrics]
        print_json({"metrics": data, **graph_json(graph)})
    elif as_mermaid:
        echo(mermaid_text(graph))
    else:
        print_parts(*metrics, *tree_lines(graph))


def _check_exclusive(names: str, *is_set: bool) -> None:
    if sum(is_set) > 1:
        raise UsageError(f"expected at most one of {names}, got {sum(is_set)}")


def _metric_json(metric: Metric) -> dict[str, Any]:
    return {
        "step": metric.label,
        "metric": metric.name,
        "value": metric.value,
        "cut": list(score_cut(metric.name, metric.manifest.statistics)),
        "artifact_id": metric.manifest.artifact_id,
    }


def trace(
    row: Annotated[
        str,
        typer.Argument(
            metavar="SHARD:ROW",
            help="Shard as for head (path, URL or ARTIFACT[:PART]), and row number from 0. Rows of "
            "an artifact are counted across its shards.",
        ),
    ],
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Also print the raw text."),
    ] = False,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Show the source of a row of a shard: document, sentences, file and bytes."""
    shard, _, number = row.rpartition(":")
    if not shard or not number.isdecimal():
        example = "sample/build-instances.length-128:17"
        raise UsageError(f"{row!r}: expected SHARD:ROW, such as {example}")
    location = find_shard(shard, open_store=lambda: open_store(store))
    result = trace_row(location, int(number), raw=raw)
    print_result(result.to_json(), *result.lines(), as_json=as_json)


def diff(
    before: options.Artifact,
    after: Annotated[str, typer.Argument(help="Artifact to compare with.")],
    examples: Annotated[int, typer.Option(min=0, help="Number of changed documents to show.")] = 3,
    store: options.Store = None,
    as_json: options.Json = False,
    show_all: options.All = False,
) -> None:
    """Compare two artifacts."""
    old, new = (open_artifact(name, store) for name in (before, after))
    result = difference(old.manifest, new.manifest)
    data, lines = asdict(result), result.lines(show_all=show_all)
    tables = {artifact.manifest.table_name for artifact in (old, new)}
    if tables == {"documents"} and not result.is_same_content:
        changes = document_changes(old, new, examples=examples)
        data["documents"], lines = changes._asdict(), [*lines, *changes.lines()]
    print_result(data, *lines, as_json=as_json)
