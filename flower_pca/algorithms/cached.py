"""Sums over all clients, in which a client that misses a round may count with its last answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flower_pca.core.stage import Arrays, Merge, add, stack


@dataclass(frozen=True)
class CachedSums:
    """The sum of what clients have sent, kept by client once one of them has not answered.

    An answer replaces the client's last one, so one that comes again changes nothing. While every
    round brings all rows, no single answer is kept. The first round that does not is summed as it
    is; from then on the last answer of every client is held, O(N d p) numbers for N clients, and
    fills up as they answer. Answers carry their rows as "n". Where single answers cannot be had,
    those that came are scaled to all rows.

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
        """Add a round merged in this way. Return what is held now, the sums, and the share of rows that answered."""
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
