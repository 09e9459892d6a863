"""A step's cache key: what decides the bytes that it makes, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flows.engine.provenance import key_environment
from flows.engine.stages import Step
from flows.nested import leaves
from schemas.fingerprint import cache_key, fingerprint, key_spec
from schemas.manifest import Manifest, RawInput


class StepKey(NamedTuple):
    """A step's cache key, and what it was made from."""

    cache_key: str
    spec: dict[str, Any]
    raw_inputs: tuple[RawInput, ...]


def step_key(step: Step, *, inputs: Mapping[str, Manifest]) -> StepKey:
    """The cache key of a step whose inputs are there.

    Reads the raw files, if the stage has any, to digest them; digests are remembered.

    Raises:
        InputError: a raw file is missing or is not what its checksum list says.
        FingerprintError: something cannot be digested.
    """
    stage = step.stage
    raw = tuple(stage.raw_inputs(step.config)) if stage.raw_inputs is not None else ()
    spec = key_spec(
        stage.name,
        stage_version=stage.version,
        config=step.config.identity(),
        inputs={name: _input_identity(inputs[name]) for name in step.inputs},
        raw_inputs=[item.identity or item.sha256 for item in raw],
        environment=key_environment(stage.libraries, same_on_any_python=stage.same_on_any_python),
    )
    return StepKey(cache_key(spec), spec, raw)


def _input_identity(manifest: Manifest) -> dict[str, str]:
    # What a stage may act on, and nothing of how or when it came to be: a stage that is built again
    # to the same bytes changes no key after it.
    return {"content": manifest.content, "statistics": fingerprint(manifest.statistics)}


def pieces_digest(spec: Mapping[str, Any]) -> str:
    """What pieces of work have to share to be taken over: all of a key but the inputs; 64 digits.

    What of the inputs a piece reads is in the piece's own key (`pipelines.beam.reuse`).
    """
    shared = {name: spec[name] for name in ("v", "stage", "stage_version", "environment")}
    return fingerprint({**shared, "config": spec["config"]}).removeprefix("sha256:")


def differing_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Dotted paths of what differs between two keys' specifications, sorted."""
    old, new = leaves(before), leaves(after)
    return sorted(path for path in {*old, *new} if old.get(path, _ABSENT) != new.get(path, _ABSENT))


_ABSENT = object()


def describe_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """How one key's specification differs from another's, one text a field."""
    old, new = leaves(before), leaves(after)
    texts = []
    for path in differing_fields(before, after):
        if path.startswith(("inputs.", "raw_inputs")):
            name = path.split(".")[1] if "." in path else "raw files"
            text = f"{name} changed"
        else:
            values = (old.get(path, "(none)"), new.get(path, "(none)"))
            text = f"{path.removeprefix('config.')} {values[0]} -> {values[1]}"
        if text not in texts:
            texts.append(text)
    return texts
