"""With what a run was made: software, and the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from flows.report.result_tables import Row, Table
from flows.report.run_view import Fact
from schemas.disclosure import without_secrets
from schemas.manifest import Environment, Manifest

_KEY_LIBRARIES = (
    "apache-beam", "prefect", "pyarrow", "tokenizers", "numpy", "torch", "safetensors",
    "scikit-learn", "scipy", "pydantic", "matplotlib",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EnvironmentView:
    """The software of the newest artifact, and how that of others differs."""

    facts: tuple[Fact, ...]
    packages: tuple[tuple[str, str], ...]
    others: Table | None
    """Libraries that not all artifacts were made with in the same version."""


def environment_view(manifests: Mapping[str, Manifest]) -> EnvironmentView | None:
    """None where there is no artifact."""
    if not manifests:
        return None
    newest = max(manifests.values(), key=lambda item: item.produced_by.ended)
    used = newest.environment
    facts = [Fact("python", used.python), Fact("platform", used.platform)]
    facts += [Fact(name, used.packages[name]) for name in _KEY_LIBRARIES if name in used.packages]
    return EnvironmentView(
        facts=tuple(facts),
        packages=tuple(used.packages.items()),
        others=_others(used, manifests),
    )


def _others(newest: Environment, manifests: Mapping[str, Manifest]) -> Table | None:
    versions: dict[str, dict[str, list[str]]] = {}
    for label, manifest in manifests.items():
        found = manifest.environment
        if found.packages == newest.packages and found.python == newest.python:
            continue
        mine, theirs = ({"python": item.python, **item.packages} for item in (newest, found))
        for name in sorted({*mine, *theirs}):
            if mine.get(name) != theirs.get(name):
                version = theirs.get(name, "not installed")
                versions.setdefault(name, {}).setdefault(version, []).append(label)
    mine = {"python": newest.python, **newest.packages}
    rows = [
        Row((name, mine.get(name, "not installed"), version, _some(labels)))
        for name, by_version in versions.items()
        for version, labels in by_version.items()
    ]
    header = ("library", "newest artifact", "other version", "in")
    return Table("Not the same in all artifacts", header, tuple(rows), texts=4) if rows else None


def _some(labels: list[str]) -> str:
    more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    return ", ".join(labels[:3]) + more


def recipe_text(recipe: Mapping[str, Any]) -> str:
    """The recipe as YAML, credentials cut out."""
    # libyaml's writer takes a tenth of the time; not every build of PyYAML has it.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(
        without_secrets(dict(recipe)), Dumper=dumper, sort_keys=False, allow_unicode=True
    )
    return text
