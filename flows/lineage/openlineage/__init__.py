"""OpenLineage events of runs, sent by OpenLineage's client.

The client reads its transport from environment variables or `openlineage.yml`:
https://openlineage.io/docs/client/python/configuration. Without a transport it is not loaded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from flows.run.dependencies import install_hint
from flows.store.artifacts import ArtifactStore
from flows.store.runs import read_run

if TYPE_CHECKING:
    from flows.lineage.openlineage.listener import OpenLineageListener

_LOGGER = logging.getLogger(__name__)
_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT__")
_FILES = ("openlineage.yml", "~/.openlineage/openlineage.yml")


def openlineage_listeners() -> list[OpenLineageListener]:
    """Return the listener that sends the events of a run, or [] without a transport."""
    if any(name.startswith(_VARIABLES) and value for name, value in os.environ.items()) or any(
        Path(path).expanduser().is_file() for path in _FILES
    ):
        try:
            from flows.lineage.openlineage.listener import OpenLineageListener

            return [OpenLineageListener()]
        except ModuleNotFoundError as error:
            hint = install_hint(error.name or "") or "check its installation"
            _LOGGER.warning("OpenLineage is configured, but %s: %s", error, hint)
        except Exception as error:  # the client raises many types for wrong settings
            _LOGGER.warning("OpenLineage is not configured: %s", error)
    return []


def send_aborts(store: ArtifactStore, run_ids: Iterable[str]) -> None:
    """Send the ABORT of each run whose process was killed. Steps in progress get none."""
    for run_id in run_ids:
        for listener in openlineage_listeners():
            listener.abort(store, read_run(store, run_id))
