"""A local server with the part of the Hugging Face Hub's API that `huggingface_hub` uses here.

It has repositories with commits. A request that it does not know is answered with 400 and recorded
in `unknown`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

import fsspec.config
import pytest

from benchmarks.local_server import LocalServer

TOKEN = "hf_stand" + "InFor0nlyTheTests"
"""The only token that reads private repositories and writes."""


@dataclass
class Repository:
    """A repository: the files of each commit, and the commits of its branches."""

    is_private: bool = False
    is_gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Mapping[str, bytes]) -> str:
        """Commit files to main, and return the commit."""
        sha = hashlib.sha1(f"{len(self.commits)} {sorted(files)}".encode()).hexdigest()
        self.commits[sha] = dict(files)
        self.branches["main"] = sha
        return sha

    @property
    def files(self) -> dict[str, bytes]:
        """Files of the newest commit."""
        return self.commits[self.branches["main"]]


class FakeHub(LocalServer):
    """Server with `repositories` by their paths: `ORG/NAME`, `datasets/ORG/NAME`."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []
        self.unknown: list[str] = []
        super().__init__(_Handler, hub=self)

    def add(self, path: str, files: Mapping[str, bytes], **facts: bool) -> str:
        """Add a repository, and return its commit."""
        self.repositories[path] = Repository(**facts)
        return self.repositories[path].commit(files)


@contextlib.contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """Serve a hub that `hf://` leads to, without a token."""
    with FakeHub() as hub, pytest.MonkeyPatch.context() as patch:
        patch.setitem(fsspec.config.conf, "hf", {"endpoint": hub.url})
        patch.delenv("HF_TOKEN", raising=False)
        patch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", "/nowhere")
        yield hub


_API = re.compile(
    r"/api/(model|dataset)s/([^/]+/[^/]+?)(?:/(revision|tree|preupload|commit)/(.+))?"
)
_FILE = re.compile(r"/((?:datasets/)?[^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.hub.requests.append(path)
        if match := _FILE.fullmatch(path):
            self._send_file(match[1], match[2], match[3])
        elif match := _API.fullmatch(path):
            self._answer(match)
        else:
            self._refuse(path)

    do_HEAD = do_GET  # noqa: N815 - the server asks for it

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        self.hub.requests.append(path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if path == "/api/validate-yaml":
            self._send({"errors": [], "warnings": []})
        elif not self._has_token():
            self._send({"error": "Unauthorized"}, status=403)
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif match := _API.fullmatch(path):
            self._write(match, body)
        else:
            self._refuse(path)

    def _has_token(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _repository(self, path: str) -> Repository | None:
        repository = self.hub.repositories.get(path)
        hidden = repository is not None and repository.is_private and not self._has_token()
        if repository is None or hidden:
            self._send({}, status=401, error="RepoNotFound")
            return None
        if repository.is_gated and not self._has_token():
            self._send({}, status=403, error="GatedRepo")
            return None
        return repository

    def _files(self, repository: Repository, revision: str) -> dict[str, bytes] | None:
        commit = repository.branches.get(revision, revision)
        if commit not in repository.commits:
            self._send({}, status=404, error="RevisionNotFound")
            return None
        return repository.commits[commit]

    def _answer(self, match: re.Match[str]) -> None:
        kind, name, what, rest = match.groups()
        repository = self._repository(name if kind == "model" else f"datasets/{name}")
        if repository is None:
            return
        revision, _, folder = (rest or "main").partition("/")
        if (files := self._files(repository, revision)) is None:
            return
        if what == "tree":
            self._send_tree(files, folder)
        else:
            sha = repository.branches.get(revision, revision)
            self._send({"id": name, "sha": sha, "private": repository.is_private, "tags": []})

    def _send_tree(self, files: Mapping[str, bytes], folder: str) -> None:
        start = f"{folder}/" if folder else ""
        names = [name for name in files if name.startswith(start)]
        if not names and folder:
            self._send({}, status=404, error="EntryNotFound")
            return
        entries: dict[str, Any] = {}
        for name in names:
            first, slash, _ = name.removeprefix(start).partition("/")
            if slash and "recursive=true" not in self.path.lower():
                path = f"{start}{first}"
                entries[path] = {"type": "directory", "path": path, "oid": "0"}
            else:
                oid = hashlib.sha1(files[name]).hexdigest()
                size = len(files[name])
                entries[name] = {"type": "file", "path": name, "oid": oid, "size": size}
        self._send(list(entries.values()))

    def _send_file(self, path: str, revision: str, name: str) -> None:
        repository = self._repository(path)
        files = self._files(repository, revision) if repository is not None else None
        if files is None:
            return
        if name not in files:
            self._send({}, status=404, error="EntryNotFound")
            return
        data, status = files[name], 200
        if requested := self.headers.get("Range"):
            first, _, last = requested.removeprefix("bytes=").partition("-")
            data, status = data[int(first) : int(last or len(data)) + 1], 206
        self._send_bytes(data, status=status)

    def _create(self, request: dict[str, Any]) -> None:
        name = f"{request['organization']}/{request['name']}"
        path = f"datasets/{name}" if request.get("type") == "dataset" else name
        if path in self.hub.repositories:
            self._send({"url": f"{self.hub.url}/{path}"}, status=409)
            return
        is_private = request.get("private") or request.get("visibility") == "private"
        self.hub.add(path, {".gitattributes": b""}, is_private=bool(is_private))
        self._send({"url": f"{self.hub.url}/{path}"})

    def _write(self, match: re.Match[str], body: bytes) -> None:
        kind, name, what, _ = match.groups()
        path = name if kind == "model" else f"datasets/{name}"
        repository = self._repository(path)
        if repository is None:
            return
        if what == "preupload":
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            self._send({"files": files})
        elif what == "commit":
            sha = repository.commit(_changed(repository.files, body))
            url = f"{self.hub.url}/{path}/commit/{sha}"
            self._send({"commitUrl": url, "commitOid": sha})
        else:
            self._refuse(self.path)

    def _refuse(self, path: str) -> None:
        self.hub.unknown.append(f"{self.command} {path}")
        self._send({"error": "unknown request"}, status=400)

    def _send(self, value: Any, *, status: int = 200, error: str = "") -> None:
        self._send_bytes(json.dumps(value).encode(), status=status, error=error)

    def _send_bytes(self, data: bytes, *, status: int = 200, error: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if error:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _changed(files: Mapping[str, bytes], body: bytes) -> dict[str, bytes]:
    """Return files with the changes of a commit, which are JSON lines."""
    changed = dict(files)
    for line in body.splitlines():
        entry = json.loads(line)
        value = entry["value"]
        if entry["key"] == "file":
            changed[value["path"]] = base64.b64decode(value["content"])
        elif entry["key"] == "deletedFile":
            del changed[value["path"]]
    return changed
