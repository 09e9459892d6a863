"""Every task from its official files to tables and answers, through the stages and the command."""

from __future__ import annotations

import json
from collections.abc import Iterator

import fsspec
import pytest
from support.finetuning_builder import write_checkpoint
from support.task_file_builder import ROWS, write_task_file

from flows.cli.models import answer_lines, read_questions
from flows.lineage.resolve import resolve
from flows.model_loading import open_predictors
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from model.tasks import TASKS
from model.tasks.prediction_files import read_lines
from model.training.workers import end_workers
from schemas.finetune_configs import EnsembleConfig, ExamplesConfig, FinetuneConfig
from schemas.manifest import Manifest
from schemas.recipe import Recipe

pytestmark = pytest.mark.slow

TRAINED = [name for name, task in TASKS.items() if "train" in task.splits]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Recipe, ArtifactStore]]:
    """Run a recipe with all tasks that have training data, trained for a step or two."""
    folder = tmp_path_factory.mktemp("all")
    checkpoint = write_checkpoint(folder / "bert")
    common = {
        "init_checkpoint": checkpoint,
        "batch_size": (8,),
        "learning_rate": (1e-3,),
        "num_epochs": (1,),
        "max_steps": 2,
        "max_seq_length": 64,
        "num_threads": 1,
    }
    build, finetune = {}, {}
    for name in TRAINED:
        task = TASKS[name]
        files = {
            split: (write_task_file(task, split, folder=folder / "raw"),) for split in task.splits
        }
        build[name] = ExamplesConfig(task=name, data_files=files)
        finetune[name] = FinetuneConfig(examples=name, **common)
    finetune["again"] = FinetuneConfig(examples="squad-2.0", restarts=2, **common)
    finetune["features"] = FinetuneConfig(
        examples="conll-2003",
        method="feature-based",
        feature_layers="last",
        lstm_hidden_size=8,
        **common,
    )
    recipe = Recipe(
        name="all",
        store=str(folder / "store"),
        build_examples=build,
        finetune=finetune,
        ensembles={"both": EnsembleConfig(members=("squad-2.0", "again"), ensemble_size=2)},
    )
    run_recipe(recipe, log=lambda _: None, engine="local")
    yield recipe, ArtifactStore(recipe.store, create=False)
    end_workers()


def _file(manifest: Manifest, path: str, *, store: ArtifactStore) -> bytes:
    (entry,) = [entry for entry in manifest.files if entry.path == path]
    with fsspec.open(store.url(f"{manifest.data_path}/{entry.stored_name}"), "rb") as source:
        content: bytes = source.read()
    return content


@pytest.mark.parametrize("name", [*TRAINED, "again", "features", "both"])
def test_every_row_has_an_answer(run: tuple[Recipe, ArtifactStore], name: str) -> None:
    _recipe, store = run
    of = {"again": "squad-2.0", "features": "conll-2003", "both": "squad-2.0"}.get(name, name)
    task = TASKS[of]
    examples = resolve(f"all/build-examples.{of}", store=store)
    found = resolve(f"all/evaluate.{name}", store=store)
    splits = [split for split in task.splits if split not in ("train", "augmentation")]
    for split in splits:
        rows = examples.statistics["splits"][split]
        assert 0 < rows <= ROWS
        lines = _file(found, f"predictions-{split}.jsonl", store=store).splitlines()
        assert len(lines) == rows == found.counters[f"predictions-{split}"]
    assert task.metrics[0] in found.statistics["metrics"]["dev"]
    assert all(-1 <= value <= 1 for value in found.statistics["metrics"]["dev"].values()), (
        found.statistics["metrics"]
    )
    if name != "both":
        trial = resolve(f"all/finetune.{name}.bs8-lr0.001-ep1-r0", store=store)
        assert trial.statistics["training"]["steps"] >= 1


@pytest.mark.parametrize("name", TRAINED)
def test_model_repeats_its_answers_for_a_file(run: tuple[Recipe, ArtifactStore], name: str) -> None:
    recipe, store = run
    task = TASKS[name]
    split = "test" if "test" in task.splits else "dev"
    predictors = open_predictors(f"all/evaluate.{name}", store=recipe.store)
    (path,) = recipe.build_examples[name].data_files[split]
    questions = read_questions(task, path, split=split, labels=predictors[0].labels)
    answers = [json.loads(line) for line in answer_lines(predictors, questions, as_json=True)]
    found = resolve(f"all/evaluate.{name}", store=store)
    url = store.url(f"{found.data_path}/predictions-{split}.jsonl")
    assert answers == [task.in_words(row) for row in read_lines(url)]
    assert len(list(answer_lines(predictors, questions, as_json=False))) == len(answers)
