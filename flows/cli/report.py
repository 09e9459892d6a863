"""The command about a run's page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from flows.cli.console import print_json, say
from flows.cli.options import StoreOption, open_store

if TYPE_CHECKING:
    from flows.store.artifacts import ArtifactStore
    from flows.store.runs import RunRecord


def report(
    run: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it at run time
        typer.Argument(
            metavar="[RUN|RECIPE]",
            help="A run's id or the beginning of it, or a recipe, whose last run is taken. "
            "Without it the last run of all.",
        ),
    ] = None,
    store: StoreOption = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write the page to this file as well."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a run's report, one page of HTML, anew, and say where it is."""
    from flows.report.page import write_report

    opened = open_store(store)
    record, is_newest = find_run(opened, run or "")
    url = write_report(opened, record, is_newest=is_newest)
    if out is not None:
        _copy(opened, f"runs/{record.run_id}/report.html", out)
    if as_json:
        found = {
            "run_id": record.run_id,
            "recipe": record.recipe.get("name"),
            "state": record.state,
            "report": url,
            "out": str(out.absolute()) if out is not None else None,
        }
        print_json(found)
        return
    say(f"report of run {record.run_id}, {record.state}: {out if out is not None else url}")


def find_run(store: ArtifactStore, name: str) -> tuple[RunRecord, bool]:
    """The run that a name means, and whether it is its recipe's last.

    Args:
        store: where runs have left their records.
        name: a run's id or the beginning of one, a recipe's name, or "" for the last run.

    Raises:
        ArtifactNotFoundError: there is none.
        ConfigError: several runs begin like this.
        ArtifactCorruptError: its record cannot be read.
    """
    from flows.store.runs import read_run, run_ids
    from schemas.errors import ArtifactNotFoundError, ConfigError

    ids = run_ids(store)
    if not ids:
        raise ArtifactNotFoundError(f"{store.root}: no run has left a record; `bertloom run` does")
    found = [ids[-1]] if not name else [run_id for run_id in ids if run_id.startswith(name)]
    if name in ids:
        found = [name]
    if len(found) > 1:
        shown = ", ".join(found[-3:])
        raise ConfigError(f"{len(found)} runs begin with {name!r}, such as {shown}: say more of it")
    if not found:
        return _last_of(store, name, ids), True
    record = read_run(store, found[0])
    recipe = record.recipe.get("name")
    return record, _is_newest(store, str(recipe), ids[ids.index(record.run_id) + 1 :])


def _last_of(store: ArtifactStore, recipe: str, ids: list[str]) -> RunRecord:
    from flows.store.runs import read_run
    from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError

    unread = 0
    for run_id in reversed(ids):
        try:
            record = read_run(store, run_id)
        except ArtifactCorruptError:
            unread += 1  # told below, if none is found
            continue
        if record.recipe.get("name") == recipe:
            return record
    damaged = f", {unread} of which cannot be read" if unread else ""
    raise ArtifactNotFoundError(
        f"{store.root}: no run and no recipe {recipe!r} among {len(ids)} runs{damaged}; "
        "`bertloom runs` lists them"
    )


def _is_newest(store: ArtifactStore, recipe: str, later: list[str]) -> bool:
    from flows.store.runs import read_run
    from schemas.errors import ArtifactCorruptError

    for run_id in reversed(later):
        try:
            if read_run(store, run_id).recipe.get("name") == recipe:
                return False
        except ArtifactCorruptError:
            continue  # a run that cannot be read has no page to be kept
    return True


def _copy(store: ArtifactStore, path: str, out: Path) -> None:
    """Write a page of the store to a file, whole or not at all."""
    from flows.store.backend import open_backend

    target = out.absolute()
    open_backend(str(target.parent)).replace(target.name, store.backend.read(path))


COMMANDS: tuple[Any, ...] = (report,)
"""In the order of `--help`."""
