"""Lineage as a directed graph, with an edge from each input to what was built from it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

import networkx as nx

from flows.formatting import format_bytes
from flows.lineage.resolve import published_manifests
from flows.run.stages import get_stage, summarize
from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactNotFoundError
from schemas.manifest import InputRef, Manifest, RawInput

MISSING = "missing from the store"
"""Detail of an artifact without a manifest."""

_MAX_FILES = 5
"""Number of raw files of an artifact that are shown one by one if it has many."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """An artifact, a raw file, or a group of either.

    Attributes:
        id: Id of the artifact, `sha256:...` of a file, or a name of the group.
        members: Members of a group: trials that no evaluation reports, or raw files. None for
            artifacts and files.
        stage: Stage of the artifact, or of a group of trials.
        title: Label of the stage such as `build-tokens`, or the name of the file.
        detail: Contents in a few words: `432,409 tokens`, `276.0 kB, verified sha1`.
        manifest: None for files, groups and missing artifacts.
        raw_input: None for artifacts and groups.
        size: Total size of the raw files in bytes.
    """

    id: str
    kind: Literal["artifact", "file", "group"]
    title: str
    detail: str
    members: Literal["trials", "files"] | None = None
    stage: str = ""
    manifest: Manifest | None = None
    raw_input: RawInput | None = None
    size: int = 0

    @property
    def facts(self) -> dict[str, Any]:
        """Identity of an artifact or raw file: digests, run, address."""
        if (manifest := self.manifest) is not None:
            return {
                "stage": manifest.stage,
                "content_digest": manifest.content_digest,
                "cache_key": manifest.cache_key,
                "manifest": manifest.manifest_path,
                "run_id": manifest.produced_by.run_id,
                "ended": manifest.produced_by.ended_at,
            }
        if (item := self.raw_input) is not None:
            names = ("uri", "size_bytes", "sha256", "checksum")
            return {name: getattr(item, name) for name in names}
        return {}


@dataclass(frozen=True, kw_only=True)
class LineageGraph:
    """Artifacts and raw files, from inputs to outputs.

    Attributes:
        focus: Id of the requested node.
        digraph: Ids of nodes with the attribute `node`. Edges have the `name` of the input.
    """

    focus: str
    digraph: nx.DiGraph[str]

    @property
    def nodes(self) -> dict[str, Node]:
        """Nodes by id."""
        return dict(self.digraph.nodes(data="node"))

    def upstream(self, node_id: str) -> list[str]:
        """Return the ids of a node's inputs, groups last."""
        return sorted(self.digraph.pred[node_id], key=self._is_group)

    def downstream(self, node_id: str) -> list[str]:
        """Return the ids of the nodes that were built from a node, groups last."""
        return sorted(self.digraph.succ[node_id], key=self._is_group)

    def edges(self) -> Iterator[tuple[str, str, str]]:
        """Yield the id of the input, the id of the output, and the input's name."""
        for target in self.digraph:
            for source in self.upstream(target):
                yield source, target, self.digraph.edges[source, target]["name"]

    def _is_group(self, node_id: str) -> bool:
        node: Node = self.digraph.nodes[node_id]["node"]
        return node.kind == "group"


def upstream_graph(
    manifests: Sequence[Manifest],
    *,
    store: ArtifactStore,
    collapse: bool = True,
    file: RawInput | None = None,
) -> LineageGraph:
    """Return artifacts with everything that they were built from, back to the raw files.

    Args:
        manifests: Artifacts to start from. The last one is the focus.
        store: Store of the artifacts, which can refer to other stores. A deleted artifact is a node
            without a manifest.
        collapse: Merge similar nodes, see `collapsed`.
        file: Raw file to include. It is the focus if there are no manifests.
    """
    graph = _requested(manifests, file)
    digraph, requested = graph.digraph, set(graph.digraph)
    pending = [store.artifact(manifest) for manifest in manifests]
    for artifact in pending:  # grows in the loop
        manifest = artifact.manifest
        for ref in manifest.inputs:
            if ref.artifact_id not in digraph:
                try:
                    upstream = artifact.store.input(ref)
                    node = artifact_node(upstream.manifest)
                    pending.append(upstream)
                except ArtifactNotFoundError:
                    node = _missing_node(ref)
                digraph.add_node(node.id, node=node)
            digraph.add_edge(ref.artifact_id, manifest.artifact_id, name=ref.name)
        for item in _raw_files(manifest):
            digraph.add_node(file_id(item), node=file_node(item))
            digraph.add_edge(file_id(item), manifest.artifact_id, name=item.name)
    return collapsed(graph, keep=requested) if collapse else graph


