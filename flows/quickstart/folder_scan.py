"""Scan of a folder: which files can be read, in which format, and how much text they have.

All files are listed; at most 24 per format are opened, and only their first bytes are read. The
result is the same for each scan of an unchanged folder.
"""

from __future__ import annotations

import contextlib
import glob
import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fsspec.compression import compr
from fsspec.utils import infer_compression

from flows.formatting import format_bytes, format_count
from flows.quickstart.language_detection import Guess, guess_language
from pipelines.io.encodings import detect_encoding
from pipelines.io.local_files import walk_folder
from pipelines.io.splits import SourceFile
from pipelines.sources.archives import read_members
from schemas.errors import CorruptInputError, MissingInputError

_ENDINGS = {
    "archive": r"\.(zip|tar(\.(gz|bz2|xz|zst))?|tgz|tbz2|txz|tzst)$",
    "dump": r"\.xml(-p\d+p\d+)?(\.(bz2|gz|zst))?$",
    "text": r"\.txt(\.(gz|bz2|zst))?$",
    "markdown": r"\.(md|markdown|rst)$",
    "json": r"\.(jsonl|ndjson)(\.(gz|bz2|zst))?$",
    "parquet": r"\.(parquet|pq)$",
}
"""End of a file's name by format."""

_DUMP_LISTS = re.compile(r"-pages-articles-multistream-index.*|-(md5|sha1|sha256)sums\.txt$")
_TEXT_COLUMNS = ("text", "content", "body", "article", "document", "raw_text", "maintext")
_MAX_OPENED, _HEAD_BYTES, _MAX_ROW_BYTES = 24, 1 << 16, 1 << 24
_EXPANSION = {".gz": 3.0, ".tgz": 3.0, ".zip": 3.0, ".bz2": 4.0, ".tbz2": 4.0, ".zst": 3.5,
              ".xz": 4.0, ".txz": 4.0}  # fmt: skip
"""Approximate ratio of plain to compressed bytes."""

_DUMP_TEXT_RATIO = 0.3
"""Approximate ratio of article text to the XML of a dump."""

_GUTENBERG = re.compile(r"\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG", re.IGNORECASE)
_EMPTY = "empty file"
_MANY_FILES = 20
_SENTENCE_END = re.compile(
    r"[.!?\u2026\u3002\uff01\uff1f\u0964\u061f\u06d4][\"')\]\u201d\u2019\u00bb\u300d\u300f]*$"
)
"""Mark at the end of a sentence, with closing quotes, of several scripts."""


class FileGroup(NamedTuple):
    """Files of one format, as a source of a recipe reads them."""

    kind: str
    """Kind of the source: `wikipedia`, `books` or `text`."""

    title: str
    """Name of one file, such as "MediaWiki dump"."""

    files: int
    size: int
    """Bytes as stored."""

    text_bytes: int
    """Approximate number of bytes of text."""

    documents: int
    """Approximate number of documents. 0: unknown."""

    fields: dict[str, Any]
    """Other fields of the source, `paths` included."""


class FolderScan(NamedTuple):
    """Content of a folder."""

    folder: Path
    groups: tuple[FileGroup, ...]
    ignored: tuple[tuple[str, int], ...]
    """File type with the reason, and number of files."""

    guess: Guess
    sample: str
    """First bytes of the opened texts."""

    @property
    def text_bytes(self) -> int:
        """Approximate number of bytes of text."""
        return sum(group.text_bytes for group in self.groups)


class _File(NamedTuple):
    path: Path
    ending: str
    """End of its name that states the format, such as `.jsonl.gz`."""

    size: int

    @property
    def plain_size(self) -> int:
        """Approximate size without compression."""
        return int(self.size * _EXPANSION.get(self.path.suffix.lower(), 1.0))


class _Scan(NamedTuple):
    """State of a scan."""

    mixed: set[Path]
    """Folders with files that a pattern would match, although they cannot be read."""

    samples: list[str]
    """First bytes of the opened texts."""

    ignored: Counter[str]
    """Number of ignored files by type and reason."""


