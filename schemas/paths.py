"""Relative paths in records, which must stay in their folder."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def check_relative_path(path: str) -> str:
    """Return a relative path that stays in its folder.

    Raises:
        ValueError: The path is empty or absolute, or a part of it is `..`.
    """
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"expected a relative path without `..`, got {path!r}")
    return path


RelativePath = Annotated[str, AfterValidator(check_relative_path)]
"""Type of a field that is joined to the path of a folder."""
