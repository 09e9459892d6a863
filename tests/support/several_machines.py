"""Machines of a test: process groups on this host, in network namespaces where that is allowed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
from support.recipe_runs import command_line

from benchmarks.local_server import free_ports


class Machine:
    """A machine: a command prefix and variables for its processes."""

    def __init__(self, prefix: list[str], variables: dict[str, str]) -> None:
        self._prefix, self._variables = prefix, variables

    def start(self, *arguments: str, log: Path, **variables: str) -> subprocess.Popen[bytes]:
        """Start `bertloom` with arguments; its output goes to the end of a file."""
        with log.open("ab") as output:
            return subprocess.Popen(
                [*self._prefix, *command_line(*arguments)],
                stdout=output,
                stderr=output,
                env={**os.environ, **self._variables, **variables},
            )


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a command with all processes below it, as if its machine lost power."""
    with contextlib.suppress(psutil.NoSuchProcess):
        # Stopped first, so that no process reacts to the end of another one.
        processes = [psutil.Process(process.pid)]
        processes += processes[0].children(recursive=True)
        for signal in ("suspend", "kill"):
            for one in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    getattr(one, signal)()
    process.wait()


@contextlib.contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine, str]]:
    """Yield two machines, and an endpoint on the first."""
    names = [f"bl{os.getpid()}-{rank}" for rank in range(2)]
    try:
        has_network = shutil.which("ip") is not None and _connect(*names)
        if has_network:
            first, second = (
                Machine(["ip", "netns", "exec", name], {"GLOO_SOCKET_IFNAME": "machine"})
                for name in names
            )
            yield first, second, "10.77.0.1:29500"
        else:
            [port] = free_ports(1)
            yield Machine([], {}), Machine([], {}), f"127.0.0.1:{port}"
    finally:
        for name in names if shutil.which("ip") else ():
            _ip("netns", "delete", name)


def _connect(first: str, second: str) -> bool:
    """Create two network namespaces with a cable between them; return whether it works."""
    peer = ["peer", "name", "machine", "netns", second]
    return all(
        _ip(*words)
        for words in (
            ["netns", "add", first],
            ["netns", "add", second],
            ["link", "add", "machine", "netns", first, "type", "veth", *peer],
            *(
                ["-n", name, *words]
                for rank, name in enumerate((first, second), start=1)
                for words in (
                    ["address", "add", f"10.77.0.{rank}/24", "dev", "machine"],
                    ["link", "set", "machine", "up"],
                    ["link", "set", "lo", "up"],
                )
            ),
        )
    )


def _ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0
