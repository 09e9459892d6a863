"""Flows on a Prefect server, which all tests of this module share."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from support.fake_stages import LABELS, FakeStages

from flows.artifact_markdown import browser_url, run_markdown, stage_markdown
from flows.bert import PARTS, recipe_steps
from flows.preparation import prepare_run
from flows.recipes.loader import recipe_from
from flows.run.executor import local_executor, run_steps
from flows.run.graph import Step, StepGraph
from flows.run.run import Run
from flows.run.stages import STAGES
from flows.run.step_execution import StepResult
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run, run_ids
from pipelines.wordpiece.vocab_files import FIXED_TOKENS, vocab_text
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
    deadline = time.monotonic() + 300  # the server records task runs asynchronously
    with get_client(sync_client=True) as client:
        while True:
            runs = client.read_task_runs(flow_run_filter=chosen)
            ended_runs = [run for run in runs if run.state and run.state.is_final()]
            if len(ended_runs) >= ended or time.monotonic() > deadline:
                return {run.name: run for run in runs}
            time.sleep(0.1)


def inputs_of(runs: dict[str, Any]) -> list[int]:
    """Return the number of inputs of the task run of each step."""
    return [len(runs[label].task_inputs.get("wait_for", [])) for label in LABELS]


def artifacts() -> dict[str, Any]:
    """Return the newest artifact of each key."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.sorting import ArtifactSort

    with get_client(sync_client=True) as client:
        artifacts = client.read_artifacts(sort=ArtifactSort.CREATED_DESC)
        return {item.key: item for item in reversed(artifacts) if item.key}


def test_second_flow_run_has_cached_states(
    recipe: Recipe, fakes: FakeStages, tmp_path: Path
) -> None:
    lines: list[str] = []
    first = run_recipe(recipe, log=lines.append, engine="prefect")
    assert [result.label for result in first] == LABELS
    assert fakes.calls == ["documents", "vocabulary", "tokens", "instances", "instances"]
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == LABELS
    record = record_of(recipe)
    assert record["state"] == "completed"
    runs = task_runs(record["flow_run_id"])
    assert {name: run.state.name for name, run in runs.items()} == dict.fromkeys(
        LABELS, "Completed"
    )
    assert inputs_of(runs) == [0, 1, 2, 2, 2]
    assert {name: run.tags for name, run in runs.items()} == {
        label: [f"stage:{label.partition('.')[0]}"] for label in LABELS
    }
    shown = artifacts()
    assert shown["fake-build-tokens"].description == "build-tokens: 1 file"
    assert shown["run-fake"].description == "fake: 5 steps, 5 built"
    assert f"[Report](file://{recipe.store}/runs/{record['run_id']}/report.html)" in (
        shown["run-fake"].data
    )

    second = run_recipe(recipe, log=lines.append, engine="prefect")
    assert fakes.calls == []
    assert [result.manifest for result in second] == [result.manifest for result in first]
    assert all(result.was_cached for result in second)
    runs = task_runs(record_of(recipe)["flow_run_id"])
    assert {name: run.state.name for name, run in runs.items()} == dict.fromkeys(LABELS, "Cached")

    elsewhere = recipe.model_copy(update={"store": str(tmp_path / "local")})
    local = run_recipe(elsewhere, log=lines.append, engine="local")
    for one, other in zip(first, local, strict=True):
        assert one.manifest.cache_key == other.manifest.cache_key
        assert one.manifest.content_digest == other.manifest.content_digest


