"""The command `worker-package`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.console import echo
from pipelines.runners.worker_package import CLIENTS, write_worker_package
from schemas.errors import ConfigError


def worker_package(
    folder: Annotated[Path, typer.Argument(help="Folder to write to.")] = Path(),
    clients: Annotated[
        list[str] | None,
        typer.Option("--with", help="Client of a store that workers install too: s3, gcs."),
    ] = None,
) -> None:
    """Write the wheel that remote workers install: the corpus stages and their dependencies.

    It pins the library versions of this Python, which are part of cache keys. `--runner dataflow`
    writes it automatically if no image and no package is configured.
    """
    names = list(dict.fromkeys(clients or ()))
    if unknown := set(names) - CLIENTS.keys():
        raise ConfigError(f"--with {min(unknown)}: expected {' or '.join(sorted(CLIENTS))}")
    path = write_worker_package(folder, file_systems=[CLIENTS[name] for name in names])
    echo(f"wrote {path}")
