"""`bertloom doctor` checks versions, conditional writes, the clock and free space."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.cli_runner import Cli
from support.store_builder import published

from flows.cli.store import Finding, check_store, check_versions
from flows.store.artifacts import ArtifactStore
from schemas.json_files import dump_json


def states(findings: Iterable[Finding]) -> dict[str, str]:
    return {finding.check: finding.state for finding in findings}


def install(folder: Path, name: str, version: str, *requires: str) -> None:
    """Write package metadata as pip does."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {text}" for text in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


def test_unmet_requirement_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "fastapi", "0.165.0")
    install(
        tmp_path,
        "wanting",
        "1.0",
        'fastapi<0.151,>=0.139; extra == "flows"',
        'nosuch-tool>=2; extra == "dev"',
        "nosuch-library>=3",
        "pydantic>=2",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    *unmet, met = check_versions("wanting")
    assert [finding.state for finding in unmet] == ["FAIL", "FAIL"]
    assert all(part in unmet[0].text for part in ("fastapi", "<0.151", "0.165.0"))
    assert "nosuch-library>=3" in unmet[1].text
    assert met.text.startswith("1 ")


def test_intact_store_is_ok_and_stays_as_it_was(cli: Cli, store: ArtifactStore) -> None:
    store.set_ref("fake/x", published(store))
    before = set(store.backend.stat(""))
    assert states(check_store(store.root)).keys() == {"store", "clock", "disk"}
    assert set(store.backend.stat("")) - {".lock"} == before
    assert cli("doctor", "--store", store.root).code == 0


def test_missing_store_is_a_warning_and_unknown_layout_fails(tmp_path: Path) -> None:
    assert states(check_store(str(tmp_path / "none"))) == {"store": "warn"}
    (tmp_path / "FORMAT.json").write_bytes(dump_json({"layout": 99}))
    assert states(check_store(str(tmp_path))) == {"store": "FAIL"}


def test_full_disk_and_disk_without_hard_links_are_reported(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5_000_000))
    assert states(check_store(store.root))["disk"] == "warn"

    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert states(check_store(store.root)) == {"store": "FAIL"}


@pytest.mark.parametrize("shift", [10, -10, 600])
def test_different_clock_fails(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, shift: float
) -> None:
    original = store.backend.stat

    def shifted(backend: object, folder: str) -> Any:
        files = original(folder).items()
        return {path: info._replace(modified=info.modified + shift) for path, info in files}

    monkeypatch.setattr(type(store.backend), "stat", shifted)
    assert states(check_store(store.root))["clock"] == "FAIL"
