from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from support.cli_runner import Cli
from support.fake_gcs import FakeGcs
from support.store_builder import prepared, published

from flows.cli import doctor
from flows.cli.doctor import Finding, check_requirements, check_software, check_store
from flows.run.provenance import Checkout
from flows.store.artifacts import ArtifactStore
from schemas.checksummed import dump_json
from schemas.errors import DeterminismError


def states(findings: Iterable[Finding]) -> dict[str, str]:
    return {finding.check: finding.state for finding in findings}


def failures(findings: Iterable[Finding]) -> list[str]:
    return [finding.check for finding in findings if finding.state == "FAIL"]


def install(folder: Path, name: str, version: str, *requires: str) -> None:
    """Write package metadata as pip does."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {text}" for text in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


def test_own_requirements_are_met() -> None:
    by_check = states(check_requirements())
    assert "FAIL" not in by_check.values()
    for name in ("prefect", "fastapi", "sqlalchemy", "apache-beam"):
        assert by_check[f"requirement {name}"] == "ok"


def test_unmet_requirement_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "fastapi", "0.165.0")
    install(tmp_path, "oldtool", "1.0")
    install(
        tmp_path,
        "wanting",
        "1.0",
        'fastapi<0.151,>=0.139; extra == "flows"',
        'oldtool>=2; extra == "dev"',
        'nosuch-tool>=2; extra == "dev"',
        "nosuch-library>=3",
        "pydantic>=2",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    findings = list(check_requirements("wanting"))
    assert states(findings) == {
        "requirement fastapi": "FAIL",
        "requirement oldtool": "warn",
        "requirement nosuch-library": "FAIL",
    }
    assert "0.165.0" in findings[0].text
    assert "fastapi<0.151,>=0.139" in findings[0].remedy


def test_unsupported_python_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert states(check_software({}))["python"] == "ok"
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "3.9.1")
    assert "python" in failures(check_software({}))


def test_enabled_telemetry_is_a_warning() -> None:
    findings = [f for f in check_software({"DO_NOT_TRACK": "1"}) if f.check == "telemetry"]
    assert [finding.state for finding in findings] == ["ok", "warn"]
    assert findings[1].remedy == "export PREFECT_SERVER_ANALYTICS_ENABLED=false"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Checkout("", None), "ok"),
        (Checkout("ab" * 20, True), "warn"),
        (Checkout("ab", False), "ok"),
    ],
)
def test_uncommitted_changes_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, state: Checkout, expected: str
) -> None:
    monkeypatch.setattr(doctor, "checkout", lambda: state)
    assert states(check_software({}))["checkout"] == expected


def test_intact_store_is_ok_and_stays_as_it_was(cli: Cli, store: ArtifactStore) -> None:
    store.set_ref("fake/x", published(store))
    before = set(store.backend.stat(""))
    findings = list(check_store(store.root))
    assert failures(findings) == []
    assert states(findings).keys() >= {"store", "writes", "clock", "disk", "conflicts"}
    after = set(store.backend.stat("")) - {".lock"}
    assert after == before
    assert cli("doctor", "--store", store.root).code == 0


def test_missing_store_is_a_warning_and_unknown_layout_fails(tmp_path: Path) -> None:
    assert states(check_store(str(tmp_path / "none"))) == {"store": "warn"}
    (tmp_path / "FORMAT.json").write_bytes(dump_json({"layout": 99}))
    assert states(check_store(str(tmp_path))) == {"store": "FAIL"}


def test_conflict_fails(cli: Cli, store: ArtifactStore) -> None:
    store.commit(prepared(store, "one"))
    with pytest.raises(DeterminismError):
        store.commit(prepared(store, "two"))
    result = cli("doctor", "--store", store.root, "--json")
    assert result.code == 1
    [failure] = [item for item in json.loads(result.out) if item["state"] == "FAIL"]
    assert failure["check"] == "conflicts"
    assert "vocab.txt" in failure["text"]


@pytest.mark.parametrize(
    ("blocks", "inodes", "expected"),
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
    expected: dict[str, str],
) -> None:
    stat = SimpleNamespace(f_bavail=blocks, f_frsize=1000, f_files=10**7, f_favail=inodes)
    monkeypatch.setattr(os, "statvfs", lambda _: stat)
    assert expected.items() <= states(check_store(store.root)).items()


def test_disk_without_hard_links_fails(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert failures(check_store(store.root)) == ["writes"]


@pytest.mark.parametrize(("shift", "state"), [(10, "warn"), (-10, "warn"), (600, "FAIL")])
def test_different_clock_is_reported(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, shift: float, state: str
) -> None:
    original = store.backend.stat

    def shifted(backend: object, folder: str) -> Any:
        files = original(folder).items()
        return {path: info._replace(modified=info.modified + shift) for path, info in files}

    monkeypatch.setattr(type(store.backend), "stat", shifted)
    assert states(check_store(store.root))["clock"] == state


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_missing_bucket_fails(bucket: str, gcs: FakeGcs, cli: Cli, scheme: str) -> None:
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
    [finding] = check_store(str(tmp_path))
    assert (finding.state, "permission" in finding.remedy) == ("FAIL", True)
