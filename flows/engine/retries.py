"""Which failures are worth another try, and when."""

from __future__ import annotations

import errno

from schemas.errors import BertloomError, RunnerError

RETRY_DELAYS: tuple[float, ...] = (10, 60)
"""Seconds to wait before each further try of a step that failed for a passing reason."""

# OSErrors that waiting does not mend.
_LASTING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT,
     errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EEXIST, errno.EMFILE, errno.EINVAL}
)  # fmt: skip


def is_passing(error: BaseException) -> bool:
    """Whether a failure may be gone at another try: a network's or a disk's, not a user's error.

    A `RunnerError` is judged by what it was raised from.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError):
            return seen.errno not in _LASTING and not isinstance(
                seen, (FileNotFoundError, PermissionError, FileExistsError)
            )
        if isinstance(seen, BertloomError) and not isinstance(seen, RunnerError):
            return False
        seen = seen.__cause__
    return False
