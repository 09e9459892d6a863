"""Trainings that wait before a checkpoint, so that a test has all the time to kill them earlier.

They do not outlive a test run that is killed.
"""

from __future__ import annotations

import os
from pathlib import Path

_SITE = """
import os, sys, time

parent = os.getppid()

def hold(event, arguments):
    if event == "open" and {name!r} in str(arguments[0]):
        while not os.path.exists({release!r}) and os.getppid() == parent:
            time.sleep(0.01)

sys.addaudithook(hold)
"""


def hold_before_checkpoint(step: int, *, folder: Path, release: Path) -> dict[str, str]:
    """Return variables of processes whose trainings do not save the checkpoint of a step yet.

    Args:
        step: Step before whose checkpoint they wait.
        folder: New folder for the module that Python loads at its start.
        release: File that ends the wait.
    """
    folder.mkdir()
    code = _SITE.format(name=f".step-{step:08d}", release=str(release))
    (folder / "sitecustomize.py").write_text(code, encoding="utf-8")
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}
