"""The command `doctor`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import typer
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from flows.cli import options
from flows.cli.tables import print_result, table
from flows.formatting import format_bytes
from flows.run.provenance import checkout
from flows.store.artifacts import ArtifactStore
from flows.store.default_store import default_store
from model.launch.core_share import CoreShare, measure_core_share
from schemas.errors import ArtifactNotFoundError, StoreError

DISTRIBUTION = "bertloom"

BREAKS = {
    "prefect": "flows are written for this minor version; others change the server and its API",
    "fastapi": "Prefect's server answers 422 or does not start",
    "sqlalchemy": "Prefect's schedules never run and its events are lost, without an error",
    "apache-beam": "runners are tested with this minor version only",
    "pyarrow": "part of cache keys: shards are built again",
    "tokenizers": "its Unicode tables decide ids",
    "torch": "its floating point decides checkpoints",
}
"""Consequence of another version of a library."""

_TELEMETRY = {"DO_NOT_TRACK": ("1", "true"), "PREFECT_SERVER_ANALYTICS_ENABLED": ("false", "0")}
"""Values that turn the telemetry of Prefect's client and server off, recommended one first."""

_WARN_BYTES, _MIN_BYTES, _MIN_INODES = 10_000_000_000, 1_000_000_000, 10_000
_WARN_SECONDS, _MAX_SECONDS = 2.0, 20.0

State = Literal["ok", "warn", "FAIL"]


class Finding(NamedTuple):
    """Result of one check."""

    check: str
    state: State
    text: str
    remedy: str = ""
    """Remedy; "" if nothing is wrong."""


def doctor(store: options.Store = None, as_json: options.Json = False) -> None:
    """Check the store, installed versions, telemetry, disk and clock; exit with 1 on FAIL."""
    root = store or default_store()
    findings = [*check_software(), check_cores(measure_core_share()), *check_store(root)]
    rows = [
        (item.state, item.check, item.text + (f" -> {item.remedy}" if item.remedy else ""))
        for item in findings
    ]
    data = [finding._asdict() for finding in findings]
    print_result(data, table(("", "", ""), rows), as_json=as_json)
    if any(finding.state == "FAIL" for finding in findings):
        raise typer.Exit(1)


def check_software(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Check Python, installed versions, telemetry and the checkout."""
    required = importlib.metadata.metadata(DISTRIBUTION)["Requires-Python"]
    python = platform.python_version()
    is_supported = SpecifierSet(required).contains(python)
    remedy = "" if is_supported else f"install a Python {required}"
    yield Finding("python", "ok" if is_supported else "FAIL", python, remedy)
    yield from check_requirements()
    for name, values in _TELEMETRY.items():
        is_off = environ.get(name, "").lower() in values
        remedy = "" if is_off else f"export {name}={values[0]}"
        text = f"{name}={environ.get(name, '')}"
        yield Finding("telemetry", "ok" if is_off else "warn", text, remedy)
    code = checkout()
    remedy = "commit the changes before a run that counts" if code.is_dirty else ""
    text = code.commit[:12] or "installed package"
    text += ", with uncommitted changes" if code.is_dirty else ""
    yield Finding("checkout", "warn" if code.is_dirty else "ok", text, remedy)


def check_requirements(distribution: str = DISTRIBUTION) -> Iterator[Finding]:
    """Compare installed versions with the requirements of a distribution.

    Packages of extras can be absent.
    """
    requirements = map(Requirement, importlib.metadata.requires(distribution) or [])
    for requirement in {(item.name, str(item.specifier)): item for item in requirements}.values():
        name = requirement.name
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if requirement.marker is not None:
                continue
            version = "not installed"
        is_met = version != "not installed" and requirement.specifier.contains(version)
        if is_met and name in BREAKS:
            yield Finding(f"requirement {name}", "ok", f"{version} fits {requirement.specifier}")
        elif not is_met:
            breaks = f": {BREAKS[name]}" if name in BREAKS else ""
            text = f"expected {requirement.specifier}, got {version}{breaks}"
            state: State = "warn" if name not in BREAKS and requirement.marker else "FAIL"
            remedy = f'pip install "{name}{requirement.specifier}"'
            yield Finding(f"requirement {name}", state, text, remedy)


def check_cores(share: CoreShare) -> Finding:
    """Report the share of CPU cores available under the current load."""
    if not share.is_busy:
        return Finding("cores", "ok", share.text)
    remedy = "wait for other programs, or set `num_threads` of pretrain and finetune"
    return Finding("cores", "warn", share.text, remedy)


def check_store(root: str) -> Iterator[Finding]:
    """Check the guarantees of a store, its disk and its clock."""
    try:
        store = ArtifactStore(root, create=False)
        yield Finding("store", "ok", store.root)
    except ArtifactNotFoundError as error:
        yield Finding("store", "warn", str(error))
        return
    except StoreError as error:
        is_denied = isinstance(error.__cause__, PermissionError)
        remedy = "give this user read and write permission" if is_denied else "set --store"
        yield Finding("store", "FAIL", str(error), remedy)
        return
    try:
        store.backend.check_capabilities()
    except (StoreError, OSError) as error:
        remedy = "use a writable disk with hard links, or a server with conditional writes"
        yield Finding("writes", "FAIL", str(error), remedy)
    else:
        yield Finding("writes", "ok", "put-if-absent and compare-and-swap work")
        yield _check_clock(store)
    if store.backend.is_local:
        yield from _check_disk(Path(store.root))
    conflicts = store.conflicts()
    for path, conflict in conflicts.items():
        files = ", ".join(conflict.differing_files[:3])
        text = f"{conflict.stage}: one key, two contents ({files}): {path}"
        remedy = "find the input of the stage that is not part of its key"
        yield Finding("conflicts", "FAIL", text, remedy)
    if not conflicts:
        yield Finding("conflicts", "ok", "no key has two contents")


def _check_clock(store: ArtifactStore) -> Finding:
    """Compare the store's clock with that of this machine; heartbeats require equal clocks."""
    path = f"probe/{uuid.uuid4().hex}"
    before = time.time()
    store.backend.put_if_absent(path, b"clock")
    after = time.time()
    try:
        modified = store.backend.stat("probe")[path].modified
    finally:
        store.backend.delete(path)
    # Some stores truncate times to full seconds.
    difference = max(before - 1 - modified, modified - after, 0.0)
    if difference <= _WARN_SECONDS:
        return Finding("clock", "ok", "store clock matches the local clock")
    text = f"store clock differs from the local clock by {difference:.1f} s"
    remedy = "synchronize both with NTP"
    return Finding("clock", "FAIL" if difference > _MAX_SECONDS else "warn", text, remedy)


def _check_disk(root: Path) -> Iterator[Finding]:
    stat = os.statvfs(root)
    free = stat.f_bavail * stat.f_frsize
    state: State = "ok" if free > _WARN_BYTES else "warn" if free > _MIN_BYTES else "FAIL"
    remedy = "" if state == "ok" else "free some space: `bertloom gc` lists removable artifacts"
    yield Finding("disk", state, f"{format_bytes(free)} free", remedy)
    if stat.f_files:  # some file systems have no fixed number
        has_inodes = stat.f_favail > _MIN_INODES
        remedy = "" if has_inodes else "delete files: their number counts, not their size"
        text = f"{stat.f_favail:,} more files possible"
        yield Finding("inodes", "ok" if has_inodes else "FAIL", text, remedy)
