"""`evaluate`: scores of the selected model, of its restarts, and of ensembles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.finetuning_builder import (
    sentiment,
    text_rows,
    trial_config,
    trial_job,
    write_checkpoint,
)

import model.evaluate
from model.evaluate import evaluate
from model.finetuning.prediction import Predictor, answer, run_evaluation
from model.finetuning.trial import train_trial
from model.tables.results import Evaluation, result_rows
from model.task_results import EvaluationResult
from model.tasks import TASKS
from model.tasks.examples import read_examples
from model.tasks.prediction_files import read_lines
from model.tasks.row_terms import read_row_terms
from model.tasks.task_types import TASK_TYPES
from model.training.artifact_files import write_folder
from model.training.stopping import StopRequest
from schemas.execution_configs import ExecutionConfig
from schemas.finetune_configs import EvaluateConfig
from schemas.manifest import StageInput, StageOutput
from schemas.trial_names import trial_name


def trained(folder: Path, examples: StageInput, checkpoint: str, **changes: Any) -> StageInput:
    """Return the artifact of a trial of two steps."""
    config = trial_config(checkpoint, max_steps=2, **changes)
    job = trial_job(folder / trial_name(config), examples, config=config)
    outcome = train_trial(job, stop=StopRequest())
    output = str(folder / f"{trial_name(config)}.artifact")
    return StageInput(
        name=trial_name(config),
        artifact_id="0" * 16,
        data=output,
        files=write_folder(job.results(), output=output),
        statistics=outcome["statistics"],
    )


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> StageInput:
    more = {"test": text_rows(14, split="test"), "hidden": text_rows(3, split="hidden")}
    for row in more["hidden"]:
        row["label"] = None
    return sentiment(tmp_path_factory.mktemp("sst"), **more)


@pytest.fixture(scope="module")
def restarts(
    examples: StageInput, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, StageInput]:
    folder = tmp_path_factory.mktemp("trials")
    checkpoint = write_checkpoint(folder / "bert")
    points = [{"restart": n, "learning_rate": rate} for rate in (1e-3, 1e-5) for n in range(2)]
    outcome = [trained(folder, examples, checkpoint, **point) for point in points]
    return {artifact.name: artifact for artifact in outcome}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The folders that were predicted with, call by call, in this process."""
    calls: list[tuple[str, ...]] = []

    def call(target: str, job: Any) -> dict[str, Any]:
        assert target == "model.finetuning.prediction:run_evaluation"
        calls.append(tuple(member.data for member in job.members))
        return run_evaluation(job, stop=StopRequest())

    monkeypatch.setattr(model.evaluate, "call_in_worker", call)
    return calls


def evaluated(
    folder: Path, examples: StageInput, trials: dict[str, StageInput], **config: Any
) -> StageOutput:
    artifact = EvaluateConfig(examples="sst", device="cpu", **{"entry": "sst", **config})
    folder.mkdir(exist_ok=True)
    inputs = {"examples": examples, **trials}
    return evaluate(artifact, inputs=inputs, output=str(folder), execution=ExecutionConfig())


def test_the_best_points_restarts_are_scored_on_test(
    examples: StageInput,
    restarts: dict[str, StageInput],
    asked: list[tuple[str, ...]],
    tmp_path: Path,
) -> None:
    output = evaluated(tmp_path / "out", examples, restarts)
    said = output.statistics
    point = said["best_point"]
    scored = {cell["name"]: cell["metrics"] for cell in said["cells"]}
    own = [name for name in restarts if name.startswith(point)]
    assert len(own) == 2
    chosen = said["best"]
    assert {name for name, outcome in scored.items() if "test" in outcome} == {*own, chosen}
    assert all("hidden" not in outcome for outcome in scored.values())
    # Its answers are not known. In the other splits half of the rows have the majority's label.
    assert said["majority_label"] in ("0", "1")
    assert said["baseline"] == {"dev": {"accuracy": 0.5}, "test": {"accuracy": 0.5}}
    assert len(asked) == len({*own, chosen})  # the chosen one is asked once
    assert scored[chosen]["test"] == said["metrics"]["test"]
    task, table = TASKS["sst-2"], read_examples(examples, "test")
    for name in own:
        # Predicted again by its model, and read from the stored file.
        predictor = Predictor.open(restarts[name].data, device="cpu")
        metrics = TASK_TYPES[task.type].score(table, answer([predictor], table), task=task)
        assert scored[name]["test"]["accuracy"] == pytest.approx(metrics["accuracy"])
        if name != chosen:
            kept = read_lines(str(tmp_path / "out" / f"predictions-test-{name}.jsonl"))
            again = TASK_TYPES[task.type].score(table, kept, task=task)
            assert again["accuracy"] == metrics["accuracy"]
    outcome = EvaluationResult.from_statistics(said, where="sst").scores("test", "accuracy")
    assert sorted(outcome.runs) == sorted(scored[name]["test"]["accuracy"] for name in own)
    assert outcome.best == said["metrics"]["test"]["accuracy"]
    assert outcome.sd is not None


