"""Sending a run's events to a server that speaks OpenLineage, from where they are kept.

How far each server has been served is kept beside the events, so that a second push sends what is
new. A server may see an event twice where a push was killed, which the specification allows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from flows.lineage.export.event_file import RecordedEvent, read_events
from flows.store.artifacts import ArtifactStore
from schemas.disclosure import without_secrets
from schemas.errors import ConfigError
from schemas.sealed import read_sealed, sealed_json

if TYPE_CHECKING:
    from openlineage.client.transport.http import HttpTransport

KEY_VARIABLE = "OPENLINEAGE_API_KEY"
"""Environment variable of the key that a server may want; it is written nowhere."""

_TIMEOUT_SECONDS = 2.0


class Pushed(NamedTuple):
    """How many events a push sent."""

    sent: int
    left: int
    """Events that are still to be sent."""


def push(
    store: ArtifactStore,
    run_id: str,
    *,
    url: str,
    say: Callable[[str], None],
    again: bool = False,
    seconds: float | None = None,
) -> Pushed:
    """Send a run's events that the server was not sent yet; the first failure ends it.

    Args:
        store: where the run's events are.
        run_id: of the run.
        url: of the server, without `/api/v1/lineage`.
        say: is given a line if not all could be sent, and one for each line that is no event.
        again: send all of them.
        seconds: stop after about that time (2 s more where the server does not answer).

    Raises:
        ConfigError: the URL is none.
        ArtifactNotFoundError: the run has no events.
    """
    server = _server(url)
    recorded = read_events(store, run_id)
    for problem in recorded.problems:
        say(problem)
    progress = f"runs/{run_id}/openlineage.sent.json"
    try:
        served = read_sealed(store.backend.read(progress))
    except (FileNotFoundError, ValueError):
        served = {}  # never sent, or unreadable: servers bear to be sent events again
    before: dict[str, int] = served.get(server, {})
    lines = {} if again else dict(before)
    waiting = [found for found in recorded.events if found.line > lines.get(found.path, 0)]
    sent, problem = _send(waiting, url=url, seconds=seconds) if waiting else (0, "")
    lines |= {found.path: found.line for found in waiting[:sent]}
    if lines != before:
        store.backend.replace(progress, sealed_json({**served, server: lines}))
    if problem:
        say(
            f"lineage: {sent} of {len(waiting)} events sent to {server}: {problem}. They are kept; "
            f"send the rest with `bertloom push-lineage {run_id} --url {server}`"
        )
    return Pushed(sent, len(waiting) - sent)


def _server(url: str) -> str:
    """A server's URL as it may be shown and kept."""
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"{without_secrets(url)!r}: expected the URL of a server, such as http://localhost:5000"
        )
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def _send(waiting: Sequence[RecordedEvent], *, url: str, seconds: float | None) -> tuple[int, str]:
    """How many were sent, and what stopped it ("" for nothing)."""
    # start-up: 350 ms with the transport, which runs that send nothing do without
    from requests import ConnectionError, HTTPError, RequestException, Timeout

    transport = _transport(url)
    stop = None if seconds is None else time.monotonic() + seconds
    try:
        for number, found in enumerate(waiting):
            if number and stop is not None and time.monotonic() > stop:
                return number, f"it takes longer than {seconds:g} s"
            try:
                answer = transport.emit(cast("Any", found.event))
            except HTTPError as error:
                status = "?" if error.response is None else error.response.status_code
                return number, f"it answered {status} to {found.path}:{found.line}"
            except Timeout:
                return number, f"it did not answer within {_TIMEOUT_SECONDS:g} s"
            except ConnectionError as error:
                cause = str(error).rpartition(": ")[2].rstrip("')\"")
                return number, f"it cannot be reached ({without_secrets(cause)})"
            except RequestException as error:
                return number, without_secrets(f"{type(error).__name__}: {error}")
            if answer.history and answer.request.method != "POST":
                return number, "it redirects to another URL; use that one"
    finally:
        transport.close()
    return len(waiting), ""


def _transport(url: str) -> HttpTransport:
    # start-up: as above
    from openlineage.client.transport.http import (
        ApiKeyTokenProvider,
        HttpConfig,
        HttpTransport,
        TokenProvider,
    )
    from requests import Session

    parts = urlsplit(url.strip())
    session = Session()
    if parts.username is not None:
        # Not as part of the URL, which the client logs when asked for its debug lines.
        session.auth = (unquote(parts.username), unquote(parts.password or ""))
    key = os.environ.get(KEY_VARIABLE)
    return HttpTransport(
        HttpConfig(
            url=f"{_server(url)}/",
            timeout=_TIMEOUT_SECONDS,
            # Its own retries hold a run up for nine seconds where no server is there.
            retry={"total": 0},
            session=session,
            auth=ApiKeyTokenProvider({"api_key": key}) if key else TokenProvider({}),
        )
    )