def scan_folder(folder: Path, *, store: Path | None = None) -> FolderScan:
    """Scan a folder, or one file.

    Args:
        folder: Folder with texts, or a file of them.
        store: Absolute path of the run's artifact store, which is skipped.

    Raises:
        MissingInputError: The folder does not exist or has no readable file.
    """
    folder = folder.expanduser()
    folder = folder.resolve() if ".." in folder.parts else folder.absolute()
    if not folder.exists():
        raise MissingInputError(f"{folder}: no such folder or file. Pass the folder of your texts")
    scan = _Scan(set(), [], Counter())
    by_format = defaultdict[str, list[_File]](list)
    if folder.is_file():
        scan.mixed.add(folder.parent)  # its neighbors are not read
    for path in [folder] if folder.is_file() else _walk(folder, store, scan.ignored):
        matches = (
            (key, re.search(pattern, path.name, re.IGNORECASE)) for key, pattern in _ENDINGS.items()
        )
        file_format, ending = next(((key, match[0]) for key, match in matches if match), ("", ""))
        if reason := _find_problem(path, file_format):
            scan.ignored[reason] += 1
            if file_format and reason != _EMPTY:
                scan.mixed.add(path.parent)
        else:
            by_format[file_format].append(_File(path, ending, path.stat().st_size))
            if path.is_symlink():  # it may lead out of the folder of a pattern
                scan.mixed.add(path.parent)
    groups = [
        group
        for file_format, files in sorted(by_format.items())
        if (group := _GROUPERS[file_format](files, scan)) is not None
    ]
    ignored, sample = tuple((+scan.ignored).most_common()), "\n".join(scan.samples)
    if not groups:
        reasons = "; ".join(_pluralize(*item) for item in ignored) or "no file"
        raise MissingInputError(
            f"{folder}: expected .txt, .md, .jsonl or Parquet files, MediaWiki dumps (.xml, "
            f".xml.bz2) or archives of books (.zip, .tar.gz), got {reasons}"
        )
    return FolderScan(folder, tuple(groups), ignored, guess_language(sample), sample)


def scan_lines(scan: FolderScan) -> Iterator[str]:
    """Yield what a folder contains, for the terminal."""
    for group in scan.groups:
        parts = [_pluralize(group.title, group.files), format_bytes(group.size)]
        if group.documents:
            parts.append(f"about {format_count(group.documents, 'document')}")
        parts.append(f"about {format_bytes(group.text_bytes)} of text")
        yield f"  read      {', '.join(parts)}"
        yield f"  document  {_describe_document(group)}"
    for reason, count in scan.ignored:
        yield f"  ignored   {_pluralize(reason, count)}"
    hint = "" if scan.guess.is_sure else " (not detected; set `language` in the recipe)"
    yield f"  language  {scan.guess.language}{hint}"


def _describe_document(group: FileGroup) -> str:
    """Return what one document of a group is, for the terminal."""
    if group.kind == "wikipedia":
        return "one page"
    if group.kind == "books":
        return "one book"
    if "text_column" in group.fields:
        return "one row"
    unit = {"blank-line": "text between blank lines", "file": "one file"}
    text = unit[group.fields["document_delimiter"]]
    limit = group.fields.get("max_document_bytes")
    cut = f", cut after {format_bytes(limit)}" if limit else ""
    return f"{text}{cut} (to change it, edit document_delimiter in the recipe)"


def _pluralize(text: str, count: int) -> str:
    """Return a count with the first noun of a text: "3 .pdf files: convert to .txt first"."""
    plural = re.sub(r"(?<![\w.])(file|folder|link|pipe|dump|archive)\b", r"\1s", text, count=1)
    return f"{count:,} {text if count == 1 else plural}"


def _walk(folder: Path, store: Path | None, ignored: Counter[str]) -> Iterator[Path]:
    """Yield the files in a folder, as a run finds them, without those of artifact stores."""

    def enters(inner: Path) -> bool:
        is_store = inner == store or (
            (inner / "FORMAT.json").exists() and (inner / "artifacts").is_dir()
        )
        ignored["folder: artifact store of bertloom"] += is_store
        return not is_store

    yield from map(Path, walk_folder(folder, ignored, enters=enters))


def _find_problem(path: Path, file_format: str) -> str:
    """Return why a file cannot be read; "" if it can."""
    if not file_format:
        suffix = path.suffix.lower()
        return f"{suffix} file: unsupported type" if suffix else "file without a suffix"
    if _DUMP_LISTS.search(path.name):
        return ".txt file: index or checksums of a dump"
    try:
        path.name.encode()
        with path.open("rb") as stream:
            head = stream.read(4)
    except (OSError, UnicodeEncodeError):
        return "file: no permission to read it, or its name is not UTF-8"
    if not head:
        return _EMPTY
    return ""


