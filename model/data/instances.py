"""Dataset of an artifact's instances: random access to memory-mapped shards.

The dataset keeps only the buffer offsets of each record batch: about 100 bytes per 8,192 instances,
or 5 MB for 400 million. A row's location is computed from them. A few NumPy operations gather the
rows of a batch from any shards, because the mapped files form one array. Every index is checked
against its buffer before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from model.data.mapped_shards import MappedShards
from model.data.shard_files import local_files
from pipelines.arrays import Int64s, offsets_of
from pipelines.instances.held_out import HELD_OUT_PREFIX
from schemas.errors import ArtifactCorruptError, InstanceDataError
from schemas.manifest import FileEntry, StageInput

Part = Literal["training", "held-out"]
_PREFIXES: dict[Part, str] = {"training": "part-", "held-out": HELD_OUT_PREFIX}


class RowHeaders(NamedTuple):
    """Properties of rows that are available without reading tokens; each field has the shape (n,).

    Attributes:
        rows: Numbers of the instances in their set, int64.
        lengths: Number of tokens, including [CLS] and [SEP], int64.
        segment_b_start: Position of B's first token; the length without B, int64.
        next_sentence_label: 0 next, 1 random, -1 without B, int64.
        masked_counts: Number of masked tokens, int64.
        ids_at, positions_at, masked_ids_at: Offsets of the lists in the mapped files, int64.
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
        rows: Numbers of the instances in their set, int64 of shape (n,).
        input_ids: Stored ids, with the stage's masks; unsigned, shape (tokens,).
        offsets: Offsets into input_ids, int64 of shape (n + 1,).
        segment_b_start: Position of B's first token; the length without B; int64 of shape (n,).
        masked_positions: Positions of the masked tokens in their instances, ascending.
        masked_ids: Ids before masking; type of input_ids, shape of masked_positions.
        masked_offsets: Offsets into the two fields above, int64 of shape (n + 1,).
        next_sentence_label: 0 next, 1 random, -1 without B; int64 of shape (n,).
    """

    rows: Int64s
    input_ids: npt.NDArray[Any]
    offsets: Int64s
    segment_b_start: Int64s
    masked_positions: npt.NDArray[np.uint16]
    masked_ids: npt.NDArray[Any]
    masked_offsets: Int64s
    next_sentence_label: Int64s

    def part(self, begin: int, end: int) -> InstanceRows:
        """Return instances begin .. end-1 as views."""
        tokens = slice(self.offsets[begin], self.offsets[end])
        masked = slice(self.masked_offsets[begin], self.masked_offsets[end])
        return InstanceRows(
            rows=self.rows[begin:end],
            input_ids=self.input_ids[tokens],
            offsets=self.offsets[begin : end + 1] - tokens.start,
            segment_b_start=self.segment_b_start[begin:end],
            masked_positions=self.masked_positions[masked],
            masked_ids=self.masked_ids[masked],
            masked_offsets=self.masked_offsets[begin : end + 1] - masked.start,
            next_sentence_label=self.next_sentence_label[begin:end],
        )


class InstanceSet:
    """Instances of one part of an artifact, numbered by shard name and row.

    Attributes:
        vocab_size: Exclusive upper bound of the ids.
        max_seq_length: Maximum length of the artifact's instances.
        tokens: Total number of tokens, including [CLS] and [SEP].
    """

    def __init__(
        self, files: Sequence[Path], entries: Sequence[FileEntry], *, statistics: dict[str, Any]
    ) -> None:
        """Map files that `InstanceSet.open` has verified."""
        self.vocab_size = int(statistics["vocab_size"])
        self.max_seq_length = int(statistics["max_seq_length"])
        self._entries = tuple(entries)
        self._shards = MappedShards(files, entries, vocab_size=self.vocab_size)
        self.tokens = self._count_tokens()
        self._too_long = f"it has more than max_seq_length ({self.max_seq_length}) tokens"

    @classmethod
    def open(
        cls,
        data: StageInput,
        *,
        vocab_size: int,
        max_seq_length: int,
        part: Part = "training",
        verify: bool = True,
    ) -> Self:
        """Check an artifact of `build-instances` and map its shards.

        Args:
            data: Artifact; remote shards are copied to the cache folder first.
            vocab_size: Vocabulary size of the model.
            max_seq_length: Number of positions of the model.
            part: Training or held-out instances.
            verify: Compare the sha256 of every shard with the manifest, which reads all shards.

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
        if not sum(entry.rows or 0 for entry in entries):
            hint = (
                "set build_instances.NAME.held_out_fraction above 0 and rebuild the stage"
                if part == "held-out"
                else "the corpus may be too small, or every document too short"
            )
            raise InstanceDataError(
                f"the artifact {data.artifact_id} has no {part} instances: expected files "
                f"{prefix}*.arrow with rows, found {len(entries)} files with none; {hint}"
            )
        files = local_files(data, entries, verify=verify)
        return cls(files, entries, statistics=data.statistics)

    def __len__(self) -> int:
        """Number of instances."""
        return int(self._shards.first_rows[-1])

    def place(self, row: int) -> tuple[str, int]:
        """Return the manifest name of an instance's shard, and its row in the shard."""
        if not 0 <= row < len(self):
            raise IndexError(f"expected a row of 0 to {len(self) - 1}, found {row}")
        shard = int(np.searchsorted(self._shards.first_rows, row, side="right")) - 1
        return self._entries[shard].path, row - int(self._shards.first_rows[shard])

    def lengths(self, rows: npt.NDArray[Any]) -> Int64s:
        """Return the lengths of instances, including [CLS] and [SEP]; int64 of shape (n,)."""
        batch, local = self._locate(rows)
        batches = self._shards.batches
        start, length = self._list_bounds(batches.ids_offsets_at[batch] + local, rows)
        self._check_lists(rows, start, length, batches.ids_size[batch])
        self._check(rows, length <= self.max_seq_length, self._too_long)
        return length

    def headers(self, rows: npt.NDArray[Any]) -> RowHeaders:
        """Return the headers of instances, without reading tokens.

        Raises:
            ArtifactCorruptError: A row contradicts itself or the artifact's statistics.
        """
        batch, local = self._locate(rows)
        batches = self._shards.batches
        shards = self._shards
        ids, length = self._list_bounds(batches.ids_offsets_at[batch] + local, rows)
        positions, count = self._list_bounds(batches.positions_offsets_at[batch] + local, rows)
        masked, masked_count = self._list_bounds(batches.masked_offsets_at[batch] + local, rows)
        self._check_lists(rows, ids, length, batches.ids_size[batch])
        self._check_lists(rows, positions, count, batches.positions_size[batch])
        self._check_lists(rows, masked, masked_count, batches.masked_size[batch])
        b_at, label_at = batches.segment_b_start_at[batch], batches.next_sentence_label_at[batch]
        b_start = shards.numbers(shards.uint16, b_at + local, rows=rows).astype(np.int64)
        label = shards.numbers(shards.int8, label_at + local, rows=rows).astype(np.int64)
        self._check(rows, length >= 1, "it has no token")
        self._check(rows, length <= self.max_seq_length, self._too_long)
        self._check(rows, b_start <= length, "segment_b_start is past its last token")
        self._check(rows, np.abs(label) <= 1, "next_sentence_label is not -1, 0 or 1")
        self._check(
            rows, count == masked_count, "masked_lm_positions and masked_lm_ids differ in length"
        )
        return RowHeaders(
            rows=np.asarray(rows, np.int64),
            lengths=length,
            segment_b_start=b_start,
            next_sentence_label=label,
            masked_counts=count,
            ids_at=batches.ids_at[batch] + ids,
            positions_at=batches.positions_at[batch] + positions,
            masked_ids_at=batches.masked_at[batch] + masked,
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
        lengths, counts = headers.lengths, headers.masked_counts
        offsets, masked_offsets = offsets_of(lengths), offsets_of(counts)
        shards, rows = self._shards, headers.rows
        ids = shards.lists(shards.ids, headers.ids_at, lengths=lengths, rows=rows)
        positions = shards.lists(shards.uint16, headers.positions_at, lengths=counts, rows=rows)
        masked_ids = shards.lists(shards.ids, headers.masked_ids_at, lengths=counts, rows=rows)
        self._check_ids(headers.rows, ids, offsets)
        self._check_ids(headers.rows, masked_ids, masked_offsets)
        outside = np.flatnonzero(positions >= np.repeat(lengths, counts))
        if len(outside):
            row = int(np.searchsorted(masked_offsets, outside[0], side="right")) - 1
            self._refuse(headers.rows[row], "a masked_lm_position is past its last token")
        return InstanceRows(
            rows=headers.rows,
            input_ids=ids,
            offsets=offsets,
            segment_b_start=headers.segment_b_start,
            masked_positions=positions,
            masked_ids=masked_ids,
            masked_offsets=masked_offsets,
            next_sentence_label=headers.next_sentence_label,
        )

    def _locate(self, rows: npt.NDArray[Any]) -> tuple[Int64s, Int64s]:
        """Return the record batch of each row, and its index in the batch."""
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise IndexError(f"expected rows of 0 to {len(self) - 1}, found others among them")
        first_row = self._shards.batches.first_row
        batch = np.searchsorted(first_row, rows, side="right") - 1
        return batch, rows - first_row[batch]

    def _list_bounds(self, at: Int64s, rows: npt.NDArray[Any]) -> tuple[Int64s, Int64s]:
        """Return each list's start in its buffer and its length; `at` locates its offset."""
        offsets = self._shards.int32
        start = self._shards.numbers(offsets, at, rows=rows).astype(np.int64)
        return start, self._shards.numbers(offsets, at + 1, rows=rows) - start

    def _count_tokens(self) -> int:
        stated = [entry.statistics.get("tokens") for entry in self._entries]
        if all(isinstance(tokens, int) for tokens in stated):
            return sum(int(tokens) for tokens in stated if tokens is not None)
        batches = self._shards.batches
        rows = np.diff(np.append(batches.first_row, len(self)))
        begins, ends = (
            self._shards.numbers(self._shards.int32, at, rows=batches.first_row).astype(np.int64)
            for at in (batches.ids_offsets_at, batches.ids_offsets_at + rows)
        )
        return int((ends - begins).sum())

    def _check_lists(self, rows: Int64s, start: Int64s, length: Int64s, size: Int64s) -> None:
        inside = (start >= 0) & (length >= 0) & (start + length <= size)
        self._check(rows, inside, "a list lies outside its record batch")

    def _check(self, rows: Int64s, is_right: npt.NDArray[np.bool_], problem: str) -> None:
        if not is_right.all():
            self._refuse(rows[int(np.argmin(is_right))], problem)

    def _refuse(self, row: int, problem: str) -> None:
        shard, place = self.place(int(row))
        raise ArtifactCorruptError(
            f"shard {shard}, row {place}: {problem}. The artifact contradicts itself; rebuild the "
            "stage build-instances."
        )

    def _check_ids(self, rows: Int64s, ids: npt.NDArray[Any], offsets: Int64s) -> None:
        if len(ids) and ids.max() >= self.vocab_size:
            at = int(np.argmax(ids >= self.vocab_size))
            row = int(np.searchsorted(offsets, at, side="right")) - 1
            shard, place = self.place(int(rows[row]))
            raise InstanceDataError(
                f"shard {shard}, row {place}: token id {ids[at]}, expected ids below "
                f"{self.vocab_size}, the size of the vocabulary. The shard was made with another "
                "vocabulary; rebuild the stage build-instances"
            )


def _check_fit(data: StageInput, *, vocab_size: int, max_seq_length: int) -> None:
    found = {name: data.statistics.get(name) for name in ("vocab_size", "max_seq_length")}
    if not all(isinstance(value, int) for value in found.values()):
        raise InstanceDataError(
            f"the artifact {data.artifact_id} is not one of build-instances: expected the "
            f"statistics vocab_size and max_seq_length, found {sorted(data.statistics)}"
        )
    if found["vocab_size"] != vocab_size:
        raise InstanceDataError(
            f"the instances {data.artifact_id} have a vocabulary of {found['vocab_size']:,} "
            f"pieces, the model one of {vocab_size:,}: build them with the model's vocabulary"
        )
    if int(found["max_seq_length"] or 0) > max_seq_length:
        raise InstanceDataError(
            f"the instances {data.artifact_id} have up to {found['max_seq_length']} tokens, the "
            f"model has positions for {max_seq_length}: build shorter instances, or give the model "
            "more max_position_embeddings"
        )
