"""What a client does in a round of consensus_rpca, and for a proof: block by block of its rows.

It keeps V of its rows, in their own units, with the threshold and the tag of what V belongs to. Where that is
another than the message's, V is turned if the message says how, and else found anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flower_pca.algorithms.robust import hidden, huber, proof, sizes
from flower_pca.algorithms.robust.base import NORMAL
from flower_pca.algorithms.robust.huber import Regression
from flower_pca.base import linalg
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.rows.local import LocalData


@dataclass(frozen=True)
class Block:
    """Some rows, in the units of the attempt, with V at first and the places that do not count: gaps and hidden."""

    X: Array
    V: Array
    unit: Array
    out: Array
    gaps: Array
    hidden: Array


@dataclass(frozen=True)
class Task:
    """A message as numbers, and a client's rows."""

    arrays: Arrays
    data: LocalData
    memory: Arrays

    def number(self, name: str) -> float:
        """A number of the message."""
        return float(self.arrays[name])

    def answer(self) -> tuple[Arrays, Arrays]:
        """What the client says, and what it keeps."""
        arrays, U = self.arrays, self.arrays["U"]
        regression = Regression(U, self.number("lam"), self.number("rho"), self.number("cut"))
        proving, top = bool(arrays["proof"]), int(arrays["top"])
        steps = int(arrays["inner_steps"])  # 0 once a proof is under way
        Q = linalg.orth(U) if proving and arrays["last"] else None
        up, kept = {"n": np.array(self.data.n)}, []
        for block in self.blocks():
            V = regression.settle(block.X, block.V, block.out) if proving and steps else block.V
            V, R = regression.steps(block.X, V, steps, block.out)
            flat, counts = R.reshape(-1), np.empty((2, sizes.BINS))
            counts[1] = sizes.counted(flat[block.hidden], top)
            counts[0] = sizes.counted(flat, top) - counts[1]
            if len(block.gaps):
                counts[0] -= sizes.counted(flat[block.gaps], top)
            said: Arrays = {"G": V.T @ V, "counts": counts}
            if proving:
                clean = np.abs(R) <= self.number("cut") * self.number("lam")
                of_hidden = clean.reshape(-1)[block.hidden]
                clean.reshape(-1)[block.out] = False
                said.update(proof.told(V, Q, clean, of_hidden, arrays.get("block")))
            else:
                C = regression.clipped(R, block.out)
                said["rest"] = C.T @ V.astype(C.dtype, copy=False)
                if "Z" in arrays:
                    said["image"] = C.T @ (C @ arrays["Z"].astype(C.dtype, copy=False))
            for name, a in said.items():
                up[name] = up[name] + a if name in up else a.astype(np.float64)
            kept.append(V * block.unit)
        if not proving:
            up["B"] = U @ up["G"] + up.pop("rest")  # X - S = VU' + C
        remembered = {"tag": np.array(int(arrays["tag"])), "lam": np.array(self.number("lam"))}
        return up, {"V": np.concatenate(kept), **remembered}

    def blocks(self) -> Iterator[Block]:
        """The rows, block by block."""
        U, start = self.arrays["U"], 0
        unseen = hidden.unseen(self.data, seed=int(self.arrays["seed"]), share=self.number("share"))
        V, p = self._known(), U.shape[1]
        for X in self.data.dense():
            stop = start + len(X)
            gaps, places = unseen.of_rows(start, stop)
            out = np.concatenate([gaps, places])
            unit = row_sizes(X, gaps) if self.arrays["rowwise"] else np.ones((len(X), 1))
            X = (X / unit).astype(X.dtype, copy=False) if self.arrays["rowwise"] else X
            path = {name: self.number(name) for name in ("start", "lam", "rho", "cut")}
            if V is not None:
                first = V[start:stop] / unit
            elif self.number("lam") >= self.number("start"):  # at the start of an attempt
                first = np.zeros((len(X), p))
            else:  # late: the threshold's fall is made up for
                first = huber.recover(X, U, **path, out=out)
            yield Block(X, first, unit, out, gaps, places)
            start = stop

    def _known(self) -> Array | None:
        """V as it is remembered, if it is of this basis or can be turned to it, and has not missed some rounds."""
        V, tag, p = self.memory.get("V"), int(self.memory.get("tag", -1)), self.arrays["U"].shape[1]
        if V is None or len(V) != self.data.n or float(self.memory["lam"]) > huber.LATE * self.number("lam"):
            return None
        turn = self.arrays.get("turn")
        if tag == int(self.arrays["tag"]):
            return V if V.shape[1] == p else None
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
