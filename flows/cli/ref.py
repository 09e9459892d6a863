"""`bertloom ref`: names of artifacts, which garbage collection keeps."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import echo
from flows.cli.ls import format_time
from flows.cli.tables import print_result, table
from flows.lineage.resolve import open_store, resolve
from flows.run.stages import get_stage
from flows.store.activity import ActiveRun
from schemas.errors import ConfigError, UsageError

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
