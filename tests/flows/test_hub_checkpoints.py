"""Checkpoints of the Hugging Face Hub, from a stand-in that serves them as the Hub does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec.config
import pytest
import yaml
from support.cli_runner import Cli
from support.fake_hub import TOKEN, FakeHub, fake_hub
from support.finetuning_builder import (
    sentiment,
    trial_config,
    trial_job,
    write_checkpoint,
    write_tuned,
)

from flows.bert import recipe_steps
from flows.model_loading import checkpoint_folder
from flows.recipes.errors import RecipeError
from flows.recipes.loader import load_recipe
from flows.run.graph import Step
from model.finetuning.trial import train_trial
from model.training.stopping import StopRequest
from pipelines.io.hub import pin_revision, split_revision
from schemas.errors import InputError, MissingInputError, NetworkError
from schemas.manifest import RawInput
from schemas.recipe import Recipe

pytestmark = pytest.mark.usefixtures("fresh_cache")


def files_in(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """Files of a pretrained and a fine-tuned model."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "bert": files_in(write_checkpoint(folder / "bert")),
        "other": files_in(write_checkpoint(folder / "other", num_hidden_layers=1)),
        "tuned": files_in(write_tuned(folder / "tuned", task="sst-2")),
    }


@pytest.fixture
def hub(models: dict[str, dict[str, bytes]]) -> Iterator[FakeHub]:
    with fake_hub() as hub:
        for name in ("bert", "tuned"):
            hub.add(f"harbour/{name}", models[name])
        hub.add("harbour/private", models["bert"], is_private=True)
        hub.add("harbour/gated", models["bert"], is_gated=True)
        hub.add("harbour/pickled", {"config.json": b"{}", "pytorch_model.bin": b""})
        hub.add(
            "harbour/nested", {f"phase/1/{name}": models["bert"][name] for name in models["bert"]}
        )
        yield hub
        assert hub.unknown == []


def load_trials(folder: Path, checkpoint: str, **options: Any) -> Recipe:
    """Load a recipe that fine-tunes a checkpoint."""
    path = folder / "recipe.yaml"
    entry = {"examples": "task", "init_checkpoint": checkpoint}
    examples = {"task": "sst-2", "data_dir": "data"}
    recipe = {
        "name": "mine",
        "store": "store",
        "build_examples": {"task": examples},
        "finetune": {"one": entry, "two": entry},
    }
    path.write_text(yaml.safe_dump(recipe))
    return load_recipe(str(path), **options)


def trial_of(recipe: Recipe) -> Step:
    return next(step for step in recipe_steps(recipe) if step.stage.name == "finetune")


def raw_inputs(recipe: Recipe) -> dict[str, RawInput]:
    step = trial_of(recipe)
    return {item.name: item for item in step.stage.find_raw_inputs(step.config)}


