"""Figures that are drawn once for the artifacts they show, and kept in the store after that."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from flows.store.artifacts import ArtifactStore, to_json
from schemas.errors import BertloomError
from schemas.sealed import read_sealed

_LOGGER = logging.getLogger(__name__)

FIGURES_VERSION = 1
"""Raised with every change of how figures look, so that all are drawn anew."""


class Panel(BaseModel):
    """One diagram."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    title: str
    note: str
    """What stands below it; "" for nothing."""

    svg: str
    """An `<svg>` element in the colours of the page."""


class Key(BaseModel):
    """A line of a legend."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    mark: str
    """Class of the mark in the page's style, such as `line series-1`."""

    label: str


class Figure(BaseModel):
    """Panels that are looked at together, as they are kept in a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    panels: tuple[Panel, ...] = ()
    legend: tuple[Key, ...] = ()
    note: str = ""
    """What a reader must know of them all, such as how many rows were looked at."""


class Shown(NamedTuple):
    """A figure, or why there is none."""

    figure: Figure
    problem: str = ""


def kept_figure(
    store: ArtifactStore,
    kind: str,
    *,
    made_of: Sequence[tuple[str, str]],
    draw: Callable[[str], Figure],
) -> Shown:
    """The figure of some artifacts: from the store, or drawn and put there.

    Args:
        store: where the artifacts are.
        kind: what it shows of them: letters and dashes.
        made_of: label and id of each artifact, in the order they are drawn.
        draw: is given a name that is unique to the figure and draws it.

    Returns:
        The figure, or an empty one and a sentence where a file it needs is missing or damaged.
    """
    identity = json.dumps([FIGURES_VERSION, kind, [list(part) for part in made_of]])
    key = hashlib.sha256(identity.encode()).hexdigest()[:32]
    path = f"reports/figures/{key}.json"
    try:
        return Shown(Figure.model_validate(read_sealed(store.backend.read(path)).value))
    except FileNotFoundError:
        pass
    except ValueError as error:  # of which pydantic's are
        _LOGGER.info("%s: damaged, drawn anew: %s", store.url(path), error)
    try:
        figure = draw(f"{kind}-{key[:8]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("matplotlib", "numpy"):
            raise
        return Shown(Figure(), "Figures need matplotlib: pip install 'bertloom[model]'.")
    except (BertloomError, OSError, ValueError, KeyError, TypeError) as error:
        # Of a damaged file; pyarrow's own are ValueErrors or OSErrors.
        return Shown(Figure(), f"Not drawn: {type(error).__name__}: {error}")
    store.backend.replace(path, to_json(figure.model_dump(mode="json")))
    return Shown(figure)
