"""Execution of steps, cache keys and plans, with stages of a test."""

from __future__ import annotations

import contextlib
import errno
import json
import pkgutil
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.fake_stages import LABELS, FakeStages

from flows.bert import plan_recipe
from flows.run import executor
from flows.run.graph import UnknownStepError
from flows.run.plan import PlannedStep
from flows.run.provenance import key_environment
from flows.run.stages import STAGES, get_stage
from flows.run.step_execution import StepResult, is_transient, worker_code
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run, run_ids
from model.training.checkpoints import folder_lock
from pipelines.progress import current_step_name
from pipelines.runners.code import code_digest
from pipelines.runners.job_context import SubmittedJob, current_submission
from schemas.base_configs import Config
from schemas.corpus_configs import (
    DocumentsConfig,
    InstancesConfig,
    TextSource,
    TokensConfig,
    VocabularyConfig,
)
from schemas.errors import (
    ConfigError,
    FingerprintError,
    InputError,
    NetworkError,
    RunnerError,
    VocabularyError,
)
from schemas.execution_configs import ExecutionConfig
from schemas.manifest import Manifest, StageOutput
from schemas.recipe import Recipe

ALL = ["documents", "vocabulary", "tokens", "instances", "instances"]


def run(recipe: Recipe, rebuild: tuple[str, ...] = ()) -> list[StepResult]:
    return run_recipe(recipe, log=lambda line: None, engine="local", rebuild=rebuild)


def manifests(results: list[StepResult]) -> dict[str, Manifest]:
    return {result.label: result.manifest for result in results}


def keys(recipe: Recipe) -> dict[str, str]:
    return {label: manifest.cache_key for label, manifest in manifests(run(recipe)).items()}


def changed(recipe: Recipe, other: Recipe) -> set[str]:
    """Return the labels of the steps whose keys differ between two recipes."""
    before, after = keys(recipe), keys(other)
    return {label for label in before if before[label] != after[label]}


# The registry


def test_registered_stages_match_their_modules_and_recipe_fields() -> None:
    entries = {name.replace("_", "-") for name in Recipe.model_fields}
    for name, stage in STAGES.items():
        assert stage.name == name
        for function in (stage.run, stage.raw_inputs, stage.summarize, stage.summarize_many):
            assert not function or callable(pkgutil.resolve_name(function))
        assert stage.version >= 1
        assert key_environment(stage.libraries)
        assert get_stage(name) is stage
        assert stage.package in ("pipelines", "model")
        # Steps of most stages come from the recipe's field of that name.
        if name in entries and name != "finetune":
            annotation = Recipe.model_fields[name.replace("-", "_")].annotation
            assert stage.config.__name__ in str(annotation)
    codes = {
        stage.name: worker_code(stage) for stage in (STAGES["build-tokens"], STAGES["pretrain"])
    }
    assert codes == {"build-tokens": f"sha256:{code_digest()}", "pretrain": ""}
    for name in ("gone", "counters", "../pipelines", ""):
        with pytest.raises(ConfigError):
            get_stage(name)


# Running


def test_second_run_builds_nothing(fakes: FakeStages, root: str) -> None:
    first = run(fakes.recipe(root))
    assert fakes.calls == ALL
    assert not any(result.was_cached for result in first)
    second = run(fakes.recipe(root))
    assert fakes.calls == []
    assert all(result.was_cached for result in second)
    assert manifests(second) == manifests(first)


def test_manifest_has_inputs_configuration_and_environment(fakes: FakeStages, root: str) -> None:
    artifacts = manifests(run(fakes.recipe(root)))
    documents, tokens = artifacts["build-documents"], artifacts["build-tokens"]
    assert documents.raw_inputs[0].uri == str(fakes.raw)
    assert documents.counters["documents-dropped-too-short"] == 1
    assert documents.config["sources"][0]["paths"] == [str(fakes.raw)]
    assert "paths" not in json.dumps(documents.cache_key_inputs)
    assert documents.stage_version == documents.cache_key_inputs["stage_version"] == 1
    assert [(ref.name, ref.artifact_id) for ref in tokens.inputs] == [
        ("documents", documents.artifact_id),
        ("vocabulary", artifacts["build-vocabulary"].artifact_id),
    ]
    assert (
        tokens.environment.packages["pyarrow"] == tokens.cache_key_inputs["environment"]["pyarrow"]
    )
    assert tokens.produced_by.runner == "local"
    assert tokens.produced_by.worker_code_digest == ""  # stages of tests have no jobs


