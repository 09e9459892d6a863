"""Errors of files of books."""

from __future__ import annotations


class BookError(Exception):
    """A file that gives no book. It is dropped and counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """Reason in the name of the counter, such as `malformed`."""
