"""Model: all results of a run so far. A model is immutable, and every stage returns a new model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Protocol

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.history import History, Status
from flower_pca.base.labels import range_of
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.names.columns import Heading
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.frame import Frame
from flower_pca.rows.split import ColumnPreparation

_ROUNDING: Final = 1e-12  # an upper bound on the rounding error of a share of the variance
_TIED: Final = 1e-12  # a gap below this share of the first eigenvalue counts as 0
# An eigenvalue of at most this multiple of eps times the first eigenvalue counts as 0.
_ZERO: Final = 64.0
# `_bound_on_next` assumes that the tangent of the angle between a Ritz vector and its eigenvector is at most this. With
# a limit of 1 or 3, the gap was wrong in some of 700 runs on tied eigenvalues, and with 5 in none of these runs. With
# 10, four rounds of ssi with three additional columns did not detect a gap of 17 %.
_LARGEST_TANGENT: Final = 5.0
# If the last wanted Ritz values are tied, the same eigenvalue may follow once more, although a further Ritz value is
# smaller. In 403 runs with two or three components and more tied eigenvalues than components (krylov, ssi, local_power,
# faps and fed_oapm, 30 to 200 rows, 8 to 100 columns), no run reported an angle, and the tangent was at most 26 in the
# 329 runs in which it was measured. One component cannot show a tie, so `_LARGEST_TANGENT` applies to it. In 2,650 runs
# for one component where two to six eigenvalues were equal or nearly so, 325 reported an angle. As the angle to the
# nearest direction in the space of these eigenvalues, none was too small by more than rounding errors.
_LARGEST_TANGENT_OF_TIES: Final = 100.0
# Under masks, the sum of squares outside of the components has this relative precision.
_MASKED_PRECISION: Final = 1e-6
# A product that depends on earlier products accumulates the rounding errors of several messages. In 400 runs, the
# errors of the products of krylov were at most 2.1 times the bound for one message, and 95 % of them at most 0.7 times.
_ADDED_UP: Final = 2.0
_SAME_SUM: Final = 1e-9  # maximum relative difference between two sums over the same rows
# If the estimated sine is at most this, components count as found although their eigenvalues are tiny.
_SMALL_SINE: Final = 0.1


@dataclass(frozen=True)
class Claim:
    """The number of rows of a client and their sum of squares in the frame, as the client has reported them."""

    n: int
    squares: float


@dataclass(frozen=True)
class Weights:
    """The weights of clients' answers, if clients have different weights.

    Attributes
    ----------
    weights : dict
        The weight of each client's rows, by client. It is empty if all weights are 1.
    most : float
        A bound on the part of C that one client contributes, in norm and relative to the trace. It includes the change
        of the mean if the client's rows were removed. 1 means that there is no bound.
    """

    weights: dict[int, float] = field(default_factory=dict)
    most: float = 1.0

    def weights_of(self, clients: Iterable[int]) -> Array:
        """Return the weights of these clients. A client that joined after the opening gets the smallest weight."""
        least = min(self.weights.values(), default=1.0)
        return np.array([self.weights.get(client, least) for client in clients])


@dataclass(frozen=True)
class EarlierRun:
    """The figures of an earlier run. By these figures, the present run recognizes whether it has the same rows.

    Attributes
    ----------
    n : int
        The number of rows of all clients.
    mean : ndarray or None
        The mean of these rows if it was subtracted, or None.
    scale : ndarray or None
        The divisors of the columns, or None.
    trace : float
        The total sum of squares of these rows in the frame.
    values : ndarray
        Sums of squares along the components with which the present run begins.
    angle : float or None
        The largest remaining angle of the components, or None if the earlier run reported no angle.
    rounding : float
        The relative rounding error of products on the network, in this run or the earlier one.
    """

    n: int
    mean: Array | None
    scale: Array | None
    trace: float
    values: Array
    angle: float | None
    rounding: float = 0.0

    def has_same_rows(self, model: Model) -> bool:
        """Return whether the opening of this run has found the same rows and frame as the earlier run."""
        frame, Z = model.frame, model.columns
        if self.n != model.n or not _are_equal_up_to_rounding(self.trace, model.trace, model.trace):
            return False
        unit = np.sqrt(model.trace / model.n) * frame.column_divisors
        if not (
            _are_both_none_or_equal(self.mean, frame.mean, unit)
            and _are_both_none_or_equal(self.scale, frame.scale, frame.column_divisors)
        ):
            return False
        if model.product is None:
            return True
        some = min(len(self.values), Z.shape[1])
        found = np.sum(Z[:, :some] * model.product[:, :some], axis=0)
        return _are_equal_up_to_rounding(
            self.values[:some], found, model.trace * (1.0 + _ADDED_UP * self.rounding / _SAME_SUM)
        )


@dataclass(frozen=True, kw_only=True)
class Model:
    """The settings of a run, the frame and totals of the opening, and the best basis so far.

    Attributes
    ----------
    n_components : int or float
        The number of components, or the fraction of the variance that determines this number.
    center, scale, seed, missing
        See `PCAConfig`.
    steps : int or None
        The number of steps of a tracker, or None if the tracker continues until the data end.
    warm : bool
        Whether the run began with components that were known before.
    earlier : EarlierRun or None
        The figures of the run that found these components, or None if they are unknown.
    summed : bool
        Whether the server sees only sums of answers, and no individual answer.
    public : Frame
        The public mean and scale of the columns, which the opening uses: see `DP.ranges`.
    frame : Frame
        The mean and scale of all clients together.
    n, d : int
        The total number of rows of all clients, and the number of columns.
    wanted : tuple of str or None
        The columns that the run names, in its order, or None for all columns of the clients.
    shared : tuple of str
        The indicator columns. Each is divided by the square root of its mean, the share of rows with a 1.
    covariates : Covariates or None
        The columns that the run requests and that are not features, or None if the run requests no such column.
    explain : tuple of str
        The covariates for which the result should report how much of each component they explain. "site" stands for
        the site itself.
    heading : Heading or None
        The columns of the clients, or None while they are unknown.
    split : Split or None
        The description of how clients prepare their columns, if they hold different columns of the same people, or
        None in all other runs.
    clients : int
        The number of clients in the sums if the number of rows must stay private, or else 0.
    trace : float
        trace(C), the total sum of squares in the frame.
    claims : dict
        The reports that clients have made about their rows in the opening. It is empty if the server sees only sums, or
        noisy answers.
    counted : Weights or None
        The weights of clients' answers if an opening has set them, or else None.
    answers : str
        "fixed" if every client answers from fixed statistics of its rows, or else "rows".
    sizes : ndarray or None
        The root mean square of each column in the units of the data, or the standard deviation if the mean is
        subtracted. None under noise.
    offset : float
        n times the squared length of the mean in the frame if it is not subtracted, or else 0.
    eps : float
        The relative precision of the client with the lowest precision.
    basis : ndarray or None
        Z, orthonormal, d x p. If `values` is known, the best columns come first.
    product : ndarray or None
        C Z, if the server knows it.
    opening_errors : ndarray of shape (p, d) or None
        A matrix E for which |E z|, times the rounding error of a number, is the error that the opening adds to C z.
        None if the product does not depend on rounded answers to the opening.
    covariance : ndarray or None
        C itself, if the server knows it.
    values : ndarray or None
        Ritz values of Z, largest first.
    residuals : ndarray or None
        ||C z_j - theta_j z_j|| of each column.
    beside : ndarray of shape (d, 1) or None
        A direction orthogonal to the basis, in which the next component is expected.
    beside_product : ndarray or None
        C times this direction, if the server knows this product.
    next_value : float or None
        The Ritz value that follows the last wanted Ritz value, or None if it is unknown.
    next_residual : float
        The residual of this Ritz value outside of the wanted components. It shows how far this Ritz value may be below
        the eigenvalue.
    rest : float or None
        The sum of squares outside of the wanted components, if the closing stage or an evaluation has measured it.
    noise : float
        A bound on the norm of the privacy noise in the latest product, or 0 without differential privacy.
    rounding : float
        The relative rounding error of numbers in answers, 0 for 64 bits.
    block_rounding : float
        The relative rounding error of the numbers of blocks in messages, 0 for 64 bits.
    coarse : float
        An estimate of the error of C z, for a unit vector z, from messages with fewer bits than the run has otherwise.
    bits_by_tolerance : int
        The largest number of bits of a number if messages may have fewer bits while the error is large, or else 0.
    shifted : float
        A bound on the change of C, in norm, that the rounding of the mean causes. 0 if the mean is not rounded.
    mask_noise : float
        The length of the error of C z that the rounding in masked sums causes, for a vector z of length 1. 0 without
        masks.
    rounds : int
        The number of rounds of the algorithm so far, including the rounds before a restart.
    restarts : int
        The number of times that the run repeated the opening because its set of clients had changed.
    status : Status or None
        The status with which the algorithm ended, or None before its end.
    pooled : bool
        Whether the components estimate the eigenvectors of the covariance of all rows.
    mse : float or None
        The mean squared reconstruction error of a row, if it was evaluated.
    histograms : ndarray or None
        Histograms of the distances of all clients' rows from the components, if the run has the option `monitor`.
    histograms_of : str
        "left out" if each row was compared with components that were computed without this row, or "rows" if the
        components were fitted to all these rows.
    declined : str
        A text with the first client that has declined the algorithm's alternative in the opening, and the reason, or
        "".
    decisions : dict
        The choices that the run has made automatically, as sentences by subject.
    sites : dict
        The figures of individual clients from the opening, by name: see `stages.opening`. It is empty if the server
        does not see individual answers.
    left : dict
        The arrays that the algorithm passes to its closing stage and its result, by names that both know.
    """

    n_components: int | float
    center: bool
    scale: str | None
    seed: int
    missing: str = "error"
    steps: int | None = None
    warm: bool = False
    earlier: EarlierRun | None = None
    summed: bool = False
    public: Frame = field(default_factory=Frame)
    frame: Frame = field(default_factory=Frame)
    n: int = 0
    d: int = 0
    wanted: tuple[str, ...] | None = None
    shared: tuple[str, ...] = ()
    covariates: Covariates | None = None
    explain: tuple[str, ...] = ()
    heading: Heading | None = None
    split: ColumnPreparation | None = None
    clients: int = 0
    trace: float = 0.0
    claims: dict[int, Claim] = field(default_factory=dict)
    counted: Weights | None = None
    answers: str = "rows"
    sizes: Array | None = None
    offset: float = 0.0
    eps: float = 0.0
    basis: Array | None = None
    product: Array | None = None
    opening_errors: Array | None = None
    covariance: Array | None = None
    values: Array | None = None
    residuals: Array | None = None
    beside: Array | None = None
    beside_product: Array | None = None
    next_value: float | None = None
    next_residual: float = 0.0
    rest: float | None = None
    noise: float = 0.0
    rounding: float = 0.0
    block_rounding: float = 0.0
    coarse: float = 0.0
    bits_by_tolerance: int = 0
    shifted: float = 0.0
    mask_noise: float = 0.0
    rounds: int = 0
    restarts: int = 0
    status: Status | None = None
    pooled: bool = True
    mse: float | None = None
    histograms: Array | None = None
    histograms_of: str = "rows"
    declined: str = ""
    decisions: dict[str, str] = field(default_factory=dict)
    sites: dict[str, Array] = field(default_factory=dict)
    left: dict[str, Array] = field(default_factory=dict)

    __repr__ = brief

    @cached_property
    def k(self) -> int:
        """The number of wanted components.

        If a fraction of the variance is wanted, this is the smallest number of leading Ritz values whose sum
        exceeds this fraction.
        """
        if isinstance(self.n_components, int):
            return self.n_components
        if self.values is None:
            return 1 if self.basis is None else self.basis.shape[1]
        return fraction_rank(self.values, self.trace, self.n_components) or len(self.values)

    def with_leading(self, Z: Array, width: int) -> Model:
        """Return the model with the first `width` columns of Z as its basis, and the other columns as `beside`."""
        return replace(self, basis=Z[:, :width], product=None, beside=Z[:, width:])

    def with_decision(self, subject: str, reason: str) -> Model:
        """Return the model with one more automatic choice: what was chosen, and a sentence with the reason."""
        return replace(self, decisions={**self.decisions, subject: reason})

    @cached_property
    def is_repetition(self) -> bool:
        """Whether this run begins with the components of an earlier run on the same rows.

        If so, the run need not test again whether its components miss a larger direction.
        """
        return self.earlier is not None and self.restarts == 0 and self.earlier.has_same_rows(self)

    @property
    def may_miss_directions(self) -> bool:
        """Whether the run started from components of other rows, so that it may miss a direction of new rows."""
        return (self.warm or self.restarts > 0) and not self.is_repetition

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the columns in order, or None if columns have no names or clients do not send them."""
        return self.wanted or (None if self.heading is None else self.heading.names)

    @property
    def feature_digest(self) -> str:
        """The SHA-256 of the sorted column names, if clients send only this digest, or ""."""
        if self.heading is None:
            return ""
        return self.heading.digest

    @property
    def number_of_units(self) -> int:
        """The sum of "n" over the answers: the number of rows, or the number of clients if each client reports 1."""
        return self.clients or self.n

    @property
    def residual_squares(self) -> float:
        """The sum of squares outside of the components, measured on the rows if possible."""
        if self.rest is None:
            assert self.values is not None
            return max(self.trace - float(self.values[: self.k].sum()), 0.0)
        return self.rest

    @property
    def residual(self) -> float:
        """The norm ||C Z - Z Theta|| over the wanted columns, but at least the size of noise or rounding in C Z."""
        assert self.residuals is not None
        assert self.values is not None
        residual = linalg.frobenius_norm(self.residuals[: self.k])
        return max(residual, self.noise, self.eps * float(self.values[0]))

    def product_errors(self, Z: Array, values: Array) -> Array:
        """Return bounds on the rounding error of C z, for the unit vectors Z with these Rayleigh quotients.

        Residuals do not show this error, because an iteration converges to eigenvectors of the rounded products.
        The rounding error of C_i z is at most a share u of its length. Each C_i is positive semidefinite, so the
        sum of |C_i z|^2 is at most theta theta_1, where theta is the Rayleigh quotient of z and theta_1 the
        largest. The client multiplies C_i by a rounded block, in which entry l of z is off by a share u of its
        size. The length of column l of C is at most sqrt(theta_1 C_ll), so these errors add
        u sqrt(theta_1 sum_l C_ll z_l^2). The block of the opening is not orthonormal, so its rounding errors grow where
        its columns are nearly dependent. The rounded mean and the rounding in masked sums add to the error.
        """
        if not (self.rounding or self.block_rounding or self.mask_noise):
            return np.full(len(values), self.shifted + self.coarse)
        largest = max(float(np.max(values)), 0.0)
        answers = self.rounding**2 * np.maximum(values, 0.0) * largest
        if self.sizes is None:
            inside = self.trace / max(self.d, 1) * np.sum(Z * Z, axis=0)
        else:
            inside = self.n * (self.sizes / self.frame.column_divisors) ** 2 @ (Z * Z)
        blocks = self.block_rounding**2 * largest * inside
        if self.opening_errors is not None:
            answers = answers + self.rounding**2 * np.sum((self.opening_errors @ Z) ** 2, axis=0)
        rounded = _ADDED_UP * np.sqrt(answers + blocks + self.mask_noise**2)
        return np.asarray(rounded + self.shifted + self.coarse)

    @property
    def gap(self) -> float:
        """A lower bound on the distance of the last wanted eigenvalue from the next eigenvalue."""
        assert self.values is not None
        return float(self.values[self.k - 1]) - self._bound_on_next

    @property
    def _bound_on_next(self) -> float:
        """An upper bound on the eigenvalues of C outside of the wanted components.

        The remaining trace is a bound on these eigenvalues. If a Ritz value a outside of the components is known,
        with the residual e, they are at most the largest eigenvalue of [[a, e], [e, b]], where b is the rest of the
        remaining trace. But a trace is a sum of many eigenvalues, which may all be small. So the Ritz value gives
        a second bound: the eigenvalue exceeds the Ritz value by e tan(phi), where phi is the angle between Ritz
        vector and eigenvector. If the vectors began at random, no tangent above `_LARGEST_TANGENT` is expected, or
        above `_LARGEST_TANGENT_OF_TIES` if the last wanted Ritz values are tied. A Ritz value below the mean of all
        further eigenvalues is not near the largest eigenvalue, so it gives no second bound. Columns that begin at
        random show a multiple eigenvalue at most as often as there are columns. So if the Ritz values of all columns
        are tied, there is no second bound either. A single column cannot show that its eigenvalue is a multiple one,
        so the bound is then one on the next eigenvalue that differs.
        """
        assert self.values is not None
        rest = self.residual_squares
        if self.next_value is None:
            return rest
        a, e = self.next_value, self.next_residual
        b = max(rest - a, 0.0)
        bound = max(a, (a + b) / 2.0 + math.hypot((a - b) / 2.0, e))
        mean = rest / max(min(self.n, self.d) - self.k, 1)
        tied = self.k > 1 and self._is_tied(self.k - 2, self.k - 1)
        if a + e < mean * (1.0 - _MASKED_PRECISION) or (tied and self._is_tied(0, len(self.values) - 1)):
            return bound
        return min(bound, a + (_LARGEST_TANGENT_OF_TIES if tied else _LARGEST_TANGENT) * e)

    def _is_tied(self, i: int, j: int) -> bool:
        """Return whether the Ritz values i and j may belong to the same eigenvalue, by their residuals."""
        assert self.values is not None
        assert self.residuals is not None
        apart = float(self.values[i] - self.values[j])
        return apart <= float(self.residuals[i] + self.residuals[j]) + _TIED * float(self.values[0])

    @cached_property
    def sine_estimate(self) -> float | None:
        """The residual of the wanted columns divided by their gap, or None if the gap is not larger than the residual.

        This number is a bound on the sine of the angle between the computed and the exact span. If only the last
        component belongs to a multiple eigenvalue, the exact span is the nearest of the possible ones.
        """
        assert self.values is not None
        if self.k >= self.d:
            return 0.0
        gap, residual = self.gap, self.residual
        if gap <= max(_TIED * float(self.values[0]), residual):
            return None
        return residual / gap

    @property
    def wanted_rank(self) -> int:
        """The number of wanted components with an eigenvalue larger than rounding errors."""
        assert self.values is not None
        least = _ZERO * self.eps * float(self.values[0])
        return int(np.sum(self.values[: self.k] > least))

    @property
    def has_small_angle(self) -> bool:
        """Whether the remaining angle is known to be small."""
        sine = self.sine_estimate
        return sine is not None and sine <= _SMALL_SINE

    @property
    def remaining_doubts(self) -> str:
        """The doubts about the components that remain despite small residuals, as words for a status, or ""."""
        assert self.values is not None
        if self.wanted_rank < self.k and not self.has_small_angle:
            none = range_of("component", range(self.wanted_rank + 1, self.k + 1))
            verb = "has" if self.wanted_rank + 1 == self.k else "have"
            return f"; {none} {verb} no variance except rounding errors, so the directions are arbitrary"
        if self.sine_estimate is not None:
            return ""
        if self.next_value is None:
            return f"; eigenvalue {self.k + 1} was not measured: component {self.k} may be a different direction"
        largest = float(self.values[0])
        apart = max(float(self.values[self.k - 1]) - self.next_value, 0.0)
        which = f"eigenvalues {self.k} and {self.k + 1}"
        if apart > max(_TIED * largest, self.residual):
            return (
                f"; {which} differ by at most {apart / largest:.1g} of the first, and eigenvalue {self.k + 1} is not "
                f"known more precisely: component {self.k} may be a different direction"
            )
        by = "noise" if self.noise else "residual"
        return (
            f"; {which} differ by {apart / largest:.1g} of the first, and the {by} is {self.residual / largest:.1g}: "
            f"components {self.k} and {self.k + 1} cannot be distinguished"
        )

    @property
    def orthonormal_axes(self) -> tuple[Array, Array]:
        """The orthonormal axes of the wanted components' span, as columns, and the sums of squares along these axes.

        If the components are orthonormal, the axes are the components themselves.
        """
        assert self.values is not None
        Z = self.columns[:, : self.k]
        cross = self.left.get("cross")
        if cross is None:
            return Z, self.values[: self.k]
        # The basis may have more columns than are wanted.
        return linalg.span_axes(Z, cross[: self.k, : self.k])

    @property
    def columns(self) -> Array:
        """The basis. Before the opening is answered, there is none, and this property raises RuntimeError."""
        if self.basis is None:
            raise RuntimeError("The opening has not been answered yet, so there is no basis.")
        return self.basis

    def power_start(self) -> Array:
        """Return orth(C Z), a power step without a message, if the product C Z is known. Otherwise return Z."""
        if self.product is None:
            return self.columns
        return linalg.orth(self.product)


