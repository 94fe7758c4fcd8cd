"""Averaged: products C Z of rounds that others answer each time, and the blocks that follow, averaged over rounds.

A product of some clients' rows, scaled to all rows, differs from C Z by as much as clients differ: an iteration on such
products goes about its end without coming nearer. The average does come nearer: numerators and rows are averaged apart,
as the mean of ratios is not the ratio of means, and the older the average, the less a round counts. Blocks still follow
whose turn it is a little, so what is returned is their average. While errors fall, all clients answer, or the same ones
time after time, a product is what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays

# what a round counts at first, and over the number of rounds later
_FIRST, _LATER = 0.5, 6.0
# rounds without a lesser error, after which it is the clients' difference that keeps it up
_STALE = 3
# rounds that the same clients have answered again, after which nobody else is expected to
_SAME = 2


@dataclass(frozen=True)
class Averaging:
    """What is averaged.

    Attributes:
        who: The clients that have answered last.
        again: How often they have done so before, one time after the other.
        rounds: Rounds in the average.
        rows: The rows that answered, on average.
        block: The average of the blocks; None before there is one.
    """

    who: tuple[int, ...] = ()
    again: int = 0
    rounds: int = 0
    rows: float = 0.0
    block: Array | None = None

    def after(
        self, total: Arrays, answered: frozenset[int], *, known: Array | None, n: int, stale: int
    ) -> tuple[Averaging, Array]:
        """With a round more: C Z of all n rows by all that is known, where the rounds before say that it is `known`.

        The average begins once errors have not fallen for a few rounds: `stale` says for how many.
        """
        rows, who = float(total["n"]), tuple(sorted(answered))
        if who == self.who:
            again = self.again + 1
        else:
            again = 0
        if known is None or rows >= n or again >= _SAME or not (self.rounds or stale >= _STALE):
            return Averaging(who, again), np.asarray(total["Y"] * (n / rows))
        now = replace(self, who=who, again=again, rounds=self.rounds + 1)
        before = self.rows or float(n)
        Y = (1.0 - now.share) * known * (before / n) + now.share * total["Y"]
        rows = (1.0 - now.share) * before + now.share * rows
        return replace(now, rows=rows), np.asarray(Y * (n / rows))

    def with_block(self, block: Array) -> Averaging:
        """With the block that follows, if there is an average."""
        if not self.rounds:
            return self
        if self.block is None:
            return replace(self, block=block)
        turned = self.block @ linalg.procrustes(self.block, block)
        return replace(self, block=linalg.orth((1.0 - self.share) * turned + self.share * block))

    @property
    def share(self) -> float:
        """What the newest round counts."""
        return min(_FIRST, _LATER / self.rounds)
