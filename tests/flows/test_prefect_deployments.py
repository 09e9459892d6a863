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


class Scheduled:
    """Deployment `nightly` of a recipe that needs seconds."""

    def __init__(self, server: PrefectServer, folder: Path) -> None:
        self.server = server
        self.store = str(folder / "store")
        recipe = folder / "recipe.yaml"
        recipe.write_text(yaml.safe_dump(tiny_recipe(folder)), encoding="utf-8")
        # The deployment of the repository with other parameters and another schedule.
        deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
        (nightly,) = [d for d in deployments["deployments"] if d["name"] == "nightly"]
        nightly["parameters"] = {"recipe": str(recipe), "store": self.store}
        nightly["schedules"] = [{"slug": "nightly", "interval": 10}]
        file = folder / "prefect.yaml"
        file.write_text(yaml.safe_dump({**deployments, "deployments": [nightly]}))
        server.command("work-pool", "create", nightly["work_pool"]["name"], "--type", "process")
        server.start("worker", "start", "--pool", nightly["work_pool"]["name"])
        server.command("deploy", "--all", "--prefect-file", str(file))
        (self.deployment,) = server.post("/deployments/filter")

    def runs(self, *states: str) -> list[dict[str, Any]]:
        return self.server.flow_runs(states=states)

    def pause(self) -> None:
        """Stop the schedule and wait for its runs: only one run of the deployment is allowed."""
        self.server.post(f"/deployments/{self.deployment['id']}/pause_deployment")
        unfinished = ("SCHEDULED", "PENDING", "RUNNING")
        self.server.wait_for("end of all runs", lambda: not self.runs(*unfinished))

    def start(self, **parameters: Any) -> str:
        """Start a run with additional parameters; return its id."""
        path = f"/deployments/{self.deployment['id']}/create_flow_run"
        parameters = {**self.deployment["parameters"], **parameters}
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

        record: RunRecord = self.server.wait_for("running record", look)
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
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduled]:
    folder = tmp_path_factory.mktemp("scheduled")
    with running(folder) as server:
        yield Scheduled(server, folder)


def test_second_scheduled_run_is_cached(scheduled: Scheduled) -> None:
    server = scheduled.server
    completed: list[dict[str, Any]] = server.wait_for(
        "two completed runs", lambda: (r := scheduled.runs("COMPLETED"))[1:] and r
    )
    scheduled.pause()
    assert not scheduled.runs("FAILED", "CRASHED")
    first, second = (scheduled.record(run["id"]) for run in completed[:2])
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


def test_automation_is_accepted_by_server(scheduled: Scheduled) -> None:
    file = ROOT / "flows" / "automations.yaml"
    scheduled.server.command("automation", "create", "--from-file", str(file))
    (automation,) = scheduled.server.post("/automations/filter")
    assert automation["actions"][0]["type"] == "change-flow-run-state"
    assert automation["trigger"]["within"] == 70


def test_cancelled_flow_run_stops_training_and_marks_record(scheduled: Scheduled) -> None:
    flow_run_id = scheduled.start(overrides=["pretrain.tiny.budget.max_steps=1000000"])
    work = Path(scheduled.store) / "work" / "pretrain"
    scheduled.server.wait_for("training", lambda: list(work.glob("*/reading.json")))
    assert trainings(work)
    state = {"type": "CANCELLING", "name": "Cancelling"}
    scheduled.server.post(f"/flow_runs/{flow_run_id}/set_state", state=state, force=True)
    assert scheduled.server.ended(flow_run_id)["state_type"] == "CANCELLED"
    record: RunRecord = scheduled.server.wait_for(
        "interrupted record",
        lambda: (r := scheduled.record(flow_run_id)) and r.state != "running" and r,
    )
    assert record.state == "interrupted"
    assert not trainings(work)
    assert list(work.glob("*/checkpoints/*"))  # the next run resumes from them


def trainings(work: Path) -> list[str]:
    """Return the command lines of processes that train in a folder."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            if str(work).encode() in (words := path.read_bytes()):
                commands.append(words.decode().replace("\0", " "))
    return commands


def test_killed_flow_run_is_marked_as_crashed_and_retry_completes(scheduled: Scheduled) -> None:
    flow_run_id = scheduled.start(rebuild=["build-documents"])
    os.kill(scheduled.running_record(flow_run_id).pid, signal.SIGKILL)
    assert scheduled.server.ended(flow_run_id)["state_type"] == "CRASHED"
    record: RunRecord = scheduled.server.wait_for(
        "crashed record",
        lambda: (r := scheduled.record(flow_run_id)) and r.state == "crashed" and r,
    )
    assert "SIGKILL" in record.failures[""]
    assert _retried(scheduled.server, flow_run_id) == "COMPLETED"
    again = scheduled.record(flow_run_id)
    assert again is not None
    assert again.run_id != record.run_id
    assert again.state == "completed"
    assert _is_whole(scheduled.store)


def _retried(server: PrefectServer, flow_run_id: str) -> str:
    """Retry a flow run until Prefect accepts it; return the type of its final state.

    Prefect frees the slot of a crashed run some time after the crash, and cancels earlier retries.
    """

    def look() -> str | None:
        server.command("flow-run", "retry", flow_run_id)
        state: str = server.ended(flow_run_id)["state_type"]
        return None if state == "CANCELLED" else state

    state_type: str = server.wait_for("accepted retry", look, seconds=400)
    return state_type


def _is_whole(store: str) -> bool:
    """Return whether all files of a store have the digests of their manifests."""
    from flows.store.verification import verify

    opened = ArtifactStore(store)
    return all(verdict.is_ok for verdict in verify(opened, opened.pointers(), deep=True))
