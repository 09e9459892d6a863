"""The folders that rebuilds download dumps to: one for each dump, the oldest deleted in time.

    DOWNLOADS/simplewiki/20261001/      files of a dump, and a mark that this command made it

A folder without the mark was made by someone else, and is never deleted.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from schemas.errors import ConfigError

MARK = ".made-by-bertloom-rebuild.json"
_DATE = re.compile(r"[0-9]{8}")


def downloads_folder(downloads: str) -> Path:
    """The folder of all dumps, as an absolute path.

    Raises:
        ConfigError: `downloads` is no local folder.
    """
    if "://" in downloads or "::" in downloads:
        raise ConfigError(
            f"--downloads {downloads}: expected a folder of this machine, where downloads are "
            "resumed and verified"
        )
    return Path(downloads).expanduser().absolute()


def make_folder(folder: Path) -> None:
    """Make a dump's folder, and mark it as made here; one that is there is left as it is."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return
    mark = {"wiki": folder.parent.name, "date": folder.name}
    (folder / MARK).write_text(json.dumps(mark) + "\n", encoding="utf-8")


def delete_old(folder: Path, *, keep: int) -> list[Path]:
    """Delete the oldest of a wiki's marked dumps that are older than the one in use.

    Args:
        folder: of the dump in use, which stays.
        keep: how many of those and the one in use stay; at least 1.

    Returns:
        The deleted folders, newest first.
    """
    older = [other for other in folder.parent.iterdir() if other.name < folder.name]
    doomed = sorted(filter(_is_ours, older), reverse=True)[max(keep, 1) - 1 :]
    for other in doomed:
        shutil.rmtree(other)
    return doomed


def _is_ours(folder: Path) -> bool:
    if not _DATE.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
        return False
    return (folder / MARK).is_file()
