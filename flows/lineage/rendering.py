"""A lineage as text: a tree for the terminal, JSON, dot, Mermaid; and a trace as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flows.formats import columns
from flows.lineage.graph import GONE, TRIALS, LineageGraph, Node

if TYPE_CHECKING:
    from flows.lineage.tracing import DocumentTrace, Trace


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
    size = node.detail.partition(",")[0]
    return f"{one_line(node.title)} ({size}, sha256 {node.raw_input.sha256[:12]}{verified})"


def graph_json(graph: LineageGraph) -> dict[str, Any]:
    """Plain values: the `focus`, `nodes` with what is known of each, and `edges`.

    An edge leads `from` what was read `to` what was made of it, and has the input's `name`.
    """
    edges = [
        {"from": given, "to": user, "name": name}
        for user, inputs in graph.made_from.items()
        for name, given in inputs
    ]
    return {
        "focus": graph.focus,
        "nodes": [_node_json(node) for node in graph.nodes.values()],
        "edges": edges,
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
_MERMAID_SHAPES = {"artifact": ('["', '"]'), "file": ('[("', '")]'), "group": ('[["', '"]]')}


def dot_text(graph: LineageGraph) -> str:
    """For Graphviz: `dot -Tsvg`."""
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [fontname="sans-serif"];']
    numbers = _numbers(graph)
    for node in graph.nodes.values():
        # Two texts of a quoted string: its \n is Graphviz' own line break.
        label = "\\n".join(_dot_escaped(text) for text in _label(node))
        style = ", penwidth=2" if node.id == graph.focus else ""
        lines.append(
            f'  {numbers[node.id]} [shape={_DOT_SHAPES[node.kind]}, label="{label}"{style}];'
        )
    for user, inputs in graph.made_from.items():
        lines += [f"  {numbers[given]} -> {numbers[user]};" for _, given in inputs]
    return "\n".join([*lines, "}"])


def _dot_escaped(text: str) -> str:
    return one_line(text).replace("\\", "\\\\").replace('"', '\\"')


def mermaid_text(graph: LineageGraph) -> str:
    """For Markdown that draws Mermaid."""
    lines = ["flowchart LR"]
    numbers = _numbers(graph)
    for node in graph.nodes.values():
        label = "<br>".join(_mermaid_escaped(text) for text in _label(node))
        before, after = _MERMAID_SHAPES[node.kind]
        lines.append(f"  {numbers[node.id]}{before}{label}{after}")
    for user, inputs in graph.made_from.items():
        lines += [f"  {numbers[given]} --> {numbers[user]}" for _, given in inputs]
    lines.append(f"  style {numbers[graph.focus]} stroke-width:3px")
    return "\n".join(lines)


def _mermaid_escaped(text: str) -> str:
    """Letters, digits and a few marks as they are, all else by its number, as Mermaid reads it.

    It takes quotes, angle brackets, backticks (its Markdown) and semicolons for its own.
    """
    plain = "-_.,+=/% ±"
    return "".join(
        letter if letter.isalnum() or letter in plain else f"#{ord(letter)};"
        for letter in one_line(text)
    )


def _label(node: Node) -> tuple[str, ...]:
    if node.kind == "artifact":
        return node.title, node.id, node.detail
    return node.title, node.detail


def one_line(text: str) -> str:
    """A text with a space for each line break and each character that steers a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _numbers(graph: LineageGraph) -> dict[str, str]:
    """A name without special characters for each node."""
    return {key: f"n{number}" for number, key in enumerate(graph.nodes)}


# Traces


_LABELS = {0: "B follows A", 1: "B is random", -1: "no B"}


def trace_lines(found: Trace) -> list[str]:
    """A row, and for each segment its document, file and bytes."""
    place = found.place
    what = f", {_LABELS.get(found.label, found.label)}" if found.label is not None else ""
    lines = [f"{place.shard} row {place.row:,} of {found.table} {place.artifact_id}{what}"]
    for name, segment in found.segments.items():
        title = f"segment {name.upper()}" if name in ("a", "b") else name
        lines += ["", title, *(f"  {line}" for line in _document_lines(segment))]
    return lines


def _document_lines(found: DocumentTrace) -> list[str]:
    raw = found.raw_file
    rows = [("document", found.document_id), ("title", found.title), ("source", found.source)]
    if found.page_id is not None:
        rows.append(("page", f"{found.page_id}, revision {found.revision_id}, {found.timestamp}"))
    rows.append(("file", raw.uri if raw else "not listed by the manifest"))
    rows.append(("sha256", found.file_sha256))
    if raw is not None and raw.checksum:
        rows.append(("verified", raw.checksum.replace(":", " ", 1)))
    rows.append(("bytes", f"{found.byte_start:,} to {found.byte_end:,} of the file as stored"))
    if found.sentences is not None:
        first, last = found.sentences
        rows.append(("sentences", f"{first:,} to {last:,}" if last > first else f"{first:,}"))
    for stage, place in (("tokens", found.tokens), ("documents", found.document)):
        if place is not None:
            rows.append((f"in {stage}", f"{place.artifact_id} {place.shard} row {place.row:,}"))
    return columns([(name, one_line(value)) for name, value in rows])
