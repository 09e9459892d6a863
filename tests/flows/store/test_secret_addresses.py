"""Runs use secrets in the addresses of sources, and write and print none of them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from support.cli_runner import RECIPE, Cli
from support.dump_builder import dump, page
from support.fake_site import FakeSite, Fault

from benchmarks.local_server import LocalServer
from flows.cli.app import main
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run, run_ids
from pipelines.io import raw_files
from pipelines.io.raw_files import digest_file, expand_paths
from pipelines.sources import wikipedia
from schemas.corpus_configs import WikipediaSource
from schemas.errors import ChecksumError, InputError, NetworkError, StoreError
from schemas.redaction import public_address

pytestmark = pytest.mark.network

FORMS = {
    "token": "http://HOST/PATH?access_token=SECRET",
    "s3": "http://HOST/PATH?X-Amz-Credential=SECRET%2F2026&X-Amz-Signature=SECRET",
    "gcs": "http://HOST/PATH?X-Goog-Signature=SECRET&X-Goog-Expires=60",
    "apikey": "http://HOST/PATH?apikey=SECRET",
    "azure": "http://HOST/PATH?sv=2024&sp=r&sig=SECRET",
    "upper-case": "http://HOST/PATH?TOKEN=SECRET",
    "pwd": "http://HOST/PATH?pwd=SECRET",
    "parameter": "http://HOST/PATH;password=SECRET",
    "fragment": "http://HOST/PATH#token=SECRET",
    "user": "http://user:SECRET@HOST/PATH",
    "other-name": "http://HOST/PATH?other-name=SECRET",
}


def secret_of(form: str) -> str:
    return f"Zq7x{form.replace('-', '')}5ecret"


class _Handler(BaseHTTPRequestHandler):
    """Serves sentences at `/FORM.txt` to requests with the form's secret, or a newer one."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self.wfile.write(self._answer())

    def _answer(self) -> bytes:
        form = re.sub(r"^/|\.txt.*", "", self.path)
        password = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic "))
        request = self.path + password.decode()
        # A client does not send the fragment.
        is_allowed = form == "fragment" or secret_of(form) in request or "rotated" in request
        if form not in FORMS or not is_allowed:
            self.send_error(403 if form in FORMS else 404)
            return b""
        data = "".join(f"Goose {n} of {form} flew. It came back.\n\n" for n in range(30)).encode()
        self.send_response(200)
        if match := re.match(r"bytes=(\d+)-(\d+)", self.headers["Range"] or ""):
            data = data[int(match[1]) : int(match[2]) + 1]
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", form)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        return data


class Runs(NamedTuple):
    """Folder and output of two runs that read one file by each form of address."""

    folder: Path
    host: str
    printed: str

    @property
    def store(self) -> str:
        return f"{self.folder}/store"

    def address(self, form: str, *, path: str = "", secret: str = "") -> str:
        address = FORMS[form].replace("HOST", self.host).replace("PATH", path or f"{form}.txt")
        return address.replace("SECRET", secret or secret_of(form))


def _recipe(folder: Path, addresses: list[str]) -> str:
    recipe = yaml.safe_load(RECIPE)
    recipe["build_documents"]["sources"][0]["paths"] = addresses
    path = folder / f"recipe-{len(list(folder.glob('*.yaml')))}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return str(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder, recipes = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("recipes")
    output = io.StringIO()
    with LocalServer(_Handler) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERTLOOM_CACHE", str(folder / "cache"))
        runs = Runs(folder, server.url.removeprefix("http://"), "")

        def command(*arguments: str) -> None:
            with (
                contextlib.redirect_stdout(output),
                contextlib.redirect_stderr(output),
                pytest.raises(SystemExit, match=r"^0$"),
            ):
                main([*arguments, f"--store={runs.store}"])

        for secret in ("", "rotated"):
            addresses = [runs.address(form, secret=secret) for form in FORMS]
            command("run", "--engine=local", _recipe(recipes, addresses))
        documents = ArtifactStore(runs.store).pointers("build-documents")[0].artifact_id
        command("show", documents)
        command("lineage", documents)
        command("report")
        yield runs._replace(printed=output.getvalue())


@pytest.mark.parametrize("form", FORMS)
def test_run_writes_and_prints_no_secret(runs: Runs, form: str) -> None:
    files = {path: path.read_bytes() for path in runs.folder.rglob("*") if path.is_file()}
    kinds = {path.name.rpartition(".")[2] for path in files}
    assert {"json", "arrow", "html"} <= kinds
    assert any(f"notes:{form}.txt".encode() in data for data in files.values())
    assert [path for path, data in files.items() if secret_of(form).encode() in data] == []
    assert secret_of(form) not in runs.printed


