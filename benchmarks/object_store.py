"""An S3 server in its own process, and a proxy that counts and disturbs requests to any store.

The server is moto's. The proxy chooses by seed and counter which requests fail and how; the order
of requests depends on the clients.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import botocore.session

from benchmarks.local_server import LocalServer, free_ports

FAULTS = ("500", "503", "reset", "torn", "lost", "cut", "stall")
"""Answered with that status, or cut off, before the server heard of it; cut off when the server had
half of what was sent; done, with the answer lost; half of the answer; nothing for `STALL_SECONDS`,
and then cut off."""

READ_SECONDS, STALL_SECONDS = 1.0, 2.0
"""Timeout of clients of a disturbing proxy, and duration of a stall, in seconds."""

_LISTING = re.compile(r"[?&]list-type=|^/[^/]+/?(\?|$)|^/storage/v1/b/[^/]+/o\?")


class S3Server:
    """An empty S3; use as a context manager."""

    def __enter__(self) -> Self:
        [self.port] = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        script = Path(__file__).with_name("s3_server.py")
        command = [sys.executable, "-P", str(script), str(self.port)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(3000):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return self
            time.sleep(0.1)
        self._process.kill()
        raise TimeoutError("moto's server did not start within five minutes")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    def make_bucket(self, name: str) -> str:
        """The URL of a new bucket."""
        client = botocore.session.get_session().create_client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        client.create_bucket(Bucket=name)
        client.close()
        return f"s3://{name}"


def environment(endpoint: str, *, read_seconds: float | None = None) -> dict[str, str]:
    """Environment variables of a process that uses the server."""
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    if read_seconds is not None:
        variables["FSSPEC_S3"] = json.dumps({"config_kwargs": {"read_timeout": read_seconds}})
    return variables


class Proxy(LocalServer):
    """Passes requests on; use as a context manager.

    Args:
        upstream: URL of the server.
        one_in: how many requests there are of which one comes to harm; 0 for none.
        seed: decides which of them.
        faults: those of `FAULTS` that happen, each as often as any other.
    """

    def __init__(
        self,
        upstream: str,
        *,
        one_in: int = 0,
        seed: int = 0,
        faults: tuple[str, ...] = FAULTS,
    ) -> None:
        self.upstream = urlsplit(upstream).netloc
        self._faults = _drawn(one_in, faults, random.Random(seed))
        self.requests: list[tuple[str, str]] = []
        """Operation (`GET`, `PUT`, `LIST`, ...) and path of each request."""

        self.harmed: Counter[str] = Counter()
        self.next: list[str] = []
        """Harm that the next requests come to, one each, whatever the draws say; "" for none."""

        self._lock = threading.Lock()
        super().__init__(_Handler, proxy=self)

    def counts(self) -> Counter[str]:
        """Requests so far by operation."""
        with self._lock:
            return Counter(operation for operation, _ in self.requests)

    def note(self, method: str, target: str) -> str:
        """Count a request; the harm it comes to, "" for none."""
        path = urlsplit(target).path
        is_list = method == "GET" and _LISTING.search(target) is not None
        with self._lock:
            self.requests.append(("LIST" if is_list else method, path))
            drawn = next(self._faults)
            fault = self.next.pop(0) if self.next else drawn
            if fault:
                self.harmed[fault] += 1
        return fault


def _drawn(one_in: int, faults: tuple[str, ...], draws: random.Random) -> Iterator[str]:
    """The harm that each request comes to, "" for none: to one of `one_in` in a row."""
    while True:
        for fault in draws.sample(faults, len(faults)):
            harmed = draws.randrange(one_in) if one_in else -1
            for number in range(one_in or 1):
                yield fault if number == harmed else ""


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer goes out as one

    def setup(self) -> None:
        super().setup()
        self._up: http.client.HTTPConnection | None = None

    def finish(self) -> None:
        if self._up is not None:
            self._up.close()
        super().finish()

    def handle_expect_100(self) -> bool:
        done = super().handle_expect_100()
        self.wfile.flush()
        return done

    def _pass_on(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        fault = self.proxy.note(self.command, self.path)
        if fault == "torn":
            self._tear(self.rfile.read(size // 2))
            return
        data = self.rfile.read(size)
        if fault in ("500", "503"):
            self._answer(int(fault), [("Content-Type", "application/xml")], b"")
        elif fault == "reset":
            self._hang_up()
        else:
            if fault == "stall":
                time.sleep(STALL_SECONDS)
                self._hang_up()
                return
            status, headers, body = self._ask(data)
            if fault == "lost":
                self._hang_up()
                return
            self._answer(status, headers, body, cut=fault == "cut")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815 - the server asks for them

    def _tear(self, data: bytes) -> None:
        """Forward part of the request to the server, then close the connection."""
        if data:
            up = http.client.HTTPConnection(self.proxy.upstream, timeout=60)
            up.request(self.command, self.path, data, self._headers())
            up.close()
        self._hang_up()

    def _headers(self) -> dict[str, str]:
        return {key: value for key, value in self.headers.items() if key != "Expect"}

    def _ask(self, data: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        for attempt in range(2):
            if self._up is None:
                self._up = http.client.HTTPConnection(self.proxy.upstream, timeout=60)
            try:
                self._up.request(self.command, self.path, data, self._headers())
                answer = self._up.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            except (OSError, http.client.HTTPException):
                self._up.close()
                self._up = None
                if attempt:
                    raise
        raise AssertionError("unreachable")

    def _answer(
        self, status: int, headers: list[tuple[str, str]], body: bytes, *, cut: bool = False
    ) -> None:
        self.send_response_only(status)
        left_out = {"connection", "transfer-encoding", "content-length"}
        length = len(body)
        for key, value in headers:
            if key.lower() == "content-length" and self.command == "HEAD":
                length = int(value)
            if key.lower() not in left_out:
                self.send_header(key, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.wfile.flush()
        if cut:
            self._hang_up()

    def _hang_up(self) -> None:
        """End the connection with a reset, as a server that crashes does."""
        self.close_connection = True
        self.connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
        )
        self.connection.close()


@contextlib.contextmanager
def counted_s3() -> Iterator[tuple[S3Server, Proxy]]:
    """A server and a proxy before it that spoils nothing."""
    with S3Server() as server, Proxy(server.url) as proxy:
        yield server, proxy
