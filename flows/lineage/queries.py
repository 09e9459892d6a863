"""Upstream and downstream lineage of artifacts, metrics and raw files by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flows.formatting import format_statistic
from flows.lineage.resolve import (
    closest_names,
    describe_names,
    find_artifact,
    newest_run,
    published_manifests,
)
from flows.nested_values import numeric_leaves
from flows.run.stages import get_stage
from flows.store.artifacts import ArtifactStore
from model.summaries import score_cut
from schemas.errors import ArtifactNotFoundError
from schemas.manifest import Manifest, RawInput
from schemas.redaction import public_address

if TYPE_CHECKING:
    from flows.lineage.graph import LineageGraph

Direction = Literal["upstream", "downstream", "both"]

_CHECKSUM = re.compile(r"(?:\w+:)?[0-9a-f]{8,}", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Number in the statistics of an artifact.

    Attributes:
        label: Requested name of the artifact.
        name: Dotted path in the statistics: `metrics.dev.matthews`.
    """

    label: str
    name: str
    value: float
    manifest: Manifest

    def __str__(self) -> str:
        """Return the metric in one line, with the limits of its data or training."""
        limits = "; ".join(score_cut(self.name, self.manifest.statistics))
        text = f"{self.label} {self.name} = {format_statistic(self.name, self.value)}"
        return f"{text} ({limits})" if limits else text


@dataclass(frozen=True, kw_only=True)
class ResolvedName:
    """Artifact or raw file, and the requested metrics of the artifact."""

    manifest: Manifest | None = None
    file: RawInput | None = None
    metrics: tuple[Metric, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Result of a query."""

    graph: LineageGraph
    metrics: tuple[Metric, ...]
    """Requested metrics."""

    def __str__(self) -> str:
        """Return the metrics, and the graph as a tree, as `bertloom lineage` prints them."""
        from flows.lineage.text_formats import tree_lines

        return "\n".join([*map(str, self.metrics), *tree_lines(self.graph)])


def lineage(
    store: ArtifactStore,
    name: str = "",
    *,
    direction: Direction | None = None,
    collapse: bool = True,
) -> Lineage:
    """Return the upstream or downstream lineage of an artifact, raw file or metric.

    Args:
        store: Store to search.
        name: Name as for `resolve_name`. "": last artifact of the newest run, without its tables.
        direction: None: downstream for a raw file, upstream for other names.
        collapse: Merge similar nodes, see `flows.lineage.graph.collapsed`.

    Raises:
        ArtifactNotFoundError: Nothing, or more than one result, has the name.
    """
    from flows.lineage.graph import downstream_graph, joined, upstream_graph  # loads networkx

    resolved = resolve_name(name, store=store) if name else _latest_artifact(store)
    manifests = [resolved.manifest] if resolved.manifest is not None else []
    direction = direction or ("downstream" if resolved.file else "upstream")
    graphs = [
        build(manifests, store=store, collapse=collapse, file=resolved.file)
        for name, build in (("upstream", upstream_graph), ("downstream", downstream_graph))
        if direction in (name, "both")
    ]
    return Lineage(graph=joined(graphs[0], graphs[-1]), metrics=resolved.metrics)


def resolve_name(text: str, *, store: ArtifactStore) -> ResolvedName:
    """Return what a name stands for.

    Args:
        text: Artifact as for `flows.lineage.resolve.resolve`, also with `:` and one of its files or
            metrics (`evaluate.cola:dev.matthews`); a raw file by path, URL, name, sha256 or
            published checksum; or a file of an artifact by sha256. Eight digits of a checksum are
            enough.
        store: Store to search.

    Raises:
        ArtifactNotFoundError: Nothing, or more than one result, has the name.
    """
    if (manifest := find_artifact(text, store)) is not None:
        return ResolvedName(manifest=manifest)
    for name, part in _split_parts(text):
        if (manifest := find_artifact(name, store)) is not None:
            return ResolvedName(manifest=manifest, metrics=_find_part(part, name, manifest))
    if (by_file := _find_file(text, store)) is not None:
        return by_file
    raise ArtifactNotFoundError(
        f"{store.root}: no artifact, metric or file {text!r}. {describe_names(text, store)}; a "
        "metric by ARTIFACT:METRIC; a raw file by its path, name, sha256 or published checksum"
    )


def _latest_artifact(store: ArtifactStore) -> ResolvedName:
    run = newest_run(store)
    steps = [(step.label.partition(".")[0], step.manifest) for step in run.steps] if run else []
    paths = [path for stage, path in steps if get_stage(stage).output_type != "tables"]
    if not paths:
        raise ArtifactNotFoundError(
            f"{store.root}: expected a run with finished steps, got none. Name an artifact, a raw "
            "file or a metric"
        )
    return ResolvedName(manifest=store.read_manifest(paths[-1]))


def _split_parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield ARTIFACT and PART of a text. A metric of one entity type has a colon: `f1:LOC`."""
    name, _, part = text.rpartition(":")
    yield name, part
    name, _, metric = name.rpartition(":")
    yield name, f"{metric}:{part}"


def _find_part(part: str, label: str, manifest: Manifest) -> tuple[Metric, ...]:
    """Return the numbers whose path ends with `part`, scores if there are any; () for a file.

    Raises:
        ArtifactNotFoundError: No metric and no file has the name.
    """
    values = numeric_leaves(manifest.statistics)
    names = [name for name in values if f".{name}".endswith(f".{part}")]
    names = [name for name in names if name.startswith("metrics.")] or names
    if not names and manifest.file(part) is None:
        raise ArtifactNotFoundError(
            f"artifact {manifest.artifact_id} ({manifest.stage}): no file or metric {part!r}. "
            f"{closest_names(part, values)}`bertloom show` lists all"
        )
    return tuple(Metric(label=label, name=n, value=values[n], manifest=manifest) for n in names)


def _find_file(text: str, store: ArtifactStore) -> ResolvedName | None:
    """Return a raw file, or the newest artifact with a file of this sha256."""
    paths = {text, str(Path(text).absolute()), str(Path(text).resolve())}
    if "://" in text:
        paths = {public_address(text)}
    files: dict[str, RawInput] = {}
    newest: Manifest | None = None
    for manifest in published_manifests(store):
        for item in manifest.raw_inputs:
            names = {item.uri, item.name, item.name.rpartition("/")[2]}
            if names & paths or _has_checksum(text, item.sha256, item.checksum):
                files[item.sha256] = item
        if any(_has_checksum(text, entry.sha256) for entry in manifest.files):
            newest = manifest
    if len(files) > 1:
        listed = ", ".join(f"sha256:{item.sha256} ({item.uri})" for item in files.values())
        raise ArtifactNotFoundError(f"{text!r}: expected one raw file, got {len(files)}: {listed}")
    if files:
        return ResolvedName(file=files.popitem()[1])
    return ResolvedName(manifest=newest) if newest is not None else None


def _has_checksum(text: str, sha256: str, published: str = "") -> bool:
    """Return whether a text is the first digits of a checksum, with or without its algorithm."""
    if not _CHECKSUM.fullmatch(text):
        return False
    known = (f"sha256:{sha256}", sha256, published, published.partition(":")[2])
    return any(checksum.startswith(text.lower()) for checksum in known)
