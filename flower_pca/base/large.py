"""Large messages: the size from which on a message is large, and the return of memory that is no longer needed."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from contextlib import suppress
from typing import Final

# If a message has more bytes than this, its memory is logged, and returned as soon as it is no longer needed.
BYTES: Final = 2**24
# The numbers of glibc's settings for the blocks that go back to the operating system when they are freed: blocks of at
# least this size anywhere, and at least so much free memory at the end of the heap
_MMAP_THRESHOLD, _TRIM_THRESHOLD, _RETURNED = -3, -1, 2**20
_SETTINGS: Final = {"MALLOC_MMAP_THRESHOLD_": _MMAP_THRESHOLD, "MALLOC_TRIM_THRESHOLD_": _TRIM_THRESHOLD}


def release_memory() -> None:
    """Return memory that is no longer needed to the operating system, now and whenever a large block is freed.

    Flower's records are reference cycles, so Python frees their memory only when it collects such cycles. By default,
    glibc keeps freed blocks of up to 32 MB for later use by the same thread. Flower cuts messages into blocks of 5 MB,
    which it processes in new threads for each message. Without this function, a process would therefore keep several
    times the memory of a message. Settings of glibc in the environment are kept.
    """
    gc.collect()
    if sys.platform != "linux":
        return
    with suppress(AttributeError, OSError):  # Other C libraries than glibc lack these functions.
        library = ctypes.CDLL(None)
        for name, setting in _SETTINGS.items():
            if name not in os.environ:
                library.mallopt(setting, _RETURNED)
    return_freed_blocks()


def return_freed_blocks() -> None:
    """Return blocks that have been freed to the operating system, without a search for reference cycles.

    glibc keeps blocks that were freed inside of its arenas, whatever its settings are.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
