"""How long documents, sentences and instances are: histograms.

Only the columns that tell lengths are read, of a bounded number of shards and rows, spread evenly.
Local shards are mapped, so that only offsets and labels of instances are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flows.lineage.rows import open_columns
from flows.report.drawing import Axis, Plot
from flows.report.figures import Figure, Panel
from flows.report.steps import Built
from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactCorruptError
from schemas.manifest import FileEntry, Manifest

Numbers = npt.NDArray[np.int64]

MAX_SHARDS = 8
MAX_ROWS = 200_000
_BINS = 40
_GUESS_BUCKETS = 64
_TAIL = 99.5  # percentile at which the linear histogram of sentences ends


class Sample(NamedTuple):
    """Lengths by what they are of, and how much of the artifact was looked at."""

    lengths: dict[str, Numbers]
    looked_at: str


def token_figure(store: ArtifactStore, manifest: Manifest, *, name: str) -> Figure:
    """Document length in tokens, sentences per document, tokens per sentence.

    Raises:
        ArtifactCorruptError, OSError, ValueError: a shard is missing or damaged.
    """
    lengths, looked_at = read_token_lengths(store, manifest)
    panels = (
        _histogram("Tokens per document", lengths["documents"], name=f"{name}-a", is_log=True),
        _histogram("Sentences per document", lengths["sentences"], name=f"{name}-b", is_log=True),
        _histogram("Tokens per sentence", lengths["words"], name=f"{name}-c"),
    )
    return Figure(panels=panels, note=looked_at)


def instance_figure(store: ArtifactStore, instances: Sequence[Built], *, name: str) -> Figure:
    """Tokens per instance, a panel for each artifact of instances.

    Raises:
        ArtifactCorruptError, OSError, ValueError: a shard is missing or damaged.
    """
    panels, notes = [], []
    for number, built in enumerate(instances):
        lengths, looked_at = read_instance_lengths(store, built.manifest)
        title = f"Tokens per instance, {built.name}"
        longest = int(built.statistics.get("max_seq_length", 0))
        own_name = f"{name}-{number}"
        panel = _histogram(title, lengths["instances"], name=own_name, longest=longest)
        accuracy = length_guess_accuracy(
            lengths["instances"], lengths["labels"], max_seq_length=longest
        )
        if accuracy is not None:
            note = f" Best guess of a pair's label from its length alone: accuracy {accuracy:.3f}."
            panel = panel.model_copy(update={"note": panel.note + note})
        panels.append(panel)
        notes.append(f"{built.name}: {looked_at}")
    return Figure(panels=tuple(panels), note=" ".join(notes))


def read_token_lengths(store: ArtifactStore, manifest: Manifest) -> Sample:
    """Lengths of `documents` (tokens), `sentences` (per document) and `words` (per sentence)."""
    found: dict[str, list[Numbers]] = {"documents": [], "sentences": [], "words": []}
    looked = _Looked(manifest, "documents")
    for batch in looked.batches(store, "sentence_lengths"):
        column = batch.column("sentence_lengths")
        values = np.asarray(column.flatten(), dtype=np.int64)
        offsets = np.asarray(column.offsets, dtype=np.int64) - column.offsets[0].as_py()
        ends = np.concatenate([[0], np.cumsum(values)])
        found["documents"].append(np.diff(ends[offsets]))
        found["sentences"].append(np.diff(offsets))
        found["words"].append(values)
    lengths = {things: np.concatenate(parts) for things, parts in found.items()}
    return Sample(lengths, looked.sentence)


def read_instance_lengths(store: ArtifactStore, manifest: Manifest) -> Sample:
    """Return the tokens of `instances`, with their special tokens, and their `labels`."""
    looked = _Looked(manifest, "instances")
    found: dict[str, list[Numbers]] = {"instances": [], "labels": []}
    for batch in looked.batches(store, "input_ids", "next_sentence_label"):
        offsets = np.asarray(batch.column("input_ids").offsets, dtype=np.int64)
        found["instances"].append(np.diff(offsets))
        found["labels"].append(np.asarray(batch.column("next_sentence_label"), dtype=np.int64))
    lengths = {things: np.concatenate(parts) for things, parts in found.items()}
    return Sample(lengths, looked.sentence)


def length_guess_accuracy(
    lengths: Numbers, labels: Numbers, *, max_seq_length: int
) -> float | None:
    """Return the accuracy of the best guess of next-sentence labels from the length alone.

    The guess is the label that most pairs of the same length have. It is learned from every second
    pair and measured on the others, and the other way round, so that the accuracy of labels that
    do not depend on the length is 0.5 however few pairs there are. Lengths are counted in 64 equal
    buckets, and full pairs in one more. A tie counts half.

    Args:
        lengths: Number of tokens of each instance.
        labels: `next_sentence_label` of each instance. Instances without a B are not counted.
        max_seq_length: Length of a full instance.

    Returns:
        A value from 0 to 1, or None if there is no pair.
    """
    pairs = np.flatnonzero(labels >= 0)
    if not len(pairs):
        return None
    buckets = lengths[pairs] * _GUESS_BUCKETS // max_seq_length
    signs = 2 * labels[pairs] - 1
    correct = 0.0
    for learned, measured in ((0, 1), (1, 0)):
        sums = np.bincount(buckets[learned::2], signs[learned::2], minlength=buckets.max() + 1)
        guesses = np.sign(sums)[buckets[measured::2]]
        correct += float((1 + guesses * signs[measured::2]).sum()) / 2
    return correct / len(pairs)


class _Looked:
    """Goes through an artifact's shards and counts what it looks at."""

    def __init__(self, manifest: Manifest, things: str) -> None:
        self._manifest, self._things, self._rows = manifest, things, 0
        self._all = [entry for entry in manifest.shards if entry.rows]
        step = max(1, len(self._all) / MAX_SHARDS)
        self._chosen = [self._all[int(n * step)] for n in range(min(MAX_SHARDS, len(self._all)))]

    def batches(self, store: ArtifactStore, *fields: str) -> Iterator[pa.RecordBatch]:
        """Yield these columns of every record batch that is looked at."""
        if not self._chosen:
            raise ArtifactCorruptError(
                f"{self._manifest.path}: found no shard with rows of {self._things}"
            )
        limit = MAX_ROWS // len(self._chosen)
        for entry in self._chosen:
            seen = 0
            for batch in _batches(store, self._manifest, entry, fields):
                part = batch.slice(0, limit - seen)
                seen += part.num_rows
                yield part
                if seen >= limit:
                    break
            self._rows += seen

    @property
    def sentence(self) -> str:
        """How much was looked at, for a reader."""
        total = sum(entry.rows or 0 for entry in self._all)
        if self._rows == total:
            return f"All {total:,} {self._things} were looked at."
        return (
            f"{self._rows:,} of {total:,} {self._things} were looked at, from "
            f"{len(self._chosen):,} of {len(self._all):,} shards."
        )


