"""Prefect's log of errors that say all there is to say in a sentence.

Prefect logs an error at each level that it passes (task, part, flow, process), each time with the
traceback of Beam's insides. An error that is raised on purpose names what was found, where, and
what to do; where it was raised in our code helps nobody who reads a page of Prefect's.
"""

from __future__ import annotations

import logging

from schemas.errors import BertloomError

_LOGGERS = ("prefect.task_runs", "prefect.flow_runs", "prefect.engine")


class _InASentence(logging.Filter):
    """Takes the traceback off the record of a `BertloomError`; others stay as they are."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, BertloomError):
            record.msg, record.args = "%s: %s", (type(error).__name__, error)
            record.exc_info = record.exc_text = None
        return True


_FILTER = _InASentence()


def say_errors_in_a_sentence() -> None:
    """From now on in this process; once is enough, more often does no harm."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
