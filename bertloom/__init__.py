"""BERT from raw dumps to the paper's tables: the Python functions behind the command.

    recipe = bertloom.load_recipe("my-corpus.yaml")
    for step in bertloom.plan(recipe):
        print(step.label, step.state)
    built = bertloom.run(recipe)
    rows = built["build-instances.length-128"].load()     # a PyArrow dataset

The Beam transforms are in `pipelines.transforms`; the Prefect flows of a recipe are in
`flows.prefect_flows`. Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertloom.api import (
        Artifact,
        Store,
        fill,
        lineage,
        load_recipe,
        open_store,
        plan,
        run,
        trace,
    )

__all__ = [
    "Artifact",
    "Store",
    "fill",
    "lineage",
    "load_recipe",
    "open_store",
    "plan",
    "run",
    "trace",
]

__version__: str
"""Version of the installed distribution."""

_PACKAGES = ("schemas", "pipelines", "model", "flows")
_REQUIRED = ("jinja2",)
"""Packages of the extra `flows` that every run loads."""


def _check_own_packages() -> None:
    """Raise ImportError if Python finds another package with one of our package names."""
    root = Path(__file__).resolve().parents[1]
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        if root / name not in [Path(folder).resolve() for folder in folders]:
            other = (spec.origin or folders) if spec else "none"
            raise ImportError(
                f"package {name!r}: expected {root / name}, got {other}. Rename or remove that "
                f"one, or put {root} before it on sys.path"
            )


_check_own_packages()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version("bertloom")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    missing = [package for package in _REQUIRED if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(
            f"bertloom.{name}: {', '.join(missing)} not installed. "
            "Install with: pip install 'bertloom[flows]'"
        )
    return getattr(importlib.import_module("bertloom.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
