"""`bertloom fetch` as a person or a script runs it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from support.cli_runner import Cli
from support.fake_site import FakeSite

from flows.sample.dump import write_dump
from flows.sample.pages import make_pages
from flows.sample.world import Words

pytestmark = pytest.mark.network

PAGES = "samplewiki-20260101-pages-articles-multistream.xml.bz2"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeSite]:
    """A site with a dump."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "made"
    write_dump(str(folder), make_pages(Words.of_world(0), seed=0, articles=5), date="20260101")
    with FakeSite() as served:
        monkeypatch.setenv("BERTLOOM_MIRROR", served.url)
        dumps = {path.name: path.read_bytes() for path in folder.glob("*.bz2")}
        served.add_dump("samplewiki", "20260101", dumps)
        yield served


def test_dump_is_planned_then_downloaded(cli: Cli, site: FakeSite, tmp_path: Path) -> None:
    output = tmp_path / "into"
    command = ("fetch", "wikipedia", "--wiki", "samplewiki", "--output-dir", str(output))
    plan = cli(*command, "--dry-run")
    assert (plan.code, PAGES in plan.out, output.exists()) == (0, True, False)
    result = cli(*command)
    assert result.code == 0
    assert Path(result.out.splitlines()[-1]) == output / "samplewiki" / "20260101" / PAGES
    result = json.loads(cli(*command, "--json").out)
    assert (result["date"], len(result["files"])) == ("20260101", 1)


def test_dataset_of_own_sources_is_downloaded(cli: Cli, site: FakeSite, tmp_path: Path) -> None:
    site.files["/train.csv"] = b"some,csv\n"
    sha256 = hashlib.sha256(b"some,csv\n").hexdigest()
    swag = {
        "title": "SWAG", "benchmark": "swag", "folder": "swag", "license": "", "homepage": "",
        "files": [{"url": f"{site.url}/train.csv", "size": 9, "sha256": sha256}],
    }  # fmt: skip
    sources = tmp_path / "sources.yaml"
    sources.write_text(yaml.safe_dump({"datasets": {"swag": swag}}))
    result = cli("fetch", "swag", f"--sources={sources}", f"--output-dir={tmp_path}/data", "--json")
    [dataset] = json.loads(result.out)
    assert Path(dataset["files"][0]).read_bytes() == b"some,csv\n"


@pytest.mark.parametrize(
    ("arguments", "code", "name"),
    [
        (("wikipedia",), 2, "--wiki"),
        (("wikipedia", "--wiki", "../x"), 1, "--wiki"),
        (("wikipedia", "--wiki", "samplewiki", "--output-dir", "s3://x/y"), 2, "--output-dir"),
        (("glue", "nonsense"), 2, "nonsense"),
        (("swag", "--sources", "/missing.yaml"), 1, "/missing.yaml"),
    ],
)
def test_wrong_arguments_are_named(
    cli: Cli, site: FakeSite, arguments: Sequence[str], code: int, name: str
) -> None:
    result = cli("fetch", *arguments)
    assert result.code == code
    assert name in result.err
    assert site.requests == []
