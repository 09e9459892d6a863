"""Write the bundle that reproduces an artifact.

README.md           the two commands, the inputs, the steps
recipe.yaml         recipe of the run, reduced to the artifact
expected.json       cache key and content digest of every step
inputs.sha256       checksums of the raw files
requirements.txt    versions that the artifact was built with
inputs/             raw files
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import yaml
from pydantic import BaseModel, ConfigDict

from flows.bert import recipe_steps
from flows.export.atomic_folder import AtomicFolder, atomic_folder
from flows.formatting import align_columns, format_bytes
from flows.lineage.resolve import resolve_name
from flows.recipes.overrides import SECTIONS
from flows.reproduction.inputs import VARIABLE, InputFile, resolve_inputs
from flows.run.stages import summarize
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, read_run
from pipelines.io.raw_files import expand_paths, filesystem, open_file
from schemas.errors import ArtifactNotFoundError, ConfigError, InputError, StoreError
from schemas.json_files import dump_json, load_json
from schemas.manifest import Manifest, RawInput
from schemas.recipe import Recipe

RECIPE_FILE, EXPECTED_FILE = "recipe.yaml", "expected.json"

_OPTIONAL = {
    "decontaminate": "find-contamination",
    "find_near_duplicates": "find-near-duplicates",
}
_OMITTED = {"store", "execution", "publish", "cards"}
"""Sections that do not affect the content of artifacts."""


class ExpectedStep(BaseModel):
    """Artifact that a step of a bundle must reproduce."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: str
    artifact_id: str
    cache_key: str
    cache_key_inputs: dict[str, Any]
    """Fields that the cache key is a digest of."""

    content_digest: str
    """Content digest."""

    summary: str


