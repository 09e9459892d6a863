"""Flows on a Prefect server, which all tests of a session share."""

from __future__ import annotations

import logging
import signal
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from support.fake_stages import LABELS, FakeStages

from flows.bert import PARTS, stages
from flows.preparation import prepare_run
from flows.run.graph import Step, StepGraph
from flows.run.run import Run
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run, run_ids
from schemas.errors import VocabularyError
from schemas.finetune_configs import ExamplesConfig
from schemas.model_configs import BudgetConfig, ModelConfig, PretrainConfig
from schemas.recipe import Recipe

pytestmark = pytest.mark.network


@pytest.fixture
def recipe(prefect_server: None, fakes: FakeStages, tmp_path: Path) -> Recipe:
    return fakes.recipe(str(tmp_path / "store"))


def record_of(recipe: Recipe) -> dict[str, Any]:
    """Return the record of the newest run."""
    store = ArtifactStore(recipe.store)
    records = [read_run(store, run_id) for run_id in run_ids(store)]
    return max(records, key=lambda record: record.updated_at).model_dump()


def task_runs(flow_run_id: str, *, ended: int = len(LABELS)) -> dict[str, Any]:
    """Return the task runs by name, after `ended` of them have ended."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    chosen = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
    deadline = time.monotonic() + 30  # the server records task runs asynchronously
    with get_client(sync_client=True) as client:
        while True:
            runs = client.read_task_runs(flow_run_filter=chosen)
            ended_runs = [run for run in runs if run.state and run.state.is_final()]
            if len(ended_runs) >= ended or time.monotonic() > deadline:
                return {run.name: run for run in runs}
            time.sleep(0.1)


def artifacts() -> dict[str, Any]:
    """Return the newest artifact of each key."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.sorting import ArtifactSort

    with get_client(sync_client=True) as client:
        artifacts = client.read_artifacts(sort=ArtifactSort.CREATED_DESC)
        return {item.key: item for item in reversed(artifacts) if item.key}


def test_second_flow_run_has_cached_states(recipe: Recipe, fakes: FakeStages) -> None:
    lines: list[str] = []
    first = run_recipe(recipe, log=lines.append)
    assert [result.label for result in first] == LABELS
    assert fakes.calls == ["documents", "vocabulary", "tokens", "instances", "instances"]
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == LABELS
    record = record_of(recipe)
    assert record["state"] == "completed"
    runs = task_runs(record["flow_run_id"])
    assert {name: run.state.name for name, run in runs.items()} == dict.fromkeys(
        LABELS, "Completed"
    )
    read = {name: len(run.task_inputs.get("wait_for", [])) for name, run in runs.items()}
    assert read == dict(zip(LABELS, [0, 1, 2, 2, 2], strict=True))
    assert {name: run.tags for name, run in runs.items()} == {
        label: [f"stage:{label.partition('.')[0]}"] for label in LABELS
    }
    shown = artifacts()
    assert shown["fake-build-tokens"].description == "build-tokens: 1 file"
    assert shown["run-fake"].description == "fake: 5 steps, 5 built"
    assert f"[Report](file://{recipe.store}/runs/{record['run_id']}/report.html)" in (
        shown["run-fake"].data
    )

    second = run_recipe(recipe, log=lines.append)
    assert fakes.calls == []
    assert [result.manifest for result in second] == [result.manifest for result in first]
    assert all(result.was_cached for result in second)
    runs = task_runs(record_of(recipe)["flow_run_id"])
    assert {name: run.state.name for name, run in runs.items()} == dict.fromkeys(LABELS, "Cached")


def test_engines_build_the_same_artifacts(
    recipe: Recipe,
    fakes: FakeStages,
    tmp_path: Path,
) -> None:
    elsewhere = recipe.model_copy(update={"store": str(tmp_path / "local")})
    with_prefect = run_recipe(recipe, log=lambda line: None)
    without = run_recipe(elsewhere, log=lambda line: None, engine="local")
    for one, other in zip(with_prefect, without, strict=True):
        assert one.manifest.cache_key == other.manifest.cache_key
        assert one.manifest.content_digest == other.manifest.content_digest


def test_user_error_is_not_retried_and_is_state_message(recipe: Recipe, fakes: FakeStages) -> None:
    fakes.module.FAULTS["vocabulary"] = [VocabularyError("too small a corpus")]
    lines: list[str] = []
    with pytest.raises(VocabularyError):
        run_recipe(recipe, log=lines.append)
    assert fakes.calls == ["documents", "vocabulary"]
    assert "build-vocabulary  FAILED: too small a corpus" in lines
    record = record_of(recipe)
    assert record["state"] == "failed"
    assert list(record["failures"]) == ["build-vocabulary"]
    assert [step["label"] for step in record["steps"]] == ["build-documents"]
    # On Prefect's pages the sentence comes first: of the run, of the step, in the summary.
    assert flow_message(record["flow_run_id"]) == "too small a corpus"
    state = task_runs(record["flow_run_id"], ended=2)["build-vocabulary"].state
    assert (state.type.value, state.message) == ("FAILED", "too small a corpus")
    shown = artifacts()["run-fake"].data
    assert shown.startswith("**build-vocabulary** failed: too small a corpus\n")


