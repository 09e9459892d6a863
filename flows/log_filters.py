"""Filters for log messages of libraries that do not concern users of bertloom."""

from __future__ import annotations

import logging

_NOISE = {
    # Logged at import by a BigQuery client, which bertloom does not use.
    "root": "apitools not found",
    # Logged because the runner does not know that bertloom starts the worker processes.
    "apache_beam.runners.portability.fn_api_runner.fn_runner":
        "If direct_num_workers is not equal to 1",
}  # fmt: skip
"""Start of the message to drop, by logger."""


class _PrefixFilter(logging.Filter):
    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(self._prefix)


_FILTERS = {prefix: _PrefixFilter(prefix) for prefix in _NOISE.values()}


def silence_noisy_loggers() -> None:
    """Add the filters to their loggers; repeated calls have no effect."""
    for logger, prefix in _NOISE.items():
        logging.getLogger(logger).addFilter(_FILTERS[prefix])
