"""Functions for subspaces, eigenvalues and medians.

Unless a docstring says otherwise, Z and U are d x p matrices with orthonormal columns.

Medians are computed over clients, so that a minority of clients cannot move them far. A client with weight w counts
like w clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

# When `fix_signs` chooses a sign, entries that differ from the largest entry by at most this share count as equal.
_TIE = 1e-8
# Directions shorter than this number times sqrt(d), eps and the largest Ritz value are rounding errors.
_ROUNDING_MULTIPLE: Final = 16.0
_DRAWN: Final = 2**16  # the number of random numbers that are drawn at a time
# The smallest singular value, for columns of length 1, at which their products are accurate enough.
_SMALLEST_SINGULAR_VALUE: Final = 1e-4
# If products of columns deviate by at most this from the products of orthonormal columns, the square of the deviation
# is a rounding error.
_SMALL_DEVIATION: Final = 1e-7
# If the part of an orthonormal block along a basis is at most this, one projection makes the block orthogonal to the
# basis.
_LARGEST_OVERLAP: Final = 1e-5
# Below this overlap, one projection changes the products of the columns of a block by less than a rounding error.
_NEGLIGIBLE_OVERLAP: Final = 1e-9
# If the eigenvalues of a block's Gram matrix differ by at most this factor, `_by_gram` makes the block orthonormal up
# to rounding errors. In a run on noise, the deviation was 2e-15 to 4e-15.
_EVEN: Final = 16.0
_ENTRIES: Final = 2**20  # the number of entries of a large matrix that are copied at a time
_ROWS: Final = 1024  # the number of rows that are replaced at a time
_COLUMNS: Final = 2**10  # number of collected columns above which `SideBySide` replaces them by a factor
# If a sum of squares is between this number and its inverse, underflow or overflow has not affected it.
_SAFE: Final = 1e-200
_SMALL: Final = 1e-140  # length of a column below which the squares of its entries lose precision
_AT_ONCE: Final = 32  # the number of reflections of a QR that LAPACK applies together
_AT_A_TIME: Final = 2**17  # the number of entries of a product that is needed only as a part of a sum
_UNROLLED: Final = 16  # BLAS computes at least this many columns together
_LARGE: Final = 300  # side of a matrix from which a few eigenvectors cost less than all eigenvectors


def qr(Y: Array) -> tuple[Array, Array]:
    """Return the thin QR factors of Y with a non-negative diagonal of R. They are unique if Y has full rank."""
    # LAPACK refuses a matrix without entries.
    if Y.size == 0:
        return np.linalg.qr(Y)
    reflected, tau, signs = _reflect(Y)
    R = np.triu(reflected[: len(tau)]) * signs[:, None]
    return _basis(reflected, tau, signs, Y.dtype), R.astype(_precision(Y.dtype), copy=False)


def orth(Y: Array, *, out: Array | None = None) -> Array:
    """Return an orthonormal matrix with as many columns as Y. Its span contains the span of Y.

    `out` is an array of the shape of Y that is no longer needed. If it has row order and double precision like the
    result, the result takes its memory.
    """
    if Y.size == 0:
        return qr(Y)[0]
    if out is not None and not (out.shape == Y.shape and out.flags.c_contiguous and out.dtype == np.float64):
        out = None
    return _basis(*_reflect(Y), Y.dtype, out=out)


def orth_in_place(Y: Array) -> Array:
    """Return the same matrix as `orth(Y)`, in the memory of Y, which has column order and double precision."""
    if Y.size == 0:
        return qr(Y)[0]
    lwork = _AT_ONCE * Y.shape[1]
    reflected, tau, *_ = _lapack().dgeqrf(Y, lwork=lwork, overwrite_a=True)
    signs = _signs(reflected)
    Q, *_ = _lapack().dorgqr(reflected[:, : len(tau)], tau, lwork=_AT_ONCE * len(tau), overwrite_a=True)
    return np.asarray(np.multiply(Q, signs, out=Q))


@lru_cache(maxsize=1)
def _lapack() -> Any:
    """Return LAPACK's functions. They are cached, because the look-up takes a sixth of the time of a small QR."""
    from scipy.linalg import lapack

    return lapack


