"""The commands that tell where things came from: lineage, trace and diff."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from flows.cli.completion import artifact_names
from flows.cli.console import print_json, say
from flows.cli.options import JsonOption, StoreOption, open_store, print_lines
from schemas.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from flows.lineage.names import Metric
    from flows.lineage.queries import Direction
    from flows.store.artifacts import ArtifactStore
    from schemas.manifest import Manifest

_RUN_ID = re.compile(r"\d{8}t\d{6}(\d{3})?-[0-9a-f]{8}")

AllOption = Annotated[bool, typer.Option("--all", help="Leave nothing out.")]


def lineage(
    thing: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it at run time
        typer.Argument(
            metavar="[ARTIFACT|FILE|METRIC]",
            help="An artifact as for show, or a step of the newest run (evaluate.cola); a raw "
            "file by its path, name, sha256 or published checksum (sha1:...); or a metric "
            "(evaluate.cola:dev.matthews, or matthews). Without one, the newest run's last number.",
            autocompletion=artifact_names,
        ),
    ] = None,
    up: Annotated[
        bool, typer.Option("--up", help="What it was made from; so without an option.")
    ] = False,
    down: Annotated[
        bool, typer.Option("--down", help="What was made from it; so for raw files.")
    ] = False,
    both: Annotated[bool, typer.Option("--both", help="Both ways.")] = False,
    as_json: JsonOption = False,
    as_dot: Annotated[bool, typer.Option("--dot", help="Print it for Graphviz.")] = False,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print it for Mermaid.")] = False,
    html: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Write a page with a picture of it."),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Every cell of a grid and every raw file by itself.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Tell what something was made from, back to the raw files, or what was made from it."""
    _one_of("--up, --down and --both", up, down, both)
    _one_of("--json, --dot, --mermaid and --html", as_json, as_dot, as_mermaid, html is not None)
    from flows.lineage.queries import lineage as find_lineage

    direction: Direction | None = "both" if both else "down" if down else "up" if up else None
    opened = _store_of(thing, store)
    found = find_lineage(opened, thing or "", direction=direction, collapse=not show_all)
    graph = found.graph
    if graph is None:
        _list_metrics(found.metrics, as_json=as_json)
        return
    from flows.lineage.rendering import dot_text, graph_json, mermaid_text, tree_lines

    if as_json:
        print_json({"metrics": _metrics_json(found.metrics), **graph_json(graph)})
    elif as_dot:
        say(dot_text(graph))
    elif as_mermaid:
        say(mermaid_text(graph))
    elif html is not None:
        from flows.lineage.picture import lineage_page

        _write(html, lineage_page(graph))
        say(f"wrote {html}")
    else:
        print_lines([_metric_line(metric) for metric in found.metrics])
        print_lines(tree_lines(graph))


def _one_of(names: str, *given: bool) -> None:
    if sum(given) > 1:
        raise UsageError(f"expected at most one of {names}, found {sum(given)}")


def _store_of(thing: str | None, store: str | None) -> ArtifactStore:
    """The store that is named; else that of a thing which is named by its path."""
    from flows.lineage.names import artifact_of_path
    from flows.store.artifacts import ArtifactStore

    if store is None and thing and (found := artifact_of_path(thing)) is not None:
        return ArtifactStore(found[1], create=False)
    return open_store(store)


def _list_metrics(metrics: tuple[Metric, ...], *, as_json: bool) -> None:
    if as_json:
        print_json({"metrics": _metrics_json(metrics)})
        return
    print_lines([_metric_line(metric) for metric in metrics])
    first = metrics[0]
    say(f"\nof several steps; for the lineage of one: {first.label}:{first.name}")


def _metric_line(metric: Metric) -> str:
    from model.amounts import score_cut  # start-up: 200 ms

    cut = "; ".join(score_cut(metric.name, metric.manifest.statistics))
    return f"{metric.label} {metric.name} = {metric.value:.6g}{f' ({cut})' if cut else ''}"


def _metrics_json(metrics: tuple[Metric, ...]) -> list[dict[str, Any]]:
    from model.amounts import score_cut  # start-up: 200 ms

    return [
        {
            "step": metric.label,
            "metric": metric.name,
            "value": metric.value,
            "cut": list(score_cut(metric.name, metric.manifest.statistics)),
            "artifact_id": metric.manifest.artifact_id,
        }
        for metric in metrics
    ]


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.partial")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(f"{path}: cannot be written: {error}") from error


def trace(
    row: Annotated[
        str,
        typer.Argument(
            metavar="SHARD:ROW",
            help="A shard as for head (a path or URL, or ARTIFACT[:PART]), and a row from 0; an "
            "artifact's own rows are those of its shards, one after the other.",
        ),
    ],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell which documents a row of a shard was made from, to the byte range of the raw file."""
    from flows.lineage.rendering import trace_lines
    from flows.lineage.rows import at_row, find_shard
    from flows.lineage.tracing import trace_row

    shard, colon, number = row.rpartition(":")
    if not colon or not shard or not (number.isascii() and number.isdigit()):
        raise UsageError(
            f"{row!r}: expected SHARD:ROW, such as sample/build-instances.length-128:0:17 for row "
            "17 of the first shard"
        )
    found = trace_row(*at_row(find_shard(shard, open_store=lambda: open_store(store)), int(number)))
    if as_json:
        print_json(found.to_json())
        return
    print_lines(trace_lines(found))


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
    store: StoreOption = None,
    as_json: JsonOption = False,
    show_all: AllOption = False,
) -> None:
    """Tell how two artifacts, or the steps of two runs, differ."""
    if runs := _two_runs(before, after):
        _diff_runs(open_store(store), *runs, as_json=as_json, show_all=show_all)
        return
    opened = _maybe_store(store, before, after)
    from flows.lineage.differences import difference, difference_lines

    found = difference(_artifact(before, opened), _artifact(after, opened))
    if as_json:
        print_json(found.to_json())
        return
    print_lines(difference_lines(found, show_all=show_all))


def _maybe_store(store: str | None, *things: str) -> ArtifactStore | None:
    """The store, unless both are named by their paths: they may be of two stores."""
    from flows.lineage.names import artifact_of_path

    if store is None and all(artifact_of_path(thing) is not None for thing in things):
        return None
    return open_store(store)


def _artifact(text: str, store: ArtifactStore | None) -> Manifest:
    from flows.lineage.names import artifact_of_path, find_artifact

    if (found := artifact_of_path(text)) is not None:
        return found[0]
    return find_artifact(text, store=store if store is not None else open_store(None))


def _two_runs(*names: str) -> tuple[str, str] | None:
    known = [_RUN_ID.fullmatch(name) is not None for name in names]
    if not any(known):
        return None
    if not all(known):
        other = names[known.index(False)]
        raise ConfigError(
            f"{names[known.index(True)]} is a run, {other} is none: expected two runs, or two "
            "artifacts"
        )
    return names[0], names[1]


def _diff_runs(
    store: ArtifactStore, before: str, after: str, *, as_json: bool, show_all: bool
) -> None:
    from dataclasses import asdict

    from flows.formats import columns
    from flows.lineage.differences import run_differences, run_lines
    from flows.store.runs import read_run

    found = run_differences(read_run(store, before), read_run(store, after), store=store)
    if as_json:
        print_json({"runs": [before, after], "steps": [asdict(step) for step in found]})
        return
    head = ("step", before, after, "")
    print_lines(columns([head, *run_lines(found, show_all=show_all)]))


COMMANDS: tuple[Any, ...] = (lineage, trace, diff)
"""In the order of `--help`."""
