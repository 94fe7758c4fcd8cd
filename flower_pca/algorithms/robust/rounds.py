"""What a client does in a round of consensus_rpca, and for a proof: block by block of its rows.

It keeps V of its rows, in their own units, with the threshold and the tag of what V belongs to. Where that is
another than the message's, V is turned if the message says how, and else found anew.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.algorithms.robust import hidden, huber, proof, sizes
from flower_pca.algorithms.robust.base import NORMAL
from flower_pca.algorithms.robust.huber import Regression
from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.rows.local import LocalData

# of the first threshold: from here on far entries stand out even where V is rough
_LOW: Final = 0.1


@dataclass(frozen=True)
class Block:
    """Some rows, in the units of the attempt, with V at first and the places that do not count: gaps and hidden."""

    X: Array
    V: Array
    unit: Array
    out: Array
    gaps: Array
    hidden: Array

    @property
    def seen(self) -> Array:
        """How many entries of each row count."""
        there = np.ones(self.X.shape, dtype=bool)
        there.reshape(-1)[self.out] = False
        return np.asarray(there.sum(axis=1))

    @property
    def unseen(self) -> Array:
        """Which entries are gaps or hidden."""
        found = np.zeros(self.X.shape, dtype=bool)
        found.reshape(-1)[self.gaps] = found.reshape(-1)[self.hidden] = True
        return found

    def count(self, R: Array, top: int) -> Array:
        """How many |r| lie in each bin, of entries that are visible and of those that are hidden."""
        flat, counts = R.reshape(-1), np.empty((2, sizes.BINS))
        counts[1] = sizes.count(flat[self.hidden], top)
        counts[0] = sizes.count(flat, top) - counts[1]
        if len(self.gaps):
            counts[0] -= sizes.count(flat[self.gaps], top)
        return counts


@dataclass(frozen=True)
class Task:
    """A message as numbers, and a client's rows."""

    arrays: Arrays
    data: LocalData
    memory: Arrays

    def number(self, name: str) -> float:
        """A number of the message."""
        return float(self.arrays[name])

    @property
    def proving(self) -> bool:
        """Whether the message asks for a proof."""
        return bool(self.arrays["proof"])

    def answer(self) -> tuple[Arrays, Arrays]:
        """What the client says, and what it keeps."""
        # no steps once a proof is under way
        U, steps = self.arrays["U"], int(self.arrays["inner_steps"])
        regression = Regression(U, self.number("lam"), self.number("rho"), self.number("cut"))
        resting = np.where(self.support[:, None], U, 0.0)
        Q = linalg.orth(resting)
        sums, found = {"n": np.array(self.data.n)}, []
        for block in self.blocks():
            if self.proving and steps:
                V = regression.settle(block.X, block.V, block.out)
            else:
                V = block.V
            V, R = regression.steps(block.X, V, steps, block.out)
            if self.proving and steps:
                lam, rho, cut = (self.number(name) for name in ("lam", "rho", "cut"))
                V, R = proof.once_more(block.X, V, resting, block.out, lam=lam, rho=rho, cut=cut)
                R = block.X - V @ U.T
            part = {"counts": block.count(R, int(self.arrays["top"]))}
            if self.proving:
                part |= self._proof(block, V, R, Q)
            else:
                part |= self._round(block, V, R, regression)
            for name, a in part.items():
                if name in sums:
                    sums[name] = sums[name] + a
                else:
                    sums[name] = a.astype(np.float64)
            found.append(V * block.unit)
        if not self.proving:
            sums["B"] = U @ sums["G"] + sums.pop("rest")  # X - S = VU' + C
        memory = {"tag": np.array(int(self.arrays["tag"])), "lam": np.array(self.number("lam"))}
        return sums, {"V": np.concatenate(found), **memory}

    def _round(self, block: Block, V: Array, R: Array, regression: Regression) -> Arrays:
        """The sums of a round, to which rows that are bad as a whole add nothing once that can be told."""
        if self.number("lam") <= _LOW * self.number("start"):
            bad = proof.bad_rows(self._clean(block, R), block.seen, proof.BAD)
            if bad.any():
                V = np.where(bad[:, None], 0.0, V)
        C = self._pull(block, R, regression)
        sums: Arrays = {"G": V.T @ V, "rest": C.T @ V.astype(C.dtype, copy=False)}
        if "Z" in self.arrays:
            sums["image"] = C.T @ (C @ self.arrays["Z"].astype(C.dtype, copy=False))
        return sums

    def _pull(self, block: Block, R: Array, regression: Regression) -> Array:
        """C in the place of R; in columns that are found anew within their own threshold.

        While that falls these have no cut: Huber's function is convex, so where a column has been has no say.
        """
        columns, level = self.again
        if not len(columns):
            return regression.clip(R, block.out)
        anew, unseen = R[:, columns], block.unseen[:, columns]
        if level <= self.number("lam"):
            unseen |= np.abs(anew) > self.number("cut") * level
        C = regression.clip(R, block.out)
        C[:, columns] = np.where(unseen, 0.0, np.clip(anew, -level, level))
        return C

    @functools.cached_property
    def again(self) -> tuple[Array, float]:
        """Columns that are found anew, which V does not rest on, and their threshold."""
        levels = self.arrays.get("again", np.zeros(0))
        return np.flatnonzero(levels), float(levels.max(initial=0.0))

    @property
    def support(self) -> Array:
        """On which columns V rests."""
        there = np.ones(len(self.arrays["U"]), dtype=bool)
        there[self.again[0]] = False
        return there

    def _proof(self, block: Block, V: Array, R: Array, Q: Array) -> Arrays:
        """The sums of a proof."""
        of_hidden = np.abs(R.reshape(-1)[block.hidden]) <= self.number("cut") * self.number("lam")
        clean = np.abs(R) <= self.number("cut") * self.number("lam")
        clean &= ~block.unseen
        x, even = self.arrays.get("block"), bool(self.arrays["even"])
        return proof.answer(V, Q, clean, rested=self.support, hidden=of_hidden, seen=block.seen, x=x, even=even)

    def _clean(self, block: Block, R: Array) -> Array:
        """Which entries lie near the low-rank part, of those that are neither gaps nor hidden."""
        clean = np.abs(R) <= self.number("cut") * self.number("lam")
        clean.reshape(-1)[block.out] = False
        return clean

    def blocks(self) -> Iterator[Block]:
        """The rows, block by block."""
        U, start = self.arrays["U"], 0
        unseen = hidden.unseen(self.data, seed=int(self.arrays["seed"]), share=self.number("share"))
        V, p = self._memory_of(), U.shape[1]
        for X in self.data.dense():
            stop = start + len(X)
            gaps, places = unseen.of_rows(start, stop)
            anew = (np.arange(len(X))[:, None] * X.shape[1] + self.again[0]).ravel()
            out, unit = np.concatenate([gaps, places, anew]), np.ones((len(X), 1))
            if self.arrays["rowwise"]:
                unit = row_sizes(X, gaps)
                X = (X / unit).astype(X.dtype, copy=False)
            beginning, lam, rho, cut = (self.number(name) for name in ("start", "lam", "rho", "cut"))
            if V is not None:
                first = V[start:stop] / unit
            elif lam >= beginning:  # at the start of an attempt
                first = np.zeros((len(X), p))
            else:  # late: the threshold's fall is made up for
                first = huber.recover(X, U, start=beginning, lam=lam, rho=rho, cut=cut, out=out)
            yield Block(X, first, unit, out, gaps, places)
            start = stop

    def _memory_of(self) -> Array | None:
        """V as it is remembered, if it is of this basis or can be turned to it, and has not missed some rounds."""
        V, tag, p = self.memory.get("V"), int(self.memory.get("tag", -1)), self.arrays["U"].shape[1]
        if V is None or len(V) != self.data.n or float(self.memory["lam"]) > huber.LATE * self.number("lam"):
            return None
        turn = self.arrays.get("turn")
        if tag == int(self.arrays["tag"]):
            if V.shape[1] == p:
                return V
            return None
        if turn is not None and tag == int(self.arrays["origin"]) and turn.shape == (V.shape[1], p):
            return np.asarray(V @ turn)
        return None


def row_sizes(X: Array, gaps: Array) -> Array:
    """The size of an ordinary entry of each row, n x 1: of one that is mostly zeros, that of all its entries; or 1."""
    there = np.abs(X).astype(np.float64)
    if len(gaps):
        there.reshape(-1)[gaps] = np.nan
    known = np.where(np.all(np.isnan(there), axis=1, keepdims=True), 0.0, there)
    size = NORMAL * np.nanmedian(known, axis=1, keepdims=True)
    size = np.where(size > 0.0, size, np.sqrt(np.nanmean(known**2, axis=1, keepdims=True)))
    return np.asarray(np.where(size > 0.0, size, 1.0))
