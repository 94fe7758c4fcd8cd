"""The proof of an attempt: checks whether its low-rank part is right, from sums over the clients.

An entry is clean if its distance from the low-rank part is within the cut. Once a basis has settled, the
low-rank part must pass three checks.

(a) Predicted: the share of clean entries is as large among hidden entries as among visible entries, and
at least half of the visible entries are clean.

(b) Determined: every row and every column is determined by its clean entries. Let P be an orthonormal
basis of the column space of VU', with rows P_i. The smallest eigenvalue of sum P_i P_i' over a column's
clean entries i must not be far below 1, and likewise for rows. Rows that fail are counted, and columns
that fail are named. A row is bad if most of its entries are outliers. Bad rows are counted separately.

(c) No structure: if there is noise, the largest singular value of the residuals is not much larger than
for independent entries.

A low-rank part that may have fitted outliers needs a second attempt that agrees: one with many degrees of freedom
beside much noise, and one with a direction that consists of a single column.

Each client checks its own rows. Let v_i be the rows of V, G = sum v_i v_i' over all rows, and F_j = sum
v_i v_i' over the rows i in which the entry of column j is clean. To check columns, clients send F_j if
these matrices are small. Otherwise they send products for power steps x <- G^-1 (G - F_j) x. The largest
eigenvalue of G^-1 (G - F_j) is 1 minus the smallest eigenvalue of G^-1 F_j.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from flower_pca.algorithms.robust import huber, sizes
from flower_pca.algorithms.robust.attempt import EXACT, STEPS, Attempt, Problem
from flower_pca.algorithms.robust.sizes import TINY
from flower_pca.algorithms.robust.verdict import CLEAN, MOST_NOISE, SMALL, Verdict
from flower_pca.base import linalg
from flower_pca.base.errors import OTHER_SERVER, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import ROWS, Kind, Part

# A row or column is undetermined if its smallest eigenvalue is below the first limit, or below the second limit if
# power steps estimate it. With a limit of 0.03, wrong answers have passed. The second limit is higher, because
# power steps never underestimate the smallest eigenvalue.
LEAST, LEAST_BOUND = 0.06, 0.1
# If the share of clean entries in a row or column is below this, these entries may be clean by chance.
BAD: Final = 0.3
SEED: Final = 20  # the seed of the first vectors of power steps
# If a row of V is shorter than this, the squares of its entries underflow.
_SHORTEST: Final = float(np.sqrt(TINY))


def weak_rows(W: Array, Q: Array) -> Array:
    """Return a mask of the undetermined rows, which have too few clean entries in some direction.

    W is 1 at clean entries, and Q is an orthonormal basis of the row space of the low-rank part.
    """
    r = Q.shape[1]
    if r <= EXACT:
        matrices = unpack_symmetric(W @ pair_products(Q), r)
        return np.asarray(np.linalg.eigvalsh(matrices)[:, 0] < LEAST)
    x = np.repeat(linalg.random_block(1, r, SEED), len(W), axis=0)
    value = np.zeros(len(W))
    others = 1.0 - W
    along = np.empty_like(W)
    for _ in range(STEPS):
        x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), TINY)
        np.multiply(others, np.matmul(x, Q.T, out=along), out=along)
        image = along @ Q
        value, x = np.sum(x * image, axis=1), image
    return np.asarray(1.0 - value < LEAST_BOUND)


def bad_rows(W: Array, seen: Array, share: float = 0.5) -> Array:
    """Return a mask of the rows with less than this share of clean entries. W is 1 at clean entries.

    `seen` is the number of entries in each row that are not ignored.
    """
    return np.asarray(W.sum(axis=1) < share * seen)


def unsound_rows(W: Array, Q: Array, seen: Array) -> Array:
    """Return a mask of the rows that are undetermined, or whose few clean entries may be clean only by chance."""
    return weak_rows(W, Q) | bad_rows(W, seen, BAD)


def find_undetermined(is_outlier: Array, Q: Array, far: float, gaps: Array) -> tuple[Array, Array]:
    """Return the indices of the undetermined rows, and of the bad rows among them.

    `is_outlier` contains the distances of entries from the low-rank part. An entry is clean if its distance is at
    most `far`. Q is an orthonormal basis of the row space of the low-rank part, and `gaps` are the positions
    of missing values.
    """
    clean = is_outlier <= far
    clean.reshape(-1)[gaps] = False
    W = clean.astype(np.float64)
    lacking = np.bincount(gaps // len(Q), minlength=len(is_outlier))
    seen = len(Q) - lacking
    weak = unsound_rows(W, Q, seen)
    return np.flatnonzero(weak), np.flatnonzero(weak & bad_rows(W, seen))


def refit_undetermined(
    X: Array, V: Array, U: Array, left_out: Array, *, lam: float, rho: float, cut: float
) -> tuple[Array, Array]:
    """Return V and X - VU' after fitting undetermined rows again, each with its own falling threshold.

    Outliers may have spoiled an undetermined row while U was still inaccurate, for example if the row is large and
    other rows are small. `left_out` contains the positions of entries to ignore. The fit uses no ridge, because
    the ridge is proportional to the threshold and would keep a large row at 0. If the ridge has shrunk U
    to 0, no row is fitted again.
    """
    R = X - V @ U.T
    if rho >= np.sum(U**2):
        return V, R
    there = np.ones(X.shape, dtype=bool)
    there.reshape(-1)[left_out] = False
    clean = there & (np.abs(R) <= cut * lam)
    basis, seen = linalg.orth(U), there.sum(axis=1)
    weak = unsound_rows(clean.astype(np.float64), basis, seen)
    rows = np.flatnonzero(weak & there.any(axis=1))
    if not len(rows):
        return V, R
    X, there = X[rows], there[rows]
    start = float(np.abs(X[there]).max())
    left_out = np.flatnonzero(~there)
    anew = huber.recover(X, U, start=start, lam=lam, rho=0.0, cut=cut, left_out=left_out)
    left = X - anew @ U.T
    sizes = (np.where(there, np.abs(E), np.nan) for E in (R[rows], left))
    before, after = (np.nanmedian(size, axis=1) for size in sizes)
    better = after < before
    V, R = V.copy(), R.copy()
    V[rows[better]], R[rows[better]] = anew[better], left[better]
    return V, R


def pair_products(A: Array) -> Array:
    """Return the products a_i a_j with i <= j for every row a of A, as one row of the result."""
    products = [A[:, i : i + 1] * A[:, i:] for i in range(A.shape[1])]
    return np.concatenate(products, axis=1)


def unpack_symmetric(packed: Array, r: int) -> Array:
    """Return symmetric r x r matrices, given their upper triangles in the order of the result of `pair_products`."""
    place = np.zeros((r, r), dtype=np.int64)
    place[np.triu_indices(r)] = np.arange(packed.shape[1])
    return packed.take(np.maximum(place, place.T), axis=1)


# An attempt may still be the answer if at most these shares of rows and of columns are undetermined.
_FEW_ROWS, _FEW_COLUMNS = 0.3, 0.25
# If at most this share of columns is undetermined, the run names these columns but does not estimate them again,
# because this takes as long for one column as for many.
_NAMED_ONLY_SHARE: Final = 0.002
# The share of clean entries may be smaller among hidden entries than among visible entries, but only by _SLACK plus
# _DEVIATIONS standard deviations.
_SLACK, _DEVIATIONS = 0.05, 3.0
# If noise is large and a low-rank part has more degrees of freedom than this share of the clean entries, it may also
# fit outliers.
_MOST_FREEDOM: Final = 0.4


def proof_parts(d: int, r: int, stepwise: bool) -> Mapping[str, Part]:
    """Return the shapes and kinds of the arrays in an answer to a proof, except the counts of residuals by size.

    The basis has r columns. If `stepwise` is True, the answer belongs to a power step.
    """
    if stepwise:
        about = {"image": Part((d, r), Kind.ESTIMATE)}
    else:
        about = {"F": Part((d, r * (r + 1) // 2), Kind.SCORES)}
    square = Part((r, r), Kind.SCORES)
    return {"n": ROWS, "G": square, "M": square, "count": Part((4,), Kind.COUNT), **about}


def proof_sums(
    V: Array, Q: Array, clean: Array, *, rested: Array, hidden: Array, seen: Array, x: Array | None, even: bool
) -> dict[str, Array]:
    """Return a client's part of the sums of a proof, from one block of rows.

    V belongs to the rows, Q is an orthonormal basis of span(U), and `clean` is a mask of the entries that
    are clean and visible. Columns are judged by M = V'V. With `even`, the rows of V are first scaled to
    length 1, because without noise a small row determines a column as well as a large row. Rows are judged
    by their clean entries in the columns from which V is computed (`rested`). `hidden` is true for each
    hidden entry that is clean, and `seen` is the number of entries in each row that are not ignored. x is
    the block of a power step, or None if the answer contains the matrices F_j.
    """
    if x is None and V.shape[1] > EXACT:
        raise ProtocolError(
            f"The server's message has no array block, which is needed for more than {EXACT} components. {OTHER_SERVER}"
        )
    W = clean.astype(np.float64)
    rest = (clean & rested).astype(np.float64)
    weak = unsound_rows(rest, Q, seen)
    bad = weak & bad_rows(rest, seen)
    counts = [clean.sum(), hidden.sum(), weak.sum(), bad.sum()]
    count = np.array(counts, dtype=np.float64)
    # The V of an undetermined row depends on the row's outliers, and could outweigh other rows. Columns without clean
    # entries in such rows would then count as undetermined.
    V = np.where(weak[:, None], 0.0, V)
    G = V.T @ V
    if even:
        lengths = np.linalg.norm(V, axis=1, keepdims=True)
        # A row whose squares underflow has no direction and counts as 0.
        V = np.where(lengths > _SHORTEST, V, 0.0) / np.maximum(lengths, TINY)
    sums = {"count": count, "G": G, "M": V.T @ V}
    if x is None:
        return {**sums, "F": W.T @ pair_products(V)}
    return {**sums, "image": ((1.0 - W) * (V @ x.T)).T @ V}


def weak_columns(G: Array, F: Array, seen: float) -> Array:
    """Return a mask of the columns that are undetermined, or whose few clean entries may be clean only by chance.

    F contains the matrices F_j of all columns. `seen` is the share of entries that are neither missing nor hidden.
    """
    root = np.linalg.cholesky(_regularized(G))
    half = np.linalg.solve(root, unpack_symmetric(F, len(G)))
    values = np.linalg.eigvalsh(np.linalg.solve(root, np.swapaxes(half, 1, 2)))
    # The mean eigenvalue is the share of clean entries, weighted by their information about the column.
    return np.asarray((values[:, 0] < LEAST) | (values.mean(axis=1) < BAD * seen))


def has_lone_column(U: Array) -> bool:
    """Return whether a direction of the low-rank part consists of a single column.

    Such a direction fits every entry of its column, outliers too, because no other column shows what the entry should
    be.
    """
    return bool(np.sum(linalg.spanning_basis(U) ** 2, axis=1).max() > 1.0 - LEAST)


def power_step(G: Array, x: Array, image: Array) -> tuple[Array, Array]:
    """Return the next block x after a power step for every column, and a mask of columns that seem undetermined."""
    G = _regularized(G)
    # If all entries of a column are clean, its image is 0, and so is its next x. TINY prevents a division by 0.
    seen = np.maximum(np.sum(x * (x @ G), axis=1), TINY)
    weak = 1.0 - np.sum(x * image, axis=1) / seen < LEAST_BOUND
    after = np.linalg.solve(G, image.T).T
    squares = np.sum(after * (after @ G), axis=1, keepdims=True)
    return after / np.sqrt(np.maximum(squares, TINY)), weak


def judge(attempt: Attempt, problem: Problem, *, total: Mapping[str, Array], weak: Array) -> Verdict:
    """Return the verdict on an attempt from the answers to the last message of its proof.

    `weak` is a mask of the undetermined columns.
    """
    error = sizes.standard_deviation(total["counts"][1], problem.top)  # the size of an ordinary error at hidden entries
    seen, unseen = (float(c.sum()) for c in total["counts"])
    clean, clean_hidden, rows, bad = (float(c) for c in total["count"])
    columns = tuple(int(j) for j in np.flatnonzero(weak))
    share = clean / max(seen, 1.0)
    deviation = np.sqrt(share * (1.0 - share) / max(unseen, 1.0))
    slack = _SLACK + _DEVIATIONS * deviation
    # If the noise is very large, all entries are clean for any low-rank part.
    loud = problem.noise is None and attempt.noise > MOST_NOISE * problem.sigma
    near = error <= MOST_NOISE * problem.sigma and not loud
    predicted = near and share >= CLEAN and clean_hidden >= (share - slack) * unseen
    several = error <= SMALL * problem.sigma and attempt.has_correlation(problem)
    freedoms = attempt.p * (problem.n + problem.d - attempt.p)
    structure = attempt.left[0] if attempt.noise > 0.0 else 0.0
    free = attempt.noise > SMALL * problem.sigma and freedoms > _MOST_FREEDOM * clean
    return Verdict(
        rank=attempt.p,
        error=error / problem.sigma,
        predicted=bool(predicted),
        clean=share,
        structured=attempt.has_structure(problem),
        correlated=several,
        structure=structure,
        columns=columns,
        rows=round(rows),
        bad_rows=round(bad),
        few=rows <= _FEW_ROWS * problem.n and len(columns) <= _FEW_COLUMNS * problem.d,
        single=len(columns) <= _NAMED_ONLY_SHARE * problem.d,
        may_overfit=free or has_lone_column(np.where(weak[:, None], 0.0, attempt.U)),
        # A basis does not settle if residuals are correlated or a column is undetermined.
        at_rest=attempt.has_settled(problem) or several or bool(columns),
    )


def _regularized(G: Array) -> Array:
    # If V lacks rank, G itself has no Cholesky factor.
    least = huber.EPS * float(np.trace(G)) + TINY
    ridge = least * np.eye(len(G))
    return np.asarray((G + G.T) / 2.0 + ridge)
