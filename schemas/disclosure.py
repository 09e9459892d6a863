"""What may be shown: text of others without control characters, and nothing that opens a door.

Whatever bertloom prints, logs, records or raises passes here: names of files and titles come from
archives that anybody may have made, and addresses may hold passwords and signatures.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from schemas.addresses import public_address

_HIDDEN = "***"

# C0 but for the tab and the line feed, DEL, C1, line and paragraph separators, and the marks that
# turn the direction of what follows; half a surrogate pair cannot even be written.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)

_NAMES = (
    r"(?:token(?!s|i|_prob)|secret|passw(?:or)?d|signature|credential|(?:access|api|account|private)[_-]?key"
    r"|googleaccessid|\bsig\b|\bpwd\b)[a-z0-9_-]{0,40}"
)
# A colon behind the value belongs to the sentence: `URL?sig=VALUE: cannot be reached`.
_PARAMETER = re.compile(rf"({_NAMES}(?:=|%3D))[^&\s'\"<>]+?(?=:?(?:[&\s'\"<>]|$))", re.IGNORECASE)
_QUOTED = re.compile(rf"({_NAMES}(['\"])\s?:\s?(?:b?)(['\"]))(?:(?!\3)[^\n])+", re.IGNORECASE)
_ELEMENT = re.compile(
    r"(<(?:AWSAccessKeyId|SignatureProvided|StringToSign|StringToSignBytes|CanonicalRequest)>)[^<]+"
)
_HEADER = re.compile(
    r"(authorization['\"]?\s?[:=]\s?['\"]?)(?:(?:bearer|basic|token)\s)?[^\s'\",]+", re.IGNORECASE
)
# USER:PASSWORD before the host, also where the password holds an @ or, as Amazon's do, a slash.
_USER = re.compile(
    r"(?<=://)(?:[^\s/?#'\"]{1,300}|[^\s/@?#:'\"]{1,100}:(?!\d{1,5}/)[^\s?#'\"]{1,300})(?=@)"
)
# Keys that say what they are: Amazon's, Hugging Face's, GitHub's.
_KEY = re.compile(r"\b(?:A[KS]IA[A-Z0-9]{16}|(?:hf_|gh[pousr]_|github_pat_)[A-Za-z0-9_]{16,})\b")
_FLAG = re.compile(rf"--?[a-z0-9_-]{{0,60}}?{_NAMES}", re.IGNORECASE)
_SECRET_KEY = re.compile(
    r"(?:^|[._])(?:\w{0,40}(?:secret|password|credentials?)|api_?key|\w{0,40}access_key)$"
)


def visible(text: str) -> str:
    """A text whose control characters are written out, `\\u001b` for an escape: shown, not obeyed.

    Tabs and line feeds stay. What it writes is the same in a JSON text.
    """
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def without_secrets(value: Any) -> Any:
    """A JSON value without passwords, tokens and signatures in its texts.

    That is `USER:PASSWORD@` of addresses, parameters such as `X-Amz-Signature=`, headers, keys of
    known forms, values of options (`--s3_secret_access_key=KEY`, also as the next item of a list)
    and what a secret's name is the key of.
    """
    if isinstance(value, str):
        return _text_without_secrets(value)
    if isinstance(value, dict):
        return {
            key: _HIDDEN if item and is_secret_name(key) and isinstance(item, str)
            else without_secrets(item)
            for key, item in value.items()
        }  # fmt: skip
    if isinstance(value, (list, tuple)):
        hidden = [_is_secret_flag(before) for before in (None, *value)]
        return [
            _HIDDEN if is_hidden and not str(item).startswith("--") else without_secrets(item)
            for item, is_hidden in zip(value, hidden, strict=False)
        ]
    return value


def recorded(value: Any) -> Any:
    """Return a JSON value as records keep it: `without_secrets`, and with public addresses only.

    A text that is an http(s) address loses its whole query, because a key may have any name.
    """
    if isinstance(value, dict):
        return without_secrets({key: recorded(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return without_secrets([recorded(item) for item in value])
    is_address = isinstance(value, str) and "://" in value and not re.search(r"\s", value)
    return without_secrets(public_address(value) if is_address else value)


def _text_without_secrets(text: str) -> str:
    text = _USER.sub(_HIDDEN, text)
    for pattern in (_PARAMETER, _QUOTED, _ELEMENT, _HEADER):
        text = pattern.sub(rf"\1{_HIDDEN}", text)
    return _KEY.sub(_HIDDEN, text)


def is_secret_name(key: object) -> bool:
    """Whether what has this name in a configuration is nobody's business."""
    return isinstance(key, str) and _SECRET_KEY.search(key) is not None


def _is_secret_flag(value: Any) -> bool:
    """Whether it is the name of an option whose value, which comes next, is nobody's business."""
    return isinstance(value, str) and _FLAG.fullmatch(value) is not None


class Guarded(logging.Formatter):
    """Log lines, with what libraries say in them, as they may be shown."""

    def format(self, record: logging.LogRecord) -> str:
        """As `logging.Formatter` has it, then made visible and without secrets."""
        return visible(_text_without_secrets(super().format(record)))
