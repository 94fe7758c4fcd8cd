"""Comparisons of algorithms: `compare` runs algorithms on the same rows, and compares them with the pooled PCA."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca import registry
from flower_pca.base import checks, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief, shown
from flower_pca.core.algorithm import Algorithm, Iterative
from flower_pca.core.config import COMPONENTS, PCAConfig
from flower_pca.core.drive import Driven
from flower_pca.core.model import fraction_rank
from flower_pca.names.table import Table
from flower_pca.results.pca import PCAResult
from flower_pca.rows.frame import Frame, genotype_scale, merge_moments
from flower_pca.rows.local import LocalData
from flower_pca.simulation.in_process import simulate
from flower_pca.simulation.sites import clients_as_run

LONG: Final = 1000  # the number of rounds from which an algorithm counts as slow
# Up to this number of columns, the reference is computed from one d x d matrix.
_GRAM: Final = 4096


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result of one algorithm, and its distance from the pooled PCA.

    Attributes
    ----------
    algorithm : str
        The text form of the algorithm with its parameters.
    result : PCAResult
        The result of the run.
    angle : float
        The largest angle between the run's components and the pooled components, in radians.
    angles : tuple of float
        The largest angle after each message, if the run had an estimate of the components then.
    messages : tuple of int
        The numbers of the messages to which `angles` belong, counted from 1.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.comparison import compare
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> (compared,) = compare(sites, algorithms=["krylov"], n_components=2)
    >>> compared.result.n_components_, compared.angle < 1e-6
    (2, True)
    """

    algorithm: str
    result: PCAResult
    angle: float
    angles: tuple[float, ...]
    messages: tuple[int, ...]

    __repr__ = brief

    @property
    def seconds(self) -> float:
        """The total time of all messages, in seconds."""
        return sum(record.seconds for record in self.result.history)

    @property
    def bytes(self) -> tuple[int, ...]:
        """The total number of bytes that all clients had sent and received after each message in `messages`."""
        sent = np.cumsum([record.bytes_up + record.bytes_down for record in self.result.history])
        return tuple(int(sent[number - 1]) for number in self.messages)

    def to_json(self) -> dict[str, Any]:
        """Return the figures of the comparison as a dictionary of plain values."""
        history = self.result.history
        return {
            "algorithm": self.algorithm,
            "outcome": self.result.status.outcome.value,
            "rounds": self.result.rounds,
            "messages": len(history),
            "bytes_up": history.bytes_up,
            "bytes_down": history.bytes_down,
            "seconds": self.seconds,
            "angle": self.angle,
            "explained_variance": self.result.explained_variance_.tolist(),
            "course": [
                {"message": m, "bytes": b, "angle": a}
                for m, b, a in zip(self.messages, self.bytes, self.angles, strict=True)
            ],
        }


def compare(
    shards: Sequence[Any],
    *,
    algorithms: Sequence[str | Algorithm[Any]],
    n_components: int | float | str = COMPONENTS,
    center: bool = True,
    scale: str | None = None,
    missing: str = "error",
    seed: int = 0,
    tol: float | None = None,
    max_rounds: int | None = None,
    on_round: Callable[[Driven], None] | None = None,
) -> tuple[Comparison, ...]:
    """Run each algorithm on the same shards in this process, and return a comparison with the pooled PCA for each.

    The reference is computed from all rows in one place, which is impossible in a federation.

    Parameters
    ----------
    shards : sequence
        One two-dimensional array per client.
    algorithms : sequence of str or Algorithm
        Names, strings with parameters such as "faps(inner_steps=5)", or instances.
    n_components : int, float or str, default=2
        The number of components, or the fraction of the total variance that they must explain, such as 0.95 or "95%".
    center : bool, default=True
        Whether to subtract the mean of all rows.
    scale : None or {"std", "max_abs", "genotype"}, default=None
        How to scale the columns: see `PCAConfig`.
    missing : {"error", "local_mean", "mean"}, default="error"
        What to do with missing values: see `PCAConfig`.
    seed : int, default=0
        The seed of all random numbers.
    tol : float or None, default=None
        The error at which iterative algorithms have converged. By default, each algorithm uses its default.
    max_rounds : int or None, default=None
        Maximum number of rounds of iterative algorithms. By default, each algorithm uses its default.
    on_round : callable or None, default=None
        A function that is called with the run after every round.

    Raises
    ------
    ConfigError
        If a parameter is not valid.
    DataError
        If a shard cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.comparison import compare
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> for compared in compare(sites, algorithms=["krylov", "uda"], n_components=2):
    ...     print(compared.algorithm, compared.angle < 1e-6)
    krylov True
    uda False
    """
    if isinstance(algorithms, str) or len(algorithms) == 0:
        raise ConfigError(
            f"algorithms must be a list with at least one algorithm, not {shown(algorithms)}. For example, give "
            '["krylov", "ssi"].',
            setting="algorithms",
        )
    chosen = [_with_stopping_rule(registry.make(algorithm), tol, max_rounds) for algorithm in algorithms]
    k = checks.components(n_components)
    truth = pooled_components(shards, k, center=center, scale=scale, missing=missing)

    def run(algorithm: Algorithm[Any]) -> Comparison:
        angles = _AngleRecorder(truth, on_round)
        config = PCAConfig(algorithm, n_components=k, center=center, scale=scale, missing=missing, seed=seed)
        return angles.comparison(simulate(config, shards, on_round=angles), algorithm.spec)

    return tuple(map(run, chosen))


