"""Checking what a store holds beside artifacts: that records are, to the byte, what was written.

Pointers and manifests are checked with their artifacts (`flows.store.verification`). What is
found here is told and left as it is, but for records of pieces: without one the piece is built
again, and nothing is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from flows.store.artifacts import LAYOUT, ArtifactStore
from flows.store.backend import StoreBackend
from flows.store.piece_records import check_blobs, delete_record
from schemas.sealed import read_page, read_sealed

_DIGITS = re.compile(rb"[0-9a-f]{31}")
_REMEDIES = {
    "refs": "run the recipe again, or publish again, which writes it anew",
    "pins": "delete the file, and pin again",
    "runs": "delete the file: what the run made is there all the same",
    "reports": "`bertloom report` writes it anew",
    "leases": "delete the file if no run is going on",
    "quarantine": "delete the file: it only says what was wrong before",
    "tombstones": "look at the artifact that it is named for, then delete the file",
    "pieces": "the piece is built again where it is needed",
}


class RecordProblem(NamedTuple):
    """A record that is not what was written."""

    path: str
    """Relative to the root of the store."""

    text: str
    """What is wrong, and what to do."""


class RecordReport(NamedTuple):
    """What was found of a store's records."""

    checked: int
    problems: tuple[RecordProblem, ...]
    notes: tuple[str, ...]


def check_records(store: ArtifactStore) -> RecordReport:
    """Read every record of a store but pointers and manifests."""
    checked = old = 0
    problems: list[RecordProblem] = []
    notes: list[str] = []
    for folder, remedy in _REMEDIES.items():
        for path in store.backend.names(folder):
            if path.endswith(".blobs"):
                continue  # with its record
            try:
                found = _check(store.backend, path)
            except FileNotFoundError:
                continue  # gone since it was listed
            checked += 1
            old += found.without
            notes += found.notes
            texts = [*found.problems]
            if found.without and store.layout == LAYOUT:
                texts.append("no digest of its own, which each record of this store has")
            problems += [RecordProblem(path, f"{text}; {remedy}") for text in texts]
    if old and store.layout != LAYOUT:
        notes.append(
            f"{old:,} of {checked:,} records were written before digests were kept in them, as the "
            "manifests and pointers of that time: whether these are damaged cannot be told. What "
            "is written from now on has one"
        )
    return RecordReport(checked, tuple(problems), tuple(notes))


def delete_damaged_pieces(store: ArtifactStore, report: RecordReport) -> None:
    """Take the records of pieces away that are damaged."""
    for problem in report.problems:
        if problem.path.startswith("pieces/"):
            delete_record(store.backend, problem.path)


class _Found(NamedTuple):
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    without: bool = False
    """Whether it has no digest."""


def _check(backend: StoreBackend, path: str) -> _Found:
    stored = backend.read(path)
    if path.endswith(".ndjson"):
        return _check_lines(stored, path)
    try:
        if path.endswith(".html"):
            return _Found(without=not read_page(stored).is_sealed)
        value, is_sealed = read_sealed(stored)
    except ValueError as error:
        return _Found((str(error),))
    problem = check_blobs(backend, path, value) if path.startswith("pieces/") else ""
    return _Found((problem,) if problem else (), without=not is_sealed)


def _check_lines(stored: bytes, path: str) -> _Found:
    problems, notes = list[str](), list[str]()
    without = False
    for number, line in _lines(stored):
        try:
            without |= not read_sealed(line).is_sealed
        except ValueError as error:
            # A line that a crash cut off does not end in a digest; one that was changed does, but
            # for a letter.
            if _DIGITS.search(line[-70:]):
                problems.append(f"line {number}: {error}")
            else:
                notes.append(f"{path}:{number}: cut off, as its writer was stopped in it")
    return _Found(tuple(problems), tuple(notes), without)


def _lines(stored: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(stored.split(b"\n"), start=1):
        if line:
            yield number, line
