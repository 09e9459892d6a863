"""The hook that Prefect's worker calls after the crash of a monthly rebuild."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from support.store_builder import write_run

from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run

RECIPE = """\
name: tiny
store: {store}
build_documents:
  sources:
    - {{kind: wikipedia, name: tinywiki, paths: ["${{FOLDER_OF_DUMPS}}/*.bz2"]}}
publish: {{name: tiny}}
"""


class FakeFlowRun:
    """Flow run of Prefect with its parameters."""

    id = "flow-run"

    def __init__(self, **parameters: Any) -> None:
        self.parameters = parameters


@pytest.mark.parametrize("more", [{}, {"overrides": [], "store": None, "workers": None}])
def test_crashed_rebuild_is_marked_when_recipe_needs_its_overrides(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    from flows.rebuild import mark_run_crashed

    file, store = tmp_path / "tiny.yaml", ArtifactStore(str(tmp_path / "store"))
    file.write_text(RECIPE.format(store=store.root))
    write_run(store, "20260101t000000-aa", state="running", recipe={"name": "tiny"}, pid=2**22 + 1)
    run: Any = FakeFlowRun(
        request={"recipe": str(file), "wiki": "tinywiki", "downloads": str(tmp_path), **more}
    )
    mark_run_crashed(cast("Any", None), run, cast("Any", None))
    assert read_run(store, "20260101t000000-aa").state == "crashed"
