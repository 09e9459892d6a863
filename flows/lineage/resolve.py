"""What a text names: an artifact, a raw file, or a number."""

from __future__ import annotations

import contextlib
import difflib
import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flows.formatting import format_statistic
from flows.lineage.graph import scan
from flows.nested_values import numeric_leaves
from flows.run.stages import get_stage
from flows.store.artifact import Artifact
from flows.store.artifacts import ArtifactStore
from flows.store.pointers import Pointer
from flows.store.runs import RunRecord, read_run, run_ids
from model.telling.amounts import score_cut
from pipelines.io.file_systems import file_system, protocols_of
from schemas.addresses import public_address
from schemas.errors import ArtifactNotFoundError, ConfigError
from schemas.manifest import FileEntry, Manifest, RawInput
from schemas.trial_names import entry_label

_LEAST_PREFIX, _LEAST_DIGITS = 4, 8
"""Digits that name an artifact, and a file."""

_SHOWN, _SHOWN_NAMES = 6, 12
_METRIC_OF_TYPE = re.compile(r"(.+):([^:/]+\.[^:/]+:[^:/]+)")
"""`ARTIFACT:dev.entity-f1:LOC`: a metric of one type of entities has a colon of its own."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number of an artifact's statistics."""

    label: str
    """The step's, or the name that the artifact was asked for by."""

    name: str
    """Dotted path in the statistics: `metrics.dev.matthews`."""

    value: float
    manifest: Manifest

    def __str__(self) -> str:
        """Return the metric in one line, with what its data or training was cut to."""
        cut = "; ".join(score_cut(self.name, self.manifest.statistics))
        text = f"{self.label} {self.name} = {format_statistic(self.name, self.value)}"
        return f"{text} ({cut})" if cut else text


@dataclass(frozen=True, kw_only=True)
class ResolvedName:
    """What a text names: an artifact, raw files, or metrics of several artifacts."""

    manifest: Manifest | None = None
    files: tuple[RawInput, ...] = ()
    metrics: tuple[Metric, ...] = ()
    """The artifact's; those of several, where a metric alone was asked for."""


def resolve_name(text: str, *, store: ArtifactStore) -> ResolvedName:
    """What a text names.

    Args:
        text: what `resolve` takes; that with `:` and a file of the artifact or a metric
            (`evaluate.cola:dev.matthews`); a raw file by its path, URL, name, sha256 or published
            checksum, digests also by their first eight or more digits; an artifact's file by its
            sha256; or a metric of the newest run.
        store: where to look.

    Raises:
        ArtifactNotFoundError: nothing is named so, or more than one thing.
    """
    if "/" in text and (at := artifact_of_path(text)) is not None:  # whose folders may have a colon
        return ResolvedName(manifest=at.manifest)
    if (of_artifact := _in_artifact(text, store)) is not None:
        return of_artifact
    try:
        return ResolvedName(manifest=resolve(text, store=store))
    except ArtifactNotFoundError as error:
        if (of_file := _by_file(text, store)) is not None:
            return of_file
        if metrics := tuple(_of_newest_run(text, store)):
            only = metrics[0].manifest
            is_one = all(metric.manifest is only for metric in metrics)
            return ResolvedName(manifest=only if is_one else None, metrics=metrics)
        error.add_note("nor is it a raw file that was read, or a metric of the newest run")
        raise


def latest_metric(store: ArtifactStore) -> ResolvedName:
    """The last artifact of the newest run but for tables, which only repeat it.

    Raises:
        ArtifactNotFoundError: no run of the store finished a step.
    """
    run = newest_run(store)
    steps = [step for step in run.steps if _holds(step.label) != "tables"] if run else []
    if not steps:
        raise ArtifactNotFoundError(
            f"{store.root}: no run has finished a step yet; name an artifact, a file or a metric"
        )
    return ResolvedName(manifest=store.read_manifest(steps[-1].manifest))


def newest_run(store: ArtifactStore) -> RunRecord | None:
    """The newest run of a store that finished a step, or None."""
    records = (read_run(store, run_id) for run_id in reversed(run_ids(store)))
    return next((record for record in records if record.steps), None)


def _holds(label: str) -> str:
    return get_stage(label.partition(".")[0]).output_type


# Artifacts


