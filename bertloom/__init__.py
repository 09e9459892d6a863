"""BERT from raw dumps to the paper's tables, as a library: what the command does, as functions.

    recipe = bertloom.load_recipe("my-corpus.yaml")
    for step in bertloom.plan(recipe):
        print(step.label, step.state)
    built = bertloom.run(recipe)
    rows = built["build-instances.length-128"].open()     # a PyArrow dataset

The Beam transforms are in `pipelines.transforms`; the Prefect flows of a recipe are in
`flows.prefect_flows`. Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertloom.library import (
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
    from model.data.collator import PretrainingCollator

__all__ = [
    "Artifact",
    "PretrainingCollator",
    "Store",
    "fill",
    "lineage",
    "load_recipe",
    "open_store",
    "plan",
    "run",
    "trace",
]

_OWN = ("schemas", "pipelines", "model", "flows")
_EXTRA = ("jinja2", "openlineage")
"""Packages of the extra `flows` that every run loads."""

_ELSEWHERE = {"PretrainingCollator": ("model.data.collator", "model", ("torch",))}
"""Names that need less: their module, its extra, and the packages of that."""


def _check_own_packages() -> None:
    """Their names are generic: another distribution may have brought, or imported, one of them."""
    root = Path(__file__).resolve().parents[1]
    for name in _OWN:
        spec = importlib.util.find_spec(name)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        if root / name not in [Path(folder).resolve() for folder in folders]:
            found = (spec.origin or folders) if spec else "none"
            raise ImportError(
                f"bertloom needs its own package {name!r}, {root / name}, and Python found another "
                f"first ({found}): rename or remove that one, or put {root} before it on sys.path"
            )


_check_own_packages()


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra, needed = _ELSEWHERE.get(name, ("bertloom.library", "flows", _EXTRA))
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(
            f"bertloom.{name} needs what is not installed ({', '.join(missing)}): "
            f"pip install 'bertloom[{extra}]'"
        )
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
