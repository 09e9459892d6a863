"""Lineage of a run as two pictures: an overview, and every artifact."""

from __future__ import annotations

from typing import NamedTuple

from flows.lineage.graph import LineageGraph, overview, upstream_graph
from flows.lineage.svg import graph_svg
from flows.report.run_steps import Group, Steps, group_anchor
from flows.store.artifacts import ArtifactStore
from schemas.errors import StoreError
from schemas.trial_names import entry_label


class Lineage(NamedTuple):
    """The section about lineage."""

    overview: str
    """SVG. "": it is the same as `whole`, or there is a problem."""

    whole: str
    problem: str = ""


def read_lineage(store: ArtifactStore, steps: Steps) -> Lineage | None:
    """Return the lineage of all artifacts of a run, or None without any."""
    manifests = {built.manifest.artifact_id: built.manifest for built in steps.built}
    if not manifests:
        return None
    used = {ref.artifact_id for manifest in manifests.values() for ref in manifest.inputs}
    outputs = [manifest for key, manifest in manifests.items() if key not in used]
    try:
        graph = upstream_graph(outputs, store=store)
    except StoreError as error:
        return Lineage("", "", f"Not drawn: {error}")
    links, small = _links(graph, steps), overview(graph)
    whole = graph_svg(graph, name="lineage", links=links)
    if len(small.nodes) == len(graph.nodes):
        return Lineage("", whole)
    links |= _stage_links(small, steps.groups)
    short = graph_svg(small, name="lineage-overview", links=links, is_compact=True)
    return Lineage(short, whole)


def _links(graph: LineageGraph, steps: Steps) -> dict[str, str]:
    """Return the link to the step of each node, by node id."""
    nodes, listed = graph.nodes, (step for group in steps.groups for step in group.steps)
    links = {s.manifest.artifact_id: f"#{s.anchor}" for s in listed if s.manifest and s.anchor}
    known = {group.anchor for group in steps.groups if len(group.steps) > 1}
    grids = {entry_label(item.name): group_anchor(item.label) for item in steps.of_type("trial")}
    for item in steps.of_type("evaluation"):
        if (anchor := grids.get(item.name)) in known:
            inputs = graph.upstream(item.manifest.artifact_id)
            links |= {key: f"#{anchor}" for key in inputs if nodes[key].members == "trials"}
    return links


def _stage_links(graph: LineageGraph, groups: tuple[Group, ...]) -> dict[str, str]:
    """Return the link to the first step of each stage, by node id in the overview."""
    links: dict[str, str] = {}
    for group in groups:
        anchor = group.anchor if len(group.steps) > 1 else group.steps[0].anchor
        if anchor:
            links.setdefault(group.name.partition(".")[0], f"#{anchor}")
    return {
        key: links[node.stage]
        for key, node in graph.nodes.items()
        if node.members == "stage" and node.stage in links
    }
