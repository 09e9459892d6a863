"""Several nodes of a lineage drawn as one: cells of a grid that did not answer, many files."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from flows.engine.task_amounts import cells_amount
from flows.formats import byte_text

if TYPE_CHECKING:
    from flows.lineage.graph import LineageGraph, Node

SHOWN_FILES = 5
"""Of the raw files of an artifact that has more than one besides."""

Key = tuple[frozenset[tuple[str, str]], frozenset[str]]


def fold(graph: LineageGraph, *, keep: Collection[str]) -> LineageGraph:
    """The graph with such nodes as one each, but for those whose ids are in `keep`.

    A group is made from what each of its nodes was made from, and all of them went into the same
    artifacts.
    """
    users = graph.used_by()
    cells: dict[Key, list[str]] = defaultdict(list)
    files: dict[Key, list[str]] = defaultdict(list)
    for node in graph.nodes.values():
        made_from = frozenset(graph.made_from.get(node.id, ()))
        key = made_from, frozenset(user for _, user in users.get(node.id, ()))
        if node.id in keep:
            continue
        if node.kind == "file":
            files[key].append(node.id)
        elif _did_not_answer(graph, node, users.get(node.id, ())):
            cells[key].append(node.id)
    for key, ids in cells.items():
        if key[1] or len(ids) > 1:
            _replace(graph, ids, _cells_node)
    for ids in files.values():
        if len(ids) > SHOWN_FILES + 1:
            _replace(graph, ids[SHOWN_FILES:], _files_node)
    return graph


def _did_not_answer(graph: LineageGraph, node: Node, users: Sequence[tuple[str, str]]) -> bool:
    """Whether a node is a cell, and no evaluation of the graph says its answers."""
    if (node.manifest.stage if node.manifest else node.title) != "finetune":
        return False
    for name, user in users:
        by = graph.nodes[user].manifest
        if by is None or by.stage != "evaluate" or name in by.statistics.get("members", (name,)):
            return False
    return True


def _replace(
    graph: LineageGraph, ids: Sequence[str], make: Callable[[str, Sequence[Node]], Node]
) -> None:
    digest = hashlib.sha256(" ".join(sorted(ids)).encode()).hexdigest()[:16]
    group = make(digest, [graph.nodes[key] for key in ids])
    left_out = set(ids)
    edges = graph.made_from.get(ids[0])
    # In place of the first, so that the order of the nodes stays.
    graph.nodes = {
        (group.id if key == ids[0] else key): (group if key == ids[0] else node)
        for key, node in graph.nodes.items()
        if key == ids[0] or key not in left_out
    }
    made_from: dict[str, list[tuple[str, str]]] = {}
    for user, inputs in graph.made_from.items():
        if user in left_out:
            continue
        rest = [edge for edge in inputs if edge[1] not in left_out]
        is_user = len(rest) < len(inputs)
        made_from[user] = [*rest, ("others", group.id)] if is_user else inputs
    if edges:
        made_from[group.id] = edges
    graph.made_from = made_from


def _cells_node(digest: str, nodes: Sequence[Node]) -> Node:
    from flows.lineage.graph import Node

    count = len(nodes)
    of_grid = f"{count} other cell{'s' if count > 1 else ''} of the grid"
    statistics = [node.manifest.statistics for node in nodes if node.manifest is not None]
    detail = cells_amount(statistics) if statistics else nodes[0].detail
    return Node(id=f"cells:{digest}", kind="group", title=of_grid, detail=detail, count=count)


def _files_node(digest: str, nodes: Sequence[Node]) -> Node:
    from flows.lineage.graph import Node

    size = sum(node.size for node in nodes)
    return Node(
        id=f"files:{digest}",
        kind="group",
        title=f"and {len(nodes):,} more files",
        detail=byte_text(size),
        count=len(nodes),
        size=size,
    )