class Result(Protocol):
    """The result of a finished run, as a driver sees it: a dataclass with the messages of its run."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def history(self) -> History:
        """The messages of the run."""


class ResultClass(Protocol):
    """A class whose method `of` makes a result from the model at the end of a run."""

    def of(self, model: Model, /, *, algorithm: str, history: History, config: Mapping[str, Any]) -> Result:
        """Return the result of a run, from its model, algorithm, history and plain configuration."""


def fraction_rank(values: Array, trace: float, fraction: float) -> int | None:
    """Return the smallest number of leading values whose sum exceeds `fraction` of the trace.

    Return None if the sum of all values does not exceed the fraction. A sum that equals the fraction up to
    rounding errors does not exceed it.
    """
    share = np.ones(len(values))
    if trace > 0:
        # A negative value is a rounded zero.
        share = np.cumsum(np.maximum(values, 0.0)) / trace
    passed = np.flatnonzero(share > fraction + _ROUNDING)
    if not len(passed):
        return None
    return int(passed[0]) + 1


def _are_equal_up_to_rounding(a: Array | float, b: Array | float, unit: Array | float) -> bool:
    """Return whether two values differ only by the rounding errors of sums over the same rows."""
    return bool(np.all(np.abs(np.subtract(a, b)) <= _SAME_SUM * np.asarray(unit)))


def _are_both_none_or_equal(a: Array | None, b: Array | None, unit: Array | float) -> bool:
    """Return whether both values are None, or both differ only by rounding errors."""
    if a is None or b is None:
        return a is b
    return len(a) == len(b) and _are_equal_up_to_rounding(a, b, unit)
