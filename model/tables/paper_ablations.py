"""The paper's Tables 5, 6, 8 and Figure 5 as data: models that differ in how they were pretrained.

Rows are named as the variants of a recipe's `sweep` are; `model.tables.sweeps` sets ours beneath.
Numbers are as the paper prints them, on dev: times 100, but perplexities as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from model.tables.paper_tables import Column

PERPLEXITY = "perplexity"


@dataclass(frozen=True, kw_only=True)
class AblationColumn(Column):
    """A column of an ablation: a task, fine-tuned or on features; or the language model itself."""

    task: str = ""
    """Name of the task; "" for the masked LM's perplexity on held-out text."""

    method: Literal["fine-tune", "feature-based"] = "fine-tune"


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """A table of the paper whose rows are variants of one model."""

    key: str
    title: str
    columns: tuple[AblationColumn, ...]
    names: Mapping[str, str]
    """The paper's name of each variant."""

    values: Mapping[str, tuple[float, ...]]
    """Scores by variant and column; empty for Figure 5, which the paper prints without numbers."""

    pairs: tuple[tuple[str, str], ...] = ()
    """Variants that the paper compares, the one first that it expects more of."""

    is_ordered: bool = False
    """True if variants are sizes or steps, each compared with the previous one."""

    noun: str = ""
    """Word before a variant in a verdict: `Masking 100-0-0 instead of 80-10-10`."""

    phrases: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Words in a verdict for a variant and what it is compared with: a variant of `pairs` and the
    one before it there."""

    notes: tuple[str, ...] = ()

    def compared(self, variants: Sequence[str]) -> list[tuple[str, str]]:
        """Return the pairs of an axis's variants to compare, first the one that should be better.

        Sizes and steps: the last with the first, then each with the one before. Other axes: the
        pairs of the paper, then the first variant with each one that the paper does not have.
        """
        if self.is_ordered:
            ends = [(variants[-1], variants[0])] if len(variants) > 2 else []
            return [*ends, *zip(variants[1:], variants, strict=False)]
        own = [(variants[0], name) for name in variants[1:] if name not in self.names]
        return [pair for pair in self.pairs if set(pair) <= set(variants)] + own

    def paper_difference(self, first: str, second: str, column: str) -> float | None:
        """Return first minus second, as printed; None if the paper lacks one of them."""
        place = next((n for n, known in enumerate(self.columns) if known.key == column), None)
        if place is None or not {first, second} <= self.values.keys():
            return None
        return round(self.values[first][place] - self.values[second][place], 2)


def _dev(
    key: str, task: str, metric: str, method: Literal["fine-tune", "feature-based"] = "fine-tune"
) -> AblationColumn:
    return AblationColumn(key=key, task=task, metric=metric, split="dev", method=method)


_SST_2 = _dev("SST-2", "sst-2", "accuracy")
_MRPC = _dev("MRPC", "mrpc", "accuracy")
_MNLI = _dev("MNLI-m", "mnli", "accuracy")

_TABLE_5 = Ablation(
    key="table-5",
    title="Table 5: pretraining tasks",
    columns=(
        _MNLI,
        _dev("QNLI", "qnli", "accuracy"),
        _MRPC,
        _SST_2,
        _dev("SQuAD F1", "squad-1.1", "f1"),
    ),
    names={
        "bert-base": "BERT_BASE",
        "no-nsp": "no NSP",
        "left-to-right": "left-to-right, no NSP",
        "left-to-right-bilstm": "left-to-right, no NSP + BiLSTM",
    },
    values={
        "bert-base": (84.4, 88.4, 86.7, 92.7, 88.5),
        "no-nsp": (83.9, 84.9, 86.5, 92.6, 87.9),
        "left-to-right": (82.1, 84.3, 77.5, 92.1, 77.8),
        "left-to-right-bilstm": (82.1, 84.1, 75.7, 91.6, 84.9),
    },
    pairs=(
        ("bert-base", "no-nsp"),
        ("no-nsp", "left-to-right"),
        ("no-nsp", "left-to-right-bilstm"),
        ("left-to-right-bilstm", "left-to-right"),
    ),
    phrases={
        ("no-nsp", "bert-base"): "Without next-sentence prediction",
        ("left-to-right", "no-nsp"): "Left-to-right instead of both directions",
        ("left-to-right-bilstm", "no-nsp"): "Left-to-right with BiLSTM instead of both directions",
        ("left-to-right", "left-to-right-bilstm"): "Left-to-right without the BiLSTM",
    },
    notes=("Accuracy, F1 for SQuAD 1.1. The paper's model is BERT_BASE in all rows.",),
)

_TABLE_6 = Ablation(
    key="table-6",
    title="Table 6: model size",
    columns=(
        AblationColumn(key="LM perplexity", metric=PERPLEXITY, split="dev", is_share=False),
        _MNLI,
        _MRPC,
        _SST_2,
    ),
    names={
        "3-768-12": "L=3 H=768 A=12",
        "6-768-3": "L=6 H=768 A=3",
        "6-768-12": "L=6 H=768 A=12",
        "12-768-12": "L=12 H=768 A=12",
        "12-1024-16": "L=12 H=1024 A=16",
        "24-1024-16": "L=24 H=1024 A=16",
    },
    values={
        "3-768-12": (5.84, 77.9, 79.8, 88.4),
        "6-768-3": (5.24, 80.6, 82.2, 90.7),
        "6-768-12": (4.68, 81.9, 84.8, 91.3),
        "12-768-12": (3.99, 84.4, 86.7, 92.9),
        "12-1024-16": (3.54, 85.7, 86.9, 93.3),
        "24-1024-16": (3.23, 86.6, 87.8, 93.7),
    },
    is_ordered=True,
    noun="Size",
    notes=(
        "LM perplexity: of the masked LM on held-out text, lower is better. The paper's accuracies "
        "are means over five restarts.",
    ),
)

_TABLE_8 = Ablation(
    key="table-8",
    title="Table 8: masking",
    columns=(
        _dev("MNLI", "mnli", "accuracy"),
        _dev("NER", "conll-2003", "entity-f1"),
        _dev("NER, features", "conll-2003", "entity-f1", "feature-based"),
    ),
    names={
        "80-10-10": "80 % mask, 10 same, 10 random",
        "100-0-0": "100 % mask",
        "80-0-20": "80 % mask, 20 random",
        "80-20-0": "80 % mask, 20 same",
        "0-20-80": "20 % same, 80 random",
        "0-0-100": "100 % random",
    },
    values={
        "80-10-10": (84.2, 95.4, 94.9),
        "100-0-0": (84.3, 94.9, 94.0),
        "80-0-20": (84.1, 95.2, 94.6),
        "80-20-0": (84.4, 95.2, 94.7),
        "0-20-80": (83.7, 94.8, 94.6),
        "0-0-100": (83.6, 94.9, 94.6),
    },
    pairs=tuple(
        ("80-10-10", other) for other in ("100-0-0", "80-0-20", "80-20-0", "0-20-80", "0-0-100")
    ),
    noun="Masking",
    notes=("Accuracy for MNLI, entity F1 for NER; features are of the last four layers.",),
)

_FIGURE_5 = Ablation(
    key="figure-5",
    title="Figure 5: steps of pretraining",
    columns=(_dev("MNLI", "mnli", "accuracy"),),
    names={},
    values={},
    is_ordered=True,
    notes=(
        "The paper draws MNLI dev accuracy over the steps and prints no numbers of it. Its text: "
        "BERT_BASE gains almost 1.0 % from 500 k to 1 M steps; the masked LM converges a little "
        "slower than left-to-right, but is above it almost from the beginning.",
    ),
)

ABLATIONS: dict[str, Ablation] = {
    table.key: table for table in (_TABLE_5, _TABLE_6, _TABLE_8, _FIGURE_5)
}
"""Ablations by the key of a `sweep` axis."""

UNNAMED = Ablation(key="", title="", columns=(), names={}, values={})
"""Ablation of a custom axis: each variant is compared with the first."""
