"""Names of ships, as templates such as `{{HMS|Brave|1797|6}}` write them."""

from __future__ import annotations

_PREFIX, _NAME, _NUMBER = 4, 2, 1  # bits of a format number
_ALL = _PREFIX | _NAME | _NUMBER


def ship_name(prefix: str, name: str, number: str, choice: str) -> str:
    """Return prefix, name and number of a ship, or the parts that a format number chooses.

    >>> ship_name("HMS", "Brave", "1797", "6")
    'HMS Brave'
    """
    bits = int(choice) % 8 if choice.isascii() and choice.isdecimal() else _ALL
    if bits in (0, _PREFIX):  # not a format
        bits = _ALL
    if number and bits != _NUMBER:
        number = f"({number})"
    parts = ((_PREFIX, prefix), (_NAME, name), (_NUMBER, number))
    return " ".join(part for bit, part in parts if bits & bit and part)
