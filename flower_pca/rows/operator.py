"""Operator: what the client halves of stages may ask of rows in a frame, whatever these are multiplied from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.linalg import Array
from flower_pca.rows.frame import Frame, Moments

DIRECT = 4096  # sides up to which a full LAPACK factorisation beats an iterative one


class Operator(ABC):
    """The rows X (n x d) of one client in a frame, by their products.

    Attributes:
        answers: What its answers come from: "rows", or "fixed" statistics of these.
        n: How many rows there are.
        d: How many columns.
        missing: How many values are missing.
        dtype: In which precision products are.
        frame: What the rows are seen in.
        who: Whose rows these are, in messages.
    """

    answers: ClassVar[str]
    n: int
    d: int
    missing: int
    dtype: np.dtype[Any]
    frame: Frame
    who: str

    @abstractmethod
    def matmat(self, Z: Array, *, reuse: int = ...) -> Array:
        """X'(XZ). `reuse`: how many such products a run makes of these rows, which decides whether X'X pays."""

    @abstractmethod
    def gram(self) -> Array:
        """X'X (d x d), formed once."""

    @abstractmethod
    def root(self) -> Array:
        """A matrix A with A'A = X'X."""

    @abstractmethod
    def sketch(self, Z: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Coordinates S of rows along Z, with S'S = Z'X'XZ, and Y -> X'Y for a block in these coordinates."""

    @abstractmethod
    def squared_error(self, Z: Array) -> float:
        """||X - XZZ'||_F^2 for orthonormal Z."""

    @abstractmethod
    def moments(self) -> Moments:
        """The moments of the stored rows: of the values that are there, or of whole rows where own means fill gaps."""

    @abstractmethod
    def products(self, block: Array) -> Iterator[tuple[Moments, Array]]:
        """By sets of rows: the moments, and the product of the rows less their own mean with a block."""

    @abstractmethod
    def peak(self) -> Array:
        """The largest |x| of each stored column."""

    @abstractmethod
    def fingerprint(self) -> int:
        """A digest of what answers come from."""

    @abstractmethod
    def _eigen(self, k: int) -> tuple[Array, Array]:
        """Eigenvalues of X'X, largest first, and their vectors: at least the k leading ones, if there are so many."""

    def complete(self) -> None:
        """Raise DataError if values are missing and the frame does not say what takes their place."""
        if self.missing and self.frame.fill is None and not self.frame.own:
            raise checks.not_finite(self.who, self.missing)

    def top(self, k: int) -> tuple[Array, Array]:
        """The leading eigenvectors (d x r) and eigenvalues (r) of X'X, with r = min(k, rank)."""
        values, V = self._eigen(k)
        floor = min(self.n, self.d) * float(np.finfo(self.dtype).eps) * max(float(values[0]), 0.0)
        r = int(np.sum(values[:k] > floor))
        return np.ascontiguousarray(V[:, :r]), np.ascontiguousarray(values[:r])

    def norm2(self, *, steps: int = 10) -> float:
        """||X||_2 squared, the largest eigenvalue of X'X, by a few block power steps: never above the true one."""
        return linalg.largest_eigenvalue(lambda Z: self.matmat(Z, reuse=steps), self.d, steps)
