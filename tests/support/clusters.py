"""Real engines for tests: a standalone Flink and a standalone Spark on free ports.

Needs Java 17, the Python packages apache-flink-libraries and pyspark in the environment that
`BERTLOOM_ENGINES` names (`make engines` makes one), and Beam's job servers.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

from benchmarks.local_server import free_ports
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, read_run, run_ids
from pipelines.runners.portable import worker_program
from schemas.execution_configs import ExecutionConfig

_START_SECONDS = 300
_MOST_SECONDS = 600
"""At most: engines on a busy machine take their time."""

_OPENED = [
    *(f"java.lang{part}" for part in ("", ".reflect")),
    *(f"java.{part}" for part in ("net", "io", "nio", "text", "time", "util")),
    *(f"java.util.concurrent{part}" for part in ("", ".atomic", ".locks")),
    "sun.nio.ch",
]
_SHORT_LIVED = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


_DRIVERS = {
    "flink": "org.apache.beam.runners.flink.FlinkJobServerDriver",
    "spark": "org.apache.beam.runners.spark.SparkJobServerDriver",
}
_made = tempfile.TemporaryDirectory(prefix="bertloom-job-servers-")


@functools.cache
def job_server(engine: str) -> str:
    """Return the path of an engine's job server, or skip with what is missing.

    A folder without Beam's single jar has the jars that one is made of. These are joined by a jar
    that only has their paths.
    """
    if shutil.which("java") is None:
        pytest.skip("no java: install openjdk-17-jre-headless")
    named = os.environ.get("BERTLOOM_JOB_SERVERS")
    folder = Path(named) if named else ROOT.parent / "shared" / "engines"
    if not folder.exists():
        pytest.skip("no job servers: set BERTLOOM_JOB_SERVERS, or put them at ../shared/engines")
    if whole := sorted(folder.glob(f"beam-runners-{engine}*-job-server-*.jar")):
        return str(whole[0])
    parts = [folder / "beam", folder / engine]
    if engine == "spark":
        parts.append(package_folder("pyspark", "pyspark") / "jars")
    paths = [path.resolve().as_uri() for part in parts for path in sorted(part.glob("*.jar"))]
    jar = Path(_made.name, f"beam-runners-{engine}-job-server-joined.jar")
    with zipfile.ZipFile(jar, "w") as joined:
        joined.writestr("META-INF/MANIFEST.MF", _manifest(_DRIVERS[engine], paths))
    return str(jar)


def execution_on(engine: str, master: str) -> ExecutionConfig:
    """Return the configuration of jobs on an engine."""
    jar = job_server(engine)
    # Otherwise Spark copies each jar that the joined one names to each worker, for each job.
    options = [f"--files_to_stage={jar}"] if engine == "spark" else []
    fields = {"master": master, "job_server": jar}
    return ExecutionConfig.model_validate(
        {"runner": engine, engine: fields, "beam_options": options}
    )


def _manifest(main_class: str, paths: Sequence[str]) -> str:
    """Return the manifest of a jar; a longer line continues behind a blank."""
    fields = {
        "Manifest-Version": "1.0",
        "Main-Class": main_class,
        "Class-Path": " ".join(paths),
    }
    lines = []
    for name, value in fields.items():
        text = f"{name}: {value}"
        lines += [text[:70], *(f" {text[n : n + 69]}" for n in range(70, len(text), 69))]
    return "\n".join([*lines, ""])


def package_folder(name: str, distribution: str) -> Path:
    """Return the folder of an engine's Python package, or skip with how to install it."""
    environment = Path(os.environ.get("BERTLOOM_ENGINES", ROOT / ".venv.engines"))
    folders = sorted(environment.glob(f"lib/python*/site-packages/{name}"))
    if not folders:
        pytest.skip(f"no {distribution} in {environment}: `make engines` installs it there")
    return folders[0]


@contextlib.contextmanager
def _processes() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Processes by name, which are ended with the block."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        yield running
    finally:
        for process in reversed(running.values()):
            process.kill()
        for process in running.values():
            process.wait()


