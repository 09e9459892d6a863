"""Clusters of engines: Flink's REST interface, slots, and Beam's job servers.

A job server is one jar of Beam (`beam-runners-flink-1.19-job-server-...`), or a folder of its
parts. A started job server serves all jobs of this process on the same cluster, and ends with the
process.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.runners import child_guard
from pipelines.runners.job_context import root_cause
from pipelines.runners.runner_spec import Engine
from schemas.errors import ConfigError, RunnerError
from schemas.execution_configs import FlinkConfig, JobServerConfig, SparkConfig

ANSWER_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_NOT_FOUND = 404
_OVER = frozenset({"FINISHED", "FAILED", "CANCELED"})
_AT_WORK = ("DEPLOYING", "INITIALIZING", "RUNNING", "CANCELING")


class NoAnswerError(RunnerError):
    """A cluster does not answer, or not as one."""


class NoJobError(RunnerError):
    """A cluster does not know a job."""


class ClusterJob(NamedTuple):
    """A job of a cluster."""

    id: str
    name: str
    state: str
    url: str
    """URL of its page."""

    @property
    def is_over(self) -> bool:
        """True if it has ended."""
        return self.state in _OVER


class Slots(NamedTuple):
    """Number of work items that a cluster can process at the same time."""

    free: int
    total: int


def answers(endpoint: str, *, seconds: float = ANSWER_SECONDS) -> str:
    """Return why nothing answers at HOST:PORT; "" if something listens."""
    host, _, port = endpoint.split("://", 1)[-1].split("/", 1)[0].rpartition(":")
    if not port.isdigit():
        return f"expected HOST:PORT, found {endpoint!r}"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError as error:
        return str(error)
    return ""


def _request(url: str, *, method: str = "GET") -> Any:
    """Return the JSON response of an address.

    Raises:
        NoJobError: The address does not exist.
        NoAnswerError: The cluster does not answer, or answers something else.
    """
    if not url.startswith(("http://", "https://")):
        raise RunnerError(f"{url}: expected an address that begins with http:// or https://")
    request = urllib.request.Request(url, method=method)  # noqa: S310  checked above
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if text.strip() else {}
    except urllib.error.HTTPError as error:
        kind = NoJobError if error.code == _NOT_FOUND else NoAnswerError
        raise kind(f"{url}: answers {error.code} {error.reason}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise NoAnswerError(f"{url}: does not answer as a cluster: {reason}") from error


def slots(engine: Engine) -> Slots:
    """Return the slots of a cluster with a REST interface.

    Raises:
        RunnerError: the cluster does not answer.
    """
    found = _request(f"{engine.rest}/overview")
    return Slots(int(found["slots-available"]), int(found["slots-total"]))


def jobs_named(engine: Engine, name: str) -> list[ClusterJob]:
    """Return the unfinished jobs of a Flink cluster with a name."""
    return [job for job in _live_jobs(engine) if job.name == name]


def _live_jobs(engine: Engine) -> list[ClusterJob]:
    if not engine.rest:
        return []
    found = [
        ClusterJob(job["jid"], job["name"], job["state"], job_url(engine, job["jid"]))
        for job in _request(f"{engine.rest}/jobs/overview")["jobs"]
    ]
    return [job for job in found if not job.is_over]


def waits_for_slots(engine: Engine, job: str) -> bool:
    """Return whether a job of a Flink cluster waits for slots.

    Raises:
        NoJobError: the cluster does not know it.
    """
    found = _request(f"{engine.rest}/jobs/{job}")
    tasks = Counter[str]()
    for vertex in found["vertices"]:
        tasks.update(vertex["tasks"])
    is_idle = not any(tasks[state] for state in _AT_WORK)
    return found["state"] == "RUNNING" and is_idle and tasks["SCHEDULED"] > 0


def waiting_jobs(engine: Engine) -> list[str]:
    """Return the ids of a Flink cluster's jobs that wait for slots."""
    found = []
    for job in _live_jobs(engine):
        with contextlib.suppress(NoJobError):  # over since it was listed
            if waits_for_slots(engine, job.id):
                found.append(job.id)
    return found


