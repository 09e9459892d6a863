"""Writing the folder from which an artifact can be made again elsewhere.

README.md           what this is, for a reader without bertloom
recipe.yaml         of the artifact and what it was made from, every value given
expected.json       each step's artifact: keys, digests, versions; the inputs
inputs.sha256       the digests of the inputs' files, for `sha256sum -c`
requirements.txt    the versions it was made with
reproduce.sh        one command: makes it again and says whether it is equal
inputs/             where the inputs are to lie, or are, with `copy_inputs`
"""

from __future__ import annotations

import functools
import importlib.resources
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import jinja2
import yaml

from flows.bert import recipe_steps
from flows.formatting import align_columns, format_bytes
from flows.lineage.differences import changes
from flows.lineage.graph import upstream_graph
from flows.lineage.names import Target, find_target
from flows.nested_values import flatten
from flows.recipes.loader import load_recipe
from flows.reproduction.expected import FILE, Expected, to_json, without_places
from flows.reproduction.inputs import VARIABLE, PlacedFile
from flows.reproduction.recipe import RecordedRecipe, recorded_recipe
from flows.run.stages import get_stage, summarize
from flows.store.artifacts import ArtifactStore
from flows.store.runs import RunRecord, read_run
from pipelines.io.raw_files import digest_file, expand_paths, filesystem, open_file
from schemas.errors import ArtifactNotFoundError, ConfigError, InputError, StoreError, UsageError
from schemas.manifest import Manifest
from schemas.recipe import Recipe

RECIPE_FILE = "recipe.yaml"
SCRIPT = """\
#!/bin/sh
# Verifies the inputs, runs recipe.yaml into another store, and says whether all of it is equal.
# Options are passed on, such as --store FOLDER and --workers N. Exit code: 0 equal, 1 not.
set -eu
cd "$(dirname -- "$0")"
exec "${BERTLOOM:-bertloom}" reproduce . --check "$@"
"""
_LESS_THAN_ALL = ("pip", "setuptools", "wheel", "bertloom")
_SHOWN = 12


def write_reproduction(
    name: str, folder: Path, *, store: ArtifactStore, copy_inputs: bool = False
) -> Expected:
    """Write all that makes an artifact again, whole or not at all.

    Args:
        name: an artifact or a metric, as `flows.lineage.names.find_target` takes it.
        folder: local; not there, or empty.
        store: where the artifact is.
        copy_inputs: put the inputs' files beside, each compared with its digest.

    Raises:
        ArtifactNotFoundError: nothing is named so, or something that it was made from is gone.
        ConfigError: the folder holds something, or no one recipe makes the artifact.
        InputError: a file to copy is not there, or not what it was.
    """
    _refuse_filled(folder)
    found = _found(name, store)
    expected, recorded = expectation(found, store=store, asked=name)
    parent = folder.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=parent))
    try:
        for file, text in _texts(expected, recorded).items():
            (beside / file).write_bytes(text)
        (beside / "reproduce.sh").chmod(0o755)
        beside.chmod(0o755)
        (beside / "inputs").mkdir()
        for one in recorded.inputs if copy_inputs else ():
            _copy(one, beside / "inputs" / one.file.path)
        _compare_with_recipe(expected, beside / RECIPE_FILE)
        if folder.is_dir():
            folder.rmdir()
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return expected


def _refuse_filled(folder: Path) -> None:
    if ":/" in str(folder):  # a path has one of a URL's two slashes left
        raise UsageError(
            f"{folder}: expected a folder on this machine, found a URL: write it to a folder here, "
            "and copy that there"
        )
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ConfigError(f"{folder}: expected no such folder yet, or an empty one: name another")


def _found(name: str, store: ArtifactStore) -> Target:
    found = find_target(name, store=store)
    if found.manifest is None:
        what = "raw files, which nothing makes" if found.files else "a metric of several artifacts"
        more = "".join(f" {metric.label}:{metric.name}" for metric in found.metrics[:_SHOWN])
        raise ArtifactNotFoundError(f"{name!r} names {what}: expected one artifact, such as{more}")
    return found


# What is expected