def test_scores_of_dev_rows_are_stored_for_each_restart_and_the_majority_class(
    examples: StageInput,
    restarts: dict[str, StageInput],
    asked: list[tuple[str, ...]],
    tmp_path: Path,
) -> None:
    output = evaluated(tmp_path / "out", examples, restarts)
    said = output.statistics
    artifact = StageInput(
        name="sst",
        artifact_id="0" * 16,
        data=str(tmp_path / "out"),
        files=output.files,
        statistics=said,
    )
    stored = {item.trial: item for item in read_row_terms(artifact)}
    own = {name for name in restarts if name.startswith(said["best_point"])}
    assert set(stored) == {*own, ""}
    scores = {cell["name"]: cell["metrics"]["dev"]["accuracy"] for cell in said["cells"]}
    scores[""] = said["baseline"]["dev"]["accuracy"]
    for trial, item in stored.items():
        terms = item.row_terms.terms
        assert (item.metric, terms.shape) == ("accuracy", (count_dev_rows(examples), 1))
        assert terms.mean() == pytest.approx(scores[trial])
    row = result_rows([Evaluation.of_artifact("sst", artifact)])[0]
    assert row.sample is not None
    assert len(row.sample.restarts) == 2


def count_dev_rows(examples: StageInput) -> int:
    """Number of dev rows."""
    return int(examples.statistics["splits"]["dev"])


def test_an_ensemble_of_several_entries_leaves_restarts_to_those(
    examples: StageInput,
    restarts: dict[str, StageInput],
    asked: list[tuple[str, ...]],
    tmp_path: Path,
) -> None:
    single = evaluated(tmp_path / "single", examples, restarts).statistics
    checkpoint = write_checkpoint(
        tmp_path / "other", num_hidden_layers=1
    )  # as another phase's model may be
    others = {"one": trained(tmp_path / "trials", examples, checkpoint, restart=0)}
    trials = {f"a.{name}": artifact for name, artifact in restarts.items()}
    trials |= {f"b.{artifact.name}": artifact for artifact in others.values()}
    asked.clear()
    said = evaluated(tmp_path / "both", examples, trials, entry="both", ensemble_size=5).statistics
    assert len(asked) == 1
    assert len(asked[0]) == said["ensemble"] == 5
    assert others["one"].data in asked[0]
    assert all("test" not in cell["metrics"] for cell in said["cells"])
    predictors = [Predictor.open(folder, device="cpu") for folder in asked[0]]
    table = read_examples(examples, "test")
    task_type = TASK_TYPES["classification"]
    together = answer(predictors, table)
    expected = task_type.score(table, together, task=TASKS["sst-2"])
    assert said["metrics"]["test"]["accuracy"] == expected["accuracy"]
    shares = [answer([each], table) for each in predictors]
    assert together not in shares
    # Single models of an ensemble are in the row of their entry.
    of_one = {f"a.{name}": artifact for name, artifact in restarts.items()}
    ensemble = evaluated(
        tmp_path / "one", examples, of_one, entry="four", ensemble_size=4
    ).statistics
    results = [EvaluationResult.from_statistics(item, where="it") for item in (single, ensemble)]
    assert [result.has_shared_trials for result in results] == [False, True]