def job_url(engine: Engine, job: str) -> str:
    """Return the page of a Flink job."""
    return f"{engine.rest}/#/job/{job}/overview"


def cancel(engine: Engine, name: str) -> list[ClusterJob]:
    """Cancel the jobs of a Flink cluster with a name, and return them."""
    found = jobs_named(engine, name)
    for job in found:
        with contextlib.suppress(NoJobError):  # over since it was listed
            _request(f"{engine.rest}/jobs/{job.id}?mode=cancel", method="PATCH")
    return found


# Slots of a job

_TURNS: dict[str, threading.Lock] = {}
_TURNS_LOCK = threading.Lock()


@contextlib.contextmanager
def reserve_slots(
    engine: Engine, items: int, *, sleep: Callable[[float], None], log: Callable[[str], None]
) -> Iterator[int]:
    """Yield the number of slots for a job. An engine gets one job of this process at a time.

    Args:
        engine: Engine of the job.
        items: Number of elements in the job's graph, the most slots that it can use.
        sleep: Function that waits, and raises if the run is to stop.
        log: Function that gets a message once if no slot is free.
    """
    with _TURNS_LOCK:
        turn = _TURNS.setdefault(engine.rest or engine.endpoint or engine.master, threading.Lock())
    while not turn.acquire(blocking=False):
        sleep(_LOOK_SECONDS)
    try:
        yield _wait_for_slots(engine, max(1, items), sleep=sleep, log=log)
    finally:
        turn.release()


def _wait_for_slots(
    engine: Engine, items: int, *, sleep: Callable[[float], None], log: Callable[[str], None]
) -> int:
    if not engine.rest:
        cores = os.cpu_count() or 1 if engine.is_in_job_server else items
        return min(items, engine.parallelism or cores)
    needed = min(items, engine.parallelism or 1)
    is_logged = False
    while (free := slots(engine).free) < needed:
        if not is_logged:
            log(f"no free slot on {engine.master}; waiting for one")
            is_logged = True
        sleep(_LOOK_SECONDS)
    return min(items, engine.parallelism or free)


# Job servers

FOLDER_VARIABLE = "BERTLOOM_JOB_SERVERS"
_READY_SECONDS = 600.0  # a busy machine takes its time; one that ended is noticed at once
_READY_POLL_SECONDS = 0.1
_STOP_SECONDS = 10.0
_LOG_LINES = 200
_ENGINES = ("flink", "spark")
_MAIN = {
    "flink": "org.apache.beam.runners.flink.FlinkJobServerDriver",
    "spark": "org.apache.beam.runners.spark.SparkJobServerDriver",
}
_MASTER = {"flink": "--flink-master", "spark": "--spark-master-url"}
_OPENED = (
    *(f"java.lang{part}" for part in ("", ".invoke", ".reflect")),
    *(f"java.{part}" for part in ("io", "net", "nio", "text", "time", "util")),
    *(f"java.util.concurrent{part}" for part in ("", ".atomic", ".locks")),
    *(f"sun.{part}" for part in ("nio.ch", "nio.cs", "security.action", "util.calendar")),
)
"""Packages of Java 17 that Flink and Spark access by reflection."""

_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a Java that submits, or lives as long as a job and moves its reports: more than half of its
work would be the better compiler's, which pays later, and the parallel collector's."""


# Finding it


class ServerJars(NamedTuple):
    """The jars of a job server."""

    jars: tuple[str, ...]
    """Jars of Beam's runner and its dependencies, without Spark."""

    engine_jars: tuple[str, ...] = ()
    """Jars of Spark, if the runner's jars do not include it."""

    @property
    def is_whole(self) -> bool:
        """True for Beam's single jar."""
        return len(self.jars) == 1

    @property
    def runner(self) -> str:
        """The jar of the runner itself."""
        return next(jar for jar in self.jars if Path(jar).name.startswith("beam-runners-"))


def maven_address(config: JobServerConfig) -> str:
    """Return the Maven URL of the job server jar of the installed Beam version."""
    from apache_beam.utils.subprocess_server import JavaJarServer  # lazy: loads Beam
    from apache_beam.version import __version__ as version

    name = f"flink-{config.version}" if isinstance(config, FlinkConfig) else "spark-3"
    artifact = f"beam-runners-{name}-job-server"
    return str(JavaJarServer.path_to_maven_jar(artifact, "org.apache.beam", version))


