"""What Prefect is told by the environment before it is loaded: no telemetry, a folder of our own.

Prefect reads its settings once, when it is imported. So `flows` sets them when it is imported, for
the command and for whoever calls a flow from Python; what the user says otherwise stays.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from pipelines.io.user_cache import cache_folder

SETTINGS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # A first start on an empty database has taken 16 s on an idle machine; Prefect waits 20.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}
HOME = "PREFECT_HOME"

_LOGGER = logging.getLogger(__name__)


def default_prefect_home() -> str | None:
    """Where the database of servers that we start is: $PREFECT_HOME, or a folder of ours.

    None where there can be none: then it is where Prefect has it.
    """
    if HOME in os.environ:
        return os.environ[HOME]
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)  # Prefect makes one folder, none above it
    except OSError as error:
        _LOGGER.warning("%s cannot be made (%s): Prefect keeps its data in its own", folder, error)
        return None
    return str(folder / "prefect")


def set_prefect_defaults() -> None:
    """For what this process loads of Prefect later, and for the processes that it starts.

    A user's profiles lie in Prefect's own folder and may name a server: then that folder stays.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    has_profiles = (Path("~/.prefect").expanduser() / "profiles.toml").exists()
    if "prefect" not in sys.modules and not has_profiles and (home := default_prefect_home()):
        os.environ[HOME] = home
