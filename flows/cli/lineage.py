"""The command `lineage`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli import options
from flows.cli.console import echo, print_json, write_file
from flows.cli.tables import print_parts
from flows.lineage.queries import Direction, Metric
from flows.lineage.queries import lineage as find_lineage
from flows.lineage.resolve import open_store
from flows.lineage.svg import graph_svg
from flows.lineage.text_formats import graph_json, mermaid_text, tree_lines
from flows.store.artifact_paths import artifact_of_path
from model.monitoring.summaries import score_cut
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
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture (SVG).")] = None,
    show_all: options.All = False,
    store: options.Store = None,
) -> None:
    """Show upstream or downstream lineage."""
    _check_exclusive("--upstream, --downstream and --both", upstream, downstream, both)
    _check_exclusive("--json, --mermaid and --svg", as_json, as_mermaid, svg is not None)
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
    elif svg is not None:
        write_file(svg, graph_svg(graph, name="lineage", has_own_colors=True))
        echo(f"wrote {svg}")
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
