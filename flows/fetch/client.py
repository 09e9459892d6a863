"""A polite client: it says who it is, asks seldom, and waits when the site asks it to.

Only http and https are spoken, redirects included, and a redirect never leads from https to http.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version

import httpx

from pipelines.seeds import rng_for
from schemas.errors import ConfigError, FetchError

CONTACT_VARIABLE = "BERTLOOM_CONTACT"
_SCHEMES = ("http", "https")
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

_MOST_REDIRECTS = 5
_TIMEOUT = 60.0
"""Seconds without a byte after which a connection counts as cut."""

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 120.0
_LONGEST_RETRY_AFTER = 900.0
"""Seconds. A site that asks for a longer wait is left alone until the command is run again."""

Say = Callable[[str], None]


class PassingFault(Exception):  # noqa: N818 - what happened, not what went wrong in the end
    """A request that failed in a way that may pass; caught by `Web.patiently`.

    Attributes:
        retry_after: seconds that the site asked to wait, or None.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class MissingError(FetchError):
    """The site has nothing at that address (404 or 410)."""


class Web:
    """Requests of one fetch, from several threads."""

    def __init__(
        self,
        *,
        say: Say,
        tries: int = 6,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """Open no connection yet.

        Args:
            say: prints a line, of waits.
            tries: of a request that brings nothing, before the fetch ends.
            sleep: waits so many seconds; else a wait that ends when another thread has failed.
        """
        self.say, self.stopping = say, threading.Event()
        self._tries, self._sleep = tries, sleep or self.stopping.wait
        self._gate = threading.Lock()
        self._client = httpx.Client(
            headers={"User-Agent": user_agent(), "Accept-Encoding": "identity"},
            timeout=_TIMEOUT,
            follow_redirects=True,
            max_redirects=_MOST_REDIRECTS,
        )

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    @contextlib.contextmanager
    def get(
        self, url: str, *, headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx.Response]:
        """One request, once; its body is read in the block.

        Raises:
            PassingFault: the connection failed or was cut, or the status is one that passes.
            FetchError: any other failure.
        """
        with self._gate:  # held by whoever was asked to wait
            pass
        try:
            with self._client.stream("GET", url, headers=dict(headers or {})) as response:
                check_redirects(response, url)
                _check_status(response, url)
                yield response
        except httpx.UnsupportedProtocol as error:
            raise FetchError(
                f"{shown_url(url)}: leads to something that is neither http nor https. Give the "
                "address of another mirror"
            ) from error
        except httpx.TransportError as error:
            raise PassingFault(str(error) or type(error).__name__) from error
        except (httpx.RequestError, httpx.InvalidURL) as error:
            raise FetchError(
                f"{shown_url(url)}: cannot be asked for: {error}. Correct the address"
            ) from error

    def patiently(self, url: str, attempt: Callable[[], bool], *, what: Callable[[], str]) -> None:
        """Call `attempt` until it returns True, with a longer wait after each passing fault.

        Args:
            url: where the request goes.
            attempt: makes one request; returns False if the connection was cut after much had
                arrived, which is no failed try.
            what: names the thing and how far it is, for messages.

        Raises:
            FetchError: all tries failed, or the site asks for too long a wait, or another thread
                failed meanwhile.
        """
        failed = 0
        while True:
            if self.stopping.is_set():
                raise FetchError(f"{what()}: stopped, since another file could not be fetched")
            try:
                if attempt():
                    return
                failed, fault = 0, PassingFault("the connection was cut")
            except PassingFault as found:
                failed, fault = failed + 1, found
            if failed >= self._tries:
                raise FetchError(
                    f"{what()}: gave up after {failed} tries at {shown_url(url)}, the last one: "
                    f"{fault}. What has arrived is kept: run the same command again to go on"
                ) from fault
            self._wait(url, fault, failed=failed, what=what())

    def _wait(self, url: str, fault: PassingFault, *, failed: int, what: str) -> None:
        asked = fault.retry_after
        if asked is not None and asked > _LONGEST_RETRY_AFTER:
            raise FetchError(
                f"{what}: {shown_url(url)} asks to be left alone for {asked:,.0f} s ({fault}). "
                "What has arrived is kept: run the same command again after that"
            )
        longest = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** max(failed - 1, 0))
        # Two clients that a site threw out together must not come back together.
        jitter = float(rng_for(os.getpid(), "fetch-wait", url, failed).random())
        seconds = max(asked or 0.0, longest * (0.5 + 0.5 * jitter))
        self.say(f"{what}: {fault}; trying again in {seconds:.0f} s")
        with self._gate if asked is not None else contextlib.nullcontext():
            self._sleep(seconds)

    def read_text(self, url: str, *, most: int, what: str) -> str:
        """The body at a URL as text, of at most `most` bytes.

        Raises:
            MissingError: there is nothing.
            FetchError: it cannot be fetched, is larger, or is not UTF-8.
        """
        stored = bytearray()

        def attempt() -> bool:
            stored.clear()
            with self.get(url) as response:
                for chunk in response.iter_raw():
                    stored.extend(chunk)
                    if len(stored) > most:
                        raise FetchError(
                            f"{shown_url(url)}: expected at most {most:,} bytes of {what}, found "
                            "more. Is this the address of a mirror of the dumps?"
                        )
            return True

        self.patiently(url, attempt, what=lambda: what)
        try:
            return stored.decode()
        except UnicodeDecodeError as error:
            raise FetchError(f"{shown_url(url)}: {what} is not UTF-8 text: {error}") from error


