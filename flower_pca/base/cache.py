"""A cache for objects that a process can use again for its next message. Callers create a cache and pass it on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any


class Cache:
    """A cache of the most recently used objects, up to a capacity.

    Parameters
    ----------
    capacity : int
        The maximum total weight of all objects in the cache.
    weigh : callable
        A function that returns the weight of an object, in the same unit. By default, each object has weight 1.
    """

    def __init__(self, capacity: int, weigh: Callable[[Any], int] = lambda _: 1) -> None:
        self._capacity, self._weigh, self._taken = capacity, weigh, 0
        self._kept: OrderedDict[object, tuple[Any, int]] = OrderedDict()

    def get(self, key: object, make: Callable[[], Any]) -> Any:
        """Return the object with this key. If the object is not in the cache, create it by calling `make`."""
        if key not in self._kept:
            made = make()
            self._kept[key] = made, self._weigh(made)
            self._taken += self._kept[key][1]
            # The latest object stays, even if it is larger than the capacity.
            while len(self._kept) > 1 and self._taken > self._capacity:
                self._taken -= self._kept.popitem(last=False)[1][1]
        self._kept.move_to_end(key)
        return self._kept[key][0]
