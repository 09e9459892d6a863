"""`bertloom-beam-worker`: a Python worker of a Beam environment of type PROCESS or EXTERNAL.

An engine starts this program on the machine of the worker, with the arguments of the boot program
of Beam's containers. It asks the provision service for the job's options and endpoints and becomes
Beam's worker, with the Python and the bertloom that it belongs to. With `--worker_pool` it starts
workers for an engine on the same machine (`pipelines.runners.worker_pool`).
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from pipelines.runners.job_context import suppress_worker_tracebacks
from schemas.errors import BertloomError

_PROVISION_SECONDS = 60.0
_ALWAYS_WARN = (
    "apache_beam.runners.worker.sdk_worker_main",
    "apache_beam.options.pipeline_options",
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments, which have the names of Beam's boot program."""
    options = argparse.ArgumentParser(prog="bertloom-beam-worker", description=__doc__)
    options.add_argument("--id", required=True, help="Id of the worker.")
    options.add_argument("--provision_endpoint", required=True, help="HOST:PORT.")
    for name in ("logging", "control", "artifact", "status"):
        options.add_argument(f"--{name}_endpoint", default="", help="Default: the provision's.")
    options.add_argument("--semi_persist_dir", default="", help="Folder on this machine's disk.")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Become the worker, or serve a pool of workers; return when it ends."""
    own = sys.argv[1:] if arguments is None else arguments
    if "--worker_pool" in own:
        _serve_pool(own)
        return
    options, _ = parser().parse_known_args(own)
    os.environ.update(worker_environment(options))
    # A handler on the root keeps warnings of libraries from setting up logging to standard error;
    # records reach the runner by the handler that Beam adds.
    logging.getLogger().addHandler(logging.NullHandler())
    for name in _ALWAYS_WARN:
        logging.getLogger(name).setLevel(logging.ERROR)
    from apache_beam.runners.worker import sdk_worker_main  # after logging is set up

    with suppress_worker_tracebacks():
        sdk_worker_main.main(sys.argv)


def _serve_pool(arguments: Sequence[str]) -> None:
    """Serve a pool, as `bertloom worker-pool` does where the whole package is installed."""
    options = argparse.ArgumentParser(prog="bertloom-beam-worker --worker_pool")
    options.add_argument("--worker_pool", action="store_true", help="Start workers on request.")
    options.add_argument("--port", type=int, default=50_000, help="Port. Default: 50000.")
    options.add_argument("--allow-root", action="store_true", help="Serve even as root.")
    values = options.parse_args(arguments)
    from pipelines.runners.worker_pool import serve  # lazy: loads Beam and grpc

    def print_line(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    try:
        serve(values.port, allow_root=values.allow_root, say=print_line)
    except BertloomError as error:
        sys.exit(f"error: {error}")


def worker_environment(options: argparse.Namespace) -> dict[str, str]:
    """Return the environment variables of Beam's worker, from the provision service's response."""
    import grpc  # lazy: not for --help
    from apache_beam.portability.api import (
        beam_provision_api_pb2,
        beam_provision_api_pb2_grpc,
        endpoints_pb2,
    )
    from google.protobuf import json_format, text_format

    with grpc.insecure_channel(options.provision_endpoint) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        try:
            info = service.GetProvisionInfo(
                beam_provision_api_pb2.GetProvisionInfoRequest(),
                metadata=[("worker_id", options.id)],
                timeout=_PROVISION_SECONDS,
                wait_for_ready=True,
            ).info
        except grpc.RpcError as error:
            sys.exit(f"{options.provision_endpoint}: provision service failed: {error.details()}")

    def descriptor(name: str) -> str:
        url = getattr(options, f"{name}_endpoint")
        endpoint = (
            endpoints_pb2.ApiServiceDescriptor(url=url)
            if url
            else getattr(info, f"{name}_endpoint")
        )
        return str(text_format.MessageToString(endpoint))

    variables = {
        "WORKER_ID": options.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "LOGGING_API_SERVICE_DESCRIPTOR": descriptor("logging"),
        "CONTROL_API_SERVICE_DESCRIPTOR": descriptor("control"),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    if status := descriptor("status"):
        variables["STATUS_API_SERVICE_DESCRIPTOR"] = status
    if options.semi_persist_dir:
        variables["SEMI_PERSISTENT_DIRECTORY"] = options.semi_persist_dir
    return variables


if __name__ == "__main__":
    main()
