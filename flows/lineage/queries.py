"""What a store can be asked about where things came from; `bertloom` has these by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flows.lineage.graph import LineageGraph, downstream_graph, joined, upstream_graph
from flows.lineage.names import Metric, find_target, last_number
from flows.lineage.rendering import tree_lines
from flows.store.artifacts import ArtifactStore

Direction = Literal["up", "down", "both"]


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
    """What something was made from, back to the raw files, or what was made from it.

    Args:
        store: where to look.
        name: see `flows.lineage.names.find_target`; "": the newest run's last number.
        direction: `up`: what it was made from; `down`: what was made from it. None: down for a raw
            file, up for all else.
        collapse: see `flows.lineage.graph.collapsed`.

    Raises:
        ArtifactNotFoundError: nothing is named so, or more than one thing.
    """
    target = find_target(name, store=store) if name else last_number(store)
    manifests = [target.manifest] if target.manifest is not None else []
    if not manifests and not target.files:
        return Lineage(graph=None, metrics=target.metrics)
    ways = {"up": [upstream_graph], "down": [downstream_graph]}
    ways["both"] = ways["up"] + ways["down"]
    found = [
        way(manifests, store=store, collapse=collapse, files=target.files)
        for way in ways[direction or ("down" if target.files else "up")]
    ]
    return Lineage(graph=joined(found[0], found[-1]), metrics=target.metrics)
