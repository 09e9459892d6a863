"""Where flows run: the configured API of Prefect, or Prefect's temporary server for this process.

Importing this module neither loads Prefect nor changes the environment.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import secrets
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.io.user_cache import cache_folder
from schemas.errors import RunnerError

_API_URL, _HOME = "PREFECT_API_URL", "PREFECT_HOME"
_DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # Prefect waits 20 s, which a first start on an empty database can exceed.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # Prefect recognizes a killed run by its missing heartbeat.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # The command prints a line per step; Prefect's log goes to its server.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",  # no flow here uses blocks
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",  # 1 is a transaction per event
}


def is_api_configured() -> bool:
    """Return whether `PREFECT_API_URL` or the active profile of Prefect names an API.

    Prefect itself would need a second to load.
    """
    if _API_URL in os.environ:
        return bool(os.environ[_API_URL])
    try:
        settings = tomllib.loads(_profiles_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):  # Prefect reports a damaged file
        return False
    active = os.environ.get("PREFECT_PROFILE") or settings.get("active")
    return bool(settings.get("profiles", {}).get(active, {}).get(_API_URL))


def _profiles_file() -> Path:
    home = os.environ.get(_HOME) or "~/.prefect"
    path = os.environ.get("PREFECT_PROFILES_PATH") or f"{home}/profiles.toml"
    return Path(path).expanduser()


def set_prefect_defaults() -> None:
    """Set the variables of a run that the user has not set; call it before Prefect is loaded.

    The temporary server keeps its database in bertloom's cache, where no other version of Prefect
    changes it. Prefect's own folder is used if the user has profiles there.
    """
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    if _HOME not in os.environ and not _profiles_file().exists():
        with contextlib.suppress(OSError):  # Prefect warns about a folder that cannot be created
            cache_folder().mkdir(parents=True, exist_ok=True)  # it creates the last folder only
        os.environ[_HOME] = str(cache_folder() / "prefect")


@contextlib.contextmanager
def prefect_api() -> Iterator[None]:
    """Let flows use the configured API in the block, or else a temporary server of this process.

    Raises:
        RunnerError: The server does not start.
    """
    set_prefect_defaults()
    from prefect.context import FlowRunContext  # loads Prefect
    from prefect.settings import (
        PREFECT_API_AUTH_STRING,
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        get_current_settings,
        temporary_settings,
    )

    if get_current_settings().api.url or FlowRunContext.get() is not None:
        yield
        return
    url, auth_string = start_server()
    updates: dict[Any, Any] = {
        PREFECT_API_URL: url,
        PREFECT_API_AUTH_STRING: auth_string,
        # The server ends with the run, and a heartbeat lengthens the end of a flow by a second.
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
    }
    with temporary_settings(updates=updates):
        yield


@functools.cache
def start_server() -> tuple[str, str]:
    """Start Prefect's temporary server, which ends with this process, once per process.

    Other users of the machine can reach its port, so requests need a random password. The server
    gets it by its environment, which other users cannot read.

    Returns:
        URL of the API, and the user and password that it expects.

    Raises:
        RunnerError: The server does not start.
    """
    from prefect.server.api.server import SubprocessASGIServer  # loads Prefect
    from prefect.settings import PREFECT_SERVER_API_AUTH_STRING, temporary_settings

    auth_string = f"bertloom:{secrets.token_urlsafe(32)}"
    server = SubprocessASGIServer()
    # The server inherits the mask: Ctrl-C does not end it before the run can report its own end.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with temporary_settings(updates={PREFECT_SERVER_API_AUTH_STRING: auth_string}):
            server.start()
    except RuntimeError as error:
        advice = "Start one with `prefect server start` and set PREFECT_API_URL, or use"
        raise RunnerError(f"Prefect's temporary server: {error} {advice} --engine local") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if server.server_process is not None:
        _end_with_this_process(server.server_process.pid)
    return server.api_url, auth_string


def _end_with_this_process(pid: int) -> None:
    """Let another process end if this one is killed; Prefect stops its server in other cases."""
    watcher = subprocess.Popen(  # noqa: S603 - no input of users
        ["/bin/sh", "-c", 'read -r _; kill "$0"', str(pid)],
        stdin=subprocess.PIPE,  # closed when this process ends, however it ends
        start_new_session=True,  # Ctrl-C does not reach it
    )
    atexit.register(watcher.kill)
