"""The command `worker-pool`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.console import echo


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
