"""Calls of functions in other processes, for training, fine-tuning and evaluation.

A worker executes calls of a function of `model` with a pydantic model as its argument. Concurrent
calls have a worker each. A worker is reused, because loading torch takes as long as a short trial.

`model.training.worker_process` is the other side. Signals and torch's settings stay in the worker
process, and a crash does not end the run. A worker ends with its launcher.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import hashlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from pipelines.io.file_systems import file_system, protocols_of
from pipelines.io.user_cache import cache_folder
from pipelines.terminal import copy_lines
from schemas.error_serialization import deserialize_error
from schemas.errors import ConfigError, RunnerError, TrainingError

LAUNCHER_VARIABLE = "BERTLOOM_LAUNCHER"
"""Environment variable: id of the process that started the training."""

WORKER_VARIABLE = "BERTLOOM_WORKER"
"""Environment variable: number of the worker process, from 0."""

IDLE_SECONDS = 120.0
"""Time after which an idle worker ends."""

STOP_SECONDS = 300.0
"""Time to write a checkpoint, after which a process that was asked to stop is killed."""

_END_SECONDS = 10.0
_POLL_SECONDS = 0.5

_TORCHRUN_VARIABLES = frozenset(
    f"{scope}{name}"
    for scope in ("", "LOCAL_", "GROUP_", "ROLE_")
    for name in ("RANK", "WORLD_SIZE")
) | {"ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"}
"""Environment variables that torchrun sets for the processes it starts."""

_SETTINGS: tuple[tuple[dict[str, str], tuple[str, ...]], ...] = (
    # Each step allocates the same large buffers. By default glibc returns them to the system, and
    # the kernel clears their pages in each step.
    (
        {
            "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:"
            "glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=268435456"
        },
        (),
    ),
    # By default waiting threads of OpenMP (GNU's, LLVM's) spin for longer than a time slice of the
    # scheduler. On a busy machine they occupy the core that the last thread needs.
    ({"GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "0"}, ("OMP_WAIT_POLICY",)),
    # Packed batches have a new length in each step: let CUDA's allocator extend its blocks.
    ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, ("PYTORCH_CUDA_ALLOC_CONF",)),
)
"""Environment variables of libraries, and other names under which users set the same."""


def library_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables to set before torch is loaded. Settings of the user are kept."""
    return {
        name: value
        for values, other_names in _SETTINGS
        if environ.keys().isdisjoint((*values, *other_names))
        for name, value in values.items()
    }


def child_environment() -> dict[str, str]:
    """Return the environment variables of a worker process."""
    # Import this code, not a folder named `model` in the working directory.
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    # They describe the job of a torchrun that started this process.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in _TORCHRUN_VARIABLES and not name.startswith("TORCHELASTIC_")
    }
    return {
        **inherited,
        **library_settings(),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONSAFEPATH": "1",
        LAUNCHER_VARIABLE: str(os.getpid()),
    }


def local_folder(work: str) -> Path:
    """Return a local folder for a work folder: itself if it is local."""
    fs, path = file_system(work)
    if "file" in protocols_of(fs):
        return Path(path)
    digest = hashlib.sha256(work.encode()).hexdigest()[:16]
    return cache_folder() / "work" / digest


class _Process(NamedTuple):
    """Process of a worker, and the connection to it."""

    popen: subprocess.Popen[bytes]
    connection: Connection