def _start(command: Sequence[str], log: Path, **more: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as sink:
        return subprocess.Popen(
            command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL,
            env={**os.environ, **more}, start_new_session=True,
        )  # fmt: skip


def _wait_for(url: str, key: str, count: int, folder: Path) -> None:
    for _ in range(_START_SECONDS * 2):
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(url) as answer:
            if int(json.load(answer)[key]) >= count:
                return
        time.sleep(0.5)
    logs = "\n".join(log.read_text(errors="replace")[-2000:] for log in folder.glob("*.log"))
    pytest.fail(f"{url}: no {count} {key} after {_START_SECONDS} s\n{logs}")


class Flink:
    """A standalone Flink: a job manager and task managers of a slot each."""

    def __init__(self, folder: Path, running: dict[str, subprocess.Popen[bytes]]) -> None:
        self._folder, self._running = folder, running
        self._jars = f"{package_folder('pyflink', 'apache-flink-libraries')}/lib/*"
        self._rest, self._rpc = free_ports(2)
        self.master = f"localhost:{self._rest}"

    def start(self, count: int) -> None:
        """Start it, and wait for its slots."""
        (self._folder / "conf").mkdir(parents=True)
        settings = {
            "jobmanager.rpc.address": "localhost",
            "jobmanager.rpc.port": self._rpc,
            "jobmanager.memory.process.size": "1g",
            "rest.address": "localhost",
            "rest.port": self._rest,
            "rest.bind-address": "127.0.0.1",
            "taskmanager.host": "localhost",
            "taskmanager.numberOfTaskSlots": 1,
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 5,
            "restart-strategy.fixed-delay.delay": "2 s",
            "heartbeat.interval": 1000,
            "heartbeat.timeout": 8000,
            "io.tmp.dirs": str(self._folder),
        }
        text = "".join(f"{name}: {value}\n" for name, value in settings.items())
        (self._folder / "conf" / "config.yaml").write_text(text)
        self.start_job_manager()
        for number in range(count):
            self.start_task_manager(number)
        self.wait_for_slots(count)

    def start_job_manager(self) -> None:
        """Start it, also again after it was killed; it knows of no earlier job then."""
        entry = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        self._java("job-manager", "-Xmx600m", entry, "--executionMode", "cluster")

    def wait_for_slots(self, count: int) -> None:
        """Wait until the cluster has this many slots, free or used."""
        _wait_for(f"http://{self.master}/overview", "slots-total", count, self._folder)

    def start_task_manager(self, number: int) -> None:
        """Start one, also again after it was killed."""
        sizes = {
            "task.heap.size": 600, "task.off-heap.size": 128, "managed.size": 256,
            "network.min": 128, "network.max": 128, "framework.heap.size": 128,
            "framework.off-heap.size": 128, "jvm-metaspace.size": 256,
            "jvm-overhead.min": 192, "jvm-overhead.max": 192,
        }  # fmt: skip
        settings = [f"taskmanager.memory.{name}={size}m" for name, size in sizes.items()]
        settings += ["taskmanager.cpu.cores=1.0", f"taskmanager.resource-id=task-manager-{number}"]
        options = [word for item in settings for word in ("-D", item)]
        runner = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        self._java(f"task-manager-{number}", "-Xmx800m", runner, *options)

    def kill(self, name: str) -> None:
        """End `job-manager` or `task-manager-N` without a word to it."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def job_servers(self) -> list[str]:
        """The job servers that run for it: none may outlive who started it."""
        listing = subprocess.run(
            ["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True
        )
        wanted = f"--flink-master {self.master} "
        return [line for line in listing.stdout.splitlines() if wanted in line]

    def jobs(self) -> list[dict[str, object]]:
        """Its jobs, as it lists them."""
        jobs: list[dict[str, object]] = self.ask("jobs/overview")["jobs"]
        return jobs

    def ask(self, path: str) -> Any:
        """Return the response of its REST interface."""
        with urllib.request.urlopen(f"http://{self.master}/{path}") as answer:
            return json.load(answer)

    def _java(self, name: str, memory: str, entry: str, *arguments: str) -> None:
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        opens.append("--add-exports=java.base/sun.net.util=ALL-UNNAMED")
        command = ["java", memory, *_SHORT_LIVED, *opens, "-cp", self._jars, entry]
        command += ["--configDir", str(self._folder / "conf"), *arguments]
        self._running[name] = _start(command, self._folder / f"{name}.log")


@contextlib.contextmanager
def flink_cluster(folder: Path, *, task_managers: int) -> Iterator[Flink]:
    """A standalone Flink that ends with the block."""
    with _processes() as running:
        flink = Flink(folder, running)
        flink.start(task_managers)
        yield flink


@contextlib.contextmanager
def spark_cluster(folder: Path, *, workers: int) -> Iterator[str]:
    """Yield the master of a standalone Spark that ends with the block."""
    home = package_folder("pyspark", "pyspark")
    port, page, *pages = free_ports(2 + workers)
    program, master = f"{home}/bin/spark-class", f"spark://localhost:{port}"
    here = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home)}
    here["SPARK_DAEMON_JAVA_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    folder.mkdir(parents=True)
    with _processes() as running:
        running["master"] = _start(
            [program, "org.apache.spark.deploy.master.Master", "--host", "localhost",
             "--port", str(port), "--webui-port", str(page)],
            folder / "master.log", **here,
        )  # fmt: skip
        for number, own in enumerate(pages):
            running[f"worker-{number}"] = _start(
                [program, "org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory",
                 "2g", "--work-dir", str(folder / f"worker-{number}"), "--webui-port", str(own),
                 master],
                folder / f"worker-{number}.log", **here,
            )  # fmt: skip
        _wait_for(f"http://localhost:{page}/json/", "cores", workers, folder)
        yield master


# Runs from outside


class Command:
    """Process of a command, with its output."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        self.process = _start(command, log)

    @property
    def output(self) -> str:
        """Everything the process has printed so far, including errors."""
        return self._log.read_text(errors="replace")

    def wait_until(self, seen: Callable[[], object]) -> None:
        """Wait while it runs."""
        for _ in range(_MOST_SECONDS * 5):
            if seen():
                return
            assert self.process.poll() is None, self.output
            time.sleep(0.2)
        self.process.kill()
        pytest.fail(f"waited in vain; the command said: {self.output}")

    def ended(self, *, seconds: float = _MOST_SECONDS) -> int:
        """Its exit code, when it has ended."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"not ended after {seconds:g} s; it said: {self.output}")


def flink_run(recipe: Path, flink: Flink, store: str, *more: str) -> Command:
    """`bertloom run` of a recipe on a cluster."""
    command = [
        sys.executable, "-m", "flows", "run", str(recipe), "--engine", "local",
        "--store", store, "--runner", "flink",
        "--set", f"execution.flink.master={flink.master}",
        "--set", f"execution.flink.job_server={job_server('flink')}", *more,
    ]  # fmt: skip
    log = Path(tempfile.mkstemp(dir=recipe.parent, prefix="run-", suffix=".log")[1])
    return Command(command, log)


def last_run(store: str) -> RunRecord:
    """Return the record of the last run of a store."""
    opened = ArtifactStore(store)
    return read_run(opened, run_ids(opened)[-1])


def gate(folder: Path) -> tuple[str, Path]:
    """Return a setting that makes workers wait for a file before they start, and that file."""
    boot, opened = folder / "boot", folder / "opened"
    boot.write_text(
        f'#!/bin/sh\nwhile [ ! -e "{opened}" ]; do sleep 0.2; done\n'
        f'exec "{worker_program()}" "$@"\n'
    )
    boot.chmod(0o755)
    return f"execution.flink.worker_command={boot}", opened
