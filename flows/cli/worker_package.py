"""The command `worker-package`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.cli.console import echo
from pipelines.runners.worker_package import CLIENTS, write_worker_package


def worker_package(
    folder: Annotated[Path, typer.Argument(help="Folder to write to.")] = Path(),
    clients: Annotated[
        list[Literal["s3", "gcs"]] | None,
        typer.Option("--with", help="Client of a store that workers install too (repeatable)."),
    ] = None,
) -> None:
    """Write the wheel that remote workers install: the corpus stages and their dependencies.

    It pins the library versions of this Python, which are part of cache keys. `--runner dataflow`
    writes it automatically if no image and no package is configured.
    """
    packages = [CLIENTS[name] for name in dict.fromkeys(clients or ())]
    path = write_worker_package(folder, file_systems=packages)
    echo(f"wrote {path}")
