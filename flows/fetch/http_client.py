"""HTTP client for downloads: names a contact, retries transient errors and obeys Retry-After."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

import httpx
import tenacity

from schemas.errors import FetchError

CONTACT_VARIABLE = "BERTLOOM_CONTACT"
_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_TRANSIENT_ERRORS = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError)
_MAX_RETRY_AFTER_SECONDS = 900
_BACKOFF = tenacity.wait_random_exponential(max=120)

Log = Callable[[str], None]


class TransientError(FetchError):
    """A failed request that may succeed if it is repeated."""

    retry_after = 0
    """Seconds that the site asks to wait."""


class HttpClient(httpx.Client):
    """HTTP client that several threads can share."""

    def __init__(self, *, log: Log, max_attempts: int = 10, backoff: Any = _BACKOFF) -> None:
        """Create a client that logs its retries; `backoff` is a wait strategy of tenacity."""
        contact = os.environ.get(CONTACT_VARIABLE, "").strip()
        agent = f"bertloom/{version('bertloom')} ({f'+{contact}; ' if contact else ''}httpx)"
        headers = {"User-Agent": agent, "Accept-Encoding": "identity"}
        super().__init__(headers=headers, timeout=60, follow_redirects=True, max_redirects=5)
        self.log = log
        self.stopped = threading.Event()
        """Set it to stop retries and downloads in all threads."""
        self.with_retries = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(TransientError),
            stop=tenacity.stop_after_attempt(max_attempts)
            | tenacity.stop_when_event_set(self.stopped),
            wait=backoff + tenacity.wait_exception(lambda error: vars(error).get("retry_after", 0)),
            sleep=tenacity.sleep_using_event(self.stopped),
            before_sleep=self._log_retry,
            reraise=True,
        )

    def read(self, url: str) -> bytes:
        """Return the body at a URL."""

        def read() -> bytes:
            with self.open(url) as response:
                return response.read()

        return self.with_retries(read)

    @contextlib.contextmanager
    def open(self, url: str, headers: Mapping[str, str] | None = None) -> Iterator[httpx.Response]:
        """Send one request and yield the response, whose body is read in the block.

        Raises:
            TransientError: The connection or the site fails in a way that may pass.
            FetchError: The request fails in any other way.
        """
        try:
            with self.stream("GET", url, headers=headers) as response:
                _check_response(response, url)
                yield response
        except httpx.RequestError as error:
            message = str(error) or type(error).__name__
            if isinstance(error, _TRANSIENT_ERRORS):
                raise TransientError(f"{url}: {message}", url=url) from error
            raise fetch_error(url, message) from error

    def _log_retry(self, state: tenacity.RetryCallState) -> None:
        if state.outcome is not None:
            self.log(f"{state.outcome.exception()}; retry in {state.upcoming_sleep:.0f} s")


def fetch_error(
    url: str, message: str, *, hint: str = "Use another mirror", status: int = 0
) -> FetchError:
    """Return the error of a request; errors redact secrets in URLs."""
    return FetchError(f"{url}: {message}. {hint}", url=url, status=status)


def _check_response(response: httpx.Response, url: str) -> None:
    if response.history and httpx.URL(url).scheme == "https" != response.url.scheme:
        raise fetch_error(url, "expected a redirect to https, got one to http")
    status, hint = response.status_code, "Use another mirror"
    reason = f"{status} {response.reason_phrase}"
    if status in (200, 206):
        return
    if status == 403:
        hint = f"Set ${CONTACT_VARIABLE} to an e-mail address: sites block anonymous clients"
    if status in _TRANSIENT_STATUSES:
        retry_after = response.headers.get("Retry-After", "")
        seconds = int(retry_after) if retry_after.isdecimal() else 0
        if seconds <= _MAX_RETRY_AFTER_SECONDS:
            raise TransientError(f"{url}: {reason}", url=url, status=status, retry_after=seconds)
        hint = f"The site asks to retry after {seconds:,} s"
    raise fetch_error(url, reason, hint=hint, status=status)
