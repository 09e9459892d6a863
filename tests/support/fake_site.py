"""A local web site that offers dumps as Wikimedia does, with faults on demand."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

from benchmarks.local_server import LocalServer

JOB = "articlesmultistreamdump"


class Request(NamedTuple):
    """A request that the site received."""

    path: str
    range: str | None
    agent: str


class Fault(NamedTuple):
    """A fault of the response to one request."""

    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    cut_after: int | None = None
    """Bytes after which the connection is closed, although more were announced."""

    ignores_range: bool = False
    extra: bytes = b""
    """Bytes sent after the body, whose length is not announced."""

    wait: Callable[[], object] | None = None
    """Function to call before the response is sent: it returns when the test wants the response."""


class FakeSite(LocalServer):
    """Site that serves `files` by path; each of `faults` affects one request, in order."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.requests: list[Request] = []
        self.requested: dict[str, threading.Event] = defaultdict(threading.Event)
        """Events of paths, set when the path is requested."""

        self._lock = threading.Lock()
        super().__init__(_Handler, tls=tls, site=self)

    def ranges(self, path: str) -> list[str | None]:
        """Return the requested ranges of a path, in order."""
        return [request.range for request in self.requests if request.path == path]

    def add_request(self, request: Request) -> Fault:
        """Record a request and return its fault: the n-th request of a path has the n-th fault."""
        faults = self.faults[request.path]
        with self._lock:
            self.requests.append(request)
            fault = faults.pop(0) if faults else Fault()
        self.requested[request.path].set()
        return fault

    def add_dump(
        self,
        wiki: str,
        date: str,
        files: dict[str, bytes],
        *,
        status: str = "done",
        job: str = JOB,
    ) -> None:
        """Add a job of a dump with its files."""
        path = f"/{wiki}/{date}/dumpstatus.json"
        jobs = json.loads(self.files.get(path, b'{"jobs": {}}'))["jobs"]
        jobs[job] = {"status": status, "files": {}}
        for name, data in files.items():
            self.files[f"/{wiki}/{date}/{name}"] = data
            jobs[job]["files"][name] = {"size": len(data), "sha1": hashlib.sha1(data).hexdigest()}
        self.files[path] = json.dumps({"version": "0.8", "jobs": jobs}).encode()
        dates = sorted({name.split("/")[2] for name in self.files if name.startswith(f"/{wiki}/2")})
        links = "".join(f'<a href="{name}/">{name}/</a>  01-Jan-2026\n' for name in dates)
        listing = f'<pre><a href="../">../</a>\n{links}<a href="latest/">latest/</a></pre>'
        self.files[f"/{wiki}/"] = listing.encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: FakeSite

    def do_GET(self) -> None:
        site, path, requested = self.site, self.path.partition("?")[0], self.headers.get("Range")
        fault = site.add_request(Request(path, requested, self.headers.get("User-Agent", "")))
        if fault.wait is not None:
            fault.wait()
        data = site.files.get(path)
        if fault.status or data is None:
            self._send(fault.status or 404, b"", dict(fault.headers))
            return
        first, _, last = (requested or "bytes=0-").removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(data)), len(data) - 1)
        if (not start and not last) or fault.ignores_range:
            self._send(200, data, {}, fault)
        elif start >= len(data):
            self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        else:
            content_range = f"bytes {start}-{end}/{len(data)}"
            self._send(206, data[start : end + 1], {"Content-Range": content_range}, fault)

    do_HEAD = do_GET  # noqa: N815 - the server asks for it

    def _send(
        self, status: int, body: bytes, headers: dict[str, str], fault: Fault | None = None
    ) -> None:
        fault = fault or Fault()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if fault.extra:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body[: fault.cut_after] + fault.extra)
        if fault.cut_after is not None or fault.extra:
            self.wfile.flush()
            self.close_connection = True
