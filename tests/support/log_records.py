"""Log records of bertloom."""

from __future__ import annotations

import logging

import pytest

_PACKAGES = ("schemas", "pipelines", "model", "flows", "bertloom")


def own_records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the captured records of our loggers.

    Threads of libraries that an earlier test started may log at any time: a client repeats a
    request that was refused.
    """
    return [record for record in caplog.records if record.name.partition(".")[0] in _PACKAGES]
