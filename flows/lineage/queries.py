"""What a store can be asked about where things came from; `bertloom` has these by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flows.lineage.graph import LineageGraph, downstream_graph, joined, upstream_graph
from flows.lineage.resolve import Metric, latest_metric, resolve_name
from flows.lineage.text_formats import tree_lines
from flows.store.artifacts import ArtifactStore

Direction = Literal["upstream", "downstream", "both"]


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """What something was made from, or what was made from it."""

    graph: LineageGraph | None
    """None for a metric that several steps have."""

    metrics: tuple[Metric, ...] = ()
    """The numbers that were asked for."""

    def __str__(self) -> str:
        """The numbers, and the graph as a tree, as `bertloom lineage` prints them."""
        lines = [str(metric) for metric in self.metrics]
        return "\n".join(lines + (tree_lines(self.graph) if self.graph is not None else []))


def lineage(
    store: ArtifactStore,
    name: str = "",
    *,
    direction: Direction | None = None,
    collapse: bool = True,
) -> Lineage:
    """Return the upstream or downstream lineage of an artifact, raw file or metric.

    Args:
        store: Store to search.
        name: Name as for `flows.lineage.resolve.resolve_name`. "": last metric of the newest run.
        direction: None: downstream for a raw file, else upstream.
        collapse: Merge similar nodes, see `flows.lineage.graph.collapsed`.

    Raises:
        ArtifactNotFoundError: Nothing, or more than one result, has the name.
    """
    resolved = resolve_name(name, store=store) if name else latest_metric(store)
    manifests = [resolved.manifest] if resolved.manifest is not None else []
    if not manifests and not resolved.files:
        return Lineage(graph=None, metrics=resolved.metrics)
    builders = {
        "upstream": [upstream_graph],
        "downstream": [downstream_graph],
        "both": [upstream_graph, downstream_graph],
    }[direction or ("downstream" if resolved.files else "upstream")]
    graphs = [
        build(manifests, store=store, collapse=collapse, files=resolved.files) for build in builders
    ]
    return Lineage(graph=joined(graphs[0], graphs[-1]), metrics=resolved.metrics)
