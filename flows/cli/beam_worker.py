"""The command `beam-worker`."""

from __future__ import annotations

from typing import Annotated

import typer


def beam_worker(
    identity: Annotated[str, typer.Option("--id", help="Id of the worker.")],
    provision_endpoint: Annotated[str, typer.Option("--provision_endpoint", help="HOST:PORT.")],
    logging_endpoint: Annotated[str, typer.Option("--logging_endpoint")] = "",
    control_endpoint: Annotated[str, typer.Option("--control_endpoint")] = "",
    artifact_endpoint: Annotated[str, typer.Option("--artifact_endpoint")] = "",
    status_endpoint: Annotated[str, typer.Option("--status_endpoint")] = "",
    semi_persist_dir: Annotated[str, typer.Option("--semi_persist_dir")] = "",
) -> None:
    """Run as a Beam SDK worker (started by the engine); see also bertloom-beam-worker."""
    from pipelines.runners.beam_worker import main  # loads Beam

    flags = {
        "id": identity,
        "provision_endpoint": provision_endpoint,
        "logging_endpoint": logging_endpoint,
        "control_endpoint": control_endpoint,
        "artifact_endpoint": artifact_endpoint,
        "status_endpoint": status_endpoint,
        "semi_persist_dir": semi_persist_dir,
    }
    main([f"--{name}={value}" for name, value in flags.items()])
