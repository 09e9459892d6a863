"""Sample rows of an artifact, decoded, and the source text of each."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.text import Text

from flows.lineage.preview import head
from flows.lineage.row_trace import DocumentTrace, trace_row
from flows.lineage.shards import LINES, Shard, at_row
from flows.store.artifact import StoredArtifact
from schemas.errors import BertloomError
from schemas.redaction import redact

_MAX_ROWS, _MAX_LINES = 3, 20
_MAX_CHARACTERS = 4_000
"""Characters of a row that are shown."""

_MAX_SOURCE, _MAX_BEFORE = 2_400, 150
"""Characters of a source text that are shown, and how many of them come before the row's own."""

_MARGIN = 1_000
"""Characters around the shown ones that are redacted with them: a secret can be cut in two."""

_MAX_RAW_BYTES = 32 << 20
_TRACED = ("documents", "tokens", "instances")
_NUM_WORDS = 6
"""Words of a sentence that are searched in the source text, whose markup differs."""

Runs = list[tuple[str, str]]
"""Text of one line in pieces of one style: style as `flows.lineage.preview` names it, text."""


class SourceText(NamedTuple):
    """Source text of a row, or of one segment of it."""

    name: str
    """`document`, `a` or `b`."""

    trace: DocumentTrace
    text: str
    note: str
    """Amount of text that is not shown, or the reason why no text is shown."""


class RowSample(NamedTuple):
    """Row of a shard, or the first lines of a text file."""

    name: str
    lines: Sequence[Runs] = ()
    sources: Sequence[SourceText] = ()
    problem: str = ""
    """Why the row or its source cannot be read."""


def read_row_samples(artifact: StoredArtifact) -> list[RowSample]:
    """Return sample rows of an artifact; none if it has no rows or lines of text."""
    return [_read_sample(shard, row) for shard, row in _positions(artifact)]


def _positions(artifact: StoredArtifact) -> Iterator[tuple[Shard, int]]:
    """Yield the first rows of shards that are spread over the artifact."""
    shards = [entry for entry in artifact.manifest.shards if entry.rows]
    if not shards and artifact.files:
        shard, row = at_row(Shard("", artifact), 0)
        if shard.path.endswith((".arrow", *LINES)):
            yield shard, row
    taken = Counter[str]()
    for number in range(_MAX_ROWS if shards else 0):
        entry = shards[number * len(shards) // _MAX_ROWS]
        if (row := taken[entry.path]) < (entry.rows or 0):
            yield Shard(entry.path, artifact), row
        taken[entry.path] += 1


def _read_sample(shard: Shard, row: int) -> RowSample:
    is_lines = shard.path.endswith(LINES)
    name = shard.path if is_lines else f"{shard.path} row {row:,}"
    try:
        _, *lines = head(shard, rows=_MAX_LINES if is_lines else 1, start=row)
        sample = RowSample(name, _cut(_split(line) for line in lines if line.plain))
        if shard.artifact is not None and shard.artifact.manifest.table_name in _TRACED:
            trace = trace_row(shard, row, raw=True, max_raw_bytes=_MAX_RAW_BYTES)
            sources = [_source(name, document) for name, document in trace.segments.items()]
            return sample._replace(sources=sources)
    except (BertloomError, OSError, ValueError, LookupError) as error:  # a damaged file
        return RowSample(name, problem=f"{type(error).__name__}: {error}")
    return sample


def _split(line: Text) -> Runs:
    """Return the pieces of a line."""
    styles = [str(line.style)] * len(line.plain)
    for span in line.spans:
        styles[span.start : span.end] = [str(span.style)] * (span.end - span.start)
    letters = zip(styles, line.plain, strict=True)
    return [
        (style, "".join(letter for _, letter in group))
        for style, group in itertools.groupby(letters, key=lambda letter: letter[0])
    ]


def _cut(lines: Iterator[Runs]) -> list[Runs]:
    """Return redacted lines up to a number of characters."""
    left, shown = _MAX_CHARACTERS, list[Runs]()
    for line in lines:
        runs: Runs = []
        for style, text in line:
            redacted = redact(text)
            runs.append((style, redacted if len(redacted) <= left else f"{redacted[:left]} ..."))
            left -= len(redacted)
            if left <= 0:
                return [*shown, runs]
        shown.append(runs)
    return shown


def _source(name: str, trace: DocumentTrace) -> SourceText:
    raw = trace.raw
    if raw is None or not raw.text:
        return SourceText(name, trace, "", raw.problem if raw is not None else "")
    lines = "\n".join(raw.text.splitlines())
    position = _find_words(lines, trace.text[0]) if trace.text else 0
    start = position - _MAX_BEFORE if position > 2 * _MAX_BEFORE else 0
    start = max(start, lines.find("\n", start, position) + 1) if start else 0  # a whole line
    first = max(0, start - _MARGIN)
    text = redact(lines[first : start + _MAX_SOURCE + _MARGIN])
    shown = text[start - first :][:_MAX_SOURCE]
    hidden = {"before": start, "after": max(0, len(lines) - start - _MAX_SOURCE)}
    note = ", ".join(f"{number:,} characters {side}" for side, number in hidden.items() if number)
    return SourceText(name, trace, shown, note)


def _find_words(text: str, sentence: str) -> int:
    """Return where the first words of a sentence are in a text, 0 if they are not."""
    words = re.findall(r"\w+", sentence)[:_NUM_WORDS]
    match = re.search(r"\W+".join(map(re.escape, words)), text) if words else None
    return match.start() if match else 0
