"""Artifacts and raw files as a graph: what was made from what, both ways."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from flows.formatting import format_bytes
from flows.run.stages import get_stage, summarize
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import Pointer
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError
from schemas.manifest import Manifest, RawInput

GONE = "gone from the store"
"""Detail of an artifact whose manifest was collected."""

TRIALS, FILES = "trials", "files"
"""What the ids of groups begin with."""

_SHOWN_FILES = 5
"""Raw files of an artifact that are shown where it has more than one besides."""

Edge = tuple[str, str]
"""Name of an input, and the id of the node at the other end."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """An artifact, a raw file, or a group of them (the other trials of a grid)."""

    id: str
    """The artifact's id, `sha256:...` of a raw file, or `trials:...` or `files:...` of a group."""

    kind: Literal["artifact", "file", "group"]
    title: str
    """Such as `build-tokens` or a file's name."""

    detail: str
    """What it holds, in a few words: `432,409 tokens`, `276.0 kB, verified sha1`."""

    manifest: Manifest | None = None
    """None of a file or a group, and where the artifact is gone from the store."""

    raw_input: RawInput | None = None
    """None of an artifact or a group."""

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
    made_from: dict[str, list[Edge]] = field(default_factory=dict)
    """By a node's id: all that it was made from."""

    def used_by(self) -> dict[str, list[Edge]]:
        """By a node's id: all that was made from it."""
        found: dict[str, list[Edge]] = defaultdict(list)
        for user, inputs in self.made_from.items():
            for name, given in inputs:
                found[given].append((name, user))
        return dict(found)


def upstream_graph(
    manifests: Sequence[Manifest],
    *,
    store: ArtifactStore,
    collapse: bool = True,
    files: Sequence[RawInput] = (),
) -> LineageGraph:
    """The artifacts with all that they were made from, back to the raw files.

    Args:
        manifests: where to begin; the last is the graph's focus.
        store: where the others are looked up. One that is gone is a node without a manifest.
        collapse: see `collapsed`.
        files: raw files to show as well; the last is the focus where no manifest is given.
    """
    graph = _begun(manifests, files)
    asked = list(graph.nodes)
    waiting = list(reversed(manifests))
    while waiting:
        manifest = waiting.pop()
        if manifest.artifact_id in graph.made_from:
            continue
        for node in (artifact_node(manifest), *map(file_node, manifest.raw_inputs)):
            graph.nodes[node.id] = node
        edges = [(ref.name, ref.artifact_id) for ref in manifest.inputs]
        edges += [(item.name, file_id(item)) for item in manifest.raw_inputs]
        graph.made_from[manifest.artifact_id] = edges
        found = []
        for ref in manifest.inputs:
            if ref.artifact_id in graph.nodes:
                continue
            gone = Node(id=ref.artifact_id, kind="artifact", title=ref.stage, detail=GONE)
            graph.nodes[ref.artifact_id] = gone
            try:
                found.append(store.manifest(ref.manifest))
            except ArtifactNotFoundError:
                continue  # collected: the node that says so stays
        waiting += reversed(found)
    return collapsed(graph, keep=asked) if collapse else graph


