"""Addresses of raw files without what grants access to them."""

from __future__ import annotations

import re

_WEB = re.compile(r"(https?://)(?:[^/?#]*@)?([^?#]*)", re.IGNORECASE)
_PARAMETERS = re.compile(r";[^/]*")
_USER = re.compile(r"(://)[^/:@]*:[^/@]*@")


def public_address(address: str) -> str:
    """Return an address without user, password, parameters, query and fragment.

    Names, document ids, cache keys and records are made from it. A query may hold a key or a
    signature under any name, so all of it is removed, and a new signature does not change a cache
    key. Of addresses that are not http(s), only `USER:PASSWORD@` is removed: `?`, `#` and `;` are
    part of names there. A path is returned as it is.
    """
    found = _WEB.search(address)
    if found is None:
        return _USER.sub(r"\1", address)
    return address[: found.start()] + found[1] + _PARAMETERS.sub("", found[2])
