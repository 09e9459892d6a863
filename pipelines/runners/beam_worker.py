"""`bertloom-beam-worker`: becomes one Python worker of an environment of type PROCESS.

An engine calls it on the machine that the worker is to run on, with the arguments of the boot
program of Beam's containers. It asks the provision service for the rest and becomes Beam's worker,
with the Python and the bertloom that it belongs to. No container is needed. With
`--worker_pool`, as that program has it, it starts workers for an engine beside it
(`pipelines.runners.worker_pool`).

Engines start workers for each job, and a worker's imports take seconds: on Linux workers are forks
of a process that has them done (`pipelines.runners.fork_server`).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pipelines.runners.fork_server import fork_worker
from schemas.errors import BertloomError

_ANSWER_SECONDS = 60.0


def parser() -> argparse.ArgumentParser:
    """The arguments, named as those of Beam's own boot program."""
    found = argparse.ArgumentParser(prog="bertloom-beam-worker", description=__doc__)
    found.add_argument("--id", required=True, help="the worker's id")
    found.add_argument("--provision_endpoint", required=True, help="HOST:PORT")
    for name in ("logging", "control", "artifact", "status"):
        found.add_argument(f"--{name}_endpoint", default="", help="in place of the provision's")
    found.add_argument("--semi_persist_dir", default="", help="a folder on this machine's disk")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Become the worker; does not return before it ends."""
    own = sys.argv[1:] if arguments is None else arguments
    if "--worker_pool" in own:
        _serve_pool(own)
        return
    parser().parse_known_args(own)  # refused here rather than in a fork
    worker = fork_worker(own, load)
    if isinstance(worker, int):
        sys.exit(worker)
    given, _ = parser().parse_known_args(worker.arguments)
    os.environ.update(worker_environment(given))
    from pipelines.runners.worker import main as work  # start-up: Beam, once it is known what for

    work()


def _serve_pool(arguments: Sequence[str]) -> None:
    """What `bertloom worker-pool` does, where only the package of workers is installed."""
    found = argparse.ArgumentParser(prog="bertloom-beam-worker --worker_pool")
    found.add_argument("--worker_pool", action="store_true", help="start workers when asked for")
    found.add_argument("--port", type=int, default=50_000, help="to listen at")
    found.add_argument("--allow-root", action="store_true", help="serve as root, too")
    given = found.parse_args(arguments)
    from pipelines.runners.worker_pool import serve  # start-up: Beam's messages and grpc, 500 ms

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    try:
        serve(given.port, allow_root=given.allow_root, say=say)
    except BertloomError as error:
        sys.exit(f"error: {error}")


def load() -> None:
    """All that a worker imports, but for its job's own few modules."""
    from pipelines.runners import worker  # start-up: Beam, once for all workers

    worker.load()
    import schemas.corpus_configs  # noqa: F401  # start-up: 200 ms, once for all workers
    import schemas.manifest  # noqa: F401  # start-up: 100 ms, once for all workers


def worker_environment(given: argparse.Namespace) -> dict[str, str]:
    """The environment variables that Beam's worker reads, from the provision service's answer."""
    import grpc  # start-up: 100 ms, not for --help
    from apache_beam.portability.api import (
        beam_provision_api_pb2,
        beam_provision_api_pb2_grpc,
        endpoints_pb2,
    )
    from google.protobuf import json_format, text_format

    with grpc.insecure_channel(given.provision_endpoint) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        try:
            info = service.GetProvisionInfo(
                beam_provision_api_pb2.GetProvisionInfoRequest(),
                metadata=[("worker_id", given.id)],
                timeout=_ANSWER_SECONDS,
                wait_for_ready=True,
            ).info
        except grpc.RpcError as error:
            sys.exit(f"{given.provision_endpoint}: no provision service answers: {error.details()}")

    def service_text(name: str) -> str:
        if url := getattr(given, f"{name}_endpoint"):
            told = endpoints_pb2.ApiServiceDescriptor(url=url)
        else:
            told = getattr(info, f"{name}_endpoint")
        return str(text_format.MessageToString(told))

    variables = {
        "WORKER_ID": given.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "LOGGING_API_SERVICE_DESCRIPTOR": service_text("logging"),
        "CONTROL_API_SERVICE_DESCRIPTOR": service_text("control"),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    if status := service_text("status"):
        variables["STATUS_API_SERVICE_DESCRIPTOR"] = status
    if given.semi_persist_dir:
        variables["SEMI_PERSISTENT_DIRECTORY"] = given.semi_persist_dir
    return variables


if __name__ == "__main__":
    main()
