"""Detect the encoding of a text once, from a sample, and convert the text to UTF-8.

The order is fixed, so that the same bytes always give the same text: a byte-order mark, UTF-8, and
only then the statistics of `chardet`. Where UTF-8 has damaged characters, or a byte does not exist
in the detected encoding, the converted text is not valid UTF-8 there: readers drop that record and
count it.
"""

from __future__ import annotations

import codecs
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple, cast

UTF8 = "utf-8"

_MARKS = (  # UTF-32 before UTF-16: its little-endian mark begins with that of UTF-16.
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE_BYTES = 1 << 17
_PLAIN = bytes([*b"\t\n\v\f\r\x1a", *range(0x20, 0x80)])
"""Bytes of ASCII texts. Other control characters are bytes of UTF-16 or ISO-2022."""

_SPECIAL = re.compile(b"[^%s]" % re.escape(_PLAIN))
_CONTROLS = bytes({*range(0x20)} - {*_PLAIN, 0x1B})
_MAX_CONTROL_SHARE = 0.02
_SUPERSETS = {"iso8859-1": "cp1252", "iso8859-9": "cp1254"}
"""Encodings with more characters, of which the sample may have none."""

_FEW_BYTES, _ENOUGH_BYTES = 16, 32
"""Numbers of bytes that are not ASCII, for a guess."""

_PAIR = re.compile(b"[\x80-\xff]{2}")
_COMMON_LATIN = ("cp1250", "cp1252", "cp1254", "cp1257", "iso8859-1", "iso8859-2", "iso8859-15")
_MIN_PIECES, _MAX_PIECES = 3, 9
_LINE_ENDS = re.compile(r"[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f\xad\u200b\u200e\u200f\u2060\ufeff]")
_SPACES = re.compile("[\t\xa0\u2000-\u200a\u202f\u205f\u3000]")


class DecodedText(NamedTuple):
    """A text and the encoding of its bytes."""

    text: str
    encoding: str
    """Name of Python's codec: `utf-8`, `cp1252`, `utf-16-le`, ..."""


class EncodingSample:
    """Bytes that decide the encoding of a text: 128 kB from the first that is not plain ASCII.

    The sample depends on the text only, not on the chunks in which it is read.
    """

    def __init__(self) -> None:
        self.data = b""
        self._position = 0

    @property
    def is_full(self) -> bool:
        """True if further bytes do not change the sample."""
        return len(self.data) >= _SAMPLE_BYTES

    def update(self, chunk: bytes) -> None:
        """Add the next bytes of the text."""
        if self.data:
            self.data += chunk[: _SAMPLE_BYTES - len(self.data)]
        elif special := chunk.translate(None, delete=_PLAIN) and _SPECIAL.search(chunk):
            # Characters of UTF-16 and UTF-32 begin at multiples of their size.
            start = max(0, special.start() - (self._position + special.start()) % 4)
            self.data = chunk[start : start + _SAMPLE_BYTES]
        self._position += len(chunk)


def detect_encoding(sample: bytes) -> str | None:
    """Return the name of Python's codec for a text; None if the bytes are no known text.

    Args:
        sample: A text, or the sample of a long one. The last character can be incomplete.
    """
    for mark, encoding in _MARKS:
        if sample.startswith(mark):
            return encoding
    rest = sample.translate(None, delete=_CONTROLS)
    if len(sample) - len(rest) < _MAX_CONTROL_SHARE * len(sample):
        sample = rest  # a few damaged records do not cost the others
    is_plain = sample.isascii() and b"\0" not in sample and b"\x1b$" not in sample
    if is_plain or _is_utf8(sample):
        return UTF8
    return _guess(sample) or _find_wide_encoding(sample)


def _is_utf8(sample: bytes) -> bool:
    """Return whether a sample is UTF-8. A few damaged characters do not make it another text."""
    if b"\0" in sample or b"\x1b$" in sample:
        return False
    text = codecs.getincrementaldecoder(UTF8)("replace").decode(sample)
    damaged = text.count("\ufffd")
    if not damaged:
        return True
    return sum(character > "\x7f" for character in text) > 2 * damaged


def _guess(sample: bytes) -> str | None:
    """Return the encoding of most pieces of a sample, or that of the whole.

    One damaged byte rules an encoding out, so without the pieces it could spoil the whole text.
    """
    lines = sample.splitlines(keepends=True)
    number = min(_MAX_PIECES, len(lines), _count_special(sample) // _ENOUGH_BYTES)
    if b"\0" in sample or number < _MIN_PIECES:
        return _guess_piece(sample)
    pieces = [b"".join(lines[at::number]) for at in range(number)]
    encoding, votes = Counter(map(_guess_piece, pieces)).most_common(1)[0]
    return encoding if encoding and 2 * votes > number else _guess_piece(sample)


def _count_special(sample: bytes) -> int:
    return len(sample.translate(None, delete=_PLAIN))


def _guess_piece(sample: bytes) -> str | None:
    import chardet  # lazy: rarely needed

    eras = chardet.EncodingEra
    era, included = eras.ALL & ~eras.MAINFRAME, None
    if (number := _count_special(sample)) < _FEW_BYTES:  # too few to find rare encodings
        era = eras.MODERN_WEB | eras.LEGACY_ISO
        is_single = 3 * len(_PAIR.findall(sample)) < number and not sample.isascii()
        if is_single:  # letters of other scripts stand together
            included = _COMMON_LATIN
    guess = chardet.detect(
        sample,
        max_bytes=len(sample),
        encoding_era=era,
        compat_names=False,
        include_encodings=included,
        exclude_encodings=[UTF8, "utf-8-sig"],
        no_match_encoding="ascii",
    )
    name = guess["encoding"]
    return None if name in (None, "ascii") else _SUPERSETS.get(name, name)


def _find_wide_encoding(sample: bytes) -> str | None:
    """Return UTF-16 of the byte order in which a sample has only assigned characters."""
    for encoding in ("utf-16-le", "utf-16-be"):
        text = sample[: len(sample) & ~1].decode(encoding, "replace")
        if b"\0" in sample and not any(
            unicodedata.category(character) in ("Cc", "Cn", "Co") and not character.isspace()
            for character in text.rstrip("\ufffd")
        ):
            return encoding
    return None


def decode_text(data: bytes) -> DecodedText | None:
    """Return a whole text without its byte-order mark.

    Returns:
        None if the bytes are not text in any known encoding, or not valid in theirs.
    """
    sample = EncodingSample()
    sample.update(data)
    encoding = detect_encoding(sample.data)
    if encoding is None:
        return None
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else DecodedText(text, encoding)


def decode_utf8(data: bytes) -> str | None:
    """Return a text in UTF-8; None if it is damaged, or has zero bytes as no text has."""
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def convert_to_utf8(
    chunks: Iterable[bytes], on_encoding: Callable[[str], object], *, encoding: str = ""
) -> Generator[bytes, None, None]:
    """Yield a text in UTF-8. Bytes that do not exist in its encoding give invalid UTF-8.

    Args:
        chunks: All bytes of the text, in order.
        on_encoding: Called with the encoding if it is not UTF-8, before its first bytes.
        encoding: Name of Python's codec. "": detect it; a text of no known encoding stays as it is.
    """
    chunks, held, sample = iter(chunks), list[bytes](), EncodingSample()
    while not encoding and not sample.is_full and (chunk := next(chunks, b"")):
        sample.update(chunk)
        if sample.data:
            held.append(chunk)
        else:  # plain ASCII so far, which is the same in UTF-8
            yield chunk
    encoding = encoding or detect_encoding(sample.data) or UTF8
    if encoding == UTF8:
        yield from held
        yield from chunks
        return
    on_encoding(encoding)
    decoder = codecs.getincrementaldecoder(encoding)(_MARK_AS_INVALID)
    for chunk in itertools.chain(held, chunks, [b""]):
        text = decoder.decode(chunk, final=not chunk).translate(_NO_TEXT)
        yield text.encode(UTF8, "surrogatepass")


_MARK_AS_INVALID = "bertloom-mark-as-invalid"
_NO_TEXT = {code: "\udcff" for code in range(0x80, 0xA0) if code != 0x85}
"""Control characters that a wrong encoding gives, as invalid ones."""


def _mark_as_invalid(error: UnicodeError) -> tuple[str, int]:
    return "\udcff", cast(UnicodeDecodeError, error).end


codecs.register_error(_MARK_AS_INVALID, _mark_as_invalid)


def normalise(text: str) -> str:
    """Return text with LF line ends and plain spaces, without control or invisible characters."""
    text = _LINE_ENDS.sub("\n", text.replace("\r\n", "\n"))
    return _SPACES.sub(" ", _INVISIBLE.sub("", text))
