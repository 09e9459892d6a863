# ruff: noqa: RUF001 - this module is about the quotes and dashes of books
"""Detect the encoding of a text, and decode it.

The order is fixed, so that the same bytes always give the same text: a byte-order mark, strict
UTF-8, UTF-16 and UTF-32 without a mark (by their zero bytes), windows-1252 or Latin-1 in Western
text (by their C1 bytes), and only then charset-normalizer's statistics.
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

_MARKS = (  # UTF-32 before UTF-16: its little-endian mark begins with that of UTF-16.
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_PROBE_BYTES = 1 << 16
_WESTERN_LETTERS = frozenset("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿŒœŠšŽžŸ")
_WESTERN_SIGNS = frozenset("‘’“”‚„–—…•£©®§°±¼½¾«»¡¿·†‡€¶´¨ªº×÷²³¹™¢¥\xa0\xad")
# A letter with one of these right after it: "ksi\xb9\xbfka" is Polish read with the wrong table.
_FOREIGN = re.compile("[A-Za-z][£¥§©®±¶¼½¾¢¨¬¯°´¸¹³¿¡÷×\xa5]")
_MAX_NON_ASCII_SHARE = 0.35
_MIN_WESTERN_SHARE = 0.95
_MAX_FOREIGN_SHARE = 0.02
_LETTER_RUN = re.compile(f"[{''.join(sorted(_WESTERN_LETTERS))}]{{3}}")
_LINE_ENDS = re.compile(r"[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f\xad\u200b\u200e\u200f\u2060\ufeff]")
_SPACES = re.compile("[\t\xa0\u2000-\u200a\u202f\u205f\u3000]")


class DecodedText(NamedTuple):
    """A text and the encoding of its bytes."""

    text: str
    encoding: str
    """Python's name in kebab-case: `utf-8`, `windows-1252`, `utf-16-le`, ..."""


def decode_text(data: bytes) -> DecodedText | None:
    """Decode a text of unknown encoding, without its byte-order mark.

    Args:
        data: All bytes of the text.

    Returns:
        The text and its encoding; None if the bytes are not text in any known encoding.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _strictly(data[len(mark) :], encoding)
    wide = _wide_encoding(data[:_PROBE_BYTES])
    if wide is not None:
        return _strictly(data, wide)
    if b"\x00" in data:
        return None  # no text has zero bytes, and every 8-bit encoding would take them
    return _strictly(data, "utf-8") or _western(data) or _guessed(data)


def _strictly(data: bytes, encoding: str) -> DecodedText | None:
    try:
        return DecodedText(data.decode(encoding), encoding)
    except UnicodeDecodeError:
        return None


def _wide_encoding(probe: bytes) -> str | None:
    """Detect UTF-16 or UTF-32 without a byte-order mark by the positions of zero bytes."""
    zeros = [probe[phase::4].count(0) / max(1, len(probe[phase::4])) for phase in range(4)]
    for encoding, places in (("utf-32-le", (1, 2, 3)), ("utf-32-be", (0, 1, 2))):
        if all(zeros[place] > 0.9 for place in places) and len(probe) >= 4:
            return encoding
    if len(probe) >= 2:
        even, odd = (zeros[0] + zeros[2]) / 2, (zeros[1] + zeros[3]) / 2
        if odd > 0.5 and even < 0.05:
            return "utf-16-le"
        if even > 0.5 and odd < 0.05:
            return "utf-16-be"
    return None


def _western(data: bytes) -> DecodedText | None:
    """Decode windows-1252 or Latin-1, if nearly all other characters are Western letters and signs.

    A Cyrillic or Greek text would read as long runs of accented letters; a Western one has them
    singly, between ASCII letters.
    """
    if any(byte < 0x20 and byte not in b"\t\n\r\x0b\x0c\x1a" for byte in data[:_PROBE_BYTES]):
        return None
    has_c1 = any(0x80 <= byte < 0xA0 for byte in set(data))
    decoded = _strictly(data, "windows-1252") if has_c1 else _strictly(data, "iso-8859-1")
    if decoded is None:
        return None
    others = [character for character in decoded.text if character >= "\x80"]
    western = sum(
        character in _WESTERN_LETTERS or character in _WESTERN_SIGNS for character in others
    )
    if len(others) > _MAX_NON_ASCII_SHARE * len(data) or western < _MIN_WESTERN_SHARE * len(others):
        return None
    if len(_FOREIGN.findall(decoded.text)) > _MAX_FOREIGN_SHARE * len(others):
        return None
    return None if _LETTER_RUN.search(decoded.text) else decoded


def _guessed(data: bytes) -> DecodedText | None:
    import charset_normalizer  # lazy: rarely needed

    best = charset_normalizer.from_bytes(data, threshold=0.2).best()
    if best is None:
        return None
    return DecodedText(str(best).removeprefix("\ufeff"), best.encoding.replace("_", "-"))


def normalise(text: str) -> str:
    """Return text with LF line ends and plain spaces, without control or invisible characters."""
    text = _LINE_ENDS.sub("\n", text.replace("\r\n", "\n"))
    return _SPACES.sub(" ", _INVISIBLE.sub("", text))
