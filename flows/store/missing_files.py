"""Files that other files of a store say must exist."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from flows.store.artifacts import CARD, ArtifactStore
from flows.store.pointers import Pointer, key_path, ref_path
from flows.store.records import REMEDIES
from flows.store.runs import RunRecord, read_runs, record_path, run_ids
from schemas.checksummed import load_json
from schemas.errors import ArtifactCorruptError
from schemas.manifest import Manifest

_LATEST = "latest"


class Problem(NamedTuple):
    """Corrupt or missing file."""

    path: str
    text: str
    """Error and remedy."""


def find_missing_files(
    store: ArtifactStore, manifests: Sequence[Manifest], *, has_card: Callable[[Manifest], bool]
) -> Iterator[Problem]:
    """Yield missing cards, refs, pointers, manifests, run records and reports.

    Args:
        store: Artifact store.
        manifests: Published artifacts.
        has_card: Whether the artifact of a manifest has a card.
    """
    existing = set(store.backend.stat(""))
    expected = {
        **_files_of_runs(store, existing),
        **_files_of_refs(store),
        **{
            f"{item.artifact_path}/{CARD}": f"run `bertloom card {item.artifact_id} --write`"
            for item in manifests
            if has_card(item)
        },
    }
    for path, remedy in sorted(expected.items()):
        if path not in existing:
            yield Problem(path, f"missing; {remedy}")


def _files_of_runs(store: ArtifactStore, existing: set[str]) -> dict[str, str]:
    """Return the remedy by path of each file that a run leaves."""
    folders = {path.split("/")[1] for path in existing if path.startswith("runs/")}
    expected = {record_path(run_id): REMEDIES["runs"] for run_id in folders}
    quarantined = {
        path.split("/")[2].rpartition("-")[0] for path in existing if path.startswith("quarantine/")
    }
    for run_id, record in read_runs(store, run_ids(store)).items():
        if not isinstance(record, RunRecord):
            continue
        if record.state in ("completed", "failed"):
            report = f"run `bertloom report {run_id}`"
            for path in (f"runs/{run_id}/report.html", f"reports/{record.recipe_name}.html"):
                expected[path] = report
            expected["reports/index.html"] = "run `bertloom report --index`"
        for step in record.steps:
            ref = ref_path(f"{record.recipe_name}/{step.label}")
            expected[ref] = f"run recipe {record.recipe_name} again"
    expected |= _keys_of_runs(store, existing, quarantined)
    return expected


def _keys_of_runs(
    store: ArtifactStore, existing: set[str], quarantined: set[str]
) -> dict[str, str]:
    """Return the remedy by path of the pointer of each finished step whose artifact exists."""
    records = read_runs(store, run_ids(store)).values()
    steps = {s.manifest for r in records if isinstance(r, RunRecord) for s in r.steps}
    expected = {}
    for manifest in store.manifests(steps & existing).values():
        if isinstance(manifest, ArtifactCorruptError) or manifest.cache_key in quarantined:
            continue
        if f"tombstones/{manifest.artifact_id}.json" not in existing:
            expected[key_path(manifest.stage, manifest.cache_key)] = REMEDIES["keys"]
    return expected


def _files_of_refs(store: ArtifactStore) -> dict[str, str]:
    """Return the remedy by path of each manifest that a ref or pin points to, and of refs."""
    expected: dict[str, str] = {}
    publications: dict[str, dict[str, Pointer]] = defaultdict(dict)
    for name in store.refs():
        try:
            pointer = store.ref(name)
        except ArtifactCorruptError:
            continue
        for path in pointer.manifests if pointer else ():
            expected[path] = f"ref {name} points to it: {REMEDIES['refs']}"
        if pointer and pointer.parts:
            folder, _, version = name.rpartition("/")
            publications[folder][version] = pointer
    for name, versions in publications.items():
        expected[ref_path(f"{name}/{_LATEST}")] = "run `bertloom publish --to` with a version"
        latest = versions.pop(_LATEST, None)
        if latest and latest.parts not in [pointer.parts for pointer in versions.values()]:
            expected[f"refs/{name}/VERSION.json"] = f"publish {name} again, which names a version"
    return expected


def find_missing_items(store: ArtifactStore, manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield a note on each artifact with shards that no work item record names.

    Only on disk: on S3 and GCS, short items have no record.
    """
    if store.backend.is_remote:
        return
    digests = set()
    for stored in store.backend.read_many(store.backend.names("pieces")).values():
        try:
            digests |= {entry["sha256"] for entry in load_json(stored)["files"]}
        except (ValueError, KeyError, TypeError):
            continue
    for manifest in manifests:
        missing = [entry for entry in manifest.shards if entry.sha256 not in digests]
        if manifest.produced_by.reuse is not None and missing:
            yield (
                f"{manifest.stage} {manifest.artifact_id}: {len(missing)} of "
                f"{len(manifest.shards)} shards have no work item record: they are computed again "
                "when their input changes"
            )