def _batches(
    store: ArtifactStore, manifest: Manifest, entry: FileEntry, fields: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    url = store.url(f"{manifest.data}/{entry.object}")
    with open_columns(url, columns=fields) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def _histogram(
    title: str, lengths: Numbers, *, name: str, is_log: bool = False, longest: int = 0
) -> Panel:
    """Shares of all, over logarithmic lengths or, of instances of a longest length, linear ones."""
    middle, most = float(np.median(lengths)), int(lengths.max())
    note = (
        f"Median {middle:,.0f}, mean {lengths.mean():,.1f}, nine of ten up to "
        f"{np.percentile(lengths, 90):,.0f}, longest {most:,}."
    )
    edges = _edges(lengths, is_log=is_log, longest=longest)
    shown = np.clip(lengths, edges[0], edges[-1])  # the last bar holds what lies beyond
    shares = 100 * np.histogram(shown, edges)[0] / len(lengths)
    if edges[-1] < most:
        note += f" The last bar holds those above {edges[-1]:,.0f}."
    if longest:  # nearly all are as long as they may be: the others would not be seen
        least = min(0.1, float(shares[shares > 0].min()) / 2)
        heights = Axis(low=least, high=160, label="% of all (log)", is_log=True)
    else:
        heights = Axis(low=0, high=1.05 * float(shares.max()), label="% of all")
    plot = Plot(Axis(low=float(edges[0]), high=float(edges[-1]), is_log=is_log), heights)
    plot.bars(edges.tolist(), shares.tolist(), look="series-1")
    plot.upright(middle, look="dashed")
    svg = plot.svg(name=name, title=title, description=f"Histogram. {note}")
    return Panel(title=title, note=note, svg=svg)


def _edges(lengths: Numbers, *, is_log: bool, longest: int) -> npt.NDArray[np.float64]:
    low, high = max(1, int(lengths.min())), int(lengths.max())
    if is_log and high > 20 * low:
        # Whole numbers alone: bars between them would stand empty.
        return np.unique(np.round(np.geomspace(low, high + 1, _BINS + 1)))
    end = longest or max(int(np.percentile(lengths, _TAIL)), low + 1)
    width = max(1, -(-end // _BINS))
    return np.arange(low if is_log else 0, end + 2 * width, width, dtype=np.float64)
