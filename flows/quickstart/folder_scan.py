"""Scan of a folder: which files a recipe can read, how much text they have, and in which language.

The suffix of a file decides its kind. All files are listed; the beginnings of at most 24 files of a
kind are the sample. The result is the same for each scan of an unchanged folder.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import itertools
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.compression import compr
from fsspec.utils import infer_compression
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from pipelines.io.encodings import detect_encoding
from pipelines.io.lines import COMPRESSED_SUFFIXES
from pipelines.io.local_files import walk_folder
from pipelines.io.splits import SourceFile
from pipelines.sources.archives import ARCHIVE_SUFFIXES, read_members
from schemas.errors import CorruptInputError, MissingInputError

_COMPRESSIBLE = {".txt": "text", ".xml": "dump", ".jsonl": "json", ".ndjson": "json"}
_KINDS = {
    **{name + end: kind for name, kind in _COMPRESSIBLE.items() for end in COMPRESSED_SUFFIXES},
    **dict.fromkeys(ARCHIVE_SUFFIXES, "archive"),
    **_COMPRESSIBLE,
    **dict.fromkeys((".md", ".markdown", ".rst"), "markdown"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
"""Kind of file by its suffix."""

_COMPRESSED = (*COMPRESSED_SUFFIXES, *(end for end in ARCHIVE_SUFFIXES if end != ".tar"))
_PART_OF_DUMP = re.compile(r"(?<=\.xml)-p\d+p\d+")
_LIST_OF_DUMP = re.compile(r"-pages-articles-multistream-index|-(md5|sha1|sha256)sums\.txt$")
_TABLES = ("json", "parquet")
_TEXT_COLUMNS = ("text", "content", "body", "article", "document", "raw_text", "maintext")

_MAX_OPENED, _SAMPLE_BYTES = 24, 1 << 21
"""Files of a kind to open, and bytes to read of all: they show a vocabulary of 8,000 pieces."""

_HEAD_BYTES, _MAX_ROW_BYTES = 1 << 16, 1 << 24
_EXPANSION, _DUMP_TEXT_RATIO = 3.0, 0.3
"""Approximate ratios of plain to compressed bytes, and of article text to the XML of a dump."""

_DOCUMENT_BYTES = {"dump": 3_000, "archive": 500_000}
"""Approximate size of the text of a page and of a book."""

_MAX_PARTS, _MIN_PART_BYTES, _MAX_PART_BYTES = 400, 1 << 10, 1 << 16
"""Long texts are cut into documents, so that some can be held out."""

_MARKUP = re.compile(r"<[^<>]*+>|[\[\]{}|=*#']++|https?:\S++")
_GUTENBERG = re.compile(r"\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG", re.IGNORECASE)
_MIN_PROBABILITY, _NO_LANGUAGE = 0.5, "zxx"


class FileGroup(NamedTuple):
    """Files of one kind, as a source of a recipe reads them."""

    kind: str
    files: int
    text_bytes: int
    """Approximate number of bytes of text."""

    documents: int
    """Approximate number of documents."""

    sample: str
    """Beginnings of the opened files."""

    source: dict[str, Any]
    """Source of a recipe, without its language."""


class FolderScan(NamedTuple):
    """Content of a folder."""

    folder: Path
    groups: tuple[FileGroup, ...]
    ignored: tuple[tuple[str, int], ...]
    """Reason, and number of files."""

    text_bytes: int
    """Approximate number of bytes of text."""

    documents: int
    """Approximate number of documents."""

    sample: str
    """Beginnings of the opened files."""


def scan_folder(folder: Path, *, store: Path | None = None) -> FolderScan:
    """Scan a folder, or one file.

    Args:
        folder: Folder with texts, or a file of them.
        store: Absolute path of the run's artifact store, which is skipped.

    Raises:
        MissingInputError: The folder does not exist, or has no file with text.
    """
    folder = Path(os.path.abspath(folder.expanduser()))  # noqa: PTH100 - as in recipes
    if not folder.exists():
        raise MissingInputError(f"{folder}: no such folder or file. Pass the folder of your texts")
    ignored = Counter[str]()
    listed = [folder] if folder.is_file() else list(_walk(folder, store, ignored))
    members = defaultdict[tuple[str, str], list[Path]](list)
    for path in listed:
        kind, column, reason = _classify(path)
        if reason:
            ignored[reason] += 1
        else:
            members[kind, column].append(path)
    neighbors = [path for path in listed if _size(path)] if folder.is_dir() else []
    kinds = [kind for kind, _ in members]
    groups = []
    for number, ((kind, column), files) in enumerate(sorted(members.items())):
        name = kind if kinds.count(kind) == 1 else f"{kind}-{number}"
        paths = _patterns(files, neighbors)
        groups.append(_group(kind, column, files, {"name": name, "paths": paths}))
    reasons = tuple((+ignored).most_common())
    sample = "\n".join(group.sample for group in groups)
    if not sample.strip():
        listing = "; ".join(f"{count:,} x {reason}" for reason, count in reasons) or "no text"
        raise MissingInputError(
            f"{folder}: expected texts in .txt, .md, .jsonl or Parquet files, MediaWiki dumps "
            f"(.xml, .xml.bz2) or archives of books (.zip, .tar.gz), got {listing}"
        )
    text_bytes = sum(group.text_bytes for group in groups)
    documents = sum(group.documents for group in groups)
    return FolderScan(folder, tuple(groups), reasons, text_bytes, documents, sample)


def detect_language(text: str) -> str:
    """Return the ISO 639 code of a text's language; "" if it is not sure."""
    language, probability = _language_identifier().classify(text[:100_000])
    is_sure = probability >= _MIN_PROBABILITY and language != _NO_LANGUAGE
    return str(language) if is_sure else ""


