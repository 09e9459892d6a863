"""A static page for each artifact in the lineage of a run.

    reports/artifacts/ID.html                 with rows of the artifact and their source text
    reports/artifacts-without-text/ID.html    without them, for recipes that show no texts

A page is written once, and again whenever something new is built from its artifact. Links are
relative, so that the pages work from a folder and from a bucket.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from flows.formatting import format_metric, is_metric
from flows.lineage.graph import LineageGraph, upstream_graph
from flows.lineage.svg import graph_svg
from flows.nested_values import flatten
from flows.record_counts import record_counts
from flows.report.rendering import pages_folder, render, to_yaml
from flows.report.row_samples import RowSample, read_row_samples
from flows.run.stages import summarize
from flows.store.artifact import StoredArtifact, upstream_artifacts
from flows.store.artifacts import ArtifactStore
from schemas.manifest import Manifest

_MAX_LISTED = 200
"""Number of files and of values that are shown."""

_STYLES = {"cyan": "a", "yellow": "b", "bold magenta": "masked", "dim": "note"}
"""Class in the style sheet of each style of `flows.lineage.preview`."""


def write_artifact_pages(
    store: ArtifactStore,
    manifests: Iterable[Manifest],
    *,
    shows_text: bool = True,
    refresh: bool = False,
) -> None:
    """Write the pages of artifacts and of everything that they were built from.

    An existing page is written again if it does not name an artifact yet that was built from its
    own, which is the case as long as that artifact has no page. Of two runs that end at the same
    time, a page can lack one until `bertloom report` is called.

    Args:
        store: Store of the artifacts.
        manifests: Artifacts of a run.
        shows_text: Show rows of the artifacts and their source text.
        refresh: Write all pages again.
    """
    artifacts = upstream_artifacts(map(store.artifact, manifests))
    pages = _Pages(store, artifacts, shows_text=shows_text)
    existing = set(store.backend.names(pages.folder))
    new = {key for key in pages.artifacts if refresh or pages.path(key) not in existing}
    if new:
        published = store.manifests(pointer.manifest for pointer in store.pointers())
        pages.read_outputs(published.values(), existing=existing)
        # A missing page says that its inputs' pages do not name it yet, so it is written last.
        pages.write(pages.inputs(new) - new)
        pages.write(new)


def remove_links(store: ArtifactStore, deleted: Collection[str]) -> None:
    """Write the pages again that link to deleted pages, given the paths of these."""
    for shows_text in (True, False):
        folder = pages_folder(shows_text=shows_text)
        links = [f'href="{path.removeprefix(f"{folder}/")}"'.encode() for path in deleted]
        pages = store.backend.read_many(store.backend.names(folder) if links else ())
        ids = {
            PurePosixPath(path).stem
            for path, page in pages.items()
            if any(link in page for link in links)
        }
        pointers = [pointer for pointer in store.pointers() if pointer.artifact_id in ids]
        manifests = [store.manifest(pointer.manifest) for pointer in pointers]
        write_artifact_pages(store, manifests, shows_text=shows_text, refresh=True)


class _Pages:
    """The pages of a lineage."""

    def __init__(
        self, store: ArtifactStore, artifacts: Mapping[str, StoredArtifact], *, shows_text: bool
    ) -> None:
        self.artifacts, self.folder = artifacts, pages_folder(shows_text=shows_text)
        self._store, self._shows_text = store, shows_text
        self._names = {key: self._name(artifact) for key, artifact in artifacts.items()}
        self._outputs: dict[str, list[Manifest]] = {}

    def _name(self, artifact: StoredArtifact) -> str:
        # Garbage collection, which knows one store, leaves pages of other stores' artifacts alone.
        prefix = "" if artifact.store is self._store else "other-store-"
        return f"{prefix}{artifact.manifest.artifact_id}.html"

    def path(self, key: str) -> str:
        """Return the path of a page in the store."""
        return f"{self.folder}/{self._names[key]}"

    def inputs(self, keys: Iterable[str]) -> set[str]:
        """Return the inputs of some artifacts, without deleted ones."""
        refs = (ref for key in keys for ref in self.artifacts[key].manifest.inputs)
        return {ref.artifact_id for ref in refs} & self.artifacts.keys()

    def read_outputs(self, published: Iterable[object], *, existing: Collection[str]) -> None:
        """Find what was built from each artifact, and which of it has a page."""
        self._outputs = {key: [] for key in self.artifacts}
        for manifest in published:
            if isinstance(manifest, Manifest):  # otherwise it is damaged
                for key in {ref.artifact_id for ref in manifest.inputs} & self._outputs.keys():
                    self._outputs[key].append(manifest)
                name = f"{manifest.artifact_id}.html"
                if f"{self.folder}/{name}" in existing:
                    self._names.setdefault(manifest.artifact_id, name)

    def write(self, keys: Iterable[str]) -> None:
        """Write some pages."""
        with ThreadPoolExecutor() as pool:
            writes = [
                pool.submit(self._store.backend.replace, self.path(key), self._render(key).encode())
                for key in sorted(keys)
            ]
        for write in writes:
            write.result()

    def _render(self, key: str) -> str:
        artifact, manifest = self.artifacts[key], self.artifacts[key].manifest
        graph = upstream_graph([manifest], store=artifact.store)
        entry = manifest.statistics.get("entry")
        outputs = sorted(self._outputs[key], key=lambda item: item.produced_by.ended_at)
        return render(
            "artifact.html.j2",
            manifest=manifest,
            title=f"{manifest.stage}.{entry}" if entry else manifest.stage,
            summary=summarize(manifest),
            folder=artifact.store.url(manifest.artifact_path),
            pages=self._names,
            samples=self._read_samples(artifact),
            hides_rows=bool(manifest.table_name) and not self._shows_text,
            styles=_STYLES,
            picture=graph_svg(graph, name="lineage", links=self._links(graph)),
            raw_files=manifest.raw_inputs[:_MAX_LISTED],
            outputs=[(item, summarize(item)) for item in outputs],
            record_counts=[(manifest.stage, item, "") for item in record_counts(manifest.counters)],
            counters=[(name, f"{value:,}") for name, value in manifest.counters.items()],
            statistics=[(k, _format_value(k, v)) for k, v in flatten(manifest.statistics).items()],
            files=manifest.files[:_MAX_LISTED],
            configuration=to_yaml(manifest.config),
            max_values=_MAX_LISTED,
        )

    def _read_samples(self, artifact: StoredArtifact) -> list[RowSample]:
        if not self._shows_text:
            return []
        return read_row_samples(replace(artifact, checks_digests=False))

    def _links(self, graph: LineageGraph) -> dict[str, str]:
        """Return the link of each node; a file or a group links to a list of inputs."""
        links: dict[str, str] = {}
        for key, node in graph.nodes.items():
            if key in self._names:
                links[key] = self._names[key]
            elif node.kind != "artifact":
                output = self._names[graph.downstream(key)[0]]
                part = f"file-{node.raw_input.sha256[:16]}" if node.raw_input else "inputs"
                links[key] = f"{output}#{part}"
        return links


def _format_value(name: str, value: Any) -> str:
    if is_metric(name) and isinstance(value, float):
        return format_metric(name, value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
