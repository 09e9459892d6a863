"""Files that a command writes where the user says."""

from __future__ import annotations

from pathlib import Path

from schemas.errors import ConfigError


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        ConfigError: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.partial")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(f"{path}: cannot be written: {error}") from error


def holds(path: Path, text: str) -> bool | None:
    """Whether a file has just this text; None where there is no file.

    Raises:
        ConfigError: something is there that cannot be read.
    """
    try:
        return path.read_bytes() == text.encode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
