"""What is in a folder: which files can be read as what, and about how much text they hold.

Names, sizes and the first bytes are looked at of every file; of each form only a few are read,
evenly spaced in the order of their names, and of these only the beginning. So a folder of a million
files is known in little more than listing it takes, and twice looked at gives the same twice.
"""

from __future__ import annotations

import codecs
import contextlib
import glob
import json
import os
import re
import statistics
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from flows.formatting import format_bytes, format_count
from flows.quickstart.languages import Guess, guess_language
from pipelines.io.compression import Damage, compression_of, decompressed
from pipelines.io.encodings import decode_text
from pipelines.io.splits import SourceFile
from pipelines.sources.archives import read_members
from schemas.errors import ConfigError, CorruptInputError, InputError, MissingInputError

_COMPRESSED = (".gz", ".bz2", ".zst")
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
_DUMP = re.compile(r"\.xml(-p\d+p\d+)?(\.(bz2|gz|zst))?$", re.IGNORECASE)
_SUFFIXES = {
    "text": (".txt",),
    "markdown": (".md", ".markdown", ".rst"),
    "json": (".jsonl", ".ndjson"),
    "parquet": (".parquet", ".pq"),
}
_CONVERT = frozenset({".pdf", ".docx", ".doc", ".odt", ".html", ".htm", ".epub", ".rtf"})
_TEXT_COLUMNS = ("text", "content", "body", "article", "document", "raw_text", "maintext")
_OPENED, _HEAD = 24, 1 << 16
_LONG_ROW = 1 << 24
"""Bytes of a first row that is still looked at."""

_NAMED = 50
"""Files that a recipe names one by one."""


_EXPANSION = {".gz": 3.0, ".bz2": 4.0, ".zst": 3.5, ".xz": 4.0, ".zip": 2.7}
"""About how many bytes a compressed one is: 4.1 of 364 pages of English Wikipedia in bz2."""

_DUMP_TEXT = 0.3
"""Text of articles in a byte of a dump's XML: of the same pages 1.2 MB of 4.15 MB."""

_GUTENBERG = re.compile(r"\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG", re.IGNORECASE)
_LONG, _MANY = 1 << 16, 20
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
_STORE = "folder: a store, what bertloom made"
_SEVERAL = r"\1s"
_NOUN = re.compile(r"(?<![\w.])(file|folder|dump|archive)\b")


class Form(NamedTuple):
    """Files of one kind, as a source of a recipe reads them."""

    kind: str
    """`wikipedia`, `books` or `text`, as in a recipe."""

    what: str
    """In words, of one file: "text file", "MediaWiki dump"."""

    files: int
    size: int
    """Bytes as stored."""

    text_bytes: int
    """About how many bytes of text they hold."""

    documents: int
    """About how many documents; 0 where it cannot be told."""

    fields: dict[str, Any]
    """Of the source in the recipe, its paths among them."""


class Survey(NamedTuple):
    """What was found in a folder."""

    folder: Path
    forms: tuple[Form, ...]
    ignored: tuple[tuple[str, int], ...]
    """What is not read, of one, with the reason behind a colon, and how many there are."""

    guess: Guess
    sample: str
    """The beginnings of the texts that were opened."""

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(form.size for form in self.forms)

    @property
    def text_bytes(self) -> int:
        """About how many bytes of text."""
        return sum(form.text_bytes for form in self.forms)


class _Look(NamedTuple):
    """What is gathered while a folder is looked at."""

    folder: Path | None
    """It, where its path alone will do in a recipe."""

    has_store: bool
    """Whether a store lies, or is to lie, among the texts."""

    apart: frozenset[Path]
    """Folders with a file that must not be read: what is read there is named, file by file."""

    samples: list[str]
    ignored: Counter[str]


class _File(NamedTuple):
    path: Path
    size: int


