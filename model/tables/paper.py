"""The paper's tables and ablations (`paper.yaml`)."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import Field

from model.task_results import Result

PaperModel = Literal["BERT_BASE", "BERT_LARGE"]
PERPLEXITY = "perplexity"


class Column(Result):
    """A column of a table."""

    key: str
    """Key in `Task.paper`, and heading in the table."""

    metric: str
    split: Literal["dev", "test"]
    """Split of the paper's numbers."""

    is_share: bool = True
    """True if our scores are from 0 to 1 and printed times 100; perplexities are not scaled."""

    task: Annotated[str, Field(exclude=True)] = ""
    """Name of the task, in an ablation; "" for the masked LM's perplexity on held-out text."""

    method: Annotated[Literal["fine-tune", "feature-based"], Field(exclude=True)] = "fine-tune"


class System(Result):
    """A row of a table."""

    name: str = Field(alias="system")
    values: dict[str, float | None]
    """Numbers by column, times 100 as printed; None where the paper has none."""

    key: str = ""
    """Name of a variant of an ablation, layers of a frozen BERT_BASE
    (`schemas.finetune_configs.LayerChoice`), or one of the paper's two models."""

    average: float | None = None
    """Last column of Table 1, the mean of the others as printed."""


class VariantPair(Result):
    """Variants that the paper compares, first the one that should be better."""

    first: str
    second: str
    change: str = ""
    """Change from the first to the second in words, for a verdict."""


class PaperTable(Result):
    """A table or figure of the paper."""

    key: str
    title: str = ""
    columns: tuple[Column, ...] = ()
    systems: tuple[System, ...] = Field(default=(), alias="paper")
    """Rows; none for Figure 5, which the paper prints without numbers."""

    is_ordered: bool = Field(default=False, exclude=True)
    """True if the variants are sizes or steps, each compared with the previous one."""

    pairs: tuple[VariantPair, ...] = Field(default=(), exclude=True)
    noun: str = Field(default="", exclude=True)
    """Word before variants in a verdict without words for the change: `Size 2-64-1 instead of`."""

    notes: tuple[str, ...] = ()

    @property
    def columns_by_key(self) -> dict[str, Column]:
        """Columns by their key."""
        return {column.key: column for column in self.columns}

    def value(self, system: str, column: str) -> float | None:
        """Return the number of a system by its key or its name; None if it has none."""
        rows = (row.values for row in self.systems if system == (row.key or row.name))
        return next(rows, {}).get(column)

    @property
    def has_average(self) -> bool:
        """True if the last column is the mean of all columns."""
        return any(system.average is not None for system in self.systems)

    def average(self, scores: Mapping[str, float]) -> float | None:
        """Return the mean over all columns; None if one is missing, or without such a column.

        Table 1 has no WNLI, and MNLI's matched and mismatched sets are two of its nine columns. The
        paper's rows give its printed averages this way, but for BiLSTM+ELMo+Attn: 70.94, not 71.0.
        """
        if not self.has_average or not self.columns_by_key.keys() <= scores.keys():
            return None
        return statistics.fmean(scores[key] for key in self.columns_by_key)

    def difference(self, first: str, second: str, column: str) -> float | None:
        """Return the first system minus the second, as printed; None if one has no number."""
        a, b = self.value(first, column), self.value(second, column)
        return None if a is None or b is None else round(a - b, 2)

    def compared(self, variants: Sequence[str]) -> list[tuple[str, str]]:
        """Return the pairs of an axis's variants to compare, first the one that should be better.

        Sizes and steps: the last with the first, then each with the one before. Other axes: the
        pairs of the paper, then the first variant with each one that the paper does not have.
        """
        if self.is_ordered:
            ends = [(variants[-1], variants[0])] if len(variants) > 2 else []
            return [*ends, *zip(variants[1:], variants, strict=False)]
        known = {system.key for system in self.systems}
        own = [(variants[0], name) for name in variants[1:] if name not in known]
        pairs = [(pair.first, pair.second) for pair in self.pairs]
        return [pair for pair in pairs if set(pair) <= set(variants)] + own

    def change(self, first: str, second: str) -> str:
        """Return the change from a variant to another one in words."""
        changes = (p.change for p in self.pairs if (p.first, p.second) == (first, second))
        return next(changes, "") or f"{self.noun} {second} instead of {first}".strip()


class _Paper(Result):
    """Content of `paper.yaml`."""

    tables: tuple[PaperTable, ...]
    ablations: tuple[PaperTable, ...]


def _read_paper() -> _Paper:
    text = resources.files(__package__).joinpath("paper.yaml").read_text(encoding="utf-8")
    content = yaml.load(text, Loader=yaml.CSafeLoader)
    for table in itertools.chain.from_iterable(content.values()):
        keys = [column["key"] for column in table["columns"]]
        for system in table.get("systems", ()):
            system["values"] = dict(zip(keys, system["values"], strict=True))
    return _Paper.model_validate(content)


_PAPER = _read_paper()
PAPER_TABLES = {table.key: table for table in _PAPER.tables}
"""Tables by their key in `Task.paper`."""

ABLATIONS = {table.key: table for table in _PAPER.ablations}
"""Ablations by the key of a `sweep` axis. An axis without one has `PaperTable(key=...)`."""

GLUE_TABLE = PAPER_TABLES["table-1"]
FEATURES_TABLE = PAPER_TABLES["table-7"]
"""Table with a row for each choice of layers of a frozen BERT_BASE."""

STEPS_FIGURE = ABLATIONS["figure-5"]
