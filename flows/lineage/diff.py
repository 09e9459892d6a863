"""Differences of two artifacts: configuration, inputs, numbers and versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flows.formatting import format_bytes, format_statistic
from flows.nested_values import flatten
from schemas.manifest import FileEntry, Manifest, RawInput

_MAX_CHANGES = 8
_DIGITS = 12


@dataclass(frozen=True)
class Change:
    """Value that differs; None if one side has no such value."""

    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        """Return the change in one line, with the difference of two numbers."""
        text = f"{self.name}: {self._format(self.before)} -> {self._format(self.after)}"
        if _is_number(self.before) and _is_number(self.after):
            difference = self.after - self.before
            text += f" ({'+' if difference >= 0 else ''}{self._format(difference)})"
        return text

    def _format(self, value: Any) -> str:
        if value is None:
            return "none"
        return format_statistic(self.name, value) if _is_number(value) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Differences of two artifacts."""

    artifacts: tuple[str, str]
    stages: tuple[str, str]
    is_same_artifact: bool
    is_same_content: bool
    groups: dict[str, list[Change]]
    """Changes by group, such as `configuration`; only groups with changes."""

    def lines(self, *, show_all: bool = False) -> list[str]:
        """Return the differences as lines of text, by default at most eight of each group."""
        before, after = self.artifacts
        if self.is_same_artifact:
            return [f"{self.stages[0]} {before}: the same artifact"]
        names = " -> ".join(dict.fromkeys(self.stages))
        content = "the same content" if self.is_same_content else "other content"
        lines = [f"{names} {before} -> {after}: {content}"]
        for name, group in self.groups.items():
            shown = group if show_all else group[:_MAX_CHANGES]
            lines += ["", name, *(f"  {change}" for change in shown)]
            if more := len(group) - len(shown):
                lines.append(f"  and {more:,} more (--all)")
        return lines


def difference(before: Manifest, after: Manifest) -> Difference:
    """Return the differences of an artifact and an earlier one."""
    old, new = _comparable(before), _comparable(after)
    groups = {name: changes(old[name], new[name]) for name in old}
    return Difference(
        artifacts=(before.artifact_id, after.artifact_id),
        stages=(before.stage, after.stage),
        is_same_artifact=before.artifact_id == after.artifact_id,
        is_same_content=before.content_digest == after.content_digest,
        groups={name: group for name, group in groups.items() if group},
    )


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return the values that differ, sorted by name."""
    return [
        Change(name, before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _comparable(manifest: Manifest) -> dict[str, Mapping[str, Any]]:
    """Return the compared values by group."""
    environment = manifest.environment
    libraries = {"python": environment.python, **manifest.cache_key_inputs.get("environment", {})}
    return {
        "stage": {"name": manifest.stage, "version": manifest.stage_version},
        "configuration": flatten(manifest.config),
        # By content: an input that was rebuilt to the same bytes is the same.
        "inputs": {
            ref.name: f"{ref.stage} {_short(ref.content_digest)}" for ref in manifest.inputs
        },
        "raw files": {raw.name: _describe_file(raw) for raw in manifest.raw_inputs},
        "counts": manifest.counters,
        "statistics": flatten(manifest.statistics),
        "libraries": libraries,
        "other packages": {
            name: version for name, version in environment.packages.items() if name not in libraries
        },
        "system": {"platform": environment.platform},
        "files": {
            entry.path: _describe_file(entry)
            for entry in manifest.files
            if not entry.excluded_from_digest
        },
    }


def _describe_file(file: RawInput | FileEntry) -> str:
    rows = file.rows if isinstance(file, FileEntry) else None
    prefix = f"{rows:,} rows, " if rows is not None else ""
    return f"{prefix}{format_bytes(file.size_bytes)}, sha256 {_short(file.sha256)}"


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:_DIGITS]
