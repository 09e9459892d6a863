"""The checksums of bzip2 streams whose blocks were read by several workers."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Sequence

from pipelines.beam.shard_work import WorkResult
from pipelines.counters import Counters
from pipelines.documents.plan import DocumentPiece
from pipelines.io.bzip2_blocks import StreamCrcPart, verify_stream_crcs
from schemas.corpus_configs import DocumentsConfig, WikipediaSource
from schemas.errors import CorruptInputError

_log = logging.getLogger(__name__)


def check_stream_parts(
    config: DocumentsConfig, pieces: Sequence[DocumentPiece], reports: Iterable[WorkResult]
) -> dict[int, Counters]:
    """Put the parts of each stream together, and count the streams that are not what they say.

    Args:
        config: of the stage.
        pieces: that were planned.
        reports: of them, in the same order.

    Returns:
        by the number of a piece, what is to be added to its counts.

    Raises:
        CorruptInputError: a stream is not what its checksum says, and `on_corrupt` is "fail".
    """
    sources = {source.name: source for source in config.sources}
    found = zip(pieces, reports, strict=True)
    more: dict[int, Counters] = {}
    for (name, file), group in itertools.groupby(
        found, key=lambda pair: (pair[0].split.source, pair[0].split.file)
    ):
        numbers, parts = list[int](), list[StreamCrcPart]()
        for piece, report in group:
            numbers.append(piece.number)
            parts += (StreamCrcPart(*part) for part in report.details[2])
        for damage in verify_stream_crcs(parts):
            source = sources[name]
            if not isinstance(source, WikipediaSource) or source.on_corrupt == "fail":
                raise CorruptInputError(
                    f"{file.uri}: {damage.reason}; noticed at byte {damage.offset:,} of "
                    f"{file.size:,}. Download it again, or set on_corrupt to keep-whole-pages",
                    file=file.uri,
                    offset=damage.offset,
                )
            _log.warning("%s, byte %d: %s", file.uri, damage.offset, damage.reason)
            for suffix in ("", f"@{name}"):
                more.setdefault(numbers[-1], Counters()).count(f"streams-dropped-corrupt{suffix}")
    return more
