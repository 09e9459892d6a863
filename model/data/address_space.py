"""Files mapped consecutively into one reserved address range.

The kernel limits a process to about 65,000 maps (vm.max_map_count). Beyond that, files are mapped
on demand, each always at the same address, and the least recently used ones are unmapped.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

_LIMIT_FILE = Path("/proc/sys/vm/max_map_count")
_USUAL_LIMIT = 65_530
_OTHERS = 4_096  # maps left to libraries, stacks and other sets of instances
_MAP_FIXED = 0x10  # of Linux and macOS alike; `mmap` has no name for it
_FAILED = ctypes.c_void_p(-1).value


def most_files() -> int:
    """Return the number of files that a process may map, with unmapped gaps between them."""
    try:
        limit = int(_LIMIT_FILE.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no Linux
        limit = _USUAL_LIMIT
    return max(1, (limit - _OTHERS) // 2)


class AddressSpace:
    """Address range for files of the given sizes in bytes; each file starts at a page.

    Attributes:
        span: The whole range. Only addresses of mapped files may be read.
        offsets: Offset of each file in the range.
    """

    def __init__(self, files: Sequence[Path], sizes: Sequence[int]) -> None:
        """Reserve the range without mapping files."""
        self._files, self._sizes = tuple(files), tuple(sizes)
        pages = -(-np.array(self._sizes, np.int64) // mmap.PAGESIZE)
        ends = np.append(0, np.cumsum(pages)) * mmap.PAGESIZE
        self.offsets: list[int] = ends[:-1].tolist()
        self._space = mmap.mmap(
            -1, max(int(ends[-1]), mmap.PAGESIZE), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0
        )
        self.span = pa.py_buffer(self._space)
        self._mapped: OrderedDict[int, None] = OrderedDict()
        self._most = most_files()
        self.holds_all = len(self._files) <= self._most
        """Whether all files can be mapped at once."""

    @property
    def most(self) -> int:
        """Maximum number of mapped files."""
        return self._most

    def hold(self, numbers: Iterable[int]) -> None:
        """Map files, at most `most`; others may be unmapped.

        Raises:
            OSError: A file no longer exists, is shorter than before, or cannot be mapped.
        """
        wanted = dict.fromkeys(numbers)
        for number in wanted:
            if number in self._mapped:
                self._mapped.move_to_end(number)
        for number in wanted:
            if number not in self._mapped:
                while len(self._mapped) >= self._most:
                    self._place(self._mapped.popitem(last=False)[0], None)
                with self._files[number].open("rb") as file:
                    found = os.fstat(file.fileno()).st_size
                    if found != self._sizes[number]:
                        raise OSError(f"expected {self._sizes[number]:,} bytes, found {found:,}")
                    self._place(number, file.fileno())
                self._mapped[number] = None

    def _place(self, number: int, file: int | None) -> None:
        """Map a file, or an empty page range, at a file's address."""
        size = self._sizes[number]
        if not size:
            return
        flags, access = mmap.MAP_SHARED, mmap.PROT_READ
        if file is None:
            flags, access = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0
        at = self.span.address + self.offsets[number]
        place = _libc().mmap(at, size, access, flags | _MAP_FIXED, -1 if file is None else file, 0)
        if place == _FAILED:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(self._files[number]))


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    return libc