class Expected(BaseModel):
    """The file `expected.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: str
    target: str
    """Label of the step whose artifact was requested."""

    git_commit: str
    python: str
    platform: str
    metrics: dict[str, float] = {}
    """Requested metrics of the target, by their path in its statistics."""

    inputs: tuple[InputFile, ...]
    steps: dict[str, ExpectedStep]
    """Steps in the order in which they run, by label."""


def write_bundle(
    name: str, folder: str | Path, *, store: ArtifactStore, copy_inputs: bool = False
) -> Expected:
    """Write a bundle, all of it or nothing.

    Args:
        name: Artifact or metric, see `flows.lineage.resolve.resolve_name`.
        folder: Path or fsspec URL of a new or empty folder.
        store: Store of the artifact.
        copy_inputs: Copy the raw files into the bundle.

    Raises:
        ArtifactNotFoundError: Nothing has that name, or an upstream artifact or the record of the
            run is not in the store.
        UsageError: The folder is not empty.
        InputError: A file to copy is missing or was changed.
    """
    resolved = resolve_name(name, store=store)
    artifact = resolved.manifest
    if artifact is None:
        raise ArtifactNotFoundError(
            f"{name!r}: expected one artifact, got raw files or a metric of several artifacts. "
            "Name a step, such as evaluate.cola, or a metric of one: evaluate.cola:matthews"
        )
    run, label = _find_run(artifact, store)
    recipe = Recipe.model_validate(run.recipe)
    paths = {step.label: step.manifest for step in run.steps}
    manifests = {
        step.label: store.read_manifest(paths[step.label])
        for step in recipe_steps(recipe, until=label)
    }
    raw_inputs = {step: manifest.raw_inputs for step, manifest in manifests.items()}
    data, files = reduce_recipe(recipe, raw_inputs)
    expected = Expected(
        recipe=recipe.name,
        target=label,
        git_commit=artifact.produced_by.git_commit,
        python=artifact.environment.python,
        platform=artifact.environment.platform,
        metrics={metric.name: metric.value for metric in resolved.metrics},
        inputs=tuple(files),
        steps={step: _expected_step(manifest) for step, manifest in manifests.items()},
    )
    with atomic_folder(str(folder)) as bundle:
        for path, text in _texts(expected, data, artifact).items():
            bundle.write(path, text.encode())
        bundle.write(EXPECTED_FILE, dump_json(expected.model_dump(mode="json")))
        for file in files if copy_inputs else ():
            _copy(file, bundle)
    return expected


def read_expected(folder: Path) -> Expected:
    """Read `expected.json` of a bundle.

    Raises:
        ConfigError: The folder is not a bundle, or the file was changed.
    """
    path = folder / EXPECTED_FILE
    try:
        return Expected.model_validate(load_json(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: expected a bundle of `bertloom reproduce`: {error}") from error


def _find_run(artifact: Manifest, store: ArtifactStore) -> tuple[RunRecord, str]:
    """Return the run that built an artifact, and the label of its step."""
    run_id = artifact.produced_by.run_id
    try:
        run = read_run(store, run_id)
        return run, next(
            step.label for step in run.steps if step.manifest == artifact.manifest_path
        )
    except (StoreError, StopIteration) as error:
        raise ArtifactNotFoundError(
            f"{artifact.artifact_id}: the store has no record of run {run_id}, which built it, so "
            "its recipe is unknown. Build the artifact again with `bertloom run --rebuild`."
        ) from error


def _expected_step(manifest: Manifest) -> ExpectedStep:
    return ExpectedStep(
        stage=manifest.stage,
        artifact_id=manifest.artifact_id,
        cache_key=manifest.cache_key,
        cache_key_inputs=manifest.cache_key_inputs,
        content_digest=manifest.content_digest,
        summary=summarize(manifest),
    )


def reduce_recipe(
    recipe: Recipe, raw_inputs: Mapping[str, Sequence[RawInput]]
) -> tuple[dict[str, Any], list[InputFile]]:
    """Return the sections of a recipe that some steps need, and the raw files of the bundle.

    Args:
        recipe: Recipe of a run.
        raw_inputs: Raw files that each of the steps read, by label.
    """
    data = recipe.model_dump(mode="json", exclude=_OMITTED)
    files: dict[str, InputFile] = {}
    for section in SECTIONS:
        stage = "evaluate" if section == "ensembles" else section.replace("_", "-")
        data[section] = {
            name: entry
            for name, entry in data[section].items()
            if any(f"{label}.".startswith(f"{stage}.{name}.") for label in raw_inputs)
        }
    for section, stage in _OPTIONAL.items():
        if stage not in raw_inputs:
            data[section] = None
    if "tabulate" not in raw_inputs:
        data["sweep"], data["expanded_sweep"] = {}, None
    for label, raw in raw_inputs.items():
        stage, _, name = label.partition(".")
        config = data[stage.replace("-", "_")] if raw else {}
        entry = next((item for item in config if f"{name}.".startswith(f"{item}.")), "")
        bundled = resolve_inputs(stage, config.get(entry, config), raw, name=entry)
        files |= {file.path: file for file in bundled}
    return {name: value for name, value in data.items() if value is not None}, [*files.values()]


def _texts(expected: Expected, recipe: dict[str, Any], artifact: Manifest) -> dict[str, str]:
    """Return the text files of a bundle by name."""
    title = f"# Builds {expected.target}. Inputs: the folder inputs/, or ${VARIABLE}.\n"
    sums = [f"{file.sha256}  {file.path}\n" for file in expected.inputs if not file.is_parsed]
    packages = artifact.environment.packages.items()
    pins = [f"{name}=={version}\n" for name, version in packages if name != "bertloom"]
    return {
        RECIPE_FILE: title + yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=100),
        "inputs.sha256": "".join(sums),
        "requirements.txt": "".join(pins),
        "README.md": _readme(expected),
    }


def _readme(expected: Expected) -> str:
    template = (resources.files(__package__) / "templates" / "README.md.j2").read_text("utf-8")
    environment = jinja2.Environment(  # noqa: S701 - Markdown
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["bytes"] = format_bytes
    rows = [
        (label, step.artifact_id, step.content_digest.removeprefix("sha256:")[:16], step.summary)
        for label, step in expected.steps.items()
    ]
    steps = align_columns([("step", "artifact", "content", "summary"), *rows])
    return environment.from_string(template).render(
        expected=expected, variable=VARIABLE, steps=steps
    )


def _copy(file: InputFile, bundle: AtomicFolder) -> None:
    """Copy a raw file, or the files of a folder, and verify the copy.

    Raises:
        InputError: The file is missing, or was changed since the artifact was built.
    """
    target = f"inputs/{file.path}"
    try:
        files = expand_paths([file.uri])
        fs, path = filesystem(file.uri)
        is_folder = fs.isdir(path)
        for uri, name in files:
            with open_file(uri) as source:
                _, sha256 = bundle.copy(f"{target}/{name}" if is_folder else target, source)
            if not file.is_parsed and sha256 != file.sha256:
                raise InputError(
                    f"{uri}: expected sha256 {file.sha256}, got {sha256}: the file was changed "
                    "after the artifact was built"
                )
    except InputError as error:
        error.add_note(f"Write the bundle without --copy-inputs and copy the file to {target}.")
        raise
