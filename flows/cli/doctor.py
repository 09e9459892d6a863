"""The command `doctor`."""

from __future__ import annotations

import importlib.metadata
import shutil
import time
import uuid
from collections.abc import Iterator
from typing import Literal, NamedTuple

import typer
from packaging.requirements import Requirement

from flows.cli import options
from flows.cli.tables import print_result, table
from flows.formatting import format_bytes
from flows.store.artifacts import ArtifactStore
from flows.store.default_store import default_store
from schemas.errors import ArtifactNotFoundError, StoreError

_MIN_FREE_BYTES = 10_000_000_000
_MAX_CLOCK_SECONDS = 2.0


class Finding(NamedTuple):
    """Result of one check."""

    check: str
    state: Literal["ok", "warn", "FAIL"]
    text: str


def doctor(store: options.Store = None, as_json: options.Json = False) -> None:
    """Check installed versions, and writes, clock and free space of a store; exit 1 on FAIL."""
    findings = [*check_versions(), *check_store(store or default_store())]
    rows = [(finding.state, finding.check, finding.text) for finding in findings]
    data = [finding._asdict() for finding in findings]
    print_result(data, table(("", "", ""), rows), as_json=as_json)
    if any(finding.state == "FAIL" for finding in findings):
        raise typer.Exit(1)


def check_versions(distribution: str = "bertloom") -> Iterator[Finding]:
    """Compare installed versions with the requirements of a distribution.

    Packages of extras can be absent.
    """
    num_met = 0
    for text in importlib.metadata.requires(distribution) or []:
        requirement = Requirement(text)
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            if requirement.marker is not None:
                continue
            version = "none"
        if version != "none" and requirement.specifier.contains(version):
            num_met += 1
        else:
            needed = f"{requirement.name}{requirement.specifier}"
            text = f'expected {needed}, got {version}. Run: pip install "{needed}"'
            yield Finding("version", "FAIL", text)
    yield Finding("version", "ok", f"{num_met} packages have the required versions")


def check_store(root: str) -> Iterator[Finding]:
    """Check that a store supports what runs rely on."""
    try:
        store = ArtifactStore(root, create=False)
        store.backend.check_capabilities()
    except ArtifactNotFoundError as error:
        yield Finding("store", "warn", str(error))
        return
    except (StoreError, OSError) as error:
        yield Finding("store", "FAIL", str(error))
        return
    yield Finding("store", "ok", f"{store.root}: conditional writes work")
    yield _check_clock(store)
    if store.backend.is_local:
        free = shutil.disk_usage(store.root).free
        state: Literal["ok", "warn"] = "ok" if free > _MIN_FREE_BYTES else "warn"
        yield Finding("disk", state, f"{format_bytes(free)} free")


def _check_clock(store: ArtifactStore) -> Finding:
    """Compare the clocks of the store and of this machine; heartbeats require equal ones."""
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
    if difference <= _MAX_CLOCK_SECONDS:
        return Finding("clock", "ok", "store clock matches the local clock")
    text = f"store clock differs by {difference:.1f} s. Synchronize both clocks with NTP"
    return Finding("clock", "FAIL", text)
