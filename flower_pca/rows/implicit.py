"""Rows in a frame that are multiplied as they are stored: what is subtracted, is subtracted from products."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.rows.frame import Frame


class ImplicitRows:
    """Stored rows S in a frame, (S - 1 mean') / scale, without ever forming them: sparse ones, or ones that are `near`.

    What is subtracted is subtracted from products, which costs digits where the mean is large beside the deviations.
    """

    def __init__(self, S: Any, frame: Frame) -> None:
        self._S, self._mean, self._scale = S, frame.mean, frame.scale
        self.shape = S.shape

    def __matmul__(self, Z: Array) -> Array:
        Z = Z.astype(np.float64, copy=False)  # what is subtracted here would cost single precision its last digits
        Z = Z if self._scale is None else Z / self._scale[:, None]
        Y = np.asarray(self._S @ Z)
        if self._mean is not None:
            Y -= self._mean @ Z
        return Y

    @property
    def T(self) -> Adjoint:
        """The adjoint, as an operator."""
        return Adjoint(self._S, self._mean, self._scale)


@dataclass(frozen=True)
class Adjoint:
    """The adjoint of rows in a frame."""

    S: Any
    mean: Array | None
    scale: Array | None

    def __matmul__(self, Y: Array) -> Array:
        Y = Y.astype(np.float64, copy=False)
        Z = np.asarray(self.S.T @ Y)
        if self.mean is not None:
            Z -= np.outer(self.mean, Y.sum(axis=0))
        return Z if self.scale is None else Z / self.scale[:, None]


def product(blocks: Iterable[Any], Z: Array, frame: Frame) -> Array:
    """X'(XZ) for blocks of stored rows in a frame, summed in double precision.

    The frame is taken off once, from what all blocks come to.
    """
    W = Z if frame.scale is None else (Z / frame.scale[:, None]).astype(Z.dtype, copy=False)
    less = None if frame.mean is None else frame.mean @ W
    total, sums = None, np.zeros(Z.shape[1])
    for S in blocks:
        Y = np.asarray(S @ W)
        if less is not None:
            Y -= less
            sums += np.ones(len(Y)) @ Y
        part = np.asarray(S.T @ Y)
        if total is None:
            total = part.astype(np.float64, copy=False)
        else:
            total += part
    assert total is not None
    if frame.mean is not None:
        total -= np.dot(frame.mean[:, None], sums[None])
    return total if frame.scale is None else total / frame.scale[:, None]