def expectation(
    found: Target, *, store: ArtifactStore, asked: str
) -> tuple[Expected, RecordedRecipe]:
    """An artifact with all that it was made from, and the recipe of it.

    Raises:
        ArtifactNotFoundError: something that it was made from is gone from the store.
        ConfigError: no one recipe makes it.
    """
    target = found.manifest
    if target is None:
        raise ArtifactNotFoundError(f"{asked!r}: expected an artifact")
    graph = upstream_graph([target], store=store, collapse=False)
    nodes = [node for node in graph.nodes.values() if node.kind == "artifact"]
    gone = [f"{node.title} {node.id}" for node in nodes if node.manifest is None]
    if gone:
        raise ArtifactNotFoundError(
            f"{asked!r}: what it was made from is gone from the store: {', '.join(gone[:_SHOWN])}. "
            "Without their manifests nobody knows how they were made; pin what is to be kept"
        )
    run = _run_of(target, store)
    labels = {step.manifest: step.label for step in reversed(run.steps)} if run else {}
    known = str(run.recipe.get("name", "")) if run else ""
    recorded = recorded_recipe(
        target,
        [node.manifest for node in nodes if node.manifest is not None],
        labels=labels,
        name=known or "reproduced",
    )
    steps = {label: without_places(manifest) for label, manifest in recorded.steps.items()}
    return Expected(
        recipe=recorded.data["name"],
        target=recorded.target,
        asked=asked,
        metrics={metric.name: metric.value for metric in found.metrics},
        notes=tuple(_notes(recorded.steps)),
        inputs=tuple(one.file for one in recorded.inputs),
        steps=steps,
    ), recorded


def _run_of(manifest: Manifest, store: ArtifactStore) -> RunRecord | None:
    try:
        return read_run(store, manifest.produced_by.run_id)
    except StoreError:
        return None  # its record is deleted: entries get names from what reads them


def _notes(steps: Mapping[str, Manifest]) -> Iterator[str]:
    """What may stand in the way of equal bytes."""
    unknown = [label for label, one in steps.items() if not one.produced_by.git_commit]
    if unknown:
        yield (
            f"the commit is not known of {_few(unknown)}: made by an installed package, not by a "
            "checkout"
        )
    dirty = [label for label, one in steps.items() if one.produced_by.git_dirty]
    if dirty:
        yield f"the checkout had changes that were not committed when {_few(dirty)} was made"
    commits = {one.produced_by.git_commit: label for label, one in steps.items()}
    if len(commits) > 1:
        told = ", ".join(f"{commit[:12] or 'unknown'} ({of})" for commit, of in commits.items())
        yield f"made by more than one commit: {told}; the last one's code is the one to take"
    trained = {label: one for label, one in steps.items() if get_stage(one.stage).uses_gpu}
    if trained:
        told = _few(sorted({note for one in trained.values() for note in one.notes
                            if note.startswith("trained on")}))  # fmt: skip
        free = [label for label, one in trained.items() if not one.config.get("num_threads")]
        threads = " (as many threads as it gave, which nobody recorded)" if free else ""
        kinds = _few(sorted({one.produced_by.host_kind for one in trained.values()}))
        yield (
            f"{_few(list(trained))}: {told + ', ' if told else ''}on {kinds}{threads}. Sums of "
            "floating-point numbers are equal to the bit on the same kind of processor or GPU with "
            "as many threads and processes and the same torch; elsewhere weights differ in their "
            "last digits, and metrics are to be compared. The corpus depends on none of it"
        )


