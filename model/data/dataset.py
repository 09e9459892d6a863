"""Dataset of an artifact's instances: random access to memory-mapped shards.

The dataset keeps only the positions of the columns of each record batch: about 100 bytes per 8,192
instances, or 5 MB for 400 million. Every position is checked against its column before it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Self

import numpy as np
import numpy.typing as npt

from model.data.shards import ListColumn, MappedShards, Ranks, local_files
from pipelines.arrays import Bools, Int64s, offsets_of, ranges
from pipelines.instances import HELD_OUT_PREFIX
from schemas.errors import ArtifactCorruptError, InstanceDataError
from schemas.manifest import FileEntry, StageInput

Part = Literal["training", "held-out"]
_PREFIXES: dict[Part, str] = {"training": "part-", "held-out": HELD_OUT_PREFIX}


class RowHeaders(NamedTuple):
    """Properties of rows that are known without reading tokens; each field has the shape (n,).

    Attributes:
        rows: Numbers of the instances in their set, int64.
        lengths: Number of tokens, including [CLS] and [SEP], int64.
        segment_b_start: Position of B's first token; the length without B, int64.
        next_sentence_label: 0 next, 1 random, -1 without B, int64.
        masked_counts: Number of masked tokens, int64.
        ids_at, positions_at, masked_ids_at: Position of each list in `MappedShards`, int64.
    """

    rows: Int64s
    lengths: Int64s
    segment_b_start: Int64s
    next_sentence_label: Int64s
    masked_counts: Int64s
    ids_at: Int64s
    positions_at: Int64s
    masked_ids_at: Int64s

    def take(self, order: Int64s | slice) -> RowHeaders:
        """Return the headers of some of these rows, in the given order."""
        return RowHeaders(*(column[order] for column in self))


class InstanceRows(NamedTuple):
    """Concatenated instances; instance i has input_ids[offsets[i] : offsets[i + 1]].

    Attributes:
        headers: Headers of the instances; `masked_counts` are those of the targets below.
        input_ids: Stored ids, with the stage's masks; unsigned, shape (tokens,).
        masked_positions: Positions of the masked tokens in their instances, ascending.
        masked_ids: Ids before masking; type of input_ids, shape of masked_positions.
    """

    headers: RowHeaders
    input_ids: npt.NDArray[Any]
    masked_positions: npt.NDArray[np.uint16]
    masked_ids: npt.NDArray[Any]

    @property
    def offsets(self) -> Int64s:
        """Offsets into input_ids, int64 of shape (n + 1,)."""
        return offsets_of(self.headers.lengths)

    @property
    def masked_offsets(self) -> Int64s:
        """Offsets into masked_positions and masked_ids, int64 of shape (n + 1,)."""
        return offsets_of(self.headers.masked_counts)

    def part(self, begin: int, end: int) -> InstanceRows:
        """Return instances begin .. end-1 as views."""
        tokens = slice(*self.offsets[[begin, end]])
        masked = slice(*self.masked_offsets[[begin, end]])
        return InstanceRows(
            self.headers.take(slice(begin, end)),
            self.input_ids[tokens],
            self.masked_positions[masked],
            self.masked_ids[masked],
        )


class InstanceDataset:
    """Instances of one part of an artifact, numbered by shard name and row.

    Attributes:
        vocab_size: Exclusive upper bound of the ids.
        max_seq_length: Maximum length of the artifact's instances.
        tokens: Total number of tokens, including [CLS] and [SEP].
    """

    def __init__(
        self, files: Sequence[Path], entries: Sequence[FileEntry], *, statistics: dict[str, Any]
    ) -> None:
        """Map files that `InstanceDataset.open` has verified."""
        self.vocab_size = int(statistics["vocab_size"])
        self.max_seq_length = int(statistics["max_seq_length"])
        self.tokens = sum(int(entry.statistics["tokens"]) for entry in entries)
        self._entries = tuple(entries)
        self._shards = MappedShards(files, entries, vocab_size=self.vocab_size)

    @classmethod
    def open(
        cls,
        data: StageInput,
        *,
        vocab_size: int,
        max_seq_length: int,
        part: Part = "training",
        ranks: Ranks | None = None,
    ) -> Self:
        """Verify an artifact of `build-instances` and map its shards.

        Args:
            data: Artifact; remote shards are copied to the cache folder first.
            vocab_size: Vocabulary size of the model.
            max_seq_length: Number of positions of the model.
            part: Training or held-out instances.
            ranks: Ranks that all open the artifact; they share the verification of its shards.

        Raises:
            InstanceDataError: The instances do not fit the model, the part is empty, or a shard is
                missing.
            ArtifactCorruptError: A shard is damaged, or has another table or version.
        """
        _check_fit(data, vocab_size=vocab_size, max_seq_length=max_seq_length)
        prefix = _PREFIXES[part]
        entries = sorted(
            (entry for entry in data.files if entry.path.startswith(prefix)),
            key=lambda entry: entry.path,
        )
        if not any(entry.rows for entry in entries):
            hint = (
                "Set build_instances.NAME.held_out_fraction above 0 and rebuild the stage."
                if part == "held-out"
                else "The corpus may be too small, or every document too short."
            )
            raise InstanceDataError(
                f"the artifact {data.artifact_id} has no {part} instances: expected files "
                f"{prefix}*.arrow with rows, got {len(entries)} files without any. {hint}"
            )
        files = local_files(data, entries, ranks=ranks)
        return cls(files, entries, statistics=data.statistics)

    def __len__(self) -> int:
        """Number of instances."""
        return int(self._shards.shard_starts[-1])

    def locate(self, row: int) -> tuple[str, int]:
        """Return the manifest name of an instance's shard, and its row in the shard."""
        if not 0 <= row < len(self):
            raise IndexError(f"expected a row of 0 to {len(self) - 1}, got {row}")
        starts = self._shards.shard_starts
        shard = int(np.searchsorted(starts, row, side="right")) - 1
        return self._entries[shard].path, row - int(starts[shard])

    def headers(self, rows: npt.NDArray[Any]) -> RowHeaders:
        """Return the headers of instances, without reading tokens.

        Raises:
            ArtifactCorruptError: A row contradicts itself or the artifact's statistics.
        """
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise IndexError(f"expected rows of 0 to {len(self) - 1}, got others")
        shards = self._shards
        batch = np.searchsorted(shards.batch_starts, rows, side="right") - 1
        local = rows - shards.batch_starts[batch]
        ids_at, lengths = self._lists(shards.input_ids, batch, local, rows)
        positions_at, counts = self._lists(shards.masked_positions, batch, local, rows)
        masked_ids_at, id_counts = self._lists(shards.masked_ids, batch, local, rows)
        b_start = shards.uint16[shards.segment_b_start[batch] + local].astype(np.int64)
        label = shards.int8[shards.next_sentence_label[batch] + local].astype(np.int64)
        self._check(rows, lengths >= 1, "it has no token")
        limit = f"max_seq_length ({self.max_seq_length})"
        self._check(rows, lengths <= self.max_seq_length, f"it has more than {limit} tokens")
        self._check(rows, b_start <= lengths, "segment_b_start is past its last token")
        self._check(rows, np.abs(label) <= 1, "next_sentence_label is not -1, 0 or 1")
        self._check(
            rows, counts == id_counts, "masked_lm_positions and masked_lm_ids differ in length"
        )
        return RowHeaders(
            rows=np.asarray(rows, np.int64),
            lengths=lengths,
            segment_b_start=b_start,
            next_sentence_label=label,
            masked_counts=counts,
            ids_at=ids_at,
            positions_at=positions_at,
            masked_ids_at=masked_ids_at,
        )

    def gather(self, rows: npt.NDArray[Any]) -> InstanceRows:
        """Return instances in the given order.

        Raises:
            InstanceDataError: An id is outside the vocabulary.
            ArtifactCorruptError: A row contradicts itself or the artifact's statistics.
        """
        return self.read(self.headers(rows))

    def read(self, headers: RowHeaders) -> InstanceRows:
        """Return the instances of these headers, like `gather`."""
        rows, lengths, counts = headers.rows, headers.lengths, headers.masked_counts
        masked = ranges(headers.positions_at, counts)
        instances = InstanceRows(
            headers,
            input_ids=np.take(self._shards.ids, ranges(headers.ids_at, lengths)),
            masked_positions=np.take(self._shards.uint16, masked),
            masked_ids=np.take(self._shards.ids, ranges(headers.masked_ids_at, counts)),
        )
        self._check_ids(rows, instances.input_ids, lengths)
        self._check_ids(rows, instances.masked_ids, counts)
        is_inside = instances.masked_positions < np.repeat(lengths, counts)
        if not is_inside.all():
            row = _row_of(int(np.argmin(is_inside)), counts)
            self._refuse(rows[row], "a masked_lm_position is past its last token")
        return instances

    def _lists(
        self, column: ListColumn, batch: Int64s, local: Int64s, rows: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Return the position and length of each row's list."""
        at = column.offsets[batch] + local
        start = self._shards.int32[at].astype(np.int64)
        length = self._shards.int32[at + 1] - start
        is_inside = (start >= 0) & (length >= 0) & (start + length <= column.size[batch])
        self._check(rows, is_inside, "a list is outside its record batch")
        return column.values[batch] + start, length

    def _check(self, rows: Int64s, is_right: Bools, problem: str) -> None:
        if not is_right.all():
            self._refuse(rows[int(np.argmin(is_right))], problem)

    def _refuse(self, row: int, problem: str) -> NoReturn:
        shard, local = self.locate(int(row))
        raise ArtifactCorruptError(
            f"shard {shard}, row {local}: {problem}. Rebuild the stage build-instances."
        )

    def _check_ids(self, rows: Int64s, ids: npt.NDArray[Any], counts: Int64s) -> None:
        if len(ids) and ids.max() >= self.vocab_size:
            first = int(np.argmax(ids >= self.vocab_size))
            shard, local = self.locate(int(rows[_row_of(first, counts)]))
            raise InstanceDataError(
                f"shard {shard}, row {local}: expected token ids below the vocabulary size "
                f"{self.vocab_size}, got token id {ids[first]}. Rebuild the stage build-instances "
                "with this vocabulary."
            )


def _row_of(position: int, counts: Int64s) -> int:
    """Return the row whose values include a position, given the number of values of each row."""
    return int(np.searchsorted(np.cumsum(counts), position, side="right"))


def _check_fit(data: StageInput, *, vocab_size: int, max_seq_length: int) -> None:
    """Check that the instances fit the model."""
    size, longest = (int(data.statistics[name]) for name in ("vocab_size", "max_seq_length"))
    if size != vocab_size:
        raise InstanceDataError(
            f"the instances {data.artifact_id} have a vocabulary of {size:,} tokens, the model one "
            f"of {vocab_size:,}. Build them with the vocabulary of the model."
        )
    if longest > max_seq_length:
        raise InstanceDataError(
            f"the instances {data.artifact_id} have up to {longest} tokens, the model has "
            f"positions for {max_seq_length}. Build shorter instances, or raise "
            "max_position_embeddings of the model."
        )
