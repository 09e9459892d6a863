"""Temporary folders of processes that were killed are removed, those in use are not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.paths import PYTHONPATH

from pipelines.io.temporary_folders import remove_abandoned_folders, temporary_folder

HOLD = """
from pipelines.io.temporary_folders import temporary_folder

with temporary_folder("reports") as folder:
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def make_old(folder: str | Path) -> None:
    os.utime(folder, (0, 0))


def test_folder_is_removed_after_its_process_was_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    make_old(folder)
    remove_abandoned_folders()
    assert folder.exists()
    process.kill()
    process.communicate()
    remove_abandoned_folders()
    assert not folder.exists()


def test_folders_of_others_and_new_ones_stay(tmp_path: Path) -> None:
    other = tmp_path / "bertloom-my-data"
    new = tmp_path / "bertloom-tmp-reports-new"
    other.mkdir()
    new.mkdir()
    make_old(other)
    with temporary_folder("reports") as own:
        make_old(own)
        remove_abandoned_folders()
        assert {path.name for path in tmp_path.iterdir()} == {other.name, new.name, Path(own).name}
    assert not Path(own).exists()
