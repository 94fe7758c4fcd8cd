"""TriplePCA: shared, local and sparse parts in one model.

The algorithm is `ExactPerPCA`, applied to rows whose outlying entries have been replaced.

The server works as in `ExactPerPCA`. A client keeps the coordinates of its rows along the components,
and the positions of its outliers. If a client has lost this memory, it starts again and takes more steps
in the next round. A client with fewer rows than `ClientRows.has_enough_rows` requires would find no outliers, because a
few rows are always fitted well by some components. Such a client has no influence on U and no local
components, and each of its rows is decomposed along U separately.

The model of a client's rows is X = L + S + noise, with L in the span of shared and local components. An
entry is an outlier ("far") if it differs from L by more than a multiple of its column's noise. The noise
is estimated from the median of all residuals of the column at this client. At first, L is the median of
each column. So the threshold begins at the size of the rows, and falls as L fits the rows better.
Outliers and missing values are replaced by L, so that they influence neither the components nor the
coordinates of their row.

The closing message is the same as in personalized PCA, but applies to the rows without outliers. The
client keeps the outliers separately.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.algorithms.personal import deflation, held_out
from flower_pca.algorithms.personal.base import StartIteration, ThetaProbe, client_weight
from flower_pca.algorithms.personal.closing import ClosingState, PersonalClosing
from flower_pca.algorithms.personal.exact_per_pca import ExactPerPCA, ExactState
from flower_pca.algorithms.robust import base
from flower_pca.algorithms.robust.base import NORMAL
from flower_pca.algorithms.robust.sizes import TINY
from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array, weighted_median
from flower_pca.base.shown import brief, shown
from flower_pca.core.kinds import COUNT, FLAG, NUMBER, STEPS, ArrayRule, Kind, Part, number_rule
from flower_pca.core.model import Model
from flower_pca.core.stage import MARGIN, Arrays
from flower_pca.rows.local import LocalData

# An outlier remains an outlier until its residual falls below this share of the threshold. Otherwise, an entry could
# alternate between outlier and inlier forever.
_BACK_SHARE: Final = 0.5
_PRECISION: Final = 1e-6  # the best precision of L, relative to the size of a column
_ROWS_PER_COMPONENT: Final = 2  # minimum number of rows for each component
_ROUNDING: Final = 1e-9  # share of the explained squares below which a difference is only rounding error
_PROJECTION_STEPS: Final = 100  # maximum number of steps in a projection of new rows
_SETTLED: Final = 1e-10  # relative change of the coordinates at which a projection of new rows ends
# These are the limits of the warnings about structure and tails, measured with 25 to 80 rows at each client. Most
# runs with wrong shared components (an angle with a sine above .1) had one of two symptoms at half of their clients
# or more. Either the squared residuals in one direction were 1.2 times as large as for independent entries, and more
# than .05 (as a ratio of lengths) of what a component explains. Or the entries that are not outliers had a kurtosis of
# 4.3 to 10. The kurtosis of normal entries is 3. The kurtosis of Student's t with 3 degrees of freedom, cut at 4
# deviations, is 3.9.
_STRUCTURE: Final = 1.2
_LEAST_STRUCTURE: Final = 0.05
_MOST_KURTOSIS: Final = 4.2
# If one client has more than this share of the noise of all clients, its noise may consist of outliers.
_MOST_NOISE: Final = 0.8
# The closing message computes one more U, in which clients with more noise have less weight. If the sine of the angle
# between this U and the result exceeds this limit, the components are unreliable. The limit was determined in runs with
# 40 % outliers of two sizes at one of five clients. In ten converged runs with wrong components, the sine was .067 or
# more. In runs with errors below .05, it was .046 or less, and in 26 runs with ten times the noise at one client, .025
# or less.
_MOST_TURN: Final = 0.06
# If the local components of all clients but one have a common direction, theta is at most 1 / N for N clients. The
# shared components then lack this direction, because they follow the remaining client. In twelve converged runs with
# wrong components, theta was .13 to .21 for 4 to 7 clients, and in ten runs with right components and ten times the
# noise at one of 3 to 7 clients, .43 or more.
_MOST_ALIKE: Final = 1.1
# In this additional U, the weight of a client is the share of its sum of squares that is not noise, raised to this
# power.
_POWER: Final = 4
_FEWEST_CLIENTS: Final = 3  # minimum number of clients for which one client can be compared with the others
_SIGN_DRAWS: Final = 3  # the number of draws of random signs, which make entries independent
_SEED: Final = 20  # the seed of the random signs


@dataclass(frozen=True)
class Fit:
    """A fit L = TW' of a client's rows.

    Attributes
    ----------
    W : ndarray
        The shared and local components [U, V], as columns.
    T : ndarray
        The coordinates of the rows along these components.
    far : ndarray of bool
        The mask of outliers.
    limit : ndarray
        The threshold of each column.
    """

    W: Array
    T: Array
    far: Array
    limit: Array

    __repr__ = brief

    @property
    def L(self) -> Array:
        """The low-rank part of the rows."""
        return np.asarray(self.T @ self.W.T)


@dataclass(frozen=True)
class ClientRows:
    """A client's rows, centered and scaled as in the run, with a mask of missing values."""

    X: Array
    gaps: Array

    __repr__ = brief

    @classmethod
    def of_client(cls, data: LocalData) -> ClientRows:
        """Return all rows of a client at once, because the residuals of a column are compared with each other."""
        X = np.concatenate(list(data.dense())).astype(np.float64)
        gaps = np.zeros(X.shape, dtype=bool)
        gaps.reshape(-1)[base.unseen_entries(data, seed=0, share=0.0).gaps] = True
        return cls(X, gaps)

    def first_fit(self, cut: float) -> Fit:
        """Return the first fit, without components: L is the median of each column."""
        W = _medians(self.X, ~self.gaps)[:, None]
        T = np.ones((len(self.X), 1))
        nothing = np.zeros(self.X.shape, dtype=bool)
        return self.mark_outliers(W, T, nothing, cut * self.noise(W, T))

    def next_fit(self, previous: Fit, U: Array, local_count: int, cut: float, *, local_steps: int = 0) -> Fit:
        """Return the next fit for U: new local components from the rows without outliers, and then new outliers."""
        clean, span = self.without_outliers(previous), deflation.WHOLE
        if local_steps:
            span = deflation.span_of_rows(clean, U.shape[1] + local_count, {})
        start = previous.W[:, U.shape[1] :]
        V = deflation.local_basis(clean, U, local_count, steps=local_steps, start=start, span=span)
        W = np.hstack([U, V])
        T = clean.scores(W)
        return self.mark_outliers(W, T, previous.far, cut * self.noise(W, T))

    def without_outliers(self, fit: Fit) -> LocalData:
        """Return the rows with outliers and missing values replaced by L."""
        return LocalData(self.array_without_outliers(fit))

    def array_without_outliers(self, fit: Fit) -> Array:
        """Return the rows with outliers and missing values replaced by L, as an array."""
        return np.where(fit.far | self.gaps, fit.L, self.X)

    def mark_outliers(self, W: Array, T: Array, previous: Array, limit: Array) -> Fit:
        """Return the fit TW' with its outliers, which are the entries whose residual exceeds `limit`.

        For entries that were outliers before, a share of `limit` is enough.
        """
        sizes = np.abs(self.X - T @ W.T)
        far = np.where(previous, sizes > _BACK_SHARE * limit, sizes > limit)
        return Fit(W, T, far & ~self.gaps, limit)

    def noise(self, W: Array, T: Array) -> Array:
        """Estimate the standard deviation of each column's noise from the median size of its residuals from TW'.

        Residuals that are exactly 0 are left out. Otherwise, in a column that is mostly 0, all other
        entries would be outliers.
        """
        sizes = _median_sizes(self.X - T @ W.T, self.gaps)
        return np.asarray(NORMAL * np.maximum(sizes, self.smallest_residuals))

    def has_structure(self, fit: Fit, noise: Array) -> bool:
        """Return whether the residuals are much larger in one direction than independent entries would be.

        Outliers are not counted. The residuals have such a structure if outliers have turned the components.
        """
        least, p = min(self.X.shape), fit.W.shape[1]
        scaled = self._scaled_residuals(fit, self._noise_above_rounding(noise))
        if least <= p or not scaled.any():
            return False
        first, independent = _largest_direction(scaled, p)
        if first <= _STRUCTURE * independent:
            return False
        first, independent = _largest_direction(self._scaled_residuals(fit, np.ones(len(noise))), p)
        return bool(first - independent > _LEAST_STRUCTURE**2 * _squares(fit.L) / p)

    def has_heavy_tails(self, fit: Fit, noise: Array) -> bool:
        """Return whether the residuals have heavy tails although outliers are not counted.

        This suggests that the components follow some outliers.
        """
        near = self._scaled_residuals(fit, self._noise_above_rounding(noise))[~(fit.far | self.gaps)]
        return bool(near.any()) and len(near) * float(np.sum(near**4)) > _MOST_KURTOSIS * _squares(near) ** 2

    def signal_share(self, fit: Fit, noise: Array) -> float:
        """Return the share of the sum of squares of the rows that is not noise."""
        squares = _squares(self.array_without_outliers(fit)) or 1.0
        return max(0.0, 1.0 - len(self.X) * float(np.sum(self._noise_above_rounding(noise) ** 2)) / squares)

    def noise_level(self, noise: Array) -> float:
        """Return the root mean square of the columns' noise. Noise that is only rounding error counts as 0."""
        return float(np.sqrt(np.mean(self._noise_above_rounding(noise) ** 2)))

    def _noise_above_rounding(self, noise: Array) -> Array:
        """Return the noise of each column, with 0 for columns whose residuals are only rounding errors."""
        return np.where(noise > NORMAL * self.smallest_residuals, noise, 0.0)

    def _scaled_residuals(self, fit: Fit, sizes: Array) -> Array:
        """Return residuals divided by these column sizes, and 0 for outliers, missing values and columns of size 0."""
        left = (self.X - fit.L) / np.where(sizes > 0.0, sizes, np.inf)
        return np.asarray(np.where(fit.far | self.gaps, 0.0, left))

    def mean_row_size(self, first: Fit) -> float:
        """Return the mean sum of squares of a row, with the outliers of the first fit replaced.

        The client's answers are divided by this number.
        """
        squares = float(np.sum(self.array_without_outliers(first) ** 2))
        return max(squares / len(self.X), TINY)

    def has_enough_rows(self, components: int) -> bool:
        """Return whether there are enough rows to distinguish outliers from this many components."""
        return len(self.X) >= _ROWS_PER_COMPONENT * components

    @functools.cached_property
    def smallest_residuals(self) -> Array:
        """For each column, the size below which residuals are rounding errors, given the precision of L."""
        return np.asarray(_PRECISION * _median_sizes(self.X, self.gaps))

    def loss(self, fit: Fit) -> float:
        """Return the sum of squared residuals, which every step reduces. An outlier counts as its threshold squared."""
        sizes = np.where(fit.far, fit.limit, self.X - fit.L)
        return float(np.sum(sizes[~self.gaps] ** 2))

    def project(self, W: Array, noise: Array, cut: float) -> Fit:
        """Return a fit along W. Each row is fitted separately, and its threshold falls with its residuals."""
        noise = np.maximum(noise, TINY)
        T = np.zeros((len(self.X), W.shape[1]))
        far = np.zeros(self.X.shape, dtype=bool)
        for _ in range(_PROJECTION_STEPS):
            residuals = (self.X - T @ W.T) / noise
            row = NORMAL * _median_sizes(residuals.T, self.gaps.T)
            limit = cut * np.maximum(row, 1.0)[:, None] * noise
            fit = self.mark_outliers(W, T, far, limit)
            T, far, before = self.without_outliers(fit).scores(W), fit.far, T
            if np.linalg.norm(T - before) <= _SETTLED * np.linalg.norm(T):
                break
        return self.mark_outliers(W, T, far, limit)


