"""Signs of life of a run: a small file that is written again as long as its process is there.

    runs/RUN_ID/alive.json      {run_id, written}

When it was last written is told by the disk's or the server's clock, in the listing that whoever
asks needs anyway; all files of the run's folder count. So a run of another machine that was killed
is known after a quarter of an hour, for one small request a minute.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from flows.store.artifacts import ArtifactStore, now, to_json

BEAT_SECONDS = 60.0
SILENT_SECONDS = 15 * 60.0
"""After so long without a sign a run is over; a machine that slept for less counts as there."""

_ALIVE = "alive.json"
_LOGGER = logging.getLogger(__name__)


class Heartbeat:
    """Writes signs of life of one run until it is stopped, or its process ends."""

    def __init__(self, store: ArtifactStore, run_id: str) -> None:
        """Nothing is written yet: the run's record is the first sign."""
        self._store, self._run_id = store, run_id
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"alive-{run_id}", daemon=True)

    def start(self) -> None:
        """Write one every `BEAT_SECONDS` from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Write no more; one that is being written is waited for."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            sign = to_json({"run_id": self._run_id, "written": now()})
            try:
                self._store.backend.replace(f"runs/{self._run_id}/{_ALIVE}", sign)
            except Exception as error:  # the disk's or the network's; the next turn tries again
                _LOGGER.debug("run %s: no sign of life was left: %s", self._run_id, error)


def last_signs(store: ArtifactStore) -> dict[str, float]:
    """When each run last wrote to its folder, seconds since the epoch by the store's clock."""
    signs: dict[str, float] = {}
    for path, facts in store.backend.facts("runs").items():
        parts = path.split("/")
        if len(parts) > 2:
            signs[parts[1]] = max(signs.get(parts[1], 0.0), facts.modified)
    return signs


def is_silent(record: Mapping[str, Any], *, last_sign: float, moment: float) -> bool:
    """Whether a run that leaves signs of life has left none for `SILENT_SECONDS`.

    Runs of earlier versions leave none, so that nothing can be told of them.
    """
    return bool(record.get("beats")) and moment - last_sign > SILENT_SECONDS
