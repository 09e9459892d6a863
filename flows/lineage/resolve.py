"""Names of artifacts, raw files and metrics, as users write them."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flows.formatting import format_statistic
from flows.nested_values import numeric_leaves
from flows.run.stages import get_stage
from flows.store.artifact import Artifact
from flows.store.artifact_paths import artifact_of_path, stored_name
from flows.store.artifacts import ArtifactStore
from flows.store.default_store import default_store
from flows.store.pointers import Pointer
from flows.store.runs import RunRecord, StepRecord, read_run, run_ids
from model.monitoring.summaries import score_cut
from schemas.errors import ArtifactCorruptError, ArtifactNotFoundError, ConfigError
from schemas.manifest import FileEntry, InputRef, Manifest, RawInput
from schemas.redaction import public_address
from schemas.trial_names import entry_label

_MIN_DIGITS, _MIN_FILE_DIGITS = 4, 8
"""Length of the shortest prefix of an artifact's id or digests, and of a file's digest."""

_MAX_SUGGESTIONS = 12
_ENTITY_METRIC = re.compile(r"(.+):([^:/]+\.[^:/]+:[^:/]+)")
"""`ARTIFACT:dev.entity-f1:LOC`: the metric of one entity type contains a colon."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Number in the statistics of an artifact.

    Attributes:
        label: Label of the step, or the requested name of the artifact.
        name: Dotted path in the statistics: `metrics.dev.matthews`.
    """

    label: str
    name: str
    value: float
    manifest: Manifest

    def __str__(self) -> str:
        """Return the metric in one line, with the limits of its data or training."""
        limits = "; ".join(score_cut(self.name, self.manifest.statistics))
        text = f"{self.label} {self.name} = {format_statistic(self.name, self.value)}"
        return f"{text} ({limits})" if limits else text


@dataclass(frozen=True, kw_only=True)
class ResolvedName:
    """Artifact, raw file, or metrics. Metrics of several artifacts have no `manifest`."""

    manifest: Manifest | None = None
    file: RawInput | None = None
    metrics: tuple[Metric, ...] = ()


def resolve_name(text: str, *, store: ArtifactStore) -> ResolvedName:
    """Return what a name stands for.

    Args:
        text: Artifact as for `resolve`, also with `:` and one of its files or metrics
            (`evaluate.cola:dev.matthews`); a raw file by path, URL, name, sha256 or published
            checksum; a file of an artifact by sha256; or a metric of the newest run. Digests can be
            cut to eight or more digits.
        store: Store to search.

    Raises:
        ArtifactNotFoundError: Nothing, or more than one result, has the name.
    """
    # Folders in a path can contain a colon.
    if "/" in text and (artifact := artifact_of_path(text)) is not None:
        return ResolvedName(manifest=artifact.manifest)
    if (part := _resolve_part(text, store)) is not None:
        return part
    try:
        return ResolvedName(manifest=resolve(text, store=store))
    except ArtifactNotFoundError as error:
        if (by_file := _resolve_file(text, store)) is not None:
            return by_file
        if metrics := tuple(_metrics_of_newest_run(text, store)):
            manifests = {metric.manifest.artifact_id: metric.manifest for metric in metrics}
            only = metrics[0].manifest if len(manifests) == 1 else None
            return ResolvedName(manifest=only, metrics=metrics)
        error.add_note("It is no raw file of an artifact and no metric of the newest run either.")
        raise


def latest_metric(store: ArtifactStore) -> ResolvedName:
    """Return the last artifact of the newest run, without tables of results of others.

    Raises:
        ArtifactNotFoundError: No run of the store has finished a step.
    """
    run = newest_run(store)
    steps = [step for step in run.steps if _output_type(step) != "tables"] if run else []
    if not steps:
        raise ArtifactNotFoundError(
            f"{store.root}: expected a run with finished steps, got none. Name an artifact, a raw "
            "file or a metric"
        )
    return ResolvedName(manifest=store.read_manifest(steps[-1].manifest))


def newest_run(store: ArtifactStore) -> RunRecord | None:
    """Return the newest run that finished a step, or None."""
    records = (read_run(store, run_id) for run_id in reversed(run_ids(store)))
    return next((record for record in records if record.steps), None)


def published_manifests(store: ArtifactStore) -> Iterator[Manifest]:
    """Yield the manifest of every published artifact, oldest first.

    The artifacts of other stores that an artifact was built from come before it, each once.

    Raises:
        ArtifactCorruptError: A manifest is corrupt.
    """
    pointers = sorted(store.pointers(), key=lambda pointer: (pointer.committed, pointer.manifest))
    seen: set[str] = set()
    for manifest in store.manifests(pointer.manifest for pointer in pointers).values():
        if isinstance(manifest, ArtifactCorruptError):
            raise manifest
        for ref in manifest.inputs:
            if ref.store:
                yield from _upstream_manifests(ref, store, seen)
        yield manifest


def _upstream_manifests(ref: InputRef, store: ArtifactStore, seen: set[str]) -> Iterator[Manifest]:
    """Yield an input and everything that it was built from, inputs first, each once."""
    if ref.artifact_id in seen:
        return
    seen.add(ref.artifact_id)
    try:
        artifact = store.input(ref)
    except ArtifactNotFoundError:
        return
    for upstream in artifact.manifest.inputs:
        yield from _upstream_manifests(upstream, artifact.store, seen)
    yield artifact.manifest


# Artifacts


def open_store(root: str | None) -> ArtifactStore:
    """Open an existing store. None: the default one.

    Raises:
        ArtifactNotFoundError: There is no store.
    """
    return ArtifactStore(root or default_store(), create=False)


def open_artifact(name: str, store: str | None) -> Artifact:
    """Return the artifact with a name, path or URL; a path needs no store.

    Args:
        name: Name as for `resolve`, or `STORE/NAME`: the folder or URL of another store before it.
        store: Store to search. None: the default one.

    Raises:
        ArtifactNotFoundError: There is no store, or none or more than one artifact has the name.
    """
    if (artifact := artifact_of_path(name)) is not None:
        return artifact
    if "/" in name and (stored := stored_name(name)) is not None:
        return stored.store.artifact(resolve(stored.name, store=stored.store))
    opened = open_store(store)
    return opened.artifact(resolve(name, store=opened))


def resolve(text: str, *, store: ArtifactStore) -> Manifest:
    """Return the artifact with a name.

    Args:
        text: Step of the newest run (`evaluate.cola`), ref (`sample/build-tokens`), part of a
            publication (`corpus/simplewiki/latest/build-documents`), stage (its newest artifact),
            artifact id, cache key or content digest, or at least four first digits of one, or path
            or URL of an artifact's folder, its manifest or one of its files.
        store: Store to search.

    Raises:
        ArtifactNotFoundError: No artifact, or more than one, has the name.
    """
    if (path := _resolve_label(text, store)) is not None:
        return store.read_manifest(path)
    pointers = sorted(store.pointers(), key=lambda pointer: pointer.committed)
    of_stage = [pointer for pointer in pointers if pointer.stage == text]
    if matches := of_stage or _match_digits(text, pointers):
        return store.read_manifest(matches[-1].manifest)
    if (artifact := artifact_of_path(text)) is not None:
        return artifact.manifest
    known = [*store.refs(), *(pointer.stage for pointer in pointers)]
    raise ArtifactNotFoundError(
        f"{store.root}: no artifact {text!r}. {_suggest(text, known)}, an id or a cache key "
        f"(at least {_MIN_DIGITS} digits), or a path"
    )


def _resolve_label(text: str, store: ArtifactStore) -> str | None:
    """Return the path of the manifest of a step, a ref or a part of a publication."""
    # The name of a stage is its newest artifact, whatever the newest run used.
    if "." in text and "/" not in text and (run := newest_run(store)) is not None:
        labels = {step.label: step.manifest for step in run.steps}
        if text in labels:
            return labels[text]
    publication, _, label = text.rpartition("/")
    with contextlib.suppress(ConfigError):  # not a valid name of a ref
        if (pointer := store.ref(text)) is not None:
            return pointer.manifest
        if publication and (pointer := store.ref(publication)) is not None and pointer.parts:
            if label not in pointer.parts:
                raise ArtifactNotFoundError(
                    f"{store.root}: {publication}: no part {label!r}. "
                    f"{_suggest(label, pointer.parts)}"
                )
            return pointer.parts[label]
    return None


def _match_digits(text: str, pointers: list[Pointer]) -> list[Pointer]:
    """Return the artifacts with an id, cache key or content; all have the same content."""
    digits = text.removeprefix("sha256:").lower()
    if len(digits) < _MIN_DIGITS:
        return []
    matches = [
        pointer
        for pointer in pointers
        if any(
            value.removeprefix("sha256:").startswith(digits)
            for value in (pointer.artifact_id, pointer.cache_key, pointer.content_digest)
        )
    ]
    if len({pointer.content_digest for pointer in matches}) > 1:
        listed = ", ".join(f"{item.artifact_id} ({item.stage})" for item in matches[:6])
        raise ArtifactNotFoundError(
            f"{text!r}: expected one artifact, got {len(matches)}: {listed}. Give more digits"
        )
    return matches


def _suggest(text: str, known: Iterable[str]) -> str:
    """Return a sentence with the most similar names. Trials of a grid are one name."""
    names = sorted(set(known))
    close = difflib.get_close_matches(text, names, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    entries = Counter(map(entry_label, names))
    labels = [label if count == 1 else f"{label}.TRIAL" for label, count in entries.items()]
    similar = sorted(difflib.get_close_matches(text, labels, n=_MAX_SUGGESTIONS, cutoff=0))
    more = f" and {len(labels) - len(similar)} more" if len(labels) > len(similar) else ""
    return f"{hint}Expected one of {', '.join(similar) or 'no names'}{more}"


def artifact_of_file(path: str) -> tuple[Artifact, FileEntry] | None:
    """Return the artifact that a file is in, and its entry in the manifest. None for other files.

    Raises:
        ArtifactNotFoundError: It is in the folder of an artifact, but not part of it.
    """
    artifact = artifact_of_path(path)
    if artifact is None:
        return None
    for entry in artifact.manifest.files:
        if path.endswith(f"/{artifact.manifest.data_path}/{entry.stored_name}"):
            return artifact, entry
    if Path(path).is_file():
        raise ArtifactNotFoundError(
            f"{path}: expected a file of {artifact}, got one that its manifest does not list: a "
            "retried worker left it behind"
        )
    return None


# Metrics


def _resolve_part(text: str, store: ArtifactStore) -> ResolvedName | None:
    """Return the artifact of `ARTIFACT:FILE` or `ARTIFACT:METRIC`. None for other texts."""
    name, _, part = text.rpartition(":")
    if match := _ENTITY_METRIC.fullmatch(text):
        name, part = match.groups()
    if name in ("", "sha256", "sha1", "md5") or part.startswith("//"):
        return None
    manifest = resolve(name, store=store)
    metrics = tuple(_find_metrics(part, name, manifest))
    if metrics or manifest.file(part) is not None:
        return ResolvedName(manifest=manifest, metrics=metrics)
    raise ArtifactNotFoundError(
        f"artifact {manifest.artifact_id} ({manifest.stage}): no file or metric {part!r}. "
        f"{_suggest(part, numeric_leaves(manifest.statistics))}"
    )


def _find_metrics(metric: str, label: str, manifest: Manifest) -> Iterator[Metric]:
    """Yield the numbers whose path ends with `metric`; scores hide all other numbers."""
    values = numeric_leaves(manifest.statistics)
    names = [name for name in values if f".{name}".endswith(f".{metric}")]
    for name in [name for name in names if name.startswith("metrics.")] or names:
        yield Metric(label=label, name=name, value=values[name], manifest=manifest)


def _metrics_of_newest_run(metric: str, store: ArtifactStore) -> list[Metric]:
    """Return a metric of all steps; that of trials only if no other step has it."""
    run = newest_run(store)
    metrics: dict[bool, list[Metric]] = {False: [], True: []}
    for step in run.steps if run else ():
        manifest = store.read_manifest(step.manifest)
        metrics[_output_type(step) == "trial"] += _find_metrics(metric, step.label, manifest)
    return metrics[False] or metrics[True]


def _output_type(step: StepRecord) -> str:
    return get_stage(step.label.partition(".")[0]).output_type


# Files


def _resolve_file(text: str, store: ArtifactStore) -> ResolvedName | None:
    """Return a raw file, or the newest artifact with a file of this sha256."""
    digits = text.lower().removeprefix("sha256:")
    paths = {text, str(Path(text).absolute()), str(Path(text).resolve())}
    if "://" in text:
        paths = {public_address(text)}
    matches: list[RawInput] = []
    newest: Manifest | None = None
    for manifest in published_manifests(store):
        matches += (item for item in manifest.raw_inputs if _has_name(item, text, paths=paths))
        if _is_digest(digits) and any(f.sha256.startswith(digits) for f in manifest.files):
            newest = manifest
    at_path = [item for item in matches if item.uri in paths]
    files = {item.sha256: item for item in at_path or matches}
    if len(files) > 1:
        listed = ", ".join(f"sha256:{item.sha256} ({item.uri})" for item in files.values())
        raise ArtifactNotFoundError(f"{text!r}: expected one raw file, got {len(files)}: {listed}")
    if files:
        return ResolvedName(file=next(iter(files.values())))
    return ResolvedName(manifest=newest) if newest is not None else None


def _has_name(item: RawInput, text: str, *, paths: set[str]) -> bool:
    """Return whether a text is the digest, the path or the file name of a raw file."""
    digest, file_name = text.lower(), item.name.rpartition("/")[2]
    has_digest = _is_digest(digest.rpartition(":")[2]) and any(
        digest in (known[: len(digest)], known.partition(":")[2][: len(digest)])
        for known in (f"sha256:{item.sha256}", item.checksum)
    )
    return has_digest or text == file_name or item.uri in paths or item.name in paths


def _is_digest(text: str) -> bool:
    return re.fullmatch(f"[0-9a-f]{{{_MIN_FILE_DIGITS},}}", text) is not None
