"""What a lineage can be asked for: an artifact, a raw file, or a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.lineage.graph import scan
from flows.lineage.resolution import resolve
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, read_run, run_ids
from schemas.errors import ArtifactNotFoundError
from schemas.manifest import Manifest, RawInput

_LEAST_DIGITS = 8
_SHOWN = 12
_CELLS = "finetune"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number of an artifact's statistics."""

    label: str
    """Of the step, or what the artifact was asked for by."""

    name: str
    """Dotted path in the statistics: `metrics.dev.matthews`."""

    value: float
    manifest: Manifest


@dataclass(frozen=True, kw_only=True)
class Target:
    """What was asked for: one of an artifact and files; metrics of several steps go without."""

    manifest: Manifest | None = None
    files: tuple[RawInput, ...] = ()
    metrics: tuple[Metric, ...] = ()
    """Of the artifact; of several, where a metric alone was asked for."""


def newest_run(store: ArtifactStore) -> RunRecord | None:
    """The newest run of a store that finished a step, or None."""
    for run_id in reversed(run_ids(store)):
        record = read_run(store, run_id)
        if record.steps:
            return record
    return None


def last_number(store: ArtifactStore) -> Target:
    """What the newest run came to in the end: tables only repeat it.

    Raises:
        ArtifactNotFoundError: no run of the store finished a step.
    """
    run = newest_run(store)
    steps = [step for step in run.steps if _stage(step.label) != "tabulate"] if run else []
    if not steps:
        raise ArtifactNotFoundError(
            f"{store.root}: no run has finished a step yet; name an artifact, a file or a metric"
        )
    return Target(manifest=store.read_manifest(steps[-1].manifest))


def find_target(text: str, *, store: ArtifactStore) -> Target:
    """What a text names.

    Args:
        text: what `resolution.resolve` takes; a step of the newest run (`evaluate.cola`);
            either with `:` and a file of the artifact or a metric (`evaluate.cola:dev.matthews`);
            a raw file by its path, URL, name, sha256 or published checksum, digests also by their
            first eight or more digits; an artifact's file by its sha256; or a metric of the
            newest run.
        store: where to look.

    Raises:
        ArtifactNotFoundError: nothing is named so, or more than one thing.
    """
    if (of_artifact := _in_artifact(text, store)) is not None:
        return of_artifact
    try:
        return Target(manifest=find_artifact(text, store=store))
    except ArtifactNotFoundError as error:
        if raw := _raw_file(text, store):
            return Target(files=(raw,))
        if (holder := _holder_of(text, store)) is not None:
            return Target(manifest=holder)
        if metrics := tuple(_of_newest_run(text, store)):
            only = metrics[0].manifest
            is_one = all(metric.manifest is only for metric in metrics)
            return Target(manifest=only if is_one else None, metrics=metrics)
        error.add_note("nor is it a raw file that was read, or a metric of the newest run")
        raise


def find_artifact(text: str, *, store: ArtifactStore) -> Manifest:
    """As `resolution.resolve`; also a step of the newest run, such as `evaluate.cola`.

    Raises:
        ArtifactNotFoundError: nothing is named so, or more than one artifact is.
    """
    # A stage's own name means its newest artifact, whatever the last run used.
    if "." in text and "/" not in text and (run := newest_run(store)) is not None:
        for step in run.steps:
            if step.label == text:
                return store.read_manifest(step.manifest)
    return resolve(text, store=store)


def _in_artifact(text: str, store: ArtifactStore) -> Target | None:
    """`ARTIFACT:FILE` or `ARTIFACT:METRIC`, else None."""
    name, colon, part = text.rpartition(":")
    is_digest = name in ("sha256", "sha1", "md5")
    if not colon or not name or is_digest or part.startswith("//"):
        return None
    manifest = find_artifact(name, store=store)
    if manifest.file(part) is not None:
        return Target(manifest=manifest)
    if metrics := tuple(_matching(part, name, manifest)):
        return Target(manifest=manifest, metrics=metrics)
    known = [metric for metric, _ in numbers(manifest.statistics)]
    shown = ", ".join(known[:_SHOWN]) + (" ..." if len(known) > _SHOWN else "")
    raise ArtifactNotFoundError(
        f"artifact {manifest.artifact_id} ({manifest.stage}): no file and no metric {part!r}. Its "
        f"metrics are {shown or 'none'}"
    )


