"""The paper's Tables 1, 2, 3, 4 and 7 as data: its numbers as it prints them, times 100.

`model.tables.filled_tables` sets ours beneath them. Tables 5, 6, 8 and Figure 5, of models that
differ in their pretraining, are in `model.tables.paper_ablations`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from model.tasks.task import Task
from schemas.errors import ConfigError

PaperModel = Literal["BERT_BASE", "BERT_LARGE"]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table."""

    key: str
    """Key in `Task.paper`, and heading in the table."""

    metric: str
    split: Literal["dev", "test"]
    """Split of the paper's numbers."""

    is_share: bool = True
    """True if our scores are from 0 to 1 and printed times 100; perplexities are not scaled."""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table of the paper."""

    key: str
    title: str
    columns: tuple[Column, ...]
    systems: Mapping[str, tuple[float | None, ...]]
    """The rows by name: values by column, times 100; None where the paper has none."""

    averages: Mapping[str, float] = field(default_factory=dict)
    """The last column of Table 1, the mean of the others as printed; empty for other tables."""

    models: Mapping[str, str]
    """Rows of the paper's two models, printed next to ours."""

    features: Mapping[str, str] = field(default_factory=dict)
    """The rows of Table 7 of a frozen BERT_BASE, by `schemas.finetune_configs.LayerChoice`."""

    notes: tuple[str, ...] = ()

    def column(self, name: str, *, split: str) -> Column:
        """The column that a task names: its key, or its key without the split (`F1`).

        Raises:
            ConfigError: No column has this name.
        """
        part = split.partition("-")[0]
        for key in (name, f"{part} {name}"):
            for column in self.columns:
                if column.key == key:
                    return column
        keys = ", ".join(column.key for column in self.columns)
        raise ConfigError(
            f"{self.key} has no column {name!r} (nor {f'{part} {name}'!r}): choose one of {keys}"
        )

    def value(self, column: Column, *, model: PaperModel, layers: str = "") -> float | None:
        """The paper's number of a model, times 100; with layers that of the frozen model."""
        if layers and model != "BERT_BASE":
            return None
        name = self.features.get(layers) if layers else self.models.get(model)
        return self.systems[name][self.columns.index(column)] if name else None


def _em_f1() -> tuple[Column, ...]:
    return tuple(
        Column(key=f"{split} {name}", metric=metric, split=split)
        for split in _SPLITS
        for name, metric in (("EM", "em"), ("F1", "f1"))
    )


def _dev_test(metric: str) -> tuple[Column, ...]:
    return tuple(Column(key=split, metric=metric, split=split) for split in _SPLITS)


_SPLITS: tuple[Literal["dev", "test"], ...] = ("dev", "test")
GLUE_COLUMNS = ("MNLI-m", "MNLI-mm", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE")
"""Columns of the average of Table 1: without WNLI, with both sets of MNLI."""

_GLUE_METRICS = {"QQP": "f1", "MRPC": "f1", "CoLA": "matthews", "STS-B": "spearman"}

GLUE_TABLE = PaperTable(
    key="table-1",
    title="Table 1: GLUE",
    columns=tuple(
        Column(key=key, metric=_GLUE_METRICS.get(key, "accuracy"), split="test")
        for key in GLUE_COLUMNS
    ),
    systems={
        "pre-OpenAI SOTA": (80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7),
        "BiLSTM+ELMo+Attn": (76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8),
        "OpenAI GPT": (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0),
        "BERT_BASE": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4),
        "BERT_LARGE": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1),
    },
    averages={
        "pre-OpenAI SOTA": 74.0,
        "BiLSTM+ELMo+Attn": 71.0,  # the mean of the row is 70.94
        "OpenAI GPT": 75.1,
        "BERT_BASE": 79.6,
        "BERT_LARGE": 82.1,
    },
    models={"BERT_BASE": "BERT_BASE", "BERT_LARGE": "BERT_LARGE"},
    notes=(
        "F1 for QQP and MRPC, Spearman correlation for STS-B, Matthews correlation for CoLA, "
        "accuracy for the rest.",
        "The average leaves WNLI out, as the paper's does; MNLI-m and MNLI-mm count as one each.",
    ),
)