def _few(names: Sequence[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")


def _compare_with_recipe(expected: Expected, path: Path) -> None:
    """See that the recipe which was written makes the steps that are expected.

    Of other code, whose configurations have other fields, the check says what is other.

    Raises:
        ConfigError: it does not.
    """
    graph = recipe_steps(load_recipe(str(path)), until=expected.target)
    made = {step.label: step for step in graph}
    for label, manifest in expected.steps.items():
        step = made.get(label)
        fault = ""
        if step is None:
            fault = "no such step"
        elif set(step.inputs) != {ref.name for ref in manifest.inputs}:
            fault = "it of other inputs"
        elif step.stage.version == manifest.stage_version:
            other = changes(flatten(manifest.config), flatten(step.config.cache_key_fields()))
            fault = f"it with {_few([str(change) for change in other])}" if other else ""
        if fault:
            raise ConfigError(
                f"{label} {manifest.artifact_id}: this version of bertloom makes {fault}, of the "
                "configuration in its manifest. Run this command with the version that made it, "
                f"commit {manifest.produced_by.git_commit or 'unknown'}"
            )


# Files of the folder


def _texts(expected: Expected, recorded: RecordedRecipe) -> dict[str, bytes]:
    inputs = {one.path: one for one in expected.inputs}
    checked = [one for one in inputs.values() if one.check == "bytes"]
    title = f"# Makes {expected.target} again and nothing else; every value is given.\n"
    title += f"# Inputs lie in the folder inputs/ beside this file, or in ${VARIABLE}.\n"
    order = [name for name in Recipe.model_fields if name in recorded.data]
    data = {name: recorded.data[name] for name in order}
    recipe = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
    return {
        "README.md": _readme(expected, list(inputs.values())).encode(),
        RECIPE_FILE: (title + recipe).encode(),
        FILE: to_json(expected),
        "inputs.sha256": "".join(f"{one.sha256}  {one.path}\n" for one in checked).encode(),
        "requirements.txt": _requirements(expected).encode(),
        "reproduce.sh": SCRIPT.encode(),
    }


def _readme(expected: Expected, inputs: Sequence[object]) -> str:
    made = expected.artifact.produced_by
    steps = [("step", "artifact", "key", "content", "holds")]
    for label, one in expected.steps.items():
        content = one.content.removeprefix("sha256:")[:16]
        steps.append((label, one.artifact_id, one.cache_key[:16], content, summarize(one)))
    return _template("README.md.j2").render(
        expected=expected,
        artifact=expected.artifact,
        holds=summarize(expected.artifact),
        made=made,
        commit=made.git_commit,
        inputs=inputs,
        steps=align_columns(steps),
        keyed=_keyed(expected),
        variable=VARIABLE,
    )


@functools.cache
def _template(name: str) -> jinja2.Template:
    text = (importlib.resources.files(__package__) / "templates" / name).read_text("utf-8")
    environment = jinja2.Environment(  # noqa: S701 - Markdown
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["bytes"] = format_bytes
    return environment.from_string(text)


def _keyed(expected: Expected) -> dict[str, list[str]]:
    """The versions that decide bytes, `numpy 2.4.6`, by the stages that say so."""
    found: dict[str, list[str]] = {}
    for manifest in expected.steps.values():
        for name, version in manifest.key_spec.get("environment", {}).items():
            stages = found.setdefault(f"{name} {version}", [])
            if manifest.stage not in stages:
                stages.append(manifest.stage)
    return dict(sorted(found.items()))


def _requirements(expected: Expected) -> str:
    """The software of the artifact's own step; where others had other versions, that is said."""
    used = expected.artifact.environment
    names = {name for one in expected.steps.values() for name in one.key_spec["environment"]}
    lines = [
        f"# What {expected.target} was made with, on Python {used.python}.",
        f"# bertloom {used.packages.get('bertloom', '')} is its own code: see README.md.",
        "# Builds of torch that end in + and letters are in torch's own index, not on PyPI.",
        "",
        "# These decide bytes: their versions are in cache keys.",
    ]
    decides = {name: v for name, v in used.packages.items() if name in names}
    lines += [f"{name}=={version}" for name, version in decides.items()]
    for label, one in expected.steps.items():
        # Of Python the key may say the oldest that gives the same bytes, not the one that ran.
        others = {**one.key_spec["environment"], "python": one.environment.python}
        for name, version in others.items():
            if {**used.packages, "python": used.python}.get(name) != version:
                lines.append(f"# {label} was made with {name} {version}")
    lines += ["", "# All else that was installed."]
    lines += [
        f"{name}=={version}"
        for name, version in used.packages.items()
        if name not in decides and name not in _LESS_THAN_ALL
    ]
    return "\n".join(lines) + "\n"


def _copy(one: PlacedFile, target: Path) -> None:
    """Copy a file, or the files below a folder."""
    try:
        fs, path = filesystem(one.uri)
        for uri, name in expand_paths([one.uri]):
            copied = target / name if fs.isdir(path) else target
            copied.parent.mkdir(parents=True, exist_ok=True)
            with open_file(uri) as source, copied.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
    except InputError as error:
        if "://" in one.uri:
            error.add_note(
                "Keys and signatures of addresses are not recorded. If the address needs one, "
                f"leave out --copy-inputs and put the file at inputs/{one.file.path}"
            )
        raise
    if one.file.check == "bytes":
        _compare(one, target)


def _compare(one: PlacedFile, path: Path) -> None:
    """See that a copy is what was read.

    Raises:
        InputError: it is not.
    """
    read = digest_file(str(path.absolute()))
    if read.digests["sha256"] != one.file.sha256:
        raise InputError(
            f"{one.uri}: expected the {one.file.size:,} bytes with sha256 {one.file.sha256} that "
            f"the artifact was made of, found {read.size:,} with {read.digests['sha256']}: it "
            "changed since. Find the file as it was, or leave out --copy-inputs"
        )
