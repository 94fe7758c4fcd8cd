"""What a node can be asked for by name, and what it serves where its operator names nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Any

from flower_pca import registry


def everything() -> tuple[str, ...]:
    """All that a node can be asked for by name: algorithms, trackers, the counts of monitoring, and scaling alone."""
    return (*registry.ALGORITHMS, *registry.TRACKERS, *registry.BESIDE, *registry.ALONE)


class WithoutRows(Set[str]):
    """All names of algorithms that compare no rows; to look one up imports that one only."""

    def __contains__(self, name: object) -> bool:
        return name in everything() and not registry.STAGES[str(name)].by_row

    def __iter__(self) -> Iterator[str]:
        return (name for name in everything() if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> frozenset[Any]:
        return frozenset(it)
