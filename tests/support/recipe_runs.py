"""Runs of recipes in new processes, which tests kill, and the contents that they publish."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from flows.store.artifacts import ArtifactStore

_HOLD_VARIABLE = "TEST_HOLD"
_CODE = f"""
import os, time
from flows.cli.app import main
from flows.store.artifacts import ArtifactStore
from pipelines.shard_job import job

job.MIN_REMOTE_SECONDS = 0.0  # items of tests are short
commit = ArtifactStore.commit

def hold(store, manifest, **options):
    while manifest.stage == os.environ.get({_HOLD_VARIABLE!r}):
        time.sleep(1)
    return commit(store, manifest, **options)

ArtifactStore.commit = hold
main()
"""


def command_line(*arguments: str) -> list[str]:
    """Return the command line that runs `bertloom` with arguments in a new process."""
    return [sys.executable, "-c", _CODE, *arguments]


def _run_arguments(recipe: Path, store: Path | str) -> list[str]:
    return ["run", str(recipe), "--store", str(store), "--engine", "local"]


def run_recipe_file(
    recipe: Path, store: Path | str, *more: str, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a recipe to its end; `options` are those of `subprocess.run`."""
    command = command_line(*_run_arguments(recipe, store), *more)
    return subprocess.run(command, capture_output=True, text=True, **options)


def start_recipe_file(
    recipe: Path, store: Path | str, *more: str, held: str = ""
) -> subprocess.Popen[bytes]:
    """Start to run a recipe; it never publishes an artifact of the stage `held`."""
    return subprocess.Popen(
        command_line(*_run_arguments(recipe, store), *more),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, _HOLD_VARIABLE: held},
    )  # fmt: skip


def kill(process: subprocess.Popen[bytes]) -> bool:
    """Kill a run with all processes that it started; return False if it has ended before."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def published(store: Path | str) -> dict[str, str]:
    """Return the content digest of each published artifact by stage and cache key."""
    pointers = ArtifactStore(str(store)).pointers()
    return {f"{pointer.stage} {pointer.cache_key}": pointer.content_digest for pointer in pointers}