_TABLE_2 = PaperTable(
    key="table-2",
    title="Table 2: SQuAD 1.1",
    columns=_em_f1(),
    systems={
        "human": (None, None, 82.3, 91.2),
        "best ensemble before (nlnet)": (None, None, 86.0, 91.7),
        "second ensemble before (QANet)": (None, None, 84.5, 90.5),
        "BiDAF+ELMo (single)": (None, 85.6, None, 85.8),
        "R.M. Reader (ensemble)": (81.2, 87.9, 82.3, 88.5),
        "BERT_BASE (single)": (80.8, 88.5, None, None),
        "BERT_LARGE (single)": (84.1, 90.9, None, None),
        "BERT_LARGE (ensemble of 7)": (85.8, 91.8, None, None),
        "BERT_LARGE (single + TriviaQA)": (84.2, 91.1, 85.1, 91.8),
        "BERT_LARGE (ensemble of 7 + TriviaQA)": (86.2, 92.2, 87.4, 93.2),
    },
    models={"BERT_BASE": "BERT_BASE (single)", "BERT_LARGE": "BERT_LARGE (single)"},
)

_TABLE_3 = PaperTable(
    key="table-3",
    title="Table 3: SQuAD 2.0",
    columns=_em_f1(),
    systems={
        "human": (86.3, 89.0, 86.9, 89.5),
        "MIR-MRC (single)": (None, None, 74.8, 78.0),
        "nlnet (single)": (None, None, 74.2, 77.1),
        "unet (ensemble)": (None, None, 71.4, 74.9),
        "SLQA+ (single)": (None, None, 71.4, 74.4),
        "BERT_LARGE (single)": (78.7, 81.9, 80.0, 83.1),
    },
    models={"BERT_LARGE": "BERT_LARGE (single)"},
)

_TABLE_4 = PaperTable(
    key="table-4",
    title="Table 4: SWAG accuracy",
    columns=_dev_test("accuracy"),
    systems={
        "ESIM+GloVe": (51.9, 52.7),
        "ESIM+ELMo": (59.1, 59.2),
        "OpenAI GPT": (None, 78.0),
        "BERT_BASE": (81.6, None),
        "BERT_LARGE": (86.6, 86.3),
        "human (expert)": (None, 85.0),
        "human (five annotations)": (None, 88.0),
    },
    models={"BERT_BASE": "BERT_BASE", "BERT_LARGE": "BERT_LARGE"},
)

_TABLE_7 = PaperTable(
    key="table-7",
    title="Table 7: CoNLL-2003 named entities, F1",
    columns=_dev_test("entity-f1"),
    systems={
        "ELMo": (95.7, 92.2),
        "CVT": (None, 92.6),
        "CSE": (None, 93.1),
        "BERT_LARGE, fine-tuned": (96.6, 92.8),
        "BERT_BASE, fine-tuned": (96.4, 92.4),
        "features: concat last four hidden": (96.1, None),
        "features: weighted sum last four hidden": (95.9, None),
        "features: second-to-last hidden": (95.6, None),
        "features: weighted sum of all 12 layers": (95.5, None),
        "features: last hidden": (94.9, None),
        "features: embeddings only": (91.0, None),
    },
    models={"BERT_BASE": "BERT_BASE, fine-tuned", "BERT_LARGE": "BERT_LARGE, fine-tuned"},
    features={
        "concat-last-4": "features: concat last four hidden",
        "weighted-sum-last-4": "features: weighted sum last four hidden",
        "second-to-last": "features: second-to-last hidden",
        "weighted-sum-all": "features: weighted sum of all 12 layers",
        "last": "features: last hidden",
        "embeddings": "features: embeddings only",
    },
    notes=(
        "The paper's scores of fine-tuned models are means over five restarts, also on test.",
        "The feature-based rows are of a frozen BERT_BASE.",
    ),
)

PAPER_TABLES: dict[str, PaperTable] = {
    table.key: table for table in (GLUE_TABLE, _TABLE_2, _TABLE_3, _TABLE_4, _TABLE_7)
}
"""Tables by their key in `Task.paper`."""


def glue_average(scores: Mapping[str, float]) -> float | None:
    """The mean over the nine columns of Table 1 as the paper takes it; None if one is missing.

    It has no WNLI, and MNLI's matched and mismatched sets are two of the nine. The paper's own rows
    give its printed averages this way, but for BiLSTM+ELMo+Attn: 70.94, printed as 71.0.
    """
    if not all(column in scores for column in GLUE_COLUMNS):
        return None
    return statistics.fmean(scores[column] for column in GLUE_COLUMNS)


def paper_cells(task: Task, table: PaperTable) -> Iterator[tuple[str, str, Column]]:
    """Split, metric and column of each cell of a table that a task fills."""
    for scored, (key, name) in task.paper.items():
        if key == table.key:
            split, _, metric = scored.partition("/")
            yield split, metric, table.column(name, split=split)
