"""Schedules, cancellation, crashes and retries, with a Prefect server, work pool and worker."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.corpus_builder import small_recipe
from support.prefect_server import ROOT, PrefectServer, running
from support.training_builder import TINY

from flows.sample import write_sample
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, read_run, run_ids
from schemas.recipe import Recipe

pytestmark = [pytest.mark.slow, pytest.mark.network]
LABELS = [
    "build-documents",
    "build-vocabulary",
    "build-tokens",
    "build-instances.length-64",
    "pretrain.tiny",
]


class Deployments:
    """Deployments `nightly` and `manual` of a recipe that needs seconds, with one store.

    Prefect can still schedule runs of a deployment that has just been paused, and cancels a run
    while another one has the slot of the deployment: only `nightly` has a schedule and a limit.
    """

    def __init__(self, server: PrefectServer, folder: Path) -> None:
        self.server = server
        self.store = str(folder / "store")
        recipe = folder / "recipe.yaml"
        recipe.write_text(yaml.safe_dump(tiny_recipe(folder)), encoding="utf-8")
        # The deployment of the repository with other parameters and another schedule.
        deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
        (nightly,) = [d for d in deployments["deployments"] if d["name"] == "nightly"]
        set_directory, write_small_sample = nightly["pull"]
        self.pulled = folder / "pulled"
        write_small_sample["flows.sample.write_sample"].update(
            folder=str(self.pulled), articles=1, tales=0
        )
        manual = {
            **nightly,
            "name": "manual",
            "schedules": [],
            "concurrency_limit": None,
            "pull": [set_directory],
        }
        nightly["schedules"] = [{"slug": "nightly", "interval": 10}]
        for deployment in (nightly, manual):
            deployment["parameters"] = {"recipe": str(recipe), "store": self.store}
        file = folder / "prefect.yaml"
        file.write_text(yaml.safe_dump({**deployments, "deployments": [nightly, manual]}))
        server.command("work-pool", "create", nightly["work_pool"]["name"], "--type", "process")
        server.start("worker", "start", "--pool", nightly["work_pool"]["name"])
        server.command("deploy", "--all", "--prefect-file", str(file))
        deployed = {item["name"]: item for item in server.post("/deployments/filter")}
        self.nightly, self.manual = deployed["nightly"], deployed["manual"]

    def scheduled_runs(self, *states: str) -> list[dict[str, Any]]:
        """Return the runs of `nightly` in some states, the first to start first."""
        runs = self.server.flow_runs(states=states)
        return [run for run in runs if run["deployment_id"] == self.nightly["id"]]

    def pause(self) -> None:
        """Stop the schedule, which would slow down the other tests."""
        self.server.post(f"/deployments/{self.nightly['id']}/pause_deployment")

    def start(self, **parameters: Any) -> str:
        """Start a run of `manual` with additional parameters; return its id."""
        path = f"/deployments/{self.manual['id']}/create_flow_run"
        parameters = {**self.manual["parameters"], **parameters}
        run: dict[str, Any] = self.server.post(path, parameters=parameters)
        return str(run["id"])

    def record(self, flow_run_id: str) -> RunRecord | None:
        """Return the newest record of a flow run."""
        store = ArtifactStore(self.store)
        records = [read_run(store, run_id) for run_id in run_ids(store)]
        own = [record for record in records if record.flow_run_id == flow_run_id]
        return own[-1] if own else None

    def running_record(self, flow_run_id: str) -> RunRecord:
        """Wait until the run has started, and return its record."""

        def look() -> RunRecord | None:
            record = self.record(flow_run_id)
            return record if record and record.state == "running" else None

        record: RunRecord = self.server.wait_for("running record", look, poll_seconds=0.05)
        return record


def tiny_recipe(folder: Path) -> dict[str, Any]:
    """Return a recipe with a corpus of a few pages and a pretraining of a few steps."""
    sample = write_sample(str(folder / "sample"), articles=40, tales=1, pages_per_stream=20)
    recipe: Recipe = small_recipe(sample)
    written = recipe.model_dump(mode="json", exclude={"store", "execution"})
    written["pretrain"] = {
        "tiny": {
            "instances": "length-64",
            "model": TINY,
            "budget": {"max_steps": 2},
            "batch": {"global_batch_size": 4, "per_device_max_tokens": 256},
            "evaluation": {"max_eval_samples": 4},
            "num_threads": 1,
        }
    }
    return written


@pytest.fixture(scope="module")
def deployments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployments]:
    folder = tmp_path_factory.mktemp("scheduled")
    with running(folder) as server:
        yield Deployments(server, folder)


def test_second_scheduled_run_is_cached(deployments: Deployments) -> None:
    server = deployments.server
    completed: list[dict[str, Any]] = server.wait_for(
        "two completed runs", lambda: (r := deployments.scheduled_runs("COMPLETED"))[1:] and r
    )
    deployments.pause()
    assert (deployments.pulled / "tasks").is_dir()
    assert not deployments.scheduled_runs("FAILED", "CRASHED")
    first, second = (deployments.record(run["id"]) for run in completed[:2])
    assert first is not None
    assert second is not None
    assert [step.label for step in first.steps] == LABELS
    assert not any(step.was_cached for step in first.steps)
    assert [step.manifest for step in second.steps] == [step.manifest for step in first.steps]
    assert all(step.was_cached for step in second.steps)
    assert all(run["auto_scheduled"] for run in completed[:2])
    states = server.task_states(completed[0]["id"])
    assert states == dict.fromkeys(LABELS, "Completed")
    graph = server.client.get(f"/flow_runs/{completed[0]['id']}/graph-v2").json()
    nodes = {node["label"]: node for _, node in graph["nodes"]}
    parents = {parent["id"] for parent in nodes["pretrain.tiny"]["parents"]}
    read = ("build-vocabulary", "build-instances.length-64")
    assert parents == {nodes[label]["id"] for label in read}
    shown = {(item["type"], item["key"]) for item in server.post("/artifacts/filter")}
    stages = [label.partition(".")[0] for label in LABELS]
    assert shown == {("markdown", f"test-{stage}") for stage in stages} | {("markdown", "run-test")}
    states = server.wait_for(
        "states of the tasks",
        lambda: (s := server.task_states(completed[1]["id"])) and len(s) == len(LABELS) and s,
    )
    assert states == dict.fromkeys(LABELS, "Cached")


def test_automation_is_accepted_by_server(deployments: Deployments) -> None:
    file = ROOT / "flows" / "automations.yaml"
    deployments.server.command("automation", "create", "--from-file", str(file))
    (automation,) = deployments.server.post("/automations/filter")
    assert automation["actions"][0]["type"] == "change-flow-run-state"
    assert automation["trigger"]["within"] == 70


def test_cancelled_flow_run_stops_training_and_marks_record(deployments: Deployments) -> None:
    flow_run_id = deployments.start(overrides=["pretrain.tiny.budget.max_steps=1000000"])
    work = Path(deployments.store) / "work" / "pretrain"
    deployments.server.wait_for("training", lambda: list(work.glob("*/reading.json")))
    assert trainings(work)
    state = {"type": "CANCELLING", "name": "Cancelling"}
    deployments.server.post(f"/flow_runs/{flow_run_id}/set_state", state=state, force=True)
    assert deployments.server.ended(flow_run_id)["state_type"] == "CANCELLED"
    record: RunRecord = deployments.server.wait_for(
        "interrupted record",
        lambda: (r := deployments.record(flow_run_id)) and r.state != "running" and r,
    )
    assert record.state == "interrupted"
    assert not trainings(work)
    assert list(work.glob("*/checkpoints/*"))  # the next run resumes from them


def trainings(work: Path) -> set[int]:
    """Return the worker processes that have files of a folder open."""
    workers = set[int]()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            is_worker = b"model.training.worker_process" in (process / "cmdline").read_bytes()
            if is_worker and any(work in file.readlink().parents for file in process.glob("fd/*")):
                workers.add(int(process.name))
    return workers


def retry(flow_run_id: str, server: PrefectServer) -> dict[str, Any]:
    """Retry a flow run, and return it once it has ended."""
    server.command("flow-run", "retry", flow_run_id)
    return server.ended(flow_run_id)


def test_killed_flow_run_is_marked_as_crashed_and_retry_completes(deployments: Deployments) -> None:
    flow_run_id = deployments.start(rebuild=["build-documents"])
    os.kill(deployments.running_record(flow_run_id).pid, signal.SIGKILL)
    assert deployments.server.ended(flow_run_id)["state_type"] == "CRASHED"
    record: RunRecord = deployments.server.wait_for(
        "crashed record",
        lambda: (r := deployments.record(flow_run_id)) and r.state == "crashed" and r,
    )
    assert "SIGKILL" in record.failures[""]
    ended = retry(flow_run_id, deployments.server)
    if str(ended["state"]["message"]).startswith("Flow run infrastructure exited"):
        # The worker reported the killed process after the retry, and so replaced its state.
        ended = retry(flow_run_id, deployments.server)
    assert ended["state_type"] == "COMPLETED"
    again = deployments.record(flow_run_id)
    assert again is not None
    assert again.run_id != record.run_id
    assert again.state == "completed"
    assert _is_whole(deployments.store)


def _is_whole(store: str) -> bool:
    """Return whether all files of a store have the digests of their manifests."""
    from flows.store.verification import verify

    opened = ArtifactStore(store)
    return all(verdict.is_ok for verdict in verify(opened, opened.pointers(), deep=True))
