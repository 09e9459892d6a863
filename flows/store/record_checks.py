"""Checks of the files of a store that are not in the folder of an artifact."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from flows.store.activity import Heartbeat
from flows.store.artifacts import CARD, ArtifactStore
from flows.store.backend import StoreBackend
from flows.store.leases import LeaseRecord
from flows.store.pointers import Pointer, Ref, key_path, ref_path
from flows.store.records import REMEDIES, Located
from flows.store.runs import RunRecord, read_runs, record_path, report_path
from flows.store.work_items import check_blobs, delete_item
from pipelines.beam.item_cache import CacheRecord
from schemas.checksummed import load_json, load_page
from schemas.errors import ArtifactCorruptError
from schemas.manifest import Manifest

_LATEST = "latest"

_MODELS: dict[str, type[Located]] = {
    "keys": Pointer,
    "active": Heartbeat,
    "leases": LeaseRecord,
    "pieces": CacheRecord,
    "refs": Ref,
}
"""Records of which `verify` checks fields and place, by top-level folder."""

Expected = dict[str, str]
"""Remedy by path of each file that must exist."""


class Problem(NamedTuple):
    """Corrupt or missing file."""

    path: str
    text: str
    """Error and remedy."""


def check_records(
    store: ArtifactStore, *, has_card: Callable[[Manifest], bool] = lambda _: False
) -> list[Problem]:
    """Read every record, page and card, and return the corrupt and missing ones.

    `has_card` returns whether the artifact of a manifest must have a card.
    """
    backend = store.backend
    remedies = {
        path: remedy
        for folder, remedy in REMEDIES.items()
        if folder != "artifacts"
        for path in backend.names(folder)
        if not path.endswith(".blobs")  # checked with their record
    }
    cards = {}
    for manifest in store.manifests(pointer.manifest for pointer in store.pointers()).values():
        if isinstance(manifest, Manifest):
            path = f"{manifest.artifact_path}/{CARD}"
            remedies[path] = f"run `bertloom card {manifest.artifact_id} --write`"
            if has_card(manifest):
                cards[path] = remedies[path]
    problems = list(_find_missing_files(store, cards))
    for path, remedy in sorted(remedies.items()):
        stored = backend.read_if_exists(path)
        if stored is not None and (error := _record_error(backend, path, stored)):
            problems.append(Problem(path, f"{error}; {remedy}"))
    return problems


def _record_error(backend: StoreBackend, path: str, stored: bytes) -> str:
    try:
        if path.endswith((".html", ".md")):
            load_page(stored)
            return ""
        record = load_json(stored)
        model = _MODELS.get(path.partition("/")[0])
        if model is not None and not model.model_validate(record).is_at_home(path):
            return "it is the record of another path"
    except ValueError as error:
        return str(error)
    return check_blobs(backend, path, record) if path.startswith("pieces/") else ""


def remove_corrupt_records(store: ArtifactStore, problems: Iterable[Problem]) -> None:
    """Quarantine corrupt pointers and delete corrupt work item records: both are built again."""
    for path, text in problems:
        if path.startswith("pieces/"):
            delete_item(store.backend, path)
        elif path.startswith("keys/") and (stored := store.backend.read_if_exists(path)):
            store.quarantine(path, expected=stored, reason=text)


# Missing files


def _find_missing_files(store: ArtifactStore, cards: Expected) -> Iterator[Problem]:
    """Yield missing cards, refs, pointers, manifests, run records and reports.

    Args:
        store: Artifact store.
        cards: Cards that published artifacts must have.
    """
    existing = set(store.backend.stat(""))
    expected = {**_files_of_runs(store, existing), **_files_of_refs(store), **cards}
    for path, remedy in sorted(expected.items()):
        if path not in existing:
            yield Problem(path, f"missing; {remedy}")


def _files_of_runs(store: ArtifactStore, existing: Collection[str]) -> Expected:
    """Return the files that runs leave, and the pointers of their artifacts that still exist."""
    ids = {path.split("/")[1] for path in existing if path.startswith("runs/")}
    expected = {record_path(run_id): REMEDIES["runs"] for run_id in ids}
    steps = set()
    for record in read_runs(store, ids).values():
        if isinstance(record, RunRecord):
            expected |= _files_of_run(record)
            steps |= {step.manifest for step in record.steps}
    quarantined = {
        path.split("/")[2].rpartition("-")[0] for path in existing if path.startswith("quarantine/")
    }
    for manifest in store.manifests(path for path in steps if path in existing).values():
        if isinstance(manifest, ArtifactCorruptError) or manifest.cache_key in quarantined:
            continue
        expected[key_path(manifest.stage, manifest.cache_key)] = REMEDIES["keys"]
    return expected


def _files_of_run(record: RunRecord) -> Expected:
    """Return the refs and reports of a run."""
    recipe = record.recipe_name
    expected = {
        ref_path(f"{recipe}/{step.label}"): f"run recipe {recipe} again" for step in record.steps
    }
    if record.state in ("completed", "failed"):
        for path in (report_path(record.run_id), f"reports/{recipe}.html"):
            expected[path] = f"run `bertloom report {record.run_id}`"
        expected["reports/index.html"] = "run `bertloom report --index`"
    return expected


def _files_of_refs(store: ArtifactStore) -> Expected:
    """Return the manifests that refs point to, and the refs of publications."""
    expected: Expected = {}
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