def flow_message(flow_run_id: str) -> str:
    """Return the message of a flow run's state."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return str(client.read_flow_run(UUID(flow_run_id)).state.message)


def test_prefect_logs_user_error_without_traceback(recipe: Recipe, fakes: FakeStages) -> None:
    kept: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = kept.append  # type: ignore[method-assign]
    names = ("prefect.flow_runs", "prefect.task_runs")
    fakes.module.FAULTS["vocabulary"] = [VocabularyError("too small a corpus")]
    for name in names:
        logging.getLogger(name).addHandler(handler)
    try:
        with pytest.raises(VocabularyError):
            run_recipe(recipe, log=lambda line: None)
    finally:
        for name in names:
            logging.getLogger(name).removeHandler(handler)
    texts = [record.getMessage() for record in kept]
    assert "Finished in state Failed('too small a corpus')" in texts
    assert not [record for record in kept if record.exc_info]
    assert sum(text.count("\n") + 1 for text in texts) < 20


def test_transient_error_is_retried(
    recipe: Recipe,
    fakes: FakeStages,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flows.prefect_flows import execute_step

    monkeypatch.setattr(execute_step, "retry_delay_seconds", [0, 0])
    fakes.module.FAULTS["tokens"] = [ConnectionResetError("reset")]
    run_recipe(recipe, log=lambda line: None)
    assert fakes.calls.count("tokens") == 2


@pytest.mark.slow  # several runs by Prefect
def test_rebuild_reaches_flow(recipe: Recipe, fakes: FakeStages) -> None:
    run_recipe(recipe, log=lambda line: None)
    _ = fakes.calls
    run_recipe(recipe, log=lambda line: None, rebuild=("build-tokens",))
    assert fakes.calls == ["tokens"]


@pytest.mark.slow
def test_concurrent_steps_wait_for_their_inputs(recipe: Recipe, fakes: FakeStages) -> None:
    execution = recipe.execution.model_copy(update={"max_parallel_steps": 2})
    recipe = recipe.model_copy(update={"execution": execution})
    fakes.module.FAULTS["instances"] = [ZeroDivisionError()]
    with pytest.raises(ZeroDivisionError):
        run_recipe(recipe, log=lambda line: None)
    record = record_of(recipe)
    assert len(record["failures"]) == 1
    assert len(record["steps"]) == 4
    results = run_recipe(recipe, log=lambda line: None)
    assert [result.label for result in results] == LABELS
    assert sum(not result.was_cached for result in results) == 1
    runs = task_runs(record_of(recipe)["flow_run_id"])
    read = {name: len(run.task_inputs.get("wait_for", [])) for name, run in runs.items()}
    assert read == dict(zip(LABELS, [0, 1, 2, 2, 2], strict=True))


def test_interrupt_stops_trainings_of_other_threads(
    recipe: Recipe, fakes: FakeStages, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, results = threading.Event(), []

    def train(*_: Any, **__: Any) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        results.append(stopped.wait(5))
        raise RuntimeError("stopped")

    monkeypatch.setattr(fakes.module, "documents", train)
    monkeypatch.setattr("flows.run.run.stop_running_calls", stopped.set)
    examples = {"a": ExamplesConfig(task="cola", data_dir="cola")}
    execution = recipe.execution.model_copy(update={"max_parallel_steps": 2})
    recipe = recipe.model_copy(update={"execution": execution, "build_examples": examples})
    monkeypatch.setattr("flows.preparation.check_inputs", lambda steps: None)
    with pytest.raises(KeyboardInterrupt):
        run_recipe(recipe, log=lambda line: None)
    assert results == [True]
    assert record_of(recipe)["state"] == "interrupted"


def test_run_record_has_final_state_of_flow_run(fakes: FakeStages, tmp_path: Path) -> None:
    from prefect.client.schemas.objects import FlowRun
    from prefect.states import Cancelled, Crashed, Failed

    from flows.prefect_flows import bert_flow, mark_run_ended

    recipe = fakes.recipe(str(tmp_path / "store"))
    states = {"crashed": Crashed, "interrupted": Cancelled, "failed": Failed}
    for state, create_state in states.items():
        parameters = {"recipe": recipe.model_dump(mode="json")}
        flow_run = FlowRun(flow_id=uuid4(), parameters=parameters)
        run = prepare_run(recipe, StepGraph())
        run.flow_run_id = str(flow_run.id)
        with run:
            mark_run_ended(bert_flow, flow_run, create_state(message="its process is gone"))
            record = read_run(run.store, run.run_id)
            assert (record.state, record.failures) == (state, {"": "its process is gone"})


def test_every_stage_is_in_one_part() -> None:
    names = [stage.name for part_stages, _ in PARTS.values() for stage in part_stages]
    assert sorted(names) == sorted(stages())


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_steps_that_use_gpu_have_tag(fakes: FakeStages, tmp_path: Path, device: str) -> None:
    from flows.prefect_flows import step_task

    recipe = fakes.recipe(str(tmp_path / "store"))
    model = ModelConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=2)
    budget = BudgetConfig(max_steps=1)
    config = PretrainConfig(instances="x", model=model, budget=budget, device=device)
    step = Step("pretrain.x", stages()["pretrain"], config, {})
    task = step_task(Run(recipe, StepGraph()), step)
    assert task.name == "pretrain"
    assert task.tags == {"stage:pretrain", *(["gpu"] if device == "cuda" else [])}
