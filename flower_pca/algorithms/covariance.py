"""Covariance: sends C in one message, for few columns, or with noise under differential privacy.

The client packs C_i into a vector, the server adds the vectors, unpacks the sum and takes its
eigenvectors. There is one message, and nothing to iterate. `pack` and `unpack` are inverse to
each other; the audit reads answers by the latter.

Auto: krylov, or covariance in its place where that is expected to cost less; the run says which,
and why.

The choice is made once the opening has told how many columns there are, from the numbers of the
configuration alone (d, k, tol). After five rounds of krylov, or more if columns are many, the server's
own numbers tell how many are left, and covariance may still take over. Either way the choice is
the same over every transport. What a node has declined in its answer to the opening is not asked
of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.algorithms.krylov import AUTO, MESSAGE, Krylov, noise_of
from flower_pca.algorithms.rehearsal import is_due, rehearse, rounds_by_errors
from flower_pca.base import labels, linalg
from flower_pca.base.errors import DataError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import Algorithm, scaled_up
from flower_pca.core.kinds import COLUMNS, ROWS, Ask, Kind, Part
from flower_pca.core.model import Model, fraction_rank
from flower_pca.core.stage import Arrays
from flower_pca.rows.local import DIRECT, LocalData

# Their square matrix takes 800 MB.
_WIDEST: Final = 10_000  # columns, of which the server keeps a square matrix


@dataclass(frozen=True)
class CovarianceState:
    """The columns, what the clients' n add up to, C once it is known, and the rounds of the run before."""

    d: int
    n: int
    width: int
    C: Array | None = None
    before: int = 0