def test_run_record_has_jobs(fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, steps = fakes.module._make, list[str]()

    def submit_job(*args: Any, **kwargs: Any) -> Any:
        step = current_submission("no step")
        steps.append(current_step_name("no step"))
        job = SubmittedJob(step.name, "dataflow", f"id of {step.name}", "https://page")
        step.on_submitted(job)
        assert step.urls == (root, str(fakes.raw))
        return make(*args, **kwargs)

    monkeypatch.setattr(fakes.module, "_make", submit_job)
    run(fakes.recipe(root))
    store = ArtifactStore(root)
    (identity,) = run_ids(store)
    jobs = read_run(store, identity).jobs
    assert [job.label for job in jobs] == steps == LABELS
    assert [job.id for job in jobs] == [f"id of {job.name}" for job in jobs]


def test_failed_stage_leaves_no_artifact(fakes: FakeStages, root: str) -> None:
    fakes.module.FAULTS["tokens"] = [VocabularyError("no such piece")]
    with pytest.raises(VocabularyError):
        run(fakes.recipe(root))
    store = ArtifactStore(root)
    assert store.backend.sizes("artifacts/build-tokens") == {}
    assert {pointer.stage for pointer in store.pointers()} == {
        "build-documents",
        "build-vocabulary",
    }
    assert store.refs() == ["fake/build-documents", "fake/build-vocabulary"]
    [run_id] = run_ids(store)
    record = read_run(store, run_id)
    assert record.state == "failed"
    assert [step.label for step in record.steps] == LABELS[:2]
    assert record.failures == {"build-tokens": "VocabularyError: no such piece"}
    _ = fakes.calls
    run(fakes.recipe(root))
    assert fakes.calls == ["tokens", "instances", "instances"]


def test_failed_step_does_not_stop_independent_steps(fakes: FakeStages, root: str) -> None:
    fakes.module.FAULTS["instances"] = [InputError("first")]
    with pytest.raises(InputError):
        run(fakes.recipe(root))
    assert fakes.calls == ALL


def test_transient_error_is_retried(
    fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.run.executor.RETRY_DELAYS", (0.0, 0.0))
    fakes.module.FAULTS["tokens"] = [ConnectionResetError("reset"), TimeoutError("slow")]
    run(fakes.recipe(root))
    assert fakes.calls.count("tokens") == 3
    fakes.module.FAULTS["tokens"] = [ConnectionResetError("reset")] * 3
    with pytest.raises(ConnectionResetError):
        run(fakes.recipe(root), rebuild=("build-tokens",))
    assert fakes.calls.count("tokens") == 3


def test_transient_errors_are_those_of_network_and_disk() -> None:
    reset, wrong = ConnectionResetError("x"), ValueError("x")
    transient = [reset, TimeoutError("x"), OSError(errno.EIO, "x"), NetworkError("x")]
    numbers = (errno.ENOSPC, errno.EFBIG, errno.ENOTEMPTY, errno.ENOENT, errno.EACCES)
    permanent = [wrong, InputError("x"), RunnerError("x"), *(OSError(n, "x") for n in numbers)]
    for error in (*transient, *permanent):
        assert is_transient(error) is (error in transient), error
    for caused, cause, expected in (
        (InputError("x"), reset, False),
        (RunnerError("x"), reset, True),
        (RunnerError("x"), wrong, False),
    ):
        caused.__cause__ = cause
        assert is_transient(caused) is expected


def test_rebuild_replaces_cached_artifacts(
    fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = manifests(run(fakes.recipe(root)))
    _ = fakes.calls
    results = run(fakes.recipe(root), rebuild=("build-vocabulary",))
    second = manifests(results)
    assert fakes.calls == ["vocabulary"]
    assert second["build-vocabulary"].artifact_id != first["build-vocabulary"].artifact_id
    assert all(not result.warning for result in results)
    run(fakes.recipe(root), rebuild=("all",))
    assert fakes.calls == ALL
    run(fakes.recipe(root), rebuild=("build-instances.two",))
    assert fakes.calls == ["instances"]
    monkeypatch.setattr(fakes.module, "words", lambda text: ["other"])
    results = run(fakes.recipe(root), rebuild=("build-documents",))
    assert "same cache key" in results[0].warning
    assert run(fakes.recipe(root))[0].manifest == results[0].manifest


def test_rebuild_of_interrupted_training_starts_anew_and_its_retry_resumes(
    fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps_at_start = list[int]()

    def train(config: Config, *, work: str, **rest: Any) -> StageOutput:
        folder = Path(work)
        steps_at_start.append(len(list(folder.iterdir())))
        (folder / f"step-{len(steps_at_start)}").touch()
        if len(steps_at_start) < 3:
            raise ConnectionResetError(errno.ECONNRESET, "the disk is gone")
        return fakes.function("vocabulary")(config, **rest)

    fakes.replace("build-vocabulary", train)
    monkeypatch.setattr(executor, "RETRY_DELAYS", ())
    with pytest.raises(ConnectionResetError):
        run(fakes.recipe(root))
    monkeypatch.setattr(executor, "RETRY_DELAYS", (0, 0))
    run(fakes.recipe(root), rebuild=("build-vocabulary",))
    assert steps_at_start == [0, 0, 1]


def test_run_that_takes_over_waits_for_last_writer_of_checkpoints(
    fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of a run that lost its lease, because it was suspended, still locks the folder."""
    started = list[str]()

    def train(config: Config, *, work: str, **rest: Any) -> StageOutput:
        started.append(work)
        with folder_lock(Path(work, "checkpoints")):
            if len(started) == 1:
                raise ValueError("the first run fails")
        return fakes.function("vocabulary")(config, **rest)

    fakes.replace("build-vocabulary", train)
    with pytest.raises(ValueError, match="first run"):
        run(fakes.recipe(root))
    with contextlib.ExitStack() as suspended:
        suspended.enter_context(folder_lock(Path(started[0], "checkpoints")))

        def continue_when_waited_for(line: str) -> None:
            if "waiting for process" in line:
                assert len(started) == 1
                suspended.close()

        run_recipe(fakes.recipe(root), log=continue_when_waited_for, engine="local")
    assert len(started) == 2


def test_recipe_runs_again_after_its_store_was_deleted(fakes: FakeStages, tmp_path: Path) -> None:
    root = tmp_path / "deleted"
    for _ in range(2):
        run(fakes.recipe(str(root)))
        assert fakes.calls == ALL
        shutil.rmtree(root)


def test_unknown_step_engine_or_runner_raises_config_error(fakes: FakeStages, root: str) -> None:
    with pytest.raises(UnknownStepError) as error:
        run(fakes.recipe(root), rebuild=("build-token",))
    assert error.value.suggestion == "build-tokens"
    with pytest.raises(ConfigError):
        run_recipe(fakes.recipe(root), log=print, engine="airflow")
    with pytest.raises(ConfigError):
        run(fakes.recipe(root, execution=ExecutionConfig(runner="dask")))


# Cache keys, one test per dimension


def test_keys_change_with_raw_files_unless_output_is_equal(fakes: FakeStages, root: str) -> None:
    before = keys(fakes.recipe(root))
    _ = fakes.calls
    fakes.raw.write_text("the   CAT sat\n")  # other bytes, the same words
    after = keys(fakes.recipe(root))
    assert fakes.calls == ["documents"]
    assert {label for label in LABELS if before[label] != after[label]} == {"build-documents"}
    fakes.raw.write_text("The dog sat\n")
    last = keys(fakes.recipe(root))
    assert all(after[label] != last[label] for label in LABELS)


def test_keys_change_with_versions_of_stages_and_libraries(
    fakes: FakeStages, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys(fakes.recipe(root))
    fakes.raise_version()
    newer = keys(fakes.recipe(root))
    monkeypatch.setattr("flows.run.provenance._version", lambda name: "99.0")
    newest = keys(fakes.recipe(root))
    assert all(len({before[k], newer[k], newest[k]}) == 3 for k in LABELS)
    monkeypatch.undo()
    with pytest.raises(FingerprintError, match="no-such-library"):
        key_environment(["no-such-library"])


def test_keys_change_with_configuration(fakes: FakeStages, root: str) -> None:
    plain = fakes.recipe(root)
    sources = plain.build_documents.sources
    for name, change, expected in [
        ("build_documents", DocumentsConfig(sources=sources, min_words=9), {"build-documents"}),
        ("build_tokens", TokensConfig(remove_duplicates=False), {"build-tokens"}),
        (
            "build_instances",
            {"one": InstancesConfig(), "two": InstancesConfig(seed=3)},
            {"build-instances.two"},
        ),
        ("build_vocabulary", VocabularyConfig(min_frequency=3), {"build-vocabulary"}),
    ]:
        assert changed(plain, fakes.recipe(root, **{name: change})) == expected, name
    # The vocabulary's file is the same; its statistics, which the next stage reads, are not.
    larger = fakes.recipe(root, build_vocabulary=VocabularyConfig(vocab_size=20_000))
    assert "build-tokens" in changed(plain, larger)


def test_keys_ignore_paths_names_and_execution(
    fakes: FakeStages, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "elsewhere.txt"
    moved.write_bytes(fakes.raw.read_bytes())
    source = TextSource(name="mine", paths=(str(moved),))
    other = fakes.recipe(
        str(tmp_path / "other-store"),
        name="other-name",
        build_documents=DocumentsConfig(sources=(source,)),
        build_tokens=TokensConfig(word_cache_size=7),
        execution=ExecutionConfig(runner="portable", beam_options=("--job_endpoint=localhost:1",)),
    )
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", "1")
    assert changed(fakes.recipe(root), other) == set()


# Plans


def states(planned: list[PlannedStep]) -> list[str]:
    return [step.state for step in planned]


def test_plan_has_states_and_changes_nothing(fakes: FakeStages, root: str) -> None:
    recipe = fakes.recipe(root)
    planned = plan_recipe(recipe, store=None)
    assert states(planned) == ["build", *["unknown"] * 4]
    artifacts = manifests(run(recipe))
    _ = fakes.calls
    store = ArtifactStore(root)
    before = store.backend.sizes("keys")
    planned = plan_recipe(recipe, store=store)
    assert states(planned) == ["cached"] * 5
    assert planned[0].cache_key == artifacts["build-documents"].cache_key
    assert planned[4].artifact_id == artifacts["build-instances.two"].artifact_id
    assert fakes.calls == []
    assert store.backend.sizes("keys") == before


def test_plan_has_reasons(fakes: FakeStages, root: str) -> None:
    run(fakes.recipe(root))
    store = ArtifactStore(root)
    other = {"one": InstancesConfig(seed=7), "two": InstancesConfig(seed=2)}
    planned = plan_recipe(fakes.recipe(root, build_instances=other), store=store)
    assert states(planned) == ["cached", "cached", "cached", "build", "cached"]
    assert planned[3].reason.startswith("seed 0 -> 7 (compared with")
    fakes.raw.write_text("other\n")
    assert f"{fakes.raw.name} changed" in plan_recipe(fakes.recipe(root), store=store)[0].reason
    fakes.raise_version()
    assert "stage_version 1 -> 2" in plan_recipe(fakes.recipe(root), store=store)[0].reason


def test_plan_has_rebuilds_and_corrupt_artifacts(fakes: FakeStages, root: str) -> None:
    recipe = fakes.recipe(root)
    artifacts = manifests(run(recipe))
    store = ArtifactStore(root)
    planned = plan_recipe(recipe, store=store, rebuild=("build-tokens",))
    assert states(planned) == ["cached", "cached", "build", "cached", "cached"]
    assert planned[2].reason == "--rebuild"
    tokens = artifacts["build-tokens"]
    store.backend.delete(f"{tokens.data_path}/{tokens.files[0].stored_name}")
    planned = plan_recipe(recipe, store=store)
    assert states(planned) == ["cached", "cached", "build", "unknown", "unknown"]
    assert "part-00000.txt" in planned[2].reason
    pointer = store.pointer("build-tokens", tokens.cache_key)
    assert pointer is not None
    store.quarantine(pointer.path, expected=pointer.to_json(), reason="damaged")
    assert "was quarantined" in plan_recipe(recipe, store=store)[2].reason
