"""Filters for log messages of libraries that do not concern users of bertloom."""

from __future__ import annotations

import functools
import logging

_NOISE = {
    # Logged at import by a BigQuery client, which bertloom does not use.
    "root": "apitools not found",
    # Logged because the runner does not know that bertloom starts the worker processes.
    "apache_beam.runners.portability.fn_api_runner.fn_runner":
        "If direct_num_workers is not equal to 1",
}  # fmt: skip
"""Start of the message to drop, by logger."""


def silence_noisy_loggers() -> None:
    """Add the filters to their loggers."""
    for logger, prefix in _NOISE.items():
        logging.getLogger(logger).addFilter(functools.partial(_is_shown, prefix))


def _is_shown(prefix: str, record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(prefix)