def _largest_direction(residuals: Array, p: int) -> tuple[float, float]:
    """Return the largest sum of squares of the residuals in one direction, and its value for independent entries.

    Entries become independent if their signs are drawn at random. The residuals of p components have p
    fewer directions than residuals with random signs, so the second number is corrected for this
    difference.
    """
    n, d = residuals.shape
    rng = np.random.default_rng(_SEED)
    signed = [residuals * rng.choice([-1.0, 1.0], residuals.shape) for _ in range(_SIGN_DRAWS)]
    first, *others = (float(LocalData(rows).leading_eigenpairs(1)[1][0]) for rows in (residuals, *signed))
    return first, float(np.mean(others)) * _expected_first_share(n - p, d - p) / _expected_first_share(n, d)


def _squares(values: Array) -> float:
    return float(np.sum(values**2))


def _expected_first_share(n: int, d: int) -> float:
    """Return the approximate share of the squares of n x d independent entries in their first direction."""
    return float(1.0 / np.sqrt(n) + 1.0 / np.sqrt(d)) ** 2


def _median_sizes(residuals: Array, gaps: Array) -> Array:
    """Return the median absolute value of each column's entries, without zeros and missing values."""
    sizes = np.abs(residuals)
    return _medians(sizes, (sizes > 0.0) & ~gaps)