def numbers(statistics: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of an artifact's statistics by its dotted path; those in lists are left out."""
    for name, value in statistics.items():
        where = f"{path}.{name}" if path else name
        if isinstance(value, Mapping):
            yield from numbers(value, where)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield where, value


def _matching(metric: str, label: str, manifest: Manifest) -> Iterator[Metric]:
    for name, value in numbers(manifest.statistics):
        if f".{name}".endswith(f".{metric}"):
            yield Metric(label=label, name=name, value=value, manifest=manifest)


def _of_newest_run(metric: str, store: ArtifactStore) -> Iterator[Metric]:
    """A metric of every step of the newest run; of cells where nothing else has it."""
    run = newest_run(store)
    steps = run.steps if run else ()
    for is_cell in (False, True):
        found = [
            match
            for step in steps
            if (_stage(step.label) == _CELLS) == is_cell
            for match in _matching(metric, step.label, store.read_manifest(step.manifest))
        ]
        if found:
            yield from found
            return


def _stage(label: str) -> str:
    return label.partition(".")[0]


def _raw_file(text: str, store: ArtifactStore) -> RawInput | None:
    wanted = _Wanted(text)
    found: dict[str, RawInput] = {}
    exact: dict[str, RawInput] = {}
    for entry in scan(store):
        for raw in entry.raw_inputs:
            if not wanted.is_met_by(raw):
                continue
            found.setdefault(raw["sha256"], RawInput.model_validate(raw))
            if raw["uri"] in wanted.paths:
                exact.setdefault(raw["sha256"], found[raw["sha256"]])
    if len(found := exact or found) > 1:
        listed = ", ".join(f"sha256:{digest} ({raw.uri})" for digest, raw in found.items())
        raise ArtifactNotFoundError(f"{text!r} names {len(found)} raw files: {listed}")
    return next(iter(found.values()), None)


def _holder_of(text: str, store: ArtifactStore) -> Manifest | None:
    """The artifact that a file with this sha256 is part of; the newest, where several have it."""
    digits = text.lower().removeprefix("sha256:")
    if not _is_digest(digits):
        return None
    holders = [
        store.read_manifest(entry.path)
        for entry in scan(store)
        if any(str(file["sha256"]).startswith(digits) for file in entry.files)
    ]
    return max(holders, key=lambda manifest: manifest.produced_by.ended, default=None)


def _is_digest(text: str) -> bool:
    """Whether a text may be the first digits of a digest."""
    return len(text) >= _LEAST_DIGITS and not text.strip("0123456789abcdef")


class _Wanted:
    """A raw file that is looked for, in all the ways that its text may mean."""

    def __init__(self, text: str) -> None:
        self.paths = {text}
        if "://" not in text:
            self.paths |= {str(Path(text).absolute()), str(Path(text).resolve())}
        self._name = text.rstrip("/").rpartition("/")[2]
        is_named = "/" not in text
        self._names = {text} if is_named else set()
        self._kind, _, digits = text.lower().rpartition(":")
        self._digits = digits if _is_digest(digits) else ""

    def is_met_by(self, raw: Mapping[str, Any]) -> bool:
        kind, _, checksum = raw["checksum"].partition(":")
        digests = {"sha256": raw["sha256"], kind: checksum}
        if self._digits and any(
            digest.startswith(self._digits)
            for algorithm, digest in digests.items()
            if self._kind in ("", algorithm)
        ):
            return True
        if raw["uri"] in self.paths or raw["name"] in self.paths:
            return True
        return bool(self._names) and self._name == raw["name"].rpartition("/")[2]
