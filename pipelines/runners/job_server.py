"""Beam's job servers, a jar for each engine (`beam-runners-flink-1.19-job-server-...`).

A started job server serves all jobs of this process on the same cluster, and ends with the process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from pipelines.runners import child_guard
from pipelines.runners.job_context import Submission, root_cause
from schemas.errors import ConfigError, RunnerError
from schemas.execution_configs import FlinkConfig, SparkConfig

ServerConfig = FlinkConfig | SparkConfig
FOLDER_VARIABLE = "BERTLOOM_JOB_SERVERS"
_CONNECT_SECONDS = 5.0
_POLL_SECONDS = 0.1
_STOP_SECONDS = 10.0
_LOG_LINES = 200
_OPENED = (
    *(f"java.lang{part}" for part in ("", ".invoke", ".reflect")),
    *(f"java.{part}" for part in ("io", "net", "nio", "text", "time", "util")),
    *(f"java.util.concurrent{part}" for part in ("", ".atomic", ".locks")),
    *(f"sun.{part}" for part in ("nio.ch", "nio.cs", "security.action", "util.calendar")),
)
"""Packages of Java 17 that Flink and Spark access by reflection."""

_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that lives as long as a job: its better compiler would not pay."""

_LOGGING = "-Dorg.slf4j.simpleLogger."


def find_jar(config: ServerConfig) -> str:
    """Return the path of the job server of an engine; "" if Beam is to download it.

    Raises:
        ConfigError: It does not exist.
    """
    location = config.job_server or os.environ.get(FOLDER_VARIABLE, "")
    if not location and config.download:
        return ""
    path, engine = Path(location).expanduser(), _engine(config)
    if location and path.is_file():
        return str(path)
    name = f"beam-runners-{engine}*-job-server-*.jar"
    jars = sorted(path.glob(name)) if location else []
    if len(jars) != 1:
        names = ", ".join(jar.name for jar in jars) or "none"
        where = f" in {location}" if location else ""
        raise ConfigError(
            f"execution.{engine}.job_server: expected a jar, or a folder with one {name}, got "
            f"{names}{where}. {_how_to_get_one(config)}"
        )
    return str(jars[0])


def _engine(config: ServerConfig) -> str:
    return "flink" if isinstance(config, FlinkConfig) else "spark"


def _how_to_get_one(config: ServerConfig) -> str:
    from apache_beam.utils.subprocess_server import JavaJarServer  # lazy: loads Beam
    from apache_beam.version import __version__ as version

    engine = _engine(config)
    name = f"flink-{config.version}" if isinstance(config, FlinkConfig) else "spark-3"
    url = JavaJarServer.path_to_maven_jar(
        f"beam-runners-{name}-job-server", "org.apache.beam", version
    )
    return (
        f"The {engine} runner needs Beam's job server, a jar: download {url} and set "
        f"execution.{engine}.job_server (or ${FOLDER_VARIABLE}) to it or to its folder; or set "
        f"execution.{engine}.download=true and bertloom does so once"
    )


def find_java() -> str:
    """Return the path of `java`.

    Raises:
        ConfigError: It is not installed.
    """
    home = os.environ.get("JAVA_HOME", "")
    java = shutil.which("java", path=f"{home}/bin") if home else None
    java = java or shutil.which("java")
    if java is None:
        raise ConfigError(
            "no java, which a job server needs: install Java 11 or 17 (Debian: "
            "openjdk-17-jre-headless) or set JAVA_HOME; or name a job server that runs with "
            "job_endpoint"
        )
    return java


def server_command(config: ServerConfig, folder: str) -> tuple[list[str], str]:
    """Return the command of Beam's job server for an engine, and the endpoint of its jobs.

    Args:
        config: Engine and its job server.
        folder: Folder for staged artifacts.

    Raises:
        ConfigError: There is no jar or no Java, or the jar cannot be downloaded.
    """
    from apache_beam.options.pipeline_options import PipelineOptions  # lazy: loads Beam
    from apache_beam.runners.portability.flink_runner import FlinkJarJobServer
    from apache_beam.runners.portability.spark_runner import SparkJarJobServer

    engine = _engine(config)
    flags = [f"--job_server_jvm_property={text}" for text in _jvm_options(engine)]
    flags += [f"--job_server_java_launcher={find_java()}", f"--artifacts_dir={folder}"]
    if jar := find_jar(config):
        flags.append(f"--{engine}_job_server_jar={jar}")
    if isinstance(config, FlinkConfig):
        flags += [f"--flink_master={config.master}", f"--flink_version={config.version}"]
    else:
        flags.append(f"--spark_master_url={config.master}")
    server_type = FlinkJarJobServer if engine == "flink" else SparkJarJobServer
    try:
        command, endpoint = server_type(PipelineOptions(flags)).subprocess_cmd_and_endpoint()
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{engine}: cannot download the job server: {error}") from error
    return [str(word) for word in command], endpoint


def _jvm_options(engine: str) -> list[str]:
    options = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    options += [*_SHORT_LIVED, f"{_LOGGING}defaultLogLevel=info", f"{_LOGGING}showDateTime=true"]
    if engine == "spark":
        options += ["-Dspark.ui.enabled=false"]
        options += [f"-Dspark.executor.extraJavaOptions={' '.join(_SHORT_LIVED)}"]
    return options


class JobServer:
    """A job server that this process started."""

    def __init__(self, config: ServerConfig) -> None:
        """Start it; it is not ready yet."""
        self._folder = tempfile.TemporaryDirectory(prefix="bertloom-job-server-")
        command, self.endpoint = server_command(config, f"{self._folder.name}/artifacts")
        self._log = Path(self._folder.name) / "log"
        with self._log.open("wb") as log:
            # In another session: Ctrl-C only reaches this process, which cancels its jobs first.
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", str(child_guard.__file__), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        atexit.register(self.stop)

    @property
    def is_running(self) -> bool:
        """True while its process runs."""
        return self._process.poll() is None

    def check(self) -> None:
        """Raise RunnerError if it has ended."""
        if not self.is_running:
            raise RunnerError(
                f"the job server ended with code {self._process.returncode}: {self.log_cause()}"
            )

    def log_cause(self) -> str:
        """Return the cause in the end of its log."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return root_cause("\n".join(lines[-_LOG_LINES:])) or "its log is empty"

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


_servers: dict[str, JobServer] = {}
_lock = threading.Lock()


def get_job_server(config: ServerConfig, submission: Submission) -> JobServer:
    """Return the running job server of this process for a cluster, started on first use.

    Raises:
        ConfigError: There is no jar, or no Java.
        RunnerError: It does not start, or the run is to stop.
    """
    key = repr(config)
    with _lock:
        server = _servers.get(key)
        if server is not None and server.is_running:
            return server
        server = JobServer(config)
        try:
            while connection_error(server.endpoint):
                server.check()
                submission.sleep(_POLL_SECONDS)
        except BaseException:
            server.stop()
            raise
        _servers[key] = server
        return server


def connection_error(endpoint: str) -> str:
    """Return why nothing answers at HOST:PORT; "" if something listens."""
    host, _, port = endpoint.split("://", 1)[-1].split("/", 1)[0].rpartition(":")
    if not port.isdigit():
        return f"expected HOST:PORT, got {endpoint!r}"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        return str(error)
    return ""
