"""`bertloom beam-worker`, `worker-pool` and `worker-package`: workers of engines, their code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.console import echo
from pipelines.runners.worker_package import CLIENTS, write_worker_package
from schemas.errors import ConfigError


def beam_worker(
    identity: Annotated[str, typer.Option("--id", help="The worker's id.")],
    provision_endpoint: Annotated[str, typer.Option("--provision_endpoint", help="HOST:PORT.")],
    logging_endpoint: Annotated[str, typer.Option("--logging_endpoint")] = "",
    control_endpoint: Annotated[str, typer.Option("--control_endpoint")] = "",
    artifact_endpoint: Annotated[str, typer.Option("--artifact_endpoint")] = "",
    status_endpoint: Annotated[str, typer.Option("--status_endpoint")] = "",
    semi_persist_dir: Annotated[str, typer.Option("--semi_persist_dir")] = "",
) -> None:
    """Become a Python worker of an engine, which calls this; see also bertloom-beam-worker."""
    from pipelines.runners.beam_worker import main  # loads Beam

    given = {
        "id": identity,
        "provision_endpoint": provision_endpoint,
        "logging_endpoint": logging_endpoint,
        "control_endpoint": control_endpoint,
        "artifact_endpoint": artifact_endpoint,
        "status_endpoint": status_endpoint,
        "semi_persist_dir": semi_persist_dir,
    }
    main([f"--{name}={value}" for name, value in given.items()])


def worker_pool(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 for any.")] = 50_000,
    allow_root: Annotated[
        bool, typer.Option("--allow-root", help="Serve as root, too, such as in a container.")
    ] = False,
) -> None:
    """Start workers for an engine on this machine, which asks for them (environment: external).

    The pool has no authentication: every user of this machine can run code as its user.
    """
    from pipelines.runners.worker_pool import serve  # loads Beam

    serve(port, allow_root=allow_root, say=echo)


def worker_package(
    folder: Annotated[Path, typer.Argument(help="Where to write it.")] = Path(),
    clients: Annotated[
        list[str] | None,
        typer.Option("--with", help="A store's client that workers install too: s3, gcs."),
    ] = None,
) -> None:
    """Write the wheel that workers elsewhere install: the corpus stages and their dependencies.

    It asks for exactly the versions of libraries that this Python has, which are part of cache
    keys. `--runner dataflow` makes it by itself where there is no image and no package.
    """
    if unknown := sorted(set(clients or ()) - CLIENTS.keys()):
        raise ConfigError(f"--with {unknown[0]}: expected {' or '.join(sorted(CLIENTS))}")
    path = write_worker_package(
        folder, file_systems=[CLIENTS[name] for name in dict.fromkeys(clients or ())]
    )
    echo(f"wrote {path}")
