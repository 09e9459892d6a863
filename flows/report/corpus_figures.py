"""Histograms of a corpus: how long documents, sentences and instances are.

Only the columns that tell lengths are read, of a bounded number of shards and rows, spread evenly.
Local shards are mapped, so that of instances nothing but the offsets is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flows.report.drawing import GRID, INK, SERIES, draw_panel, number_text
from flows.report.kept_figures import Figure, Panel
from flows.show import shards
from flows.store.artifacts import ArtifactStore
from schemas.errors import ArtifactCorruptError
from schemas.manifest import FileEntry, Manifest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.axes import Axes

    Numbers = npt.NDArray[np.int64]

MAX_SHARDS = 8
MAX_ROWS = 200_000
_BINS = 40
_FETCHED_WHOLE = 16 << 20  # bytes of a remote shard up to which one request costs less than several
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
    sample = read_token_lengths(store, manifest)
    lengths = sample.lengths
    panels = (
        _histogram("Tokens per document", lengths["documents"], name=f"{name}-a", is_log=True),
        _histogram("Sentences per document", lengths["sentences"], name=f"{name}-b", is_log=True),
        _histogram("Tokens per sentence", lengths["words"], name=f"{name}-c"),
    )
    return Figure(panels=panels, note=sample.looked_at)


def instance_figure(
    store: ArtifactStore, manifests: Sequence[tuple[str, Manifest]], *, name: str
) -> Figure:
    """Tokens per instance, a panel for each artifact of instances.

    Raises:
        ArtifactCorruptError, OSError, ValueError: a shard is missing or damaged.
    """
    panels, notes = [], []
    for number, (label, manifest) in enumerate(manifests):
        title = label.partition(".")[2] or label
        sample = read_instance_lengths(store, manifest)
        panels.append(
            _histogram(
                f"Tokens per instance, {title}",
                sample.lengths["instances"],
                name=f"{name}-{number}",
                top=int(manifest.statistics.get("max_seq_length", 0)),
            )
        )
        notes.append(f"{title}: {sample.looked_at}")
    return Figure(panels=tuple(panels), note=" ".join(notes))


def read_token_lengths(store: ArtifactStore, manifest: Manifest) -> Sample:
    """Lengths of `documents` (tokens), `sentences` (per document) and `words` (per sentence)."""
    import numpy as np

    documents, sentences, words = [], [], []
    looked = _Looked(manifest, "documents")
    for column in looked.columns(store, "sentence_lengths"):
        values = _values(column)
        ends = np.concatenate([[0], np.cumsum(values)])
        starts = np.asarray(column.offsets, dtype=np.int64) - column.offsets[0].as_py()
        documents.append(ends[starts[1:]] - ends[starts[:-1]])
        sentences.append(np.diff(starts))
        words.append(values)
    return Sample(
        {"documents": _joined(documents), "sentences": _joined(sentences), "words": _joined(words)},
        looked.sentence,
    )


def read_instance_lengths(store: ArtifactStore, manifest: Manifest) -> Sample:
    """Tokens of `instances`, with their special tokens."""
    import numpy as np

    looked = _Looked(manifest, "instances")
    found = []
    for column in looked.columns(store, "input_ids"):
        offsets: Numbers = np.asarray(column.offsets, dtype=np.int64)
        found.append(offsets[1:] - offsets[:-1])
    return Sample({"instances": _joined(found)}, looked.sentence)


class _Looked:
    """Goes through an artifact's shards and counts what it looks at."""

    def __init__(self, manifest: Manifest, things: str) -> None:
        self._manifest, self._things = manifest, things
        everything = [entry for entry in shards(manifest) if entry.rows]
        self._all = everything
        step = max(1, len(everything) / MAX_SHARDS)
        self._chosen = [everything[int(n * step)] for n in range(min(MAX_SHARDS, len(everything)))]
        self._rows = 0

    def columns(self, store: ArtifactStore, field: str) -> Iterator[Any]:
        """The list column of every record batch that is looked at."""
        if not self._chosen:
            raise ArtifactCorruptError(
                f"{self._manifest.path}: found no shard with rows of {self._things}"
            )
        limit = MAX_ROWS // len(self._chosen)
        for entry in self._chosen:
            seen = 0
            for column in _batches(store, self._manifest, entry, field):
                part = column[: limit - seen]
                seen += len(part)
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
    store: ArtifactStore, manifest: Manifest, entry: FileEntry, field: str
) -> Iterator[Any]:
    import pyarrow as pa

    path = f"{manifest.data}/{entry.object}"
    if store.backend.is_local:
        opened = pa.memory_map(store.url(path))
    elif entry.size <= _FETCHED_WHOLE:
        opened = pa.BufferReader(store.backend.read(path))
    else:
        opened = store.backend.open(path)
    with (
        opened as source,
        pa.ipc.open_file(source) as reader,
    ):
        place = reader.schema.get_field_index(field)
        if place < 0:
            raise ArtifactCorruptError(
                f"{store.url(path)}: expected a table with the column {field!r}, found "
                f"{', '.join(reader.schema.names)}"
            )
        source.seek(0)
        chosen = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=[place]))
        for number in range(chosen.num_record_batches):
            yield chosen.get_batch(number).column(0)


