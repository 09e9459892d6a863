"""Listener that writes the report of a run when it ends."""

from __future__ import annotations

import logging

from flows.report.index import write_headline, write_index
from flows.report.page import write_report
from flows.report.run_steps import read_steps
from flows.run.events import Event, RunFinished
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, read_run

_LOGGER = logging.getLogger(__name__)


class ReportListener:
    """Writes the page of a run and the index of all runs; adds the page's URL to errors."""

    def on_event(self, event: Event) -> None:
        """Write the report at the end of a run."""
        if isinstance(event, RunFinished):
            store = event.run.store
            url = write_run_report(store, read_run(store, event.run.run_id))
            for error in event.failures.values():
                if url:
                    error.add_note(f"report: {url}")


def write_run_report(store: ArtifactStore, record: RunRecord, *, is_newest: bool = True) -> str:
    """Write the report of a run and update the index; log an error.

    Args:
        store: Artifact store of the run.
        record: Record of the run.
        is_newest: Whether it is the newest run of its recipe.

    Returns:
        URL of the report, "" if it could not be written.
    """
    try:
        url = write_report(store, record, is_newest=is_newest)
        write_headline(store, record, read_steps(store, record))
        write_index(store)
    except Exception as error:
        _LOGGER.warning("the report of run %s was not written: %r", record.run_id, error)
        _LOGGER.debug("traceback of the report", exc_info=True)
        return ""
    return url
