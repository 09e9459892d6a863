"""A job on Dataflow, against a stand-in of its API: every field, following, cancelling, the end.

Skips where Google's client is not installed: `pip install 'bertloom[dataflow]'`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.dataflow", reason="no Dataflow client: bertloom[dataflow]")

import apache_beam as beam
import google.auth
from google.oauth2.credentials import Credentials
from support.corpus_builder import digests, run_corpus, small_recipe, small_sample
from support.fake_dataflow import FakeDataflow

from pipelines.runners import engine
from pipelines.runners.job_context import Submission, SubmittedJob, job_name, submission_scope
from pipelines.runners.registry import get_runner
from pipelines.runners.worker_package import package_name, write_worker_package
from schemas.errors import ConfigError, RunnerError
from schemas.execution_configs import ExecutionConfig

pytestmark = pytest.mark.network

NAME = job_name("english", "build-documents", key="0123456789abcdef" * 4)
STORE = "gs://bucket/store"
CAUSE = "schemas.errors.InputError: gs://bucket/a.bz2: cut"
TRACEBACK = f"""Error received from SDK harness for instruction 4: \
Traceback (most recent call last):
  File "sdk_worker.py", line 1, in process
{CAUSE} at byte 7 [while running 'DoWork']
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDataflow]:
    with FakeDataflow() as started:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", started.url)
        credentials = (Credentials(token="a-secret-token"), "project-1")
        monkeypatch.setattr(google.auth, "default", lambda **_: credentials)
        monkeypatch.setattr(engine, "POLL_SECONDS", 0.05)
        yield started


def execution(server: FakeDataflow, *options: str, **fields: Any) -> ExecutionConfig:
    needed = {
        "project": "project-1",
        "region": "europe-west1",
        "temp_location": "gs://bucket/temp",
        "endpoint": server.url,
    }
    return ExecutionConfig.model_validate(
        {"runner": "dataflow", "beam_options": options, "dataflow": {**needed, **fields}}
    )


class Heard(Submission):
    """Submission that records its messages."""

    def __init__(self) -> None:
        self.jobs: list[SubmittedJob] = []
        self.lines: list[str] = []
        super().__init__(
            NAME,
            on_submitted=self.jobs.append,
            log=self.lines.append,
            urls=(STORE, "gs://bucket/dump.bz2"),
        )

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def build(pipeline: beam.Pipeline) -> None:
    _ = pipeline | "Numbers" >> beam.Create([1, 2]) | "Text" >> beam.Map(str)


def submit(how: ExecutionConfig, heard: Heard | None = None) -> Heard:
    heard = heard or Heard()
    with submission_scope(heard):
        get_runner(how).run("build-documents", build)
    return heard


# The job, field by field


def test_every_field_of_the_configuration_is_in_the_job(server: FakeDataflow) -> None:
    server.begin = server.finish
    how = execution(
        server,
        "--dataflow_service_options=enable_prime",
        staging_location="gs://bucket/staging",
        service_account_email="workers@project-1.iam.gserviceaccount.com",
        machine_type="n2-standard-8",
        disk_size_gb=50,
        max_num_workers=16,
        subnetwork="regions/europe-west1/subnetworks/mine",
        network="mine",
        use_public_ips=False,
        flexrs_goal="cost",
        number_of_worker_harness_threads=2,
        image="gcr.io/project-1/bertloom:1",
    )
    submit(how)
    (job,) = server.jobs.values()
    request = "POST /v1b3/projects/project-1/locations/europe-west1/jobs"
    assert request in server.asked
    assert job["name"] == NAME
    environment = job["environment"]
    assert environment["version"] == {"job_type": "FNAPI_BATCH", "major": "8"}
    assert environment["userAgent"]["version"] == beam.__version__
    assert environment["serviceAccountEmail"] == "workers@project-1.iam.gserviceaccount.com"
    assert environment["flexResourceSchedulingGoal"] == 2  # FLEXRS_COST_OPTIMIZED
    assert environment["tempStoragePrefix"].startswith("storage.googleapis.com/bucket/temp/")
    assert environment["serviceOptions"] == ["enable_prime"]
    (pool,) = environment["workerPools"]
    expected = {
        "machineType": "n2-standard-8",
        "diskSizeGb": 50,
        "network": "mine",
        "subnetwork": "regions/europe-west1/subnetworks/mine",
        "ipConfiguration": 2,  # WORKER_IP_PRIVATE
        "numThreadsPerWorker": 2,
        "workerHarnessContainerImage": "gcr.io/project-1/bertloom:1",
    }
    assert {name: pool[name] for name in expected} == expected
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 16
    assert not pool.get("packages")
    (identity,) = server.jobs
    options = server.options(identity)
    assert options["pipelineUrl"].startswith(f"gs://bucket/staging/{NAME}.")
    assert options["save_main_session"] is False
    assert "a-secret-token" not in str(job)


def test_job_ships_the_worker_package_by_default(server: FakeDataflow, tmp_path: Path) -> None:
    server.begin = server.finish
    submit(execution(server))
    (identity,) = server.jobs
    packages = server.packages(identity)
    expected = write_worker_package(tmp_path, file_systems=["gcsfs"])
    assert packages[package_name()] == expected.read_bytes()
    assert packages["extra_packages.txt"].decode().split() == [package_name()]
    graph = server.graph(identity).components
    names = {transform.unique_name for transform in graph.transforms.values()}
    assert {"Numbers", "Text"} <= {name.split("/")[0] for name in names}
    (environment,) = graph.environments.values()
    assert environment.urn == "beam:env:docker:v1"
    assert len(environment.dependencies) == 2


