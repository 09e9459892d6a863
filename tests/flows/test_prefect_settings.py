"""Defaults of Prefect's settings in a process that imports a flow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support.paths import ROOT

SETTINGS = """
import json, os
import flows.bert
from prefect.settings import get_current_settings
current = get_current_settings()
print(json.dumps({
    "home": str(current.home),
    "analytics": current.server.analytics_enabled,
    "timeout": current.server.ephemeral.startup_timeout_seconds,
    "track": os.environ["DO_NOT_TRACK"],
}))
"""


def settings(home: Path, **more: str) -> dict[str, object]:
    """Return Prefect's settings in a new process of a user with this home folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT", "DO_NOT", "BERTLOOM", "XDG"))
    }
    environment = {**kept, "HOME": str(home), **more}
    done = subprocess.run(
        [sys.executable, "-c", SETTINGS],
        env=environment, capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    values: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return values


def test_defaults_have_no_telemetry_and_own_folder(tmp_path: Path) -> None:
    assert settings(tmp_path) == {
        "home": str(tmp_path / ".cache" / "bertloom" / "prefect"),
        "analytics": False,
        "timeout": 120,
        "track": "1",
    }
    assert not (tmp_path / ".prefect").exists()


def test_settings_of_user_are_kept(tmp_path: Path) -> None:
    analytics = {"PREFECT_SERVER_ANALYTICS_ENABLED": "true"}
    named = settings(tmp_path, PREFECT_HOME=str(tmp_path / "named"), **analytics)
    assert (named["home"], named["analytics"]) == (str(tmp_path / "named"), True)
    own = tmp_path / ".prefect"
    own.mkdir()
    (own / "profiles.toml").write_text('active = "mine"\n[profiles.mine]\n')
    assert settings(tmp_path)["home"] == str(own)