def _values(column: Any) -> Numbers:
    import numpy as np

    return np.asarray(column.flatten(), dtype=np.int64)


def _joined(parts: Sequence[Numbers]) -> Numbers:
    import numpy as np

    return np.concatenate(parts)


def _histogram(
    title: str, lengths: Numbers, *, name: str, is_log: bool = False, top: int = 0
) -> Panel:
    import numpy as np

    middle, most = float(np.median(lengths)), int(lengths.max())
    note = (
        f"Median {middle:,.0f}, mean {lengths.mean():,.1f}, nine of ten up to "
        f"{np.percentile(lengths, 90):,.0f}, longest {most:,}."
    )
    edges = _edges(lengths, is_log=is_log, top=top)
    shown = np.clip(lengths, edges[0], edges[-1])  # the last bar holds what lies beyond
    shares = 100 * np.histogram(shown, edges)[0] / len(lengths)
    if edges[-1] < most:
        note += f" The last bar holds those above {edges[-1]:,.0f}."

    def draw(axes: Axes) -> None:
        if is_log:
            axes.set_xscale("log")
        if top:  # nearly all are as long as they may be: the others would not be seen
            axes.set_yscale("log", nonpositive="clip")
            axes.set_ylim(min(0.1, shares[shares > 0].min() / 2), 160)
        axes.bar(edges[:-1], shares, np.diff(edges) * 0.92, align="edge", color=SERIES[0], lw=0)
        axes.axvline(middle, color=INK, linewidth=1.2, linestyle=(0, (3, 2)))
        axes.set_ylabel("% of all (log)" if top else "% of all")
        axes.grid(axis="y", color=GRID, linewidth=0.7)
        axes.xaxis.set_major_formatter(lambda value, _: number_text(value))
        axes.xaxis.set_minor_formatter(lambda _value, _: "")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda _value, _: "")
        axes.tick_params(which="minor", length=0)
        axes.set_xlim(edges[0], edges[-1])

    svg = draw_panel(draw, name=name, title=title, description=f"Histogram. {note}")
    return Panel(title=title, note=note, svg=svg)


def _edges(lengths: Numbers, *, is_log: bool, top: int) -> npt.NDArray[np.float64]:
    import numpy as np

    low, high = max(1, int(lengths.min())), int(lengths.max())
    if is_log and high > 20 * low:
        # Whole numbers alone: bars between them would stand empty.
        return np.unique(np.round(np.geomspace(low, high + 1, _BINS + 1)))
    end = top or max(int(np.percentile(lengths, _TAIL)), low + 1)
    width = max(1, -(-end // _BINS))
    return np.arange(low if is_log else 0, end + 2 * width, width, dtype=np.float64)
