"""Upstream and downstream lineage by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from flows.lineage.resolve import Metric, latest_metric, resolve_name
from flows.store.artifacts import ArtifactStore

if TYPE_CHECKING:
    from flows.lineage.graph import LineageGraph

Direction = Literal["upstream", "downstream", "both"]


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Result of a query."""

    graph: LineageGraph | None
    """None for a metric that several steps have."""

    metrics: tuple[Metric, ...] = ()
    """Requested metrics."""

    def __str__(self) -> str:
        """Return the metrics, and the graph as a tree, as `bertloom lineage` prints them."""
        from flows.lineage.text_formats import tree_lines

        tree = tree_lines(self.graph) if self.graph is not None else []
        return "\n".join([*map(str, self.metrics), *tree])


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
        direction: None: downstream for a raw file, upstream for other names.
        collapse: Merge similar nodes, see `flows.lineage.graph.collapsed`.

    Raises:
        ArtifactNotFoundError: Nothing, or more than one result, has the name.
    """
    from flows.lineage.graph import downstream_graph, joined, upstream_graph  # loads networkx

    resolved = resolve_name(name, store=store) if name else latest_metric(store)
    manifests = [resolved.manifest] if resolved.manifest is not None else []
    if not manifests and resolved.file is None:
        return Lineage(graph=None, metrics=resolved.metrics)
    direction = direction or ("downstream" if resolved.file else "upstream")
    graphs = [
        build(manifests, store=store, collapse=collapse, file=resolved.file)
        for name, build in (("upstream", upstream_graph), ("downstream", downstream_graph))
        if direction in (name, "both")
    ]
    return Lineage(graph=joined(graphs[0], graphs[-1]), metrics=resolved.metrics)
