"""Addresses of raw files without credentials."""

from __future__ import annotations

import re

_WEB = re.compile(r"(https?://)(?:[^/?#]*@)?([^?#]*)", re.IGNORECASE)
_PARAMETERS = re.compile(r";[^/]*")
_USER = re.compile(r"(://)[^/:@]*:[^/@]*@")


def public_address(address: str) -> str:
    """Return an address without user, password, parameters, query and fragment.

    Names, document ids, cache keys and records use it. A query can have a key or signature under
    any name, so it is removed as a whole; a new signature does not change a cache key. Addresses
    other than http(s) only lose `USER:PASSWORD@`, because their names can have `?`, `#` and `;`.
    """
    match = _WEB.search(address)
    if match is None:
        return _USER.sub(r"\1", address)
    return address[: match.start()] + match[1] + _PARAMETERS.sub("", match[2])
