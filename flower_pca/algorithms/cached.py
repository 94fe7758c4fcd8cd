"""Sums over all clients, in which a client that misses a round may count with its last answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flower_pca.core.stage import Arrays, Merge, add, stack


@dataclass(frozen=True)
class CachedSums:
    """Sums over all clients. A client that misses a round can count with its last answer.

    As long as every round brings all rows, only sums are kept. The first incomplete round is summed as
    it is. From then on, the server keeps the last answer of every client, which is O(N d p) numbers for
    N clients. A new answer replaces the last one of the same client, so an answer that arrives twice
    changes nothing. Answers contain their number of rows as "n". If the server sees no single answers,
    the sums of those that answered are scaled up to all rows.

    Attributes
    ----------
    n : int
        Rows of all clients.
    summed : bool
        Whether nothing but sums can be had, as under masks.
    last : dict or None
        The last answer of each client, in the order of their first ones; None while plain sums do.
    """

    n: int
    summed: bool = False
    last: dict[int, Arrays] | None = None

    @property
    def merging(self) -> Merge:
        """How the answers of the next round are merged."""
        if self.last is None:
            return add
        return stack

    def add(self, total: Any) -> tuple[CachedSums, Arrays, float]:
        """Add a round whose answers were merged by `merging`.

        Return the new `CachedSums`, the sums, and the share of the rows that answered.
        """
        if self.last is None:
            rows = float(total["n"])
            if rows >= self.n:
                return self, total, 1.0
            if self.summed:
                mean = {name: a * (self.n / rows) for name, a in total.items()}
                return self, mean, rows / self.n
            return replace(self, last={}), total, rows / self.n
        last = {**self.last, **total}
        names = next(iter(last.values()))
        sums = {name: sum(answer[name] for answer in last.values()) for name in names}
        rows = float(sum(answer["n"] for answer in total.values()))
        return replace(self, last=last), sums, min(1.0, rows / self.n)