def test_new_signature_changes_no_cache_key(runs: Runs) -> None:
    store = ArtifactStore(runs.store)
    first, second = (read_run(store, run_id).steps for run_id in run_ids(store))
    assert not any(step.was_cached for step in first)
    assert all(step.was_cached for step in second)
    assert [step.manifest for step in first] == [step.manifest for step in second]


@pytest.mark.parametrize("form", ["s3", "parameter", "fragment", "user"])
def test_error_contains_no_secret(runs: Runs, tmp_path: Path, cli: Cli, form: str) -> None:
    recipe = _recipe(tmp_path, [runs.address(form, path="missing.txt")])
    store = f"--store={tmp_path}/store"
    results = [
        cli("plan", store, recipe),
        cli("--debug", "run", "--engine=local", store, recipe),
    ]
    assert [result.code for result in results] == [1, 1]
    assert secret_of(form) not in "".join(result.out + result.err for result in results)
    for path in tmp_path.rglob("*.*"):
        assert path.suffix == ".yaml" or secret_of(form).encode() not in path.read_bytes()


def test_reproduction_needs_the_secrets_again_and_writes_none(
    runs: Runs, tmp_path: Path, cli: Cli
) -> None:
    documents = ArtifactStore(runs.store).pointers("build-documents")[0].artifact_id
    command = ("reproduce", documents, f"--store={runs.store}", f"--into={tmp_path}/again")
    result = cli(*command)
    assert result.code == 1
    assert f"http://{runs.host}/token.txt" in result.err
    addresses = json.dumps([runs.address(form) for form in FORMS])
    result = cli(*command, "--set", f"build_documents.sources.notes.paths={addresses}")
    assert result.code == 0, result.err
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file())
    assert not any(secret_of(form).encode() in written for form in FORMS)


@pytest.mark.parametrize("scheme", ["s3", "gs", "simplecache::s3"])
@pytest.mark.parametrize("key", ["Zq7key:Zq7secret", "Zq7key:Zq7/sec/ret", "Zq7secret"])
def test_key_in_bucket_address_is_refused_and_not_printed(
    bucket: str, scheme: str, key: str
) -> None:
    address = f"{scheme}://{key}@{bucket.removeprefix('s3://')}/a.txt"
    for read in (lambda: expand_paths([address]), lambda: digest_file(address)):
        with pytest.raises(InputError) as input_error:
            read()
        assert "Zq7" not in f"{input_error.value} {input_error.value.__cause__}"
    with pytest.raises(StoreError) as store_error:
        ArtifactStore(address.removeprefix("simplecache::"))
    assert "Zq7" not in f"{store_error.value} {store_error.value.__cause__}"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://u:p@host:80/a;v=1/b.txt;w=2?x=1#y", "http://host:80/a/b.txt"),
        ("HTTPS://token@host/a@b.txt", "HTTPS://host/a@b.txt"),
        ("zip://a.txt::http://host/a.zip?x=http://other/b", "zip://a.txt::http://host/a.zip"),
        ("sftp://user:p@host/a?b#c;d", "sftp://host/a?b#c;d"),
        ("abfs://container@account.dfs.core.windows.net/a", None),
        ("s3://bucket/a@b:c?d#e;f", None),
        ("/data/a;b?c#d@e.txt", None),
    ],
)
def test_public_address_keeps_what_names_the_file(address: str, expected: str | None) -> None:
    assert public_address(address) == (expected or address)


DUMP = dump([page(1, "Ink.")])
MD5 = hashlib.md5(DUMP, usedforsecurity=False).hexdigest()


@pytest.mark.parametrize(
    ("status", "digest", "expected"),
    [
        (200, MD5, f"md5:{MD5}"),
        (200, "0" * 32, ChecksumError),
        (401, MD5, ""),  # the folder cannot be listed
        (403, MD5, ""),
        (404, MD5, ""),
        (429, MD5, NetworkError),
        (503, MD5, NetworkError),
    ],
)
def test_dump_at_signed_address_is_compared_with_its_checksum(
    status: int,
    digest: str,
    expected: str | type[Exception],
    fresh_cache: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(raw_files, "READ_RETRY_DELAYS", (0,))
    with FakeSite() as server:
        server.files = {
            "/": b'<a href="/md5sums.txt">checksums</a>',
            "/md5sums.txt": f"{digest}  dump.xml\n".encode(),
            "/dump.xml": DUMP,
        }
        server.faults["/"] = [Fault(status)] * 9 if status != 200 else []
        paths = (f"{server.url}/dump.xml?signature=a",)
        source = WikipediaSource(name="wiki", paths=paths, language="en")
        if isinstance(expected, str):
            (split,) = wikipedia.plan(source)
            assert split.file.checksum == expected
            return
        with pytest.raises(expected):
            wikipedia.plan(source)
