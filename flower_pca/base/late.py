"""A table whose values are made when they are first asked for."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeVar

V = TypeVar("V")


def named(place: str) -> Any:
    """What stands at a place such as "algorithms.krylov:Krylov" in the package; its module is imported for it."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"flower_pca.{module}"), name)


class Late(MutableMapping[str, V]):
    """A mapping of names to values that are made, once each, by these functions.

    To list the names, to count them or to ask for one makes no value.
    """

    def __init__(self, makers: Mapping[str, Callable[[], V]]) -> None:
        self._makers = {name: functools.cache(make) for name, make in makers.items()}

    def __getitem__(self, name: str) -> V:
        return self._makers[name]()

    def __setitem__(self, name: str, value: V) -> None:
        self._makers[name] = functools.cache(lambda: value)

    def __delitem__(self, name: str) -> None:
        del self._makers[name]

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def classes(places: Mapping[str, str]) -> Late[Any]:
    """A mapping of names to the classes at these places."""
    return Late({name: functools.partial(named, place) for name, place in places.items()})