@lru_cache(maxsize=1)
def load_blas() -> Any:
    """Return scipy's BLAS functions, which are imported when they are first needed."""
    from scipy.linalg import blas

    return blas


def _reflect(Y: Array) -> tuple[Array, Array, Array]:
    """Return the QR of Y as LAPACK stores it, and the signs of R's diagonal. numpy would take twice as long.

    LAPACK stores R together with Householder reflections in one array, and their factors in another.
    """
    lwork = _AT_ONCE * Y.shape[1]
    reflected, tau, *_ = _lapack().dgeqrf(Y, lwork=lwork)
    return reflected, tau, _signs(reflected)


def _signs(reflected: Array) -> Array:
    # `np.sign` would return 0 for a 0 on the diagonal, which would erase this column of Q.
    return np.where(np.diagonal(reflected) < 0, -1.0, 1.0)


def _basis(reflected: Array, tau: Array, signs: Array, dtype: np.dtype[Any], *, out: Array | None = None) -> Array:
    # LAPACK overwrites the reflections with Q.
    Q, *_ = _lapack().dorgqr(reflected[:, : len(tau)], tau, lwork=_AT_ONCE * len(tau), overwrite_a=True)
    if out is not None and Q.shape == out.shape and _precision(dtype) == np.float64:
        return np.asarray(np.multiply(Q, signs, out=out))
    return np.asarray(np.multiply(Q, signs, order="C").astype(_precision(dtype), copy=False))


def _precision(dtype: np.dtype[Any]) -> type[np.floating[Any]]:
    if dtype == np.float32:
        return np.float32
    return np.float64


def complement(Y: Array, Q: Array) -> Array:
    """Return (I - QQ')Y. The projection is applied twice, to make the result orthogonal to Q to machine precision."""
    Y = Y - Q @ (Q.T @ Y)
    return np.asarray(Y - Q @ (Q.T @ Y))


def independent_columns(Y: Array, floor: float) -> Array:
    """Return the left singular vectors of Y with singular values above `floor`."""
    U, s, _ = np.linalg.svd(Y, full_matrices=False)
    return np.ascontiguousarray(U[:, s > floor])


def spanning_basis(Y: Array) -> Array:
    """Return an orthonormal basis of span(Y), with fewer columns if Y has a lower rank."""
    return independent_columns(Y, _ROUNDING_MULTIPLE * np.sqrt(len(Y)) * np.finfo(float).eps * norm2(Y))


def polar(W: Array) -> Array:
    """Return W(W'W)^(-1/2), the polar factor of W, which is the nearest matrix with orthonormal columns."""
    U, _, Vt = np.linalg.svd(W, full_matrices=False)
    return np.asarray(U @ Vt)


def procrustes(X: Array, B: Array) -> Array:
    """Return the orthogonal O that minimizes ||XO - B||_F (Schoenemann 1966)."""
    return polar(X.T @ B)


def leading_left_vectors(stack: Array, width: int, *, overwrite: bool = False) -> Array:
    """Return `width` leading left singular vectors of the stack, without forming a d x d matrix.

    If the stack has fewer columns, arbitrary orthonormal columns are added. With `overwrite`, LAPACK works in the
    memory of the stack.
    """
    if stack.shape[1] > len(stack):
        # The transposed factor R has the same left singular vectors as the stack, but only d columns.
        if overwrite and stack.dtype == np.float64 and stack.flags.c_contiguous:
            reflected, *_ = _lapack().dgeqrf(stack.T, lwork=_AT_ONCE * len(stack), overwrite_a=True)
            stack = np.triu(reflected[: len(stack)]).T
        else:
            stack = np.asarray(np.linalg.qr(stack.T, mode="r")).T
    # Zeros next to the stack make U as wide as requested. `full_matrices` would make it d x d.
    missing = max(0, width - stack.shape[1])
    U = np.linalg.svd(np.hstack([stack, np.zeros((len(stack), missing))]), full_matrices=False)[0]
    return np.ascontiguousarray(U[:, :width])


