"""Lineage as text: a tree for the terminal, JSON and Mermaid."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from flows.lineage.graph import MISSING, LineageGraph, Node

_MAX_WIDTH = 100_000
"""Columns of a tree: checksums are never wrapped."""


def tree_lines(graph: LineageGraph) -> list[str]:
    """Return the upstream tree of the focus, its downstream tree, or one after the other.

    An artifact that was printed before has no branches. Lines are not wrapped.
    """
    focus = node_line(graph.nodes[graph.focus])
    upstream = _tree(graph, focus, graph.upstream)
    downstream = _tree(graph, "downstream:" if upstream.children else focus, graph.downstream)
    console = Console(file=io.StringIO(), width=_MAX_WIDTH, color_system=None)
    with console.capture() as capture:
        if upstream.children or not downstream.children:
            console.print(upstream)
        if upstream.children and downstream.children:
            console.print()
        if downstream.children:
            console.print(downstream)
    return capture.get().splitlines()


def _tree(graph: LineageGraph, title: str, next_ids: Callable[[str], list[str]]) -> Tree:
    nodes, seen = graph.nodes, {graph.focus}

    def add(tree: Tree, parent: str) -> None:
        for key in next_ids(parent):
            node, is_repeated = nodes[key], key in seen and nodes[key].kind == "artifact"
            branch = tree.add(Text(node_line(node) + (" (see above)" if is_repeated else "")))
            seen.add(key)
            # Unreported trials have the same inputs as the reported ones.
            if not is_repeated and node.kind != "group":
                add(branch, key)

    root = Tree(Text(title))
    add(root, graph.focus)
    return root


def node_line(node: Node) -> str:
    """Return a node in one line, with the verified checksum of a raw file."""
    if node.kind == "group":
        missing = f", {MISSING}" if node.detail == MISSING else ""
        return f"compared with {node.title}{missing}" if node.members == "trials" else node.title
    if node.raw_input is None:
        return f"{node.title} {node.id}: {node.detail}"
    algorithm, _, digest = node.raw_input.checksum.partition(":")
    verified = f", verified {algorithm} {digest}" if digest else ""
    size = node.detail.partition(",")[0]
    return f"{one_line(node.title)} ({size}, sha256 {node.raw_input.sha256[:12]}{verified})"


def graph_json(graph: LineageGraph) -> dict[str, Any]:
    """Return `focus`, `nodes` and `edges` as JSON values.

    An edge has the ids `from` (input) and `to` (output), and the `name` of the input.
    """
    return {
        "focus": graph.focus,
        "nodes": [_node_json(node) for node in graph.nodes.values()],
        "edges": [{"from": source, "to": to, "name": name} for source, to, name in graph.edges()],
    }


def _node_json(node: Node) -> dict[str, Any]:
    fields = {name: getattr(node, name) for name in ("id", "kind", "title", "detail")}
    if node.kind == "artifact":
        fields["is_gone"] = node.manifest is None
    return fields | node.facts


_MERMAID_SHAPES = {"artifact": '["{}"]', "file": '[("{}")]', "group": '[["{}"]]'}


def mermaid_text(graph: LineageGraph) -> str:
    """Return the graph for Markdown with Mermaid."""
    names = _names(graph)
    lines = ["flowchart LR"]
    for key, node in graph.nodes.items():
        text = "<br>".join(map(_escape_mermaid, label(node)))
        lines.append(f"  {names[key]}{_MERMAID_SHAPES[node.kind].format(text)}")
    lines += [f"  {names[source]} --> {names[target]}" for source, target, _ in graph.edges()]
    return "\n".join([*lines, f"  style {names[graph.focus]} stroke-width:3px"])


def _escape_mermaid(text: str) -> str:
    """Escape all characters that Mermaid or its Markdown can interpret."""
    plain = "-_.,+=/% ±"
    return "".join(
        letter if letter.isalnum() or letter in plain else f"#{ord(letter)};"
        for letter in one_line(text)
    )


def _names(graph: LineageGraph) -> dict[str, str]:
    """Return a name without special characters for each node id."""
    return {key: f"n{number}" for number, key in enumerate(graph.nodes)}


def label(node: Node) -> tuple[str, ...]:
    """Return the lines of a node's box."""
    return (node.title, *([node.id] if node.kind == "artifact" else ()), node.detail)


def one_line(text: str) -> str:
    """Replace line breaks and other control characters by spaces."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)
