"""The memory that large messages take in each process of a deployment, in words for the log."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from flower_pca.base.labels import count

# From this size on (in bytes), the memory of a message is logged, and released at once.
LARGE: Final = 2**24
# Messages in flight. Flower's engine searches all pending messages for every node, so more messages make it slower.
WINDOW: Final = 32
# The memory of each process in multiples of a message, measured with messages of 100 MB to two sites and
# replies of this size: docs/deployment.md
_OF_CLIENT, _OF_NODE, _OF_LINK = 8, 5, 4
_MEMORY: Final = Path("/proc/meminfo")


def needed(size: int, sites: int) -> int:
    """Return the bytes that the ServerApp needs for messages of this size to this many sites, without the
    algorithm's own.
    """
    return size * (2 + min(sites, WINDOW))


def words_of(size: int, sites: int) -> str:
    """Describe the memory that messages of this size to this many sites take in each process."""
    megabytes = [f"{bytes_of / 1e6:,.0f} MB" for bytes_of in (size, needed(size, sites))]
    others = [f"{times * size / 1e6:,.0f} MB" for times in (_OF_CLIENT, _OF_NODE, _OF_LINK * sites)]
    return (
        f"A message takes {megabytes[0]}. For messages to {count(sites, 'site')}, the ServerApp needs about "
        f"{megabytes[1]} of memory, in addition to the blocks that the algorithm keeps. Each ClientApp needs about "
        f"{others[0]} in addition to its rows and their statistics, each SuperNode {others[1]}, and the SuperLink "
        f"{others[2]}."
    )


def free() -> int | None:
    """Return the bytes of memory that this machine can still give to processes, or None if the system does
    not report it.
    """
    with suppress(OSError):
        found = re.search(r"MemAvailable: +(\d+) kB", _MEMORY.read_text())
        if found:
            return int(found[1]) * 1024
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None