def downstream_graph(
    manifests: Sequence[Manifest],
    *,
    store: ArtifactStore,
    collapse: bool = True,
    file: RawInput | None = None,
) -> LineageGraph:
    """Return artifacts and files with every published artifact that was built from them.

    The arguments are those of `upstream_graph`. Artifacts of a stage with equal content represent
    each other: what was built from one is downstream of all.
    """
    graph = _requested(manifests, file)
    requested = set(graph.digraph)
    published = {manifest.artifact_id: manifest for manifest in published_manifests(store)}
    readers: nx.DiGraph[str] = nx.DiGraph()
    readers.add_nodes_from(requested)
    for manifest in [*manifests, *published.values()]:
        readers.add_edge(manifest.artifact_id, _content_id(manifest))
        for _, sources in _inputs(manifest):
            readers.add_edges_from((source, manifest.artifact_id) for source in sources)
    reached = requested.union(*(nx.descendants(readers, source) for source in requested))
    # An id represents itself; a content is represented by a requested artifact, or by the oldest.
    representatives = {item: item for item in requested}
    representatives |= {_content_id(manifest): manifest.artifact_id for manifest in manifests}
    built = [manifest for key, manifest in published.items() if key in reached]
    for manifest in built:
        graph.digraph.add_node(manifest.artifact_id, node=artifact_node(manifest))
        representatives[manifest.artifact_id] = manifest.artifact_id
        representatives.setdefault(_content_id(manifest), manifest.artifact_id)
    for manifest in built:
        for name, sources in _inputs(manifest):
            if source := next((representatives[s] for s in sources if s in representatives), ""):
                graph.digraph.add_edge(source, manifest.artifact_id, name=name)
    return collapsed(graph, keep=requested) if collapse else graph


def joined(first: LineageGraph, second: LineageGraph) -> LineageGraph:
    """Return two graphs with the same focus as one."""
    return LineageGraph(focus=first.focus, digraph=nx.compose(first.digraph, second.digraph))


def _requested(manifests: Sequence[Manifest], file: RawInput | None) -> LineageGraph:
    nodes = [*([file_node(file)] if file else []), *map(artifact_node, manifests)]
    digraph: nx.DiGraph[str] = nx.DiGraph()
    digraph.add_nodes_from((node.id, {"node": node}) for node in nodes)
    return LineageGraph(focus=nodes[-1].id, digraph=digraph)


def _content_id(artifact: Manifest | InputRef) -> str:
    return f"{artifact.stage} {artifact.content_digest}"


def _inputs(manifest: Manifest) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each input, and the ids that it can have in the graph, best first."""
    for ref in manifest.inputs:
        # A checkpoint can be equal to the one that it was trained from: the graph has no cycles.
        is_own = _content_id(ref) == _content_id(manifest)
        yield ref.name, [ref.artifact_id] if is_own else [ref.artifact_id, _content_id(ref)]
    for item in _raw_files(manifest):
        yield item.name, [file_id(item)]


def _raw_files(manifest: Manifest) -> Iterator[RawInput]:
    """Yield the raw files of an artifact that are not files of its inputs."""
    return (item for item in manifest.raw_inputs if not item.input_name)


# Nodes


def artifact_node(manifest: Manifest) -> Node:
    """Return the node of an artifact."""
    is_evaluation = get_stage(manifest.stage).output_type == "evaluation"
    entry = manifest.statistics.get("entry") if is_evaluation else None
    return Node(
        id=manifest.artifact_id,
        kind="artifact",
        title=f"{manifest.stage}.{entry}" if entry else manifest.stage,
        detail=summarize(manifest),
        stage=manifest.stage,
        manifest=manifest,
    )


def _missing_node(ref: InputRef) -> Node:
    return Node(
        id=ref.artifact_id, kind="artifact", title=ref.stage, detail=MISSING, stage=ref.stage
    )


def file_id(item: RawInput) -> str:
    """Return the id of a raw file's node."""
    return f"sha256:{item.sha256}"


