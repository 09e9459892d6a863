"""Console output of the command: redacted text, filtered logs, errors with exit codes."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from pipelines.io.local_files import is_special, write_atomic
from pipelines.terminal import LogHandler
from schemas.errors import BertloomError, UsageError
from schemas.redaction import RedactingFormatter, escape_control_characters, redact

EXIT_ERROR, EXIT_USAGE, EXIT_BUG, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 2, 70, 130, 143

_CACHED = "Completed steps are cached"
_CONTINUES = f"{_CACHED}; the same command continues"
_WORKER_LOG = re.compile(r'^Worker: severity: .*? message: "((?:[^"\\]|\\.)*)"', re.DOTALL)
"""Format in which Beam logs the messages of a worker process."""


class _ConsoleFilter(logging.Filter):
    """Hides log records of Prefect, and errors that Beam logs before it raises them."""

    def filter(self, record: logging.LogRecord) -> bool:
        library = record.name.partition(".")[0]
        if library == "apache_beam" and (match := _WORKER_LOG.match(record.getMessage())):
            record.msg, record.args = match[1], ()
            return "Traceback" not in match[1]
        is_beam_error = library == "apache_beam" and record.levelno >= logging.ERROR
        return library != "prefect" and not is_beam_error


def log_to_console(*, verbose: bool) -> None:
    """Log to standard error: warnings and progress, or everything if `verbose`."""
    handler = LogHandler()
    handler.setFormatter(RedactingFormatter("%(levelname)s %(message)s"))
    if verbose:
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "INFO")
    else:
        handler.addFilter(_ConsoleFilter())
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    for package in ("pipelines", "model"):
        logging.getLogger(package).setLevel(logging.INFO)


class StepFailedError(BertloomError):
    """Step of a run that failed, by its label. The error that caused this one has been printed."""


class _Terminated(BaseException):
    """SIGTERM was received."""


@contextmanager
def handle_errors(*, debug: Callable[[], bool]) -> Iterator[None]:
    """Print an error or signal that ends the block, and exit with its code.

    Args:
        debug: Returns whether to print tracebacks.

    Raises:
        SystemExit: The block ended with an error or a signal.
    """

    def terminate(_signal: int, _frame: FrameType | None) -> None:
        raise _Terminated

    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except SystemExit as error:
        if error.code == EXIT_INTERRUPTED:  # typer turns KeyboardInterrupt into this exit
            echo(f"interrupted. {_CONTINUES}", err=True)
        raise
    except BrokenPipeError as error:  # for example `bertloom ls | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(EXIT_ERROR) from error
    except BaseException as error:
        code, text = _describe(error)
        if debug() and code not in (EXIT_INTERRUPTED, EXIT_TERMINATED):
            text = "".join(traceback.format_exception(error)).rstrip()
        echo(text, err=True)
        raise SystemExit(code) from error
    finally:
        signal.signal(signal.SIGTERM, previous)


def _describe(error: BaseException) -> tuple[int, str]:
    """Return the exit code of an error and the text that reports it."""
    notes = getattr(error, "__notes__", [])
    match error:
        case _Terminated():
            return EXIT_TERMINATED, f"terminated. {_CONTINUES}"
        case KeyboardInterrupt():
            return EXIT_INTERRUPTED, f"interrupted. {_CONTINUES}"
        case StepFailedError():
            notes = getattr(error.__cause__, "__notes__", [])
            report = [note for note in notes if note.startswith("report: ")]
            return EXIT_ERROR, "\n".join([f"error: {error} failed (see above). {_CACHED}", *report])
        case BertloomError():
            code = EXIT_USAGE if isinstance(error, UsageError) else EXIT_ERROR
            return code, "\n  ".join([f"error: {error}", *notes])
        case OSError(errno=int()):
            path = f"{error.filename}: " if error.filename else ""
            return EXIT_ERROR, f"error: {path}{error.strerror}"
        case ModuleNotFoundError():
            from flows.run.dependencies import install_hint  # lazy import: loads package metadata

            if hint := install_hint(error.name or ""):
                return EXIT_ERROR, f"error: {error.name} is not installed: {hint}"
    hint = "This is a bug in bertloom. Run with --debug for a traceback"
    return EXIT_BUG, f"error: {type(error).__name__}: {error}\n  {hint}"


def echo(text: str = "", *, err: bool = False) -> None:
    """Print text with secrets redacted and control characters escaped."""
    echo_raw(redact(text), err=err)


def echo_raw(text: str, *, err: bool = False) -> None:
    """Print text of a corpus: control characters are escaped, nothing is redacted."""
    typer.echo(escape_control_characters(text), err=err)


def print_json(value: Any) -> None:
    """Print a JSON value with secrets redacted."""
    echo_raw(json.dumps(redact(value), indent=2, ensure_ascii=False))


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file that is complete as soon as it is visible.

    A pipe or a device, such as `/dev/stdout`, is written to as it is.
    """
    data = content.encode() if isinstance(content, str) else content
    if is_special(path):
        path.write_bytes(data)
    else:
        write_atomic(path, data)
