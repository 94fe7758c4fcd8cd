"""A cache of what a process keeps ready for its next message, up to a capacity. Callers pass a cache in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any


class Cache:
    """A cache of the most recently used objects, up to a capacity.

    Parameters
    ----------
    capacity : int
        How much all that is kept may weigh.
    weigh : callable
        The weight of what is kept, in the same unit; 1 for each, if left out.
    """

    def __init__(self, capacity: int, weigh: Callable[[Any], int] = lambda _: 1) -> None:
        self._capacity, self._weigh, self._taken = capacity, weigh, 0
        self._kept: OrderedDict[object, tuple[Any, int]] = OrderedDict()

    def get(self, key: object, make: Callable[[], Any]) -> Any:
        """Return the object under this key, or make it."""
        if key not in self._kept:
            made = make()
            self._kept[key] = made, self._weigh(made)
            self._taken += self._kept[key][1]
            # The newest object stays, even if it is larger than the capacity.
            while len(self._kept) > 1 and self._taken > self._capacity:
                self._taken -= self._kept.popitem(last=False)[1][1]
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def clear(self) -> None:
        """Forget all objects."""
        self._kept.clear()
        self._taken = 0
