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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer

from flows.engine.extras import remedy as install
from schemas.disclosure import Guarded, visible, without_secrets
from schemas.errors import BertloomError, UsageError

EXIT_ERROR, EXIT_USAGE, EXIT_BUG, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 2, 70, 130, 143

# Said by Beam at each import, and of worker processes that it does not know we start ourselves.
_NOISE = ("apitools not found", "If direct_num_workers is not equal to 1")


# How Beam wraps what a worker process logs.
_FROM_WORKER = re.compile(r'^Worker: severity: .*? message: "((?:[^"\\]|\\.)*)"', re.DOTALL)


class _ForConsole(logging.Filter):
    """Leaves out what Prefect and Beam log by themselves; unwraps what workers warn of.

    What Beam logs as an error is raised as well, and said by the step that failed.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        library = record.name.partition(".")[0]
        message = record.getMessage()
        if library == "prefect" or message.startswith(_NOISE):
            return False
        wrapped = _FROM_WORKER.match(message) if library == "apache_beam" else None
        if wrapped:
            record.msg, record.args = wrapped[1], ()
            return "Traceback" not in message
        return library != "apache_beam" or record.levelno < logging.ERROR


def log_to_console(*, verbose: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(Guarded("%(levelname)s %(message)s"))
    if not verbose:
        handler.addFilter(_ForConsole())
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, handlers=[handler])
    for package in ("pipelines", "model"):  # a line on progress now and then
        logging.getLogger(package).setLevel(logging.INFO)
    if verbose:
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "INFO")


# What the user's disk says, and no fault of the program; each with the remedy.
_DISK = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or have the quota raised",
    errno.EROFS: "use a disk that can be written to",
    errno.EACCES: "use a folder that you may write to",
    errno.EPERM: "use a folder that you may write to",
}


class Terminated(BaseException):
    """SIGTERM: work stops as it does for Ctrl-C, and the exit code says which it was."""


@contextmanager
def terminable() -> Iterator[None]:
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


def exit_code_of(call: Callable[[], object], *, debug: Callable[[], bool]) -> int:
    """Call; say what went wrong in a sentence or two; the exit code, 0 if nothing did.

    Args:
        call: what to do; its `SystemExit` is passed on.
        debug: whether to show tracebacks; asked when something has gone wrong.
    """
    try:
        with terminable():
            call()
    except BertloomError as error:
        _say_error(error, debug=debug())
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_ERROR
    except Terminated:
        _say("terminated; steps that were finished are kept")
        return EXIT_TERMINATED
    except KeyboardInterrupt:
        _say("interrupted; steps that were finished are kept")
        return EXIT_INTERRUPTED
    except SystemExit as left:
        if left.code == EXIT_INTERRUPTED:  # what typer makes of Ctrl-C, without a word
            _say("interrupted; steps that were finished are kept")
        raise
    except BrokenPipeError:
        # What reads our lines (`head`, say) has seen enough. Python would say so at exit too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    except Exception as error:
        remedy = _DISK.get(error.errno or 0) if isinstance(error, OSError) else None
        if debug():
            _say("".join(traceback.format_exception(error)).rstrip())
        elif remedy:
            _say(f"error: {error}: {remedy}, and try again; what was finished is kept")
        elif isinstance(error, ModuleNotFoundError) and (how := install(error.name or "")):
            _say(f"error: {error.name} is not installed: {how}")
            return EXIT_ERROR
        else:
            _say(
                f"error: {type(error).__name__}: {error}\n"
                "  This is a fault of bertloom's, not of your input; --debug shows where it is"
            )
        return EXIT_ERROR if remedy else EXIT_BUG
    return 0


def _say_error(error: BertloomError, *, debug: bool) -> None:
    if debug:
        _say("".join(traceback.format_exception(error)).rstrip())
        return
    if label := error.__dict__.get("said_of"):
        _say(f"error: {label} failed, as its line says; what was finished is kept")
        return
    _say(f"error: {error}")
    for note in getattr(error, "__notes__", ()):
        _say(f"  {note}")


def _say(text: str) -> None:
    say(text, err=True)


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text of ours, in which names may stand that others gave: the one way to the console.

    Args:
        err: to standard error.
        nl: end the line.
    """
    say_text(without_secrets(text), err=err, nl=nl)


def say_text(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text of a corpus: as `say`, with all of its words."""
    typer.echo(visible(text), err=err, nl=nl)


def print_json(value: Any, *, sort_keys: bool = False) -> None:
    """Print a JSON value, indented."""
    text = json.dumps(without_secrets(value), indent=2, ensure_ascii=False, sort_keys=sort_keys)
    say_text(text)
