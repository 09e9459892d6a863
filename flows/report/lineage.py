"""Lineage of a run as two pictures: an overview, and every artifact."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import NamedTuple

from flows.formatting import format_bytes
from flows.lineage.graph import FILES, TRIALS, LineageGraph, Node, merged, upstream_graph
from flows.lineage.svg import graph_svg
from flows.report.figure_cache import Figure, Panel, cached_figure
from flows.report.run_steps import Group, Steps, group_anchor
from flows.run.stages import get_stage
from flows.store.artifacts import ArtifactStore
from schemas.trial_names import entry_label

_ALONE = 4
"""Files of an artifact that the overview still draws one by one."""

_PLURALS = {
    "trial": "trainings",
    "evaluation": "evaluations",
    "examples": "sets of examples",
    "instances": "sets",
    "checkpoint": "phases",
}
"""Plural nouns for the artifacts of a stage, by output type."""


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
            links.setdefault(_stage_id(group.name.partition(".")[0]), f"#{anchor}")
    return links


def _stage_id(stage: str) -> str:
    return f"stage:{stage}"


def overview(graph: LineageGraph) -> LineageGraph:
    """The graph with the artifacts of one stage as one node, and many files of one node too."""
    of_stage = {node.id: node.manifest.stage for node in graph.nodes.values() if node.manifest}
    trials = next(
        (name for name in of_stage.values() if get_stage(name).output_type == "trial"), ""
    )
    if trials:
        of_stage |= {key: trials for key in graph.nodes if key.startswith(TRIALS)}
    stages = Counter(of_stage.values())
    keys = {key: _stage_id(stage) for key, stage in of_stage.items() if stages[stage] > 1}
    _fold_files(graph, keys)
    return merged(graph, keys, make_node=_group)


def _fold_files(graph: LineageGraph, keys: dict[str, str]) -> None:
    by_user: dict[str, list[str]] = defaultdict(list)
    for node in graph.nodes.values():
        if node.raw_input is None and not node.id.startswith(FILES):
            continue
        ends = {keys.get(user, user) for user in graph.downstream(node.id)}
        if len(ends) == 1:
            by_user[ends.pop()].append(node.id)
    for user, files in by_user.items():
        if len(files) > _ALONE:
            keys.update((file, f"files of {user}") for file in files)


def _group(key: str, nodes: list[Node]) -> Node:
    count, size = sum(node.count for node in nodes), sum(node.size for node in nodes)
    if any(node.raw_input is not None for node in nodes):
        title, detail = f"{count:,} files", format_bytes(size)
    else:
        title = key.removeprefix(_stage_id(""))
        detail = f"{count:,} {_PLURALS.get(get_stage(title).output_type, 'artifacts')}"
    return Node(id=key, kind="group", title=title, detail=detail, count=count, size=size)
