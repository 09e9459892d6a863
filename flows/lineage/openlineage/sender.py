"""Send OpenLineage events from a thread, so that a slow collector delays no step."""

from __future__ import annotations

import logging
import queue
import threading

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import RunEvent

from schemas.redaction import redact

_CLOSE_SECONDS = 5.0
_LOGGER = logging.getLogger(__name__)


class EventSender:
    """Sends events in order, with the client that the user configured."""

    def __init__(self) -> None:
        """Start the thread. The client raises errors if its settings are wrong."""
        self._client, self._error = OpenLineageClient(), ""
        self._queue: queue.SimpleQueue[RunEvent | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send_all, name="openlineage", daemon=True)
        self._thread.start()

    def send(self, event: RunEvent) -> None:
        """Send an event; returns immediately."""
        self._queue.put(event)

    def close(self) -> None:
        """Wait a few seconds for the last events; log an error if some were not sent."""
        self._queue.put(None)
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive() or self._error:
            error = self._error or f"no answer in {_CLOSE_SECONDS:.0f} s"
            _LOGGER.warning("OpenLineage events were not sent: %s", error)

    def _send_all(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self._client.emit(event)
            except Exception as error:  # transports can raise anything
                self._error = redact(f"{type(error).__name__}: {error}")
        self._client.close(_CLOSE_SECONDS)
