"""Parameters by which a flow loads the recipe of a run, and the engine of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import Cli
from support.fake_stages import FakeStages

from flows.recipes.loader import load_recipe, recipe_from
from flows.running import choose_engine, flow_parameters, recipe_fields
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run, run_ids
from schemas.errors import ConfigError
from schemas.recipe import Recipe

RECIPE = """\
name: fake
build_documents:
  sources:
    - {kind: text, name: mine, paths: ["PATH"]}
build_instances: {one: {}}
"""


def load(parameters: dict[str, Any]) -> Recipe:
    """Load a recipe as a flow does."""
    recipe, overrides, store = (parameters[name] for name in ("recipe", "overrides", "store"))
    return load_recipe(recipe, overrides=overrides, store=store)


@pytest.mark.parametrize("name", ["$HOME", "${HOME}", "a$$b", "${", "$", "${NO-SUCH}", "ü $1 日本"])
def test_recipe_as_parameter_is_not_expanded_again(name: str, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE.replace("PATH", f"{name}.txt".replace("$", "$$")), encoding="utf-8")
    recipe = load_recipe(str(file), store=str(tmp_path / name))
    again = recipe_from(recipe_fields(recipe), where="parameter", folder=Path.cwd())
    assert again == recipe
    assert again.store == str(tmp_path / name)


@pytest.mark.parametrize(
    "execution",
    [
        {"runner": "portable", "workers": 2},
        {"max_parallel_steps": 3, "shared_filesystem": True},
        {"runner": None, "workers": None, "shared_filesystem": None},
    ],
)
@pytest.mark.parametrize("folder", ["plain", "with $HOME and ${NAME}"])
def test_flow_loads_recipe_of_command(
    folder: str, execution: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / folder).mkdir()
    file = tmp_path / folder / "recipe.yaml"
    file.write_text(RECIPE.replace("PATH", "a.txt"))
    arguments = {
        "overrides": ["build_instances.one.seed=7", "execution.workers=5"],
        "store": str(tmp_path / folder / "store"),
        **execution,
    }
    assert load(flow_parameters(str(file), **arguments)) == load_recipe(str(file), **arguments)


@pytest.mark.parametrize(("url", "engine"), [("", "local"), ("http://127.0.0.1:9/api", "prefect")])
def test_auto_is_prefect_where_api_is_configured(
    url: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", url)
    assert choose_engine("auto") == engine
    assert choose_engine("local") == "local"
    assert choose_engine("prefect") == "prefect"
    with pytest.raises(ConfigError, match="airflow"):
        choose_engine("airflow")


def test_command_without_api_runs_in_this_process(
    fakes: FakeStages, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "")
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE.replace("PATH", str(fakes.raw)))
    root = str(tmp_path / "store")
    assert cli("run", str(file), "--store", root).code == 0
    store = ArtifactStore(root)
    assert [read_run(store, run_id).engine for run_id in run_ids(store)] == ["local"]
