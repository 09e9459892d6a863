"""An HTTP server of this process, for fakes of the services that bertloom talks to; free ports."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

_PORTS = range(10_000, 30_000)
"""Below the ports that systems give to connections: none takes one before its server listens."""


def free_ports(count: int) -> list[int]:
    """Return different ports at which nothing listens."""
    with contextlib.ExitStack() as bound:
        ports: list[int] = []
        while len(ports) < count:
            probe = bound.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", random.SystemRandom().choice(_PORTS)))
                ports.append(int(probe.getsockname()[1]))
    return ports


class LocalServer:
    """Server on a free port of this machine. Use it as a context manager.

    Args:
        handler: Class whose instances answer the requests of a connection.
        tls: Certificate and key with which the server speaks https.
        shared: Attributes of every handler.
    """

    def __init__(
        self,
        handler: type[BaseHTTPRequestHandler],
        *,
        tls: ssl.SSLContext | None = None,
        **shared: Any,
    ) -> None:
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Quiet, handler), shared))
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        serve = self._server.serve_forever
        threading.Thread(target=serve, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Quiet(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Suppress the request log."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no news here."""