class _AngleRecorder:
    """A recorder of the angles between a run's components and the pooled components after every message.

    Parameters
    ----------
    truth : ndarray
        The pooled components.
    on_round : callable or None
        The `on_round` of `compare`.
    """

    def __init__(self, truth: Array, on_round: Callable[[Driven], None] | None) -> None:
        self._truth, self._on_round = truth, on_round
        self._found: dict[int, float] = {}

    def __call__(self, run: Driven) -> None:
        """Record the angle after a message, and call the caller's `on_round`."""
        if (Z := run.estimate()) is not None:
            self._found[len(run.history)] = _angle_to_pooled(Z, self._truth)
        if self._on_round is not None:
            self._on_round(run)

    def comparison(self, result: PCAResult, algorithm: str) -> Comparison:
        """Return the comparison after the run has ended. `algorithm` is the algorithm's text form."""
        angle = _angle_to_pooled(result.components_.T, self._truth)
        angles = tuple(self._found.values())
        return Comparison(algorithm=algorithm, result=result, angle=angle, angles=angles, messages=tuple(self._found))


def slow(
    shards: Sequence[Any],
    *,
    algorithms: Sequence[str | Algorithm[Any]],
    n_components: int | float | str = COMPONENTS,
    center: bool = True,
    scale: str | None = None,
    missing: str = "error",
    tol: float | None = None,
) -> dict[str, int]:
    """Return the algorithms that would take a thousand rounds or more on these rows, with their estimated rounds.

    With eigenvalues l_j of the pooled rows, power steps with p columns multiply the error of k components
    by l_{p+1} / l_k in each round. Only algorithms that use power steps (`by_power`) are considered.

    Parameters
    ----------
    shards : sequence
        One two-dimensional array per client.
    algorithms : sequence of str or Algorithm
        See `compare`.
    n_components : int, float or str, default=2
        See `compare`.
    center : bool, default=True
        See `compare`.
    scale : None or {"std", "max_abs", "genotype"}, default=None
        See `compare`.
    missing : {"error", "local_mean", "mean"}, default="error"
        See `compare`.
    tol : float or None, default=None
        See `compare`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.comparison import slow
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> slow(sites, algorithms=["ssi", "krylov"])  # none of them is slow on these rows
    {}
    """
    wanted = checks.components(n_components)
    values = pooled_eigenpairs(shards, wanted, center=center, scale=scale, missing=missing)[0]
    if isinstance(wanted, int):
        k = wanted
    else:
        k = fraction_rank(values, float(values.sum()), wanted) or len(values)
    found = {}
    for algorithm in map(registry.make, algorithms):
        p = k + algorithm.oversample
        if not isinstance(algorithm, Iterative) or not algorithm.by_power or p >= len(values):
            continue
        fall = -np.log(max(float(values[p] / values[k - 1]), np.finfo(float).tiny))
        rounds = np.log(1.0 / (algorithm.tolerance if tol is None else tol)) / (2.0 * max(fall, np.finfo(float).eps))
        if rounds >= LONG:
            found[algorithm.spec] = round(float(f"{rounds:.1g}"))
    return found


def pooled_components(
    shards: Sequence[Any], n_components: int | float, *, center: bool, scale: str | None, missing: str
) -> Array:
    """Return the leading directions of the pooled rows as the columns of a matrix, at least one for each component."""
    return pooled_eigenpairs(shards, n_components, center=center, scale=scale, missing=missing)[1]


def pooled_eigenpairs(
    shards: Sequence[Any], n_components: int | float, *, center: bool, scale: str | None, missing: str
) -> tuple[Array, Array]:
    """Return the leading eigenvalues of X'X of the pooled rows, and their eigenvectors.

    The number of eigenvalues is at least the number of components plus two, unless X'X has fewer.
    """
    # The columns have the same order as in a run, because angles compare columns by position.
    clients = clients_as_run(shards, missing=missing != "error")
    own = Frame(own=missing == "local_mean")
    total = functools.reduce(merge_moments, (client.in_frame(own).moments() for client in clients))
    divisor: Array | None = None
    if scale == "std":
        divisor = np.sqrt(total.m2 / total.value_counts)
    elif scale == "max_abs":
        divisor = np.max([client.largest_absolute() for client in clients], axis=0)
    elif scale == "genotype":
        divisor = genotype_scale(total.mean, total.n)
    if divisor is not None:
        divisor = np.where(divisor > 0.0, divisor, 1.0)
    frame = Frame(total.mean if center else None, divisor, None if missing == "error" else total.mean, own=own.own)
    d = clients[0].d
    if d <= _GRAM:
        C = sum((client.in_frame(frame, once=True).gram() for client in clients), np.zeros((d, d)))
        return linalg.eigh_descending(C)
    k = min(total.n, d)
    if isinstance(n_components, int):
        k = min(k, n_components + 2)
    V, values = (
        LocalData(
            Table.together([Table(client.stored_array()) for client in clients], {}).rows, missing=missing == "mean"
        )
        .in_frame(frame)
        .leading_eigenpairs(k)
    )
    return values, V


def _angle_to_pooled(Z: Array, truth: Array) -> float:
    return float(linalg.principal_angles(linalg.orth(Z), truth[:, : Z.shape[1]])[-1])


def _with_stopping_rule(algorithm: Algorithm[Any], tol: float | None, max_rounds: int | None) -> Algorithm[Any]:
    """Return the algorithm with these stopping criteria, or unchanged if it is not iterative."""
    if isinstance(algorithm, Iterative) and tol is not None:
        algorithm = replace(algorithm, tol=tol)
    if isinstance(algorithm, Iterative) and max_rounds is not None:
        algorithm = replace(algorithm, max_rounds=max_rounds)
    return algorithm
