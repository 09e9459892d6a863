"""Making an artifact again from its folder, and saying whether it is equal or what differs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flows.bert import recipe_steps
from flows.formatting import align_columns, format_bytes, format_count, format_statistic
from flows.lineage.differences import Change, Difference, changes, difference
from flows.nested_values import flatten, numeric_leaves
from flows.recipes.loader import load_recipe
from flows.reproduction.expected import Expected, read_expected, without_places
from flows.reproduction.inputs import VARIABLE, InputFile
from flows.reproduction.writing import RECIPE_FILE
from flows.run.graph import Step
from flows.run.provenance import OLDEST_PYTHON, checkout, environment
from flows.run.run import get_store
from flows.run.stages import get_stage
from flows.running import run_recipe
from flows.store.artifacts import ArtifactStore
from pipelines.io.raw_files import digest_file
from schemas.errors import ArtifactNotFoundError, ConfigError, InputError
from schemas.manifest import Manifest

Say = Callable[[str], None]
_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """What became of a step."""

    label: str
    expected: str
    """Content digest; likewise `found`."""

    found: str
    is_same_key: bool
    """Whether configuration, inputs, code and versions are those recorded."""

    difference: Difference | None
    """None where it is equal."""

    metrics: tuple[Change, ...] = ()
    """Numbers that differ, where it is trained or scored."""

    @property
    def is_equal(self) -> bool:
        """To the byte."""
        return self.expected == self.found


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Whether an artifact came out equal."""

    expected: Expected
    inputs: tuple[str, ...] = ()
    """What is wrong with the inputs, by line; nothing is run then."""

    steps: tuple[StepOutcome, ...] = ()
    manifest: Manifest | None = None
    """What was made; None where nothing was."""

    store: str = ""
    before: tuple[str, ...] = field(default=())
    """What was said before the run: inputs, code, versions, notes."""

    @property
    def is_equal(self) -> bool:
        """Whether every step made what it made before."""
        return bool(self.steps) and all(step.is_equal for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "is_equal": self.is_equal,
            "target": self.expected.target,
            "artifact_id": self.manifest.artifact_id if self.manifest else None,
            "store": self.store,
            "inputs": list(self.inputs),
            "before": list(self.before),
            "steps": [asdict(step) | {"is_equal": step.is_equal} for step in self.steps],
        }

    def lines(self) -> list[str]:
        """As text: what differs, the numbers that were asked for, and a last line with the end."""
        return list(_lines(self))


def check_reproduction(
    folder: Path, *, store: str | None = None, workers: int | None = None, say: Say = print
) -> Outcome:
    """Make the artifact of a folder again, and compare every step with what is expected.

    Args:
        folder: as `write_reproduction` wrote it, with the inputs in it or in `$BERTLOOM_INPUTS`.
        store: where to build; the folder's own `store`.
        workers: processes on this machine.
        say: takes a line of text.

    Raises:
        ConfigError: the folder is none for reproduction, or the store has the artifacts
            themselves.
        BertloomError: a step failed.
    """
    expected = read_expected(folder)
    where = store or str(folder.absolute() / "store")
    before: list[str] = []

    def told(line: str) -> None:
        before.append(line)
        say(line)

    wrong = _input_faults(expected, folder)
    if wrong:
        return Outcome(expected=expected, inputs=tuple(wrong), store=where)
    size = sum(one.size for one in expected.inputs)
    told(f"inputs: {len(expected.inputs)} as recorded, {format_bytes(size)}")
    recipe = load_recipe(str(folder / RECIPE_FILE), store=where, workers=workers)
    steps = {step.label: step for step in recipe_steps(recipe, until=expected.target)}
    _refuse_originals(expected, where)
    for line in (*_code_lines(expected, steps), *_version_lines(expected, steps)):
        told(line)
    for note in expected.notes:
        told(f"note: {note}")
    count = format_count(len(steps), "step")
    told(f"building {expected.target} and what it needs, {count}, in {where}")
    results = run_recipe(recipe, log=say, engine="local", until=expected.target)
    made = {result.label: result.manifest for result in results}
    outcomes = tuple(_outcome(label, one, made[label]) for label, one in expected.steps.items())
    return Outcome(
        expected=expected,
        steps=outcomes,
        manifest=made[expected.target],
        store=get_store(recipe.store).root,
        before=tuple(before),
    )


# Before the run


def _input_faults(expected: Expected, folder: Path) -> list[str]:
    """What is missing or is not what it was, and where to get it."""
    named = os.environ.get(VARIABLE)
    root = named or str(folder.absolute() / "inputs")
    if named and "://" not in named:
        root = str(folder.absolute() / named)  # as the recipe reads it
    return [fault for one in expected.inputs if (fault := _input_fault(one, root))]


def _input_fault(one: InputFile, root: str) -> str:
    path = f"{root.rstrip('/')}/{one.path}"
    wanted = f"expected {one.size:,} bytes, sha256 {one.sha256}"
    wanted += f" ({one.checksum})" if one.checksum else ""
    origin = f"It came from {one.source}"
    try:
        if one.check == "meaning":
            return "" if "://" in path or Path(path).exists() else _missing(one, wanted, origin)
        read = digest_file(path)
    except InputError as error:
        if "://" not in path and not Path(path).exists():
            return _missing(one, wanted, origin)
        return f"unreadable {one.path}: {error}"
    if read.digests["sha256"] != one.sha256:
        found = f"found {read.size:,} bytes, sha256 {read.digests['sha256']}"
        return f"another file {one.path}: {wanted}, {found}. {origin}"
    return ""


def _missing(one: InputFile, wanted: str, origin: str) -> str:
    return f"missing {one.path}: {wanted}. {origin}"


