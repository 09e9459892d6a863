"""Figures of a report, and those that the store keeps, since files must be read to draw them."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from flows.store.artifacts import ArtifactStore
from schemas.errors import BertloomError
from schemas.sealed import read_sealed, sealed_json

Kept = TypeVar("Kept", bound=BaseModel)
_LOGGER = logging.getLogger(__name__)

FIGURES_VERSION = 4
"""Raised with every change of how figures look, so that all are drawn anew."""


class Panel(BaseModel):
    """One diagram."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    title: str
    note: str = ""
    """What stands below it."""

    svg: str


class Key(NamedTuple):
    """A line of a legend."""

    mark: str
    """Class of the mark in the style sheet, such as `line series-1`."""

    label: str


class Figure(BaseModel):
    """Panels that are looked at together, or why there are none."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    panels: tuple[Panel, ...] = ()
    legend: tuple[Key, ...] = ()
    note: str = ""
    """What a reader must know of them all, such as how many rows were looked at."""

    problem: str = ""


def kept_figure(
    store: ArtifactStore,
    kind: str,
    *,
    made_of: Sequence[tuple[str, str]],
    draw: Callable[[str], Figure],
) -> Figure:
    """The figure of some artifacts: from the store, or drawn and put there.

    Args:
        store: where the artifacts are.
        kind: what it shows of them: letters and dashes.
        made_of: label and id of each artifact, in the order they are drawn.
        draw: is given a name that is unique to the figure and draws it.

    Returns:
        The figure, or one with a problem where a file it needs is missing or damaged.
    """
    try:
        return kept(store, kind, model=Figure, made_of=made_of, make=draw)
    except NotMadeError as error:
        return Figure(problem=f"Not drawn: {error}")


class NotMadeError(Exception):
    """Something that a page shows cannot be made of the files there are."""


def kept(
    store: ArtifactStore,
    kind: str,
    *,
    model: type[Kept],
    made_of: Sequence[tuple[str, str]],
    make: Callable[[str], Kept],
    keeps: Callable[[Kept], bool] = lambda _: True,
) -> Kept:
    """What a page shows of some artifacts: from the store, or made and put there.

    Args:
        store: where the artifacts are.
        kind: what it is: letters and dashes.
        model: of what is kept.
        made_of: label and id of each artifact, in order.
        make: is given a name that is unique to it, and makes it.
        keeps: whether it is put there; not where a file may be there the next time.

    Raises:
        NotMadeError: a file that it needs is missing or damaged.
    """
    identity = json.dumps([FIGURES_VERSION, kind, [list(part) for part in made_of]])
    key = hashlib.sha256(identity.encode()).hexdigest()[:32]
    path = f"reports/figures/{key}.json"
    try:
        return model.model_validate(read_sealed(store.backend.read(path)))
    except FileNotFoundError:
        pass
    except ValueError as error:  # of which pydantic's are
        _LOGGER.info("%s: damaged, made anew: %s", store.url(path), error)
    try:
        made = make(f"{kind}-{key[:8]}")
    except (BertloomError, OSError, ValueError, KeyError, TypeError) as error:
        # Of a damaged file; pyarrow's own are ValueErrors or OSErrors.
        raise NotMadeError(f"{type(error).__name__}: {error}") from error
    if keeps(made):
        store.backend.replace(path, sealed_json(made.model_dump(mode="json")))
    return made
