"""Model: all that a run knows so far. It is immutable, and every stage returns a new one."""

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
from flower_pca.rows.split import Split

_ROUNDING: Final = 1e-12  # A share of the variance may be off by this much.
_TIED: Final = 1e-12  # A gap below this share of the first eigenvalue counts as none.
# multiples of eps times the first eigenvalue that an eigenvalue of zero may come out as
_NOTHING: Final = 64.0
# How large the tangent of the angle between a Ritz vector and the eigenvector that it looks for may be. At 1 and 3
# some of 700 runs on tied eigenvalues were wrong about the gap, at 5 none. At 10 four rounds of ssi, with three further
# columns, could not tell a gap of 17 %.
_ASIDE: Final = 5.0
_ROUGH: Final = 1e-6  # Under masks, what components leave is no more exact than this share.
_SAME: Final = 1e-9  # the relative difference up to which two sums are of the same rows
# the sine up to which components are found although their eigenvalues are next to nothing
_SURE: Final = 0.1


@dataclass(frozen=True)
class Claim:
    """What a client has said of its own rows: their number, and their sum of squares in the frame."""

    n: int
    squares: float


@dataclass(frozen=True)
class Weights:
    """The weights of clients' answers, if not all clients count the same.

    Attributes
    ----------
    weights : dict
        What each client's rows count, by client; empty where all count once.
    most : float
        What one client can be of the trace, in norm, with what its absence does to the mean; 1 for anything.
    """

    weights: dict[int, float] = field(default_factory=dict)
    most: float = 1.0

    def of(self, clients: Iterable[int]) -> Array:
        """Return the weights of these clients. A client that came after the opening gets the smallest weight."""
        least = min(self.weights.values(), default=1.0)
        return np.array([self.weights.get(client, least) for client in clients])


@dataclass(frozen=True)
class EarlierRun:
    """The facts that an earlier run found about its rows, by which the same rows are recognized.

    Attributes
    ----------
    n : int
        Rows of all clients.
    mean : ndarray or None
        Their mean, if it was subtracted; else None.
    scale : ndarray or None
        What columns were divided by, or None.
    trace : float
        Their total sum of squares in the frame.
    values : ndarray
        Sums of squares along the components that the new run begins with.
    angle : float or None
        The largest angle of the components that the earlier run has left, as it has told; None if it told none.
    """

    n: int
    mean: Array | None
    scale: Array | None
    trace: float
    values: Array
    angle: float | None

    def is_of(self, model: Model) -> bool:
        """Return whether the opening has found the same rows in the same frame."""
        frame, Z = model.frame, model.columns
        if self.n != model.n or not _near(self.trace, model.trace, model.trace):
            return False
        unit = np.sqrt(model.trace / model.n) * frame.divisor
        if not (_alike(self.mean, frame.mean, unit) and _alike(self.scale, frame.scale, frame.divisor)):
            return False
        if model.product is None:
            return True
        some = min(len(self.values), Z.shape[1])
        found = np.sum(Z[:, :some] * model.product[:, :some], axis=0)
        return _near(self.values[:some], found, model.trace)


