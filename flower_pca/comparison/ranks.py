"""Tables that help to choose numbers of shared and local components, and show the benefit of personalization.

Examples
--------
>>> import numpy as np
>>> from flower_pca.comparison.ranks import rank_table
>>> rng = np.random.default_rng(0)
>>> scales = [[6, 4, 0.1, 0.1], [6, 0.1, 4, 0.1], [6, 0.1, 4, 0.1]]  # all share the first direction
>>> sites = [rng.standard_normal((60, 4)) * scale for scale in scales]
>>> for ranks in rank_table(sites, [(1, 0), (1, 1)]):
...     print(ranks.shared, ranks.own, ranks.error < 0.1)
1 0 False
1 1 True
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flower_pca.algorithms.personal import deflation
from flower_pca.base import labels
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.core.config import PCAConfig
from flower_pca.registry import make
from flower_pca.results.matching import with_columns_in_order
from flower_pca.results.personal import PersonalResult
from flower_pca.rows.frame import Frame, fill_sparse_gaps
from flower_pca.rows.local import LocalData
from flower_pca.simulation.in_process import simulate
from flower_pca.simulation.sites import sites_of


@dataclass(frozen=True)
class Ranks:
    """The figures of a run with one pair of numbers of components.

    Too many local components lower theta. If there are too many shared components, they include local
    directions of a client.

    Attributes
    ----------
    shared, own : int
        The numbers of shared and of local components.
    error : float
        The mean over clients of the mean squared reconstruction error of a row.
    theta : float
        The theta of the run, which is near 0 if shared and local components cannot be separated.
    """

    shared: int
    own: int
    error: float
    theta: float


def rank_table(
    shards: Sequence[Any],
    pairs: Iterable[tuple[int, int]],
    *,
    test: Sequence[Any] | None = None,
    algorithm: str = "exact_per_pca",
    **settings: Any,
) -> list[Ranks]:
    """Return the reconstruction error and theta for each pair of numbers of shared and local components.

    Each pair takes one run. Choose a pair with theta clearly above 0, for which larger numbers reduce the
    error only a little.

    Parameters
    ----------
    shards : sequence
        The rows of each client, as for `simulate`.
    pairs : iterable of tuples
        The pairs to try. The first number is the number of shared components, and the second the number of local
        components.
    test : sequence or None, default=None
        Further rows of each client. The runs do not use these rows, and the error is computed on them. The default is
        `shards`.
    algorithm : str, default="exact_per_pca"
        The algorithm, without numbers of components.
    **settings
        Further arguments of `simulate`.
    """
    table, shards = [], sites_of(shards)
    for shared, own in pairs:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="theta is", category=UserWarning)
            result = _require_personal(
                simulate(make(algorithm, local_components=own), shards, n_components=shared, **settings)
            )
        numbered = enumerate(_test_or_shards(test, shards))
        errors = [result.reconstruction_error(X, client=i) for i, X in numbered]
        table.append(Ranks(shared, own, float(np.mean(errors)), result.theta_))
    return table


def alternatives(
    result: PersonalResult, shards: Sequence[Any], *, test: Sequence[Any] | None = None
) -> dict[str, Array]:
    """Return the mean squared error of each client's rows, by method: personalized PCA, and simpler alternatives.

    All methods use r1 + r2 components for each client, where r1 is the number of shared and r2 the number
    of local components. If r2 differs by client, CPCA and the uploads of distPCA use the largest r2.
    "indivPCA" is a separate PCA of each client. "CPCA" is one PCA of all rows. "distPCA" computes shared
    components from one round of uploads (Fan, Wang, Wang, Zhu 2019), and in addition the best local
    components.

    Parameters
    ----------
    result : PersonalResult
        The result of a simulation on these shards.
    shards : sequence
        The rows of each client, as for `simulate`.
    test : sequence or None, default=None
        Rows of each client that the run did not use. The error is computed on these rows. The default is `shards`.
    """
    result, r1, r2 = _require_personal(result), result.n_components_, result.local_components
    names, digest = labels.tuple_of(result.feature_names_in_), result.feature_digest
    if test is not None:
        test = [_with_gaps_filled(with_columns_in_order(X, names, digest), result.fill_) for X in test]
    shards = [_with_gaps_filled(with_columns_in_order(X, names, digest), result.fill_) for X in sites_of(shards)]
    if len(result.local) < len(shards):
        raise DataError(
            f"The result has the local components of {labels.count(len(result.local), 'client')}, but shards has the "
            f"rows of {labels.count(len(shards), 'client')}. Give the result of a simulation on these shards without "
            "hide_local."
        )
    scaled = [X if result.scale_ is None else _divide_by_scale(X, result.scale_) for X in shards]
    frame = Frame(result.mean_ if result.centered else None, result.scale_)
    clients = [LocalData(X).in_frame(frame) for X in shards]
    k = min(r1 + r2, clients[0].d, sum(c.n for c in clients))
    alike = PCAConfig(make("krylov"), n_components=k, center=result.centered, seed=result.seed)
    common = simulate(alike, scaled).components_.T
    uploading = make("dist_pca", local_components=r1 + r2)
    upload = simulate(replace(alike, algorithm=uploading, n_components=r1), scaled).components_.T
    own = [len(result.local_components_of(i)) for i in range(len(clients))]
    bases = {
        "personalized": [np.vstack([result.components_, result.local_components_of(i)]).T for i in range(len(clients))],
        "indivPCA": [c.leading_eigenpairs(r1 + r)[0].astype(np.float64) for c, r in zip(clients, own, strict=True)],
        "CPCA": [common] * len(clients),
        "distPCA": [
            np.hstack([upload, deflation.local_basis(c, upload, r)]) for c, r in zip(clients, own, strict=True)
        ],
    }
    seen = [LocalData(X).in_frame(frame) for X in _test_or_shards(test, shards)]
    return {
        name: np.array([c.squared_error(basis) / c.n for c, basis in zip(seen, each, strict=True)])
        for name, each in bases.items()
    }


def _require_personal(result: object) -> PersonalResult:
    if not isinstance(result, PersonalResult):
        raise ConfigError(
            f"A {type(result).__name__} has no local components, because its algorithm is not personalized. Use the "
            'algorithm "exact_per_pca".'
        )
    return result


def _test_or_shards(test: Sequence[Any] | None, shards: Sequence[Any]) -> Sequence[Any]:
    if test is not None and len(test) != len(shards):
        raise DataError(
            f"The test rows are from {labels.count(len(test), 'client')}, but the run has "
            f"{labels.count(len(shards), 'client')}. Give one array for each shard, in the same order."
        )
    if test is None:
        return shards
    return test


def _with_gaps_filled(X: Any, fill: Array | None) -> Any:
    """Return the rows with missing values replaced as in the run."""
    if fill is None:
        return X
    if hasattr(X, "tocsr"):
        return fill_sparse_gaps(X, fill)
    return np.where(np.isnan(X), fill, X)


def _divide_by_scale(X: Any, scale: Array) -> Any:
    if hasattr(X, "tocsr"):
        return X.multiply(1.0 / scale).tocsr()
    return np.asarray(X) / scale