def file_node(item: RawInput) -> Node:
    """Return the node of a raw file."""
    verified = f", verified {item.checksum.partition(':')[0]}" if item.checksum else ""
    return Node(
        id=file_id(item),
        kind="file",
        title=item.name,
        detail=format_bytes(item.size_bytes) + verified,
        raw_input=item,
        size=item.size_bytes,
    )


# Groups


def collapsed(graph: LineageGraph, *, keep: Collection[str]) -> LineageGraph:
    """Return a graph with unreported trials, and many raw files of one artifact, as groups.

    The nodes of a group have the same inputs and outputs. Nodes in `keep` are not merged.
    """
    digraph = graph.digraph
    trials: dict[tuple[Set[str], Set[str]], list[Node]] = defaultdict(list)
    files: dict[tuple[Set[str], Set[str]], list[Node]] = defaultdict(list)
    for key, node in graph.nodes.items():
        inputs_outputs = frozenset(digraph.pred[key]), frozenset(digraph.succ[key])
        if key in keep:
            continue
        if node.kind == "file":
            files[inputs_outputs].append(node)
        elif _is_unreported_trial(digraph, node):
            trials[inputs_outputs].append(node)
    groups = [
        (_trials_group(nodes), nodes)
        for (_, outputs), nodes in trials.items()
        if outputs or len(nodes) > 1
    ]
    groups += [
        (_files_group(nodes), nodes)
        for nodes in (nodes[_MAX_FILES:] for nodes in files.values())
        if len(nodes) > 1
    ]
    return _merged(graph, groups)


def _merged(graph: LineageGraph, groups: Sequence[tuple[Node, Sequence[Node]]]) -> LineageGraph:
    """Return a graph with one node per group, given the groups and their members."""
    group_of = {node.id: group.id for group, nodes in groups for node in nodes}
    digraph = nx.relabel_nodes(graph.digraph, group_of)
    digraph.remove_edges_from(list(nx.selfloop_edges(digraph)))
    digraph.add_nodes_from((group.id, {"node": group}) for group, _ in groups)
    edges = digraph.out_edges([group.id for group, _ in groups])
    nx.set_edge_attributes(digraph, dict.fromkeys(edges, "others"), "name")
    return LineageGraph(focus=group_of.get(graph.focus, graph.focus), digraph=digraph)


def _is_unreported_trial(digraph: nx.DiGraph[str], node: Node) -> bool:
    """Return whether a node is a trial whose predictions no evaluation in the graph reports."""
    if node.kind != "artifact" or get_stage(node.stage).output_type != "trial":
        return False
    for _, output, name in digraph.out_edges(node.id, data="name"):
        reader: Node = digraph.nodes[output]["node"]
        if reader.manifest is None or get_stage(reader.stage).output_type != "evaluation":
            return False
        if name in reader.manifest.statistics.get("members", (name,)):
            return False
    return True


def _group_id(nodes: Sequence[Node]) -> str:
    ids = " ".join(sorted(node.id for node in nodes))
    return f"group-{hashlib.sha256(ids.encode()).hexdigest()[:16]}"


def _trials_group(nodes: Sequence[Node]) -> Node:
    manifests = [node.manifest for node in nodes if node.manifest is not None]
    return Node(
        id=_group_id(nodes),
        kind="group",
        title=f"{len(nodes)} other trial{'s' if len(nodes) > 1 else ''} of the grid",
        detail=get_stage(nodes[0].stage).summary_of(manifests) if manifests else MISSING,
        members="trials",
        stage=nodes[0].stage,
    )


def _files_group(nodes: Sequence[Node]) -> Node:
    size = sum(node.size for node in nodes)
    return Node(
        id=_group_id(nodes),
        kind="group",
        title=f"and {len(nodes):,} more files",
        detail=format_bytes(size),
        members="files",
        size=size,
    )
