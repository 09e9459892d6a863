from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.cli_runner import Cli
from support.store_builder import prepared, published

from flows.cli import doctor
from flows.cli.doctor import Finding, check_requirements, check_software, check_store
from flows.run.provenance import Checkout
from flows.store.artifacts import ArtifactStore
from schemas.checksummed import dump_json
from schemas.errors import DeterminismError


def states(findings: Iterable[Finding]) -> dict[str, str]:
    return {finding.check: finding.state for finding in findings}


def install(folder: Path, name: str, version: str, *requires: str) -> None:
    """Write package metadata as pip does."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {text}" for text in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("version", "commit", "environ", "expected"),
    [
        ("3.11.9", Checkout("ab", False), {"DO_NOT_TRACK": "1"}, ("ok", "ok", ["ok", "warn"])),
        ("3.9.1", Checkout("ab", True), {}, ("FAIL", "warn", ["warn", "warn"])),
    ],
)
def test_python_checkout_telemetry_and_requirements_are_checked(
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    commit: Checkout,
    environ: dict[str, str],
    expected: tuple[object, ...],
) -> None:
    monkeypatch.setattr(doctor.platform, "python_version", lambda: version)
    monkeypatch.setattr(doctor, "checkout", lambda: commit)
    findings = list(check_software(environ))
    telemetry = [finding.state for finding in findings if finding.check == "telemetry"]
    by_check = states(findings)
    assert (by_check["python"], by_check["checkout"], telemetry) == expected
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


def test_intact_store_is_ok_and_stays_as_it_was(cli: Cli, store: ArtifactStore) -> None:
    store.set_ref("fake/x", published(store))
    before = set(store.backend.stat(""))
    findings = list(check_store(store.root))
    assert states(findings).keys() >= {"store", "writes", "clock", "disk", "conflicts"}
    assert set(store.backend.stat("")) - {".lock"} == before
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


def test_full_disk_and_disk_without_hard_links_fail(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for blocks, inodes, expected in (
        (5_000_000, 10**6, {"disk": "warn", "inodes": "ok"}),
        (5_000, 5, {"disk": "FAIL", "inodes": "FAIL"}),
    ):
        stat = SimpleNamespace(f_bavail=blocks, f_frsize=1000, f_files=10**7, f_favail=inodes)
        monkeypatch.setattr(os, "statvfs", lambda _, stat=stat: stat)
        assert expected.items() <= states(check_store(store.root)).items()
    monkeypatch.undo()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert states(check_store(store.root))["writes"] == "FAIL"


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
