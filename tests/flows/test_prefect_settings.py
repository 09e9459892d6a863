"""Where flows run, and Prefect's settings in the process of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

from flows.prefect_settings import is_api_configured

IMPORTS = """
import os
before = dict(os.environ)
import bertloom, flows.cli.app, flows.running
assert dict(os.environ) == before, set(os.environ.items()) - set(before.items())
import sys
assert "prefect" not in sys.modules
"""
SETTINGS = """
import json, os
from flows.prefect_settings import set_prefect_defaults
set_prefect_defaults()
from prefect.settings import get_current_settings
current = get_current_settings()
print(json.dumps({
    "home": str(current.home),
    "analytics": current.server.analytics_enabled,
    "timeout": current.server.ephemeral.startup_timeout_seconds,
    "track": os.environ["DO_NOT_TRACK"],
}))
"""
PROFILES = """
active = "local"
[profiles.local]
[profiles.server]
PREFECT_API_URL = "http://127.0.0.1:9/api"
[profiles.other]
PREFECT_LOGGING_LEVEL = "INFO"
"""
URL = "http://127.0.0.1:9/api"


def run_code(code: str, home: Path, **variables: str) -> str:
    """Return what code prints in a new process of a user with this home folder."""
    prefixes = ("PREFECT", "DO_NOT", "BERTLOOM", "XDG")
    own = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**own, "HOME": str(home), **variables},
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    return done.stdout


def settings(home: Path, **variables: str) -> dict[str, object]:
    """Return Prefect's settings in a run of a user with this home folder."""
    values: dict[str, object] = json.loads(run_code(SETTINGS, home, **variables).splitlines()[-1])
    return values


def test_import_changes_no_variable_and_loads_no_prefect(tmp_path: Path) -> None:
    run_code(IMPORTS, tmp_path)
    assert not list(tmp_path.rglob("*prefect*"))


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


CONFIGURED = {
    "no profiles": ("", {}, False),
    "variable": ("", {"PREFECT_API_URL": URL}, True),
    "active profile without server": (PROFILES, {}, False),
    "active profile with server": (PROFILES.replace('"local"', '"server"', 1), {}, True),
    "profile of variable": (PROFILES, {"PREFECT_PROFILE": "server"}, True),
    "other profile of variable": (
        PROFILES.replace('"local"', '"server"', 1), {"PREFECT_PROFILE": "other"}, False,
    ),
    "no active profile": (PROFILES.replace('active = "local"', "", 1), {}, False),
    "variable beside profile": (PROFILES, {"PREFECT_API_URL": URL}, True),
}  # fmt: skip
"""Text of Prefect's profiles, variables, and whether they name an API."""


def write_profiles(home: Path, text: str, variables: dict[str, str]) -> pytest.MonkeyPatch:
    """Give Prefect a home folder with these profiles; return the patch to undo."""
    patch = pytest.MonkeyPatch()
    for name in ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        patch.delenv(name, raising=False)
    patch.setenv("PREFECT_HOME", str(home))
    for name, value in variables.items():
        patch.setenv(name, value)
    home.mkdir()
    if text:
        (home / "profiles.toml").write_text(text)
    return patch


@pytest.mark.parametrize("name", CONFIGURED)
def test_api_is_configured_by_variable_or_active_profile(name: str, tmp_path: Path) -> None:
    text, variables, expected = CONFIGURED[name]
    patch = write_profiles(tmp_path / "home", text, variables)
    try:
        assert is_api_configured() is expected
    finally:
        patch.undo()


def test_damaged_profiles_configure_no_api(tmp_path: Path) -> None:
    patch = write_profiles(tmp_path / "home", "[profiles", {})
    try:
        assert not is_api_configured()
    finally:
        patch.undo()


def test_prefect_reads_the_same_configuration(tmp_path: Path) -> None:
    from prefect.context import root_settings_context

    for name, (text, variables, expected) in CONFIGURED.items():
        patch = write_profiles(tmp_path / name, text, variables)
        try:
            assert bool(root_settings_context().settings.api.url) is expected, name
        finally:
            patch.undo()