def survey(folder: Path, *, store: Path | None = None) -> Survey:
    """Look at a folder.

    Args:
        folder: it.
        store: where the run will keep what it makes, an absolute path; it is not looked into.

    Raises:
        MissingInputError: there is none, or nothing in it can be read; says what is there.
        ConfigError: it is a file.
    """
    folder = folder.expanduser()
    folder = folder.resolve() if ".." in folder.parts else folder.absolute()
    if folder.is_file():
        raise ConfigError(f"{folder}: is a file: expected the folder that your texts are in")
    if not folder.is_dir():
        raise MissingInputError(f"{folder}: no such folder: name the one that your texts are in")
    found, ignored, apart = _sorted_out(folder, store)
    has_store = _STORE in ignored or (store is not None and store.is_relative_to(folder))
    samples: list[str] = []
    forms: list[Form] = []
    for what, files in sorted(found.items()):
        # The folder itself stands for its files where there are no others that a source would take.
        root = folder if len(found) == 1 and not apart and not has_store else None
        forms += _forms(what, files, _Look(root, has_store, apart, samples, ignored))
    whole = tuple(ignored.most_common())
    if not forms:
        listed = "; ".join(_things(*one) for one in whole) or "it is empty"
        raise MissingInputError(
            f"{folder}: nothing in it can be read: {listed}. Expected .txt, .md, .jsonl or Parquet "
            "files, MediaWiki dumps (.xml, .xml.bz2, ...), or archives of books (.zip, .tar.gz)"
        )
    sample = "\n".join(samples)
    return Survey(folder, tuple(forms), whole, guess_language(sample), sample)


def found_lines(found: Survey) -> Iterator[str]:
    """What was found, and what is ignored and why, for a person."""
    for form in found.forms:
        documents = f", some {format_count(form.documents, 'document')}" if form.documents else ""
        said = f"{_things(form.what, form.files)}, {format_bytes(form.size)}{documents}"
        yield f"  read      {said}, about {format_bytes(form.text_bytes)} of text"
    for why, count in found.ignored:
        yield f"  ignored   {_things(why, count)}"
    sure = "" if found.guess.is_sure else " (not told by the text: change `language` if it is not)"
    yield f"  language  {found.guess.language}{sure}"


def _things(what: str, count: int) -> str:
    """A number of what is told of one: `text file`, `.pdf file: convert it`."""
    return f"1 {what}" if count == 1 else f"{count:,} {_NOUN.sub(_SEVERAL, what, count=1)}"


def _sorted_out(
    folder: Path, store: Path | None
) -> tuple[dict[str, list[_File]], Counter[str], frozenset[Path]]:
    """Files by what they are read as, why others are not, and the folders of those that would be.

    What a store holds (a vocab.txt, cards) is no text of anybody's: stores are not entered.
    """
    found, ignored = defaultdict[str, list[_File]](list), Counter[str]()
    apart = set[Path]()
    entered: set[tuple[int, int]] = set()
    shut = "folder: may not be entered by you"
    walked = os.walk(folder, followlinks=True, onerror=lambda _: ignored.update([shut]))
    for here, folders, names in walked:
        stat = Path(here).stat()
        if (stat.st_dev, stat.st_ino) in entered:  # a link that leads back up
            folders.clear()
            continue
        entered.add((stat.st_dev, stat.st_ino))
        if Path(here) == store or ("FORMAT.json" in names and "artifacts" in folders):
            ignored[_STORE] += 1
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.startswith("."):
                ignored["hidden file"] += 1
                continue
            path = Path(here, name)
            try:
                size = path.stat().st_size
                name.encode()
            except (OSError, UnicodeEncodeError):
                ignored["file: cannot be opened, or its name is not UTF-8"] += 1
                apart.add(Path(here))
                continue
            what = _what(name)
            if not what:
                ignored[_why_not(path)] += 1
            elif not size:
                ignored["empty file"] += 1
            elif unfit := _unfit(path, what):
                ignored[unfit] += 1
                apart.add(Path(here))
            else:
                found[what].append(_File(path, size))
    return found, ignored, frozenset(apart)


