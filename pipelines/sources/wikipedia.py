"""MediaWiki XML dumps: Wikipedia, Wikibooks and others.

A multistream (or pbzip2) file is split between bzip2 streams, one long stream between blocks, a
plain file anywhere; .gz, .zst and .7z are one split. A document is the cleaned text of the last
revision of a page.

Counters: `pages-in`, `pages-kept`, `pages-dropped-` malformed, namespace, not-wikitext, redirect,
empty or no-text-left; `xml-bytes` (decompressed) and `raw-bytes` (stored); if not 0,
`revisions-superseded` and `files-truncated`. Of the pages kept: `templates-unknown` (templates
within a sentence whose text is missing), `templates-dropped` (those that show no text, and
pronunciations in brackets), the most frequent ones of a split as
`template-unknown:NAME` and `template-dropped:NAME`. Text that is dropped within pages:
`sentences-dropped-` formula, code or unknown-template, and `characters-dropped-` the same or table,
list, heading, caption, reference, template or closing-section (`pipelines.mediawiki.dropped_text`).
"""

from __future__ import annotations

import bisect
import functools
import itertools
import json
import logging
import re
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from pipelines.counters import Count
from pipelines.io.checksums import is_checksum_list, published_checksums, verify_file
from pipelines.io.compression import Chunk, Compression, Damage, compression_of, decompressed
from pipelines.io.file_systems import SMALL_READ_AHEAD
from pipelines.io.raw_files import expand_paths, open_file, parallel_map
from pipelines.io.splits import RawText, SourceFile, Split, split_bytes
from pipelines.mediawiki.bzip2 import BlockRange, read_range, split_at_blocks
from pipelines.mediawiki.dumps import (
    Header,
    Page,
    iterate_pages,
    page_name,
    read_header,
    site_of_dump,
)
from pipelines.mediawiki.multistream import (
    StreamSearch,
    choose_starts,
    find_all_streams,
    has_long_stream,
    is_index,
    needs_search,
    remember_streams,
)
from schemas.corpus_configs import WikipediaSource
from schemas.errors import CorruptInputError, InputError, MissingInputError

# Wikimedia names a part `…-pages-articles1.xml-p1p41242.bz2`.
_DUMP = re.compile(r"\.xml(-p\d+p\d+)?(\.(bz2|gz|zst|7z))?$", re.IGNORECASE)
_SIGNATURE_LENGTH = 8
# Each split that ends at a block decompresses the block behind it, too, and so does its planning.
_MIN_BLOCK_SPLIT_BYTES = 4 << 20
_log = logging.getLogger(__name__)