def _refuse_originals(expected: Expected, where: str) -> None:
    """What is in the store already would be taken, and be equal to itself."""
    try:
        store = ArtifactStore(where, create=False)
    except ArtifactNotFoundError:
        return
    for label, one in expected.steps.items():
        there = store.pointer(one.stage, one.cache_key)
        if there is not None and there.artifact_id == one.artifact_id:
            raise ConfigError(
                f"{where}: has {label} {one.artifact_id} itself, which would be compared with "
                "itself: name another store with --store, such as a new folder"
            )


def _code_lines(expected: Expected, steps: Mapping[str, Step]) -> Iterator[str]:
    here, recorded = checkout(), expected.artifact.produced_by
    of = f"commit {recorded.git_commit or 'unknown'}"
    now = here.commit or "no checkout"
    now += " with uncommitted changes" if here.is_dirty else ""
    changed = [
        f"{label} ({one.stage_version} recorded, {steps[label].stage.version} here)"
        for label, one in expected.steps.items()
        if one.stage_version != steps[label].stage.version
    ]
    if not changed:
        yield f"code: stages have the recorded versions ({of}; here {now})"
        return
    yield (
        f"code: not that of {of}; here {now}. Other stage versions: {_few(changed)}: the "
        "comparison below shows whether that changes bytes"
    )


def _version_lines(expected: Expected, steps: Mapping[str, Step]) -> Iterator[str]:
    here = environment()
    minor = ".".join(here.python.split(".")[:2])
    keyed, others = dict[str, list[str]](), set[str]()
    for label, one in expected.steps.items():
        for name, version in one.key_spec.get("environment", {}).items():
            found = here.packages.get(name, "none")
            if name == "python":
                found = OLDEST_PYTHON if steps[label].stage.python_independent else minor
            if found != version:
                keyed.setdefault(f"{name} {version} recorded, {found} here", []).append(label)
        names = {*one.environment.packages} - {*one.key_spec.get("environment", {}), "bertloom"}
        others |= {n for n in names if one.environment.packages[n] != here.packages.get(n)}
    for told, labels in keyed.items():
        yield f"versions: {told}: in the keys of {_few(labels)}, bytes may differ"
    if not keyed:
        yield f"versions: those in keys as recorded; python {here.python}"
    if others:
        yield f"versions: {len(others):,} other packages differ, in no key: {_few(sorted(others))}"
    if (recorded := expected.artifact.environment.python) != here.python:
        yield f"versions: python {recorded} recorded, {here.python} here"
    if expected.artifact.environment.platform != here.platform:
        yield f"system: {expected.artifact.environment.platform} recorded, {here.platform} here"


def _few(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


# After it


def _outcome(label: str, expected: Manifest, made: Manifest) -> StepOutcome:
    found = without_places(made)
    stage, is_equal = get_stage(expected.stage), expected.content == found.content
    before, after = (
        numeric_leaves(flatten(expected.statistics)),
        numeric_leaves(flatten(found.statistics)),
    )
    return StepOutcome(
        label=label,
        expected=expected.content,
        found=found.content,
        is_same_key=expected.cache_key == found.cache_key,
        difference=None if is_equal else difference(expected, found),
        metrics=() if is_equal or not stage.has_metrics else tuple(changes(before, after)),
    )


def _lines(outcome: Outcome) -> Iterator[str]:
    if outcome.inputs:
        yield from outcome.inputs
        yield (
            f"not begun: {len(outcome.inputs)} of {len(outcome.expected.inputs)} inputs are "
            f"missing or others; put them into inputs/, or name their folder in ${VARIABLE}"
        )
        return
    rows = [("step", "expected", "found", "")]
    for step in outcome.steps:
        told = "equal" if step.is_equal else "DIFFERS"
        key = "" if step.is_same_key else ", another key"
        rows.append((step.label, _digits(step.expected), _digits(step.found), told + key))
    yield from ("", *align_columns(rows), "")
    other = [step for step in outcome.steps if not step.is_equal]
    if other:
        yield from _difference_lines(other)
    yield from _metric_lines(outcome)
    count = len(outcome.steps)
    if not other:
        yield f"equal: {count} of {format_count(count, 'step')}, to the byte"
        return
    steps = format_count(count, "step")
    yield f"differs: first {other[0].label}; {count - len(other)} of {steps} equal"


def _difference_lines(other: Sequence[StepOutcome]) -> Iterator[str]:
    """The first step that differs, and what differs in those that read it."""
    first = other[0]
    if first.difference is None:
        return
    yield f"first that differs: {first.label}"
    yield from (f"  {line}" if line else "" for line in first.difference.lines()[1:])
    if first.is_same_key:
        yield (
            "  Its key is the one recorded: configuration, inputs, code and versions are the same, "
            "and something that is in no key is not, as the processor"
        )
    yield ""
    for step in other:
        if step.metrics:
            yield f"{step.label}: {'; '.join(map(str, step.metrics[:_SHOWN]))}"
    if len(other) > 1:
        yield f"after it: {_few([step.label for step in other[1:]])}"
        yield ""


def _metric_lines(outcome: Outcome) -> Iterator[str]:
    """The numbers that were asked for, as they were and as they are."""
    if outcome.manifest is None:
        return
    found = numeric_leaves(outcome.manifest.statistics)
    for name, value in outcome.expected.metrics.items():
        here = found.get(name)
        if here == value:
            yield f"{outcome.expected.target} {name} = {format_statistic(name, value)}, as recorded"
        else:
            yield f"{outcome.expected.target} {Change(name, value, here)}"


def _digits(content: str) -> str:
    return content.removeprefix("sha256:")[:16]
