"""Jobs and addresses of clusters."""

from __future__ import annotations

import socket
from typing import NamedTuple

from schemas.errors import RunnerError

_CONNECT_SECONDS = 5.0


class ClusterJob(NamedTuple):
    """An unfinished job of an engine."""

    id: str
    name: str
    url: str = ""
    """URL of its page; "" if it has none."""


class ClusterUnreachableError(RunnerError):
    """A cluster does not answer, or not as one."""


def connection_error(endpoint: str) -> str:
    """Return why nothing answers at HOST:PORT; "" if something listens."""
    host, _, port = endpoint.split("://", 1)[-1].split("/", 1)[0].rpartition(":")
    if not port.isdigit():
        return f"expected HOST:PORT, got {endpoint!r}"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        return str(error)
    return ""
