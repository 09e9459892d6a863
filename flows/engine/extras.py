"""Which of bertloom's extras brings a package that is not installed.

The core dependencies are those of a Beam worker: neither torch nor Prefect, and no command line.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flows.engine.stages import Step

DISTRIBUTION = "bertloom"
_OTHERWISE_NAMED = {"sklearn": "scikit-learn", "openlineage": "openlineage-python"}
"""Distributions that are not named as what one imports of them."""

_REQUIREMENT = re.compile(r"""^([\w.-]+).*\bextra\s*==\s*["'](\w+)["']""")
_FOR_DEVELOPERS = ("dev", "bench")


def remedy(package: str) -> str | None:
    """`pip install 'bertloom[EXTRA]'` for a package that is missing; None if no extra brings it.

    Args:
        package: what was to be imported, dotted or not, or the name of a distribution.
    """
    top = package.partition(".")[0]
    wanted = _OTHERWISE_NAMED.get(top, top).replace("_", "-").lower()
    try:
        required = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # the code is on a path and not installed
        return None
    for text in required:
        found = _REQUIREMENT.match(text)
        if found and found[1].lower() == wanted and found[2] not in _FOR_DEVELOPERS:
            return f"pip install '{DISTRIBUTION}[{found[2]}]'"
    return None


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def lacking(steps: Sequence[Step]) -> str:
    """What steps need that is not installed, and how to get it; "" where nothing is lacking."""
    stages = {step.stage.name: step.stage for step in steps}
    needs = {library: None for stage in stages.values() for library in stage.libraries}
    missing = [library for library in needs if not _is_installed(library)]
    if not missing:
        return ""
    needing = [name for name, stage in stages.items() if {*missing} & {*stage.libraries}]
    remedies = dict.fromkeys(remedy(name) or f"pip install {name}" for name in missing)
    return (
        f"{_and(missing)} {'is' if len(missing) == 1 else 'are'} not installed, which "
        f"{_and(needing)} {'needs' if len(needing) == 1 else 'need'}: {', '.join(remedies)}; or "
        "stop before with --until STAGE"
    )


def _and(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
