"""A server that speaks as much of GCS's JSON API as the store uses, conditions included."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from benchmarks.local_server import LocalServer


class FakeGcs(LocalServer):
    """Serves any bucket, and keeps objects by name."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.generation = 1000
        self.ignored = ""
        """Which conditions are not looked at: `0` (for no object) or `others`."""

        self.before_upload: list[Callable[[], None]] = []
        """Done once each, just before the next upload is looked at."""

        self._lock = threading.RLock()
        super().__init__(_Handler, gcs=self)

    def put(self, name: str, data: bytes | None) -> None:
        """Write an object, or take it away, whatever is there."""
        with self._lock:
            self.objects.pop(name, None)
            if data is not None:
                self.generation += 1
                self.objects[name] = (data, self.generation)

    def change(self, name: str, data: bytes | None, condition: str | None) -> int:
        """The status of a request to write or delete."""
        with self._lock:
            found = self.objects.get(name)
            ignored = self.ignored == ("0" if condition == "0" else "others")
            generation = str(found[1] if found else 0)
            if condition is not None and not ignored and generation != condition:
                return 412
            if data is None and found is None:
                return 404
            self.put(name, data)
            return 200


class _Handler(BaseHTTPRequestHandler):
    gcs: FakeGcs
    protocol_version = "HTTP/1.1"

    def _parts(self) -> tuple[str, dict[str, str]]:
        found = urlsplit(self.path)
        name = unquote(found.path.partition("/o/")[2])
        return name, {key: values[0] for key, values in parse_qs(found.query).items()}

    def _answer(self, status: int, body: bytes = b"{}", **headers: str) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _resource(self, name: str) -> dict[str, Any]:
        data, generation = self.gcs.objects[name]
        updated = "2026-01-02T03:04:05.678Z"
        return {
            "name": name, "bucket": "bucket", "size": str(len(data)),
            "generation": str(generation), "updated": updated, "timeCreated": updated,
        }  # fmt: skip

    def do_GET(self) -> None:
        name, query = self._parts()
        if not name:
            prefix = query.get("prefix", "")
            found = [self._resource(key) for key in self.gcs.objects if key.startswith(prefix)]
            self._answer(200, json.dumps({"items": found}).encode())
        elif name not in self.gcs.objects:
            self._answer(404)
        elif "/download/" in self.path or query.get("alt") == "media":
            data, generation = self.gcs.objects[name]
            self._answer(200, data, X_Goog_Generation=str(generation))
        else:
            self._answer(200, json.dumps(self._resource(name)).encode())

    def do_POST(self) -> None:
        _, query = self._parts()
        data = self.rfile.read(int(self.headers["Content-Length"]))
        name = query.get("name", "")
        if query["uploadType"] == "multipart":
            _, head, body, _ = data.split(b"--==0==")
            name = json.loads(head.split(b"\n\n", 1)[1])["name"]
            data = body.split(b"\n\n", 1)[1].removesuffix(b"\n")
        while self.gcs.before_upload:
            self.gcs.before_upload.pop()()
        status = self.gcs.change(name, data, query.get("ifGenerationMatch"))
        body = json.dumps(self._resource(name)).encode() if status == 200 else b"{}"
        self._answer(status, body)

    def do_DELETE(self) -> None:
        name, query = self._parts()
        self._answer(self.gcs.change(name, None, query.get("ifGenerationMatch")))