def _what(name: str) -> str:
    if _DUMP.search(name):
        return "dump"
    if name.endswith(_ARCHIVES):
        return "archive"
    plain = _plain(name)
    for what, suffixes in _SUFFIXES.items():
        if (plain if what in ("text", "json") else name).endswith(suffixes):
            return what
    return ""


def _unfit(path: Path, what: str) -> str:
    """Why a file of such a name would end the run; "" where it would not."""
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
    except OSError:
        return "file: may not be read by you"
    if what in ("text", "markdown", "json") and head.startswith(_WIDE_MARKS):
        return "text file: UTF-16 or UTF-32, convert to UTF-8 first, e.g. by `iconv`"
    return ""


def _plain(name: str) -> str:
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return name


def _why_not(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in _CONVERT:
        return f"{suffix} file: convert to .txt first"
    if _what(path.name.lower()):
        return f"{path.suffix} file: names end in small letters here, rename"
    return f"{suffix} file: no text that is read here" if suffix else "file without an ending"


def _forms(what: str, files: list[_File], look: _Look) -> Iterator[Form]:
    size = sum(file.size for file in files)
    opened = _chosen(files)
    if what == "dump":
        yield _dumps(files, size=size, samples=look.samples)
    elif what == "archive":
        text = sum(_unpacked(file) for file in files)
        look.samples.extend(_archive_head(file.path) for file in opened[:1])
        fields = {"name": "books", "paths": [str(file.path) for file in files]}
        yield Form("books", "archive of books", len(files), size, text, 0, fields)
    elif what in ("json", "parquet"):
        yield from _tables(what, files, opened=opened, look=look)
    else:
        yield from _texts(what, files, opened=opened, look=look)


def _dumps(files: list[_File], *, size: int, samples: list[str]) -> Form:
    heads = [_decoded(_head(file.path, 1 << 19)) for file in _chosen(files)[:3]]
    for head in heads:
        samples.append(re.sub(r"<[^>]*>|[\[\]{}|=*#']+|https?:\S+", " ", head)[-4 * _HEAD :])
    text = sum(int(file.size * _ratio(file.path) * _DUMP_TEXT) for file in files)
    fields: dict[str, Any] = {"name": "wiki", "paths": [str(file.path) for file in files]}
    if not all("xml:lang=" in head for head in heads):
        fields["language"] = ""  # which no header says: that of the texts
    # Of a download that was cut off, what is whole is worth a model; the run says what was lost.
    fields["on_corrupt"] = "keep-whole-pages"
    return Form("wikipedia", "MediaWiki dump", len(files), size, text, 0, fields)


def _texts(
    what: str, files: list[_File], *, opened: Sequence[_File], look: _Look
) -> Iterator[Form]:
    heads = [text for file in opened if (text := _decoded(_head(file.path, _HEAD)))]
    if not heads:
        look.ignored["text file: its bytes are no text in a known encoding"] += len(files)
        return
    look.samples.extend(heads)
    size = sum(file.size for file in files)
    held = sum(int(file.size * _ratio(file.path)) for file in files)
    is_markdown = what == "markdown"
    # A folder's or a pattern's files have to end as texts do: each Markdown file is named itself.
    named = [str(file.path) for file in files]
    paths = named if is_markdown else _paths(files, look, look.folder)
    if not is_markdown and (
        sum(bool(_GUTENBERG.search(head)) for head in heads) * 2 > len(heads)
        or sum(map(_is_wrapped, heads)) * 2 > len(heads)
    ):
        books = {"name": "books", "paths": paths}
        yield Form("books", "text file (a book each)", len(files), size, held, len(files), books)
        return
    median = statistics.median(file.size for file in files)
    if len(files) >= _MANY and median < _LONG:
        document, documents = "file", len(files)
    else:
        blanks = statistics.mean(head.count("\n\n") / len(head) for head in heads)
        lines = statistics.mean(head.count("\n") / len(head) for head in heads)
        document = "blank-line" if blanks > 0 else "line" if lines > 0 else "file"
        share = blanks if document == "blank-line" else lines
        documents = max(len(files), int(share * held))
    fields: dict[str, Any] = {
        "name": "notes" if is_markdown else "texts", "paths": paths, "document_delimiter": document
    }  # fmt: skip
    if documents < _MANY:  # so that some can be held out
        fields["max_document_bytes"] = max(2048, held // 100)
        documents = max(documents, held // fields["max_document_bytes"])
    called = "Markdown file" if is_markdown else "text file"
    yield Form("text", called, len(files), size, held, documents, fields)


def _tables(
    what: str, files: list[_File], *, opened: Sequence[_File], look: _Look
) -> Iterator[Form]:
    """A form for each column that holds the text: files of a folder may have different ones."""
    by_column = defaultdict[str, list[_File]](list)
    read = _parquet_rows if what == "parquet" else _json_rows
    # Names of columns have to be known of every file where they are few; else of those opened.
    looked = files if len(files) <= 200 else opened
    shares, lengths = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for file in looked:
        rows, share, length = read(file.path)
        column = _text_column(rows)
        if not column:
            look.ignored[f"{file.path.suffix} file: no column of text in its first rows"] += 1
            continue
        by_column[column].append(file)
        texts = [str(row.get(column) or "") for row in rows]
        look.samples.append("\n".join(texts)[:_HEAD])
        held = sum(len(text.encode()) for text in texts)
        shares[column].append(share if share else held / max(1, sum(map(_row_bytes, rows))))
        lengths[column].append(max(1.0, length or held / max(1, len(rows))))
    if len(files) > len(looked) and len(by_column) == 1:
        by_column = defaultdict(list, dict.fromkeys(by_column, files))
    for number, (column, chosen) in enumerate(sorted(by_column.items()), start=1):
        size = sum(file.size for file in chosen)
        ratio = statistics.mean(_ratio(file.path) for file in chosen[:_OPENED])
        text = int(size * ratio * statistics.mean(shares[column]))
        fields = {
            "name": f"{what}{number if len(by_column) > 1 else ''}",
            "paths": _paths(chosen, look, look.folder if len(chosen) == len(files) else None),
            "text_column": column,
        }
        documents = int(text / statistics.mean(lengths[column]))
        called = "Parquet file" if what == "parquet" else "JSON lines file"
        yield Form("text", f"{called} ({column})", len(chosen), size, text, documents, fields)


def _paths(files: Sequence[_File], look: _Look, folder: Path | None) -> list[str]:
    """As in a recipe: the folder that has no others, else the files, or patterns of many."""
    if folder is not None and len(files) > 1:
        return [str(folder)]
    # Patterns hold what comes later, and do not enter a store.
    if len(files) <= _NAMED and not look.has_store:
        return [str(file.path) for file in files]
    named = {str(file.path) for file in files if file.path.parent in look.apart}
    places = {
        (file.path.parent, _ending(file.path.name))
        for file in files
        if file.path.parent not in look.apart
    }
    patterns = {f"{glob.escape(str(parent))}/*{ending}" for parent, ending in places}
    return sorted(named | patterns)


def _ending(name: str) -> str:
    return name[len(_plain(name).rpartition(".")[0]) :]


def _text_column(rows: Sequence[dict[str, Any]]) -> str:
    """The column of text among some rows: by its name, or the one with the longest texts."""
    texts: dict[str, int] = Counter()
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str):
                texts[name] += len(value)
    named = [name for name in _TEXT_COLUMNS if texts.get(name)]
    if named:
        return named[0]
    return max(sorted(texts), key=lambda name: texts[name], default="")


def _json_rows(path: Path) -> tuple[list[dict[str, Any]], float, float]:
    rows = []
    head = _head(path, _HEAD)
    if len(head) == _HEAD and b"\n" not in head:  # the first row is longer
        head = _head(path, _LONG_ROW)
    for line in _decoded(head).split("\n")[:100]:
        try:
            row = json.loads(line)
        except ValueError:
            continue  # the last one is cut; a bad one is counted when it is read
        if isinstance(row, dict):
            rows.append(row)
    return rows, 0.0, 0.0


def _parquet_rows(path: Path) -> tuple[list[dict[str, Any]], float, float]:
    """The first rows, bytes of text in a byte of the file, and in a row."""
    try:
        file = pq.ParquetFile(path)
        batch = next(file.iter_batches(batch_size=50), None)
    except (pa.ArrowException, OSError):
        return [], 0.0, 0.0
    rows = batch.to_pylist() if batch is not None else []
    column = _text_column(rows)
    if not column:
        return rows, 0.0, 0.0
    parts = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    held = sum(
        part.column(at).total_uncompressed_size
        for part in parts
        for at in range(part.num_columns)
        if part.column(at).path_in_schema == column
    )
    return rows, held / max(1, path.stat().st_size), held / max(1, file.metadata.num_rows)


def _row_bytes(row: dict[str, Any]) -> int:
    return len(json.dumps(row, ensure_ascii=False).encode()) + 1


def _chosen(files: Sequence[_File]) -> list[_File]:
    """Some files, evenly spaced."""
    step = max(1, len(files) // _OPENED)
    return list(files[::step][:_OPENED])


def _head(path: Path, size: int) -> bytes:
    """The first bytes of a file, decompressed; none where it cannot be read."""
    data = bytearray()
    # What comes before damage is looked at; the run says what it is.
    with contextlib.suppress(OSError, InputError), path.open("rb") as stream:
        form = compression_of(stream.read(8), name=path.name)
        if form == "plain":
            stream.seek(0)
            return stream.read(size)
        for chunk in decompressed(stream, form, start=0, end=path.stat().st_size):
            if isinstance(chunk, Damage):
                break
            data += chunk.data
            if len(data) >= size:
                break
    return bytes(data[:size])


def _decoded(data: bytes) -> str:
    """The text of the beginning of a file, whose last character may be cut."""
    for cut in range(4):
        try:
            return data[: len(data) - cut].decode("utf-8-sig")
        except UnicodeDecodeError:
            continue
    found = decode_text(data[: len(data) // 4 * 4])
    return found.text if found is not None else ""


def _ratio(path: Path) -> float:
    return _EXPANSION.get(path.suffix, 1.0) if path.suffix in _COMPRESSED else 1.0


def _unpacked(file: _File) -> int:
    """Bytes of the text files in an archive; of tars, by what text is compressed to."""
    if file.path.suffix == ".zip":
        try:
            with zipfile.ZipFile(file.path) as archive:
                return sum(one.file_size for one in archive.infolist() if not one.is_dir())
        except (zipfile.BadZipFile, OSError):
            return 0
    suffix = {".tgz": ".gz", ".tbz2": ".bz2", ".txz": ".xz"}.get(file.path.suffix, file.path.suffix)
    return int(file.size * _EXPANSION.get(suffix, 1.0))


def _archive_head(path: Path) -> str:
    """The beginning of the first text in an archive; "" where it cannot be read."""
    file = SourceFile(uri=str(path), name=path.name, size=path.stat().st_size, sha256="")
    with contextlib.suppress(CorruptInputError):
        for member, stream in read_members(file, max_bytes=1 << 26):
            if stream is not None and member.name.endswith(".txt"):
                return _decoded(stream.read(_HEAD))
    return ""


def _is_wrapped(text: str) -> bool:
    """Whether lines are cut at a width, as in books typed for a screen: most are nearly as long."""
    lines = [len(line) for line in text.splitlines() if line.strip()]
    if len(lines) < 40:
        return False
    longest = sorted(lines)[int(0.95 * len(lines))]
    near = sum(0.75 * longest < length <= longest + 3 for length in lines)
    return 40 <= longest <= 100 and near > 0.5 * len(lines)
