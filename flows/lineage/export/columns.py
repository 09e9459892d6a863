"""The columns of each table, as `columns.yaml` has them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

DIRECT = frozenset({"IDENTITY", "TRANSFORMATION", "AGGREGATION"})
"""Uses of a column that its values come from; others decide which values there are."""

Sources = Mapping[str, str]
"""Columns of an input, with OpenLineage's name of their use."""


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: str
    """As Arrow prints it."""

    description: str
    sources: Sources
    """Columns of the table's `made_from` that its values come from."""


class Table(NamedTuple):
    """A table as an artifact holds it."""

    columns: tuple[Column, ...]
    made_from: str
    """Name of the input whose columns the sources are; "" for none."""

    decided_by: Sources
    """Columns of that input that decide which rows there are."""


@functools.cache
def table_of(name: str, *, vocab_size: int | None) -> Table | None:
    """A table with its types filled in; None for one without columns, or of no known size.

    Args:
        name: `Manifest.table`.
        vocab_size: of the vocabulary that token ids belong to, if it is known.
    """
    stored = tables().get(name)
    if stored is None or (vocab_size is None and "{ids}" in str(stored)):
        return None
    # As `schemas.arrow.token_type` has it.
    ids = "uint16" if (vocab_size or 0) <= 1 << 16 else "uint32"
    columns = tuple(
        Column(column, found["type"].replace("{ids}", ids), found["about"], found.get("from", {}))
        for column, found in stored["columns"].items()
    )
    return Table(columns, stored.get("made_from", ""), stored.get("decided_by", {}))


@functools.cache
def tables() -> dict[str, Any]:
    """The file's tables, by `Manifest.table`."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # not every PyYAML has the quick one
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.load(text, Loader=loader)  # noqa: S506 - both are safe
    return found
