"""Spread: the Gram matrix of rows about their own mean, and their moments. Any frame is a step of rank one from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.rows.frame import Frame, Moments, merge


@dataclass(frozen=True)
class Spread:
    """What one pass over dense rows without gaps tells of all products with them.

    Attributes:
        moments: Count, mean and squared deviations.
        gram: X'X (d x d) of the rows less their mean, in double precision.
    """

    moments: Moments
    gram: Array

    @classmethod
    def of(cls, moments: Moments, rows: Array) -> Spread:
        """That of a block of rows less their mean."""
        return cls(moments, (rows.T @ rows).astype(np.float64, copy=False))

    def joined(self, other: Spread) -> Spread:
        """That of two sets of rows together, as their moments merge."""
        a, b = self.moments, other.moments
        both, e = merge(a, b), b.mean - a.mean
        return Spread(both, self.gram + other.gram + np.outer((a.n * b.n / both.n) * e, e))

    def times(self, Z: Array, frame: Frame) -> Array:
        """X'(XZ) for the rows in a frame."""
        Z = Z if frame.scale is None else Z / frame.scale[:, None]
        e = self._offset(frame)
        product = self.gram @ Z
        product += np.outer(self.moments.n * e, e @ Z)
        return product if frame.scale is None else product / frame.scale[:, None]

    def framed(self, frame: Frame) -> Array:
        """X'X for the rows in a frame."""
        e = self._offset(frame)
        gram = self.gram + np.outer(self.moments.n * e, e)
        return gram if frame.scale is None else gram / np.outer(frame.scale, frame.scale)

    def _offset(self, frame: Frame) -> Array:
        """How far the rows' own mean is from that of the frame."""
        return self.moments.mean if frame.mean is None else self.moments.mean - frame.mean
