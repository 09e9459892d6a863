"""Choose where flows run: on the configured API of Prefect, or on its temporary server.

Importing this module does not load Prefect or change the environment.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import secrets
import subprocess
import sys
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
    """Start Prefect's temporary server once per process; it ends with this process.

    Other users of the machine can reach its port, so requests need a random password. The server
    gets it by its environment, which other users cannot read.

    Returns:
        URL of the API, and the user and password that it expects.

    Raises:
        RunnerError: The server does not start.
    """
    auth_string = f"bertloom:{secrets.token_urlsafe(32)}"
    script = Path(__file__).with_name("prefect_temporary_server.py")
    process = subprocess.Popen(  # noqa: S603 - our own script, no shell
        [sys.executable, "-P", str(script)],
        stdin=subprocess.PIPE,  # the system closes it also if this process is killed
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # after Ctrl-C, the run reports its end to the server
        env={**os.environ, "PREFECT_SERVER_API_AUTH_STRING": auth_string},
    )
    # Registered before Prefect's own hooks, so that it runs after what they send.
    atexit.register(process.communicate)
    url = process.stdout.readline().strip() if process.stdout is not None else ""
    if not url:
        raise RunnerError(
            "Prefect's temporary server did not start. Start one with `prefect server start` and "
            "set PREFECT_API_URL, or use --engine local"
        )
    return url, auth_string