@dataclass(frozen=True, kw_only=True)
class Model:
    """What a run was asked for, the frame and totals of the opening, and the best basis so far.

    Attributes
    ----------
    n_components : int or float
        The number of components, or the fraction of the variance that decides it.
    center, scale, seed, missing
        As the caller gave them.
    steps : int or None
        Steps that a tracker shall take; None for as many as there is data for.
    warm : bool
        Whether the run began with components that were known before.
    earlier : EarlierRun or None
        What the run that found these says of its rows; None if nobody knows.
    summed : bool
        Whether the server sees sums of answers only, and no answer of a single client.
    public : Frame
        What is known of the columns before the opening, which then counts in it: see `DP.ranges`.
    frame : Frame
        The mean and scale of all clients together.
    n, d : int
        Rows of all clients together; columns.
    wanted : tuple of str or None
        The columns that the run names, in its order; None for all that clients have.
    shared : tuple of str
        Columns that are divided by the root of their mean, the share of rows that are 1 there.
    covariates : Covariates or None
        The columns that are no features, if there are any, before anything is known of them.
    explain : tuple of str
        The covariates whose share of the components is asked for, "site" among them for the site itself.
    heading : Heading or None
        What all clients say of their columns; None before one has.
    split : Split or None
        How clients prepare their own columns, where these are different ones of the same people; else None.
    clients : int
        Clients behind the sums, where their rows may not be counted exactly; else 0.
    trace : float
        trace(C), the total sum of squares in the frame.
    claims : dict
        What clients have said of their rows in the opening; empty where the server sees sums, or noise.
    counted : Weights or None
        What clients' answers count, where an opening has weighed them; else None.
    answers : str
        "fixed" if every client answers from fixed statistics of its rows, else "rows".
    sizes : ndarray or None
        Root mean squares of the columns in their own units, less the mean if it is subtracted; None under noise.
    offset : float
        n times the squared length of the mean in the frame, where it is not subtracted; else 0.
    eps : float
        The relative precision of the coarsest client's products.
    basis : ndarray or None
        Z, d x p orthonormal, best first where `values` is known.
    product : ndarray or None
        C Z, where the server knows it.
    covariance : ndarray or None
        C itself, where the server knows it.
    values : ndarray or None
        Ritz values of Z, largest first.
    residuals : ndarray or None
        ||C z_j - theta_j z_j|| of each column.
    beside : ndarray of shape (d, 1) or None
        A direction orthogonal to the basis, in which the next component is looked for.
    beside_product : ndarray or None
        C times that, where the server knows it.
    next_value : float or None
        The Ritz value that follows the last wanted one, where one is known.
    next_residual : float
        What C makes of that value's vector beside its multiple, and outside of the wanted components: how far the value
        may be below the eigenvalue.
    rest : float or None
        The sum of squares outside of the wanted components, where the closing stage has measured it.
    noise : float
        A bound on the norm of the noise that a privacy budget has laid on the newest product; else 0.
    rounding : float
        How far the numbers of answers are rounded, relative to themselves; 0 for all 64 bits.
    shifted : float
        How far in norm a rounded mean can have moved C; else 0.
    rounds : int
        Rounds of the algorithm so far, those before a restart included.
    restarts : int
        How often the run went back to the opening because its set of clients had changed.
    status : Status or None
        Why the algorithm ended.
    pooled : bool
        Whether the components are meant to be the eigenvectors of the covariance of all rows.
    mse : float or None
        Mean squared reconstruction error of a row, where it was evaluated.
    histograms : ndarray or None
        How many rows of all clients lie how far from the components, where the run was asked to monitor.
    histograms_of : str
        "left out" if each of these rows was held against the components without it; "rows" if it was one of those that
        the components were fitted to.
    declined : str
        The first client that has declined the algorithm's alternative in the opening, and why.
    decisions : dict
        What the run has chosen by itself, in words, by what it was chosen for.
    sites : dict
        What the opening tells of single clients, by name: see `stages.opening`; empty if the server does not see their
        answers.
    left : dict
        What the algorithm leaves to its closing stage and to its result, by names that these agree on.
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
    split: Split | None = None
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
    shifted: float = 0.0
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
        """The number of components wanted. For a fraction, it is the number of Ritz values needed to exceed it."""
        if isinstance(self.n_components, int):
            return self.n_components
        if self.values is None:
            return 1 if self.basis is None else self.basis.shape[1]
        return fraction_rank(self.values, self.trace, self.n_components) or len(self.values)

    def with_leading(self, Z: Array, width: int) -> Model:
        """Return the model with the first columns of Z as its basis, and the others as directions beside it."""
        return replace(self, basis=Z[:, :width], product=None, beside=Z[:, width:])

    def with_choice(self, what: str, why: str) -> Model:
        """Return the model with a choice that the run has made, in words."""
        return replace(self, decisions={**self.decisions, what: why})

    @cached_property
    def again(self) -> bool:
        """Whether the rows are those of the earlier run whose components this run begins with.

        This run need not test again whether its components miss a larger direction.
        """
        return self.earlier is not None and self.restarts == 0 and self.earlier.is_of(self)

    @property
    def unproven(self) -> bool:
        """Whether the block began with components of other rows, from which a direction of these rows may hide."""
        return (self.warm or self.restarts > 0) and not self.again

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the columns in order, or None if columns go by position or clients keep the names."""
        return self.wanted or (None if self.heading is None else self.heading.names)

    @property
    def feature_digest(self) -> str:
        """The SHA-256 of the sorted names, from clients that do not send the names themselves, or ""."""
        if self.heading is None:
            return ""
        return self.heading.digest

    @property
    def units(self) -> int:
        """The sum of `n` over the replies: the number of rows, or the number of clients if each counts as one."""
        return self.clients or self.n

    @property
    def left_out(self) -> float:
        """The sum of squares outside of the components, as measured on the rows if it was."""
        if self.rest is None:
            assert self.values is not None
            return max(self.trace - float(self.values[: self.k].sum()), 0.0)
        if self.mse is None:
            return self.rest
        return self.mse * self.n

    @property
    def residual(self) -> float:
        """||C Z - Z Theta|| of the wanted columns, at least as large as noise or rounding in C Z."""
        assert self.residuals is not None
        assert self.values is not None
        residual = linalg.length(self.residuals[: self.k])
        return max(residual, self.noise, self.eps * float(self.values[0]))

    @property
    def gap(self) -> float:
        """A lower bound on the distance of the last wanted eigenvalue from the next one."""
        assert self.values is not None
        return float(self.values[self.k - 1]) - self._next_at_most

    @property
    def _next_at_most(self) -> float:
        """An upper bound on the eigenvalues of C outside of the wanted components.

        The wanted components leave a trace, which bounds it. With a Ritz value a out there, whose
        residual is e, it is at most that of [[a, e], [e, b]], with b the rest of the trace. But a
        trace is a sum of many eigenvalues, which may all be small, so the Ritz value counts too:
        the eigenvalue is above it by e tan(phi), with phi the angle between the two vectors. No
        tangent above `_ASIDE` is expected of vectors that began at random. A Ritz value below the
        mean of all further eigenvalues is not near the largest of them.
        """
        rest = self.left_out
        if self.next_value is None:
            return rest
        a, e = self.next_value, self.next_residual
        b = max(rest - a, 0.0)
        bound = max(a, (a + b) / 2.0 + math.hypot((a - b) / 2.0, e))
        mean = rest / max(min(self.n, self.d) - self.k, 1)
        if a + e < mean * (1.0 - _ROUGH):
            return bound
        return min(bound, a + _ASIDE * e)

    @cached_property
    def sine_estimate(self) -> float | None:
        """The residual of the wanted columns divided by their gap, or None if the gap is not larger."""
        assert self.values is not None
        if self.k >= self.d:
            return 0.0
        gap, residual = self.gap, self.residual
        if gap <= max(_TIED * float(self.values[0]), residual):
            return None
        return residual / gap

    @property
    def span(self) -> int:
        """The number of wanted components whose eigenvalue is larger than rounding."""
        assert self.values is not None
        least = _NOTHING * self.eps * float(self.values[0])
        return int(np.sum(self.values[: self.k] > least))

    @property
    def sure(self) -> bool:
        """Whether the remaining angle is known to be small."""
        sine = self.sine_estimate
        return sine is not None and sine <= _SURE

    @property
    def doubts(self) -> str:
        """Say what a small residual does not prove about the components, for a status, or return ""."""
        assert self.values is not None
        if self.span < self.k and not self.sure:
            none = range_of("component", range(self.span + 1, self.k + 1))
            verb = "has" if self.span + 1 == self.k else "have"
            return f"; beside the first, {none} {verb} no variance but rounding: any directions would do"
        if self.sine_estimate is not None:
            return ""
        if self.next_value is None:
            return f"; how far eigenvalue {self.k + 1} is below was not measured: other directions may do as well"
        largest = float(self.values[0])
        apart = max(float(self.values[self.k - 1]) - self.next_value, 0.0)
        which = f"eigenvalues {self.k} and {self.k + 1}"
        if apart > max(_TIED * largest, self.residual):
            return (
                f"; {which} differ by at most {apart / largest:.1g} of the first, "
                f"and eigenvalue {self.k + 1} is not known better: other directions may do as well"
            )
        by = "noise" if self.noise else "residual"
        return (
            f"; {which} differ by {apart / largest:.1g} of the first, and the {by} is {self.residual / largest:.1g}: "
            "which of their directions was found cannot be told"
        )

    @property
    def axes(self) -> tuple[Array, Array]:
        """Return orthonormal axes of the wanted components' span, (d, r), and the sums of squares along them.

        They are the components and their values, unless the components are not orthonormal.
        """
        assert self.values is not None
        Z = self.columns[:, : self.k]
        cross = self.left.get("cross")
        if cross is None:
            return Z, self.values[: self.k]
        # the basis may be wider than what is wanted
        return linalg.span_axes(Z, cross[: self.k, : self.k])

    @property
    def columns(self) -> Array:
        """The basis, which the opening has set."""
        if self.basis is None:
            raise RuntimeError("the opening has not been held")
        return self.basis

    def power_start(self) -> Array:
        """Return an orthonormal start after as many power steps as are free: orth(C Z), or Z."""
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
    """A class of results, which makes a result of what the run knows at its end."""

    def of(self, model: Model, /, *, algorithm: str, history: History, config: Mapping[str, Any]) -> Result:
        """Make the result of a run from its algorithm's spec, its history and the plain configuration."""


def fraction_rank(values: Array, trace: float, fraction: float) -> int | None:
    """Return how many leading values are needed to exceed `fraction` of the trace, or None if all are too few.

    A sum that equals it to rounding does not exceed it.
    """
    share = np.ones(len(values))
    if trace > 0:
        # one below 0 is a zero that was rounded
        share = np.cumsum(np.maximum(values, 0.0)) / trace
    passed = np.flatnonzero(share > fraction + _ROUNDING)
    if not len(passed):
        return None
    return int(passed[0]) + 1


def _near(a: Array | float, b: Array | float, unit: Array | float) -> bool:
    """Return whether two values differ by no more than sums of the same rows do."""
    return bool(np.all(np.abs(np.subtract(a, b)) <= _SAME * np.asarray(unit)))


def _alike(a: Array | None, b: Array | None, unit: Array | float) -> bool:
    """Return whether both values are missing, or both are near each other."""
    if a is None or b is None:
        return a is b
    return len(a) == len(b) and _near(a, b, unit)