def _group(
    kind: str,
    title: str,
    files: list[_File],
    fields: dict[str, Any],
    *,
    ratio: float = 1.0,
    documents: int = 0,
) -> FileGroup:
    """Return the group of files, with `ratio` bytes of text per byte without compression."""
    size = sum(file.size for file in files)
    text_bytes = int(ratio * sum(file.plain_size for file in files))
    return FileGroup(kind, title, len(files), size, text_bytes, documents, fields)


def _group_archives(files: list[_File], scan: _Scan) -> FileGroup:
    scan.samples.append(_archive_head(files[0].path))
    fields = {"name": "books", "paths": [str(file.path) for file in files]}
    return _group("books", "archive of books", files, fields)


def _group_dumps(files: list[_File], scan: _Scan) -> FileGroup:
    for file in _select(files)[:3]:
        head = _decode(_head(file.path, 1 << 19))
        text = re.sub(r"<[^>]*>|[\[\]{}|=*#']+|https?:\S+", " ", head)
        scan.samples.append(text[-4 * _HEAD_BYTES :])
    fields = {
        "name": "wiki",
        "paths": [str(file.path) for file in files],
        # A truncated download still has enough pages for a model; the run warns.
        "on_corrupt": "keep-whole-pages",
    }
    return _group("wikipedia", "MediaWiki dump", files, fields, ratio=_DUMP_TEXT_RATIO)


def _group_markdown(files: list[_File], scan: _Scan) -> FileGroup | None:
    # Patterns of a source select .txt files only.
    paths = [str(file.path) for file in files]
    return _group_documents(files, scan, "notes", "Markdown file", paths)


def _group_texts(files: list[_File], scan: _Scan) -> FileGroup | None:
    paths = _paths(files, scan)
    heads = [_decode(_head(file.path, _HEAD_BYTES)) for file in _select(files)]
    if 2 * sum(_GUTENBERG.search(head) is not None for head in heads) <= len(heads):
        return _group_documents(files, scan, "texts", "text file", paths)
    scan.samples.extend(heads)
    fields = {"name": "books", "paths": paths}
    return _group("books", "text file (one book each)", files, fields, documents=len(files))