def resolve(text: str, *, store: ArtifactStore) -> Manifest:
    """The artifact that a text names.

    Args:
        text: a step of the newest run (`evaluate.cola`), the name of a ref (`sample/build-tokens`),
            of a publication's part (`corpus/simplewiki/latest/build-documents`), an artifact's id,
            cache key or content digest or the first four or more digits of one, a stage (its
            newest artifact), or the path or URL of an artifact's folder, of its manifest, or of one
            of its files.
        store: where to look.

    Raises:
        ArtifactNotFoundError: nothing is named so, or more than one artifact is.
    """
    if (named := _by_name(text, store)) is not None:
        return store.read_manifest(named)
    pointers = list(store.pointers())
    if (found := _by_stage(text, pointers) or _by_digits(text, pointers)) is not None:
        return store.read_manifest(found.manifest)
    if (at_path := artifact_of_path(text)) is not None:
        return at_path.manifest
    known = [*store.refs(), *(item.stage for item in pointers)]
    raise ArtifactNotFoundError(
        f"{store.root}: no artifact {text!r}.{_hint(text, known)} Expected an id or a cache key "
        f"(at least {_LEAST_PREFIX} digits), a path, or {_names_like(text, known)}"
    )


def _by_name(text: str, store: ArtifactStore) -> str | None:
    """Path of the manifest of a step of the newest run, a ref, or a part of a publication."""
    # A stage's own name means its newest artifact, whatever the last run used.
    if "." in text and "/" not in text and (run := newest_run(store)) is not None:
        for step in run.steps:
            if step.label == text:
                return step.manifest
    publication, _, label = text.rpartition("/")
    with contextlib.suppress(ConfigError):  # it cannot be the name of a ref
        if (pointer := store.ref(text)) is not None:
            return pointer.manifest
        if publication and (pointer := store.ref(publication)) is not None and pointer.parts:
            if label in pointer.parts:
                return pointer.parts[label]
            raise ArtifactNotFoundError(
                f"{store.root}: {publication} has no part {label!r}.{_hint(label, pointer.parts)} "
                f"Expected {_names_like(label, pointer.parts)}"
            )
    return None


def _by_stage(text: str, pointers: list[Pointer]) -> Pointer | None:
    of_stage = [pointer for pointer in pointers if pointer.stage == text]
    return max(of_stage, key=lambda pointer: pointer.committed, default=None)


def _by_digits(text: str, pointers: list[Pointer]) -> Pointer | None:
    digits = text.removeprefix("sha256:").lower()
    if len(digits) < _LEAST_PREFIX:
        return None
    matching = [
        pointer
        for pointer in pointers
        if pointer.artifact_id.startswith(digits) or pointer.cache_key.startswith(digits)
    ]
    if len(matching) > 1:
        listed = ", ".join(f"{item.artifact_id} ({item.stage})" for item in matching[:_SHOWN])
        raise ArtifactNotFoundError(
            f"{text!r} names {len(matching)} artifacts: {listed}. Give more digits"
        )
    return matching[0] if matching else _by_content(digits, pointers)


def _by_content(digits: str, pointers: list[Pointer]) -> Pointer | None:
    """The newest of those that hold the same; tables refer to evaluations by what these hold."""
    holding = [p for p in pointers if p.content.removeprefix("sha256:").startswith(digits)]
    if len({pointer.content for pointer in holding}) > 1:
        raise ArtifactNotFoundError(
            f"{digits!r} names artifacts of different content: give more digits"
        )
    return max(holding, key=lambda pointer: pointer.committed, default=None)


