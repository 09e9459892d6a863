"""The commands that tell where things came from: lineage, trace and diff."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.completion import artifact_names
from flows.cli.console import echo, print_json, print_lines, print_result
from flows.cli.options import AllOption, JsonOption, StoreOption, open_store
from flows.cli.show import find_artifact
from flows.formatting import align_columns
from flows.lineage.diff import difference, run_differences, run_lines
from flows.lineage.document_diff import document_changes
from flows.lineage.queries import Direction
from flows.lineage.queries import lineage as find_lineage
from flows.lineage.resolve import Metric, artifact_of_path
from flows.lineage.row_trace import trace_row
from flows.lineage.shards import find_shard
from flows.lineage.svg import lineage_page
from flows.lineage.text_formats import dot_text, graph_json, mermaid_text, tree_lines
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run
from model.telling.amounts import score_cut
from schemas.errors import ConfigError, UsageError

_RUN_ID = re.compile(r"\d{8}t\d{6}(\d{3})?-[0-9a-f]{8}")


def lineage(
    thing: Annotated[
        str,
        typer.Argument(
            metavar="[ARTIFACT|FILE|METRIC]",
            help="An artifact as for show, or a step of the newest run (evaluate.cola); a raw "
            "file by its path, name, sha256 or published checksum (sha1:...); or a metric "
            "(evaluate.cola:dev.matthews, or matthews). Without one, the newest run's last number.",
            autocompletion=artifact_names,
        ),
    ] = "",
    upstream: Annotated[
        bool, typer.Option("--upstream", help="Show upstream lineage. Default, except for files.")
    ] = False,
    downstream: Annotated[
        bool, typer.Option("--downstream", help="Show downstream lineage. Default for raw files.")
    ] = False,
    both: Annotated[bool, typer.Option("--both", help="Show both directions.")] = False,
    as_json: JsonOption = False,
    as_dot: Annotated[bool, typer.Option("--dot", help="Print it for Graphviz.")] = False,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print it for Mermaid.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with a picture of it.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Every trial of a grid and every raw file by itself.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Show upstream or downstream lineage."""
    _one_of("--upstream, --downstream and --both", upstream, downstream, both)
    _one_of("--json, --dot, --mermaid and --html", as_json, as_dot, as_mermaid, html is not None)
    options: dict[Direction, bool] = {"upstream": upstream, "downstream": downstream, "both": both}
    direction = next((name for name, is_set in options.items() if is_set), None)
    opened = _store_of(thing, store)
    found = find_lineage(opened, thing, direction=direction, collapse=not show_all)
    graph = found.graph
    metrics = [str(metric) for metric in found.metrics]
    if as_json:
        of_graph = graph_json(graph) if graph is not None else {}
        print_json({"metrics": [_metric_json(metric) for metric in found.metrics], **of_graph})
    elif graph is None:
        print_lines(metrics)
        first = found.metrics[0]
        echo(f"\nof several steps; for the lineage of one: {first.label}:{first.name}")
    elif as_dot:
        echo(dot_text(graph))
    elif as_mermaid:
        echo(mermaid_text(graph))
    elif html is not None:
        html.write_text(lineage_page(graph), encoding="utf-8")
        echo(f"wrote {html}")
    else:
        print_lines([*metrics, *tree_lines(graph)])


def _one_of(names: str, *given: bool) -> None:
    if sum(given) > 1:
        raise UsageError(f"expected at most one of {names}, got {sum(given)}")


def _store_of(thing: str, store: str | None) -> ArtifactStore:
    """The store that is named; else that of a thing which is named by its path."""
    if store is None and thing and (found := artifact_of_path(thing)) is not None:
        return found.store
    return open_store(store)


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
            help="A shard as for head (a path or URL, or ARTIFACT[:PART]), and a row from 0; an "
            "artifact's own rows are those of its shards, one after the other.",
        ),
    ],
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Also the raw text: wikitext, or the book as it was stored."),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell which text a row of a shard was made from: document, sentences, file and bytes."""
    shard, colon, number = row.rpartition(":")
    if not colon or not shard or not (number.isascii() and number.isdigit()):
        raise UsageError(
            f"{row!r}: expected SHARD:ROW, such as sample/build-instances.length-128:0:17 for row "
            "17 of the first shard"
        )
    place = find_shard(shard, open_store=lambda: open_store(store))
    found = trace_row(place, int(number), raw=raw)
    print_result(found.to_json(), found.lines(), as_json=as_json)


def diff(
    before: Annotated[
        str,
        typer.Argument(
            help="An artifact as for show, a step of the newest run, or a run's id.",
            autocompletion=artifact_names,
        ),
    ],
    after: Annotated[
        str, typer.Argument(help="Another of the same kind.", autocompletion=artifact_names)
    ],
    examples: Annotated[
        int,
        typer.Option(min=0, help="Of documents that came, went and changed: how many to show."),
    ] = 3,
    store: StoreOption = None,
    as_json: JsonOption = False,
    show_all: AllOption = False,
) -> None:
    """Tell how two artifacts, or the steps of two runs, differ."""
    if _are_runs(before, after):
        opened = open_store(store)
        steps = run_differences(read_run(opened, before), read_run(opened, after), store=opened)
        as_data = {"runs": [before, after], "steps": [asdict(step) for step in steps]}
        rows = run_lines(steps, show_all=show_all)
        print_result(as_data, align_columns([("step", before, after, ""), *rows]), as_json=as_json)
        return
    old, new = (find_artifact(name, store=store) for name in (before, after))
    first, second = old.manifest, new.manifest
    found = difference(first, second)
    as_data, lines = found.to_json(), found.lines(show_all=show_all)
    if first.table == second.table == "documents" and not found.is_same_content:
        changed = document_changes(old, new, examples=examples)
        as_data["documents"], lines = changed.to_json(), [*lines, *changed.lines()]
    print_result(as_data, lines, as_json=as_json)


def _are_runs(*names: str) -> bool:
    runs = [name for name in names if _RUN_ID.fullmatch(name)]
    others = [name for name in names if name not in runs]
    if runs and others:
        raise ConfigError(
            f"{runs[0]} is a run, {others[0]} is none: expected two runs, or two artifacts"
        )
    return bool(runs)