def _medians(values: Array, counted: Array) -> Array:
    """Return the median of each column's counted values, or 0 for a column without such values."""
    if counted.all():
        return np.asarray(np.median(values, axis=0))
    return np.where(counted.any(axis=0), weighted_median(values, counted.astype(np.float64)), 0.0)


CUT: Final = number_rule(least=1.0, most=1e6)  # the allowed values of the threshold, in multiples of the noise
_FIRST_STEPS_FACTOR: Final = 10  # factor by which the number of steps is larger for a client without memory
INNER: Final[Mapping[str, ArrayRule]] = {"cut": CUT, "inner": STEPS}


@dataclass(frozen=True, kw_only=True)
class TriplePCA(ExactPerPCA):
    """Compute shared components and local components of rows that contain individual outlying entries.

    The rows are the sum of a shared, a local and a sparse part, and noise. The algorithm is
    `ExactPerPCA` on rows without their outliers. In each round

      each client computes L_i = T_i[U, V_i]', and S_i = X_i - L_i for entries beyond the threshold, else 0,
                   applies the step of `ExactPerPCA` to X_i - S_i, which gives V_i, Z_i and f_i,
                   and sets T_i to the coordinates of X_i - S_i along [U, V_i];
      the server computes U <- polar(sum w_i Z_i), as in `ExactPerPCA`.

    The threshold is `threshold` times the noise of each column at each client, where the noise is
    1.4826 times the median of |X_i - L_i|. At first L_i consists of medians, so the threshold begins at
    the size of the rows. The threshold falls with the residuals, so the noise need not be known. f_i is
    the decrease of the clipped residuals, compared with residuals from the medians. Z_i and f_i are
    divided by the mean square of a client's rows without outliers. So a client with large values has no
    more influence than other clients. A client with fewer than 2(r1 + r2) rows has no influence, for r1
    shared and r2 local components. By default, the rows are not centered, because outliers would shift
    the mean. The mean is then an additional shared component. Missing values are treated like outliers.

    Reference: the model is from Shi, Fattahi and Kontar, "Triple component matrix factorization:
    untangling global, local, and noisy components", JMLR 2024. In the paper, thresholds fall by a
    schedule. The steps are this package's own.
    Cost per round: a client needs `inner_steps` times the flops of `ExactPerPCA`, a median of every
    column at each step, and memory for about four copies of its rows. r1 + 1 columns of d floats
    are sent each way.
    Prefer it: if clients have directions of their own, and individual values in their rows are outliers.

    Parameters
    ----------
    local_components : int, mapping or "auto", default=1
        r2, the number of local components of each client. A client whose rows have a lower rank has fewer. A mapping
        gives the numbers by client: its keys are positions or names of sites, and "others" for all clients that it
        does not name.
    threshold : float, default=4.0
        An entry is removed if its distance from L exceeds this multiple of its column's noise.
    inner_steps : int, default=3
        The number of times that a client recomputes outliers and local components in each round. A client without
        memory recomputes them ten times as often.
    weights, init, start_rounds, given, collect
        See `ExactPerPCA`.
    acceleration, local_steps, gain_tol, oversample
        See `ExactPerPCA`.
    tol : float, default=1e-6
        The run has converged when its error is at most this.
    min_rounds : int, default=0
        Minimum number of rounds before the run may end.
    max_rounds : int, default=1000
        Maximum number of rounds of the run.
    patience : int, default=50
        The run ends as stalled when its error has not fallen for this many rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import TriplePCA, simulate
    >>> rng = np.random.default_rng(0)
    >>> scales = [[6, 4, 0.1, 0.1], [6, 0.1, 4, 0.1], [6, 0.1, 0.1, 4]]  # one shared direction, and one of each site
    >>> sites = [rng.standard_normal((60, 4)) * scale for scale in scales]
    >>> result = simulate(TriplePCA(local_components=1), sites, n_components=1)
    >>> print(np.abs(result.components_).round(1))
    [[1. 0. 0. 0.]]
    >>> print([np.abs(result.local[site]["components"]).argmax().item() for site in range(3)])
    [1, 2, 3]
    """

    name: ClassVar[str] = "triple_pca"
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        **{name: ask for name, ask in ExactPerPCA.asks.items() if name != held_out.AUTO},
        **INNER,
    }
    centers: ClassVar[bool] = False
    by_row: ClassVar[bool] = True
    shares: ClassVar[bool] = False  # n_components="shared" is refused, because held-out rows would contain outliers

    threshold: float = 4.0
    inner_steps: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number(f"threshold of {self.name}", self.threshold, least=CUT.least, most=CUT.most, remedy="Try 4.")
        checks.integer(f"inner_steps of {self.name}", self.inner_steps, least=1)

    @property
    def recomputes(self) -> bool:
        # The outliers of a round depend on those of the rounds before.
        return False

    def broadcast(self, state: ExactState) -> Arrays:
        return {**super().broadcast(state), **self._inner()}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        rows, cut = ClientRows.of_client(data), float(arrays["cut"])
        if "k" in arrays:
            say = rows.has_enough_rows(int(arrays["k"]))
            return StartIteration.answer(arrays, rows.without_outliers(rows.first_fit(cut)), memory, send_projector=say)
        U, w = arrays["U"], client_weight(arrays, data)
        if not rows.has_enough_rows(U.shape[1] + int(arrays["own"])):
            none = dict.fromkeys(("f", "w", "probed"), np.array(0.0))
            none |= {"Z": np.zeros(U.shape), "Vb": np.zeros(arrays["b"].shape)}
            return {**none, "n": np.array(data.n)}, {"few": np.array(True)}
        first, fit = rows.first_fit(cut), fit_to_message(arrays, rows, memory)
        V = fit.W[:, U.shape[1] :]
        SU = deflation.covariance_product(rows.without_outliers(fit), U)
        of_size_one = w / rows.mean_row_size(first)
        gain = (rows.loss(first) - rows.loss(fit)) / data.n
        Z = of_size_one * (SU - V @ (V.T @ SU))
        sums = {"Z": Z, "f": np.array(of_size_one * gain)}
        counts = {"n": np.array(data.n), "w": np.array(w)}
        return {**sums, **counts, **ThetaProbe.answer(V, arrays["b"])}, pack_fit(fit)

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        common = ExactPerPCA.parts(arrays, d)
        if "f" in common:  # f is not a mean square of rows here, because the rows are scaled to size one.
            return {**common, "f": NUMBER}
        return common

    def largest_weights(self, model: Model) -> tuple[float, float]:
        w, _ = super().largest_weights(model)
        return w, w

    def server(self, state: ExactState, total: Any, answered: frozenset[int]) -> ExactState:
        if state.start is not None and self.init == "projection":
            self._require_clients_with_rows(total)
        return super().server(state, total, answered)

    def state_after_sums(self, state: ExactState, total: Arrays, share: float) -> ExactState:
        if share >= 1.0:
            self._require_clients_with_rows(total)
        elif not float(total["w"]):
            return replace(state, progress=state.progress.step(state.progress.error))
        return super().state_after_sums(state, total, share)

    def verify(self, model: Model) -> Status | None:
        status = super().verify(model)
        structured, followed, clients = model.left["structured"]
        if status is None or not status.ok:
            return status
        if followed and 2.0 * max(structured, followed) >= clients:
            left, some = ("structure", structured) if structured > followed else ("tails of far entries", followed)
            words = (
                f", but the components may follow outlying entries, because they leave {left} at {some:.0f} of "
                f"{labels.count(round(float(clients)), 'client')}. Leave out clients with many outlying entries, or "
                "ask for one more component"
            )
            return status.followed_by(words, Outcome.STALLED)
        if clients < _FEWEST_CLIENTS:
            return status
        loud, turned = float(model.left["loud"]) > _MOST_NOISE**2, float(model.left["swayed"]) > _MOST_TURN
        if loud and float(model.left["theta"]) <= _MOST_ALIKE / clients:
            words = (
                ", but the components are not reliable, because one client has several times the noise of all other "
                "clients together, and the local components of the other clients have a common direction, which should "
                "be shared. Leave out clients with many outlying entries, or ask for one more component"
            )
            return status.followed_by(words, Outcome.STALLED)
        if turned:
            reason = (
                "they depend on one client that has several times the noise of all other clients together. The noise "
                "of this client may consist of outlying entries"
                if loud
                else "they would turn if clients with more noise had less influence. The noise of these clients may "
                "consist of outlying entries"
            )
            words = (
                f", but the components are not reliable, because {reason}. Leave out clients with many outlying entries"
            )
            return status.followed_by(words, Outcome.STALLED)
        return status

    @staticmethod
    def _require_clients_with_rows(total: Arrays) -> None:
        if not float(total["w"]) > 0.0:
            raise DataError(
                f"No client has {_ROWS_PER_COMPONENT} rows or more for each of its shared and local components. Ask "
                "for fewer components, or combine the rows of small sites."
            )

    def closing_arrays(self, state: ExactState, *, exact: bool, steps: int) -> Arrays:
        samples = np.array(self.weights == "samples")
        return {**super().closing_arrays(state, exact=exact, steps=steps), **self._inner(), "samples": samples}

    def _inner(self) -> Arrays:
        return {"cut": np.array(self.threshold), "inner": np.array(self.inner_steps)}

    def _check_auto(self, word: str) -> None:
        raise ConfigError(
            f"local_components of {self.name} cannot be {shown(word)}, because outlying entries would be held out "
            "with the rows. Give a whole number, or a mapping from clients to such numbers.",
            setting="local_components",
            value=word,
        )


