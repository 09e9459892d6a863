"""What libraries log at each start that says nothing to users of ours is left out.

For the command and for whoever calls a flow from Python. Nothing else of theirs is touched.
"""

from __future__ import annotations

import logging

_NOISE = {
    # At each import, by the root logger: of a client of BigQuery, which nothing here uses.
    "root": "apitools not found",
    # Of worker processes, which it does not know we start ourselves.
    "apache_beam.runners.portability.fn_api_runner.fn_runner":
        "If direct_num_workers is not equal to 1",
}  # fmt: skip
"""How what is left out begins, by its logger."""


def silence_noisy_loggers() -> None:
    """Once a process: a filter that is there already is not added again."""
    for logger, beginning in _NOISE.items():
        logging.getLogger(logger).addFilter(_FILTERS[beginning])


class _Without(logging.Filter):
    def __init__(self, beginning: str) -> None:
        super().__init__()
        self._beginning = beginning

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(self._beginning)


_FILTERS = {beginning: _Without(beginning) for beginning in _NOISE.values()}
