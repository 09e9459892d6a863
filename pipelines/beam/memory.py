"""Giving freed memory back to the system between the steps of a long process."""

from __future__ import annotations

import ctypes
import ctypes.util
import gc
import sys

import pyarrow as pa


def release_freed_memory() -> None:
    """Return what is freed already, as far as the allocators can; changes nothing else.

    The launching process learns a vocabulary and lives on through later stages: without this it
    keeps the learner's peak to its end.
    """
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux" and (name := ctypes.util.find_library("c")):
        trim = getattr(ctypes.CDLL(name), "malloc_trim", None)  # glibc has it, musl has not
        if trim is not None:
            trim(0)