def fit_to_message(arrays: Arrays, rows: ClientRows, memory: Arrays) -> Fit:
    """Return the client's fit for the U of a message, after the number of steps that the message asks for.

    A client without memory takes ten times as many steps.
    """
    own, steps = int(arrays["own"]), int(arrays["inner"])
    cut = float(arrays["cut"])
    fit = unpack_fit(rows, memory)
    if fit is None:
        fit, steps = rows.first_fit(cut), _FIRST_STEPS_FACTOR * steps
    for _ in range(steps):
        fit = rows.next_fit(fit, arrays["U"], own, cut, local_steps=int(arrays["steps"]))
    return fit


def pack_fit(fit: Fit) -> Arrays:
    """Return the arrays of a fit that a client keeps until the next message. `unpack_fit` restores the fit."""
    return {"W": fit.W, "T": fit.T, "far": np.flatnonzero(fit.far)}


def unpack_fit(rows: ClientRows, memory: Arrays) -> Fit | None:
    """Return the fit in a client's memory, or None if the memory has no fit for these rows."""
    n, d = rows.X.shape
    if "T" not in memory or len(memory["T"]) != n or len(memory["W"]) != d:
        return None
    far = np.zeros((n, d), dtype=bool)
    far.reshape(-1)[memory["far"]] = True
    # A step computes new thresholds, so these zeros are never used.
    return Fit(memory["W"], memory["T"], far, np.zeros(d))


