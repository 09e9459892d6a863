"""The process that `model.processes.launcher` hands its calls to.

`python -m model.processes.worker` reads calls as lines of JSON from its standard input. It writes a
line when it takes one and a second with the result or error, until the launcher ends or there was
no call for a while. What the functions themselves print goes to standard error. The program of a
rank calls `run_job_file`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import logging
import os
import select
import signal
import sys
import threading
import time
import typing
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel

from model.processes.core_share import bound_spinning
from model.processes.launcher import FAILURE_FILE, IDLE_VARIABLE, LAUNCHER_VARIABLE
from model.processes.stopping import StopRequest
from schemas.error_serialization import serialize_error
from schemas.errors import BertloomError, TrainingError
from schemas.redaction import RedactingFormatter

_LOGGER = logging.getLogger("model.processes.worker")  # run as a program, it has another name
_PACKAGE = "model."
_IDLE_SECONDS = 120.0
_LOOK_SECONDS = 1.0


def main() -> int:
    """Take calls until the launcher ends, or there was none for a while."""
    calls, answers = _private_pipes()
    _prepare("fine-tuning and answering")
    launcher = int(os.environ.get(LAUNCHER_VARIABLE, os.getppid()))
    idle = float(os.environ.get(IDLE_VARIABLE, _IDLE_SECONDS))
    while True:
        # Open while it waits, too: a signal for a call that has just been read is not lost.
        with _CallStop(launcher=launcher) as stop:
            line = _next_line(calls, stop=stop, idle=idle)
            if not line:
                return 0
            _write(answers, {"taken": True})
            try:
                answer = {"result": _run(json.loads(line), stop=stop)}
            except BertloomError as error:
                answer = {"error": serialize_error(error)}
            except Exception as error:
                # Nobody knows what state it leaves behind, on a GPU above all: the next call gets
                # a process of its own.
                _LOGGER.exception("a fault in the process that trains and predicts")
                _write(answers, {"error": serialize_error(error), "is_last": True})
                return 1
            _write(answers, answer)


def run_job_file(function: str, file: str) -> int:
    """Call a function with the argument in a file, as one rank of a job.

    Returns:
        The exit code: 0, or 1 for an error, which is left beside the file for the launcher.
    """
    job_file = Path(file)
    text = job_file.read_text(encoding="utf-8")
    _prepare(str(json.loads(text).get("name", function)))
    launcher = os.environ.get(LAUNCHER_VARIABLE)
    try:
        with StopRequest(launcher=int(launcher) if launcher else None) as stop:
            _called(function, text, stop=stop)
    except BertloomError as error:
        leave_failure(job_file.parent, error)
        return 1
    except BaseException as error:
        leave_failure(job_file.parent, error)
        raise
    return 0


def leave_failure(folder: Path, error: BaseException) -> None:
    """Leave an error for the process that started the job."""
    facts = serialize_error(error)
    beside = folder / f".{FAILURE_FILE}.{os.getpid()}"
    try:
        beside.write_text(json.dumps(facts), encoding="utf-8")
        with contextlib.suppress(FileExistsError):  # the first of several ranks is the cause
            os.link(beside, folder / FAILURE_FILE)
    except OSError as problem:  # a full disk may be what the error is about: say it all the same
        _LOGGER.error("%s: %s", facts["class"], facts["message"])
        _LOGGER.error("%s: the message above cannot be left there: %s", folder, problem)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def _prepare(name: str) -> None:
    """Set up logging, and how threads wait, before the function's module loads torch."""
    share = bound_spinning()
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("model").setLevel(logging.INFO)
    if share is not None and os.environ.get("RANK", "0") == "0":
        _LOGGER.info("%s: %s", name, share.text)


class _CallStop(StopRequest):
    """Interrupts a function that does not look at it."""

    interrupts = False

    def ask(self, reason: str) -> None:
        super().ask(reason)
        if not self.interrupts:
            return
        if threading.current_thread() is threading.main_thread():
            raise TrainingError(f"stopped ({self.reason})")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _private_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The pipes to the launcher, where no `print` of a library can get into them."""
    calls = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return calls, answers


def _next_line(calls: IO[bytes], *, stop: StopRequest, idle: float) -> bytes:
    """The next call; b"" if there will be none."""
    end = time.monotonic() + idle
    line = b""
    while not line.endswith(b"\n"):
        left = end - time.monotonic()
        if select.select([calls], [], [], max(0.0, min(_LOOK_SECONDS, left)))[0]:
            chunk = calls.read(1 << 16)
            if not chunk:  # the launcher closed its end, or has ended
                return b""
            line += chunk
        elif stop.reason or (left <= 0 and not line):
            return b""
    return line


def _write(answers: IO[bytes], values: dict[str, Any]) -> None:
    data = json.dumps(values).encode() + b"\n"
    try:
        while data:
            data = data[answers.write(data) :]
    except BrokenPipeError:
        _LOGGER.info("nobody waits for the answer any more")


def _run(message: dict[str, Any], *, stop: _CallStop) -> dict[str, Any]:
    os.chdir(message["folder"])
    return _called(message["function"], message["argument"], stop=stop)


def _called(name: str, argument: str, *, stop: StopRequest) -> dict[str, Any]:
    """The result of a function, given its argument as JSON."""
    function = _function(name)
    _reset_threads()
    (kind, *_) = [t for n, t in typing.get_type_hints(function).items() if n != "return"]
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        raise TypeError(f"{name}: expected a function of a pydantic model")
    given = kind.model_validate_json(argument)
    if "stop" in inspect.signature(function).parameters:
        result: dict[str, Any] = function(given, stop=stop)
        return result
    if isinstance(stop, _CallStop):
        stop.interrupts = True
    try:
        result = function(given)
    finally:
        if isinstance(stop, _CallStop):
            stop.interrupts = False
    return result


def _function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    if not module.startswith(_PACKAGE):
        raise ValueError(f"{name}: expected a function of the package model")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


_THREADS: int | None = None  # that torch chose by itself


def _reset_threads() -> None:
    """Begin each call with as many threads as the first one; torch, if the function needs it, was
    loaded with the function's module."""
    global _THREADS
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if _THREADS is None:
        _THREADS = torch.get_num_threads()
    torch.set_num_threads(_THREADS)


if __name__ == "__main__":
    raise SystemExit(main())
