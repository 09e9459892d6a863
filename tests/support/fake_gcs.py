"""Server with the part of GCS's JSON API that gcsfs uses.

It has one bucket, `bucket`. Byte ranges, generations and conditions, listings by prefix and
delimiter, and uploads in one piece or in resumable chunks are as Google documents them. A request,
parameter or field that it does not know is answered with 400 and recorded in `unknown`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import fsspec
import pytest

from benchmarks.local_server import LocalServer

BUCKET = "bucket"
_IF_MATCH = "ifGenerationMatch"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_CHUNK = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")

Query = Mapping[str, str]


def gcs_environment(endpoint: str) -> dict[str, str]:
    """Environment variables of a process that uses the server."""
    # gcsfs's newer class asks Google itself, by gRPC, of what kind each bucket is.
    return {"STORAGE_EMULATOR_HOST": endpoint, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}


def use_gcs(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process use a server from now on."""
    for name, value in gcs_environment(endpoint).items():
        monkeypatch.setenv(name, value)
    fsspec.get_filesystem_class("gs").clear_instance_cache()


class Stored(NamedTuple):
    """An object as it was written once."""

    data: bytes
    generation: int
    written: str
    """Return a time in GCS's format."""

    kind: str
    """Its content type."""


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Upload:
    """One upload in chunks."""

    def __init__(self, name: str, condition: str | None, kind: str) -> None:
        self.name, self.condition, self.kind = name, condition, kind
        self.data = bytearray()
        self.resource: dict[str, Any] | None = None
        """Metadata of the object when the upload is complete."""


