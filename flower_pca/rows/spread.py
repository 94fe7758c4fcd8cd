"""Spread: the Gram matrix of rows about their own mean, and their moments. Any frame is a step of rank one from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.rows.frame import Frame, Moments

_ANYHOW: Final = 2**14  # entries of X'X that are few, however few rows there are


def pays(n: int, d: int, p: int, reuse: int) -> bool:
    """Whether X'X is small, and saves time in so many products X'(XZ) of n x d rows with p columns.

    In one unit of measured time it takes n d^2 to form it; a product takes 30 d^2 with it, and n d (57 + 2 p) without,
    as narrow ones wait for memory.
    """
    if d > n or d**2 > max(n * d // 8, _ANYHOW):
        return False
    return n * d <= reuse * ((57 + 2 * p) * n - 30 * d)


@dataclass(frozen=True)
class Spread:
    """What one pass over dense rows without gaps tells of all products with them.

    Attributes:
        moments: Count, mean and squared deviations.
        about: The mean, but for what rounding has left in it.
        rest: That: beside a mean that is far from 0, its digits count.
        gram: X'X (d x d) of the rows less their mean, in double precision.
    """

    moments: Moments
    about: Array
    rest: Array
    gram: Array

    @classmethod
    def of(cls, deviations: Iterable[Array], n: int, mean: Array, dtype: np.dtype[Any]) -> Spread:
        """That of n rows, by blocks of their deviations from about their mean, multiplied in this precision."""
        d = len(mean)
        left, squares, gram = np.zeros(d), np.zeros(d), np.zeros((d, d))
        for D in deviations:
            left += np.ones(len(D)) @ D
            rows = D.astype(dtype, copy=False)
            gram += rows.T @ rows
            if dtype != np.float64:
                squares += np.einsum("ij,ij->j", D, D)
        rest = left / n
        gram -= np.dot((n * rest)[:, None], rest[None])
        squares = np.diagonal(gram) if dtype == np.float64 else squares - n * rest**2
        return cls(Moments(n, mean + rest, np.maximum(squares, 0.0)), mean, rest, gram)

    def times(self, Z: Array, frame: Frame) -> Array:
        """X'(XZ) for the rows in a frame."""
        Z = Z if frame.scale is None else Z / frame.scale[:, None]
        e = self._offset(frame)
        product = self.gram @ Z
        product += np.dot((self.moments.n * e)[:, None], (e @ Z)[None])
        return np.asarray(product if frame.scale is None else product / frame.scale[:, None])

    def framed(self, frame: Frame) -> Array:
        """X'X for the rows in a frame."""
        e = self._offset(frame)
        gram = self.gram + np.outer(self.moments.n * e, e)
        return gram if frame.scale is None else gram / np.outer(frame.scale, frame.scale)

    def _offset(self, frame: Frame) -> Array:
        """How far the rows' own mean is from that of the frame."""
        return self.moments.mean if frame.mean is None else (self.about - frame.mean) + self.rest
