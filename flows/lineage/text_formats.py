"""A lineage as text: a tree for the terminal, JSON, dot, Mermaid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flows.lineage.graph import GONE, TRIALS, LineageGraph, Node


def tree_lines(graph: LineageGraph) -> list[str]:
    """The focus with what it was made from and, where the graph has it, what was made from it.

    What was shown already is only named. Lines are not wrapped: checksums stay whole.
    """
    lines = [node_line(graph.nodes[graph.focus])]
    users = graph.used_by()
    if graph.made_from.get(graph.focus):
        lines += _branches(graph, graph.focus, graph.made_from, "", set())
        if users.get(graph.focus):
            lines += ["", "made from it:"]
    if users.get(graph.focus):
        lines += _branches(graph, graph.focus, users, "", set())
    return lines


def _branches(
    graph: LineageGraph,
    key: str,
    edges: Mapping[str, Sequence[tuple[str, str]]],
    indent: str,
    seen: set[str],
) -> Iterator[str]:
    seen.add(key)
    found = list(dict.fromkeys(other for _, other in edges.get(key, ())))
    for left, other in zip(range(len(found) - 1, -1, -1), found, strict=True):
        node = graph.nodes[other]
        is_known = other in seen and node.kind == "artifact"
        arm = "├─" if left else "└─"
        yield f"{indent}{arm} {node_line(node)}{' (as above)' if is_known else ''}"
        # What the trials that did not answer were made from is what the others were made from.
        if not is_known and node.kind != "group":
            yield from _branches(graph, other, edges, indent + ("│  " if left else "   "), seen)


def node_line(node: Node) -> str:
    """A node in one line, with the whole checksum of a raw file that was verified by one."""
    if node.kind == "group":
        gone = f", {GONE}" if node.detail == GONE else ""
        return f"compared with {node.title}{gone}" if node.id.startswith(TRIALS) else node.title
    if node.raw_input is None:
        return f"{node.title} {node.id}: {node.detail}"
    kind, _, digest = node.raw_input.checksum.partition(":")
    verified = f", verified {kind} {digest}" if digest else ""
    if node.raw_input.believed:
        verified = ", as a list of checksums says"
    size = node.detail.partition(",")[0]
    return f"{one_line(node.title)} ({size}, sha256 {node.raw_input.sha256[:12]}{verified})"


def graph_json(graph: LineageGraph) -> dict[str, Any]:
    """Plain values: the `focus`, `nodes` with what is known of each, and `edges`.

    An edge leads `from` what was read `to` what was made of it, and has the input's `name`.
    """
    return {
        "focus": graph.focus,
        "nodes": [_node_json(node) for node in graph.nodes.values()],
        "edges": [
            {"from": given, "to": user, "name": name}
            for user, inputs in graph.made_from.items()
            for name, given in inputs
        ],
    }


def _node_json(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: getattr(node, name) for name in ("id", "kind", "title", "detail")
    }
    if node.kind == "artifact":
        found["is_gone"] = node.manifest is None
    if (manifest := node.manifest) is not None:
        found |= {name: getattr(manifest, name) for name in ("stage", "content", "cache_key")}
        made = manifest.produced_by
        found |= {"manifest": manifest.path, "run_id": made.run_id, "ended": made.ended}
    if (item := node.raw_input) is not None:
        found |= {name: getattr(item, name) for name in ("uri", "size", "sha256", "checksum")}
    return found


_DOT_SHAPES = {"artifact": "box", "file": "note", "group": "box3d"}
_MERMAID_SHAPES = {"artifact": '["{}"]', "file": '[("{}")]', "group": '[["{}"]]'}


def dot_text(graph: LineageGraph) -> str:
    """For Graphviz: `dot -Tsvg`."""
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [fontname="sans-serif"];']
    for name, node in _named(graph):
        # Two texts of a quoted string: its \n is Graphviz' own line break.
        text = "\\n".join(map(_dot_escaped, label(node)))
        style = ", penwidth=2" if node.id == graph.focus else ""
        lines.append(f'  {name} [shape={_DOT_SHAPES[node.kind]}, label="{text}"{style}];')
    lines += [f"  {given} -> {user};" for given, user in _named_edges(graph)]
    return "\n".join([*lines, "}"])


def _dot_escaped(text: str) -> str:
    return one_line(text).replace("\\", "\\\\").replace('"', '\\"')


def mermaid_text(graph: LineageGraph) -> str:
    """For Markdown that draws Mermaid."""
    lines = ["flowchart LR"]
    for name, node in _named(graph):
        text = "<br>".join(map(_mermaid_escaped, label(node)))
        lines.append(f"  {name}{_MERMAID_SHAPES[node.kind].format(text)}")
    lines += [f"  {given} --> {user}" for given, user in _named_edges(graph)]
    focus = next(name for name, node in _named(graph) if node.id == graph.focus)
    return "\n".join([*lines, f"  style {focus} stroke-width:3px"])


def _mermaid_escaped(text: str) -> str:
    """Letters, digits and a few marks as they are, all else by its number, as Mermaid reads it.

    It takes quotes, angle brackets, backticks (its Markdown) and semicolons for its own.
    """
    plain = "-_.,+=/% ±"
    return "".join(
        letter if letter.isalnum() or letter in plain else f"#{ord(letter)};"
        for letter in one_line(text)
    )


def _named(graph: LineageGraph) -> Iterator[tuple[str, Node]]:
    """Each node with a name without special characters."""
    return ((f"n{number}", node) for number, node in enumerate(graph.nodes.values()))


def _named_edges(graph: LineageGraph) -> Iterator[tuple[str, str]]:
    names = {node.id: name for name, node in _named(graph)}
    for user, inputs in graph.made_from.items():
        for _, given in inputs:
            yield names[given], names[user]


def label(node: Node) -> tuple[str, ...]:
    """What a drawing says of a node, line by line."""
    return (node.title, *([node.id] if node.kind == "artifact" else ()), node.detail)


def one_line(text: str) -> str:
    """A text with a space for each line break and each character that steers a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
