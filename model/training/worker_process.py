"""Worker process of `model.training.workers`.

`python -m model.training.worker_process FD SECONDS` executes calls that it receives from a
connection. It ends with the launcher, after an error, or when it is idle for some seconds.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pkgutil
import sys
import typing
from multiprocessing.connection import Connection
from typing import Any

from pydantic import BaseModel

from model.training.stopping import StopRequest
from model.training.workers import LAUNCHER_VARIABLE
from schemas.error_serialization import serialize_error
from schemas.errors import BertloomError
from schemas.redaction import RedactingFormatter

_LOGGER = logging.getLogger("model.training.worker_process")  # __name__ is __main__ in a worker


def main(descriptor: int, idle_seconds: float) -> None:
    """Execute calls until the launcher ends, a call fails, or the worker is idle."""
    connection = Connection(descriptor)
    os.dup2(2, 1)  # what libraries print
    set_up_logging()
    launcher = int(os.environ.get(LAUNCHER_VARIABLE, os.getppid()))
    with contextlib.suppress(EOFError, ConnectionError):  # the launcher has ended
        while connection.poll(idle_seconds):
            function, argument, folder = connection.recv()
            connection.send("begun")
            try:
                with StopRequest(launcher=launcher) as stop:
                    os.chdir(folder)
                    result = _call(function, argument, stop=stop)
            except Exception as error:
                if not isinstance(error, BertloomError):
                    _LOGGER.exception("Unexpected error in the worker process")
                # The state of this process, above all on a GPU, is unknown: do not reuse it.
                connection.send({"error": serialize_error(error)})
                return
            connection.send({"result": result})


def set_up_logging() -> None:
    """Log the warnings of all packages, and what `model` reports, to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("model").setLevel(logging.INFO)


def _call(name: str, argument: str, *, stop: StopRequest) -> dict[str, Any]:
    """Call a function of `model` with its argument as JSON, and return its result."""
    if not name.startswith("model."):
        raise ValueError(f"{name}: expected a function of the package model")
    function = pkgutil.resolve_name(name)
    _reset_threads()
    argument_type: type[BaseModel] = next(iter(typing.get_type_hints(function).values()))
    result: dict[str, Any] = function(argument_type.model_validate_json(argument), stop=stop)
    return result


@functools.cache
def _default_threads() -> int:
    import torch  # lazy: the function has loaded it

    return torch.get_num_threads()


def _reset_threads() -> None:
    """Reset torch's number of threads, which the previous call may have changed."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(_default_threads())


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
