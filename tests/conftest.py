"""Fixtures that more than one test module uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def find_real_data() -> Path | None:
    """The folder of real dumps, books and vocabularies, which stays outside the project."""
    named = os.environ.get("BERTLOOM_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    return folder if (folder / "README.md").is_file() else None


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The real data, or a skip that says where it was looked for."""
    folder = find_real_data()
    if folder is None:
        pytest.skip("no real data: set BERTLOOM_DATA to its folder, or put it at ../shared/data")
    return folder


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Digests remembered by tests go to a folder of their own, not to the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("BERTLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()
