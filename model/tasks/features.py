"""Features: examples as sequences of token ids with labels. NumPy only.

Letters for shapes: N sequences, T token positions of all sequences, U units. A unit has one label
and one prediction: it is a sequence, or the `per_unit` sequences of a four-way choice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.tasks.task import Task
from pipelines.arrays import Bools, Float32s, Int64s, offsets_of, ranges
from pipelines.wordpiece.tokenizer import WordPieceTokenizer
from schemas.errors import PredictionsError, TaskDataError
from schemas.finetune_configs import FeaturesConfig, TaskTypeName

if TYPE_CHECKING:
    from model.tasks.qa_windows import Plan


IGNORED = -100
"""Label of positions without loss."""


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Setup of a model: how it reads examples, and the names of its outputs."""

    task: Task
    labels: tuple[str, ...]
    """Names of the outputs, in order; () for types whose outputs have none."""

    tokenizer: WordPieceTokenizer
    config: FeaturesConfig


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


def check_outputs(outputs: Float32s, *, task: Task) -> None:
    """Check the values of a model's outputs.

    Raises:
        PredictionsError: A number is not finite.
    """
    finite = np.isfinite(outputs).all(axis=tuple(range(1, outputs.ndim)))
    if not finite.all():
        raise PredictionsError(
            f"{task.name}: {int((~finite).sum())} of {len(outputs)} outputs are not finite, the "
            f"first is {int(np.flatnonzero(~finite)[0])}: the model has diverged; train it with a "
            "smaller learning rate"
        )


def check_answered(examples: pa.Table, column: str, *, expected: str) -> None:
    """Check that all examples have an answer, which is null in no row of its column.

    Raises:
        TaskDataError: An answer is not known; `expected` names the rows that must have one.
    """
    if missing := examples[column].null_count:
        row = pc.index(examples[column].is_null(), True).as_py()
        raise TaskDataError(
            f"{column} is unknown in {missing:,} of {len(examples):,} rows, the first is row {row} "
            f"(id {examples['id'][row]}): expected an answer in {expected}"
        )


_BLOCK = 8192  # sequences that are put together at a time; bounds the memory of the indices


class Texts(NamedTuple):
    """Token ids of texts; several texts can share their ids."""

    ids: npt.NDArray[Any]
    starts: Int64s
    """Index in `ids` at which each text begins, (N,)."""

    lengths: Int64s
    """(N,)."""


class Sequences(NamedTuple):
    """Sequences, end to end."""

    input_ids: Int64s
    """(T,)."""

    offsets: Int64s
    """Sequence i has the tokens offsets[i] .. offsets[i + 1] - 1, (N + 1,)."""

    b_starts: Int64s
    """Index in its sequence where text B begins; its length without B, (N,)."""


def encode_texts(
    texts: pa.Array | pa.ChunkedArray | list[str], tokenizer: WordPieceTokenizer
) -> Texts:
    """Encode texts without nulls. Equal texts are tokenized once."""
    if isinstance(texts, list):
        column = pa.array(texts, pa.large_string())
    else:
        column = texts.cast(pa.large_string())
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    encoded = column.dictionary_encode()
    ids, counts = tokenizer.encode_sentences(encoded.dictionary)
    index = encoded.indices.to_numpy()
    return Texts(ids, offsets_of(counts)[:-1][index], counts.astype(np.int64)[index])


def join_texts(
    first: Texts, second: Texts, has_second: Bools, *, tokenizer: WordPieceTokenizer
) -> Sequences:
    """Return the sequences of texts A and B; a B that exists may have no token."""
    offsets = offsets_of(first.lengths + second.lengths + np.where(has_second, 3, 2))
    begins, b_starts = offsets[:-1], first.lengths + 2
    input_ids = np.full(offsets[-1], tokenizer.sep_id, np.int64)
    input_ids[begins] = tokenizer.cls_id
    for texts, places in ((first, begins + 1), (second, begins + b_starts)):
        for block_start in range(0, len(places), _BLOCK):
            block = slice(block_start, block_start + _BLOCK)
            lengths = texts.lengths[block]
            ids = texts.ids[ranges(texts.starts[block], lengths)]
            input_ids[ranges(places[block], lengths)] = ids
    return Sequences(input_ids, offsets, b_starts)


def truncated_lengths(a: Int64s, b: Int64s, *, room: npt.ArrayLike) -> tuple[Int64s, Int64s]:
    """Return the lengths of A and B after truncation to a total number of tokens.

    The reference (run_classifier.py, lines 557-571) removes one token at a time from the end of the
    longer text, or of B if both are equal. So the shorter text loses nothing until both are equal,
    and then they alternate.
    """
    space = np.asarray(room, dtype=np.int64)
    half = space // 2
    kept_a: Int64s = np.minimum(a, np.maximum(space - b, space - half))
    kept_b: Int64s = np.minimum(b, np.maximum(space - a, half))
    return kept_a, kept_b
