"""Send the OpenLineage events of a run with the client that its environment variables configure.

https://openlineage.io/docs/client/python/configuration: OPENLINEAGE_URL, OPENLINEAGE_API_KEY,
OPENLINEAGE_CONFIG, OPENLINEAGE_DISABLED and OPENLINEAGE__TRANSPORT__*.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from flows.lineage.export.event_file import read_events
from flows.store.artifacts import ArtifactStore
from schemas.disclosure import without_secrets

_LOGGER = logging.getLogger(__name__)


def is_configured() -> bool:
    """Return whether the environment names a transport for OpenLineage events."""
    return any(
        name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
        or name.startswith("OPENLINEAGE__TRANSPORT__")
        for name, value in os.environ.items()
        if value
    )


def send_events(store: ArtifactStore, run_id: str) -> int:
    """Send the events of a run, as far as the transport takes them; log the first error.

    Returns:
        Number of events sent.
    """
    from openlineage.client import OpenLineageClient  # only runs that send events need transports

    events = read_events(store, run_id).events
    sent = 0
    try:
        transport: Any = OpenLineageClient().transport
        for item in events:
            transport.emit(item.event)
            sent += 1
    except Exception as error:  # the transport is the user's choice, and can raise anything
        _LOGGER.warning(
            "%d of %d OpenLineage events of run %s were sent: %s. All of them are in the store",
            sent,
            len(events),
            run_id,
            without_secrets(f"{type(error).__name__}: {error}"),
        )
    return sent
