"""Defaults of Prefect's settings: no telemetry, data in the cache folder of bertloom.

Prefect reads the environment once, when it is imported. `flows` sets the variables before that,
unless the user has set them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from pipelines.io.user_cache import cache_folder

SETTINGS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # Prefect waits 20 s, which a first start on an empty database can exceed.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}
HOME = "PREFECT_HOME"


def default_prefect_home() -> str:
    """Return the folder of Prefect's database: $PREFECT_HOME, or one in bertloom's cache."""
    if HOME in os.environ:
        return os.environ[HOME]
    with contextlib.suppress(OSError):  # Prefect warns about a folder that cannot be created
        cache_folder().mkdir(parents=True, exist_ok=True)  # it creates the last folder only
    return str(cache_folder() / "prefect")


def set_prefect_defaults() -> None:
    """Set the variables for this process and the processes that it starts.

    Prefect's own folder is kept if the user has profiles there, which can name a server.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    has_profiles = (Path("~/.prefect").expanduser() / "profiles.toml").exists()
    if "prefect" not in sys.modules and not has_profiles:
        os.environ[HOME] = default_prefect_home()