def downstream_graph(
    manifests: Sequence[Manifest],
    *,
    store: ArtifactStore,
    collapse: bool = True,
    files: Sequence[RawInput] = (),
) -> LineageGraph:
    """All published artifacts that were made from these, directly or not.

    Reads every manifest of the store. An artifact that was rebuilt to the same files stands for
    those before it: what was made from one was made from the other.

    Args:
        manifests, files: where to begin; the focus as in `upstream_graph`.
        store: where to look.
        collapse: see `collapsed`.
    """
    graph = _begun(manifests, files)
    asked = list(graph.nodes)
    scanned = sorted(scan(store), key=lambda one: (one[0].committed, one[0].artifact_id))
    published = {pointer.artifact_id: (pointer, manifest) for pointer, manifest in scanned}
    users: dict[_Key, list[str]] = defaultdict(list)
    for artifact_id, (pointer, manifest) in published.items():
        for _, *keys in _read_by(pointer, manifest):
            for key in keys:
                users[key].append(artifact_id)
    # By its content an artifact stands for those that are equal to it.
    stands: dict[_Key, str] = {key: key for key in graph.nodes}
    stands |= {(item.stage, item.content_digest): item.artifact_id for item in manifests}
    reached = list(stands)
    for key in reached:  # grows as it is walked
        for artifact_id in users[key]:
            if artifact_id not in graph.nodes:
                pointer, manifest = published[artifact_id]
                graph.nodes[artifact_id] = artifact_node(manifest)
                stands[artifact_id] = artifact_id
                stands.setdefault((pointer.stage, pointer.content_digest), artifact_id)
                reached += [artifact_id, (pointer.stage, pointer.content_digest)]
    for artifact_id in [key for key in published if key in graph.nodes]:
        found: dict[str, str] = {}
        for name, *keys in _read_by(*published[artifact_id]):
            if (given := next((stands[key] for key in keys if key in stands), None)) is not None:
                found.setdefault(given, name)
        graph.made_from[artifact_id] = [(name, given) for given, name in found.items()]
    return collapsed(graph, keep=asked) if collapse else graph


def joined(first: LineageGraph, second: LineageGraph) -> LineageGraph:
    """Two graphs of one focus as one."""
    graph = LineageGraph(focus=first.focus, nodes={**second.nodes, **first.nodes})
    for part in (first, second):
        for user, inputs in part.made_from.items():
            known = graph.made_from.setdefault(user, [])
            known += [edge for edge in inputs if edge not in known]
    return graph


def _begun(manifests: Sequence[Manifest], files: Sequence[RawInput]) -> LineageGraph:
    nodes = [*map(file_node, files), *map(artifact_node, manifests)]
    return LineageGraph(focus=nodes[-1].id, nodes={node.id: node for node in nodes})


_Key = str | tuple[str, str]
"""A node's id, or the stage and content of an artifact."""


def _read_by(pointer: Pointer, manifest: Manifest) -> Iterator[tuple[str, *tuple[_Key, ...]]]:
    """The name of each input of an artifact, and what it may be known by, the id first."""
    for ref in manifest.inputs:
        content = ref.stage, ref.content_digest
        # Equal checkpoints that were made from one another have no order but that.
        is_own = content == (pointer.stage, pointer.content_digest)
        yield ref.name, ref.artifact_id, *(() if is_own else (content,))
    for item in manifest.raw_inputs:
        yield item.name, file_id(item)


def scan(store: ArtifactStore) -> Iterator[tuple[Pointer, Manifest]]:
    """Yield every published artifact that exists, in no particular order.

    Raises:
        ArtifactCorruptError: A manifest is corrupt.
    """
    pointers = list(store.pointers())
    manifests = store.manifests(pointer.manifest for pointer in pointers)
    for pointer in pointers:
        manifest = manifests.get(pointer.manifest)
        if isinstance(manifest, ArtifactCorruptError):
            raise manifest
        if manifest is not None:
            yield pointer, manifest


# Nodes


def artifact_node(manifest: Manifest) -> Node:
    """The node of an artifact that is there."""
    is_evaluation = get_stage(manifest.stage).output_type == "evaluation"
    entry = manifest.statistics.get("entry") if is_evaluation else None
    return Node(
        id=manifest.artifact_id,
        kind="artifact",
        title=f"{manifest.stage}.{entry}" if entry else manifest.stage,
        detail=summarize(manifest),
        manifest=manifest,
    )


def file_id(item: RawInput) -> str:
    """The id of a raw file's node."""
    return f"sha256:{item.sha256}"


def file_node(item: RawInput) -> Node:
    """The node of a raw file."""
    verified = f", verified {item.checksum.partition(':')[0]}" if item.checksum else ""
    if item.trusted_checksum_file:
        verified = ", believed"
    return Node(
        id=file_id(item),
        kind="file",
        title=item.name,
        detail=f"{format_bytes(item.size_bytes)}{verified}",
        raw_input=item,
        size=item.size_bytes,
    )