def checked_address(url: str, *, name: str) -> str:
    """The URL without a slash at its end.

    Raises:
        ConfigError: it is none of http or https with a host.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{name}: {url!r} is no address: {error}") from error
    if parsed.scheme not in _SCHEMES or not parsed.host or parsed.query or parsed.fragment:
        raise ConfigError(
            f"{name}: expected an address such as https://dumps.wikimedia.org, found "
            f"{shown_url(url)!r}"
        )
    return url.rstrip("/")


def shown_url(url: str) -> str:
    """A URL for messages: without user, password and query, which may be secret."""
    before, mark, after = url.partition("://")
    host, slash, path = after.partition("/")
    return f"{before}{mark}{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


def user_agent() -> str:
    """Who we are: Wikimedia refuses clients that do not say so.

    Raises:
        ConfigError: `$BERTLOOM_CONTACT` has characters that no header may have.
    """
    contact = os.environ.get(CONTACT_VARIABLE, "").strip()
    if not all(" " <= letter <= "~" and letter not in "()\\" for letter in contact):
        raise ConfigError(
            f"${CONTACT_VARIABLE}: expected a mail or web address in plain ASCII, found {contact!r}"
        )
    about = [*([f"+{contact}"] if contact else []), f"httpx/{httpx.__version__}"]
    return f"bertloom/{version('bertloom')} ({'; '.join(about)})"


def check_redirects(response: httpx.Response, url: str) -> None:
    """See that redirects stayed on the web, and never gave up encryption.

    Raises:
        FetchError: they did not.
    """
    way = [step.url.scheme for step in (*response.history, response)]
    if any(scheme not in _SCHEMES for scheme in way) or ("https" in way and way[-1] == "http"):
        raise FetchError(
            f"{shown_url(url)}: led over {' -> '.join(way)}, and what began with https must not "
            "end without. Give the address of another mirror"
        )


def _check_status(response: httpx.Response, url: str) -> None:
    status = response.status_code
    said = f"{status} {response.reason_phrase}".strip()
    if status in (200, 206, 416):
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise FetchError(
                f"{shown_url(url)}: expected the file as it is, found it encoded as {encoding!r}. "
                "Use another mirror, or reach it without the proxy that does this"
            )
    elif status in _PASSING:
        raise PassingFault(said, retry_after=_retry_after(response))
    elif status in (404, 410):
        raise MissingError(f"{shown_url(url)}: {said}. Correct the name, or use another mirror")
    else:
        hint = "Use another mirror, or ask the site's owner"
        if status == 403 and not os.environ.get(CONTACT_VARIABLE):
            hint = (
                f"Set ${CONTACT_VARIABLE} to a mail or web address: sites refuse clients that do "
                "not say whose they are"
            )
        raise FetchError(f"{shown_url(url)}: {said}. {hint}")


def _retry_after(response: httpx.Response) -> float | None:
    given = response.headers.get("Retry-After", "").strip()
    if given.isascii() and given.isdigit():
        return float(given[:9])
    try:
        when = parsedate_to_datetime(given)
    except ValueError:
        return None
    now = datetime.now(UTC)
    return max(0.0, ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds())
