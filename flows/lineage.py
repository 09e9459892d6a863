"""Where an artifact came from: its inputs, theirs, and the raw files at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from flows.artifacts import ArtifactStore
from flows.show import amount, byte_text
from schemas.manifest import Manifest, RawInput

_SHOWN_FILES = 5


@dataclass(frozen=True)
class Ancestor:
    """An artifact in a lineage, and what it was made from."""

    manifest: Manifest
    raw_inputs: tuple[RawInput, ...] = ()
    inputs: list[Ancestor] = field(default_factory=list)


def upstream(manifest: Manifest, *, store: ArtifactStore) -> Ancestor:
    """The artifact with all that it was made from, back to the raw files.

    Raises:
        ArtifactNotFoundError: an input's manifest is gone from the store.
    """
    inputs = [upstream(store.read_manifest(ref.manifest), store=store) for ref in manifest.inputs]
    return Ancestor(manifest, manifest.raw_inputs, inputs)


def lineage_lines(manifest: Manifest, *, store: ArtifactStore) -> list[str]:
    """The lineage as a tree of text; an artifact that was shown already is only named."""
    seen: set[str] = set()
    root = upstream(manifest, store=store)
    return [_title(root), *_branches(root, "", seen)]


def _title(ancestor: Ancestor) -> str:
    manifest = ancestor.manifest
    return f"{manifest.stage} {manifest.artifact_id}: {amount(manifest)}"


def _branches(ancestor: Ancestor, indent: str, seen: set[str]) -> Iterator[str]:
    seen.add(ancestor.manifest.artifact_id)
    files = [_raw(file) for file in ancestor.raw_inputs[:_SHOWN_FILES]]
    if (more := len(ancestor.raw_inputs) - len(files)) > 0:
        files.append(f"and {more} more files; `bertloom show` lists them")
    inputs, others = _shown_inputs(ancestor)
    if others:
        files.append(others)
    left = len(inputs) + len(files)
    for parent in inputs:
        left -= 1
        known = parent.manifest.artifact_id in seen
        yield f"{indent}{_arm(left)} {_title(parent)}{' (as above)' if known else ''}"
        if not known:
            yield from _branches(parent, indent + ("│  " if left else "   "), seen)
    for file in files:
        left -= 1
        yield f"{indent}{_arm(left)} {file}"


def _shown_inputs(ancestor: Ancestor) -> tuple[list[Ancestor], str]:
    """The inputs to draw: of an evaluation's cells, those that answered; and a line on the rest."""
    members = ancestor.manifest.statistics.get("members")
    if ancestor.manifest.stage != "evaluate" or not members:
        return ancestor.inputs, ""
    names = [ref.name for ref in ancestor.manifest.inputs]
    shown = [
        parent
        for name, parent in zip(names, ancestor.inputs, strict=True)
        if parent.manifest.stage != "finetune" or name in members
    ]
    left = len(ancestor.inputs) - len(shown)
    cells = f"cell{'s' if left > 1 else ''}"
    return shown, f"compared with {left} other {cells} of the grid" if left else ""


def _arm(left: int) -> str:
    return "├─" if left else "└─"


def _raw(file: RawInput) -> str:
    verified = f", verified {file.checksum.partition(':')[0]}" if file.checksum else ""
    return f"{file.name} ({byte_text(file.size)}, sha256 {file.sha256[:12]}{verified})"
