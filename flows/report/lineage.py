"""Lineage of a run as two pictures: an overview, and every artifact."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from flows.lineage.graph import STAGE, TRIALS, LineageGraph, overview, upstream_graph
from flows.lineage.svg import graph_svg
from flows.report.figure_cache import Figure, Panel, cached_figure
from flows.report.run_steps import Group, Steps, group_anchor
from flows.store.artifacts import ArtifactStore
from schemas.trial_names import entry_label


class Lineage(NamedTuple):
    """The section about where it all came from."""

    overview: str
    """SVG; "" where the whole is drawn alone, or nothing can be."""

    whole: str
    problem: str = ""


def read_lineage(store: ArtifactStore, steps: Steps) -> Lineage | None:
    """Return the lineage of all artifacts of a run, or None without any."""
    if not steps.built:
        return None
    figure = cached_figure(store, "lineage", steps.built, partial(_draw, store, steps))
    if figure.problem:
        return Lineage("", "", figure.problem)
    *short, whole = (panel.svg for panel in figure.panels)
    return Lineage("".join(short), whole)


def _draw(store: ArtifactStore, steps: Steps, *, name: str) -> Figure:
    """Draw the overview, unless it is the same as the whole, and the whole."""
    manifests = {built.manifest.artifact_id: built.manifest for built in steps.built}
    used = {ref.artifact_id for manifest in manifests.values() for ref in manifest.inputs}
    outputs = [manifest for key, manifest in manifests.items() if key not in used]
    graph = upstream_graph(outputs, store=store)
    links = _links(graph, steps)
    panels = [Panel(name, "whole", graph_svg(graph, name=name, links=links))]
    small = overview(graph)
    if len(small.nodes) < len(graph.nodes):
        links |= _stage_links(steps.groups)
        overview_name = f"{name}-overview"
        svg = graph_svg(small, name=overview_name, links=links, is_compact=True)
        panels.insert(0, Panel(overview_name, "overview", svg))
    return Figure(panels=tuple(panels))


def _links(graph: LineageGraph, steps: Steps) -> dict[str, str]:
    """Return the link to the step of each node, by node id."""
    found = (step for group in steps.groups for step in group.steps)
    links = {s.manifest.artifact_id: f"#{s.anchor}" for s in found if s.manifest and s.anchor}
    known = {group.anchor for group in steps.groups if len(group.steps) > 1}
    grids = {entry_label(item.name): group_anchor(item.label) for item in steps.of_type("trial")}
    for item in steps.of_type("evaluation"):
        if (anchor := grids.get(item.name)) in known:
            inputs = graph.upstream(item.manifest.artifact_id)
            links |= {key: f"#{anchor}" for key in inputs if key.startswith(TRIALS)}
    return links


def _stage_links(groups: tuple[Group, ...]) -> dict[str, str]:
    """Return the link to the first step of each stage, by node id in the overview."""
    links: dict[str, str] = {}
    for group in groups:
        anchor = group.anchor if len(group.steps) > 1 else group.steps[0].anchor
        if anchor:
            links.setdefault(f"{STAGE}:{group.name.partition('.')[0]}", f"#{anchor}")
    return links
