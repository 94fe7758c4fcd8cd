"""STMiss: a subspace that moves, followed batch by batch through missing entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.rows import gaps
from flower_pca.rows.stream import Stream
from flower_pca.tracking.batch import Filling, respond, sums_by_column
from flower_pca.tracking.tracker import Tracker


@dataclass(frozen=True, kw_only=True)
class STMiss(Tracker):
    """P_j = the r leading left singular vectors of batch j, completed with the basis before it.

    With the observed entries Om_t of row y_t and the rest T_t, and P = P_{j-1}, a client takes
      a_t = argmin ||(y_t - P a) on Om_t||,  l_t = y_t on Om_t and P a_t on T_t,
    which is the least-squares solution z_t of Psi_T z = Psi y, Psi = I - PP'. The first batch is
    completed with zeros. Then server and clients find the leading eigenvectors of sum l_t l_t' over
    all clients, in a few messages. No stop rule and no memory of older batches: after an abrupt
    change the error falls geometrically again.

    Reference: Narayanamurthy, Vaswani, Ramamoorthy, "Federated over-air subspace tracking from
    incomplete and corrupted data", 2022, Algorithm 1, and 5 and 6 for `detect`.
    Cost per step: n_i d r^2 flops on a client and 4 n_i d p per message; p columns of d floats each
    way, and P down.
    Prefer it: for rows that keep coming, with gaps but without outliers, and whose subspace moves.

    Args:
        refine: Whether clients complete a batch once more with the basis found from it, one step
            later.
        reuse: How often the batch is completed with its own basis and used again.
        detect, threshold, alarm_rate, update_length: See `Tracker`, as for all that follow.
        solver, products, first_products, qr_every, tol, oversample, keep: What a step asks for, and
            what is kept.
    """

    name: ClassVar[str] = "st_miss"

    @staticmethod
    def client(arrays: Arrays, data: Stream, memory: Arrays) -> tuple[Arrays, Arrays]:
        return respond(arrays, data, memory, complete)


def complete(arrays: Arrays, Y: Array, gone: Array, P: Array, found: Array | None) -> Filling:
    """The rows with their gaps filled, in place, by the span of P; entries known to be outliers count as gaps."""
    if found is not None:
        Y[found] = 0.0
        gone = np.union1d(gone, np.flatnonzero(found))
    columns = None
    if "columns" in arrays:
        columns = sums_by_column(Y, gone)
    A, deficient = gaps.fit(P, Y, gone)
    rows = A @ P.T
    Y.ravel()[gone] = rows.ravel()[gone]
    left = np.subtract(Y, rows, out=rows)  # zero in the gaps
    return Filling(
        rows=Y,
        found=np.zeros(Y.shape, dtype=bool) if found is None else found,
        misfit=float(np.vdot(left, left)),
        deficient=deficient,
        columns=columns,
    )
