"""Commands that prepare Beam workers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.console import echo
from pipelines.runners.worker_package import CLIENTS, write_worker_package
from schemas.errors import ConfigError


def worker_pool(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port. 0: any free port.")] = 50_000,
    allow_root: Annotated[
        bool, typer.Option("--allow-root", help="Allow running as root.")
    ] = False,
) -> None:
    """Start Beam workers when an engine on this machine asks for them (environment: external).

    The pool has no authentication: every user of this machine can run code as its user.
    """
    from pipelines.runners.worker_pool import serve  # loads Beam

    serve(port, allow_root=allow_root, say=echo)


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
