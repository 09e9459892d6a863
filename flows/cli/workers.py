"""`bertloom beam-worker` and `worker-pool`: what runs beside an engine."""

from __future__ import annotations

from typing import Annotated

import typer


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
    from pipelines.runners.beam_worker import main  # start-up: 50 ms, and Beam when it works

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
    host: Annotated[str, typer.Option(help="0.0.0.0 lets other machines start workers.")] = (
        "localhost"
    ),
) -> None:
    """Start workers for an engine beside it, which asks for them (environment: external)."""
    from pipelines.runners.worker_pool import serve  # start-up: Beam's messages and grpc, 500 ms

    serve(port, host=host, say=typer.echo)
