"""Redaction of secrets and escaping of control characters in text that bertloom shows or records.

File names and titles come from archives of unknown origin; addresses can have passwords and
signatures.
"""

from __future__ import annotations

import logging
import re
from typing import Any

_HIDDEN = "***"
_CLOSING = ".,:;!)]}"
"""Punctuation at the end of an address that belongs to the message."""

_WEB = re.compile(r"(https?://)(?:[^/?#]*@)?([^?#]*)", re.IGNORECASE)
_PARAMETERS = re.compile(r";[^/]*")
_USER_AND_PASSWORD = re.compile(r"(://)[^/:@]*:[^/@]*@")

# C0 except tab and line feed, DEL, C1, line and paragraph separators, direction marks, and lone
# surrogates, which cannot be encoded.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)

_NAMES = (
    r"(?:token(?!s|i|_prob)|secret|passw(?:or)?d|signature|credential|(?:access|api|account|private)[_-]?key"
    r"|googleaccessid|\bsig\b|\bpwd\b)[a-z0-9_-]{0,40}"
)
_QUERY = re.compile(r"(https?://[^\s?#'\"<>]*\?)([^\s'\"<>]+)", re.IGNORECASE)
_PAGE = re.compile(r"(?:curid|oldid)=\d{1,12}")
# A colon after the value is part of the message: `URL?sig=VALUE: cannot be reached`.
_PARAMETER = re.compile(rf"({_NAMES}(?:=|%3D))[^&\s'\"<>]+?(?=:?(?:[&\s'\"<>]|$))", re.IGNORECASE)
_QUOTED = re.compile(rf"({_NAMES}(['\"])\s?:\s?(?:b?)(['\"]))(?:(?!\3)[^\n])+", re.IGNORECASE)
_ELEMENT = re.compile(
    r"(<(?:AWSAccessKeyId|SignatureProvided|StringToSign|StringToSignBytes|CanonicalRequest)>)[^<]+"
)
_HEADER = re.compile(
    r"(authorization['\"]?\s?[:=]\s?['\"]?)(?:(?:bearer|basic|token)\s)?[^\s'\",]+", re.IGNORECASE
)
# USER:PASSWORD before the host. The password can contain @ or, as Amazon's do, a slash.
_USER = re.compile(
    r"(?<=://)(?:[^\s/?#'\"]{1,300}|[^\s/@?#:'\"]{1,100}:(?!\d{1,5}/)[^\s?#'\"]{1,300})(?=@)"
)
# Keys with a known prefix: Amazon's, Hugging Face's, GitHub's.
_KEY = re.compile(r"\b(?:A[KS]IA[A-Z0-9]{16}|(?:hf_|gh[pousr]_|github_pat_)[A-Za-z0-9_]{16,})\b")
_MIN_KEY = 19
"""Number of characters of the shortest key with a known prefix."""

_SIGNS = re.compile("[:=%<]")
"""Signs of which all other patterns have one: most names and numbers need no look at them."""

_FLAG = re.compile(rf"--?[a-z0-9_-]{{0,60}}?{_NAMES}", re.IGNORECASE)
_SECRET_KEY = re.compile(
    r"(?:^|[._])(?:\w{0,40}(?:secret|password|credentials?)|api_?key|\w{0,40}access_key)$"
)


def escape_control_characters(text: str) -> str:
    """Return a text with control characters except tab and line feed as `\\u001b`."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def public_address(address: str) -> str:
    """Return an address without user, password, parameters, query and fragment.

    Names, document ids, cache keys and records use it. A query can have a key or signature under
    any name, so it is removed as a whole; a new signature does not change a cache key. Addresses
    other than http(s) only lose `USER:PASSWORD@`, because their names can have `?`, `#` and `;`.
    """
    match = _WEB.search(address)
    if match is None:
        return _USER_AND_PASSWORD.sub(r"\1", address)
    return address[: match.start()] + match[1] + _PARAMETERS.sub("", match[2])


def redact(value: Any) -> Any:
    """Return a JSON value with `***` in place of passwords, tokens and signatures.

    Redacted are `USER:PASSWORD@` and the query of addresses, parameters such as
    `X-Amz-Signature=`, headers, keys with a known prefix, values of options
    (`--s3_secret_access_key=KEY`, also as the next item of a list) and values whose key is the name
    of a secret.
    """
    if isinstance(value, str):
        return _redact_text(value)
    if isinstance(value, dict):
        return {
            key: _HIDDEN if item and isinstance(item, str) and is_secret_key(key) else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        is_secret = [_is_secret_flag(before) for before in (None, *value)]
        return [
            _HIDDEN if secret and not str(item).startswith("--") else redact(item)
            for item, secret in zip(value, is_secret, strict=False)
        ]
    return value


def redact_record(value: Any) -> Any:
    """Return a JSON value redacted for a record, in which addresses also lose their queries."""
    if isinstance(value, dict):
        return redact({key: redact_record(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return redact([redact_record(item) for item in value])
    is_address = isinstance(value, str) and "://" in value and not re.search(r"\s", value)
    return redact(public_address(value) if is_address else value)


def is_secret_key(key: object) -> bool:
    """Return True if a configuration key is the name of a secret."""
    return isinstance(key, str) and _SECRET_KEY.search(key) is not None


class RedactingFormatter(logging.Formatter):
    """Formatter whose lines are redacted and have no control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted, redacted record."""
        return escape_control_characters(_redact_text(super().format(record)))


def _redact_text(text: str) -> str:
    if len(text) < _MIN_KEY and not _SIGNS.search(text):
        return text
    text = _USER.sub(_HIDDEN, text)
    text = _QUERY.sub(_hide_query, text)
    for pattern in (_PARAMETER, _QUOTED, _ELEMENT, _HEADER):
        text = pattern.sub(rf"\1{_HIDDEN}", text)
    return _KEY.sub(_HIDDEN, text)


def _hide_query(match: re.Match[str]) -> str:
    """Hide a query whole: a key or signature in it can have any name.

    Addresses of wiki pages and revisions stay, as lineage ends with them.
    """
    query = match[2].rstrip(_CLOSING)
    shown = query if _PAGE.fullmatch(query) else _HIDDEN
    return f"{match[1]}{shown}{match[2][len(query) :]}"


def _is_secret_flag(value: Any) -> bool:
    return isinstance(value, str) and _FLAG.fullmatch(value) is not None
