from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from support.cli_runner import Cli
from support.fake_gcs import FakeGcs
from support.store_builder import file_of, prepared, published

from flows.cli import doctor
from flows.cli.doctor import Finding, pins, software, store_findings
from flows.run.provenance import Checkout
from flows.store.artifacts import ArtifactStore
from schemas.checksummed import dump_json
from schemas.errors import DeterminismError


def of(findings: Any, check: str) -> list[Finding]:
    return [finding for finding in findings if finding.check == check]


def wrong(findings: Any) -> list[Finding]:
    return [finding for finding in findings if finding.state == "FAIL"]


def install(folder: Path, name: str, version: str, *requires: str) -> None:
    """Metadata as pip leaves it."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {text}" for text in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


def test_our_own_requirements_are_met_here() -> None:
    found = list(pins())
    assert wrong(found) == []
    for name in ("prefect", "fastapi", "sqlalchemy", "apache-beam"):
        [finding] = of(found, f"pin {name}")
        assert finding.state == "ok"


def test_a_broken_pin_is_said_with_what_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "fastapi", "0.165.0")
    install(tmp_path, "SQLAlchemy", "2.1.9")
    install(tmp_path, "oldtool", "1.0")
    install(
        tmp_path,
        "wanting",
        "1.0",
        'fastapi<0.151,>=0.139; extra == "flows"',
        'sqlalchemy[asyncio]<2.1,>=2.0; extra == "flows"',
        'oldtool>=2; extra == "dev"',
        'nosuch-tool>=2; extra == "dev"',
        'torch==2.13.0; extra == "model"',
        "nosuch-library>=3",
        "pydantic>=2",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    known = doctor._installed
    monkeypatch.setattr(doctor, "_installed", lambda name: "" if name == "torch" else known(name))
    found = list(pins("wanting"))
    [torch] = of(found, "pin torch")
    assert (torch.state, torch.text) == ("warn", "not installed")
    assert torch.remedy == "where it is needed: pip install 'bertloom[model]'"
    [fastapi] = of(found, "pin fastapi")
    assert fastapi.state == "FAIL"
    assert "0.165.0, needed is <0.151,>=0.139" in fastapi.text
    assert "422" in fastapi.text
    assert fastapi.remedy == 'pip install "fastapi<0.151,>=0.139"'
    [sqlalchemy] = of(found, "pin sqlalchemy")
    assert "schedules never fire" in sqlalchemy.text
    assert of(found, "pin oldtool")[0].state == "warn"
    assert of(found, "pin nosuch-tool") == []
    [missing] = of(found, "pin nosuch-library")
    assert (missing.state, missing.text.partition(",")[0]) == ("FAIL", "not installed")
    assert "1 requirements" in found[-1].text
    assert pins("no-such-distribution").__next__().state == "warn"


def test_another_python_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of(software({}), "python")[0].state == "ok"
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "3.9.1")
    [finding] = of(software({}), "python")
    assert finding.state == "FAIL"
    assert finding.text.startswith("3.9.1, needed is")


def test_telemetry_that_is_on_is_said() -> None:
    on = of(software({"DO_NOT_TRACK": "1"}), "telemetry")
    assert [finding.state for finding in on] == ["ok", "warn"]
    assert on[1].remedy == "export PREFECT_SERVER_ANALYTICS_ENABLED=false"
    off = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "False"}
    assert {finding.state for finding in of(software(off), "telemetry")} == {"ok"}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Checkout("", None), "ok"),
        (Checkout("ab" * 20, True), "warn"),
        (Checkout("ab", False), "ok"),
    ],
)
def test_a_checkout_with_changes_is_said(
    monkeypatch: pytest.MonkeyPatch, state: Checkout, expected: str
) -> None:
    monkeypatch.setattr(doctor, "checkout", lambda: state)
    assert of(software({}), "checkout")[0].state == expected


def test_a_sound_store_is_sound_and_is_left_as_it_was(store: ArtifactStore) -> None:
    store.set_ref("fake/x", published(store))
    before = set(store.backend.stat(""))
    found = list(store_findings(store.root))
    assert wrong(found) == []
    assert {finding.check for finding in found} >= {
        "store", "writes", "clock", "links", "disk", "conflicts", "refs",
    }  # fmt: skip
    after = set(store.backend.stat("")) - {".lock"}
    assert after == before


def test_a_store_that_is_none_is_said(tmp_path: Path) -> None:
    [finding] = store_findings(str(tmp_path / "none"))
    assert finding.state == "warn"
    (tmp_path / "FORMAT.json").write_bytes(dump_json({"layout": 99}))
    [finding] = store_findings(str(tmp_path))
    assert finding.state == "FAIL"
    assert "layout" in finding.text


def test_conflicts_and_damaged_refs_are_said(store: ArtifactStore) -> None:
    winner, loser = prepared(store, "one"), prepared(store, "two")
    store.commit(winner)
    with pytest.raises(DeterminismError):
        store.commit(loser)
    store.set_ref("fake/x", winner)
    store.set_ref("fake/y", winner)
    store.backend.replace("refs/fake/y.json", b"{")
    store.backend.delete(file_of(store, winner))
    found = wrong(store_findings(store.root))
    assert [finding.check for finding in found] == ["conflict", "ref", "ref"]
    assert "vocab.txt" in found[0].text
    assert "fake/x: " in found[1].text
    assert "vocab.txt" in found[1].text
    assert "fake/y: " in found[2].text


@pytest.mark.parametrize(
    ("blocks", "inodes", "states"),
    [
        (5_000_000, 10**6, {"disk": "warn", "inodes": "ok"}),
        (5_000, 10**6, {"disk": "FAIL", "inodes": "ok"}),
        (10**9, 5, {"disk": "ok", "inodes": "FAIL"}),
    ],
)
def test_full_disk_fails(
    store: ArtifactStore,
    monkeypatch: pytest.MonkeyPatch,
    blocks: int,
    inodes: int,
    states: dict[str, str],
) -> None:
    stat = SimpleNamespace(f_bavail=blocks, f_frsize=1000, f_files=10**7, f_favail=inodes)
    monkeypatch.setattr(os, "statvfs", lambda _: stat)
    findings = {item.check: item.state for item in store_findings(store.root)}
    assert states.items() <= findings.items()


def test_a_disk_without_hard_links_is_said(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    found = wrong(store_findings(store.root))
    assert [finding.check for finding in found] == ["writes", "links"]
    assert "hard link" in found[0].text


@pytest.mark.parametrize(("apart", "state"), [(10, "warn"), (-10, "warn"), (600, "FAIL")])
def test_a_clock_that_differs_is_said(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, apart: float, state: str
) -> None:
    facts = store.backend.stat

    def shifted(backend: object, folder: str) -> Any:
        return {
            path: item._replace(modified=item.modified + apart)
            for path, item in facts(folder).items()
        }

    monkeypatch.setattr(type(store.backend), "stat", shifted)
    [finding] = of(store_findings(store.root), "clock")
    assert finding.state == state


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_bucket_that_does_not_exist_fails(bucket: str, gcs: FakeGcs, cli: Cli, scheme: str) -> None:
    existing = bucket if scheme == "s3" else "gs://bucket"
    assert cli("doctor", "--store", f"{existing}/store").code == 0  # no store yet
    result = cli("doctor", "--store", f"{scheme}://no-such-bucket-here/store")
    assert result.code == 1
    assert "no-such-bucket-here" in result.out


def test_unreadable_store_asks_for_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(LocalFileSystem, "cat_file", refuse)
    [finding] = store_findings(str(tmp_path))
    assert (finding.state, "permission" in finding.remedy) == ("FAIL", True)
