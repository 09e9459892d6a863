"""Artifacts and raw files as a graph: what was made from what, both ways."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from flows.formats import byte_text
from flows.lineage.groups import fold
from flows.show import amount
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import raw_manifest
from schemas.errors import ArtifactNotFoundError
from schemas.manifest import InputRef, Manifest, RawInput

GONE = "gone from the store"
"""Detail of an artifact whose manifest was collected."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """An artifact, a raw file, or several of them drawn as one (the other cells of a grid)."""

    id: str
    """The artifact's id, `sha256:...` of a raw file, or `cells:...` or `files:...` of a group."""

    kind: Literal["artifact", "file", "group"]
    title: str
    """Such as `build-tokens` or a file's name."""

    detail: str
    """What it holds, in a few words: `432,409 tokens`, `276.0 kB, verified sha1`."""

    manifest: Manifest | None = None
    """Of an artifact; None where it is gone from the store."""

    raw_input: RawInput | None = None
    """Of a raw file."""

    count: int = 1
    """Artifacts or files that it stands for."""

    size: int = 0
    """Bytes of the raw files that it stands for."""


@dataclass(kw_only=True)
class LineageGraph:
    """Nodes by id, and what each was made from."""

    focus: str
    """Id of the node that was asked about."""

    nodes: dict[str, Node] = field(default_factory=dict)
    made_from: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """By a node's id: (name of the input, id of the node) of all that it was made from."""

    def used_by(self) -> dict[str, list[tuple[str, str]]]:
        """By a node's id: (name of the input, id of the node) of all that was made from it."""
        found: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for user, inputs in self.made_from.items():
            for name, given in inputs:
                found[given].append((name, user))
        return dict(found)


def upstream_graph(
    manifests: Sequence[Manifest], *, store: ArtifactStore, collapse_cells: bool = True
) -> LineageGraph:
    """The artifacts with all that they were made from, back to the raw files.

    Args:
        manifests: where to begin, at least one; the last is the graph's focus.
        store: where the others are looked up. One that is gone is a node without a manifest.
        collapse_cells: draw the cells of a grid that did not answer as one, and of very many raw
            files the first few. What was asked for is always drawn by itself.
    """
    graph = LineageGraph(focus=manifests[-1].artifact_id)
    waiting = list(reversed(manifests))
    while waiting:
        manifest = waiting.pop()
        if manifest.artifact_id in graph.made_from:
            continue
        graph.nodes[manifest.artifact_id] = artifact_node(manifest)
        for item in manifest.raw_inputs:
            graph.nodes.setdefault(file_id(item), file_node(item))
        edges = [(ref.name, ref.artifact_id) for ref in manifest.inputs]
        edges += [(item.name, file_id(item)) for item in manifest.raw_inputs]
        graph.made_from[manifest.artifact_id] = edges
        found = []
        for ref in manifest.inputs:
            if ref.artifact_id in graph.nodes:
                continue
            graph.nodes[ref.artifact_id] = _gone(ref)
            try:
                found.append(store.manifest(ref.manifest))
            except ArtifactNotFoundError:
                continue  # collected: the node that says so stays
        waiting += reversed(found)
    asked = {manifest.artifact_id for manifest in manifests}
    return fold(graph, keep=asked) if collapse_cells else graph


def downstream_graph(
    manifests: Sequence[Manifest],
    *,
    store: ArtifactStore,
    collapse_cells: bool = True,
    files: Sequence[RawInput] = (),
) -> LineageGraph:
    """All published artifacts that were made from these, directly or not.

    Reads every manifest of the store. An artifact that was rebuilt to the same files stands for
    those before it: what was made from one was made from the other.

    Args:
        manifests: where to begin; the last is the graph's focus.
        store: where to look.
        collapse_cells: as for `upstream_graph`.
        files: raw files to begin from as well; the last is the focus where no manifest is given.
    """
    focus = manifests[-1].artifact_id if manifests else file_id(files[-1])
    graph = LineageGraph(focus=focus)
    graph.nodes |= {file_id(item): file_node(item) for item in files}
    graph.nodes |= {item.artifact_id: artifact_node(item) for item in manifests}
    standing_for = {(item.stage, item.content): item.artifact_id for item in manifests}
    for entry in _in_order_of_making(scan(store)):
        if entry.artifact_id in graph.nodes:
            graph.made_from.setdefault(entry.artifact_id, []).extend(
                _edges(entry, graph.nodes, standing_for)
            )
            continue
        if edges := _edges(entry, graph.nodes, standing_for):
            manifest = store.read_manifest(entry.path)
            graph.nodes[entry.artifact_id] = artifact_node(manifest)
            graph.made_from[entry.artifact_id] = edges
            standing_for.setdefault((entry.stage, entry.content), entry.artifact_id)
    asked = {manifest.artifact_id for manifest in manifests} | {file_id(item) for item in files}
    return fold(graph, keep=asked) if collapse_cells else graph


