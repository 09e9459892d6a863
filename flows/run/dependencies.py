"""Packages that are not installed, and the extra of bertloom that brings them."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flows.run.graph import Step

DISTRIBUTION = "bertloom"
_DISTRIBUTION_OF_MODULE = {"openlineage": "openlineage-python"}
_REQUIREMENT = re.compile(r"""^([\w.-]+).*\bextra\s*==\s*["'](\w+)["']""")
_DEVELOPER_EXTRAS = ("dev", "bench")


def install_hint(package: str) -> str | None:
    """Return `pip install 'bertloom[EXTRA]'` for a package; None if no extra brings it.

    Args:
        package: Name of a module, dotted or not, or of a distribution.
    """
    top = package.partition(".")[0]
    name = _DISTRIBUTION_OF_MODULE.get(top, top).replace("_", "-").lower()
    try:
        requirements = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # on the path, but not installed
        return None
    for text in requirements:
        match = _REQUIREMENT.match(text)
        if match and match[1].lower() == name and match[2] not in _DEVELOPER_EXTRAS:
            return f"pip install '{DISTRIBUTION}[{match[2]}]'"
    return None


def missing_dependencies(steps: Iterable[Step]) -> str:
    """Return a sentence on packages that steps need and that are not installed; "" for none."""
    stages = {step.stage.name: step.stage for step in steps}
    libraries = dict.fromkeys(library for stage in stages.values() for library in stage.libraries)
    missing = [library for library in libraries if not _is_installed(library)]
    if not missing:
        return ""
    needing = [name for name, stage in stages.items() if {*missing} & {*stage.libraries}]
    hints = dict.fromkeys(install_hint(name) or f"pip install {name}" for name in missing)
    return (
        f"not installed: {', '.join(missing)} (needed by {', '.join(needing)}). "
        f"Run {', '.join(hints)}, or stop earlier with --until STAGE"
    )


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
