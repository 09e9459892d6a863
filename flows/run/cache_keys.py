"""A step's cache key: a digest of everything that decides the bytes of its artifact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flows.nested_values import flatten
from flows.run.graph import Step
from flows.run.provenance import key_environment
from schemas.fingerprint import cache_key, fingerprint
from schemas.manifest import Manifest, RawInput

KEY_VERSION = 2
_ABSENT = object()


class StepKey(NamedTuple):
    """Cache key of a step, and what it is a digest of."""

    cache_key: str
    spec: dict[str, Any]
    raw_inputs: tuple[RawInput, ...]


def step_key(step: Step, *, inputs: Mapping[str, Manifest]) -> StepKey:
    """Return the cache key of a step whose inputs are in the store.

    Raw files are digested; the digests are remembered.

    Args:
        step: The step.
        inputs: Manifest of each of its inputs, by input name.

    Raises:
        InputError: A raw file is missing or does not match its checksum list.
        FingerprintError: A library whose version is part of the key is not installed.
    """
    stage = step.stage
    raw = stage.find_raw_inputs(step.config)
    spec = {
        "v": KEY_VERSION,
        "stage": stage.name,
        "stage_version": stage.version,
        "config": step.config.cache_key_fields(),
        "inputs": {name: _input_digests(inputs[name]) for name in step.inputs},
        "raw_inputs": sorted(item.key_digest or item.sha256 for item in raw),
        "environment": key_environment(
            stage.libraries, python_independent=stage.python_independent
        ),
    }
    return StepKey(cache_key(spec), spec, raw)


def _input_digests(manifest: Manifest) -> dict[str, str]:
    # Only what a stage can read of its input. An input that is rebuilt to the same bytes changes
    # no key after it.
    return {"content": manifest.content_digest, "statistics": fingerprint(manifest.statistics)}


def item_key(spec: Mapping[str, Any]) -> str:
    """Return the digest that work items must share to be reused: the key without its inputs.

    What an item reads of the inputs is in the item's own key (`pipelines.shard_job.item_cache`).

    Returns:
        64 hexadecimal digits.
    """
    shared = {name: spec[name] for name in ("v", "stage", "stage_version", "environment", "config")}
    return fingerprint(shared).removeprefix("sha256:")


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the dotted paths of the fields that differ between two key specifications, sorted."""
    old, new = flatten(before), flatten(after)
    return sorted(path for path in {*old, *new} if old.get(path, _ABSENT) != new.get(path, _ABSENT))


def describe_changes(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    old_files: tuple[RawInput, ...] = (),
    new_files: tuple[RawInput, ...] = (),
) -> list[str]:
    """Return one text per changed field of a key specification: `vocab_size 2000 -> 4000`.

    Args:
        before, after: The two specifications.
        old_files, new_files: Raw files of both, to name those that changed.
    """
    old, new = flatten(before), flatten(after)
    texts: dict[str, None] = {}
    for path in changed_fields(before, after):
        if path.startswith("raw_inputs"):
            texts |= dict.fromkeys(_changed_files(old_files, new_files) or ["raw files changed"])
        elif path.startswith("inputs."):
            texts[f"{path.split('.')[1]} changed"] = None
        else:
            values = (old.get(path, "(none)"), new.get(path, "(none)"))
            texts[f"{path.removeprefix('config.')} {values[0]} -> {values[1]}"] = None
    return list(texts)


def _changed_files(old: tuple[RawInput, ...], new: tuple[RawInput, ...]) -> list[str]:
    before, after = ({file.name: file.sha256 for file in files} for files in (old, new))
    states = {
        "added": after.keys() - before.keys(),
        "removed": before.keys() - after.keys(),
        "changed": {name for name in before.keys() & after if before[name] != after[name]},
    }
    return [f"{name} {state}" for state, names in states.items() for name in sorted(names)]
