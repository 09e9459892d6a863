"""Listener that writes the report of a run when it ends."""

from __future__ import annotations

import logging

from flows.report.artifact_pages import write_artifact_pages
from flows.report.index import write_headline, write_index
from flows.report.page import includes_text, write_report
from flows.report.run_steps import read_steps
from flows.run.events import Event, RunFinished
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, report_path

_LOGGER = logging.getLogger(__name__)


class ReportListener:
    """Writes the pages of a run and the index of all runs; adds the report's URL to errors."""

    def on_event(self, event: Event) -> None:
        """Write the report at the end of a run."""
        if isinstance(event, RunFinished) and (record := event.run.record) is not None:
            run = event.run
            run.has_report = write_run_report(run.store, record)
            for error in event.failures.values():
                if run.has_report:
                    error.add_note(f"report: {run.store.url(report_path(run.run_id))}")


def write_run_report(store: ArtifactStore, record: RunRecord) -> bool:
    """Write the report of the newest run of a recipe, the index and the pages of its artifacts.

    An error is logged.

    Returns:
        True if the report is written.
    """
    is_written = False
    try:
        steps = read_steps(store, record)
        write_report(store, record, steps)
        is_written = True
        write_headline(store, record, steps)
        write_index(store)
        manifests = [built.manifest for built in steps.built]
        write_artifact_pages(store, manifests, shows_text=includes_text(record))
    except Exception as error:
        what = "pages next to the report" if is_written else "the report"
        _LOGGER.warning("run %s: %s could not be written: %r", record.run_id, what, error)
        _LOGGER.debug("traceback of the report", exc_info=True)
    return is_written
