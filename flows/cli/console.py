"""What the command writes to the console: libraries' logs filtered, signals and errors as text."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from flows.run.dependencies import install_hint
from schemas.errors import BertloomError, UsageError
from schemas.redaction import RedactingFormatter, escape_control_characters, redact

EXIT_ERROR, EXIT_USAGE, EXIT_BUG, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 2, 70, 130, 143
_CACHED = ". Completed steps are cached"

# How Beam wraps what a worker process logs.
_FROM_WORKER = re.compile(r'^Worker: severity: .*? message: "((?:[^"\\]|\\.)*)"', re.DOTALL)


class _ForConsole(logging.Filter):
    """Leaves out what Prefect and Beam log by themselves; unwraps what workers warn of.

    What Beam logs as an error is raised as well, and said by the step that failed.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        library = record.name.partition(".")[0]
        message = record.getMessage()
        if library == "prefect":
            return False
        wrapped = _FROM_WORKER.match(message) if library == "apache_beam" else None
        if wrapped:
            record.msg, record.args = wrapped[1], ()
            return "Traceback" not in message
        return library != "apache_beam" or record.levelno < logging.ERROR


def log_to_console(*, verbose: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(levelname)s %(message)s"))
    if not verbose:
        handler.addFilter(_ForConsole())
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, handlers=[handler])
    for package in ("pipelines", "model"):  # a line on progress now and then
        logging.getLogger(package).setLevel(logging.INFO)
    if verbose:
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "INFO")


_PATH_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ENAMETOOLONG)
_REMEDIES = {
    **dict.fromkeys(_PATH_ERRORS, "Check the path"),
    errno.EEXIST: "Name another file",
    errno.ENOSPC: "Free some space",
    errno.EDQUOT: "Free some space, or raise the quota",
    errno.EFBIG: "Raise the limit on file sizes (ulimit -f)",
    errno.EROFS: "Use a disk that can be written to",
    errno.EACCES: "Check the permissions, or use another folder",
    errno.EPERM: "Check the permissions, or use another folder",
}
"""What the user can do about an error of the operating system."""


class Terminated(BaseException):
    """SIGTERM: work stops as it does for Ctrl-C, and the exit code says which it was."""


@contextmanager
def handle_sigterm() -> Iterator[None]:
    """Let SIGTERM stop what runs in the block as Ctrl-C does. For the main thread."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise Terminated

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread: signals are somebody else's affair
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def handle_errors(*, debug: Callable[[], bool]) -> Iterator[None]:
    """Let what ends the block end the process: a sentence or two, and the exit code.

    Args:
        debug: whether to show tracebacks; asked when something has gone wrong.

    Raises:
        SystemExit: with the code, where something has gone wrong.
    """
    try:
        with handle_sigterm():
            yield
    except SystemExit as ended:
        if ended.code == EXIT_INTERRUPTED:  # what typer makes of Ctrl-C, without a word
            echo(f"interrupted{_CACHED}", err=True)
        raise
    except BrokenPipeError as error:
        # What reads our lines (`head`, say) has seen enough. Python would say so at exit too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(EXIT_ERROR) from error
    except BaseException as error:
        raise SystemExit(_said(error, debug=debug())) from error


def _said(error: BaseException, *, debug: bool) -> int:
    """Say what went wrong; the exit code."""
    code, lines = _code_and_lines(error)
    if debug and code not in (EXIT_INTERRUPTED, EXIT_TERMINATED):
        lines = ["".join(traceback.format_exception(error)).rstrip()]
    for line in lines:
        echo(line, err=True)
    return code


def _remedy(error: OSError) -> str:
    """Return what the user can do about an error of the operating system, "" if unknown."""
    if error.errno == errno.ENOSPC:
        with suppress(OSError):
            stat = os.statvfs(Path(os.fsdecode(error.filename or ".")).absolute().parent)
            if stat.f_bavail and stat.f_files and not stat.f_favail:
                return "Delete files: the disk has free bytes, but no free inodes"
    return _REMEDIES.get(error.errno or 0, "")


def _code_and_lines(error: BaseException) -> tuple[int, list[str]]:
    if isinstance(error, Terminated):
        return EXIT_TERMINATED, [f"terminated{_CACHED}"]
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED, [f"interrupted{_CACHED}"]
    if isinstance(error, BertloomError):
        code = EXIT_USAGE if isinstance(error, UsageError) else EXIT_ERROR
        if label := error.__dict__.get("printed_label"):
            notes = getattr(error, "__notes__", ())
            report = [note for note in notes if note.startswith("report: ")]
            return code, [f"error: {label} failed (see above). Completed steps are cached", *report]
        return code, [f"error: {error}", *(f"  {note}" for note in getattr(error, "__notes__", ()))]
    if isinstance(error, OSError) and (remedy := _remedy(error)):
        where = f"{error.filename}: " if error.filename else ""
        return EXIT_ERROR, [f"error: {where}{error.strerror}. {remedy}"]
    if isinstance(error, ModuleNotFoundError) and (how := install_hint(error.name or "")):
        return EXIT_ERROR, [f"error: {error.name} is not installed: {how}"]
    return EXIT_BUG, [
        f"error: {type(error).__name__}: {error}",
        "  This is a bug in bertloom. Run with --debug for a traceback",
    ]


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text of ours, in which names may stand that others gave: the one way to the console.

    Args:
        err: to standard error.
        nl: end the line.
    """
    echo_raw(redact(text), err=err, nl=nl)


def echo_raw(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text of a corpus: as `echo`, with all of its words."""
    typer.echo(escape_control_characters(text), err=err, nl=nl)


def print_json(value: Any, *, sort_keys: bool = False) -> None:
    """Print a JSON value, indented."""
    text = json.dumps(redact(value), indent=2, ensure_ascii=False, sort_keys=sort_keys)
    echo_raw(text)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they are."""
    for line in lines:
        echo(line)


def print_result(found: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Print what was found as JSON, or the lines that say it to a person."""
    if as_json:
        print_json(found)
    else:
        print_lines(lines)