class SideBySide:
    """A collection of blocks of d rows, side by side in one matrix.

    If there are many columns, they are replaced by d columns H with the same HH'. Therefore, memory does not
    grow with the number of blocks.
    """

    def __init__(self) -> None:
        self._gathered: list[Array] = []
        self._columns = 0

    def add(self, block: Array) -> None:
        """Append a block on the right."""
        self._gathered.append(block)
        self._columns += block.shape[1]
        if self._columns > max(_COLUMNS, 4 * len(block)):
            matrix = self.matrix()
            self._gathered.clear()  # The blocks must not stay in memory while LAPACK copies the matrix.
            R = np.asarray(np.linalg.qr(matrix.T, mode="r"))
            self._gathered, self._columns = [R.T], len(R)

    def matrix(self) -> Array:
        """Return the matrix of all blocks, or the smaller matrix H that replaces them."""
        return np.hstack(self._gathered)


def norm2(E: Array) -> float:
    """Return the spectral norm of a tall thin matrix, from the largest eigenvalue of its small Gram matrix.

    The relative error of this eigenvalue is about machine precision.
    """
    if E.size == 0:
        return 0.0
    size = float(np.abs(E).max())
    if size == 0.0 or not math.isfinite(size):
        return size
    S = E / size  # A tiny E must not underflow.
    return size * float(np.sqrt(max(np.linalg.eigvalsh(S.T @ S)[-1], 0.0)))


