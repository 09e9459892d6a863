"""Names that files of a split go by."""

from __future__ import annotations

from collections.abc import Sequence

_COMPRESSED = ("", ".gz", ".bz2", ".zst")
_TEXT_FORMATS = (".tsv", ".csv", ".jsonl", ".json")


def table_globs(
    *stems: str, folders: Sequence[str] = (), hub: Sequence[str] = ()
) -> tuple[str, ...]:
    """Globs below a task's folder, in the order in which they are tried.

    Args:
        stems: official names without what tells the format, such as `train` or `dev_matched`.
        folders: names that the task's folder has in an unpacked benchmark, so that the benchmark's
            own folder may be given.
        hub: names that the split has on the Hugging Face hub, where its files are in `data/`, in
            the task's folder, or in the folder given.
    """
    globs = []
    for folder in ("", *(f"{name}/" for name in folders)):
        for stem in stems:
            globs += [f"{folder}{stem}{form}{end}" for form in _TEXT_FORMATS for end in _COMPRESSED]
    for folder in ("", "data/", *(f"{name}/" for name in folders)):
        for stem in dict.fromkeys((*stems, *hub)):
            globs += [f"{folder}{stem}.parquet", f"{folder}{stem}-?????-of-?????.parquet"]
    return tuple(globs)
