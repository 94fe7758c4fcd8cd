"""Sums over all clients, in which a client's last answer can replace an answer that is missing in this round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flower_pca.core.stage import Arrays, Merge, add_answer, stack_answer


@dataclass(frozen=True)
class CachedSums:
    """Sums over all clients, in which a client's last answer can replace an answer that is missing in this round.

    As long as all clients answer, the server keeps only sums. In the first incomplete round, the server
    sums the answers that arrived. From then on, it keeps the last answer of every client, which is O(N d p)
    numbers for N clients. A new answer replaces the last answer of the same client, so an answer that
    arrives twice changes nothing. An answer contains the client's number of rows as "n". If the server
    cannot see individual answers, it scales incomplete sums up to all rows.

    Attributes
    ----------
    n : int
        The total number of rows of all clients.
    summed : bool
        Whether the server sees only sums, for example under masks.
    last : dict or None
        The last answer of each client, in the order in which clients first answered. None until a round is incomplete.
    """

    n: int
    summed: bool = False
    last: dict[int, Arrays] | None = None

    @property
    def merging(self) -> Merge:
        """The function that merges the answers of the next round."""
        if self.last is None:
            return add_answer
        return stack_answer

    def add(self, total: Any) -> tuple[CachedSums, Arrays, float]:
        """Add the answers of one round, merged by `merging`.

        Returns
        -------
        cached : CachedSums
            The object to use in the next round.
        sums : dict of ndarray
            The sums over the clients.
        share : float
            The share of all rows at the clients that answered in this round.
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