def find_jars(engine: Engine, *, fetch: bool = True) -> ServerJars:
    """Return the jars of the job server of a configuration.

    Args:
        engine: whose.
        fetch: Download a missing job server if the configuration allows it.

    Raises:
        ConfigError: It does not exist. The message says how to get it.
    """
    config = _config(engine)
    place = config.job_server or os.environ.get(FOLDER_VARIABLE, "")
    if not place and config.download:
        return ServerJars((_downloaded(config),) if fetch else ())
    path = Path(place).expanduser()
    if not place or not path.exists():
        found = f"{place}: there is nothing" if place else "no job server is named"
        raise ConfigError(f"{found}. {_how_to_get_one(engine, config)}")
    jars = (str(path),) if path.is_file() else _folder_jars(path, engine, config)
    if not path.is_file() and len(jars) > 1 and engine.name == "spark" and not _holds_spark(jars):
        assert isinstance(config, SparkConfig)  # noqa: S101
        return ServerJars(jars, _spark_jars(config))
    return ServerJars(jars)


def _config(engine: Engine) -> JobServerConfig:
    if engine.server is None:
        raise RuntimeError(f"{engine.endpoint} runs already")
    return engine.server


def _how_to_get_one(engine: Engine, config: JobServerConfig) -> str:
    name = f"execution.{engine.name}"
    return (
        f"The {engine.name} runner needs Beam's job server, a jar: download "
        f"{maven_address(config)} and set {name}.job_server (or ${FOLDER_VARIABLE}) to it or to "
        f"its folder; or set {name}.download=true and bertloom does so once"
    )


def _downloaded(config: JobServerConfig) -> str:
    from apache_beam.utils.subprocess_server import JavaJarServer  # lazy: loads Beam

    address = maven_address(config)
    try:
        return str(JavaJarServer.local_jar(address))
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{address}: could not be downloaded: {error}") from error


def _folder_jars(folder: Path, engine: Engine, config: JobServerConfig) -> tuple[str, ...]:
    """Return Beam's single jar of a folder, or all jars in it except those of other engines."""
    whole = sorted(folder.glob(f"beam-runners-{engine.name}*-job-server-*.jar"))
    if len(whole) > 1:
        names = ", ".join(path.name for path in whole)
        raise ConfigError(
            f"{folder}: {len(whole)} job servers for {engine.name}: {names}. Set "
            f"execution.{engine.name}.job_server to one of them"
        )
    if whole:
        return (str(whole[0]),)
    others = {name for name in _ENGINES if name != engine.name}
    parts = [folder, *sorted(p for p in folder.iterdir() if p.is_dir() and p.name not in others)]
    jars = tuple(str(jar) for part in parts for jar in sorted(part.glob("*.jar")))
    if not any(Path(jar).name.startswith(f"beam-runners-{engine.name}") for jar in jars):
        raise ConfigError(
            f"{folder}: no job server for {engine.name} among {len(jars)} jars: expected "
            f"beam-runners-{engine.name}*.jar. {_how_to_get_one(engine, config)}"
        )
    return jars


def _holds_spark(jars: Sequence[str]) -> bool:
    return any(Path(jar).name.startswith("spark-core_") for jar in jars)


def _spark_jars(config: SparkConfig) -> tuple[str, ...]:
    named = config.home or os.environ.get("SPARK_HOME", "")
    spec = None if named else importlib.util.find_spec("pyspark")
    home = Path(named) if named else Path(spec.origin).parent if spec and spec.origin else None
    jars = tuple(str(jar) for jar in sorted((home / "jars").glob("*.jar"))) if home else ()
    if not jars:
        raise ConfigError(
            f"{home / 'jars' if home else 'no Spark'}: no jars of Spark, which a job server in "
            "parts needs: set execution.spark.home or $SPARK_HOME to its folder, or pip install "
            "'pyspark==3.5.*'"
        )
    return jars