def median_of_few(values: Array) -> Array:
    """Return the median along a short first axis. Sorting takes only a fifth of the time of `np.median`."""
    ordered = np.sort(values, axis=0)
    # Halves are added, because a sum of large numbers may overflow.
    return np.asarray(ordered[(len(values) - 1) // 2] / 2.0 + ordered[len(values) // 2] / 2.0)


def column_norms(E: Array) -> Array:
    """Return the norms of the columns, computed without overflow of squares and without a copy of a large matrix."""
    # np.abs would make a copy as large as the matrix.
    size = float(max(E.max(initial=0.0), -E.min(initial=0.0)))
    squares, few = np.zeros(E.shape[1]), max(_ENTRIES // max(len(E), 1), 1)
    # The squares of all entries at once would take as much memory as the matrix.
    for i in range(0, E.shape[1], few):
        scaled = E[:, i : i + few] / (size or 1.0)
        rows = max(_ENTRIES // scaled.shape[1], 1)
        for j in range(0, len(scaled), rows):
            part = scaled[j : j + rows]
            # For a few columns, BLAS is five times faster than numpy's sum.
            squares[i : i + few] += np.ones(len(part)) @ (part * part)
    return np.asarray(size * np.sqrt(squares))


def frobenius_norm(E: Array) -> float:
    """Return the Frobenius norm, computed without underflow or overflow of squares."""
    square = float(np.vdot(E, E))
    if _SAFE < square < 1.0 / _SAFE:
        return math.sqrt(square)
    return float(column_norms(E.reshape(-1, 1))[0])


def sin_theta(Z: Array, U: Array) -> float:
    """Return ||(I - ZZ')U||_2, the sine of the largest angle between a vector in span(U) and the subspace span(Z)."""
    return min(norm2(complement(U, Z)), 1.0)


def principal_angles(A: Array, B: Array) -> Array:
    """Return the principal angles between span(A) and span(B), ascending. Small and large angles are accurate.

    The method is from Bjoerck and Golub (1973): the arcsin of singular values of (I - AA')B for angles
    below pi/4, and the arccos of singular values of A'B for larger angles.
    """
    if A.shape[1] < B.shape[1]:
        A, B = B, A
    cosines = np.clip(np.linalg.svd(A.T @ B, compute_uv=False), 0.0, 1.0)
    sines = np.clip(np.linalg.svd(complement(B, A), compute_uv=False)[::-1], 0.0, 1.0)
    return np.where(cosines**2 >= 0.5, np.arcsin(sines), np.arccos(cosines))


def projection_distance(X: Array, Z: Array) -> float:
    """Return ||XX' - ZZ'||_F for X and Z with the same number of columns, computed without cancellation."""
    return float(np.sqrt(2.0) * np.linalg.norm(X - Z @ (Z.T @ X)))


def fix_signs(V: Array) -> Array:
    """Return V with the sign of each column chosen so that the entry with the largest absolute value is positive.

    Among equally large entries, the first entry decides.
    """
    rows = np.ascontiguousarray(V.T)
    size = np.abs(rows)
    # Without a tolerance, rounding errors would decide between equal entries, and these errors depend on the division
    # of the rows among clients.
    first = np.argmax(size >= (1.0 - _TIE) * size.max(axis=1, initial=0.0, keepdims=True), axis=1)
    return np.asarray(V * np.where(rows[np.arange(len(rows)), first] < 0, -1.0, 1.0))


def eigh_descending(H: Array) -> tuple[Array, Array]:
    """Return the eigenvalues, largest first, and the eigenvectors of a matrix that is symmetric up to rounding."""
    # LAPACK reads only one triangle, but the triangles differ by rounding errors or the noise of a channel.
    values, vectors = np.linalg.eigh((H + H.T) / 2)
    return values[::-1], np.ascontiguousarray(vectors[:, ::-1])


def eigh_leading(H: Array, count: int) -> tuple[Array, Array]:
    """Return at least the `count` largest eigenvalues, largest first, and their eigenvectors.

    All eigenvalues of a small matrix are returned. Those of a large matrix beyond `count` are not computed, which more
    than halves the cost.
    """
    m = len(H)
    if m < _LARGE or 6 * count > m:
        return eigh_descending(H)
    from scipy.linalg import eigh

    subset_by_index = (m - count, m - 1)
    values, vectors = eigh((H + H.T) / 2, subset_by_index=subset_by_index, driver="evr", check_finite=False)
    return values[::-1], np.ascontiguousarray(vectors[:, ::-1])


def rayleigh_ritz(Z: Array, Y: Array) -> tuple[Array, Array, Array, Array]:
    """Return Ritz values of C on span(Z), largest first, the Ritz vectors, their products with C, and residual norms.

    Y is C Z. The Ritz vectors are a rotation of Z.
    """
    values, W = eigh_descending(Z.T @ Y)
    Z, Y = Z @ W, Y @ W
    rest = Z * values
    return values, Z, Y, column_norms(np.subtract(Y, rest, out=rest))


def span_axes(Z: Array, cross: Array) -> tuple[Array, Array]:
    """Return orthonormal axes A of span(Z) for which A'CA is diagonal, and this diagonal, largest first.

    `cross` is Z'CZ. If the columns of Z are linearly dependent, there are fewer axes than columns.
    """
    U, sizes, W = np.linalg.svd(Z, full_matrices=False)
    rank = int(np.sum(sizes > len(Z) * np.finfo(np.float64).eps * sizes[0]))
    back = W[:rank].T / sizes[:rank]
    values, turned = eigh_descending(back.T @ cross @ back)
    return U[:, :rank] @ turned, np.maximum(values, 0.0)


def random_block(d: int, p: int, seed: int) -> Array:
    """Return a read-only d x p block of independent N(0, 1) numbers, which is the same on every machine.

    The numbers are computed from raw bits by the Box-Muller method, because numpy guarantees the streams of its bit
    generators but not the streams of its distributions. The clients and the server in one process draw the same blocks.
    Therefore the latest four small blocks and the latest large block are cached.
    """
    if d * p <= _DRAWN:
        return _small_block(d, p, seed)
    return _large_block(d, p, seed)


def _box_muller(d: int, p: int, seed: int) -> Array:
    block: Array = np.empty(d * p)
    first = np.random.PCG64(seed)
    # Radius and angle need different numbers, so the second stream begins where the first stream ends.
    second = np.random.PCG64(seed).advance(d * p)
    for i in range(0, d * p, _DRAWN):  # The bits of both streams are drawn in pieces.
        part = block[i : i + _DRAWN]
        drawn = (bits.random_raw(len(part)) for bits in (first, second))
        u, v = ((words >> np.uint64(11)) * 2.0**-53 for words in drawn)
        # u may be 0 but is never 1, so no logarithm is infinite.
        part[:] = np.sqrt(-2.0 * np.log1p(-u)) * np.cos(2.0 * np.pi * v)
    block = block.reshape(d, p)
    # All callers get the same array, so no caller may change it.
    block.flags.writeable = False
    return block


_small_block = lru_cache(maxsize=4)(_box_muller)
_large_block = lru_cache(maxsize=1)(_box_muller)


def forget_block() -> None:
    """Release the large block that `random_block` keeps."""
    _large_block.cache_clear()


def random_basis(d: int, p: int, seed: int) -> Array:
    """Return a random d x p orthonormal basis from the uniform distribution."""
    return orth(random_block(d, p, seed))


def product_in_memory_order(Y: Array, W: Array) -> Array:
    """Return Y W in the memory order of Y, because BLAS takes up to twice as long for the other order."""
    if Y.flags.c_contiguous:
        return np.asarray(Y @ W)
    return np.asarray((W.T @ Y.T).T)


def inner(Q: Array, B: Array) -> Array:
    """Return Q'B, computed in the order that is faster in BLAS if Q has many more columns than B."""
    if Q.flags.c_contiguous:
        return np.asarray(Q.T @ B)
    return np.asarray((B.T @ Q).T)


def subtract(Y: Array, Q: Array, W: Array) -> None:
    """Subtract Q W from Y in place. If Y and Q are large and in column order, Q W itself needs no memory."""
    if Y.size >= _ENTRIES and all(a.flags.f_contiguous and a.dtype == np.float64 for a in (Y, Q)):
        load_blas().dgemm(-1.0, Q, W, beta=1.0, c=Y, overwrite_c=True)
    else:
        Y -= product_in_memory_order(Q, W)


def next_block(
    S: Array,
    Q: Array,
    first: float,
    *,
    skew: float = 0.0,
    T: Array | None = None,
    ends: Callable[[Array], bool] | None = None,
) -> tuple[Array, Array, Array]:
    """Return B, Q'S and B'S, where B = orth((I - QQ')S) is the next block of a Krylov space.

    Directions that are only rounding errors are left out of B. These are directions shorter than 16 sqrt(d)
    eps `first`, where `first` is an estimate of the largest Ritz value. If S is already nearly orthogonal to
    Q, Q is read twice instead of four times.

    If T = Q'CQ is given, parts of S along Q need not be removed if the spectral norm of Q'B stays below `skew` in this
    block and in the next block. The returned Q'S does not contain the part that remains in B, so that S = Q (Q'S) + B
    (B'S) always holds.

    `ends` gets B'S and returns whether B is the last block, which no message will send. Such a block need not be
    orthogonal to Q, so Q is not read, and the returned Q'S is 0.
    """
    floor = _ROUNDING_MULTIPLE * np.sqrt(len(Q)) * np.finfo(float).eps * first
    found = _by_gram(S, floor)
    if found is not None:
        block, R, spread = found
        if ends is not None and ends(R):
            return block, np.zeros((Q.shape[1], S.shape[1])), R
        off = inner(Q, block)
        if np.abs(off).max(initial=0.0) < _LARGEST_OVERLAP:
            if T is not None:
                # The part along Q in the next block is about T off, divided by the smallest singular value of R.
                grown = T @ off / max(float(np.linalg.svd(R, compute_uv=False)[-1]), floor)
                off = _subtract_projection(block, Q, off, grown, skew)
            else:
                subtract(block, Q, off)
            # Another product would only confirm that a large block is orthonormal up to rounding errors.
            if block.size >= _ENTRIES and spread <= _EVEN and np.abs(off).max(initial=0.0) < _NEGLIGIBLE_OVERLAP:
                return block, off @ R, R
            block, turn = newton_orthonormalized_qr(block, keep=False)
            return block, off @ R, turn @ R
    inside = inner(Q, S)
    rest = S.copy("K")
    subtract(rest, Q, inside)
    found = _by_gram(rest, floor)
    if found is not None:
        # `_by_gram` divides by small lengths, which amplifies the rounding errors along Q.
        block, R, _ = found
        subtract(block, Q, inner(Q, block))
        block, turn = newton_orthonormalized_qr(block, keep=False)
        return block, inside, turn @ R
    block = independent_columns(rest - Q @ (Q.T @ rest), floor)
    if block.shape[1]:
        block = orth(complement(block, Q))
    return block, inside, block.T @ rest


def _subtract_projection(block: Array, Q: Array, coefficients: Array, grown: Array, skew: float) -> Array:
    """Subtract Q @ coefficients from a block in place, except where `coefficients` and `grown` are below `skew`.

    Return the part of `coefficients` that was subtracted.
    """
    squares, V = eigh_descending(coefficients.T @ coefficients + grown.T @ grown)
    count = int(np.sum(squares > skew**2))
    # Directions are left out only if rounding errors cannot hide a larger direction, and if this saves at least half of
    # the columns.
    if squares[0] * np.finfo(float).eps < skew**2 and 2 * count <= len(V):
        V = V[:, :count]
        some = coefficients @ V
        if count:
            subtract(block, product_in_memory_order(Q, some), V.T)
        return np.asarray(some @ V.T)
    subtract(block, Q, coefficients)
    return coefficients


def block_matrix(A: Array, B: Array, C: Array, D: Array) -> Array:
    """Return the matrix [[A, B], [C, D]]. `np.block` takes several times as long for small matrices."""
    (m, n), whole = A.shape, np.empty((len(A) + len(C), A.shape[1] + B.shape[1]))
    whole[:m, :n], whole[:m, n:], whole[m:, :n], whole[m:, n:] = A, B, C, D
    return whole


def newton_orthonormalize(Z: Array) -> Array:
    """Return Z orthonormalized by one Newton step of `polar`, which is faster than `orth`.

    The columns of Z must be nearly orthonormal.
    """
    return newton_orthonormalized_qr(Z)[0]


def newton_orthonormalized_qr(Z: Array, *, keep: bool = True) -> tuple[Array, Array]:
    """Return Q, the result of `newton_orthonormalize(Z)`, and R with Z = Q R. Unless `keep`, Q may overwrite Z."""
    off = Z.T @ Z
    off.flat[:: len(off) + 1] -= 1.0
    if np.abs(off).max(initial=0.0) > _SMALL_DEVIATION:
        return qr(Z)
    one = np.eye(len(off))
    step, turn = one - off / 2.0, one + off / 2.0
    if keep or Z.size < _ENTRIES:
        return product_in_memory_order(Z, step), turn
    for i in range(0, len(Z), _ROWS):
        Z[i : i + _ROWS] = Z[i : i + _ROWS] @ step
    return Z, turn


def _by_gram(Y: Array, floor: float) -> tuple[Array, Array, float] | None:
    """Return a nearly orthonormal B and a matrix R with Y = B R, or None if the Gram matrix is not accurate enough.

    The third number is the ratio of the largest and the smallest eigenvalue of the Gram matrix that is used. The
    products of the columns of B deviate from those of orthonormal columns by about this many rounding errors.

    B has about the same span as the result of `independent_columns`, at a third of the cost. Columns of Y are scaled to
    length 1. Directions longer than 1e-4 are kept. All other directions must be shorter than `floor`, and B R does not
    contain them.
    """
    gram = Y.T @ Y
    sizes = np.sqrt(np.diagonal(gram))
    # Directions longer than 1e-4 of a column's length are kept below, so 1e-4 of every column's length must exceed the
    # floor. Comparisons with NaN are false.
    least = max(floor / _SMALLEST_SINGULAR_VALUE, _SMALL)
    if not least < sizes.min(initial=np.inf) <= sizes.max(initial=0.0) < np.inf:
        return None
    squares, V = eigh_descending(gram / (sizes[:, None] * sizes))
    count = int(np.sum(squares > _SMALLEST_SINGULAR_VALUE**2 * squares[0]))
    W = V / sizes[:, None]
    if count < len(V) and np.linalg.norm(Y @ W[:, count:]) * sizes.max() > floor:
        return None
    lengths = np.sqrt(squares[:count])
    spread = float(squares[0] / squares[count - 1])
    return product_in_memory_order(Y, W[:, :count] / lengths), (V[:, :count] * lengths).T * sizes, spread


def largest_eigenvalue(product: Callable[[Array], Array], d: int, steps: int) -> float:
    """Return a close lower bound on the largest eigenvalue of a positive semidefinite matrix, from a few power steps.

    `product` is a function that multiplies the d x d matrix by a block.
    """
    Z = random_basis(d, min(4, d), seed=0)
    for _ in range(steps - 1):
        Z = orth(product(Z).astype(np.float64))
    return float(np.linalg.eigvalsh(Z.T @ product(Z))[-1])


def lanczos(product: Callable[[Array], Array], d: int, k: int, *, tol: float) -> tuple[Array, Array]:
    """Return the k largest eigenvalues of a positive semidefinite matrix, largest first, and their eigenvectors.

    `product` is a function that multiplies the d x d matrix by a block. ARPACK computes the eigenvalues.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    def apply(z: Array) -> Array:
        return product(z.reshape(d, -1)).astype(np.float64)

    operator = LinearOperator((d, d), matvec=apply, matmat=apply, dtype=np.float64)
    # Without a given start vector, ARPACK would draw a different vector each time.
    start = random_block(d, 1, seed=0)[:, 0]
    if not apply(start).any():  # ARPACK cannot start if the matrix is zero.
        return np.zeros(k), np.zeros((d, k))
    values, V = eigsh(operator, k=k, v0=start, tol=tol)
    order = np.argsort(values)[::-1]
    return values[order], V[:, order]


@dataclass(frozen=True)
class PowerIteration:
    """The power method on an orthonormal block, with a QR after every few products.

    Attributes
    ----------
    U : ndarray
        The latest orthonormal block that was sent or is sent next. With a QR after every product, the caller sets U to
        the sent block before it calls `step`.
    product : ndarray or None
        C U, or None as long as it is unknown.
    block : ndarray
        The next block to send.
    inside : int
        The number of products since the last QR.
    """

    U: Array
    product: Array | None
    block: Array
    inside: int = 0

    @classmethod
    def start_from(cls, U: Array) -> PowerIteration:
        """Return the iteration before its first product, from an orthonormal block."""
        return cls(U, None, U)

    def step(self, Y: Array, qr_every: int) -> PowerIteration:
        """Return the iteration after a product. Y is C times the block, possibly with noise.

        The block is orthonormalized after every `qr_every` products.
        """
        inside = self.inside + 1
        product = Y if inside == 1 else self.product
        if inside < qr_every:
            return PowerIteration(self.U, product, Y, inside)
        U = orth(Y)
        if qr_every > 1:
            return PowerIteration.start_from(U)
        # The product is kept, because it belongs to U. With more products between two QRs, it would be outdated.
        return PowerIteration(self.U, product, U)


_HALF_ERROR: Final = 1e-9  # the relative rounding error of half the sum of weights
_STEPS: Final = 1000  # maximum number of steps of Weiszfeld's method
# Weiszfeld's method ends when the sum of the absolute changes of all coefficients is at most this.
_CONVERGED: Final = 1e-12
_SMALLEST_DISTANCE: Final = 1e-12  # the smallest divisor, as a share of the largest length of a point


def weighted_median(values: Array, weights: Array) -> Array:
    """Return the weighted median over the first axis.

    As in `np.median`, the median is the mean of the two middle values if no single value is in the middle.

    Parameters
    ----------
    values : ndarray
        The values, (N, ...).
    weights : ndarray
        The weights of the values, (N,), or a separate weight for each entry, (N, ...). A value with weight 0 does not
        count.
    """
    order = np.argsort(values, axis=0)
    values = np.take_along_axis(values, order, axis=0)
    by_client = weights.reshape(weights.shape + (1,) * (values.ndim - weights.ndim))
    by_entry = np.broadcast_to(by_client, values.shape)
    passed = np.cumsum(np.take_along_axis(by_entry, order, axis=0), axis=0)
    half = passed[-1:] / 2.0
    slack = _HALF_ERROR * half
    lower = np.argmax(passed >= half - slack, axis=0)[None]
    upper = np.argmax((passed > half + slack) | (passed == passed[-1:]), axis=0)[None]
    both = (np.take_along_axis(values, place, axis=0)[0] for place in (lower, upper))
    return np.asarray(sum(both) / 2.0)


def weiszfeld(product: Callable[[Array], Array], squares: Array, weights: Array) -> Array:
    """Return the coefficients a, with sum 1, of the geometric median sum_i a_i P_i of points P_i.

    The geometric median is the point m with the smallest sum of w_i |P_i - m|. Weiszfeld's method sets a_i
    to w_i / |P_i - m|, scaled to the sum 1, until the coefficients converge. The method needs only inner
    products of the points, because |P_i - m|^2 = |P_i|^2 - 2 <P_i, m> + |m|^2.

    Parameters
    ----------
    product : callable
        A function that returns the inner products <P_i, sum_j a_j P_j> for coefficients a, (N,).
    squares : ndarray of shape (N,)
        The squared lengths |P_i|^2.
    weights : ndarray of shape (N,)
        The weights w_i.
    """
    a = weights / weights.sum()
    least = _SMALLEST_DISTANCE**2 * float(np.max(squares, initial=0.0)) or 1.0
    for _ in range(_STEPS):
        along = product(a)
        # Near a point, these terms cancel and may become negative. If a point is the median, its distance is 0.
        apart = squares - 2.0 * along + a @ along
        pulls = weights / np.sqrt(np.maximum(apart, least))
        before, a = a, pulls / pulls.sum()
        if np.abs(a - before).sum() <= _CONVERGED:
            break
    return np.asarray(a)


def median_of_points(P: Array, weights: Array) -> Array:
    """Return the coefficients of the geometric median of the rows of P. The working memory is not larger than P."""
    squares = np.einsum("ij,ij->i", P, P)
    if len(P) > P.shape[1]:
        return weiszfeld(lambda a: P @ (a @ P), squares, weights)
    G = P @ P.T
    return weiszfeld(lambda a: G @ a, squares, weights)


def median_of_spans(bases: Sequence[Array], weights: Array, stack: Array | None = None) -> Array:
    """Return the coefficients of the geometric median of the projections V_i V_i' for these bases V_i.

    The inner products are ||V_i'V_j||_F^2. For more than d bases, they are computed from the d x d sum of
    projections, a few columns or rows at a time, so that the working memory is small. `stack` is the matrix of all
    bases side by side, if the caller has it.
    """
    columns = (np.hstack(bases) if stack is None else stack).T
    owner = np.repeat(np.arange(len(bases)), [V.shape[1] for V in bases])

    def by_span(values: Array) -> Array:
        return np.bincount(owner, values, minlength=len(bases))

    length, d = columns.shape
    width, rows = (max(_AT_A_TIME // side, _UNROLLED) for side in (length, d))

    def product(a: Array) -> Array:
        each = a[owner, None]
        parts = (columns[:, j : j + width] for j in range(0, d, width))
        M = np.hstack([columns.T @ (each * part) for part in parts])
        pieces = (columns[i : i + rows] for i in range(0, length, rows))
        return by_span(np.concatenate([np.einsum("ij,ij->i", piece @ M, piece) for piece in pieces]))

    # The memory order affects rounding, and the bases may be parts of the stack.
    squares = np.array([np.sum((V.T @ V) ** 2) for V in map(np.ascontiguousarray, bases)])
    if len(bases) > columns.shape[1]:
        return weiszfeld(product, squares, weights)
    G = np.stack([by_span(np.sum((columns @ V) ** 2, axis=1)) for V in map(np.ascontiguousarray, bases)])
    return weiszfeld(lambda a: G @ a, squares, weights)
