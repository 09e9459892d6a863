"""Calls of functions in processes of their own, which train, fine-tune and answer.

A call is JSON: a function of `model`, its argument (a pydantic model) and the folder that relative
paths start from. Its answer is JSON, too: the result, or the error with its class and facts. There
are two carriers:

* A worker reads calls as lines from a pipe and lives on from call to call: trials of a grid can be
  as short as two seconds, and loading torch takes as long. Calls side by side have a worker each.
* A job of one or several ranks reads its argument from a file, which can be handed to torchrun by
  hand on several machines, and leaves its error in another.

`model.processes.worker` is the other side of both. Signals reach the main thread there, torch's
settings stay there, and a crash takes no flow with it. A process ends with its launcher.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel

from pipelines.io.file_systems import file_system
from pipelines.io.user_cache import cache_folder
from schemas.error_serialization import deserialize_error
from schemas.errors import ConfigError, RunnerError, TrainingError

LAUNCHER_VARIABLE = "BERTLOOM_LAUNCHER"
"""Environment variable with the id of the process whose end also ends the training."""

IDLE_VARIABLE = "BERTLOOM_WORKER_IDLE"
"""Environment variable: seconds without a call after which a worker ends."""

JOB_FILE, FAILURE_FILE = "job.json", "failure.json"

_STOP_SECONDS = 300.0
_END_SECONDS = 10.0

# A step frees and takes the same large buffers again; by default glibc gives each back to the
# system, and half of a step's time can go into getting its pages zeroed anew.
_KEEP_MEMORY = ":".join(
    (
        "glibc.malloc.hugetlb=1",
        "glibc.malloc.mmap_max=0",
        "glibc.malloc.trim_threshold=17179869184",
        "glibc.malloc.top_pad=268435456",
    )
)


def child_environment() -> dict[str, str]:
    """Environment variables of a process that works for this one."""
    # The code that made the call is the code that runs it; a folder named `model` where the user
    # happens to be is not looked at.
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", _KEEP_MEMORY),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONSAFEPATH": "1",
        LAUNCHER_VARIABLE: str(os.getpid()),
    }


def local_folder(work: str) -> Path:
    """Local folder for what belongs to a folder of work: that itself where it is local."""
    fs, path = file_system(work)
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    if "file" in protocols:
        return Path(path)
    digest = hashlib.sha256(work.encode()).hexdigest()[:16]
    return cache_folder() / "work" / digest


class Worker:
    """A process that takes calls, started by the first; any number of threads may call in turn."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_running = False
        self._stops = 0

    def call(self, function: str, argument: BaseModel) -> dict[str, Any]:
        """Call a function in the process and wait for its result.

        Args:
            function: such as `model.finetuning.prediction:run_evaluation`. It takes one pydantic
                model, and may take a `StopRequest` as `stop`; it gives a dictionary of plain JSON
                values.
            argument: its argument. What people see is its `name`, if it has one.

        Raises:
            BertloomError, OSError: as the function says.
            ConfigError: the argument names data in this process's memory.
            TrainingError: `stop` was called before its turn came.
            RunnerError: another error, or the process was killed; the next call starts a new one.
        """
        name = str(getattr(argument, "name", function))
        _check_not_in_memory(argument.model_dump(mode="json"), name=name)
        stops = self._stops
        message = {
            "function": function,
            "argument": argument.model_dump_json(),
            "folder": str(Path.cwd()),
        }
        line = json.dumps(message).encode() + b"\n"
        with self._turn:
            if self._stops != stops:
                raise TrainingError(f"{name}: stopped before it began")
            answer = b""
            while not answer.endswith(b"\n"):
                process, is_new = self._started()
                was_taken, answer = self._exchange(process, line)
                if not answer.endswith(b"\n"):
                    self._process = None
                    code = _end(process, seconds=_END_SECONDS)
                    if self._stops != stops and code in (0, -signal.SIGTERM):
                        raise TrainingError(f"{name}: stopped (SIGTERM)")
                    # One that was idle may end before it takes the call, which is no fault.
                    if was_taken or is_new:
                        raise _lost(name, code)
            found: dict[str, Any] = json.loads(answer)
            if found.get("is_last"):
                self._process = None
                _end(process, seconds=_END_SECONDS)
        if "error" in found:
            raise deserialize_error(found["error"], name=name)
        result: dict[str, Any] = found["result"]
        return result

    def stop(self) -> None:
        """Ask the call in progress, and those that wait for their turn, to stop; returns at once.

        A training writes a checkpoint first. Each call raises a TrainingError.
        """
        self._stops += 1
        process = self._process
        if process is not None and self._is_running:
            process.terminate()

    def end(self) -> None:
        """End the process; the next call starts another. A call in progress is stopped first."""
        process, is_running = self._process, self._is_running
        if process is None:
            return
        if is_running:
            process.terminate()
        self._process = None
        _end(process, seconds=_STOP_SECONDS if is_running else _END_SECONDS)

    def _started(self) -> tuple[subprocess.Popen[bytes], bool]:
        """The process, and whether it is a new one."""
        if self._process is not None and self._process.poll() is None:
            return self._process, False
        if self._process is not None:
            _end(self._process, seconds=0)
        self._process = _start(
            ["model.processes.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self._process, True

    def _exchange(self, process: subprocess.Popen[bytes], line: bytes) -> tuple[bool, bytes]:
        """Whether the call was taken, and its answer: b"" or a part of one if the process ended.

        Interrupted, the process is stopped first.
        """
        self._is_running = True
        try:
            _pipe(process.stdin).write(line)
            _pipe(process.stdin).flush()
            was_taken = bool(_pipe(process.stdout).readline())
            return was_taken, _pipe(process.stdout).readline()
        except BrokenPipeError:
            return False, b""
        except BaseException:
            self._process = None
            process.terminate()
            _end(process, seconds=_STOP_SECONDS)
            raise
        finally:
            self._is_running = False


class Workers:
    """Workers for calls that are made side by side: as many as there are calls at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Worker] = []
        self._idle: list[Worker] = []

    def call(self, function: str, argument: BaseModel) -> dict[str, Any]:
        """`Worker.call` of one that has nothing to do."""
        with self._lock:
            if self._idle:
                worker = self._idle.pop()
            else:
                worker = Worker()
                self._all.append(worker)
        try:
            with _in_group(worker.stop):
                return worker.call(function, argument)
        finally:
            with self._lock:
                self._idle.append(worker)

    def stop(self) -> None:
        """Ask all calls in progress to stop; returns at once."""
        for worker in self.workers:
            worker.stop()

    def end(self) -> None:
        """End all processes; the next call starts another."""
        for worker in self.workers:
            worker.end()

    @property
    def workers(self) -> list[Worker]:
        """All there are, busy or idle."""
        with self._lock:
            return list(self._all)


_SHARED = Workers()
_JOBS: set[subprocess.Popen[bytes]] = set()
_GROUP: contextvars.ContextVar[set[Callable[[], None]] | None] = contextvars.ContextVar(
    "_GROUP", default=None
)
atexit.register(lambda: _SHARED.end())


def _forget_in_child() -> None:
    # A forked child shares the pipes of processes that are not its own.
    global _SHARED
    _SHARED = Workers()
    _JOBS.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def call(function: str, argument: BaseModel) -> dict[str, Any]:
    """`Worker.call` of a worker of this process's own."""
    return _SHARED.call(function, argument)


def run_job(module: str, job: BaseModel, *, name: str, folder: Path, ranks: int) -> None:
    """Run a module on a job in processes of their own, one a rank, and wait for their end.

    Args:
        module: run as a program with the job's file; see `model.processes.worker.run_job_file`.
        job: written to the folder.
        name: what people call it.
        folder: local folder for the files of job and failure.
        ranks: processes; more than one are started by torchrun.

    Raises:
        BertloomError, OSError: as the module says.
        ConfigError: the job names data in this process's memory.
        RunnerError: another error, or a process was killed.
    """
    _check_not_in_memory(job.model_dump(mode="json"), name=name)
    folder.mkdir(parents=True, exist_ok=True)
    failure, job_file = folder / FAILURE_FILE, folder / JOB_FILE
    failure.unlink(missing_ok=True)
    job_file.touch(mode=0o600)  # URLs in it may hold credentials
    job_file.write_text(job.model_dump_json(indent=2), encoding="utf-8")
    command = [module, str(job_file)]
    added: dict[str, str] = {}
    if ranks > 1:
        torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
        command = [*torchrun, *command]
        # As long as a stop may take: torchrun would kill after 30 s, amid a large checkpoint; and
        # it would give each process one thread.
        threads = max(1, (os.cpu_count() or 1) // ranks)
        added |= {
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(int(_STOP_SECONDS)),
            "OMP_NUM_THREADS": str(threads),
        }
    with _start(command, added=added) as process, _in_group(process.terminate):
        _JOBS.add(process)
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            _end(process, seconds=_STOP_SECONDS)
            raise
        finally:
            _JOBS.discard(process)
    if code:
        if failure.exists():
            raise deserialize_error(json.loads(failure.read_text(encoding="utf-8")), name=name)
        raise _lost(name, code)


def stop_running_calls() -> None:
    """Ask all calls and jobs that threads of this process wait for to stop; returns at once.

    A training writes a checkpoint first, and the call raises a TrainingError.
    """
    _SHARED.stop()
    for process in tuple(_JOBS):
        process.terminate()


@contextlib.contextmanager
def call_group() -> Iterator[Callable[[], None]]:
    """Yield a function that stops the calls and jobs made by this thread in the block.

    It returns at once, as `stop_running_calls` does.
    """
    group: set[Callable[[], None]] = set()

    def stop_all() -> None:
        for stop in tuple(group):
            stop()

    token = _GROUP.set(group)
    try:
        yield stop_all
    finally:
        _GROUP.reset(token)


@contextlib.contextmanager
def _in_group(stop: Callable[[], None]) -> Iterator[None]:
    """Let the `call_group` of this thread, if there is one, stop a call in this block."""
    group = _GROUP.get()
    if group is None:
        yield
        return
    group.add(stop)
    try:
        yield
    finally:
        group.discard(stop)


def end_workers() -> None:
    """End the shared workers, and give their memory back; the next call starts another."""
    _SHARED.end()


def _start(
    module: list[str],
    *,
    stdin: int | None = None,
    stdout: int | None = None,
    added: Mapping[str, str] = {},
) -> subprocess.Popen[bytes]:
    """Run a module; of the added variables, those that the user has set stay as they are."""
    # A session of its own: Ctrl-C reaches this process alone, which passes one signal on. Two of
    # them make torchrun leave its workers alone before they have said how they ended.
    return subprocess.Popen(  # noqa: S603 - our own modules, no shell
        [sys.executable, "-m", *module],
        env={**added, **child_environment()},
        stdin=stdin,
        stdout=stdout,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes], *, seconds: float) -> int:
    """Close the pipes, on which a worker ends once it has nothing to do; its exit code."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    if process.stdout is not None:
        process.stdout.close()
    return code


def _lost(name: str, code: int) -> RunnerError:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return RunnerError(
        f"{name}: its process {how} and left no message (for SIGKILL: perhaps out of memory; lower "
        "per_device_max_tokens). Run again: a training goes on from its last checkpoint"
    )


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("the process was started without pipes")
    return pipe


def _check_not_in_memory(values: Any, *, name: str) -> None:
    """Refuse data that other processes cannot see: a `memory://` URL anywhere in JSON values."""
    if isinstance(values, str) and values.startswith("memory:"):
        raise ConfigError(
            f"{name}: {values} is in this process's memory, and training runs in processes of "
            "its own: choose a store in a folder or on s3:// or gs://"
        )
    if isinstance(values, (dict, list)):
        for value in values.values() if isinstance(values, dict) else values:
            _check_not_in_memory(value, name=name)
