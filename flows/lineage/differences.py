"""How two artifacts, or two runs, differ: configuration, inputs, numbers, code, versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flows.engine.task_steps import entry_label
from flows.formats import byte_text
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord
from schemas.manifest import FileEntry, Manifest, RawInput

SHOWN = 8
"""Changes of a group that are shown unless all are asked for."""

_DIGITS = 12


@dataclass(frozen=True)
class Change:
    """A value that is not the same in both; None where there is none."""

    name: str
    before: Any
    after: Any


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


def difference(before: Manifest, after: Manifest) -> Difference:
    """How an artifact differs from an earlier one."""
    old, new = before.environment, after.environment
    keyed = [_versions(manifest) for manifest in (before, after)]
    others = [
        {name: version for name, version in each.packages.items() if name not in versions}
        for each, versions in zip((old, new), keyed, strict=True)
    ]
    compared: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
        "stage": _both(before, after, lambda m: {"name": m.stage, "version": m.stage_version}),
        "configuration": _both(before, after, lambda m: _leaves(m.config)),
        "inputs": _both(before, after, _inputs),
        "raw files": _both(before, after, lambda m: _raw_files(m.raw_inputs)),
        "counts": _both(before, after, lambda m: m.counters),
        "statistics": _both(before, after, lambda m: _leaves(m.statistics)),
        "code": _both(before, after, _code),
        "libraries": (keyed[0], keyed[1]),
        "other packages": (others[0], others[1]),
        "system": ({"platform": old.platform}, {"platform": new.platform}),
        "files": _both(before, after, lambda m: _files(m.files)),
    }
    groups = {name: changes(*values) for name, values in compared.items()}
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


def _both(before: Manifest, after: Manifest, values: Any) -> tuple[Any, Any]:
    return values(before), values(after)


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Values by dotted path; items of lists that hold more than plain values by their index."""
    if isinstance(value, Mapping):
        inner: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list | tuple) and any(isinstance(i, Mapping | list) for i in value):
        inner = enumerate(value)
    else:
        return {path: list(value) if isinstance(value, tuple) else value}
    found: dict[str, Any] = {}
    for name, item in inner:
        found |= _leaves(item, f"{path}.{name}" if path else str(name))
    return found


def _inputs(manifest: Manifest) -> dict[str, str]:
    """By content: an input that was rebuilt to the same bytes is the same."""
    return {ref.name: f"{ref.stage} {_short(ref.content)}" for ref in manifest.inputs}


def _raw_files(files: Sequence[RawInput]) -> dict[str, str]:
    return {raw.name: f"{byte_text(raw.size)}, sha256 {raw.sha256[:_DIGITS]}" for raw in files}


def _code(manifest: Manifest) -> dict[str, str]:
    return {module: _short(digest) for module, digest in manifest.code.items()}


def _files(files: Sequence[FileEntry]) -> dict[str, str]:
    found = {}
    for entry in files:
        if not entry.is_record:
            rows = f"{entry.rows:,} rows, " if entry.rows is not None else ""
            found[entry.path] = f"{rows}{byte_text(entry.size)}, sha256 {entry.sha256[:_DIGITS]}"
    return found


def _versions(manifest: Manifest) -> dict[str, str]:
    """Of what is in the cache key."""
    found = {"python": manifest.environment.python}
    return found | dict(manifest.key_spec.get("environment", {}))


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:_DIGITS]


@dataclass(frozen=True, kw_only=True)
class StepDifference:
    """What became of a step in two runs."""

    label: str
    artifacts: tuple[str, str]
    """Ids; "" where the run has no such step."""

    difference: Difference | None
    """None where one run has no such step."""


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


def difference_lines(found: Difference, *, show_all: bool = False) -> list[str]:
    """A difference for people, a few changes of each group unless all are wanted."""
    before, after = found.artifacts
    if found.is_same_artifact:
        return [f"{found.stages[0]} {before}: the same artifact"]
    names = " -> ".join(dict.fromkeys(found.stages))
    same = "the same content" if found.is_same_content else "other content"
    lines = [f"{names} {before} -> {after}: {same}"]
    for name, group in found.groups.items():
        lines += ["", name]
        shown = group if show_all else group[:SHOWN]
        lines += [f"  {change_text(change)}" for change in shown]
        if left := len(group) - len(shown):
            lines.append(f"  and {left:,} more (--all)")
    return lines


def change_text(change: Change) -> str:
    """A change in one line, with the distance between two numbers."""
    text = f"{change.name}: {_text(change.before)} -> {_text(change.after)}"
    if _is_number(change.before) and _is_number(change.after):
        text += f" ({change.after - change.before:+,.6g})"
    return text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if _is_number(value) else str(value)


def run_lines(found: Sequence[StepDifference], *, show_all: bool = False) -> list[tuple[str, ...]]:
    """(step, artifact, artifact, what differs) of each step; cells that are the same as one."""
    rows: list[tuple[str, ...]] = []
    same: dict[str, int] = {}
    for step in found:
        entry = entry_label(step.label)
        is_cell = entry != step.label
        if not show_all and is_cell and step.difference and step.difference.is_same_artifact:
            same[entry] = same.get(entry, 0) + 1
            continue
        rows.append((step.label, *(name or "-" for name in step.artifacts), _told(step)))
    rows += [(entry, "", "", f"{count} cells the same") for entry, count in same.items()]
    return rows


def _told(step: StepDifference) -> str:
    found = step.difference
    if found is None:
        return "only in the first run" if step.artifacts[0] else "only in the second run"
    if found.is_same_artifact:
        return "the same artifact"
    causes = [
        f"{name}: {', '.join(change.name for change in found.groups[name][:3])}"
        + (" ..." if len(found.groups[name]) > 3 else "")
        for name in ("stage", "configuration", "inputs", "raw files", "code", "libraries")
        if name in found.groups
    ]
    told = "; ".join(causes) or "built again"
    return f"{told} (the same content)" if found.is_same_content else told
