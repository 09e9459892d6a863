"""The paper's tables and ablations as data: its numbers as it prints them.

Numbers are times 100, but perplexities as they are. Tables 5, 6, 8 and Figure 5 are ablations:
their rows are variants of one model, named as the variants of a recipe's `sweep`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from schemas.errors import ConfigError

PaperModel = Literal["BERT_BASE", "BERT_LARGE"]
Method = Literal["fine-tune", "feature-based"]
PERPLEXITY = "perplexity"


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

    task: Annotated[str, Field(exclude=True)] = ""
    """Name of the task, in an ablation; "" for the masked LM's perplexity on held-out text."""

    method: Annotated[Method, Field(exclude=True)] = "fine-tune"


class System(NamedTuple):
    """A row of a table."""

    name: str
    values: tuple[float | None, ...]
    """Values by column; None where the paper has none."""

    key: str = ""
    """Name of a variant of an ablation, layers of a frozen BERT_BASE
    (`schemas.finetune_configs.LayerChoice`), or one of the paper's two models."""

    average: float | None = None
    """Last column of Table 1, the mean of the others as printed."""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table or figure of the paper."""

    key: str
    title: str
    columns: tuple[Column, ...]
    systems: tuple[System, ...] = ()
    """Rows; none for Figure 5, which the paper prints without numbers."""

    is_ordered: bool = False
    """True if the variants are sizes or steps, each compared with the previous one."""

    pairs: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Variants that the paper compares, first the one that should be better. The value is the
    change from the first to the second in words, for a verdict."""

    noun: str = ""
    """Word before variants in a verdict without such words: `Size 2-64-1 instead of 1-32-1`."""

    notes: tuple[str, ...] = ()

    def column(self, name: str, *, split: str) -> Column:
        """Return the column that a task names: its key, or its key without the split (`F1`).

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
            f"{self.key} has no column {name!r} or {f'{part} {name}'!r}: choose one of {keys}"
        )

    def value(self, system: str, column: str) -> float | None:
        """Return the number of a system by its key or its name; None if it has none."""
        keys = [known.key for known in self.columns]
        for known in self.systems:
            if system == (known.key or known.name) and column in keys:
                return known.values[keys.index(column)]
        return None

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
        return [pair for pair in self.pairs if set(pair) <= set(variants)] + own


_SPLITS: tuple[Literal["dev", "test"], ...] = ("dev", "test")


def _em_f1() -> tuple[Column, ...]:
    return tuple(
        Column(key=f"{split} {name}", metric=metric, split=split)
        for split in _SPLITS
        for name, metric in (("EM", "em"), ("F1", "f1"))
    )


def _dev_test(metric: str) -> tuple[Column, ...]:
    return tuple(Column(key=split, metric=metric, split=split) for split in _SPLITS)


def _dev(key: str, task: str, metric: str, method: Method = "fine-tune") -> Column:
    return Column(key=key, task=task, metric=metric, split="dev", method=method)


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
    systems=(
        System(
            "pre-OpenAI SOTA", (80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7), average=74.0
        ),
        System(
            "BiLSTM+ELMo+Attn", (76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8), average=71.0
        ),  # the mean of the row is 70.94
        System("OpenAI GPT", (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0), average=75.1),
        System("BERT_BASE", (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4), average=79.6),
        System("BERT_LARGE", (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1), average=82.1),
    ),
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
    systems=(
        System("human", (None, None, 82.3, 91.2)),
        System("best ensemble before (nlnet)", (None, None, 86.0, 91.7)),
        System("second ensemble before (QANet)", (None, None, 84.5, 90.5)),
        System("BiDAF+ELMo (single)", (None, 85.6, None, 85.8)),
        System("R.M. Reader (ensemble)", (81.2, 87.9, 82.3, 88.5)),
        System("BERT_BASE (single)", (80.8, 88.5, None, None), "BERT_BASE"),
        System("BERT_LARGE (single)", (84.1, 90.9, None, None), "BERT_LARGE"),
        System("BERT_LARGE (ensemble of 7)", (85.8, 91.8, None, None)),
        System("BERT_LARGE (single + TriviaQA)", (84.2, 91.1, 85.1, 91.8)),
        System("BERT_LARGE (ensemble of 7 + TriviaQA)", (86.2, 92.2, 87.4, 93.2)),
    ),
)

_TABLE_3 = PaperTable(
    key="table-3",
    title="Table 3: SQuAD 2.0",
    columns=_em_f1(),
    systems=(
        System("human", (86.3, 89.0, 86.9, 89.5)),
        System("MIR-MRC (single)", (None, None, 74.8, 78.0)),
        System("nlnet (single)", (None, None, 74.2, 77.1)),
        System("unet (ensemble)", (None, None, 71.4, 74.9)),
        System("SLQA+ (single)", (None, None, 71.4, 74.4)),
        System("BERT_LARGE (single)", (78.7, 81.9, 80.0, 83.1), "BERT_LARGE"),
    ),
)

_TABLE_4 = PaperTable(
    key="table-4",
    title="Table 4: SWAG accuracy",
    columns=_dev_test("accuracy"),
    systems=(
        System("ESIM+GloVe", (51.9, 52.7)),
        System("ESIM+ELMo", (59.1, 59.2)),
        System("OpenAI GPT", (None, 78.0)),
        System("BERT_BASE", (81.6, None)),
        System("BERT_LARGE", (86.6, 86.3)),
        System("human (expert)", (None, 85.0)),
        System("human (five annotations)", (None, 88.0)),
    ),
)

_TABLE_7 = PaperTable(
    key="table-7",
    title="Table 7: CoNLL-2003 named entities, F1",
    columns=_dev_test("entity-f1"),
    systems=(
        System("ELMo", (95.7, 92.2)),
        System("CVT", (None, 92.6)),
        System("CSE", (None, 93.1)),
        System("BERT_LARGE, fine-tuned", (96.6, 92.8), "BERT_LARGE"),
        System("BERT_BASE, fine-tuned", (96.4, 92.4), "BERT_BASE"),
        System("features: concat last four hidden", (96.1, None), "concat-last-4"),
        System("features: weighted sum last four hidden", (95.9, None), "weighted-sum-last-4"),
        System("features: second-to-last hidden", (95.6, None), "second-to-last"),
        System("features: weighted sum of all 12 layers", (95.5, None), "weighted-sum-all"),
        System("features: last hidden", (94.9, None), "last"),
        System("features: embeddings only", (91.0, None), "embeddings"),
    ),
    notes=(
        "The paper's scores of fine-tuned models are means over five restarts, also on test.",
        "The feature-based rows are of a frozen BERT_BASE.",
    ),
)

_SST_2 = _dev("SST-2", "sst-2", "accuracy")
_MRPC = _dev("MRPC", "mrpc", "accuracy")
_MNLI = _dev("MNLI-m", "mnli", "accuracy")

_TABLE_5 = PaperTable(
    key="table-5",
    title="Table 5: pretraining tasks",
    columns=(
        _MNLI,
        _dev("QNLI", "qnli", "accuracy"),
        _MRPC,
        _SST_2,
        _dev("SQuAD F1", "squad-1.1", "f1"),
    ),
    systems=(
        System("BERT_BASE", (84.4, 88.4, 86.7, 92.7, 88.5), "bert-base"),
        System("no NSP", (83.9, 84.9, 86.5, 92.6, 87.9), "no-nsp"),
        System("left-to-right, no NSP", (82.1, 84.3, 77.5, 92.1, 77.8), "left-to-right"),
        System(
            "left-to-right, no NSP + BiLSTM", (82.1, 84.1, 75.7, 91.6, 84.9), "left-to-right-bilstm"
        ),
    ),
    pairs={
        ("bert-base", "no-nsp"): "Without next-sentence prediction",
        ("no-nsp", "left-to-right"): "Left-to-right instead of both directions",
        ("no-nsp", "left-to-right-bilstm"): "Left-to-right with BiLSTM instead of both directions",
        ("left-to-right-bilstm", "left-to-right"): "Left-to-right without the BiLSTM",
    },
    notes=("Accuracy, F1 for SQuAD 1.1. The paper's model is BERT_BASE in all rows.",),
)

_TABLE_6 = PaperTable(
    key="table-6",
    title="Table 6: model size",
    columns=(
        Column(key="LM perplexity", metric=PERPLEXITY, split="dev", is_share=False),
        _MNLI,
        _MRPC,
        _SST_2,
    ),
    systems=(
        System("L=3 H=768 A=12", (5.84, 77.9, 79.8, 88.4), "3-768-12"),
        System("L=6 H=768 A=3", (5.24, 80.6, 82.2, 90.7), "6-768-3"),
        System("L=6 H=768 A=12", (4.68, 81.9, 84.8, 91.3), "6-768-12"),
        System("L=12 H=768 A=12", (3.99, 84.4, 86.7, 92.9), "12-768-12"),
        System("L=12 H=1024 A=16", (3.54, 85.7, 86.9, 93.3), "12-1024-16"),
        System("L=24 H=1024 A=16", (3.23, 86.6, 87.8, 93.7), "24-1024-16"),
    ),
    is_ordered=True,
    noun="Size",
    notes=(
        "LM perplexity: of the masked LM on held-out text, lower is better. The paper's accuracies "
        "are means over five restarts.",
    ),
)

_TABLE_8 = PaperTable(
    key="table-8",
    title="Table 8: masking",
    columns=(
        _dev("MNLI", "mnli", "accuracy"),
        _dev("NER", "conll-2003", "entity-f1"),
        _dev("NER, features", "conll-2003", "entity-f1", "feature-based"),
    ),
    systems=(
        System("80 % mask, 10 same, 10 random", (84.2, 95.4, 94.9), "80-10-10"),
        System("100 % mask", (84.3, 94.9, 94.0), "100-0-0"),
        System("80 % mask, 20 random", (84.1, 95.2, 94.6), "80-0-20"),
        System("80 % mask, 20 same", (84.4, 95.2, 94.7), "80-20-0"),
        System("20 % same, 80 random", (83.7, 94.8, 94.6), "0-20-80"),
        System("100 % random", (83.6, 94.9, 94.6), "0-0-100"),
    ),
    pairs={
        ("80-10-10", other): "" for other in ("100-0-0", "80-0-20", "80-20-0", "0-20-80", "0-0-100")
    },
    noun="Masking",
    notes=("Accuracy for MNLI, entity F1 for NER; features are of the last four layers.",),
)

_FIGURE_5 = PaperTable(
    key="figure-5",
    title="Figure 5: steps of pretraining",
    columns=(_dev("MNLI", "mnli", "accuracy"),),
    is_ordered=True,
    notes=(
        "The paper draws MNLI dev accuracy over the steps and prints no numbers of it. Its text: "
        "BERT_BASE gains almost 1.0 % from 500 k to 1 M steps; the masked LM converges a little "
        "slower than left-to-right, but is above it almost from the beginning.",
    ),
)

PAPER_TABLES: dict[str, PaperTable] = {
    table.key: table for table in (GLUE_TABLE, _TABLE_2, _TABLE_3, _TABLE_4, _TABLE_7)
}
"""Tables by their key in `Task.paper`."""

ABLATIONS: dict[str, PaperTable] = {
    table.key: table for table in (_TABLE_5, _TABLE_6, _TABLE_8, _FIGURE_5)
}
"""Ablations by the key of a `sweep` axis."""

CUSTOM = PaperTable(key="", title="", columns=())
"""Ablation of a custom axis: each variant is compared with the first."""


def glue_average(scores: Mapping[str, float]) -> float | None:
    """Return the mean over the nine columns of Table 1; None if one is missing.

    It has no WNLI, and MNLI's matched and mismatched sets are two of the nine. The paper's own rows
    give its printed averages this way, but for BiLSTM+ELMo+Attn: 70.94, printed as 71.0.
    """
    if not all(column in scores for column in GLUE_COLUMNS):
        return None
    return statistics.fmean(scores[column] for column in GLUE_COLUMNS)