def _group_documents(
    files: list[_File], scan: _Scan, name: str, title: str, paths: list[str]
) -> FileGroup | None:
    """Return the group of plain texts with the delimiter of their documents."""
    heads = [head for file in _select(files) if (head := _decode(_head(file.path, _HEAD_BYTES)))]
    if not heads:
        scan.ignored["text file: unknown encoding"] += len(files)
        return None
    scan.samples.extend(heads)
    text_bytes = sum(file.plain_size for file in files)
    fields: dict[str, Any] = {"name": name, "paths": paths, "document_delimiter": "file"}
    documents = len(files)
    if 2 * sum(map(_has_one_sentence_per_line, heads)) > len(heads):
        fields["document_delimiter"] = "blank-line"
        share = statistics.mean(head.count("\n\n") / len(head) for head in heads)
        documents = max(documents, int(share * text_bytes))
    if documents < _MANY_FILES:  # cut them, so that some documents can be held out
        fields["max_document_bytes"] = max(2048, text_bytes // 100)
        documents = max(documents, text_bytes // fields["max_document_bytes"])
    return _group("text", title, files, fields, documents=documents)


def _has_one_sentence_per_line(text: str) -> bool:
    """Return whether a text has the form of Google's BERT: blank lines between documents, and one
    sentence per line. Blank lines of other texts are between paragraphs."""
    blocks = [block.split("\n") for block in text.split("\n\n")[:-1] if block.strip()]
    lines = [line.rstrip() for block in blocks for line in block]
    if len(lines) < 3 * len(blocks) or not blocks:
        return False
    return sum(bool(_SENTENCE_END.search(line)) for line in lines) > 0.9 * len(lines)


def _group_tables(files: list[_File], scan: _Scan, *, name: str, title: str) -> FileGroup | None:
    """Return the group of the tables that have the column with texts, as have those not opened."""
    read = _read_parquet if name == "parquet" else _read_json_lines
    tables = {file: read(file) for file in _select(files)}
    column = _text_column(row for rows, _ in tables.values() for row in rows)
    texts = {
        file: [text for row in rows if isinstance(text := row.get(column), str)]
        for file, (rows, _) in tables.items()
    }
    if ignored := [file for file in tables if not any(texts[file])]:
        scan.ignored[f"{ignored[0].ending} file: no column {column or 'with text'}"] += len(ignored)
        scan.mixed.update(file.path.parent for file in ignored)
    known = [file for file in tables if file not in ignored]
    if not known:
        return None
    scan.samples.extend("\n".join(texts[file])[:_HEAD_BYTES] for file in known)
    members = [file for file in files if file not in ignored]
    fields = {"name": name, "paths": _paths(members, scan), "text_column": column}
    rows_per_byte = sum(tables[file][1] for file in known) / sum(file.size for file in known)
    group = _group("text", f"{title} ({column})", members, fields)
    documents = round(rows_per_byte * group.size)
    mean_bytes = statistics.mean(len(text.encode()) for file in known for text in texts[file])
    return group._replace(documents=documents, text_bytes=int(documents * mean_bytes))


def _text_column(rows: Iterable[dict[str, Any]]) -> str:
    """Return the first column with a usual name that has text, or the one with the most; or ""."""
    lengths = Counter[str]()
    for row in rows:
        lengths.update({key: len(text) for key, text in row.items() if isinstance(text, str)})
    columns = [*_TEXT_COLUMNS, *(key for key, _ in lengths.most_common(1))]
    return next((key for key in columns if lengths[key]), "")


_GROUPERS: dict[str, Callable[[list[_File], _Scan], FileGroup | None]] = {
    "archive": _group_archives,
    "dump": _group_dumps,
    "json": partial(_group_tables, name="json", title="JSON lines file"),
    "markdown": _group_markdown,
    "parquet": partial(_group_tables, name="parquet", title="Parquet file"),
    "text": _group_texts,
}


def _paths(files: Sequence[_File], scan: _Scan) -> list[str]:
    """Return a pattern per folder, or single files if the pattern would match too much.

    Patterns include files that are added later, and never match inside a store.
    """
    return sorted(
        {
            str(file.path)
            if file.path.parent in scan.mixed
            else f"{glob.escape(str(file.path.parent))}/*{file.ending}"
            for file in files
        }
    )


def _read_json_lines(file: _File) -> tuple[list[dict[str, Any]], float]:
    head = _head(file.path, _HEAD_BYTES)
    if b"\n" not in head:
        head = _head(file.path, _MAX_ROW_BYTES)
    rows, lines = [], _decode(head).split("\n")[:100]
    for line in lines:
        with contextlib.suppress(ValueError):  # the last line is incomplete
            rows.append(json.loads(line))
    count = file.plain_size / statistics.mean(len(line.encode()) + 1 for line in lines)
    return [row for row in rows if isinstance(row, dict)], count


def _read_parquet(file: _File) -> tuple[list[dict[str, Any]], float]:
    import pyarrow as pa  # lazy import: only for Parquet files
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file.path)
        batch = next(table.iter_batches(batch_size=50), None)
    except (pa.ArrowException, OSError):
        return [], 0
    return batch.to_pylist() if batch is not None else [], table.metadata.num_rows


def _select(files: Sequence[_File]) -> list[_File]:
    """Return some files, evenly spaced."""
    return list(files[:: max(1, len(files) // _MAX_OPENED)][:_MAX_OPENED])


def _head(path: Path, size: int) -> bytes:
    """Return the first decompressed bytes of a file; b"" if it cannot be read."""
    with contextlib.suppress(OSError, EOFError, ValueError), path.open("rb") as stream:
        return bytes(compr[infer_compression(path.name)](stream, mode="rb").read(size))
    return b""


def _decode(data: bytes) -> str:
    """Return the text of the first bytes of a file, whose last character can be cut.

    Lines end with a line feed. "" if the bytes are no text.
    """
    encoding = detect_encoding(data)
    text = data.decode(encoding, "ignore").removeprefix("\ufeff") if encoding else ""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _archive_head(path: Path) -> str:
    """Return the first bytes of the first text in an archive; "" if it cannot be read."""
    file = SourceFile(uri=str(path), name=path.name, size=path.stat().st_size, sha256="")
    with contextlib.suppress(CorruptInputError):
        for member, stream in read_members(file, max_bytes=1 << 26):
            if stream is not None and member.name.lower().endswith(".txt"):
                return _decode(stream.read(_HEAD_BYTES))
    return ""
