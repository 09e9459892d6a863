"""Differences of two artifacts or runs: configuration, inputs, numbers and versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.formatting import format_bytes, format_statistic
from flows.nested_values import flatten
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord
from schemas.manifest import FileEntry, Manifest, RawInput
from schemas.trial_names import entry_label

_MAX_CHANGES = 8
_DIGITS = 12
_CAUSES = ("stage", "configuration", "inputs", "raw files", "libraries")
"""Groups that can change the content of an artifact."""


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

    @property
    def cause(self) -> str:
        """Reason for the differences in a few words."""
        if self.is_same_artifact:
            return "the same artifact"
        causes = []
        for name in filter(self.groups.__contains__, _CAUSES):
            changes = [change.name for change in self.groups[name]]
            causes.append(f"{name}: {', '.join(changes[:3])}{' ...' if len(changes) > 3 else ''}")
        cause = "; ".join(causes) or "built again"
        return f"{cause} (the same content)" if self.is_same_content else cause


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


# Runs


@dataclass(frozen=True, kw_only=True)
class StepDifference:
    """Differences of a step in two runs. If only one has the step, the other id is ""."""

    label: str
    artifacts: tuple[str, ...]
    difference: Difference | None

    @property
    def cause(self) -> str:
        """Reason for the differences in a few words."""
        if self.difference is None:
            return f"only in the {'first' if self.artifacts[0] else 'second'} run"
        return self.difference.cause


def run_differences(
    before: RunRecord, after: RunRecord, *, store: ArtifactStore
) -> list[StepDifference]:
    """Return the differences of a run and an earlier one, in the order of their steps."""
    old, new = (
        {step.label: store.read_manifest(step.manifest) for step in run.steps}
        for run in (before, after)
    )
    return [
        StepDifference(
            label=label,
            artifacts=tuple(run[label].artifact_id if label in run else "" for run in (old, new)),
            difference=difference(old[label], new[label])
            if label in old and label in new
            else None,
        )
        for label in dict.fromkeys([*old, *new])
    ]


def run_lines(steps: Sequence[StepDifference], *, show_all: bool = False) -> list[tuple[str, ...]]:
    """Return label, both artifacts and cause of each step; by default equal trials are one row."""
    rows: list[tuple[str, ...]] = []
    same: Counter[str] = Counter()
    for step in steps:
        entry = entry_label(step.label)
        is_same = step.difference is not None and step.difference.is_same_artifact
        if is_same and entry != step.label and not show_all:
            same[entry] += 1
        else:
            rows.append((step.label, *(name or "-" for name in step.artifacts), step.cause))
    return rows + [(entry, "", "", f"{count} trials the same") for entry, count in same.items()]
