"""Commands that keep a store in order."""

from __future__ import annotations

import importlib.metadata
import shutil
import time
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

import typer
from packaging.requirements import Requirement
from rich.table import Table

from flows.cli import options
from flows.cli.console import echo
from flows.cli.tables import print_result, table
from flows.formatting import format_bytes, format_count, format_time
from flows.lineage.resolve import open_store, resolve
from flows.report.artifact_pages import remove_links
from flows.run.stages import get_stage
from flows.store.activity import ActiveRun, CollectionLock
from flows.store.artifacts import ArtifactStore
from flows.store.default_store import default_store
from flows.store.garbage_collection import GarbageReport, collect_garbage, find_garbage
from flows.store.pointers import pointer_to
from flows.store.verification import check_records, quarantine
from flows.store.verification import verify as verify_artifacts
from schemas.errors import ArtifactNotFoundError, ConfigError, StoreError, UsageError

ref = typer.Typer(
    add_completion=False,
    help="Name artifacts. Garbage collection keeps an artifact with a name and everything upstream "
    "of it. Runs name theirs RECIPE/STEP.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

RefName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the ref.")]


@ref.command("set")
def set_ref(name: RefName, artifact: options.Artifact, store: options.Store = None) -> None:
    """Point a ref to an artifact; an existing ref moves. NAME contains no slash."""
    if "/" in name or _is_stage(name):
        raise UsageError(
            f"NAME: expected a name without / that is not a stage, got {name!r}. Names with / "
            "belong to runs and publications"
        )
    opened = open_store(store)
    with ActiveRun(opened, f"ref-{uuid.uuid4().hex[:8]}"):  # gc does not delete it meanwhile
        manifest = resolve(artifact, store=opened)
        opened.set_ref(name, manifest)
    echo(f"{name} points to {manifest.artifact_id} ({manifest.stage})")


def _is_stage(name: str) -> bool:
    try:
        get_stage(name)
    except ConfigError:
        return False
    return True


@ref.command("rm")
def remove_ref(name: RefName, store: options.Store = None) -> None:
    """Delete a ref. Its artifact stays until garbage collection."""
    open_store(store).remove_ref(name)
    echo(f"deleted ref {name}")


@ref.command("ls")
def list_refs(store: options.Store = None, as_json: options.Json = False) -> None:
    """List the refs, also those of runs and publications."""
    refs = list(open_store(store).ref_pointers().items())
    data = [{"ref": name, **pointer.model_dump()} for name, pointer in refs]
    rows = [(name, p.artifact_id, p.stage, format_time(p.committed)) for name, p in refs]
    print_result(data, table(("ref", "artifact", "stage", "set"), rows), as_json=as_json)


def gc(
    delete: Annotated[bool, typer.Option("--delete", help="Delete. Default: list only.")] = False,
    keep_runs: Annotated[
        int, typer.Option(min=0, help="Number of newest runs whose artifacts are retained.")
    ] = 10,
    grace_period: Annotated[
        float, typer.Option(min=0, metavar="HOURS", help="Retain everything newer than this.")
    ] = 24.0,
    delete_run_records: Annotated[
        bool, typer.Option("--delete-run-records", help="Delete the records of older runs as well.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="With --delete: wait until no run is active.")
    ] = False,
    store: options.Store = None,
    as_json: options.Json = False,
) -> None:
    """Delete artifacts that no ref or recent run uses, directly or as an input.

    --delete refuses while a run is active. A run that starts meanwhile waits.
    """
    opened = open_store(store)
    settings: dict[str, Any] = {
        "keep_runs": keep_runs,
        "grace_hours": grace_period,
        "delete_runs": delete_run_records,
    }
    if delete:
        lock = CollectionLock(opened, is_patient=wait, log=lambda text: echo(text, err=True))
        report = collect_garbage(opened, **settings, lock=lock)
        remove_links(opened, [item.path for item in report.garbage if item.kind == "page"])
    else:
        report = find_garbage(opened, **settings)
    data = {
        "deleted": delete,
        "freed_bytes": report.freed,
        "removable": [item._asdict() for item in report.garbage],
        "retained": [item._asdict() for item in report.retained],
        "notes": list(report.notes),
    }
    print_result(data, *_parts(report, delete=delete), as_json=as_json)


def _parts(report: GarbageReport, *, delete: bool) -> Iterator[str | Table]:
    retained = [(item.path, format_bytes(item.size), item.reason) for item in report.retained]
    yield table(("retained", "size", "reason"), retained, right=(1,))
    title = "deleted" if delete else "would be deleted"
    garbage = [(item.path, format_bytes(item.size), item.kind) for item in report.garbage]
    if garbage:
        yield ""
        yield table((title, "size", "kind"), garbage, right=(1,))
    yield from (
        f"{format_count(items, kind)}, {format_count(files, 'file')}, {format_bytes(freed)}"
        for kind, (items, files, freed) in report.by_kind().items()
    )
    yield from (f"note: {note}" for note in report.notes)
    size = format_bytes(report.freed)
    hint = f"{size} can be freed. To delete: bertloom gc --delete"
    yield f"{size} freed" if delete else hint


def verify(
    artifacts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Artifacts, named as for `show`. Default: the whole store.",
        ),
    ] = None,
    store: options.Store = None,
    sizes_only: Annotated[
        bool, typer.Option("--sizes-only", help="Compare file sizes only.")
    ] = False,
    no_quarantine: Annotated[
        bool, typer.Option("--no-quarantine", help="Report only; keep corrupt artifacts published.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Compare artifacts with what was written, and find missing records.

    Exits with 1 if a file is corrupt or missing. Records are not checked if you name artifacts.
    """
    opened = open_store(store)
    if artifacts:
        pointers = [pointer_to(resolve(name, store=opened)) for name in artifacts]
    else:
        pointers = opened.pointers()[::-1]  # in the order in which they were built
    results = verify_artifacts(opened, pointers, deep=not sizes_only)
    errors = [] if artifacts else check_records(opened)
    lines = [
        (
            r.artifact_id,
            "ok" if r.is_ok else "CORRUPT",
            r.stage,
            f"{r.files:,}",
            "; ".join(r.errors),
        )
        for r in results
    ]
    header = ("artifact", "state", "stage", "files", "errors")
    data = [result._asdict() for result in results]
    print_result(data, table(header, lines, right=(3,)), as_json=as_json)
    for line in errors:
        echo(line, err=as_json)
    corrupt = [result for result in results if not result.is_ok]
    if corrupt and not no_quarantine:
        quarantine(opened, corrupt)
        echo("corrupt artifacts are quarantined; the next run builds them again", err=True)
    if corrupt or errors:
        raise typer.Exit(1)


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
