"""Define `LocalData`, one client's rows in the global frame, and its interface `RowOperator`.

The client halves of stages access rows in a frame only through the methods of `RowOperator`, no matter whether products
are computed from rows or from statistics.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Self

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.blocks import adapters
from flower_pca.names import levels
from flower_pca.names.columns import Heading, mismatch_without_names
from flower_pca.names.table import Table
from flower_pca.rows import adjusted, moves
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.frame import (
    Frame,
    ImplicitRows,
    Moments,
    blocks_about_mean,
    gram_saves_time,
    product_and_moments,
    product_in_frame,
    rows_in_frame,
)
from flower_pca.rows.gram import GramSum, has_few_stored, sparse_gram
from flower_pca.rows.measured import Measured, Watch

DIRECT = 4096  # If a matrix has at most this many rows, a full LAPACK factorization is faster than iteration.


class RowOperator(ABC):
    """The rows X (n x d) of one client in a frame, as an operator that computes products with them.

    Attributes
    ----------
    answers : str
        The source of answers: "rows", or "fixed" for fixed statistics of the rows.
    n : int
        The number of rows.
    d : int
        The number of columns.
    missing : int
        The number of missing values.
    dtype : dtype
        The precision of products.
    frame : Frame
        The frame of the rows.
    who : str
        The owner of the rows, for messages.
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
        """Return X'(XZ). `reuse` is the number of such products in a run, which decides whether X'X saves time."""

    @abstractmethod
    def gram(self, *, keep: bool = ...) -> Array:
        """Return X'X (d x d). `keep` is whether it may be cached, because it will probably be needed again."""

    @abstractmethod
    def root(self) -> Array:
        """Return a matrix A with A'A = X'X."""

    @abstractmethod
    def sketch(self, Z: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Return a matrix S with S'S = Z'X'XZ, and a function that maps a block Y with as many rows as S to X'Y."""

    @abstractmethod
    def squared_error(self, Z: Array) -> float:
        """Return ||X - XZZ'||_F^2 for orthonormal Z."""

    @abstractmethod
    def moments(self) -> Moments:
        """Return the moments of the present values, or of all values if local means replace missing values."""

    @abstractmethod
    def local_product(self, block: Array) -> tuple[Moments, Array]:
        """Return the moments, and the product X'(XZ) of the rows about their own mean with a block Z."""

    @abstractmethod
    def largest_absolute(self) -> Array:
        """Return the largest absolute value in each stored column."""

    @abstractmethod
    def fingerprint(self) -> int:
        """Return a digest of the data from which answers are computed."""

    @abstractmethod
    def with_covariates(self, covariates: Covariates) -> RowOperator:
        """Return the same features in the same frame, with these new parameters for covariates."""

    @abstractmethod
    def joint_in(self, frame: Frame) -> RowOperator:
        """Return features and covariates as one table in this frame. The present frame must have covariates."""

    @abstractmethod
    def sums_where_seen(self, columns: slice) -> Array:
        """Return sums of these p complete columns about their means, as an array (d x p).

        Line j holds the sums over the rows that have a value in column j.
        """

    @abstractmethod
    def _gram_eigenpairs(self, k: int) -> tuple[Array, Array]:
        """Return at least the k leading eigenvalues of X'X in descending order, with their eigenvectors."""

    def require_complete_rows(self) -> None:
        """Raise a DataError if values are missing and the frame has no replacement for them."""
        if self.missing and self.frame.fill is None and not self.frame.own:
            raise checks.not_finite_error(self.who, self.missing)

    def leading_eigenpairs(self, k: int) -> tuple[Array, Array]:
        """Return the leading eigenvectors (d x r) and eigenvalues (r) of X'X, with r = min(k, rank)."""
        values, V = self._gram_eigenpairs(k)
        eps = float(np.finfo(self.dtype).eps)
        floor = min(self.n, self.d) * eps * max(float(values[0]), 0.0)
        r = int(np.sum(values[:k] > floor))
        return np.ascontiguousarray(V[:, :r]), np.ascontiguousarray(values[:r])

    def norm2(self, *, steps: int = 10) -> float:
        """Estimate the square of ||X||_2 by a few block power steps. The estimate never exceeds the true value."""
        return linalg.largest_eigenvalue(lambda Z: self.matmat(Z, reuse=steps), self.d, steps)


# Rows are near a mean if the length of the mean is at most this many times its distance from most rows.
_NEAR: Final = 4.0
# If the rows have at most this many entries, applying the frame to blocks is cheaper than correcting products.
_SMALL: Final = 2**15
# This is the expected number of products with the rows in a run, because krylov takes about one round for each digit of
# its tolerance. On 49,749 x 300 numbers, 8 instead of 4 multiplied the time of a run by 0.5 for two components, and by
# 0.8 with a tolerance of 1e-4.
_REUSE: Final = 8
# A dense copy for a factorization has at most this many entries, which take 512 MB in double precision.
_COPIED: Final = 2**26


class LocalData(RowOperator):
    """The rows X (n x d) of one client in a frame, as the operator that the algorithms need.

    A `LocalData` consists of a `Table`, the cached measurements of its rows, and a frame. Named columns are sorted by
    name. If a run names columns, it gets a view of these columns in its own order.

    In addition to the rows, only one or two blocks are in memory. A copy of the rows minus the frame's mean is made
    only if a caller of `in_frame` allows it, and the copy does not change results. The frame is applied to dense rows
    block by block. Sparse rows, and float64 rows near their mean (`is_near_mean`), are multiplied without applying the
    frame, and the product is corrected. All kinds of rows use the same blocks, so results from a memory-mapped array
    and from an array in memory are identical. float32 rows stay float32 in products, and sums are float64. If X'X saves
    time (`_gram_pays`), it is formed in the same pass as the moments (`ScatterOfRows`).

    Parameters
    ----------
    X : array-like
        The rows, with the names of their columns and of their site if they have names.
    who : str, default="the client"
        The owner of the rows, for messages.
    missing : bool, default=False
        Whether NaN stands for a missing value. The frame determines the replacements.
    empty : bool, default=False
        Whether the table may have no rows.
    watch : callable or None, default=None
        A function that gets each block of the first pass over dense rows: see `Measured`.

    Attributes
    ----------
    table : Table
        The rows with their names and origin, with the columns in the order of this view.
    measured : Measured
        The cached measurements of these rows and columns, which do not depend on the frame.
    places : ndarray or None
        For a view of some columns, their positions among all columns. Otherwise None.
    """

    answers: ClassVar[str] = "rows"
    FILE: ClassVar[str] = ""  # the suffix of the name of a file about these rows

    table: Table
    measured: Measured
    places: Array | None
    # If the frame has covariates, this is the joint table: the stored features followed by the stored covariates.
    joint: LocalData | None = None

    def __init__(
        self, X: Any, *, who: str = "the client", missing: bool = False, empty: bool = False, watch: Watch | None = None
    ) -> None:
        given = Table.of(X, who=who)
        called = f"{who} ({given.site})" if given.site else who
        self._set_table(given.stored(called, empty=empty), called, missing=missing, watch=watch)

    def _set_table(self, table: Table, who: str, *, missing: bool, watch: Watch | None = None) -> None:
        self.who = who
        look = functools.partial(_count_missing, table, who, missing)
        self._set_frame(table, Measured(table.values, look, missing=missing, watch=watch))
        # A reference to itself would keep an object in memory after its last use.
        self._whole: LocalData | None = None
        self.places = None
        self.frame = Frame()
        self._once = self._copy = False

    def _set_frame(self, table: Table, measured: Measured) -> None:
        self.table, self.measured = table, measured
        self.n, self.d, self.sparse = measured.n, measured.d, measured.sparse
        self.dtype, self.missing = measured.dtype, measured.missing

    @property
    def all_columns(self) -> LocalData:
        """The rows with all columns of the table."""
        return self if self._whole is None else self._whole

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns in order, or None if columns are matched by position."""
        return self.table.names

    @property
    def site(self) -> str:
        """The name of the site, or ""."""
        return self.table.site

    @functools.cached_property
    def heading(self) -> Heading:
        """The heading of these columns."""
        return self.table.heading

    @property
    def table_length(self) -> int:
        """The number of rows of the stored table. A subclass for which columns act as rows overrides this property."""
        return self.n

    def select(self, names: tuple[str, ...] | None) -> LocalData:
        """Return the columns that a run names. For None, return all columns, which must all hold numbers."""
        if names is not None:
            return self.arrange(names)
        self.table.whole(self.who)
        return self

    def arrange(self, names: tuple[str, ...]) -> LocalData:
        """Return the columns with these names, in this order."""
        if names == self.names:
            return self
        if self.names is None:
            raise mismatch_without_names(self.table.source or self.who, self.d).error(DataError)
        # Most messages request the same columns as the previous message, so the most recent view is cached.
        whole = self.all_columns
        return whole.measured.cached_if(
            "columns", lambda found: found[0] == names, lambda: (names, whole._with_columns(names))
        )[1]

    def _with_columns(self, names: tuple[str, ...]) -> LocalData:
        if self.table.coded or not set(names) <= set(self.names or ()):
            whole, names = self._with_needed_indicators(names)
            if whole is not self:
                return whole.arrange(names)
        view = self._new_view()
        view.places = self.table.places(names, self.who)
        table = self.table.pick(names, self.who, places=view.places)
        look = functools.partial(_count_missing, table, self.who, True)
        rows = adapters.as_blocks(table.values)
        view._set_frame(table, self.measured.select_columns(rows, view.places, look))
        return view

    def _with_needed_indicators(self, names: tuple[str, ...]) -> tuple[LocalData, tuple[str, ...]]:
        """Return the rows with the indicators that these columns need, and the names of the columns of the run.

        The name of a column of words stands for all of its indicators. The result has its own statistics, because
        statistics are measured over all columns of the run.
        """
        names = levels.expand_columns(names, names_in_data=self.names or (), words=self.table.coded)
        return self.measured.cached_if(
            "grown", lambda found: found[1] == names, lambda: (self._with_indicators(names), names)
        )

    def _with_indicators(self, names: tuple[str, ...]) -> LocalData:
        # `who` already contains the name of the site.
        table = replace(self.table, values=self.stored_array(), site="")
        whole = levels.with_needed_indicators(table, names, table.source or self.who)
        if whole is None:
            return self
        grown = object.__new__(LocalData)
        grown._set_table(replace(whole.stored(self.who, empty=True), site=self.site), self.who, missing=True)
        return grown

    def in_frame(self, frame: Frame, *, once: bool = False, copy: bool = False) -> LocalData:
        """Return the same stored rows in another frame. All frames share the cached measurements of the rows.

        Parameters
        ----------
        frame : Frame
            The frame.
        once : bool, default=False
            Whether only one or two products are needed in this frame, for which X'X does not save time.
        copy : bool, default=False
            Whether a copy of the rows minus the mean may be kept in memory.
        """
        if frame.covariates is not None:
            return self._in_frame_with_covariates(frame, once=once, copy=copy)
        if frame.names is not None and frame.names != self.names:
            return self.arrange(frame.names).in_frame(frame, once=once, copy=copy)
        view = self._new_view()
        view.frame, view._once, view._copy = frame, once, copy
        return view

    def _in_frame_with_covariates(self, frame: Frame, *, once: bool, copy: bool) -> LocalData:
        """Return the features in a frame with covariates. The adjustment is applied if the frame has its parameters."""
        covariates = frame.covariates
        assert covariates is not None
        names, joint = frame.names, self
        if covariates.names or names is not None:
            names = names or covariates.features_of(self.names or ())
            joint = self.arrange((*names, *covariates.names))
        d = joint.d - len(covariates.names)

        def make() -> tuple[Frame, LocalData]:
            moved = covariates.changes_rows
            adjusted.require_complete(joint.measured, joint.names, d, joint.who, local_mean=moved and frame.own)
            move = moves.row_map_of(joint.in_frame(Frame(own=frame.own)), d, covariates) if moved else None
            table = adjusted.table_of_features(joint.table, joint.measured, names, frame, move)
            made = object.__new__(LocalData)
            made._set_table(replace(table.stored(joint.who, empty=True), site=joint.site), joint.who, missing=True)
            return frame, made if names is None else made.arrange(names)

        _, rows = joint.measured.cached_if("features", lambda found: found[0].maps_rows_alike(frame), make)
        view = rows.in_frame(replace(frame, covariates=None, names=None), once=once, copy=copy)
        view.frame, view.joint = frame, joint
        return view

    def with_covariates(self, covariates: Covariates) -> LocalData:
        """Return the same features in the same frame, with these new parameters for covariates."""
        assert self.joint is not None
        return self.joint.in_frame(replace(self.frame, covariates=covariates, names=self.names))

    def joint_in(self, frame: Frame) -> LocalData:
        """Return features and covariates as one table in this frame."""
        assert self.joint is not None
        return self.joint.in_frame(frame, once=True)

    def _new_view(self) -> Self:
        """Return a new view of these rows without a frame, which the caller may change.

        The measurements of the rows are shared, but the cached properties of this view are not copied.
        """
        kind = type(self)
        view, cached = object.__new__(kind), _names_of_cached_properties(kind)
        for name, value in self.__dict__.items():
            if name not in cached:
                view.__dict__[name] = value
        view._whole = self.all_columns
        view.frame, view._once, view._copy = Frame(), False, False
        return view

    def require_whole(self, *, new: bool = False) -> None:
        """Raise a DataError if values are missing. It names the place of the first missing value and a remedy."""
        if self.missing:
            table = self.table
            values = self.measured.value_blocks()
            checks.finite(self.who, values, names=_names_as_known(table), place=table.place, new=new)

    def stored_array(self) -> Any:
        """Return all stored rows as one array, dense or sparse."""
        return self.measured.stored_array()

    def blocks(self) -> Iterator[Array]:
        """Yield blocks of stored rows as dense arrays."""
        return self.measured.blocks()

    def observed_moments(self) -> Moments:
        """Return the moments of the present values."""
        return self.measured.observed_moments()

    def gene_sums(self, *, undone: bool) -> tuple[Array, Array]:
        """Return the sums by column of the entries and of their squares, for expm1 of the entries if `undone`."""
        from flower_pca.rows.gene_sums import gene_sums

        return gene_sums(self.measured, self.who, undone=undone)

    def outside_equilibrium(self, least: float) -> Array:
        """Return 1 for columns of genotypes with a Hardy-Weinberg p-value below `least`, and 0 for other columns."""
        from flower_pca.rows.hardy_weinberg import p_values

        return np.asarray(p_values(self.observed_moments(), self.who) < least, dtype=np.float64)

    def largest_absolute(self) -> Array:
        """Return the largest absolute value in each stored column."""
        return self.measured.largest_absolute()

    def fingerprint(self) -> int:
        """Return a cryptographic digest of the stored rows."""
        return self.measured.fingerprint()

    @property
    def _uses_local_means(self) -> bool:
        return bool(self.frame.own and self.missing)

    def matmat(self, Z: Array, *, reuse: int = _REUSE) -> Array:
        """Return X'(XZ). `reuse` is the number of such products in a run, which decides whether X'X saves time."""
        Z = np.ascontiguousarray(Z, dtype=np.float64 if self.sparse else self.dtype)
        if self._gram_pays(Z.shape[1], reuse):
            # If values are missing, X'X depends on the frame, because the frame determines the replacements.
            if self.missing:
                return np.asarray(self.gram() @ Z, dtype=self.dtype)
            return np.asarray(self.measured.scatter().product_in_frame(Z, self.frame), dtype=self.dtype)
        if self.measured.columns is not None:
            self.require_complete_rows()
            # Without missing values, there is nothing to replace.
            frame = self._full_frame if self.missing else replace(self.frame, fill=None)
            return self.measured.product_by_columns(Z, frame).astype(self.dtype, copy=False)
        blocks, frame = self._blocks_and_frame()
        return product_in_frame(blocks, Z, frame).astype(self.dtype, copy=False)

    def scores(self, Z: Array) -> Array:
        """Return XZ: the coordinates of the rows, n x p."""
        Z = np.ascontiguousarray(Z, dtype=self.dtype)
        scores = np.concatenate([B @ Z for B in self._blocks_to_multiply()])
        return scores.astype(self.dtype, copy=False)

    def adjoint(self, Y: Array) -> Array:
        """Return X'Y for an n x p block Y."""
        Y = np.ascontiguousarray(Y, dtype=self.dtype)
        total, start = np.zeros((self.d, Y.shape[1])), 0
        for B in self._blocks_to_multiply():
            total += B.T @ Y[start : start + B.shape[0]]
            start += B.shape[0]
        return total.astype(self.dtype, copy=False)

    def squared_error(self, Z: Array) -> float:
        """Return ||X - XZZ'||_F^2 for orthonormal Z."""
        Z = np.ascontiguousarray(Z, dtype=self.dtype)
        if not self.sparse:
            # Square the residuals themselves. A difference of sums of squares, as used below to keep sparse rows
            # sparse, loses digits if the residual is small.
            residuals = (B - (B @ Z) @ Z.T for B in self.rows())
            return float(sum(np.sum(R.astype(np.float64) ** 2) for R in residuals))
        squares = self.moments().sums_in_frame(self._full_frame)[1]
        along = np.sum(self.scores(Z).astype(np.float64) ** 2)
        return max(float(squares.sum()) - float(along), 0.0)

    def gram(self, *, keep: bool = True) -> Array:
        """Return X'X (d x d).

        It is cached if `keep` is true, unless it is larger than the rows because d > n, or follows from the cached X'X
        about the rows' own mean.
        """
        if self.n < self.d or self._follows_from_spread or not (keep or "_gram" in vars(self)):
            return self._compute_gram()
        return self._gram

    def rows(self) -> Iterator[Any]:
        """Yield blocks of rows in the frame. For sparse rows, yield operators that act like such blocks."""
        self.require_complete_rows()
        frame = self._full_frame
        if self.sparse:
            yield from (ImplicitRows(piece, frame) for piece in self._sparse_without_gaps)
        else:
            yield from (rows_in_frame(frame, block, self.dtype) for block in self.measured.stored_blocks())

    def _blocks_to_multiply(self) -> Iterator[Any]:
        """Yield blocks of rows in the frame, or operators that multiply like them."""
        if self._frame_is_implicit:
            yield from (ImplicitRows(block, self.frame) for block in self.measured.stored_blocks())
        else:
            yield from self.rows()

    def _blocks_and_frame(self) -> tuple[Iterable[Any], Frame]:
        """Return blocks of rows, and the part of the frame that must still be applied to their products."""
        if self.sparse:
            self.require_complete_rows()
            return self._sparse_without_gaps, self._full_frame
        if self._frame_is_implicit:
            return self.measured.stored_blocks(), self.frame
        if self.frame.mean is None:
            return self.rows(), Frame()
        self.require_complete_rows()
        return self._centered_blocks.blocks_of(self.measured.stored_blocks()), self._centered_blocks.rest

    def dense(self) -> Iterator[Array]:
        """Yield blocks of rows in the frame as dense arrays."""
        if not self.sparse:
            yield from self.rows()
            return
        self.require_complete_rows()
        for block in self.measured.dense_pieces(self._sparse_without_gaps):
            yield rows_in_frame(self._full_frame, block, self.dtype)

    def root(self) -> Array:
        """Return a matrix A with A'A = X'X: the rows in the frame as one array."""
        if self.sparse:
            return self.adjoint(np.eye(self.n)).T
        return np.concatenate(list(self.rows()))

    def sketch(self, Z: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Return XZ, and a function that maps a block Y with n rows to X'Y."""
        return self.scores(Z), self.adjoint

    def moments(self) -> Moments:
        """Return the moments of the stored rows, in one pass over blocks. They are accurate for any mean.

        If local means replace missing values, the moments describe all values. Otherwise, they describe the present
        values.
        """
        return self.measured.moments(with_local_means=self._uses_local_means)

    def local_product(self, block: Array) -> tuple[Moments, Array]:
        """Return the moments, and the product X'(XZ) of the rows about their own mean with a block Z.

        For complete dense rows, X'X is used if it saves time, because later messages need it as well.
        """
        if self.sparse:
            there, rows = self.measured.sparse_about_mean(with_local_means=self._uses_local_means)
            return there, functools.reduce(np.add, (piece.T @ (piece @ block) for piece in rows))
        if self._gram_pays(block.shape[1], _REUSE) and not self.missing:
            spread = self.measured.scatter()
            return spread.moments, spread.gram @ block
        if self.measured.columns is not None:
            return self.moments(), self.measured.product_about_mean(block)
        there, total = product_and_moments(
            self.measured.deviations(),
            self.n,
            self.measured.approximate_mean,
            block,
            self.dtype,
            self.measured.counts_or_none,
        )
        self.measured.release_mean()
        if self._uses_local_means:
            there = self.measured.moments_with_local_means(there)
        return there, total

    def sums_where_seen(self, columns: slice) -> Array:
        """Return sums of these p complete columns about their means, as an array (d x p).

        Line j holds the sums over the rows that have a value in column j.
        """
        mean = np.asarray(self.observed_moments().mean)[columns]
        total = np.zeros((self.d, len(mean)))
        if self.missing:
            # The sum over all rows is 0, so the sum over the other rows determines the result.
            for block in self.measured.blocks():
                total -= np.isnan(block).T.astype(np.float64) @ (block[:, columns] - mean)
        return total

    def _gram_eigenpairs(self, k: int) -> tuple[Array, Array]:
        side = min(self.n, self.d)
        if not self.sparse and self.n < self.d and side <= DIRECT and self.n * self.d <= _COPIED:
            _, s, Vt = np.linalg.svd(self.root(), full_matrices=False)
            return s.astype(np.float64) ** 2, Vt.T
        # ARPACK cannot find all eigenvectors.
        if self.d <= DIRECT and (not self.sparse or k >= side):
            return linalg.eigh_descending(self.gram().astype(np.float64))
        product = functools.partial(self.matmat, reuse=1)
        tol = float(np.finfo(self.dtype).eps)
        return linalg.lanczos(product, self.d, min(k, side, self.d - 1), tol=tol)

    def _gram_pays(self, p: int, reuse: int) -> bool:
        # The rule depends on sizes only, not on caches, so a resumed run gives identical results.
        return not (self.sparse or self._once) and gram_saves_time(self.n, self.d, p, reuse)

    @property
    def _follows_from_spread(self) -> bool:
        """Whether X'X in the frame is derived from the scatter matrix of the rows about their own mean."""
        return not (self.sparse or self._once) and self.d <= self.n and not self.missing

    @functools.cached_property
    def _gram(self) -> Array:
        return self._compute_gram()

    def _compute_gram(self) -> Array:
        self.require_complete_rows()
        if self.sparse and has_few_stored(self.measured.stored_blocks(), self.n, self.d, self.dtype):
            return self._sparse_gram()
        if self._follows_from_spread:
            return self.measured.scatter().gram_in_frame(self.frame)
        blocks: Iterable[Any] = self.dense()
        frame = Frame()
        if self.missing and self.dtype == np.float64 and not self.sparse:
            blocks, frame = self._blocks_and_frame()
        total = GramSum(self.d, self.dtype)
        for block in blocks:
            total.add(block)
        return frame.unscale_gram(total.gram())

    def _sparse_gram(self) -> Array:
        """Return X'X of sparse rows with few stored entries, without converting them to dense rows."""
        frame = self._full_frame
        sums = (np.asarray(S.sum(axis=0, dtype=np.float64)).reshape(-1) for S in self._sparse_without_gaps)
        mean = functools.reduce(np.add, sums) / self.n
        return frame.unscale_gram(sparse_gram(self._sparse_without_gaps, self.n, mean, about=frame.column_centers))

    @functools.cached_property
    def _frame_is_implicit(self) -> bool:
        """Whether the frame is applied to products of dense rows, instead of to the rows themselves."""
        if self.sparse or self.missing or self.n * self.d <= _SMALL or self.measured.stored_dtype != np.float64:
            return False
        return is_near_mean(self.frame, self.measured.sample())

    @functools.cached_property
    def _full_frame(self) -> Frame:
        """The frame with the replacements for the missing values of these rows."""
        if not self._uses_local_means:
            return self.frame
        fill = np.where(self.observed_moments().value_counts > 0, self.measured.local_means(), self.frame.fill_values)
        return replace(self.frame, fill=fill, own=False)

    @functools.cached_property
    def _centered_blocks(self) -> CenteredBlocks:
        frame = self._full_frame
        if not self.missing:
            # Without replacements, blocks are not searched for missing values.
            frame = replace(frame, fill=None)
        return CenteredBlocks(frame, self.dtype, keep=self._copy and not self._once)

    @property
    def _sparse_without_gaps(self) -> Iterator[Any]:
        """The pieces of sparse rows, with missing values replaced."""
        return self.measured.without_gaps(self._full_frame.fill)


@functools.cache
def _names_of_cached_properties(kind: type[LocalData]) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if isinstance(getattr(kind, name), functools.cached_property))


def _share_names_of_cached_properties() -> None:
    """Let all instances of `LocalData` share one list of the names of their attributes.

    Python shares the names that the first instances of a class have. If a name is added later, each instance gets a
    list of its own, which takes 600 bytes for each client of a simulation.
    """
    first = object.__new__(LocalData)
    for name, value in vars(LocalData).items():
        if isinstance(value, functools.cached_property):
            setattr(first, name, None)


_share_names_of_cached_properties()


def _count_missing(table: Table, who: str, missing: bool, values: Iterator[Array]) -> int:
    """Return the number of missing values, or raise an error about an entry that is not allowed: see `checks.finite`.

    This is called only if some entries are not finite.
    """
    # A node allows missing values, and its error must not reveal the place of a bad value.
    place = table.place if table.origin is not None or not missing else None
    return checks.finite(who, values, missing=missing, names=_names_as_known(table), place=place)


def _names_as_known(table: Table) -> Sequence[str] | None:
    """Return the names of the columns as the user knows them. An indicator gets the name of its column of words."""
    if table.names is None or not table.made:
        return table.names
    return [levels.source_of(name) if name in table.made else name for name in table.names]


class FrameView:
    """One client's rows in the frame of the newest message.

    Most messages have the same frame as the message before. So X'X in this frame, and the rows minus its mean, are
    formed only once. The sender or receiver of messages keeps the view.

    Parameters
    ----------
    rows : LocalData
        The rows.
    copy : bool, default=False
        Whether a copy of the rows minus the mean may be kept in memory.
    """

    __slots__ = ("_copy", "_framed", "rows")

    def __init__(self, rows: LocalData, *, copy: bool = False) -> None:
        self.rows, self._copy = rows, copy
        self._framed: LocalData | None = None

    def in_frame(self, frame: Frame) -> LocalData:
        """Return the rows in this frame."""
        framed = self._framed
        if framed is None and self.rows.frame.maps_rows_alike(frame):
            return self.rows
        if framed is None or not framed.frame.maps_rows_alike(frame):
            self._framed = None  # Release the previous copy first, so that two copies are never in memory.
            self._framed = framed = self.rows.in_frame(frame, copy=self._copy)
        return framed


def is_near_mean(frame: Frame, rows: Array) -> bool:
    """Return whether the mean of a frame is near most rows: its length is at most 4 times the distance to them.

    Subtracting the mean from products of the stored rows then loses at most two bits.
    """
    if frame.mean is None:
        return True
    length, away = frame.mean / frame.column_divisors, rows - frame.mean
    away = away / frame.column_divisors
    squares = np.sort(np.einsum("ij,ij->i", away, away))
    # The median is used because a few outlying rows would inflate the mean of the squares.
    median = squares[(len(squares) - 1) // 2]
    return bool(np.sqrt(length @ length) <= _NEAR * np.sqrt(median))


class CenteredBlocks:
    """Blocks of rows minus a frame's mean, with missing values filled.

    If `keep` is true, the blocks are kept in memory. Otherwise, they are computed again in each pass.

    The frame `rest` must still be applied to products. In single precision, it includes the part of the mean that is
    too small to be subtracted from the rows.
    """

    def __init__(self, frame: Frame, dtype: np.dtype[Any], *, keep: bool) -> None:
        assert frame.mean is not None
        self._mean = frame.mean.astype(dtype, copy=False)
        self._gap: Any = None
        if frame.fill is not None:
            self._gap = frame.fill - self._mean
            if not self._gap.any():  # The replacements are usually the means, so the gap is 0.
                self._gap = 0.0
        rest = None if dtype == np.float64 else frame.mean - self._mean
        self.rest = Frame(rest, frame.scale)
        self._keep = keep
        self._parts: list[Array] = []

    def blocks_of(self, stored: Iterable[Array]) -> Iterable[Array]:
        """Return blocks of these rows minus the mean. If copies are kept, `stored` must be the same rows each time."""
        if not self._keep:
            return blocks_about_mean(stored, self._mean, self._gap)
        if not self._parts:
            # The copies are made block by block, because all blocks of one call share the same memory.
            self._parts = [part for block in stored for part in blocks_about_mean([block], self._mean, self._gap)]
        return self._parts