def _lacks_shared(clean: LocalData, shared: int, local: int, explained: float) -> bool:
    """Return whether the rows do not contain the shared components.

    They do not if U explains less than half of what the same number of free components would explain in
    addition to the local components.
    """
    values = clean.leading_eigenpairs(shared + local)[1]
    most = float(values.sum())
    more = float(values[local:].sum())
    return most - explained > max(0.5 * more, _ROUNDING * most)


@dataclass(frozen=True, kw_only=True)
class TripleClosing(PersonalClosing):
    """Send U for the last time, so that every client keeps its local components and the parts L and S of its rows.

    L is the low-rank part, and S is the sparse part. In addition to the answer of `PersonalClosing`, each
    client sends for every column the number of removed entries, the squared noise and the sum of the
    cleared rows. The client also sends the sum of squares of the cleared rows, and four flags: whether it
    has too few rows to count, whether its rows lack the shared components, whether the components leave
    structure in its rows, and whether the components follow outliers. Finally, the client sends its product
    for the next U, weighted so that clients with more noise have less influence.

    Cost: the same as one round of the algorithm. Each client sends r1 + 3 more columns of d floats.
    """

    name: ClassVar[str] = "triple"
    asks: ClassVar[Mapping[str, ArrayRule]] = {**PersonalClosing.asks, **INNER, "samples": FLAG}
    by_row: ClassVar[bool] = True

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        wide = len(arrays["U"])
        return {
            **PersonalClosing.parts(arrays, d),
            # Y is an estimate, because it is a product of rows whose outliers are removed, not of the rows themselves.
            "Y": Part(arrays["U"].shape, Kind.ESTIMATE),
            "taken": Part((wide,), Kind.COUNT),
            "noise": Part((wide,), Kind.MEAN_SQUARES),
            "sums": Part((wide, 1), Kind.ESTIMATE),
            "squares": NUMBER,
            "few": COUNT,
            "apart": COUNT,
            "structured": COUNT,
            "followed": COUNT,
            "loudness": NUMBER,
            "Z": Part(arrays["U"].shape, Kind.ESTIMATE),
        }

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        rows, U = ClientRows.of_client(data), arrays["U"]
        cut = float(arrays["cut"])
        few = not rows.has_enough_rows(U.shape[1] + int(arrays["own"]))
        if few:
            arrays = {**arrays, "own": np.array(0)}
            noise = np.full(len(U), rows.smallest_residuals.max(initial=0.0))
            fit = rows.project(U, noise, cut)
        else:
            fit = fit_to_message(arrays, rows, memory)
        clean = rows.without_outliers(fit)
        own = {"V": fit.W[:, U.shape[1] :]}
        up, found = PersonalClosing.client(arrays, clean, own)
        V, noise, apart, structured, followed = found["V"], np.zeros(len(U)), False, False, False
        loudness, Z = 0.0, np.zeros(U.shape)
        if not few:
            W = np.hstack([U, V])
            T = clean.scores(W)
            noise = rows.noise(W, T)
            # At the end, only the threshold decides which entries are outliers.
            fit = rows.mark_outliers(W, T, np.zeros_like(fit.far), cut * noise)
            explained = clean.squared_error(U[:, :0]) - float(up["error"]) * data.n
            apart = _lacks_shared(clean, U.shape[1], V.shape[1], explained)
            # All figures describe the rows without the entries that are now removed.
            clean = rows.without_outliers(fit)
            up |= {"Y": clean.matmat(U).astype(np.float64), "error": np.array(clean.squared_error(W) / data.n)}
            found["variances"] = np.mean(clean.scores(V) ** 2, axis=0)
            structured, followed = rows.has_structure(fit, noise), rows.has_heavy_tails(fit, noise)
            loudness = rows.noise_level(noise)
            counts = (
                client_weight(arrays, data)
                * rows.signal_share(fit, noise) ** _POWER
                / rows.mean_row_size(rows.first_fit(cut))
            )
            SU = deflation.covariance_product(clean, U)
            Z = counts * (SU - V @ (V.T @ SU))
        up |= {
            "taken": fit.far.sum(axis=0),
            "noise": noise**2,
            "sums": rows.array_without_outliers(fit).sum(axis=0)[:, None],
            "squares": np.array(clean.squared_error(U[:, :0])),
            "few": np.array(float(few)),
            "apart": np.array(float(apart)),
            "structured": np.array(float(structured)),
            "followed": np.array(float(followed)),
            "loudness": np.array(loudness),
            "Z": Z,
        }
        return up, {**found, **pack_fit(fit)}

    @staticmethod
    def local_results(memory: Arrays, data: LocalData) -> Arrays:
        found = PersonalClosing.local_results(memory, data)
        rows = ClientRows.of_client(data)
        fit = unpack_fit(rows, memory)
        if not found or fit is None:
            return {}
        L = fit.L
        S = np.where(fit.far, rows.X - L, 0.0)
        return {**found, **base.in_data_units(L, S, data.frame)}

    def bounds(self, state: ClosingState, model: Model) -> Mapping[str, Array | float]:
        return {
            **super().bounds(state, model),
            **dict.fromkeys(("taken", "noise"), 0.0),
            "sums": MARGIN * float(np.sqrt(model.n * model.trace)),
            "squares": MARGIN * model.trace,
            "loudness": MARGIN * float(np.sqrt(model.trace)),
            "Z": MARGIN * (model.n if state.left["samples"] else 1.0),
            **dict.fromkeys(("few", "apart", "structured", "followed"), 1.0),
        }

    def finish(self, state: ClosingState, model: Model) -> Model:
        assert state.total is not None
        total, done = state.total, super().finish(state, model)
        few, clients = float(total["few"]), float(total["clients"])
        left = {
            **done.left,
            "taken": total["taken"] / model.n,
            "few": np.array([few, clients]),
            "apart": np.array([total["apart"], clients]),
            "structured": np.array([total["structured"], total["followed"], clients - few]),
            "noise": np.sqrt(total["noise"] / max(clients - few, 1.0)),
            # "swayed" is the sine by which U turns if clients with more noise have less weight.
            "swayed": np.array(linalg.sin_theta(state.U, linalg.orth(total["Z"])) if np.any(total["Z"]) else 0.0),
            # "loud" is the sum of the squared noise of the clients, divided by the square of the sum of their noise.
            # It is 1 / N if all N clients have the same noise, and 1 if one client has all the noise.
            "loud": np.array(float(np.mean(total["noise"])) / (float(total["loudness"]) ** 2 or 1.0)),
        }
        # The mean of the rows is computed without outliers, and `offset` is n times its squared length.
        offset = float(np.sum(total["sums"] ** 2)) / model.n if not model.center else 0.0
        return replace(done, left=left, trace=float(total["squares"]), offset=offset)