# Groups


def collapsed(graph: LineageGraph, *, keep: Collection[str]) -> LineageGraph:
    """The graph with the trials that did not answer as one, and of very many raw files the first.

    A group is made from what each of its nodes was made from, and all of them went into the same
    artifacts.

    Args:
        graph: is left as it is.
        keep: ids of nodes that stay.
    """
    users = graph.used_by()
    alike: dict[tuple[str, frozenset[Edge], frozenset[str]], list[str]] = defaultdict(list)
    for node in graph.nodes.values():
        ends = frozenset(user for _, user in users.get(node.id, ()))
        is_trial = _did_not_answer(graph, node, users.get(node.id, ()))
        if node.id not in keep and (is_trial or node.kind == "file"):
            made_from = frozenset(graph.made_from.get(node.id, ()))
            alike[TRIALS if is_trial else FILES, made_from, ends].append(node.id)
    group_of: dict[str, str] = {}
    for (kind, _, ends), ids in alike.items():
        if kind == FILES:
            ids = ids[_SHOWN_FILES:] if len(ids) > _SHOWN_FILES + 1 else []
        elif not ends and len(ids) == 1:
            continue
        digest = hashlib.sha256(" ".join(sorted(ids)).encode()).hexdigest()[:16]
        group_of |= dict.fromkeys(ids, f"{kind}:{digest}")
    return merged(graph, group_of, draw=_group)


def merged(
    graph: LineageGraph, group_of: Mapping[str, str], *, draw: Callable[[str, list[Node]], Node]
) -> LineageGraph:
    """The graph with several nodes as one; groups come after the others, both ways.

    Args:
        graph: is left as it is.
        group_of: id of the group by the ids of its nodes; other nodes stay.
        draw: makes the node of a group from its id and its nodes.
    """
    members: dict[str, list[Node]] = defaultdict(list)
    for node in graph.nodes.values():
        members[group_of.get(node.id, node.id)].append(node)
    groups = set(group_of.values())
    nodes = {key: draw(key, some) if key in groups else some[0] for key, some in members.items()}
    small = LineageGraph(focus=group_of.get(graph.focus, graph.focus), nodes=nodes)
    for user in sorted(graph.made_from, key=group_of.__contains__):
        inputs, end = graph.made_from[user], group_of.get(user, user)
        edges = dict.fromkeys(small.made_from.get(end, []))
        edges |= dict.fromkeys(edge for edge in inputs if edge[1] not in group_of)
        ends = (group_of[given] for _, given in inputs if given in group_of)
        edges |= dict.fromkeys(("others", key) for key in ends if key != end)
        small.made_from[end] = list(edges)
    return small


def _did_not_answer(graph: LineageGraph, node: Node, users: Sequence[Edge]) -> bool:
    """Whether a node is a trial, and no evaluation of the graph reports its answers."""
    if node.kind != "artifact" or _holds(node) != "trial":
        return False
    for name, user in users:
        by = graph.nodes[user]
        if by.manifest is None or _holds(by) != "evaluation":
            return False
        if name in by.manifest.statistics.get("members", (name,)):
            return False
    return True


def _holds(node: Node) -> str:
    return get_stage(node.manifest.stage if node.manifest else node.title).output_type


def _group(key: str, nodes: list[Node]) -> Node:
    count, size = len(nodes), sum(node.size for node in nodes)
    if key.startswith(FILES):
        title, detail = f"and {count:,} more files", format_bytes(size)
    else:
        title = f"{count} other trial{'s' if count > 1 else ''} of the grid"
        made = [node.manifest for node in nodes if node.manifest is not None]
        detail = get_stage(made[0].stage).summary_of(made) if made else nodes[0].detail
    return Node(id=key, kind="group", title=title, detail=detail, count=count, size=size)