def test_dry_run_prints_the_options_of_the_submitted_job(server: FakeDataflow) -> None:
    server.begin = server.finish
    how = execution(server, max_num_workers=3, disk_size_gb=40)
    lines = get_runner(how).describe([STORE])
    submit(how)
    (identity,) = server.jobs
    options = server.options(identity)
    said = dict(line.strip().removeprefix("--").partition("=")[::2] for line in lines[1:-1])
    assert said.pop("no_save_main_session") == ""
    assert said.pop("extra_package") == package_name()
    assert [Path(path).name for path in options["extra_packages"]] == [package_name()]
    assert options["temp_location"].startswith(f"{said.pop('temp_location')}/{NAME}.")
    machine = {"disk_size_gb", "max_num_workers", "number_of_worker_harness_threads"}
    for name in machine:
        assert options[name] == int(said.pop(name))
    assert {name: options[name] for name in said} == said
    assert set(said) == {"project", "region", "dataflow_endpoint"}


# Before a run


def test_preflight_reports_refusal_missing_package_and_credentials(
    server: FakeDataflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_runner(execution(server)).preflight(store=STORE, inputs=["gs://bucket/a"])
    server.refusal = "Dataflow API has not been used in project 1 before or it is disabled."
    with pytest.raises(RunnerError, match=r"project project-1, europe-west1.*it is disabled"):
        get_runner(execution(server)).preflight(store=STORE, inputs=[])
    with pytest.raises(ConfigError, match=r"(?s)gone\.whl.*Dataflow"):
        get_runner(execution(server, packages=["gone.whl"])).preflight(store=STORE, inputs=[])

    def none(**_: Any) -> Any:
        raise google.auth.exceptions.DefaultCredentialsError("nothing found")

    monkeypatch.setattr(google.auth, "default", none)
    with pytest.raises(ConfigError, match="no credentials for Google Cloud: nothing found: gcloud"):
        get_runner(execution(server)).preflight(store=STORE, inputs=[])


# Following


def test_job_is_reported_with_its_page(server: FakeDataflow) -> None:
    server.begin = server.finish
    heard = submit(execution(server))
    (identity,) = server.jobs
    page = f"https://console.cloud.google.com/dataflow/jobs/europe-west1/{identity}"
    assert heard.jobs == [SubmittedJob(NAME, "dataflow", identity, f"{page}?project=project-1")]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([TRACEBACK, "Workflow failed. Causes: S01 failed."], CAUSE),
        (["Workflow failed. Causes: S01 failed.", TRACEBACK], CAUSE),
        (["Workflow failed. Causes: quota"], "Workflow failed. Causes: quota"),
    ],
)
def test_error_of_failed_job_begins_with_the_message_of_its_worker(
    server: FakeDataflow, texts: list[str], said: str
) -> None:
    server.begin = lambda job: server.fail(job, *texts)
    with pytest.raises(RunnerError) as raised:
        submit(execution(server))
    assert str(raised.value).startswith(f"build-documents: {said}")
    assert str(raised.value).endswith("(job 2026-0 on Dataflow)")


def test_job_that_was_cancelled_elsewhere_is_an_error(server: FakeDataflow) -> None:
    server.begin = lambda job: server.end(job, "CANCELLED")
    with pytest.raises(RunnerError, match="ended as cancelled on Dataflow by someone else: https"):
        submit(execution(server))


def test_error_of_refused_job_has_the_reason(
    server: FakeDataflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apache_beam.utils import retry

    monkeypatch.setattr(retry.Clock, "sleep", lambda *_: None)  # Beam tries four times
    server.refusal = "The caller does not have permission"
    with pytest.raises(RunnerError, match=r"could not be submitted to Dataflow: .*permission"):
        submit(execution(server))


# Cancelling


def test_stopped_run_cancels_its_job(server: FakeDataflow) -> None:
    heard = Heard()
    server.begin = lambda _: heard.stop_event.set()
    with pytest.raises(RunnerError, match="cancelled because the run was stopped"):
        submit(execution(server), heard)
    (job,) = server.jobs.values()
    assert job["currentState"] == "JOB_STATE_CANCELLED"


def test_run_cancels_the_job_of_a_killed_run(server: FakeDataflow) -> None:
    def die(_: str) -> None:
        raise MemoryError

    killed = Heard()
    killed.on_submitted = die
    with pytest.raises(MemoryError):
        submit(execution(server), killed)
    (job,) = server.jobs.values()
    assert job["currentState"] == "JOB_STATE_RUNNING"
    with submission_scope(Heard()):
        get_runner(execution(server)).cancel_earlier_jobs("build-documents")
    assert job["currentState"] == "JOB_STATE_CANCELLED"
    assert len(server.jobs) == 1


# The work itself


@pytest.mark.slow
def test_workers_that_install_the_package_build_equal_bytes(
    server: FakeDataflow, bucket: str, tmp_path: Path
) -> None:
    """All jobs of the four stages run on a Python that has only the staged wheel.

    Raw files and shards are in a bucket: launcher and workers have no disk in common.
    """
    local = run_corpus(small_recipe(small_sample(tmp_path / "sample")), tmp_path / "local")
    recipe = small_recipe(small_sample(f"{bucket}/raw"))
    server.begin = lambda job: server.run_staged(job, folder=tmp_path)
    with submission_scope(Submission("bertloom-test", urls=(bucket,))):
        made = run_corpus(recipe, f"{bucket}/run", execution=execution(server))
    assert digests(made) == digests(local)
    assert {job["currentState"] for job in server.jobs.values()} == {"JOB_STATE_DONE"}
    assert len(server.jobs) >= 4
    counted = {job for job, counts in server.metrics.items() if counts}
    assert counted == server.jobs.keys()
