"""Figures of a report. The store keeps them, so that each is drawn once."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from flows.report.run_steps import Built
from flows.store.artifacts import ArtifactStore
from schemas.errors import BertloomError
from schemas.json_files import dump_json, load_json

_LOGGER = logging.getLogger(__name__)

FIGURES_VERSION = 9
"""Raise this when figures look different, so that stored ones are drawn again."""


class Panel(NamedTuple):
    """One diagram."""

    name: str
    """Prefix of the ids in the SVG."""

    title: str
    svg: str
    note: str = ""
    """Text below the diagram."""


class Key(NamedTuple):
    """A line of a legend."""

    mark: str
    """Class of the mark in the style sheet, such as `line series-1`."""

    label: str


class Figure(BaseModel):
    """Panels with one legend, or the reason why they are missing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    panels: tuple[Panel, ...] = ()
    legend: tuple[Key, ...] = ()
    note: str = ""
    """Text below all panels."""

    problem: str = ""


def cached_figure(
    store: ArtifactStore, kind: str, artifacts: Sequence[Built], draw: Callable[..., Figure]
) -> Figure:
    """Return the figure of some artifacts, from the store or drawn and stored.

    Args:
        store: Store of the artifacts.
        kind: What the figure shows, in letters and dashes.
        artifacts: Artifacts in the order in which they are drawn.
        draw: Draws the figure, given a `name` for the ids in the page.

    Returns:
        The figure, or one with a problem if a file that it needs is missing or damaged.
    """
    ids = [(built.label, built.manifest.artifact_id) for built in artifacts]
    key = hashlib.sha256(json.dumps([FIGURES_VERSION, kind, ids]).encode()).hexdigest()[:32]
    path = f"reports/figures/{key}.json"
    try:
        return Figure.model_validate(load_json(store.backend.read(path)))
    except FileNotFoundError:
        pass
    except ValueError as error:
        _LOGGER.info("%s: damaged, drawn again: %s", store.url(path), error)
    try:
        figure = draw(name=f"{kind}-{key[:8]}")
    except (BertloomError, OSError, ValueError, KeyError, TypeError) as error:  # a damaged file
        return Figure(problem=f"Not drawn: {type(error).__name__}: {error}")
    store.backend.replace(path, dump_json(figure.model_dump(mode="json")))
    return figure
