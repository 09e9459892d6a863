"""Features: examples as sequences of token ids with labels. NumPy only.

Letters for shapes: N sequences, T token positions of all sequences, U units. A unit has one label
and one prediction: it is a sequence, or the `per_unit` sequences of a four-way choice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipelines.arrays import Int64s
from schemas.finetune_configs import TaskTypeName

if TYPE_CHECKING:
    from model.task_types.qa_windows import Plan

IGNORED = -100
"""Label of positions without loss."""


@dataclass(frozen=True, kw_only=True)
class Features:
    """The sequences of a split, end to end, ready to be batched.

    Attributes:
        kind: of the task.
        offsets: int64 (N + 1,): sequence i has the positions offsets[i] .. offsets[i + 1] - 1.
        input_ids: int64 (T,), `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, no padding.
        b_starts: int64 (N,): index in its sequence where segment B begins; its length if none does.
        per_unit: sequences a unit; unit u has the sequences u * per_unit and the following.
        rows: int64 (U,): row of the examples' table that each unit comes from, ascending.
        labels: Right answers; None if unknown:
            classification, choice: int64 (U,); regression: float64 (U,);
            span: int64 (U, 2), positions of the answer's first and last token, (0, 0) where the
            window has none; tagging: int64 (sum of positions,), IGNORED where not scored.
        position_offsets: tagging: int64 (U + 1,): unit u has the positions
            [position_offsets[u], position_offsets[u + 1]) of `positions`; otherwise None.
        positions: tagging: int64: positions in the sequence that are tagged (first sub-tokens),
            ascending in each unit; otherwise None.
        words: tagging: word of each position, counted in the whole table; otherwise None.
        encoded: tagging with a frozen encoder: its layers at each position, float32
            (sum of positions, K, H); otherwise None.
        plan: span, for prediction: windows that the sequences were made of; otherwise None.
        counters: Truncated and dropped examples by kebab-case name; in = kept + dropped.
    """

    kind: TaskTypeName
    offsets: Int64s
    input_ids: Int64s
    b_starts: Int64s
    rows: Int64s
    per_unit: int = 1
    labels: npt.NDArray[np.int64] | npt.NDArray[np.float64] | None = None
    position_offsets: Int64s | None = None
    positions: Int64s | None = None
    words: Int64s | None = None
    encoded: npt.NDArray[np.float32] | None = None
    plan: Plan | None = None
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def units(self) -> int:
        """U."""
        return len(self.rows)

    @property
    def output_offsets(self) -> Int64s | None:
        """Unit u has the rows [offsets[u], offsets[u + 1]) of a model's outputs; None where it has
        one row."""
        return self.offsets if self.kind == "span" else self.position_offsets

    @property
    def lengths(self) -> Int64s:
        """Length of each sequence, (N,)."""
        return np.diff(self.offsets)
