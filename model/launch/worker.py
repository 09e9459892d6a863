"""Worker process of `model.launch.launcher`.

`python -m model.launch.worker` reads calls as JSON lines from standard input. For each call it
writes one line when it accepts the call, and one with the result or error. It ends with the
launcher, or when it is idle. `run_job_file` is the program of a rank of a job.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import logging
import os
import select
import sys
import time
import typing
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel

from model.launch.launcher import FAILURE_FILE, IDLE_VARIABLE, LAUNCHER_VARIABLE
from model.launch.stopping import StopRequest
from schemas.error_serialization import serialize_error
from schemas.errors import BertloomError
from schemas.redaction import RedactingFormatter

_LOGGER = logging.getLogger("model.launch.worker")  # __name__ is __main__ in a worker
_PACKAGE = "model."

_IDLE_SECONDS = 120.0
_POLL_SECONDS = 1.0


def main() -> int:
    """Execute calls until the launcher ends or the worker is idle."""
    calls, results = _take_standard_pipes()
    _set_up_logging()
    launcher = int(os.environ.get(LAUNCHER_VARIABLE, os.getppid()))
    idle_seconds = float(os.environ.get(IDLE_VARIABLE, _IDLE_SECONDS))
    while True:
        # Open while waiting, so that a signal just after a call was read stops that call.
        with StopRequest(launcher=launcher) as stop:
            line = _read_call(calls, stop=stop, idle_seconds=idle_seconds)
            if not line:
                return 0
            _write(results, {"accepted": True})
            try:
                message = json.loads(line)
                os.chdir(message["folder"])
                result = {"result": _call(message["function"], message["argument"], stop=stop)}
            except BertloomError as error:
                result = {"error": serialize_error(error)}
            except Exception as error:
                # The state of this process, above all on a GPU, is unknown: do not reuse it.
                _LOGGER.exception("Unexpected error in the worker process")
                _write(results, {"error": serialize_error(error), "is_last": True})
                return 1
            _write(results, result)


def run_job_file(function: str, file: str) -> int:
    """Call a function with the argument in a file, as one rank of a job.

    Returns:
        Exit code 0, or 1 for an error, which is written for the launcher.
    """
    job_file = Path(file)
    text = job_file.read_text(encoding="utf-8")
    _set_up_logging()
    launcher = os.environ.get(LAUNCHER_VARIABLE)
    try:
        with StopRequest(launcher=int(launcher) if launcher else None) as stop:
            _call(function, text, stop=stop)
    except BaseException as error:
        write_failure(job_file.parent, error)
        if isinstance(error, BertloomError):
            return 1
        raise
    return 0


def write_failure(folder: Path, error: BaseException) -> None:
    """Write an error for the launcher. The first error of several ranks is kept."""
    facts = serialize_error(error)
    temporary = folder / f".{FAILURE_FILE}.{os.getpid()}"
    try:
        temporary.write_text(json.dumps(facts), encoding="utf-8")
        with contextlib.suppress(FileExistsError):
            os.link(temporary, folder / FAILURE_FILE)
    except OSError as problem:  # for example a full disk, which may be the error itself
        _LOGGER.error("%s: %s", facts["class"], facts["message"])
        _LOGGER.error("%s: cannot write the error above: %s", folder, problem)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _set_up_logging() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("model").setLevel(logging.INFO)


def _take_standard_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return the pipes to the launcher, and redirect what libraries print to standard error."""
    calls = os.fdopen(os.dup(0), "rb", buffering=0)
    results = os.fdopen(os.dup(1), "wb", buffering=0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return calls, results


def _read_call(calls: IO[bytes], *, stop: StopRequest, idle_seconds: float) -> bytes:
    """Return the next call, or b"" if the worker should end."""
    end = time.monotonic() + idle_seconds
    line = b""
    while not line.endswith(b"\n"):
        left = end - time.monotonic()
        if select.select([calls], [], [], max(0.0, min(_POLL_SECONDS, left)))[0]:
            chunk = calls.read(1 << 16)
            if not chunk:
                return b""
            line += chunk
        elif stop.reason or (left <= 0 and not line):
            return b""
    return line


def _write(results: IO[bytes], values: dict[str, Any]) -> None:
    data = json.dumps(values).encode() + b"\n"
    try:
        while data:
            data = data[results.write(data) :]
    except BrokenPipeError:
        _LOGGER.info("The launcher has ended; the result is dropped")


def _call(name: str, argument: str, *, stop: StopRequest) -> dict[str, Any]:
    """Call a function with its argument as JSON, and return its result."""
    function = _load_function(name)
    _reset_threads()
    argument_type: type[BaseModel] = next(iter(typing.get_type_hints(function).values()))
    result: dict[str, Any] = function(argument_type.model_validate_json(argument), stop=stop)
    return result


def _load_function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    if not module.startswith(_PACKAGE):
        raise ValueError(f"{name}: expected a function of the package model")
    function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return function


@functools.cache
def _default_threads() -> int:
    import torch  # lazy: the function has loaded it

    return torch.get_num_threads()


def _reset_threads() -> None:
    """Reset torch's number of threads, which the previous call may have changed."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(_default_threads())


if __name__ == "__main__":
    raise SystemExit(main())