@functools.cache
def _language_identifier() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _walk(folder: Path, store: Path | None, ignored: Counter[str]) -> Iterator[Path]:
    """Yield the files in a folder, as a run finds them, without those of artifact stores."""

    def enters(inner: Path) -> bool:
        is_store = inner == store or (
            (inner / "FORMAT.json").exists() and (inner / "artifacts").is_dir()
        )
        ignored["artifact store of bertloom"] += is_store
        return not is_store

    yield from map(Path, walk_folder(folder, ignored, enters=enters))


def _classify(path: Path) -> tuple[str, str, str]:
    """Return the kind of a file, its column with text, and why it cannot be read ("": it can)."""
    name = _PART_OF_DUMP.sub("", path.name.lower())
    kind = next((kind for suffix, kind in _KINDS.items() if name.endswith(suffix)), "")
    if not kind:
        return "", "", f"{path.suffix.lower()} file" if path.suffix else "file without a suffix"
    if _LIST_OF_DUMP.search(name):
        return "", "", "index or checksums of a dump"
    if not (os.access(path, os.R_OK) and path.name.isprintable()):
        return "", "", "no permission to read it, or a name that is not printable text"
    if not path.stat().st_size:
        return "", "", "empty file"
    column = _find_text_column(_read_rows(kind, path, _HEAD_BYTES)) if kind in _TABLES else ""
    is_unusable = kind in _TABLES and not column
    return kind, column, f"{kind} file without a column of text" if is_unusable else ""


def _patterns(files: Sequence[Path], neighbors: Sequence[Path]) -> list[str]:
    """Return a pattern per folder and suffix, or single files where a pattern matches others.

    Patterns include files that are added later. Sources select no Markdown files by patterns.
    """
    counts, selected = Counter(map(_pattern, neighbors)), Counter(map(_pattern, files))
    return sorted(
        {
            pattern
            if selected[pattern] == counts[pattern]
            and _KINDS.get(file.suffix.lower()) != "markdown"
            else str(file)
            for file in files
            for pattern in [_pattern(file)]
        }
    )


def _pattern(file: Path) -> str:
    count = 2 if file.suffix.lower() in (*COMPRESSED_SUFFIXES, ".xz") else 1
    return f"{glob.escape(str(file.parent))}/*{''.join(file.suffixes[-count:])}"