class Worker:
    """Worker process, started by the first call. It executes one call at a time."""

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self._process: _Process | None = None

    def call(
        self,
        function: str,
        argument: BaseModel,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        """Call a function in the process and return its result.

        A stop (`stop_running_calls`) or an exception such as KeyboardInterrupt terminates the
        process: a training writes a checkpoint first.

        Args:
            function: Function such as `model.finetuning.prediction:run_evaluation`. It takes a
                pydantic model and `stop`, a `StopRequest`; it returns JSON values.
            argument: Argument. Messages have its `name`.
            should_stop: Called about twice per second; True requests a stop.

        Raises:
            BertloomError, OSError: Errors of the function.
            ConfigError: The argument refers to data in the memory of this process.
            TrainingError: The call was stopped.
            RunnerError: Another error, or the process was killed. The next call starts a new one.
        """
        name = str(getattr(argument, "name", function))
        text = argument.model_dump_json()
        _check_not_in_memory(text, name=name)
        stopped = threading.Event()
        with stoppable(stopped.set):
            try:
                process = self._begin((function, text, str(Path.cwd())), name=name)
                response = _receive(process, stopped=stopped, should_stop=should_stop)
            except BaseException as error:
                stopped.set()
                last = self._process and _receive(self._process, stopped=stopped)
                if last and "error" in last:
                    error.add_note(str(deserialize_error(last["error"], name=name)))
                self.end()
                raise
        if response is None:
            code = self._close()
            if stopped.is_set() and code in (0, -signal.SIGTERM):
                raise TrainingError(f"{name}: stopped (SIGTERM)")
            raise exit_error(name, code)
        if "error" in response or stopped.is_set():
            self.end()
        if "error" in response:
            raise deserialize_error(response["error"], name=name)
        result: dict[str, Any] = response["result"]
        return result

    def end(self) -> None:
        """Terminate the process and wait for its end. The next call starts another one."""
        if self._process is not None:
            self._process.popen.terminate()
            self._close(seconds=STOP_SECONDS)

    def _begin(self, call: tuple[str, str, str], *, name: str) -> _Process:
        """Return the process when it has begun a call; one that ended since the last is replaced.

        Raises:
            RunnerError: A new process ended.
        """
        if self._process is None or not _send(call, self._process):
            self.end()
            self._process = self._start()
            if not _send(call, self._process):
                raise exit_error(name, self._close())
        return self._process

    def _start(self) -> _Process:
        connection, theirs = multiprocessing.Pipe()
        with theirs:
            popen = start_module(
                ["model.training.worker_process", str(theirs.fileno()), str(IDLE_SECONDS)],
                pass_fds=[theirs.fileno()],
                added={WORKER_VARIABLE: str(self._number)},
            )
        return _Process(popen, connection)

    def _close(self, *, seconds: float = _END_SECONDS) -> int:
        """Wait for the end of the process, close the connection, and return the exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        code = end_process(process.popen, seconds=seconds)
        process.connection.close()
        return code


def _send(call: tuple[str, str, str], process: _Process) -> bool:
    """Send a call to a process; return whether it has begun, False if the process has ended."""
    try:
        process.connection.send(call)
        process.connection.recv()
    except (EOFError, ConnectionError):
        return False
    return True


def _receive(
    process: _Process,
    *,
    stopped: threading.Event,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any] | None:
    """Return the response of a process, which is ended after a stop; None if it has none."""
    while not process.connection.poll(_POLL_SECONDS):
        if should_stop():
            stopped.set()
        if stopped.is_set():
            process.popen.terminate()
            if not process.connection.poll(STOP_SECONDS):
                process.popen.kill()
    try:
        response: dict[str, Any] = process.connection.recv()
    except (EOFError, ConnectionResetError):
        return None
    return response


class WorkerPool:
    """Workers for concurrent calls, one for each.

    Attributes:
        workers: All workers, busy or idle.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start without workers. Those of a forked process belong to its parent."""
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self.workers: list[Worker] = []

    def call(self, function: str, argument: BaseModel) -> dict[str, Any]:
        """See `Worker.call`; uses an idle worker or starts one."""
        with self._lock:
            if self._idle:
                worker = self._idle.pop()
            else:
                worker = Worker(len(self.workers))
                self.workers.append(worker)
        try:
            return worker.call(function, argument)
        finally:
            with self._lock:
                self._idle.append(worker)

    def end(self) -> None:
        """End all processes and release their memory. The next call starts another one."""
        for worker in tuple(self.workers):
            worker.end()


_POOL = WorkerPool()
atexit.register(_POOL.end)
os.register_at_fork(after_in_child=_POOL.forget)

call_in_worker = _POOL.call
"""See `Worker.call`; uses the workers of this process."""

end_workers = _POOL.end

_RUNNING: set[Callable[[], None]] = set()
"""Functions that request a stop of the running calls."""

_GROUP: contextvars.ContextVar[set[Callable[[], None]]] = contextvars.ContextVar("_GROUP")


def call_in_new_worker(
    function: str, argument: BaseModel, *, should_stop: Callable[[], bool] = lambda: False
) -> None:
    """See `Worker.call`; uses a worker that ends with the call, and with it its memory."""
    worker = Worker()
    try:
        worker.call(function, argument, should_stop=should_stop)
    finally:
        worker.end()


def stop_running_calls() -> None:
    """Request a stop of all calls of this process, without waiting for it.

    A training writes a checkpoint first, and the call raises a TrainingError.
    """
    for stop in tuple(_RUNNING):
        stop()


@contextlib.contextmanager
def call_group() -> Iterator[Callable[[], None]]:
    """Yield a function that requests a stop of the calls of this thread in the block."""
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
def stoppable(stop: Callable[[], None]) -> Iterator[None]:
    """Register a call for `stop_running_calls`, and for the `call_group` of this thread."""
    groups = [_RUNNING, _GROUP.get(_RUNNING)]
    for group in groups:
        group.add(stop)
    try:
        yield
    finally:
        for group in groups:
            group.discard(stop)


def start_module(
    module: list[str], *, pass_fds: Sequence[int] = (), added: Mapping[str, str] = {}
) -> subprocess.Popen[bytes]:
    """Run a module. `added` are environment variables, unless the user has set them."""
    lines, stderr = os.pipe() if sys.stderr.isatty() else (None, None)
    # In a new session Ctrl-C reaches only this process, which sends one signal. After a second
    # signal torchrun would exit before its workers have written their errors.
    process = subprocess.Popen(  # noqa: S603 - module of this package, no shell
        [sys.executable, "-m", *module],
        env={**added, **child_environment()},
        stdin=subprocess.DEVNULL,
        stderr=stderr,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    if lines is not None and stderr is not None:
        os.close(stderr)
        copy_lines(os.fdopen(lines, "rb"))
    return process


def end_process(process: subprocess.Popen[bytes], *, seconds: float) -> int:
    """Wait for the end of a process, kill it after some time, and return the exit code."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def exit_error(name: str, code: int) -> RunnerError:
    """Return the error for a process that ended without one."""
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return RunnerError(
        f"{name}: worker process {how} without an error (SIGKILL usually means out of memory: "
        "lower per_device_max_tokens). Rerun to resume from the last checkpoint."
    )


def _check_not_in_memory(text: str, *, name: str) -> None:
    """Raise ConfigError for a `memory://` URL in JSON: other processes cannot read it."""
    if url := re.search(r'"(memory:[^"]*)"', text):
        raise ConfigError(
            f"{name}: {url[1]} is in the memory of this process, and training runs in other "
            "processes. Use a store in a folder or on s3:// or gs://."
        )
