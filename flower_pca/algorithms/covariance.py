"""Two algorithms: Covariance sums covariance matrices in one round, and Auto chooses Covariance or Krylov.

Covariance suits tables with few columns, and runs with noise under differential privacy.

`Covariance` needs one message and no iteration: each client packs its covariance matrix C_i into a
vector, and the server adds the vectors, unpacks the sum C and computes the eigenvectors of C. `unpack_triangle`
is the inverse of `pack_triangle`. An audit uses `unpack_triangle` to read answers.

`Auto` chooses Covariance if it is expected to cost less than Krylov. The result contains the reason.
`Auto` chooses after the opening, when the number of columns is known, and uses only d, k and tol. After
five rounds of Krylov, or later if there are many columns, the server estimates how many rounds are
left, and may still replace Krylov by Covariance. The choice does not depend on the transport. An
algorithm that a node declined in its answer to the opening is not used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.algorithms.krylov import AUTO, MESSAGE, Krylov, source_of_noise
from flower_pca.algorithms.rehearsal import converges_within, is_due, rounds_by_errors
from flower_pca.base import labels, linalg
from flower_pca.base.errors import DataError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import Algorithm, scale_up_to_all_rows
from flower_pca.core.kinds import COLUMNS, ROWS, ArrayRule, Kind, Part
from flower_pca.core.model import Model, fraction_rank
from flower_pca.core.stage import Arrays
from flower_pca.rows.local import DIRECT, LocalData

# The maximum number of columns of `Covariance`. A square matrix of this size takes 800 MB on the server.
_MOST_COLUMNS: Final = 10_000


@dataclass(frozen=True)
class CovarianceState:
    """The state of the server in `Covariance`.

    Attributes
    ----------
    d, n : int
        The numbers of columns and rows.
    width : int
        The number of eigenvectors to keep.
    C : ndarray or None
        The sum of the clients' covariance matrices, or None before the round.
    before : int
        The number of rounds that the run made before this algorithm started.
    """

    d: int
    n: int
    width: int
    C: Array | None = None
    before: int = 0


@dataclass(frozen=True, kw_only=True)
class Covariance(Algorithm[CovarianceState]):
    """Compute the exact PCA of all rows from the sum of the clients' covariance matrices, in one round.

    Every client sends C_i = X_i'X_i once. The server sums these matrices and computes the eigenvectors
    of the sum C.

    A client sends the diagonal of C_i, and the entries above the diagonal times sqrt(2). The norm of
    this vector is the Frobenius norm of C_i. With `dp`, a row of norm R therefore changes the vector by
    at most R^2, and noise with standard deviation s R^2 on every entry makes the vector private. The
    noise in C is a symmetric Gaussian matrix with standard deviation s R^2 on the diagonal and s R^2 /
    sqrt(2) elsewhere. Without `dp`, there is no noise. All d components are then exact, and the server
    learns C_i exactly, unless masks hide it.

    Reference: Dwork, Talwar, Thakurta, Zhang, "Analyze Gauss", STOC 2014 (their method omits the factor
    sqrt(2) and adds more noise).
    Cost: n_i d^2 flops on a client. Each client sends d (d + 1) / 2 floats once. The server needs
    O(d^3) flops.
    Prefer it: for few columns (about 90 for one component, 220 for five, 380 for ten), because one message
    with the whole covariance matrix then costs less than several messages of `Krylov`. Under `dp`, prefer
    it for more columns, too, because the whole privacy budget goes into one message.

    Parameters
    ----------
    oversample : int, default=0
        Columns that are kept beyond `n_components`.

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
    asks: ClassVar[Mapping[str, ArrayRule]] = {"columns": COLUMNS}
    products_only: ClassVar[bool] = True
    bounded: ClassVar[bool] = True

    def start(self, model: Model) -> CovarianceState:
        if model.d > _MOST_COLUMNS:
            raise DataError(
                f"covariance takes at most {_MOST_COLUMNS:,} columns, but this run has {model.d:,}. Use krylov or ssi, "
                "whose messages are narrow."
            )
        return CovarianceState(model.d, model.number_of_units, model.columns.shape[1], before=model.rounds)

    def broadcast(self, state: CovarianceState) -> Arrays:
        return {"columns": np.array(state.d)}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        # The argument d may be None, so the number of columns is read from the message.
        d = int(arrays["columns"])
        return {"C": Part((d * (d + 1) // 2,), Kind.GRAM), "n": ROWS}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        if int(arrays["columns"]) != data.d:
            raise DataError(
                f"This client has {labels.count(data.d, 'column')}, but the run uses {int(arrays['columns'])}. Give "
                "all clients the same columns."
            )
        C = data.gram(keep=False)
        return {"C": pack_triangle(C), "n": np.array(data.n)}, memory

    def server(self, state: CovarianceState, total: Arrays, answered: frozenset[int]) -> CovarianceState:
        return replace(state, C=unpack_triangle(scale_up_to_all_rows(total, "C", state.n)))

    def status(self, state: CovarianceState) -> Status | None:
        if state.C is None:
            return None
        return Status(Outcome.DONE, "done in one round")

    def finish(self, state: CovarianceState, model: Model) -> Model:
        if state.C is None:
            return model
        # The closing stage computes the gap in the spectrum from one additional eigenvector.
        width = state.width + 1
        if isinstance(model.n_components, int):
            Z = linalg.eigh_leading(state.C, width)[1][:, :width]
        else:
            values, V = linalg.eigh_descending(state.C)
            Z = V[:, : max(width, (fraction_rank(values, model.trace, model.n_components) or model.d) + 1)]
        # Because the product is known, the closing stage needs no message.
        return replace(model, basis=Z, product=state.C @ Z, covariance=state.C)

    def rounds(self, state: CovarianceState) -> int:
        return state.before + int(state.C is not None)

    def restart(self, model: Model) -> Array:
        # As in Krylov, a restart with sums needs a new block. The difference of two sums for the same block, one with a
        # client and one without this client, would reveal the client's answer.
        if model.summed:
            d, p = model.columns.shape
            return linalg.random_block(d, p, model.seed + model.restarts + 1)
        return super().restart(model)


def pack_triangle(C: Array) -> Array:
    """Return a vector with the diagonal of C, and sqrt(2) times the entries above the diagonal.

    The norm of the vector is the Frobenius norm of C.
    """
    vector = np.empty(len(C) * (len(C) + 1) // 2)
    vector[: len(C)] = np.diagonal(C)
    # Indexing with `triu_indices` would take five times as long.
    np.concatenate([row[i + 1 :] for i, row in enumerate(C)], out=vector[len(C) :])
    vector[len(C) :] *= np.sqrt(2.0)
    return vector


def unpack_triangle(vector: Array) -> Array:
    """Return the symmetric matrix from which `pack_triangle` made this vector."""
    d = (math.isqrt(8 * len(vector) + 1) - 1) // 2
    C = np.zeros((d, d))
    C[np.triu_indices(d, 1)] = vector[d:] / np.sqrt(2.0)
    C += C.T
    # The diagonal comes last, because adding the transpose would double it.
    C[np.diag_indices(d)] = vector[:d]
    return C


_DIGITS: Final = 16  # decimal digits of double precision
_BETWEEN_PRECISIONS: Final = 1e-10  # a number between the rounding errors of double and single precision
# Covariance is chosen even if it sends more numbers than Krylov is expected to send, up to this factor, because each
# round takes seconds over a real network. The expected number is accurate to about a tenth.
_COST_FACTOR: Final = 1.1
_OPENING_COLUMNS: Final = 8  # maximum number of columns of length d in an answer to the opening, without the product


@dataclass(frozen=True, kw_only=True)
class Auto(Krylov):
    """Use Krylov, or Covariance if its single message costs less than the rounds that Krylov is expected to need.

    Krylov is expected to need one round for every digit of `tol`, but no more rounds than its blocks of
    p columns need to span all d columns. A round takes d p numbers each way, and Covariance sends d (d
    + 1) / 2 numbers. With the default `tol`, Covariance is therefore chosen up to about 90 columns for
    one component, 220 for five and 380 for ten. Both algorithms give the same result. With
    oversample="auto", Krylov has wide blocks, which cost more. In this case, Covariance is chosen if its
    message has at most 512 kB (up to 361 columns) and Covariance needs no more messages than Krylov.

    Krylov takes more rounds if eigenvalues are close to each other. So the server estimates the spectrum
    after five rounds, or later, when the basis has at least d / 30 columns. The server repeats the
    estimate after twice as many rounds. Covariance then takes over if the rounds so far and the
    message of Covariance together have at most 1.1 times as many numbers as all expected rounds of
    Krylov. This requires at most 4,096 columns, a whole number of components, and a run that began with
    a random block.

    Krylov is used if a node does not serve Covariance or limits it by `max_columns`. The node reports
    this in its answer to the opening. Krylov is also used over a channel, and with `dp` unless the
    ranges of the columns are public.

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
        """The Krylov algorithm with the same parameters."""
        return Krylov(**{f.name: getattr(self, f.name) for f in fields(Krylov)})

    def under_noise(self, *, private: bool, over_air: bool, columns_known: bool) -> tuple[Algorithm[Any], str]:
        """Return Covariance if there is a privacy budget and columns are known, or else Krylov, and the reason.

        Covariance spends the whole budget on one message.
        """
        if private and columns_known and not over_air:
            why = "auto chose covariance, because the result has less noise if one message spends the whole budget"
            return self.alternative_algorithm, why
        return self.krylov.with_narrow_blocks, f"auto chose krylov, as always {source_of_noise(private)}"

    def choose_algorithm(self, model: Model) -> tuple[Any, str]:
        d, wide = model.d, self.oversample == AUTO
        rounds, total = self.expected_rounds_and_size(model)
        size, noun = d * (d + 1) // 2, "columns"
        if model.split is not None:
            noun = "people"
        message = f"message with {size:,} numbers ({d:,} {noun})"
        if rounds < 1:
            return self._krylov_with_reason(
                model,
                "auto chose krylov, because the first message, which all algorithms share, is expected to be enough; "
                f"covariance would take one more {message}",
            )
        both = (
            f"after the opening, covariance takes one {message}, and krylov is expected to take "
            f"{labels.count(rounds, 'message')} with {total:,} numbers in total for "
            f"tol={self.with_column_count(d).tolerance:g}"
        )
        if rounds < 2 and not wide:
            return self._krylov_with_reason(model, "auto chose krylov, because covariance would not save a message")
        refusals = (
            (size > total, "it sends fewer numbers"),
            (wide and 8 * size > MESSAGE, f"the message of covariance would be larger than {MESSAGE // 1024} kB"),
        )
        for holds, why in refusals:
            if holds:
                return self._krylov_with_reason(model, f"auto chose krylov, because {why}: {both}")
        if model.declined:
            return self._krylov_with_reason(
                model, f"auto chose krylov, because a client declines covariance. {model.declined}"
            )
        fewer = "it takes no more messages and no more numbers"
        if rounds > 1:
            fewer = "it takes fewer messages"
        return self.alternative_algorithm, f"auto chose covariance, because {fewer}: {both}"

    def expected_rounds_and_size(self, model: Model) -> tuple[int, int]:
        """Return the number of rounds that Krylov is expected to take after the opening, and their total size.

        The total size counts the numbers that are sent in both directions.
        """
        if self._has_exact_block(model):
            return 0, 0
        left = model.d - model.columns.shape[1]
        # The forecast must depend only on the configuration, not on what clients decline.
        chosen, _ = self.krylov.choose_algorithm(replace(model, declined=""))
        p = min(chosen.width(model.n_components), model.d)
        # tol may be 0, which has no logarithm.
        tol = max(self.with_column_count(model.d).tolerance, 10.0**-_DIGITS)
        digits = math.ceil(-math.log10(tol))
        # A basis of all d columns is exact, whatever tol is.
        rounds = min(max(digits, 1), -(-left // p), self.max_rounds)
        return rounds, 2 * model.d * min(rounds * p, left)

    def _has_exact_block(self, model: Model) -> bool:
        """Return whether the block from the opening already spans exact components.

        This is so, for example, if the opening has used all of C to choose the number of components.
        """
        if model.product is None or model.residuals is None or model.restarts:
            return False
        size = linalg.frobenius_norm(model.product[:, 0])
        return float(model.residuals.max()) <= self.tolerance * size

    @property
    def alternative_algorithm(self) -> Covariance:
        """The algorithm that may replace Krylov after some rounds."""
        return Covariance(oversample=self.with_narrow_blocks.oversample)

    def reconsider(self, chosen: Algorithm[Any], state: Any, model: Model) -> str:
        """Return the reason for replacing Krylov by Covariance during the run, or "" if Krylov continues."""
        d, wide = model.d, self.oversample == AUTO
        if wide or not isinstance(chosen, Krylov) or not isinstance(model.n_components, int):
            return ""
        if model.declined or d > DIRECT or not is_due(state):
            return ""
        p, size = state.block.shape[1], d * (d + 1) // 2
        # The size of a round is counted in numbers of 8 bytes. An answer from rows in single precision counts half.
        per_round = d * p * (1.0 if model.eps < _BETWEEN_PRECISIONS else 0.5) + d * p
        done = len(state.errors)
        # If Krylov needs at least this many more rounds, Covariance costs less, up to the factor _COST_FACTOR.
        most = math.ceil((done + size / per_round) / _COST_FACTOR) - done
        spare = self.max_rounds - state.progress.rounds
        # A node's rules may limit all columns that it sends to d, and Covariance counts as several columns.
        exceeds = state.size + _OPENING_COLUMNS + size // d >= d
        if exceeds or most > min(spare, rounds_by_errors(state)):
            return ""
        if self.min_rounds - state.progress.rounds < most and converges_within(most - 1, state):
            return ""
        return (
            f"auto chose krylov for {labels.count(state.progress.rounds, 'message')}, then covariance: krylov was "
            f"expected to take at least {most} more messages with {2 * d * p:,} numbers each for "
            f"tol={self.tolerance:g}, and covariance takes one message with {size:,} numbers "
            f"({labels.count(d, 'column')})"
        )

    def _krylov_with_reason(self, model: Model, why: str) -> tuple[Krylov, str]:
        """Return Krylov with blocks of the requested width, and the reason followed by a note on the block width."""
        chosen, width = self.krylov.choose_algorithm(model)
        return chosen, "; ".join(filter(None, (why, width)))