def test_raw_inputs_of_trial_have_the_commit(
    hub: FakeHub, models: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    recipe = load_trials(tmp_path, "hf://harbour/bert")
    old = hub.repositories["harbour/bert"].branches["main"]
    hub.repositories["harbour/bert"].commit(models["other"])
    files = raw_inputs(recipe)
    assert files["model.safetensors"].uri == f"hf://harbour/bert@{old}/model.safetensors"
    # The digests, which the cache key has, are those of the same files in a folder.
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for name, data in models["bert"].items():
        (folder / name).write_bytes(data)
    downloaded = raw_inputs(load_trials(tmp_path, str(folder)))
    assert {name: item.sha256 for name, item in files.items()} == {
        name: item.sha256 for name, item in downloaded.items()
    }
    moved = raw_inputs(load_trials(tmp_path, "hf://harbour/bert"))
    assert moved["model.safetensors"].sha256 != files["model.safetensors"].sha256


def test_recipe_asks_for_each_commit_once(hub: FakeHub, tmp_path: Path) -> None:
    commit = hub.repositories["harbour/bert"].branches["main"]
    url = f"hf://harbour/bert@{commit}"
    recipe = load_trials(tmp_path, "hf://harbour/bert")
    assert {entry.init_checkpoint for entry in recipe.finetune.values()} == {url}
    assert hub.requests == ["/api/models/harbour/bert"]
    load_trials(tmp_path, url)
    assert len(hub.requests) == 1


def test_table_names_the_repository(hub: FakeHub, tmp_path: Path) -> None:
    recipe = load_trials(tmp_path, "hf://harbour/bert@main")
    [start] = {step.config.start for step in recipe_steps(recipe) if step.stage.name == "evaluate"}
    assert start == "harbour/bert"


@pytest.mark.parametrize("url", ["hf://harbour/bert", "hf://harbour/nested@main/phase/1"])
def test_fill_reads_model_of_the_hub(cli: Cli, hub: FakeHub, url: str) -> None:
    result = cli("fill", "the [MASK] is fine", "--model", url)
    assert result.code == 0, result.err
    assert len(result.out.splitlines()) > 1


def test_predict_reads_model_of_the_hub(cli: Cli, hub: FakeHub) -> None:
    result = cli("predict", "hf://harbour/tuned", "the film is fine")
    assert result.code == 0, result.err
    assert result.out.partition("\t")[0] in ("negative", "positive")


def test_training_from_the_hub_equals_that_from_the_same_files(
    hub: FakeHub, models: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for name, data in models["bert"].items():
        (folder / name).write_bytes(data)
    examples = sentiment(tmp_path / "examples", train=8, dev=4)

    def trained_weights(name: str, checkpoint: str) -> bytes:
        config = trial_config(checkpoint, num_epochs=1)
        job = trial_job(tmp_path / name, examples, config=config)
        train_trial(job, stop=StopRequest())
        return (job.results() / "model.safetensors").read_bytes()

    pinned = pin_revision("hf://harbour/bert")
    assert trained_weights("hub", pinned) == trained_weights("folder", str(folder))


ERRORS = {
    "hf://": InputError,
    "hf://bert": InputError,
    "hf://harbour/be rt": InputError,
    "hf://harbour/bert@": InputError,
    "hf://harbour/none": MissingInputError,
    "hf://harbour/private": MissingInputError,
    "hf://harbour/gated": InputError,
    "hf://harbour/bert@v2": MissingInputError,
    f"hf://harbour/bert@{'0' * 40}": MissingInputError,
    f"hf://harbour/none@{'0' * 40}": MissingInputError,
    "hf://harbour/bert/phase-9": MissingInputError,
    "hf://harbour/pickled": MissingInputError,
}


@pytest.mark.parametrize("url", ERRORS)
def test_checkpoint_that_cannot_be_read_is_a_clear_error(hub: FakeHub, url: str) -> None:
    with pytest.raises(ERRORS[url]) as error:
        checkpoint_folder(url, store=None)
    assert not isinstance(error.value, NetworkError)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(url.rpartition("/phase")[0] or url)
    if "private" in url or "gated" in url:
        assert "HF_TOKEN" in message
    if "pickled" in url:
        assert "from_pretrained('harbour/pickled', revision='" in message


@pytest.mark.parametrize("name", ["private", "gated"])
def test_token_of_the_environment_gives_access(
    hub: FakeHub, name: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    result = cli("fill", "the [MASK] is fine", "--model", f"hf://harbour/{name}")
    assert result.code == 0, result.err


@pytest.mark.parametrize("revision", ["", "@v1", f"@{'0' * 40}"])
@pytest.mark.parametrize("is_offline", [True, False])
def test_hub_that_does_not_answer_names_the_download(
    tmp_path: Path, revision: str, is_offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"hf://harbour/bert{revision}"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", is_offline)
    monkeypatch.setitem(fsspec.config.conf, "hf", {"endpoint": "http://127.0.0.1:0"})
    with pytest.raises(NetworkError) as error:
        checkpoint_folder(url, store=None)
    option = f" --revision {revision[1:]}" if revision else ""
    assert f"hf download harbour/bert{option} --local-dir bert" in str(error.value)
    if len(revision) < 40:
        with pytest.raises(RecipeError) as problem:
            load_trials(tmp_path, url)
        assert "finetune.one.init_checkpoint" in str(problem.value)
        assert "hf download" in str(problem.value)


def test_other_urls_are_not_changed() -> None:
    for url in ("s3://bucket/bert", "/models/bert", "harbour/bert", "hf://buckets/harbour/models"):
        assert pin_revision(url) == url
    assert split_revision("hf://harbour/bert@v1/phase/1") == ("harbour/bert", "v1")
    assert split_revision("hf://harbour/bert/phase/1") == ("harbour/bert", "")