class FakeGcs(LocalServer):
    """Use as a context manager."""

    def __init__(self) -> None:
        self.token = ""
        """Token that clients have to present; "" for none."""

        self.stored: dict[str, Stored] = {}
        self.uploads: dict[str, Upload] = {}
        self.unknown: list[str] = []
        """Unsupported requests."""

        self.generation = 1000
        self.ignored = ""
        """Conditions to ignore: `0` (object must not exist) or `others`."""

        self.before_upload: list[Callable[[], None]] = []
        """Called once each before the next upload."""

        self._lock = threading.RLock()
        super().__init__(_Handler, gcs=self)

    @property
    def objects(self) -> dict[str, bytes]:
        """Content of each object by name."""
        with self._lock:
            return {name: stored.data for name, stored in self.stored.items()}

    def put(self, name: str, data: bytes | None, kind: str = "application/octet-stream") -> None:
        """Write or delete an object unconditionally."""
        with self._lock:
            self.stored.pop(name, None)
            if data is not None:
                self.generation += 1
                moment = datetime.now(UTC).isoformat(timespec="milliseconds")
                written = moment.replace("+00:00", "Z")
                self.stored[name] = Stored(data, self.generation, written, kind)

    def find(self, name: str, query: Query) -> Stored:
        """An object of the generation and under the condition that a request names."""
        with self._lock:
            stored = self.stored.get(name)
            if stored is None or query.get("generation") not in (None, str(stored.generation)):
                raise RefusedError(404, f"No such object: {BUCKET}/{name}")
            self._check(name, query.get(_IF_MATCH))
            return stored

    def _check(self, name: str, condition: str | None) -> None:
        stored = self.stored.get(name)
        is_ignored = self.ignored == ("0" if condition == "0" else "others")
        if condition not in (None, str(stored.generation if stored else 0)) and not is_ignored:
            raise RefusedError(
                412, "At least one of the pre-conditions you specified did not hold."
            )

    def write(self, name: str, data: bytes, *, condition: str | None, kind: str) -> dict[str, Any]:
        """Write an object under a condition; its resource."""
        while self.before_upload:
            self.before_upload.pop()()
        with self._lock:
            self._check(name, condition)
            self.put(name, data, kind)
            return self.resource(name)

    def delete(self, name: str, query: Query) -> None:
        """Delete an object under the conditions of a request."""
        with self._lock:
            self.find(name, query)
            self.put(name, None)

    def resource(self, name: str) -> dict[str, Any]:
        """Return the metadata of an object."""
        stored = self.stored[name]
        return {
            "kind": "storage#object", "id": f"{BUCKET}/{name}/{stored.generation}",
            "name": name, "bucket": BUCKET, "size": str(len(stored.data)),
            "generation": str(stored.generation), "metageneration": "1",
            "contentType": stored.kind, "timeCreated": stored.written, "updated": stored.written,
            "md5Hash": base64.b64encode(hashlib.md5(stored.data).digest()).decode(),
            "etag": f"G{stored.generation}=", "storageClass": "STANDARD",
        }  # fmt: skip

    def listing(self, query: Query) -> dict[str, Any]:
        """Return the objects with a prefix, and the folders at a delimiter, by their bytes."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        items: list[dict[str, Any]] = []
        folders: list[str] = []
        with self._lock:
            for name in sorted(self.stored, key=str.encode):
                if not name.startswith(prefix):
                    continue
                head, divider, _ = name[len(prefix) :].partition(delimiter or "\0")
                if not divider:
                    items.append(self.resource(name))
                elif (folder := f"{prefix}{head}{divider}") not in folders:
                    folders.append(folder)
        return {"kind": "storage#objects", "items": items, "prefixes": folders}

    def append(self, number: str, data: bytes, *, begin: int, total: int | None) -> Upload:
        """Append a chunk to an upload, which is complete at `total` bytes."""
        with self._lock:
            upload = self.uploads.get(number)
            if upload is None:
                raise RefusedError(410, "The upload is gone; start over.")
            if upload.resource is not None:
                return upload
            there = len(upload.data)
            if begin > there:
                raise RefusedError(400, f"chunk starts at byte {begin}, expected {there}")
            upload.data += data[there - begin :]
            if len(upload.data) == total:
                upload.resource = self.write(
                    upload.name, bytes(upload.data), condition=upload.condition, kind=upload.kind
                )
                upload.data.clear()
            return upload


class _Handler(BaseHTTPRequestHandler):
    gcs: FakeGcs
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer goes out as one

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size)
        try:
            self._authorize()
            self._route(url.path, query, body)
        except RefusedError as error:
            if len(body) < size:
                self.close_connection = True  # the client has disconnected
                return
            reason = {"code": error.status, "message": error.message}
            self._answer(error.status, {"error": reason})

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = _serve  # noqa: N815 - asked for

    def _authorize(self) -> None:
        authorization = self.headers.get("Authorization")
        if self.gcs.token and authorization is None:
            raise RefusedError(401, "Anonymous caller does not have storage.objects.get access")
        if self.gcs.token and authorization != f"Bearer {self.gcs.token}":
            raise RefusedError(401, "Invalid Credentials")

    def _route(self, path: str, query: Query, body: bytes) -> None:
        if "Transfer-Encoding" in self.headers:
            raise self._not_known("Transfer-Encoding")
        for method, pattern, answer, known in _ROUTES:
            match = re.fullmatch(pattern, path)
            if method == self.command and match is not None:
                bucket, *names = map(unquote, match.groups() or [BUCKET])
                if not set(query) <= known:
                    raise self._not_known(f"parameters {sorted(set(query) - known)}")
                if bucket != BUCKET:
                    raise RefusedError(404, "The specified bucket does not exist.")
                answer(self, names, query, body)
                return
        raise self._not_known("the request")

    def _not_known(self, what: str) -> RefusedError:
        text = f"{self.command} {self.path}: {what} not known to this stand-in of GCS"
        self.gcs.unknown.append(text)
        return RefusedError(400, text)

    def _answer(self, status: int, body: bytes | dict[str, Any] = b"", **headers: str) -> None:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        self.send_response(status)
        if isinstance(body, dict):
            headers["Content_Type"] = "application/json; charset=UTF-8"
        for key, value in {"Content_Length": str(len(data)), **headers}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    # What is asked for

    def _bucket(self, names: list[str], query: Query, body: bytes) -> None:
        self._answer(200, {"kind": "storage#bucket", "id": BUCKET, "name": BUCKET})

    def _list(self, names: list[str], query: Query, body: bytes) -> None:
        self._answer(200, self.gcs.listing(query))

    def _get(self, names: list[str], query: Query, body: bytes) -> None:
        stored = self.gcs.find(names[0], query)
        if query.get("alt", "json") == "json":
            self._answer(200, self.gcs.resource(names[0]))
            return
        size, asked = len(stored.data), self.headers.get("Range")
        headers = {"X_Goog_Generation": str(stored.generation), "Content_Type": stored.kind}
        if asked is None:
            self._answer(200, stored.data, **headers)
            return
        limits = _RANGE.fullmatch(asked)
        if limits is None:
            raise self._not_known(f"Range: {asked}")
        begin, end = int(limits[1]), min(int(limits[2] or size), size - 1)
        if begin > end:
            raise RefusedError(
                416, f"The requested range cannot be satisfied: not satisfiable ({asked})"
            )
        headers["Content_Range"] = f"bytes {begin}-{end}/{size}"
        self._answer(206, stored.data[begin : end + 1], **headers)

    def _delete(self, names: list[str], query: Query, body: bytes) -> None:
        self.gcs.delete(names[0], query)
        self._answer(204)

    # Uploads

    def _upload(self, names: list[str], query: Query, body: bytes) -> None:
        size = int(self.headers["Content-Length"])
        if query["uploadType"] == "resumable" and "upload_id" in query:
            self._take_chunk(query["upload_id"], body)
            return
        if len(body) < size:
            raise RefusedError(400, "cut off")
        name, kind = query.get("name", ""), self.headers.get("Content-Type", "")
        if query["uploadType"] == "resumable":
            self._begin_upload(query, self._fields(body))
            return
        if query["uploadType"] == "multipart":
            name, kind, body = self._parts(body)
        elif query["uploadType"] != "media":
            raise self._not_known("uploadType")
        condition = query.get(_IF_MATCH)
        self._answer(200, self.gcs.write(name, body, condition=condition, kind=kind))

    def _fields(self, body: bytes) -> dict[str, str]:
        fields: dict[str, str] = json.loads(body)
        if set(fields) != {"name"}:
            raise self._not_known(f"the fields {sorted(fields)}")
        return fields

    def _parts(self, body: bytes) -> tuple[str, str, bytes]:
        """The name, content type and data of an upload in two parts."""
        said = self.headers["Content-Type"]
        mark = b"--" + said.partition('boundary="')[2].rstrip('"').encode()
        pieces = body.split(b"\n" + mark)
        if not said.startswith("multipart/related") or len(pieces) != 3 or pieces[2] != b"--":
            raise self._not_known("a body of such parts is")
        fields = self._fields(pieces[0].partition(b"\n\n")[2])
        head, _, data = pieces[1].partition(b"\n\n")
        return fields["name"], head.decode().partition("Content-Type: ")[2], data

    def _begin_upload(self, query: Query, fields: dict[str, str]) -> None:
        number, name = uuid.uuid4().hex, fields["name"]
        kind = self.headers.get("X-Upload-Content-Type", "application/octet-stream")
        self.gcs.uploads[number] = Upload(name, query.get(_IF_MATCH), kind)
        more = f"&{_IF_MATCH}={query[_IF_MATCH]}" if _IF_MATCH in query else ""
        target = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=resumable&upload_id={number}{more}"
        self._answer(200, Location=f"http://{self.headers['Host']}{target}")

    def _take_chunk(self, number: str, body: bytes) -> None:
        said = self.headers["Content-Range"]
        size = int(self.headers["Content-Length"])
        chunk = _CHUNK.fullmatch(said)
        if chunk is None or (chunk[1] and int(chunk[2]) - int(chunk[1]) + 1 != size):
            raise self._not_known(f"Content-Range: {said} of {size} bytes is")
        total = None if chunk[3] == "*" else int(chunk[3])
        there = len(self.gcs.uploads[number].data) if number in self.gcs.uploads else 0
        begin = int(chunk[1]) if chunk[1] else there
        upload = self.gcs.append(number, body, begin=begin, total=total)
        if len(body) < size:
            self.close_connection = True  # the rest got lost with the connection
        elif upload.resource is not None:
            self._answer(200, upload.resource)
        elif upload.data:
            self._answer(308, Range=f"bytes=0-{len(upload.data) - 1}")
        else:
            self._answer(308)

    def _give_up(self, names: list[str], query: Query, body: bytes) -> None:
        if self.gcs.uploads.pop(query["upload_id"], None) is None:
            raise RefusedError(404, "No such upload")
        self._answer(499)


_OBJECTS = r"/storage/v1/b/([^/]+)/o"
_LISTING = {"prefix", "delimiter", "maxResults", "pageToken"}
_SENT = {"uploadType", "name", "upload_id", _IF_MATCH}
_GIVEN = {"generation", _IF_MATCH}
_Answer = Callable[[_Handler, list[str], Query, bytes], None]
_ROUTES: list[tuple[str, str, _Answer, set[str]]] = [
    ("GET", r"/storage/v1/b/([^/]+)", _Handler._bucket, set()),
    ("GET", _OBJECTS, _Handler._list, _LISTING),
    ("GET", f"(?:/download)?{_OBJECTS}/([^/]+)", _Handler._get, {"alt", *_GIVEN}),
    ("DELETE", f"{_OBJECTS}/([^/]+)", _Handler._delete, _GIVEN),
    ("POST", f"/upload{_OBJECTS}", _Handler._upload, _SENT),
    ("PUT", f"/upload{_OBJECTS}", _Handler._upload, _SENT),
    ("DELETE", f"/upload{_OBJECTS}", _Handler._give_up, _SENT),
]
"""Method, path, what answers, and the parameters that it knows."""
