"""A process that fine-tunes and answers for this one, and lives on from trial to trial.

Trials of a sweep can be as short as two seconds, and loading torch takes as long. So a process is
kept, with torch and memory settings of its own (`model.processes.child_processes`). It is handed
one call
after the other as JSON over a pipe, and ends with this process however that ends, or after being
idle for a while; the next call then starts another. Calls made side by side have a process each.
`model.finetuning.task_worker` is the other side.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel

from model.processes.child_processes import (
    check_not_in_memory,
    child_environment,
    error_of,
    how_it_ended,
)
from schemas.errors import BertloomError, RunnerError, TrainingError

IDLE_VARIABLE = "BERTLOOM_WORKER_IDLE"
"""Environment variable: seconds without a call after which the process ends."""

_STOP_SECONDS = 300.0
_END_SECONDS = 10.0


class TaskProcess:
    """The process, started when first called; any number of threads may call, one at a time."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._last: subprocess.Popen[bytes] | None = None
        self._is_running = False
        self._stops = 0

    def call(self, function: str, argument: BaseModel) -> dict[str, Any]:
        """Call a function in the process and wait for its result.

        Args:
            function: such as `model.finetuning.answering:run_evaluation`. It takes one pydantic
                model, and may take a `StopRequest` as `stop`; it gives a dictionary of plain JSON
                values.
            argument: its argument. What people see is its `name`, if it has one.

        Raises:
            BertloomError: as the function says, by its own class.
            ConfigError: the argument names data in this process's memory.
            TrainingError: `stop` was called before its turn came.
            RunnerError: another error, or the process was killed; the next call starts a new one.
        """
        name = str(getattr(argument, "name", function))
        check_not_in_memory(_texts(argument.model_dump(mode="json")), name=name)
        stops = self._stops
        message = {
            "function": function,
            "argument": argument.model_dump_json(),
            "folder": str(Path.cwd()),  # relative paths mean the same there
        }
        line = json.dumps(message).encode() + b"\n"
        with self._turn:
            if self._stops != stops:
                raise TrainingError(f"{name}: stopped before it began")
            process = self._handed_over(line)
            answer = self._read_line(process) if process is not None else b""
            self._is_running = False
            if process is None or not answer.endswith(b"\n"):
                raise self._lost(process or self._last, name, was_asked=self._stops != stops)
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            raise error_of(found["error"], name=name)
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

    def _handed_over(self, line: bytes) -> subprocess.Popen[bytes] | None:
        """The process, once it has said that it has taken the call; None if it does not start."""
        while True:
            process, is_new = self._started()
            self._is_running = True
            try:
                _pipe(process.stdin).write(line)
                _pipe(process.stdin).flush()
                if self._read_line(process):
                    return process
            except BrokenPipeError:
                pass
            self._is_running = False
            self._process = None
            _end(process, seconds=_END_SECONDS)
            # Having been idle it may end at any moment, which is no fault.
            if is_new:
                self._last = process
                return None

    def _started(self) -> tuple[subprocess.Popen[bytes], bool]:
        """The process, and whether it is a new one."""
        if self._process is not None:
            return self._process, False
        # A session of its own: Ctrl-C reaches this process alone, which passes one signal on.
        self._process = subprocess.Popen(  # our own module, no shell
            [sys.executable, "-m", "model.finetuning.task_worker"],
            env=child_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        return self._process, True

    def _read_line(self, process: subprocess.Popen[bytes]) -> bytes:
        """A line, b"" or a part of one if the process ended. Interrupted, it is stopped first."""
        try:
            return _pipe(process.stdout).readline()
        except BaseException:
            self._process, self._is_running = None, False
            process.terminate()
            _end(process, seconds=_STOP_SECONDS)
            raise

    def _lost(
        self, process: subprocess.Popen[bytes] | None, name: str, *, was_asked: bool
    ) -> BertloomError:
        """What to say of a call that has no answer, as its process ended."""
        self._process = None
        code = 0 if process is None else _end(process, seconds=_END_SECONDS)
        if was_asked and code in (0, -signal.SIGTERM):
            return TrainingError(f"{name}: stopped (SIGTERM)")
        return RunnerError(
            f"{name}: the process that trains and predicts {how_it_ended(code)} and left no "
            "message (for SIGKILL: perhaps out of memory; lower micro_batch_tokens). Run again: "
            "a training goes on from its last checkpoint"
        )


def _end(process: subprocess.Popen[bytes], *, seconds: float) -> int:
    """Close the pipes, on which the process ends once it has nothing to do; its exit code."""
    with contextlib.suppress(OSError):
        _pipe(process.stdin).close()
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    _pipe(process.stdout).close()
    return code


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("the process was started without pipes")
    return pipe


def _texts(value: Any) -> list[str]:
    """All texts in plain JSON values."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return []


class TaskProcesses:
    """Processes for calls that are made side by side: as many as there are calls at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[TaskProcess] = []
        self._idle: list[TaskProcess] = []

    def call(self, function: str, argument: BaseModel) -> dict[str, Any]:
        """`TaskProcess.call` of one that has nothing to do."""
        with self._lock:
            if self._idle:
                process = self._idle.pop()
            else:
                process = TaskProcess()
                self._all.append(process)
        try:
            return process.call(function, argument)
        finally:
            with self._lock:
                self._idle.append(process)

    def stop(self) -> None:
        """Ask all calls in progress to stop; returns at once."""
        for process in self.processes:
            process.stop()

    def end(self) -> None:
        """End all processes; the next call starts another."""
        for process in self.processes:
            process.end()

    @property
    def processes(self) -> list[TaskProcess]:
        """All there are, busy or idle."""
        with self._lock:
            return list(self._all)


_SHARED = TaskProcesses()
atexit.register(_SHARED.end)


def _forget_in_child() -> None:
    # A forked child shares the pipes of processes that are not its own.
    global _SHARED
    _SHARED = TaskProcesses()


os.register_at_fork(after_in_child=_forget_in_child)


def call(function: str, argument: BaseModel) -> dict[str, Any]:
    """`TaskProcess.call` of a process of this process's own."""
    return _SHARED.call(function, argument)


def stop_running_calls() -> None:
    """Ask all calls that threads of this process wait for to stop; see `TaskProcess.stop`."""
    _SHARED.stop()


def end_process() -> None:
    """End the shared processes, and give their memory back; the next call starts another."""
    _SHARED.end()
