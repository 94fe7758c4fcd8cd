"""Estimates of the memory that large messages take in each process of a deployment, for the log."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from flower_pca.base.labels import count

# The maximum number of messages in flight. It is limited because Flower searches all pending messages for each node.
WINDOW: Final = 32
# The memory of each process as a multiple of the message size, measured with messages and replies of 100 MB for
# two sites (see docs/deployment.md). The opening collects the answers of all sites before it adds them up, because the
# order of their sum is only known then.
_PER_SERVER, _OPENING, _PER_CLIENT, _PER_NODE, _PER_LINK = 7, 4, 8, 5, 4
_WITHOUT_MESSAGES: Final = 2 * 10**8  # the memory of a ServerApp with the packages that a run imports
_MEMORY: Final = Path("/proc/meminfo")


def bytes_needed(size: int, sites: int) -> int:
    """Return the bytes that the ServerApp needs for messages of `size` bytes to `sites` sites.

    The number includes the blocks that an algorithm such as SSI keeps, but not the basis of krylov.
    """
    return _WITHOUT_MESSAGES + size * max(_PER_SERVER, _OPENING + sites)


def memory_in_words(size: int, sites: int) -> str:
    """Return a text about the memory that messages of `size` bytes to `sites` sites take in each process."""
    megabytes = [f"{bytes_of / 1e6:,.0f} MB" for bytes_of in (size, bytes_needed(size, sites))]
    others = [f"{times * size / 1e6:,.0f} MB" for times in (_PER_CLIENT, _PER_NODE, _PER_LINK * sites)]
    return (
        f"A message takes {megabytes[0]}. For messages to {count(sites, 'site')}, the ServerApp needs about "
        f"{megabytes[1]} of memory, and krylov also keeps its basis. Each ClientApp needs about "
        f"{others[0]} in addition to its rows and their statistics, each SuperNode {others[1]}, and the SuperLink "
        f"{others[2]}."
    )


def free_bytes() -> int | None:
    """Return the bytes of available memory on this machine, or None if the operating system does not report them."""
    with suppress(OSError):
        found = re.search(r"MemAvailable: +(\d+) kB", _MEMORY.read_text())
        if found:
            return int(found[1]) * 1024
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None