def find_java() -> str:
    """Return the path of `java`.

    Raises:
        ConfigError: It is not installed.
    """
    home = os.environ.get("JAVA_HOME", "")
    found = shutil.which("java", path=f"{home}/bin") if home else None
    found = found or shutil.which("java")
    if found is None:
        raise ConfigError(
            "no java, which a job server needs: install Java 11 or 17 (Debian: "
            "openjdk-17-jre-headless) or set JAVA_HOME; or name a job server that runs with "
            "job_endpoint"
        )
    return found


# Running it


def java_command(engine: Engine, jars: ServerJars, *, ports: Sequence[int]) -> list[str]:
    """Return the command of a job server.

    Args:
        engine: whose job server.
        jars: its jars.
        ports: of jobs, artifacts and expansions.
    """
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    log = "-Dorg.slf4j.simpleLogger."
    settings = [*_SHORT_LIVED, f"{log}defaultLogLevel=info", f"{log}showDateTime=true"]
    if engine.name == "spark":
        settings += ["-Dspark.ui.enabled=false"]
        settings += [f"-Dspark.executor.extraJavaOptions={' '.join(_SHORT_LIVED)}"]
        if not jars.is_whole:  # executors take them from the folder, not one by one from us
            settings += [f"-Dspark.executor.extraClassPath={os.pathsep.join(jars.jars)}"]
    job, artifact, expansion = ports
    return [
        find_java(),
        *opens,
        *settings,
        "-cp",
        os.pathsep.join([*jars.jars, *jars.engine_jars]),
        _MAIN[engine.name],
        f"{_MASTER[engine.name]}={engine.master}",
        "--job-host=localhost",
        f"--job-port={job}",
        f"--artifact-port={artifact}",
        f"--expansion-port={expansion}",
    ]


class JobServer:
    """A job server that this process started."""

    def __init__(self, engine: Engine) -> None:
        """Start it; it is not ready yet."""
        self.jars = find_jars(engine)
        ports = _free_ports(3)
        self.endpoint = f"localhost:{ports[0]}"
        self._folder = tempfile.TemporaryDirectory(prefix="bertloom-job-server-")
        self.log = Path(self._folder.name) / "log"
        staged = f"--artifacts-dir={self._folder.name}/artifacts"
        command = [*java_command(engine, self.jars, ports=ports), staged]
        with self.log.open("wb") as log:
            # In another session: Ctrl-C only reaches this process, which cancels its jobs first.
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", str(child_guard.__file__), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        atexit.register(self.stop)

    def wait_until_ready(self, *, pause: Callable[[float], None] = time.sleep) -> None:
        """Wait until it takes jobs.

        Raises:
            RunnerError: It ended, or is not ready after ten minutes.
        """
        began = time.monotonic()
        while answers(self.endpoint):
            self.check()
            if time.monotonic() - began > _READY_SECONDS:
                raise RunnerError(f"the job server is not ready after {_READY_SECONDS:g} s")
            pause(_READY_POLL_SECONDS)

    @property
    def is_running(self) -> bool:
        """True while its process runs."""
        return self._process.poll() is None

    def check(self) -> None:
        """Check that it is running.

        Raises:
            RunnerError: It has ended.
        """
        code = self._process.poll()
        if code is not None:
            raise RunnerError(f"the job server ended with code {code}: {self.last_words()}")

    def last_words(self) -> str:
        """Return the cause in the end of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return root_cause("\n".join(text.splitlines()[-_LOG_LINES:])) or "it said nothing"

    def stop(self) -> None:
        """End it, and wait for its end."""
        atexit.unregister(self.stop)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


_SERVERS: dict[str, JobServer] = {}
_LOCK = threading.Lock()


def job_server(engine: Engine, *, pause: Callable[[float], None] = time.sleep) -> JobServer:
    """Return the running job server of this process for a cluster, started on first use.

    Raises:
        ConfigError: there is no jar, or no Java.
        RunnerError: it does not start.
    """
    with _LOCK:
        name = f"{engine.name} {engine.master} {engine.server}"
        found = _SERVERS.get(name)
        if found is None or not found.is_running:
            found = _SERVERS[name] = JobServer(engine)
            try:
                found.wait_until_ready(pause=pause)
            except BaseException:
                del _SERVERS[name]
                found.stop()
                raise
        return found
