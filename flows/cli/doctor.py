"""`bertloom doctor`: whether a store, the software and this machine are as bertloom needs them.

A finding that is not as it should be says what to do.

The versions that are needed are those of bertloom's own metadata, so that there is one list of
them; only what breaks with others is said here.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import typer
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from flows.cli.console import print_result
from flows.cli.options import JsonOption, StoreOption
from flows.formatting import align_columns
from flows.recipes.loader import default_store
from flows.run.dependencies import install_hint
from flows.run.provenance import checkout
from flows.store.artifacts import ArtifactStore
from model.processes.core_share import CoreShare, measured_share
from schemas.errors import ArtifactNotFoundError, BertloomError, StoreError

DISTRIBUTION = "bertloom"

BREAKS = {
    "prefect": "the flows are written for this minor of Prefect; others change its server and API",
    "fastapi": "Prefect's server answers 422 or does not start, so that no flow and no worker runs",
    "sqlalchemy": "Prefect's schedules never fire and its events are lost, without an error",
    "apache-beam": "runners are proven on this minor only; bytes of shards may differ",
    "pyarrow": "it is part of cache keys: shards are built anew",
    "tokenizers": "its Unicode tables decide ids",
    "torch": "its floating point decides checkpoints to the bit",
}
"""What goes wrong with another version than the one that is asked for."""

_TELEMETRY = {
    "DO_NOT_TRACK": (("1", "true"), "Prefect's client reports its use"),
    "PREFECT_SERVER_ANALYTICS_ENABLED": (("false", "0"), "Prefect's server reports its use"),
}
_LITTLE_DISK, _NO_DISK = 10_000_000_000, 1_000_000_000
_FEW_INODES = 10_000
_CLOCK_WARN, _CLOCK_FAIL = 2.0, 20.0

State = Literal["ok", "warn", "FAIL"]


class Finding(NamedTuple):
    """The result of one check."""

    check: str
    state: State
    text: str
    remedy: str = ""
    """What to do; "" where nothing is to be done."""


def examine(root: str) -> list[Finding]:
    """All checks, those of a store where there is one."""
    return [*software(), cores(measured_share()), *store_findings(root)]


def software(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Checks of Python, installed versions, telemetry and the checkout."""
    wanted = importlib.metadata.metadata(DISTRIBUTION)["Requires-Python"]
    python = platform.python_version()
    if SpecifierSet(wanted).contains(python):
        yield Finding("python", "ok", python)
    else:
        yield Finding("python", "FAIL", f"{python}, needed is {wanted}", "use such a Python")
    yield from pins()
    for name, (off, otherwise) in _TELEMETRY.items():
        value = environ.get(name, "")
        if value.lower() in off:
            yield Finding("telemetry", "ok", f"{name}={value}")
        else:
            text = f"{name} is {value or 'not set'}: {otherwise}, if it is not started by bertloom"
            yield Finding("telemetry", "warn", text, f"export {name}={off[0]}")
    code = checkout()
    if not code.commit:
        yield Finding("checkout", "ok", "the code runs from an installed package")
    elif code.is_dirty:
        text = f"{code.commit[:12]} with changes that are not committed; artifacts will say so"
        yield Finding("checkout", "warn", text, "commit them before a run that counts")
    else:
        yield Finding("checkout", "ok", f"{code.commit[:12]}, clean")


def pins(distribution: str = DISTRIBUTION) -> Iterator[Finding]:
    """Checks of installed versions against the requirements of a distribution.

    What an extra asks for may be missing; what is there has to have a version that is asked for.
    """
    try:
        texts = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        yield Finding("pins", "warn", f"{distribution} is not installed", "pip install it")
        return
    good, seen = 0, set[tuple[str, str]]()
    for need in map(Requirement, texts):
        name = canonicalize_name(need.name)
        if (name, str(need.specifier)) in seen or name == distribution:
            continue
        seen.add((name, str(need.specifier)))
        found = _installed(need.name)
        if found and need.specifier.contains(found, prereleases=True):
            good += 1
            if name in BREAKS:
                yield Finding(f"pin {name}", "ok", f"{found} fits {need.specifier}")
        elif found or need.marker is None:
            breaks = BREAKS.get(name, "nothing is known of this version")
            text = f"{found or 'not installed'}, needed is {need.specifier}: {breaks}"
            # Of development tools another version breaks no artifact.
            is_tool = name not in BREAKS and "extra" in str(need.marker or "")
            remedy = f'pip install "{name}{need.specifier}"'
            yield Finding(f"pin {name}", "warn" if is_tool else "FAIL", text, remedy)
        elif name in BREAKS:
            how = install_hint(name) or f"pip install '{name}{need.specifier}'"
            yield Finding(f"pin {name}", "warn", "not installed", f"where it is needed: {how}")
    yield Finding("pins", "ok", f"{good} requirements of {distribution} are met")