def test_user_error_is_not_retried_and_is_state_message(recipe: Recipe, fakes: FakeStages) -> None:
    from prefect.client.orchestration import get_client

    fakes.module.FAULTS["vocabulary"] = [VocabularyError("too small a corpus")]
    lines: list[str] = []
    logged: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = logged.append  # type: ignore[method-assign]
    loggers = [logging.getLogger(name) for name in ("prefect.flow_runs", "prefect.task_runs")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with pytest.raises(VocabularyError):
            run_recipe(recipe, log=lines.append, engine="prefect")
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    texts = [record.getMessage() for record in logged]
    assert "Finished in state Failed('too small a corpus')" in texts
    assert not [record for record in logged if record.exc_info]  # no traceback
    assert fakes.calls == ["documents", "vocabulary"]
    assert "build-vocabulary  FAILED: too small a corpus" in lines
    record = record_of(recipe)
    assert record["state"] == "failed"
    assert list(record["failures"]) == ["build-vocabulary"]
    assert [step["label"] for step in record["steps"]] == ["build-documents"]
    # On Prefect's pages the sentence comes first: of the run, of the step, in the summary.
    with get_client(sync_client=True) as client:
        flow_run = client.read_flow_run(UUID(record["flow_run_id"]))
    assert flow_run.state.message == "too small a corpus"
    state = task_runs(record["flow_run_id"], ended=2)["build-vocabulary"].state
    assert (state.type.value, state.message) == ("FAILED", "too small a corpus")
    shown = artifacts()["run-fake"].data
    assert shown.startswith("**build-vocabulary** failed: too small a corpus\n")


def test_transient_error_is_retried(
    recipe: Recipe, fakes: FakeStages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.prefect_flows.RETRY_DELAYS", (0, 0))
    fakes.module.FAULTS["tokens"] = [ConnectionResetError("reset")]
    run_recipe(recipe, log=lambda line: None, engine="prefect")
    assert fakes.calls.count("tokens") == 2


@pytest.mark.slow
def test_concurrent_steps_wait_for_their_inputs(recipe: Recipe, fakes: FakeStages) -> None:
    execution = recipe.execution.model_copy(update={"max_parallel_steps": 2})
    recipe = recipe.model_copy(update={"execution": execution})
    fakes.module.FAULTS["instances"] = [ZeroDivisionError()]
    with pytest.raises(ZeroDivisionError):
        run_recipe(recipe, log=lambda line: None, engine="prefect")
    record = record_of(recipe)
    assert len(record["failures"]) == 1
    assert len(record["steps"]) == 4
    results = run_recipe(recipe, log=lambda line: None, engine="prefect")
    assert [result.label for result in results] == LABELS
    assert sum(not result.was_cached for result in results) == 1
    runs = task_runs(record_of(recipe)["flow_run_id"])
    assert inputs_of(runs) == [0, 1, 2, 2, 2]


def test_interrupt_stops_trainings_of_other_threads(
    recipe: Recipe, fakes: FakeStages, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\na b\t0\nc d\t1\n")
    stopped, results = threading.Event(), []

    def train(*_: Any, **__: Any) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        results.append(stopped.wait(300))
        raise RuntimeError("stopped")

    monkeypatch.setattr(fakes.module, "documents", train)
    monkeypatch.setattr("flows.run.run.stop_running_calls", stopped.set)
    examples = {"a": ExamplesConfig(task="single-sentence", data_dir=str(tmp_path))}
    execution = recipe.execution.model_copy(update={"max_parallel_steps": 2})
    recipe = recipe.model_copy(update={"execution": execution, "build_examples": examples})
    with pytest.raises(KeyboardInterrupt):
        run_recipe(recipe, log=lambda line: None, engine="prefect")
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
        run = prepare_run(recipe, StepGraph(), store=None)
        run.flow_run_id = str(flow_run.id)
        with run:
            mark_run_ended(bert_flow, flow_run, create_state(message="its process is gone"))
            record = read_run(run.store, run.run_id)
            assert (record.state, record.failures) == (state, {"": "its process is gone"})


def test_sweep_of_100_variants_fits_into_flow_parameters(
    prefect_server: None, fakes: FakeStages, tmp_path: Path
) -> None:
    from prefect.client.orchestration import get_client

    variants = {f"seed-{n}": {"build_instances.*.seed": n} for n in range(100)}
    data = {
        **fakes.recipe(str(tmp_path / "store")).model_dump(mode="json"),
        "sweep": {"seeds": {"variants": variants}},
    }
    data["build_instances"] = {f"entry-{n}": {} for n in range(15)}
    del data["expanded_sweep"]
    recipe = recipe_from(data, where="test", folder=tmp_path)
    assert len(recipe.build_instances) == 1500
    assert len(json.dumps(recipe.model_dump(mode="json"))) > 512_000
    run_recipe(recipe, log=lambda line: None, engine="prefect", until="build-documents")
    with get_client(sync_client=True) as client:
        flow_run = client.read_flow_run(UUID(record_of(recipe)["flow_run_id"]))
    assert flow_run.parameters["until"] == "build-documents"
    assert len(json.dumps(flow_run.parameters)) < 512_000
    assert fakes.calls == ["documents"]


def test_every_stage_is_in_one_part() -> None:
    names = [name for part in PARTS.values() for name in part]
    assert sorted(names) == sorted(STAGES)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_steps_that_use_gpu_have_tag(fakes: FakeStages, tmp_path: Path, device: str) -> None:
    from flows.prefect_flows import step_task

    recipe = fakes.recipe(str(tmp_path / "store"))
    model = ModelConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=2)
    budget = BudgetConfig(max_steps=1)
    config = PretrainConfig(instances="x", model=model, budget=budget, device=device)
    step = Step("pretrain.x", STAGES["pretrain"], config, {})
    task = step_task(Run(recipe, StepGraph()), step)
    assert task.name == "pretrain"
    assert task.tags == {"stage:pretrain", *(["gpu"] if device == "cuda" else [])}


@pytest.fixture
def run(fakes: FakeStages, tmp_path: Path) -> Run:
    """A run that has built every step."""
    recipe = fakes.recipe(str(tmp_path / "store"))
    run = prepare_run(recipe, recipe_steps(recipe), store=None)
    with local_executor(run) as submit:
        run_steps(run, submit)
    return run


def with_manifest(result: StepResult, **changes: Any) -> StepResult:
    return result._replace(manifest=result.manifest.model_copy(update=changes))


def test_artifact_of_stage_has_tree_and_card_and_escapes_text(run: Run) -> None:
    result = run.step_results["build-tokens"]
    text = stage_markdown([result], run=run)
    tree = text.partition("```text\n")[2].partition("\n```")[0].splitlines()
    assert tree[0].startswith(f"build-tokens {result.manifest.artifact_id}")
    [raw] = [line for line in tree if "raw.txt" in line]
    assert raw.index("raw.txt") > 4  # indented below the documents
    assert "mermaid" not in text
    assert "| `build-documents` | documents | 4 | 3 | 1 | too-short 1 |" in text  # of its card
    hostile = stage_markdown([result._replace(label="a|b <script>\n`x`")], run=run)
    assert "| a\\|b &lt;script> 'x' |" in hostile


def test_artifact_of_stage_without_card_and_of_several_steps_has_tree(run: Run) -> None:
    for label in ("build-vocabulary", "build-instances.two"):
        stage = run.step_results[label].manifest.stage
        results = [item for item in run.results() if item.manifest.stage == stage]
        text = stage_markdown(results, run=run)
        assert f"Lineage of {label}:" in text
        assert "raw.txt" in text
        assert "License" not in text


@pytest.mark.parametrize(
    ("address", "endpoint", "url"),
    [
        ("/data/a store/run.html", "", "file:///data/a%20store/run.html"),
        (
            "s3://b/store/r\u00fcn.html",
            "",
            "https://console.aws.amazon.com/s3/object/b?prefix=store/r%C3%BCn.html",
        ),
        ("s3://b/store/run.html", "http://minio:9000/", "http://minio:9000/b/store/run.html"),
        ("gs://b/s/run.html", "http://minio:9000", "https://storage.cloud.google.com/b/s/run.html"),
        ("memory://b/run.html", "", ""),
    ],
)
def test_browser_url_is_one_that_a_browser_opens(
    address: str, endpoint: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert browser_url(address) == url


def test_summary_shows_failures_first_then_results(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.failures["evaluate.cola"] = ValueError("no such file: cola/dev.tsv")
    statistics = {"held_out": {"perplexity": 12.5, "is_best": True}, "model": {"hidden_size": 2}}
    trained = with_manifest(
        run.step_results["build-vocabulary"],
        stage="pretrain",
        statistics=statistics,
        counters={"steps": 7},
    )
    run.step_results["build-vocabulary"] = trained
    text = run_markdown(run, title="fake: 5 steps")
    assert text.startswith("**evaluate.cola** failed: no such file: cola/dev.tsv\n\n")
    path = f"runs/{run.run_id}/report.html"
    assert f"[Report](file://{run.store.root}/{path})" in text
    assert "| build-vocabulary | 7 steps, held-out perplexity 12.50 |" in text
    monkeypatch.setattr(run.store, "url", lambda path: f"gs://bucket/store/{path}")
    text = run_markdown(run, title="fake: 5 steps")
    assert f"[Report](https://storage.cloud.google.com/bucket/store/{path})" in text
    assert f"`gs://bucket/store/{path}`" in text
    monkeypatch.setattr(run.store, "url", lambda path: f"memory://store/{path}")
    assert f"Report: `memory://store/{path}`" in run_markdown(run, title="fake: 5 steps")


@pytest.mark.parametrize("missing", ["one.txt", "vocab.txt"])
def test_flow_refuses_missing_path_before_first_step(
    prefect_server: None, missing: str, tmp_path: Path
) -> None:
    """A deployment calls the flow itself, without the checks of the command."""
    from flows.prefect_flows import bert_flow

    (tmp_path / "one.txt").write_text("A sentence of a book. And one more of them.\n")
    (tmp_path / "vocab.txt").write_text(vocab_text([*FIXED_TOKENS, "a", "##b"]))
    (tmp_path / missing).unlink()
    source = {"kind": "text", "name": "t", "paths": [str(tmp_path / "one.txt")]}
    recipe = {
        "name": "checked",
        "store": str(tmp_path / "store"),
        "build_documents": {"sources": [source]},
        "build_vocabulary": {"vocab_file": str(tmp_path / "vocab.txt")},
    }
    state = bert_flow(recipe=recipe, return_state=True)
    assert state.is_failed()
    assert str(tmp_path / missing) in state.message
    assert task_runs(str(state.state_details.flow_run_id), ended=0) == {}
    assert not list((tmp_path / "store").glob("**/manifest*.json"))
    assert not list((tmp_path / "store").glob("runs/*"))