def _group(kind: str, column: str, files: Sequence[Path], source: dict[str, Any]) -> FileGroup:
    """Return the group of files of one kind; `source` has the name and paths."""
    opened = files[:: max(1, len(files) // _MAX_OPENED)][:_MAX_OPENED]
    samples = [_read_sample(kind, column, file, _SAMPLE_BYTES // len(opened)) for file in opened]
    texts = [text for texts, _ in samples for text in texts]
    ratio = sum(text_bytes for _, text_bytes in samples) / sum(map(_size, opened))
    text_bytes = int(ratio * sum(map(_size, files)))
    part_bytes = min(max(text_bytes // _MAX_PARTS, _MIN_PART_BYTES), _MAX_PART_BYTES)
    row_bytes = sum(map(_utf8_size, texts)) // len(texts) + 1 if column else part_bytes
    documents = text_bytes // _DOCUMENT_BYTES.get(kind, min(part_bytes, row_bytes))
    books = sum(_GUTENBERG.search(text) is not None for text in texts) if kind == "text" else 0
    if kind == "dump":  # a truncated download still has enough pages for a model; the run warns
        source |= {"kind": "wikipedia", "on_corrupt": "keep-whole-pages"}
    elif kind == "archive":
        source |= {"kind": "books"}
    elif 2 * books > len(texts):
        source, documents = {**source, "kind": "books"}, len(files)
    else:
        form = {"text_column": column} if column else {"document_delimiter": "file"}
        source |= {"kind": "text", **form, "max_document_bytes": part_bytes}
    return FileGroup(
        kind, len(files), text_bytes, max(documents, len(files)), "\n".join(texts), source
    )


def _read_sample(kind: str, column: str, file: Path, size: int) -> tuple[list[str], float]:
    """Return the first texts of a file, and its approximate bytes of text."""
    if kind == "archive":
        return list(itertools.islice(_read_archive(file), _MAX_OPENED)), _plain_size(file)
    if kind == "dump":
        return [_MARKUP.sub(" ", _read_head(file, size))], _DUMP_TEXT_RATIO * _plain_size(file)
    if not column:
        return [_read_head(file, size)], _plain_size(file)
    rows = _read_rows(kind, file, size)
    texts = [text for row in rows if isinstance(text := row.get(column), str)]
    sample_bytes = sum(map(_utf8_size, texts))
    if kind == "parquet":
        return texts, pq.read_metadata(file).num_rows / len(rows) * sample_bytes
    share = sample_bytes / _utf8_size(json.dumps(rows, ensure_ascii=False))
    return texts, share * _plain_size(file)


def _find_text_column(rows: Iterable[dict[str, Any]]) -> str:
    """Return the first column with a usual name that has text, or the one with the most; or ""."""
    lengths = Counter[str]()
    for row in rows:
        lengths.update({key: len(text) for key, text in row.items() if isinstance(text, str)})
    columns = [*_TEXT_COLUMNS, *(key for key, _ in lengths.most_common(1))]
    return next((key for key in columns if lengths[key]), "")


def _read_rows(kind: str, file: Path, size: int) -> list[dict[str, Any]]:
    """Return the first rows of a table, of about `size` bytes; [] if it cannot be read."""
    rows = []
    if kind == "parquet":
        with contextlib.suppress(pa.ArrowException, OSError):
            for batch in pq.ParquetFile(file).iter_batches(batch_size=64):
                rows.extend(batch.to_pylist())
                size -= batch.nbytes
                if size <= 0:
                    break
        return rows
    head = _read_head(file, size)
    for line in (head if "\n" in head else _read_head(file, _MAX_ROW_BYTES)).split("\n"):
        with contextlib.suppress(ValueError, RecursionError):  # the last line is incomplete
            rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]


def _read_archive(file: Path) -> Iterator[str]:
    """Yield the beginnings of the texts in an archive, up to where it is damaged."""
    source = SourceFile(uri=str(file), name=file.name, size=_size(file), sha256="")
    with contextlib.suppress(CorruptInputError):
        for member, stream in read_members(source, max_bytes=1 << 26):
            if stream is not None and member.name.lower().endswith(".txt"):
                yield _decode(stream.read(_SAMPLE_BYTES // _MAX_OPENED))


def _read_head(file: Path, size: int) -> str:
    """Return the text of the first bytes of a file; "" if it cannot be read."""
    with contextlib.suppress(OSError, EOFError, ValueError), file.open("rb") as stream:
        return _decode(compr[infer_compression(file.name)](stream, mode="rb").read(size))
    return ""


def _decode(data: bytes) -> str:
    """Return the text of the first bytes of a file, whose last character can be cut.

    Lines end with a line feed. "" if the bytes are no text.
    """
    encoding = detect_encoding(data)
    text = data.decode(encoding, "ignore").removeprefix("\ufeff") if encoding else ""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _size(file: Path) -> int:
    return file.stat().st_size


def _utf8_size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _plain_size(file: Path) -> float:
    """Return the approximate size of a file without compression."""
    return _size(file) * (_EXPANSION if file.name.lower().endswith(_COMPRESSED) else 1.0)