def file_graph(files: Sequence[RawInput]) -> LineageGraph:
    """Raw files by themselves: they were made from nothing that is known."""
    nodes = {file_id(item): file_node(item) for item in files}
    return LineageGraph(focus=file_id(files[-1]), nodes=nodes)


def joined(first: LineageGraph, second: LineageGraph) -> LineageGraph:
    """Two graphs of one focus as one."""
    graph = LineageGraph(focus=first.focus, nodes={**second.nodes, **first.nodes})
    for part in (first, second):
        for user, inputs in part.made_from.items():
            known = graph.made_from.setdefault(user, [])
            known += [edge for edge in inputs if edge not in known]
    return graph


class Scanned(NamedTuple):
    """As much of a published manifest as lineage needs."""

    path: str
    """Of the manifest, relative to the root of the store."""

    artifact_id: str
    stage: str
    content: str
    inputs: tuple[Mapping[str, Any], ...]
    raw_inputs: tuple[Mapping[str, Any], ...]
    files: tuple[Mapping[str, Any], ...]


def scan(store: ArtifactStore) -> Iterator[Scanned]:
    """Every published artifact, in no particular order."""
    for pointer in store.pointers():
        try:
            stored = store.backend.read(pointer.manifest)
        except FileNotFoundError:
            continue  # `bertloom doctor` names such pointers
        raw = raw_manifest(stored, where=store.url(pointer.manifest))
        lists = (tuple(raw[name]) for name in ("inputs", "raw_inputs", "files"))
        yield Scanned(pointer.manifest, pointer.artifact_id, pointer.stage, pointer.content, *lists)


def _in_order_of_making(entries: Iterable[Scanned]) -> list[Scanned]:
    """Each after the published ones that it was made from."""
    by_id = {entry.artifact_id: entry for entry in entries}
    by_content: dict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in by_id.values():
        by_content[entry.stage, entry.content].append(entry.artifact_id)
    ordered: dict[str, Scanned] = {}
    waiting = [(key, False) for key in sorted(by_id, reverse=True)]
    begun: set[str] = set()
    while waiting:
        key, is_ready = waiting.pop()
        if is_ready:
            ordered[key] = by_id[key]
        elif key not in begun:
            begun.add(key)
            waiting.append((key, True))
            entry = by_id[key]
            for ref in entry.inputs:
                kind = (ref["stage"], ref["content"])
                # Equal checkpoints that were made from one another stand in no other order.
                equal = by_content[kind] if kind != (entry.stage, entry.content) else []
                others = {*equal, ref["artifact_id"]} & by_id.keys()
                waiting += [(other, False) for other in sorted(others)]
    return list(ordered.values())


def _edges(
    entry: Scanned, known: Collection[str], standing_for: Mapping[tuple[str, str], str]
) -> list[tuple[str, str]]:
    found = {ref["artifact_id"]: ref["name"] for ref in entry.inputs if ref["artifact_id"] in known}
    for ref in entry.inputs:
        key = (ref["stage"], ref["content"])
        equal = standing_for.get(key) if key != (entry.stage, entry.content) else None
        if ref["artifact_id"] not in found and equal is not None:
            found.setdefault(equal, ref["name"])
    for item in entry.raw_inputs:
        if (raw_id := f"sha256:{item['sha256']}") in known:
            found[raw_id] = item["name"]
    return [(name, key) for key, name in found.items()]


def artifact_node(manifest: Manifest) -> Node:
    """The node of an artifact that is there."""
    entry = manifest.statistics.get("entry") if manifest.stage == "evaluate" else None
    title = f"{manifest.stage}.{entry}" if entry else manifest.stage
    return Node(
        id=manifest.artifact_id,
        kind="artifact",
        title=title,
        detail=amount(manifest),
        manifest=manifest,
    )


def _gone(ref: InputRef) -> Node:
    return Node(id=ref.artifact_id, kind="artifact", title=ref.stage, detail=GONE)


def file_id(item: RawInput) -> str:
    """Of the node of a raw file."""
    return f"sha256:{item.sha256}"


def file_node(item: RawInput) -> Node:
    """The node of a raw file."""
    verified = f", verified {item.checksum.partition(':')[0]}" if item.checksum else ""
    return Node(
        id=file_id(item),
        kind="file",
        title=item.name,
        detail=f"{byte_text(item.size)}{verified}",
        raw_input=item,
        size=item.size,
    )