def _hint(text: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(text, sorted(set(known)), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _names_like(text: str, known: Iterable[str]) -> str:
    """Some names, those most like the text; the trials of a grid as one."""
    entries = Counter(entry_label(name) for name in sorted(set(known)))
    if not entries:
        return "one of the names of the store, which has none"
    names = [name if count == 1 else f"{name}.TRIAL" for name, count in entries.items()]

    def likeness(name: str) -> tuple[float, str]:
        return difflib.SequenceMatcher(None, text, name).ratio(), name

    shown = sorted(heapq.nlargest(_SHOWN_NAMES, names, key=likeness))
    more = len(names) - len(shown)
    return f"one of the names {', '.join(shown)}{f' and {more} more' if more else ''}"


def artifact_of_path(text: str) -> Artifact | None:
    """Return the artifact that a path or URL is the folder of or is in, None for other paths.

    Raises:
        ArtifactCorruptError: Its manifest is corrupt.
    """
    try:
        fs, path = file_system(text)
    except (ValueError, ImportError):
        return None
    folder = str(path).rstrip("/")
    # The folder, its manifest, its data folder, or a file in that or one level below.
    for _ in range(4):
        root, *parts = folder.rsplit("/artifacts/", 1)
        if parts and fs.isfile(f"{folder}/manifest.json") and fs.isfile(f"{root}/FORMAT.json"):
            is_local = "file" in protocols_of(fs)
            store = ArtifactStore(root if is_local else str(fs.unstrip_protocol(root)))
            manifest = store.read_manifest(f"artifacts/{parts[0]}/manifest.json")
            return store.artifact(manifest)
        folder = folder.rpartition("/")[0]
    return None


def artifact_of_file(path: str) -> tuple[Artifact, FileEntry] | None:
    """Return the artifact that a file is in, and its entry in the manifest. None for other files.

    Raises:
        ArtifactNotFoundError: It is in the folder of an artifact, but not part of it.
    """
    artifact = artifact_of_path(path)
    if artifact is None:
        return None
    for entry in artifact.manifest.files:
        if path.endswith(f"/{artifact.manifest.data}/{entry.object}"):
            return artifact, entry
    if Path(path).is_file():
        raise ArtifactNotFoundError(
            f"{path}: expected a file of {artifact}, got one that its manifest does not list: a "
            "retried worker left it behind"
        )
    return None


# Metrics


def _in_artifact(text: str, store: ArtifactStore) -> ResolvedName | None:
    """`ARTIFACT:FILE` or `ARTIFACT:METRIC`, else None."""
    name, colon, part = text.rpartition(":")
    if found := _METRIC_OF_TYPE.fullmatch(text):
        name, part = found.groups()
    is_digest = name in ("sha256", "sha1", "md5")
    if not colon or not name or is_digest or part.startswith("//"):
        return None
    manifest = resolve(name, store=store)
    if manifest.file(part) is not None:
        return ResolvedName(manifest=manifest)
    if metrics := tuple(_matching(part, name, manifest)):
        return ResolvedName(manifest=manifest, metrics=metrics)
    known = list(numeric_leaves(manifest.statistics))
    shown = ", ".join(known[:_SHOWN_NAMES]) + (" ..." if len(known) > _SHOWN_NAMES else "")
    raise ArtifactNotFoundError(
        f"artifact {manifest.artifact_id} ({manifest.stage}): no file and no metric {part!r}. Its "
        f"metrics are {shown or 'none'}"
    )


def _matching(metric: str, label: str, manifest: Manifest) -> Iterator[Metric]:
    """Yield the numbers whose path ends in `metric`; the scores of an evaluation if it has any."""
    values = numeric_leaves(manifest.statistics)
    names = [name for name in values if f".{name}".endswith(f".{metric}")]
    for name in [name for name in names if name.startswith("metrics.")] or names:
        yield Metric(label=label, name=name, value=values[name], manifest=manifest)


def _of_newest_run(metric: str, store: ArtifactStore) -> Iterator[Metric]:
    """A metric of every step of the newest run; of trials where nothing else has it."""
    run = newest_run(store)
    steps = run.steps if run else ()
    for is_trial in (False, True):
        found = [
            match
            for step in steps
            if (_holds(step.label) == "trial") == is_trial
            for match in _matching(metric, step.label, store.read_manifest(step.manifest))
        ]
        if found:
            yield from found
            return


# Files


def _by_file(text: str, store: ArtifactStore) -> ResolvedName | None:
    """A raw file; or the newest artifact that has a file with this sha256."""
    raw_files: dict[str, RawInput] = {}
    at_path: dict[str, RawInput] = {}
    holders: list[str] = []
    paths, digits = _paths(text), text.lower().removeprefix("sha256:")
    for pointer, manifest in scan(store):
        for raw in manifest.raw_inputs:
            if _is_named(raw, text, paths=paths):
                raw_files.setdefault(raw.sha256, raw)
                if raw.uri in paths:
                    at_path.setdefault(raw.sha256, raw)
        digests = [file.sha256 for file in manifest.files]
        if _is_digest(digits) and any(digest.startswith(digits) for digest in digests):
            holders.append(pointer.manifest)
    files = tuple((at_path or raw_files).values())
    if len(files) > 1:
        listed = ", ".join(f"sha256:{raw.sha256} ({raw.uri})" for raw in files)
        raise ArtifactNotFoundError(f"{text!r} names {len(files)} raw files: {listed}")
    if files:
        return ResolvedName(files=files)
    made = map(store.read_manifest, holders)
    newest = max(made, key=lambda manifest: manifest.produced_by.ended, default=None)
    return ResolvedName(manifest=newest) if newest is not None else None


def _paths(text: str) -> set[str]:
    if "://" in text:
        return {public_address(text)}
    return {text, str(Path(text).absolute()), str(Path(text).resolve())}


def _is_named(raw: RawInput, text: str, *, paths: set[str]) -> bool:
    """Whether a text names a raw file by a digest, by its path, or by its name alone."""
    wanted, _, digits = text.lower().rpartition(":")
    kind, _, checksum = raw.checksum.partition(":")
    by_digest = _is_digest(digits) and any(
        digest.startswith(digits)
        for algorithm, digest in (("sha256", raw.sha256), (kind, checksum))
        if wanted in ("", algorithm)
    )
    by_name = "/" not in text and text == raw.name.rpartition("/")[2]
    return by_digest or by_name or raw.uri in paths or raw.name in paths


def _is_digest(text: str) -> bool:
    """Whether a text may be the first digits of a digest."""
    return len(text) >= _LEAST_DIGITS and not text.strip("0123456789abcdef")