@dataclass(frozen=True, kw_only=True)
class Covariance(Algorithm[CovarianceState]):
    """Compute the exact PCA of all rows from the sum of the clients' covariance matrices, in one round.

    Every client sends C_i = X_i'X_i once. The server adds these matrices up and takes the eigenvectors.

    A client sends the diagonal of C_i, and the entries above it times sqrt(2). The norm of this
    vector is the Frobenius norm of C_i. With `dp`, a row of norm R therefore changes the vector by
    at most R^2, and noise with standard deviation s R^2 on every entry makes it private. On C, this
    is a symmetric Gaussian matrix with standard deviation s R^2 on the diagonal and s R^2 / sqrt(2)
    off it. Without `dp`, there is no noise. All d components are then exact, and the server learns
    C_i exactly, unless masks hide it.

    Reference: Dwork, Talwar, Thakurta, Zhang, "Analyze Gauss", STOC 2014 (which has no sqrt(2), and
    more noise).
    Cost: n_i d^2 flops on a client. Each client sends d (d + 1) / 2 floats once. The server needs
    O(d^3) flops.
    Prefer it: for up to about a hundred columns, because one message with C_i then costs less than
    several messages of Krylov, and under `dp` also for more columns, because the whole privacy
    budget goes into one message.

    Parameters
    ----------
    oversample : int, default=0
        Columns kept beyond the number of components.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import Covariance, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate(Covariance(), sites, n_components=2)
    >>> print(result.explained_variance_ratio_.round(2))
    [0.56 0.38]
    """

    name: ClassVar[str] = "covariance"
    asks: ClassVar[Mapping[str, Ask]] = {"columns": COLUMNS}
    products_only: ClassVar[bool] = True
    bounded: ClassVar[bool] = True

    def start(self, model: Model) -> CovarianceState:
        if model.d > _WIDEST:
            raise DataError(
                f"covariance takes at most {_WIDEST:,} columns, and this run has {model.d:,}. Use krylov or ssi, "
                "whose messages are narrow."
            )
        return CovarianceState(model.d, model.units, model.columns.shape[1], before=model.rounds)

    def broadcast(self, state: CovarianceState) -> Arrays:
        return {"columns": np.array(state.d)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        d = int(arrays["columns"])
        # d may not be known where this is asked: the message itself says it.
        return {"C": Part((d * (d + 1) // 2,), Kind.GRAM), "n": ROWS}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        if int(arrays["columns"]) != data.d:
            raise DataError(
                f"The rows of this client have {labels.count(data.d, 'column')}, and the opening had "
                f"{int(arrays['columns'])}. Align the features first."
            )
        C = data.gram().astype(np.float64)
        return {"C": pack(C), "n": np.array(data.n)}, memory

    def server(self, state: CovarianceState, total: Arrays, answered: frozenset[int]) -> CovarianceState:
        return replace(state, C=unpack(scaled_up(total, "C", state.n)))

    def status(self, state: CovarianceState) -> Status | None:
        if state.C is None:
            return None
        return Status(Outcome.DONE, "its one round was answered")

    def finish(self, state: CovarianceState, model: Model) -> Model:
        if state.C is None:
            return model
        values, V = linalg.eigh_descending(state.C)
        width = state.width
        if not isinstance(model.n_components, int):
            width = fraction_rank(values, model.trace, model.n_components) or model.d
        # One eigenvector more than is kept, because it tells the gap.
        Z = V[:, : max(width, state.width) + 1]
        # With the product at hand the closing stage sends no message.
        return replace(model, basis=Z, product=state.C @ Z, covariance=state.C)

    def rounds(self, state: CovarianceState) -> int:
        return state.before + int(state.C is not None)

    def restart(self, model: Model) -> Array:
        # As with Krylov: sums with a client and without it, on the same block, would tell what it has said there.
        if model.summed:
            d, p = model.columns.shape
            return linalg.random_block(d, p, model.seed + model.restarts + 1)
        return super().restart(model)


def pack(C: Array) -> Array:
    """Return the diagonal, and sqrt(2) times the rest of the upper triangle, as long as C in Frobenius norm."""
    off_diagonal = np.sqrt(2.0) * C[np.triu_indices(len(C), 1)]
    return np.concatenate([np.diagonal(C), off_diagonal])


def unpack(vector: Array) -> Array:
    """Return the symmetric matrix that `pack` took apart."""
    d = (math.isqrt(8 * len(vector) + 1) - 1) // 2
    C = np.zeros((d, d))
    C[np.triu_indices(d, 1)] = vector[d:] / np.sqrt(2.0)
    C += C.T
    # Last, as the sum with the transpose would double it.
    C[np.diag_indices(d)] = vector[:d]
    return C


_DIGITS: Final = 16  # Digits that double precision has.
_SINGLE: Final = 1e-10  # between the roundings of double and of single precision
# How many times the numbers covariance may take that Krylov is expected to, as one message takes seconds over a real
# transport, and many rounds take as many. The expectation is right to about a tenth.
_DEARER: Final = 1.1
_TOLD: Final = 8  # columns of d numbers in an answer to the opening, beside its product, at most


@dataclass(frozen=True, kw_only=True)
class Auto(Krylov):
    """Use Krylov, or Covariance if its single message costs less than the rounds that Krylov is expected to need.

    Krylov is expected to take a round for every digit of `tol`, or as many as its blocks of p
    columns take to span all d. A round is d p numbers each way; covariance is d (d + 1) / 2 numbers
    up. So covariance is taken up to about 90 columns for one component, 220 for five and 380 for
    ten, at the default `tol`. Both have the same answer. With `oversample="auto"` Krylov's blocks
    are wide, and dear; then covariance is taken as long as its message has at most 512 kB, up to
    361 columns, and is no more messages.

    Krylov takes longer than a round for every digit if eigenvalues are close. So after five rounds,
    or once its basis has a thirtieth of all columns if that is later, and again after twice as
    many, the server looks at what its rounds have told of the spectrum. If covariance and the
    rounds so far take at most 1.1 times the numbers that all rounds would take, the next message is
    covariance's, and the last. This needs at most 4,096 columns, a whole number of components, and
    a run that began with a random block.

    Nodes that do not serve covariance, or may not send so much by their `max_columns`, say so as
    they answer the opening; then it is Krylov. So it is under `dp`, whose noise is dealt out before
    the columns are known, and over the air.

    Parameters
    ----------
    oversample, max_basis, tol, min_rounds, max_rounds, patience
        See `Krylov`.
    """

    @property
    def alternative(self) -> str:
        return Covariance.name

    @property
    def spec(self) -> str:
        return f"auto{super().spec.removeprefix(self.name)}"

    @property
    def krylov(self) -> Krylov:
        """The Krylov that is used instead of Covariance."""
        return Krylov(**{f.name: getattr(self, f.name) for f in fields(Krylov)})

    def under_noise(self, *, private: bool, over_air: bool, known: bool) -> tuple[Algorithm[Any], str]:
        """Covariance under a budget where columns are known, as it spends all on one message; else Krylov."""
        if private and known and not over_air:
            one = "auto took covariance, as a budget spent on one message finds more than one dealt out to several"
            return self.other, one
        return self.krylov.narrow, f"auto took krylov, as always {noise_of(private)}"

    def settle(self, model: Model) -> tuple[Any, str]:
        d, wide = model.d, self.oversample == AUTO
        rounds, many = self.forecast(model)
        one, of = d * (d + 1) // 2, "columns"
        if model.split is not None:
            of = "people"
        sizes = f"message, of {one:,} numbers for {d:,} {of}"
        if rounds < 1:
            return self._krylov(
                model,
                "auto took krylov, as the first message, in which all algorithms are alike, is "
                f"expected to answer all: covariance would take one more {sizes}",
            )
        both = (
            f"after the opening covariance takes one {sizes}, where krylov is expected to take "
            f"{labels.count(rounds, 'message')}, of {many:,} numbers together, for tol={self.of_columns(d).tolerance:g}"
        )
        refusals = (
            (rounds < 2 and not wide, "covariance would save no message"),
            (one > many, "that is fewer numbers"),
            (wide and 8 * one > MESSAGE, f"the message of covariance would be larger than {MESSAGE // 1024} kB"),
        )
        for holds, why in refusals:
            if holds:
                return self._krylov(model, f"auto took krylov, as {why}: {both}")
        if model.declined:
            return self._krylov(model, f"auto took krylov, as a client declines covariance. {model.declined}")
        fewer = "it takes no more messages, and no more numbers"
        if rounds > 1:
            fewer = "that is fewer messages"
        return self.other, f"auto took covariance, as {fewer}: {both}"

    def forecast(self, model: Model) -> tuple[int, int]:
        """Return how many rounds Krylov is expected to take after the opening, and how many numbers both ways."""
        if self._is_right(model):
            return 0, 0
        left = model.d - model.columns.shape[1]
        # The forecast is of the configuration's numbers alone, whatever a client declines.
        chosen, _ = self.krylov.settle(replace(model, declined=""))
        p = min(chosen.width(model.n_components), model.d)
        # A tol of 0, which is allowed, has no logarithm.
        tol = max(self.of_columns(model.d).tolerance, 10.0**-_DIGITS)
        digits = math.ceil(-math.log10(tol))
        # A basis of all d columns is exact, whatever tol still asks for.
        rounds = min(max(digits, 1), -(-left // p), self.max_rounds)
        return rounds, 2 * model.d * min(rounds * p, left)

    def _is_right(self, model: Model) -> bool:
        """Whether the block is right already, as where all of C gave the number of components."""
        if model.product is None or model.residuals is None or model.restarts:
            return False
        size = linalg.length(model.product[:, 0])
        return float(model.residuals.max()) <= self.tolerance * size

    @property
    def other(self) -> Covariance:
        """The algorithm that may replace Krylov after some rounds."""
        return Covariance(oversample=self.narrow.oversample)

    def reconsider(self, chosen: Algorithm[Any], state: Any, model: Model) -> str:
        """Say why Covariance replaces Krylov during the run, or return "" if it does not."""
        d, wide = model.d, self.oversample == AUTO
        if wide or not isinstance(chosen, Krylov) or not isinstance(model.n_components, int):
            return ""
        if model.declined or d > DIRECT or not is_due(state):
            return ""
        p, one = state.block.shape[1], d * (d + 1) // 2
        # In numbers of 8 bytes: an answer from rows of single precision has as many in half of the bytes.
        each = d * p * (1.0 if model.eps < _SINGLE else 0.5) + d * p
        done = len(state.errors)
        # So many further rounds, and those that are done, have _DEARER less numbers than covariance and these.
        most = math.ceil((done + one / each) / _DEARER) - done
        spare = self.max_rounds - state.progress.rounds
        # No more numbers leave a client in all than d for each column, which its rules may count.
        spent = state.size + _TOLD + one // d >= d
        if spent or most > min(spare, rounds_by_errors(state)) or rehearse(chosen, state, model, most=most) < most:
            return ""
        return (
            f"auto took krylov for {labels.count(state.progress.rounds, 'message')}, then covariance: krylov was "
            f"expected to take {most} more at least, of {2 * d * p:,} numbers each, for tol={self.tolerance:g}, where "
            f"covariance takes one message, of {one:,} numbers for {labels.count(d, 'column')}"
        )

    def _krylov(self, model: Model, why: str) -> tuple[Krylov, str]:
        """Return Krylov with blocks of the requested width."""
        chosen, width = self.krylov.settle(model)
        return chosen, "; ".join(filter(None, (why, width)))
