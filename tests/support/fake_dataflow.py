"""A server that speaks as much of Dataflow's API, and of GCS's for staging, as a job needs.

It keeps each job as it was submitted, and its staged files. `run_staged` does what Dataflow does
with one: it makes workers of a clean Python, installs the packages there that the job brings, and
runs the staged graph on them, by Beam's own in-process runner.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import google_crc32c
from support.clean_environments import clean_python, install, libraries

from benchmarks.local_server import LocalServer

_CANCELLED = 5  # as the client writes JOB_STATE_CANCELLED
OVER = ("JOB_STATE_DONE", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


class FakeDataflow(LocalServer):
    """Serves any project and region, and any bucket."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        """Submitted jobs by id, with `currentState`."""

        self.messages: dict[str, list[tuple[str, str]]] = {}
        """(importance, text) by job."""

        self.metrics: dict[str, list[dict[str, Any]]] = {}
        self.objects: dict[str, bytes] = {}
        """Staged files by `bucket/name`."""

        self.asked: list[str] = []
        self.refusal = ""
        """Error message for every request about jobs; "" for none."""

        self.begin: Callable[[str], None] = self.leave_running
        """Called in a thread with the id of a job that was submitted."""

        self.lock = threading.RLock()
        self.uploads: dict[str, tuple[str, bytearray]] = {}
        super().__init__(_Handler, service=self)
        # Beam's client, as ours, speaks REST only where the address says localhost.
        self.url = self.url.replace("127.0.0.1", "localhost")

    def leave_running(self, job: str) -> None:
        """Job that runs until its state is set."""

    def finish(self, job: str) -> None:
        """A job that is done at once."""
        self.end(job, "DONE")

    def end(self, job: str, state: str) -> None:
        """Set the state of a job."""
        with self.lock:
            self.jobs[job]["currentState"] = f"JOB_STATE_{state}"

    def fail(self, job: str, *texts: str) -> None:
        """A job that fails with messages of errors."""
        self.messages[job] = [("JOB_MESSAGE_ERROR", text) for text in texts]
        self.end(job, "FAILED")

    def count(
        self, job: str, name: str, number: float, *, origin: str = "user", **context: str
    ) -> None:
        """Count something for a job."""
        metric = {"origin": origin, "name": name, "context": context}
        self.metrics.setdefault(job, []).append({"name": metric, "scalar": number})

    def submit(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """A job as it was taken, or why it was not."""
        with self.lock:
            for job in self.jobs.values():
                # As Dataflow does: the answer is the job that there is.
                if job["name"] == body["name"] and job["currentState"] not in OVER:
                    return 200, job
            identity = f"2026-{len(self.jobs)}"
            self.jobs[identity] = {
                **body, "id": identity, "currentState": "JOB_STATE_PENDING",
            }  # fmt: skip
            self.end(identity, "RUNNING")
            threading.Thread(target=self.begin, args=(identity,), daemon=True).start()
            return 200, self.jobs[identity]

    def options(self, job: str) -> dict[str, Any]:
        """The pipeline options that a job was submitted with."""
        options: dict[str, Any] = self.jobs[job]["environment"]["sdkPipelineOptions"]["options"]
        return options

    def packages(self, job: str) -> dict[str, bytes]:
        """The staged packages of a job by name."""
        (pool,) = self.jobs[job]["environment"]["workerPools"]
        return {
            package["name"]: self.objects[
                package["location"].removeprefix("storage.googleapis.com/")
            ]
            for package in pool["packages"]
        }

    def graph(self, job: str) -> Any:
        """The staged pipeline of a job."""
        from apache_beam.portability.api import beam_runner_api_pb2

        url = self.options(job)["pipelineUrl"]
        return beam_runner_api_pb2.Pipeline.FromString(self.objects[url.removeprefix("gs://")])

    def run_staged(self, job: str, *, folder: Path) -> None:
        """Execute a job on workers that have only the files staged with it."""
        try:
            worker = self._worker(job, folder)
            self._run(job, worker)
        except Exception as error:  # becomes the job's own message, as on Dataflow
            self.fail(job, "Workflow failed. Causes: S01:DoWork failed.", str(error))
        else:
            self.finish(job)

    def _worker(self, job: str, folder: Path) -> str:
        """The command of a worker process, in an environment for jobs of the same packages."""
        wheels = {name: data for name, data in self.packages(job).items() if name.endswith(".whl")}
        environment = folder / f"worker-{'-'.join(wheels) or 'of-nothing'}"
        python = str(environment / "bin" / "python")
        if not environment.exists():
            clean_python(environment)
            for name, data in wheels.items():
                (environment / name).write_bytes(data)
                install(python, environment / name)
        # `-P` excludes the tests' folder; temporary files and caches are separate.
        module = "apache_beam.runners.worker.sdk_worker_main"
        own = " ".join(f"{name}={environment}" for name in ("TMPDIR", "BERTLOOM_CACHE", "HOME"))
        return f"env PYTHONPATH={libraries()} {own} {python} -P -m {module}"

    def _run(self, job: str, worker: str) -> None:
        from apache_beam.options.pipeline_options import PipelineOptions
        from apache_beam.portability import python_urns
        from apache_beam.runners.portability.fn_api_runner import FnApiRunner

        graph = self.graph(job)
        for environment in graph.components.environments.values():
            environment.urn = python_urns.SUBPROCESS_SDK
            environment.payload = worker.encode()
            del environment.dependencies[:]
        result = FnApiRunner().run_via_runner_api(graph, PipelineOptions([]))
        for counter in result.metrics().query()["counters"]:
            self.count(job, counter.key.metric.name, counter.committed, step=counter.key.step)


class _Handler(BaseHTTPRequestHandler):
    service: FakeDataflow
    protocol_version = "HTTP/1.1"

    def _answer(self, body: Any = None, *, status: int = 200, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        self.send_response(status)
        fields = {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        body = self._body()
        self.service.asked.append(f"{self.command} {parts.path}")
        if parts.path.startswith("/v1b3/"):
            if self.service.refusal:
                error = {"code": 403, "message": self.service.refusal}
                self._answer({"error": error}, status=403)
            else:
                self._jobs(parts.path.partition("/jobs")[2].strip("/").split("/"), query, body)
        else:
            self._staging(parts.path, query, body)

    do_POST = do_PUT = do_GET  # noqa: N815

    def _jobs(self, path: list[str], query: dict[str, str], body: bytes) -> None:
        service = self.service
        job, _, what = "/".join(path).partition("/")
        if not job and self.command == "POST":
            status, answer = service.submit(json.loads(body))
            self._answer(_shown(answer), status=status)
        elif not job:
            found_jobs = [
                _shown(known)
                for known in service.jobs.values()
                if query.get("name") in (None, known["name"])
                and (query.get("filter") != "3" or known["currentState"] not in OVER)
            ]
            self._answer({"jobs": found_jobs})
        elif job not in service.jobs:
            self._answer({"error": {"code": 404, "message": f"no job {job}"}}, status=404)
        elif self.command == "PUT":
            assert json.loads(body)["requestedState"] == _CANCELLED
            service.end(job, "CANCELLED")
            self._answer(_shown(service.jobs[job]))
        elif what == "messages":
            messages = [
                {"messageImportance": importance, "messageText": text, "id": str(number)}
                for number, (importance, text) in enumerate(service.messages.get(job, ()))
            ]
            self._answer({"jobMessages": messages})
        elif what == "metrics":
            self._answer({"metrics": service.metrics.get(job, [])})
        else:
            self._answer(_shown(service.jobs[job]))

    def _staging(self, path: str, query: dict[str, str], body: bytes) -> None:
        """A bucket, an object, or a resumable upload in one piece."""
        bucket, _, name = path.partition("/b/")[2].partition("/o")
        key = f"{bucket}/{unquote(name.strip('/'))}"
        if path.startswith("/session/"):
            key, data = self.service.uploads[path]
            data += body
            if self.headers["Content-Range"].endswith("/*"):
                self._answer(status=308, Range=f"bytes=0-{len(data) - 1}")
            else:
                self.service.objects[key] = bytes(data)
                checksum = base64.b64encode(google_crc32c.Checksum(bytes(data)).digest()).decode()
                self._answer({"name": key, "bucket": key.split("/")[0], "crc32c": checksum})
        elif self.command == "POST":
            name = query.get("name") or json.loads(body)["name"]
            session = f"/session/{len(self.service.uploads)}"
            self.service.uploads[session] = (f"{bucket}/{name}", bytearray())
            self._answer(Location=self.service.url + session)
        elif not name:
            self._answer({"kind": "storage#bucket", "name": bucket})
        elif key not in self.service.objects:
            self._answer({"error": {"code": 404, "message": "no such object"}}, status=404)
        else:
            self._answer({"name": name.strip("/"), "bucket": bucket})


def _shown(job: dict[str, Any]) -> dict[str, Any]:
    """Return the service's description of a job."""
    names = ("id", "name", "projectId", "location", "currentState", "clientRequestId", "type")
    return {name: job[name] for name in names if name in job}
