"""Groups of small files, of texts and of books."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.io import splits
from pipelines.io.splits import SourceFile, group_by_size
from pipelines.sources import SOURCES
from schemas.corpus_configs import BooksSource, TextSource


def files_of(number: int, *, size: int = 10) -> list[SourceFile]:
    return [SourceFile(f"/raw/{n:04}.txt", f"{n:04}.txt", size, f"{n:064x}") for n in range(number)]


@pytest.mark.parametrize(
    ("target_bytes", "sizes"),
    [(1, [1] * 6), (10, [1] * 6), (11, [2, 2, 2]), (35, [4, 2]), (60, [6]), (1000, [6])],
)
def test_group_ends_at_its_size(target_bytes: int, sizes: list[int]) -> None:
    files = files_of(6)
    groups = list(group_by_size(files, target_bytes=target_bytes))
    assert [len(group) for group in groups] == sizes
    assert [file for group in groups for file in group] == files
    assert list(group_by_size([], target_bytes=target_bytes)) == []


@pytest.mark.parametrize("is_added", [True, False])
def test_other_file_changes_few_groups(monkeypatch: pytest.MonkeyPatch, is_added: bool) -> None:
    monkeypatch.setattr(splits, "_ONE_IN", 16)
    files = files_of(1000)
    other = [*files[:300], *files[301:]]
    before, after = (other, files) if is_added else (files, other)
    groups, changed = (
        {tuple(group) for group in group_by_size(listed, target_bytes=50)}
        for listed in (before, after)
    )
    assert len(changed) > 200
    assert len(changed - groups) < 20


@pytest.mark.parametrize("config_type", [TextSource, BooksSource])
def test_texts_and_books_have_equal_groups(tmp_path: Path, config_type: Any) -> None:
    for n in range(200):
        (tmp_path / f"{n:03}.txt").write_text(f"Text {n}. " * 20)
    config = config_type(name="mine", paths=(str(tmp_path),), target_split_bytes=4096)
    planned = [splits.files_of_group(split) for split in SOURCES[config.kind].plan(config)]
    files = [file._replace(encoding="") for group in planned for file in group]
    assert [file.name for file in files] == [f"{n:03}.txt" for n in range(200)]
    groups = group_by_size(files, target_bytes=4096)
    assert [len(group) for group in planned] == [len(group) for group in groups]
    assert 5 < len(planned) < 20
