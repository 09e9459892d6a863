"""A store on disk and in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.store.artifacts import ArtifactStore


@pytest.fixture(params=["local", "memory"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    is_local = request.param == "local"
    return ArtifactStore(f"{tmp_path}/store" if is_local else f"memory://{tmp_path.name}/store")
