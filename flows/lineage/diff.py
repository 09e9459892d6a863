"""How two artifacts, or two runs, differ: configuration, inputs, numbers, code, versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flows.formatting import format_bytes, format_statistic
from flows.nested_values import flatten
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord
from schemas.manifest import FileEntry, Manifest, RawInput
from schemas.trial_names import entry_label

SHOWN = 8
"""Changes of a group that are shown unless all are asked for."""

_DIGITS = 12
_CAUSES = ("stage", "configuration", "inputs", "raw files", "libraries")
"""Groups that decide what an artifact holds."""


@dataclass(frozen=True)
class Change:
    """A value that is not the same in both; None where there is none."""

    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        """The change in one line, with the distance between two numbers."""
        text = f"{self.name}: {self._text(self.before)} -> {self._text(self.after)}"
        if _is_number(self.before) and _is_number(self.after):
            distance = self.after - self.before
            text += f" ({'+' if distance >= 0 else ''}{self._text(distance)})"
        return text

    def _text(self, value: Any) -> str:
        if value is None:
            return "none"
        return format_statistic(self.name, value) if _is_number(value) else str(value)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How two artifacts differ."""

    artifacts: tuple[str, str]
    stages: tuple[str, str]
    is_same_artifact: bool
    is_same_content: bool
    groups: dict[str, list[Change]]
    """By what is compared, in the order of telling; those without a change are left out."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def lines(self, *, show_all: bool = False) -> list[str]:
        """As text, with a few changes of each group unless all are wanted."""
        before, after = self.artifacts
        if self.is_same_artifact:
            return [f"{self.stages[0]} {before}: the same artifact"]
        names = " -> ".join(dict.fromkeys(self.stages))
        same = "the same content" if self.is_same_content else "other content"
        lines = [f"{names} {before} -> {after}: {same}"]
        for name, group in self.groups.items():
            shown = group if show_all else group[:SHOWN]
            lines += ["", name, *(f"  {change}" for change in shown)]
            if left := len(group) - len(shown):
                lines.append(f"  and {left:,} more (--all)")
        return lines

    @property
    def cause(self) -> str:
        """Why the two differ, in a few words."""
        if self.is_same_artifact:
            return "the same artifact"
        causes = [
            f"{name}: {', '.join(change.name for change in self.groups[name][:3])}"
            + (" ..." if len(self.groups[name]) > 3 else "")
            for name in _CAUSES
            if name in self.groups
        ]
        cause = "; ".join(causes) or "built again"
        return f"{cause} (the same content)" if self.is_same_content else cause


def difference(before: Manifest, after: Manifest) -> Difference:
    """How an artifact differs from an earlier one."""
    old, new = _compared(before), _compared(after)
    groups = {name: changes(old[name], new[name]) for name in old}
    return Difference(
        artifacts=(before.artifact_id, after.artifact_id),
        stages=(before.stage, after.stage),
        is_same_artifact=before.artifact_id == after.artifact_id,
        is_same_content=before.content == after.content,
        groups={name: found for name, found in groups.items() if found},
    )


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """The values that differ, in the order of the names."""
    return [
        Change(name, before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _compared(manifest: Manifest) -> dict[str, Mapping[str, Any]]:
    """What is compared of an artifact, by the name of its group."""
    made = manifest.environment
    keyed = {"python": made.python, **manifest.key_spec.get("environment", {})}
    return {
        "stage": {"name": manifest.stage, "version": manifest.stage_version},
        "configuration": flatten(manifest.config),
        # By content: an input that was rebuilt to the same bytes is the same.
        "inputs": {ref.name: f"{ref.stage} {_short(ref.content)}" for ref in manifest.inputs},
        "raw files": {raw.name: _file(raw) for raw in manifest.raw_inputs},
        "counts": manifest.counters,
        "statistics": flatten(manifest.statistics),
        "libraries": keyed,
        "other packages": {n: version for n, version in made.packages.items() if n not in keyed},
        "system": {"platform": made.platform},
        "files": {entry.path: _file(entry) for entry in manifest.files if not entry.is_record},
    }


def _file(file: RawInput | FileEntry) -> str:
    rows = getattr(file, "rows", None)
    counted = f"{rows:,} rows, " if rows is not None else ""
    return f"{counted}{format_bytes(file.size)}, sha256 {file.sha256[:_DIGITS]}"


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:_DIGITS]


@dataclass(frozen=True, kw_only=True)
class StepDifference:
    """How a step differs in two runs."""

    label: str
    artifacts: tuple[str, str]
    """Ids; "" where the run has no such step."""

    difference: Difference | None
    """None where one run has no such step."""

    @property
    def cause(self) -> str:
        """Why the step differs, in a few words."""
        if self.difference is None:
            return f"only in the {'first' if self.artifacts[0] else 'second'} run"
        return self.difference.cause


def run_differences(
    before: RunRecord, after: RunRecord, *, store: ArtifactStore
) -> list[StepDifference]:
    """How the steps of a run differ from those of an earlier one, in the order of the steps."""
    old = {step.label: step.manifest for step in before.steps}
    new = {step.label: step.manifest for step in after.steps}
    found = []
    for label in dict.fromkeys([*old, *new]):
        paths = (old.get(label), new.get(label))
        one, other = (store.read_manifest(path) if path else None for path in paths)
        found.append(
            StepDifference(
                label=label,
                artifacts=(one.artifact_id if one else "", other.artifact_id if other else ""),
                difference=difference(one, other) if one and other else None,
            )
        )
    return found


# As text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def run_lines(found: Sequence[StepDifference], *, show_all: bool = False) -> list[tuple[str, ...]]:
    """(step, artifact, artifact, what differs) of each step; trials that are the same as one."""
    rows: list[tuple[str, ...]] = []
    same: Counter[str] = Counter()
    for step in found:
        entry = entry_label(step.label)
        is_trial = entry != step.label
        if not show_all and is_trial and step.difference and step.difference.is_same_artifact:
            same[entry] += 1
            continue
        rows.append((step.label, *(name or "-" for name in step.artifacts), step.cause))
    rows += [(entry, "", "", f"{count} trials the same") for entry, count in same.items()]
    return rows
