"""`bertloom fetch ...` as a person or a script runs it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import typer
import yaml
from support.cli_runner import Said
from support.fake_site import FakeSite

from flows.cli.app import app
from flows.sample.dump import write_dump
from flows.sample.pages import make_pages
from flows.sample.world import Words
from schemas.errors import BertloomError

pytestmark = pytest.mark.network

Run = Callable[..., Said]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """The commands in this process, with errors as `bertloom` ends on them."""

    def call(*arguments: str) -> Said:
        capsys.readouterr()
        code: object = 0
        try:
            app(args=["fetch", *arguments], prog_name="bertloom")
        except BertloomError as error:
            typer.echo(f"error: {error}", err=True)
            code = 1
        except SystemExit as ended:
            code = ended.code or 0
        said = capsys.readouterr()
        return Said(int(str(code)), said.out, said.err)

    return call


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeSite]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "made"
    write_dump(str(folder), make_pages(Words.of_world(0), seed=0, articles=5), date="20260101")
    with FakeSite() as served:
        monkeypatch.setenv("BERTLOOM_MIRROR", served.url)
        dumps = {path.name: path.read_bytes() for path in folder.glob("*.bz2")}
        served.add_dump("samplewiki", "20260101", dumps)
        yield served


def sources_file(site: FakeSite, folder: Path, sha256: str | None) -> str:
    site.files["/train.csv"] = b"some,csv\n"
    found = {
        "title": "SWAG", "benchmark": "swag", "folder": "swag", "licence": "none",
        "homepage": site.url,
        "files": [{"url": f"{site.url}/train.csv", "sha256": sha256}],
    }  # fmt: skip
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"sets": {"swag": found}}))
    return str(path)


def test_a_dump_is_planned_then_fetched(run: Run, site: FakeSite, tmp_path: Path) -> None:
    arguments = ("wikipedia", "--wiki", "samplewiki", "--folder", str(tmp_path / "into"))
    planned = run(*arguments, "--dry-run")
    assert planned.code == 0
    assert "samplewiki-20260101-pages-articles-multistream.xml.bz2" in planned.out
    assert not (tmp_path / "into").exists()
    fetched = run(*arguments)
    assert fetched.code == 0
    assert "samplewiki 20260101: files: 2" in fetched.out
    assert "all verified by sha1" in fetched.out
    path = Path(fetched.out.splitlines()[-1])
    assert path.is_file()
    assert path.parent == tmp_path / "into" / "samplewiki" / "20260101"
    assert "files that were there: 2" in run(*arguments).out


def test_json_is_all_of_what_is_printed(run: Run, site: FakeSite, tmp_path: Path) -> None:
    arguments = ("wikipedia", "--wiki", "samplewiki", "--folder", str(tmp_path), "--json")
    planned = json.loads(run(*arguments, "--dry-run").out)
    assert [file["bytes_there"] for file in planned["files"]] == [0, 0]
    fetched = run(*arguments)
    found = json.loads(fetched.out)
    assert (found["wiki"], found["date"], found["files_reused"]) == ("samplewiki", "20260101", 0)
    assert "note: http is not encrypted" in fetched.err
    assert len(json.loads(run("list", "--json").out)["sets"]) == 13


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("wikipedia",), 2, "--wiki"),
        (("wikipedia", "--wiki", "../x"), 1, "--wiki"),
        (("wikipedia", "--wiki", "samplewiki", "--mirror", "file:///x"), 1, "--mirror"),
        (("wikipedia", "--wiki", "samplewiki", "--connections", "99"), 2, "--connections"),
        (("glue", "nonsense"), 1, "found nonsense"),
        (("squad", "swag"), 1, "expected squad-1.1, squad-2.0"),
        (("swag", "--sources", "/nowhere.yaml"), 1, "/nowhere.yaml"),
    ],
)
def test_wrong_use_says_what_is_wrong(
    run: Run, site: FakeSite, arguments: Sequence[str], code: int, text: str
) -> None:
    said = run(*arguments)
    assert said.code == code
    assert text in said.err
    assert site.seen == []


def test_an_unpinned_set_is_trusted_then_pinned(run: Run, site: FakeSite, tmp_path: Path) -> None:
    digest = hashlib.sha256(b"some,csv\n").hexdigest()
    folder = ("--folder", str(tmp_path / "data"))
    refused = run("swag", "--sources", sources_file(site, tmp_path, None), *folder)
    assert refused.code == 1
    assert "--trust-first" in refused.err
    own = sources_file(site, tmp_path, None)
    trusted = run("swag", "--sources", own, *folder, "--trust-first")
    assert trusted.code == 0
    assert f"    sha256: {digest}" in trusted.out
    pinned = run("swag", "--sources", sources_file(site, tmp_path, digest), *folder)
    assert "there already: 1 of 1 files" in pinned.out


def test_the_list_says_what_is_not_fetched(run: Run) -> None:
    said = run("list")
    assert said.code == 0
    for name in ("cola", "mnli", "squad-2.0", "swag", "conll-2003", "trec.nist.gov"):
        assert name in said.out
    assert "not pinned" not in said.out


def test_help_is_there_for_each_command(run: Run) -> None:
    for command in ((), ("wikipedia",), ("glue",), ("squad",), ("swag",), ("list",)):
        said = run(*command, "--help")
        assert said.code == 0
        assert "Usage: bertloom fetch" in said.out