class _Header(NamedTuple):
    """Facts of a dump, equal for all splits. Stored as JSON in `SourceFile.header`."""

    compression: Compression
    language: str
    """Language of the recipe, or of the header."""

    declared_language: str
    """Language of the header, or ""."""

    namespaces: dict[int, str]
    site: str
    """`https://HOST` of the wiki, or ""."""

    def to_json(self) -> str:
        return json.dumps(self._asdict(), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> _Header:
        stored = json.loads(text)
        names = {int(number): name for number, name in stored["namespaces"].items()}
        return cls(**stored | {"namespaces": names})


class _Detail(NamedTuple):
    """Facts of a split of a bzip2 file. Stored as JSON in `Split.detail`."""

    streams: Sequence[int] = ()
    """Offsets of bzip2 streams, from the last one before the split to the first one behind it, or
    the size of the file."""

    shift: int | None = None
    """Bit of the first byte in which a block begins; None for a stream or a file."""

    end_shift: int = 0
    """Bit of the byte after the last one in which the next split begins."""

    def to_json(self) -> str:
        return json.dumps(self._asdict(), sort_keys=True, separators=(",", ":"))


def plan(config: WikipediaSource) -> list[Split]:
    """Return the splits of all dumps, sorted by the digests of the files.

    Raises:
        MissingInputError: A path has no dump.
        ChecksumError: A dump does not match the checksum list in its folder.
        CorruptInputError: A dump has no complete header, or is shorter than its index.
        InputError: A file is not a MediaWiki dump.
    """
    files: dict[str, SourceFile] = {}
    for file in _describe(_find_dumps(config), config):
        same = files.setdefault(file.sha256, file)
        if same is not file:
            _log.warning("%s is the same as %s and is read once", file.uri, same.uri)
    ordered = [file for _, file in sorted(files.items())]
    target = split_bytes(config.target_split_bytes, ordered)
    planned = parallel_map(lambda file: _plan_file(file, config, target), ordered)
    return [split for splits in planned for split in splits]


def read(split: Split, config: WikipediaSource, count: Count) -> Iterator[tuple[str, RawText]]:
    """Yield the texts of the pages that begin in the split, in order.

    Raises:
        CorruptInputError: The file is damaged, or it is truncated or has an invalid page and
            `on_corrupt` is "fail".
    """
    # lazy: `plan` does not need them
    from pipelines.mediawiki.dropped_text import DroppedText
    from pipelines.mediawiki.pages import (
        clean_page,
        count_dropped,
        count_holes,
        count_names,
        drop_reason,
    )
    from pipelines.mediawiki.wikitext import UnknownTemplates, wiki_settings

    header = _Header.from_json(split.file.header)
    markup = wiki_settings(header.language, header.namespaces)
    count("raw-bytes", split.end - split.start)
    drop_sentences = config.on_unknown_template == "drop-sentence"
    holes = UnknownTemplates(drop_sentences=drop_sentences)
    dropped = DroppedText()
    last_whole: Page | None = None
    for item in _pages(split, header.compression, count, namespaces=config.namespaces):
        if isinstance(item, Damage):
            _take_damage(item, split, config, count, last_whole=last_whole)
            continue
        last_whole = item
        count("pages-in")
        if item.revisions > 1:
            count("revisions-superseded", item.revisions - 1)
        reason = drop_reason(item, namespaces=config.namespaces, names=header.namespaces)
        if reason:
            count(f"pages-dropped-{reason}")
            continue
        document = clean_page(item, markup, source=split.source, holes=holes, dropped=dropped)
        count_holes(holes, count)
        count_dropped(dropped, count)
        if document is None:
            count("pages-dropped-no-text-left")
            continue
        count("pages-kept")
        yield document
    count_names(holes, count)


def _find_dumps(config: WikipediaSource) -> list[tuple[str, str]]:
    def is_companion(name: str) -> bool:
        return is_index(name) or is_checksum_list(name)

    names = expand_paths(
        config.paths,
        suffixes=(".xml", ".xml.bz2", ".xml.gz", ".xml.zst", ".xml.7z"),
        selects=lambda name: _DUMP.search(name) is not None and not is_companion(name),
        is_companion=is_companion,
    )
    dumps = [(uri, name) for uri, name in names if not is_companion(name)]
    if not dumps:
        raise MissingInputError(
            f"{', '.join(config.paths)}: expected dumps, *.xml or *.xml.bz2, .gz, .zst or .7z, got "
            f"{', '.join(name for _, name in names)}. Correct the path"
        )
    return dumps


def _describe(files: list[tuple[str, str]], config: WikipediaSource) -> list[SourceFile]:
    uris = [uri for uri, _ in files]
    published = published_checksums(uris) if config.verify_checksums else {}

    def describe(dump: tuple[str, str]) -> SourceFile:
        uri, name = dump
        # The streams are found while the file is digested, so that it is read once.
        search = StreamSearch() if needs_search(uri, name=name) else None
        read_as, checksum = verify_file(
            uri, published.get(uri), on_bytes=search.feed if search else None
        )
        sha256 = read_as.digests["sha256"]
        if search is not None and search.position == read_as.size:
            remember_streams(sha256, search.offsets)
        return SourceFile(uri, name, read_as.size, sha256, checksum)

    return parallel_map(describe, files)


@functools.lru_cache(maxsize=1024)
def _plan_file(
    file: SourceFile, config: WikipediaSource, target_split_bytes: int
) -> tuple[Split, ...]:
    """Return the splits of a file. The cache key and the job share the result."""
    must_be_whole = config.on_corrupt == "fail"
    with open_file(file.uri, ahead=SMALL_READ_AHEAD) as source:
        compression = compression_of(source.read(_SIGNATURE_LENGTH), name=file.uri)
        stored = decompressed(source, compression, start=0, end=file.size)
        header = read_header(stored, where=file.uri)
    if isinstance(header, Damage):
        if must_be_whole or header.kind == "damaged":
            raise _corrupt(header, file, last_whole=None)
        header = Header()  # pages have a `<ns>`
    ranges = [BlockRange(0, file.size, None, 0)]
    streams: tuple[int, ...] = ()
    if compression == "bz2":
        streams = find_all_streams(
            file.uri,
            name=file.name,
            size=file.size,
            must_be_whole=must_be_whole,
            sha256=file.sha256,
        )
        block_bytes = target_split_bytes
        if config.target_split_bytes is None:
            block_bytes = max(target_split_bytes, _MIN_BLOCK_SPLIT_BYTES)
        ranges = _cut_bzip2(
            file, streams, target_split_bytes=target_split_bytes, block_bytes=block_bytes
        )
    elif compression == "plain":
        ranges = _cut_anywhere(file.size, target_split_bytes=target_split_bytes)
    facts = _Header(
        compression=compression,
        language=config.language or header.language or "en",
        declared_language=header.language,
        namespaces=dict(header.namespaces),
        site=header.site or site_of_dump(file.name),
    )
    described = file._replace(header=facts.to_json())
    return tuple(
        Split(
            source=config.name,
            file=described,
            start=part.start,
            end=part.end,
            detail=_Detail(
                _around((*streams, file.size), part), part.shift, part.end_shift
            ).to_json(),
        )
        for part in ranges
    )


def _around(streams: tuple[int, ...], part: BlockRange) -> tuple[int, ...]:
    """Return the offsets from the last one before a range to the first one behind it."""
    first = max(0, bisect.bisect_right(streams, part.start) - 1)
    return streams[first : bisect.bisect_left(streams, part.end) + 1]


def _cut_bzip2(
    file: SourceFile, streams: tuple[int, ...], *, target_split_bytes: int, block_bytes: int
) -> list[BlockRange]:
    by_blocks = has_long_stream(streams, size=file.size)
    starts: list[tuple[int, int | None]] = []
    for start, end in choose_starts(
        file.uri, streams=streams, size=file.size, target_split_bytes=target_split_bytes
    ):
        starts.append((start, None))
        if by_blocks:
            starts += split_at_blocks(file, start=start, end=end, target_split_bytes=block_bytes)
    return _ranges(starts, size=file.size)


def _cut_anywhere(size: int, *, target_split_bytes: int) -> list[BlockRange]:
    # The last range is never short: it must contain the complete last tag.
    starts = [0, *range(target_split_bytes, size - target_split_bytes // 2, target_split_bytes)]
    return _ranges([(start, None) for start in starts], size=size)


def _ranges(starts: list[tuple[int, int | None]], *, size: int) -> list[BlockRange]:
    """Return the ranges between bytes, or between blocks at bits of bytes."""
    return [
        BlockRange(start, end, shift, end_shift or 0)
        for (start, shift), (end, end_shift) in itertools.pairwise([*starts, (size, None)])
    ]


def _pages(
    split: Split, compression: Compression, count: Count, *, namespaces: Container[int]
) -> Iterator[Page | Damage]:
    detail = _Detail(**json.loads(split.detail))
    with open_file(split.file.uri) as source:
        if compression == "bz2":
            part = BlockRange(split.start, split.end, detail.shift, detail.end_shift)
            stored = read_range(source, part, streams=detail.streams)
        else:
            stored = decompressed(source, compression, start=split.start, end=split.end)
        yield from iterate_pages(
            _counted(stored, count=count),
            end=split.end,
            at_start=split.start == 0,
            at_end=split.end >= split.file.size,
            namespaces=namespaces,
        )


def _counted(stored: Iterator[Chunk | Damage], *, count: Count) -> Iterator[Chunk | Damage]:
    for chunk in stored:
        # The next split counts bytes after the end, which belong to the last page.
        if isinstance(chunk, Chunk) and not chunk.is_behind:
            count("xml-bytes", len(chunk.data))
        yield chunk


def _take_damage(
    damage: Damage, split: Split, config: WikipediaSource, count: Count, *, last_whole: Page | None
) -> None:
    """Count the lost records, or raise an error."""
    if config.on_corrupt == "fail" or damage.kind == "damaged":
        raise _corrupt(damage, split.file, last_whole=last_whole)
    if damage.cut_page:
        count("pages-in")
        count("pages-dropped-malformed")
    if damage.kind == "truncated":
        count("files-truncated")
    _log.warning("%s, byte %d: %s", split.file.uri, damage.offset, damage.reason)


def _corrupt(damage: Damage, file: SourceFile, *, last_whole: Page | None) -> InputError:
    remedy = "Download it again"
    if damage.kind != "damaged":
        remedy += ", or set on_corrupt to keep-whole-pages"
    name = page_name(last_whole.title, last_whole.page_id) if last_whole else ""
    before = f"the last whole page before it is {name}" if name else "no page before it"
    return CorruptInputError(
        f"{file.uri}: {damage.reason}; noticed at byte {damage.offset:,} of {file.size:,}, "
        f"{before}. {remedy}",
        file=file.uri,
        offset=damage.offset,
        last_record=name,
    )
