"""A web site on this machine that behaves as the site of the dumps does, faults included."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import defaultdict
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

from benchmarks.local_server import LocalServer


class Seen(NamedTuple):
    """A request that the site was asked."""

    path: str
    range: str | None
    if_range: str | None
    agent: str


class Fault(NamedTuple):
    """What goes wrong with one request; each is used once, in order."""

    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    cut_after: int | None = None
    """Bytes of the body after which the connection ends, though more were announced."""
    ignores_range: bool = False
    extra: bytes = b""
    """Sent after the body, of which no length is announced."""
    encoding: str = ""


class FakeSite(LocalServer):
    """Serves files by path, and does wrong with them what it is asked to."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.seen: list[Seen] = []
        self.has_tags = True
        self._lock = threading.Lock()
        super().__init__(_Handler, site=self)

    def asked(self, path: str) -> list[str | None]:
        """The ranges that were asked of a path, in order."""
        return [request.range for request in self.seen if request.path == path]

    def next_fault(self, path: str) -> Fault:
        with self._lock:
            waiting = self.faults[path]
            return waiting.pop(0) if waiting else Fault()

    def add_dump(
        self,
        wiki: str,
        date: str,
        files: dict[str, bytes],
        *,
        status: str = "done",
        job: str = "articlesmultistreamdump",
    ) -> None:
        """Put a dump there, as the site lays it out; once more for another job of it."""
        where = f"/{wiki}/{date}/dumpstatus.json"
        known = json.loads(self.files.get(where, b'{"version": "0.8", "jobs": {}}'))
        listed = {}
        for name, data in files.items():
            self.files[f"/{wiki}/{date}/{name}"] = data
            listed[name] = {
                "size": len(data),
                "url": f"/{wiki}/{date}/{name}",
                "md5": hashlib.md5(data).hexdigest(),
                "sha1": hashlib.sha1(data).hexdigest(),
            }
        known["jobs"][job] = {"status": status, "updated": "2026-01-03 04:05:06", "files": listed}
        self.files[where] = json.dumps(known).encode()
        dates = sorted({path.split("/")[2] for path in self.files if path.startswith(f"/{wiki}/2")})
        links = "".join(
            f'<a href="{name}/">{name}/</a>  01-Jan-2026 00:00    -\n' for name in dates
        )
        self.files[f"/{wiki}/"] = (
            f'<html><head><title>Index of /{wiki}/</title></head><body><pre><a href="../">../</a>\n'
            f'{links}<a href="latest/">latest/</a></pre></body></html>'
        ).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: FakeSite

    def do_GET(self) -> None:
        site, path, asked = self.site, self.path.partition("?")[0], self.headers.get("Range")
        site.seen.append(
            Seen(path, asked, self.headers.get("If-Range"), self.headers.get("User-Agent", ""))
        )
        fault = site.next_fault(path)
        if fault.status:
            self._send(fault.status, b"", dict(fault.headers))
            return
        data = site.files.get(path)
        if data is None:
            self._send(404, b"nothing here", {})
            return
        tag = f'"{hashlib.md5(data).hexdigest()}"'
        headers = (
            {"ETag": tag, "Last-Modified": formatdate(0, usegmt=True)} if site.has_tags else {}
        )
        if fault.encoding:
            headers["Content-Encoding"] = fault.encoding
        start = int(asked[len("bytes=") : -1]) if asked else 0
        is_same = self.headers.get("If-Range") in (None, tag)
        if start and is_same and not fault.ignores_range:
            if start >= len(data):
                self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self._send(206, data[start:], headers, fault)
        else:
            self._send(200, data, headers, fault)

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
        self.wfile.write(body[: fault.cut_after] + fault.extra)
        if fault.cut_after is not None or fault.extra:
            self.wfile.flush()
            self.close_connection = True