def _installed(name: str) -> str:
    """The version of a distribution; "" where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def cores(found: CoreShare) -> Finding:
    """What share of the cores is to be had while everything else runs that runs."""
    if not found.is_busy:
        return Finding("cores", "ok", found.text)
    remedy = (
        "let the other work end first; where a quota is the reason, set `threads` of pretrain and "
        "finetune to the cores that it leaves"
    )
    return Finding("cores", "warn", found.text, remedy)


# The store


def store_findings(root: str) -> Iterator[Finding]:
    """Checks of a store: what it promises, what is on it."""
    try:
        store = ArtifactStore(root, create=False)
    except ArtifactNotFoundError as error:
        yield Finding("store", "warn", str(error))
        return
    except StoreError as error:
        is_denied = isinstance(error.__cause__, PermissionError)
        remedy = "give this user read and write permission" if is_denied else "set --store"
        yield Finding("store", "FAIL", str(error), remedy)
        return
    yield Finding("store", "ok", f"{store.root}, layout and digest as expected")
    yield from _promises(store)
    if store.backend.is_local:
        yield from _disk(Path(store.root))
    yield from _contents(store)


def _promises(store: ArtifactStore) -> Iterator[Finding]:
    """Conditional writes and deletes, the clock."""
    try:
        store.backend.check_capabilities()
    except (StoreError, OSError) as error:
        remedy = "use a writable folder on a disk with hard links, or such a server"
        yield Finding("writes", "FAIL", str(error), remedy)
        return
    yield Finding("writes", "ok", "put-if-absent and compare-and-swap hold")
    yield _deletes(store)
    yield _clock(store)


def _deletes(store: ArtifactStore) -> Finding:
    """Leases are let go, and damaged pointers taken back, only if they are what was read."""
    try:
        is_ignored = store.backend.ignores_conditional_delete()
    except (StoreError, OSError) as error:
        remedy = "leases stay for a minute, and what is damaged cannot be withdrawn: use another"
        return Finding("deletes", "FAIL", f"compare-and-delete fails: {error}", remedy)
    if not is_ignored:
        return Finding("deletes", "ok", "compare-and-delete holds")
    text = (
        "the server deletes a file though it is not what the request says: of two runs one may "
        "free the lease of the other, so that both build the same, and a pointer that was just "
        "built anew may be withdrawn with the damaged one. Nothing wrong is published; work is "
        "done twice"
    )
    return Finding("deletes", "warn", text, "use a server that honours If-Match on DELETE")


def _clock(store: ArtifactStore) -> Finding:
    path = f"probe/{uuid.uuid4().hex}"
    before = time.time()
    store.backend.put_if_absent(path, b"clock")
    after = time.time()
    try:
        modified = store.backend.stat("probe")[path].modified
    finally:
        store.backend.delete(path)
    # Some say full seconds only.
    apart = max(before - 1 - modified, modified - after, 0.0)
    if apart <= _CLOCK_WARN:
        return Finding("clock", "ok", "the store's agrees with that of this machine")
    text = f"the store's differs from that of {socket.gethostname()} by {apart:.1f} s"
    remedy = "set both by NTP: leases and the grace period of gc are counted by them"
    return Finding("clock", "FAIL" if apart > _CLOCK_FAIL else "warn", text, remedy)


def _disk(root: Path) -> Iterator[Finding]:
    yield _links(root)
    stat = os.statvfs(root)
    free = stat.f_bavail * stat.f_frsize
    state: State = "ok" if free > _LITTLE_DISK else "warn" if free > _NO_DISK else "FAIL"
    remedy = "" if state == "ok" else "free some space: `bertloom gc` lists what can be deleted"
    yield Finding("disk", state, f"{free / 1e9:,.1f} GB free", remedy)
    if stat.f_files:  # some file systems have no fixed number
        state = "ok" if stat.f_favail > _FEW_INODES else "FAIL"
        remedy = "" if state == "ok" else "delete files: the number of files counts, not their size"
        yield Finding("inodes", state, f"{stat.f_favail:,} more files possible", remedy)


def _links(root: Path) -> Finding:
    """A finished piece is shared by linking its files into another artifact."""
    source, target = (root / "probe" / uuid.uuid4().hex for _ in range(2))
    try:
        source.parent.mkdir(exist_ok=True)
        source.write_bytes(b"link")
        target.hardlink_to(source)
        shared = target.stat().st_nlink > 1
    except OSError as error:
        return Finding("links", "FAIL", str(error), "use a disk with hard links")
    finally:
        source.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
    if shared:
        return Finding("links", "ok", "artifacts can share files")
    return Finding("links", "warn", "link counts are not kept", "gc will say too much comes free")


def _contents(store: ArtifactStore) -> Iterator[Finding]:
    try:
        conflicts = store.conflicts()
    except StoreError as error:
        yield Finding("conflicts", "FAIL", str(error), "delete the file")
        conflicts = {}
    for path, conflict in conflicts.items():
        files = ", ".join(conflict.differing_files[:3])
        text = f"{conflict.stage}: one key, two contents ({files}): {path}"
        remedy = (
            "find what the stage depends on that is not in its key; `bertloom gc` deletes the "
            "record with the artifact that lost"
        )
        yield Finding("conflict", "FAIL", text, remedy)
    if not conflicts:
        yield Finding("conflicts", "ok", "no key was given two contents")
    names = store.refs()
    bad = [found for name in names if (found := _bad_ref(store, name)) is not None]
    yield from bad or [Finding("refs", "ok", f"{len(names)} refs lead to artifacts")]


def _bad_ref(store: ArtifactStore, name: str) -> Finding | None:
    try:
        pointer = store.ref(name)
        for path in (pointer.manifest, *pointer.parts.values()) if pointer else ():
            store.check_files(store.read_manifest(path))
    except BertloomError as error:
        return Finding("ref", "FAIL", f"{name}: {error}", "run its recipe again")
    return None


def doctor(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check the store's promises, installed versions, telemetry, disk and clock; exit 1 on FAIL."""
    found = examine(store or default_store())
    rows = [
        (item.state, item.check, item.text + (f" -> {item.remedy}" if item.remedy else ""))
        for item in found
    ]
    print_result([finding._asdict() for finding in found], align_columns(rows), as_json=as_json)
    if any(finding.state == "FAIL" for finding in found):
        raise typer.Exit(1)
