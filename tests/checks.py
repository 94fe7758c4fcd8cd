"""The promises of every algorithm, as functions of its name, a seed and an empty folder.

FOR_ALL holds for every algorithm of the registry whose result is a plain PCA, FOR_EXACT for those that find the pooled
answer, FOR_AVERAGES for those that combine local answers; FOR_OTHERS is what holds where the result is of another kind
(robust). Which is which follows from the classes, so a new algorithm is checked once listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import (
    SPECTRUM,
    Pooled,
    Problem,
    deal,
    evenly,
    few_rows,
    iid_clients,
    mixed,
    one_row_clients,
    pooled,
    rank_deficient,
    rotation,
    rows,
    separated,
    sine,
    three_clients,
)
from scipy import sparse

from flower_pca import ConfigError, DataError, PCAResult, RobustResult, TripleResult, make, simulate
from flower_pca.algorithms.one_shot import Average
from flower_pca.core import compatible
from flower_pca.core.algorithm import Algorithm, Iterative
from flower_pca.registry import ALGORITHMS, TABLE

TOL = 1e-10
PAPERS = {("faps", parameter) for parameter in ("beta_0", "theta", "mu")}  # parameters of the paper's penalties
SLOW = {"faps": 1e-8}  # It takes many rounds. The promised error follows the tolerance.
ROUNDING = 1e-12  # relative to the first eigenvalue
FLOAT32 = 100.0  # multiples of float32's eps over the gap; a run stops at residuals of 32 eps

Check = Callable[[str, int, Path], None]
# parameters with which an algorithm is exact, if its defaults are not
EXACT_WITH: dict[str, dict[str, Any]] = {"dr_svd": {"rank": 10**6}, "sparse_pca": {"cardinality": 10**6}}
EXACT = {name: entry for name, entry in TABLE.items() if entry.algorithm.orthonormal and entry.algorithm.pooled}
PLAIN = [name for name, entry in EXACT.items() if entry.result is PCAResult]
ROBUST = [name for name, entry in TABLE.items() if issubclass(entry.result, RobustResult | TripleResult)]


def suiting(option: str) -> list[str]:
    """The algorithms that go with the option, and find the pooled answer."""
    kinds = {name: entry.algorithm() for name, entry in TABLE.items() if entry.result is PCAResult}
    return [
        name for name, stage in kinds.items() if not compatible.missing_properties(stage, option) and not averages(name)
    ]


def averages(name: str) -> bool:
    """Whether it combines local answers, which is not the pooled answer."""
    return issubclass(ALGORITHMS[name], Average)


def exact(name: str, tol: float = TOL) -> Algorithm[Any]:
    """Set so that it promises the pooled answer: to tol if it iterates, to rounding if it sketches all directions."""
    if issubclass(ALGORITHMS[name], Iterative):
        tol = max(tol, SLOW.get(name, 0.0))
        return make(name, tol=tol, max_rounds=5000)  # With a restart, FAPS needs more than its default of 2000 rounds.
    return make(name, **EXACT_WITH.get(name, {}))


def brief(name: str, rounds: int) -> Algorithm[Any]:
    """So many rounds, whatever the error."""
    return make(name, tol=0.0, max_rounds=rounds) if issubclass(ALGORITHMS[name], Iterative) else make(name)


def beside(name: str, parameter: str) -> dict[str, Any]:
    """What else has to be said where a parameter is given."""
    return {"penalty": "paper"} if (name, parameter) in PAPERS else {}


def other_values(name: str) -> dict[str, Any]:
    """Another value for every parameter of an algorithm; of one that is a word, another that its refusal names."""
    values = {}
    for f in fields(ALGORITHMS[name]):
        if f.repr:
            values[f.name] = next(value for value in _others(name, f.name, f.default) if _taken(name, f.name, value))
    return values


def _others(name: str, parameter: str, default: Any) -> list[Any]:
    if isinstance(default, bool):
        return [not default]
    if isinstance(default, int):
        return [2 * default + 1, default + 1]
    if isinstance(default, float):
        return [2.0 * default + 1.0, 0.5 * default + 0.25]
    if default is None:
        return [7, 0.5, True]
    with pytest.raises(ConfigError) as caught:
        make(name, **{parameter: "?"})
    rule = str(caught.value).partition(" must be ")[2].partition(", not ")[0]
    return [word for word in re.findall(r"'(\w+)'", rule) if word != default] or [0.25]


def _taken(name: str, parameter: str, value: Any) -> bool:
    try:
        make(name, **{**beside(name, parameter), parameter: value})
    except ConfigError:
        return False
    return True


def promise(algorithm: Algorithm[Any], reference: Pooled, k: int) -> float:
    """Davis and Kahan: sin <= ||R|| / gap with ||R|| <= sqrt(k) tol lambda_1; a factor 2 for the gap's own error."""
    tol = (algorithm.tol or 1e-8) if isinstance(algorithm, Iterative) else ROUNDING
    return 2.0 * np.sqrt(k) * tol / reference.gap(k)


def agrees(result: PCAResult, reference: Pooled, k: int, bound: float) -> None:
    """Same subspace to the bound, same variances (whose error is quadratic in it), same frame."""
    assert result.status.ok, result.status
    assert sine(result.components_, reference.components[:k]) <= bound, result.status
    error = max(ROUNDING, bound**2) * reference.variances[0]
    np.testing.assert_allclose(result.explained_variance_, reference.variances[:k], rtol=0.0, atol=error)
    np.testing.assert_allclose(result.total_variance_, reference.total, rtol=1e-12)
    np.testing.assert_allclose(result.mean_, reference.mean, rtol=1e-12, atol=1e-12)
    assert result.n_samples_ == reference.n


def orthonormal(result: PCAResult) -> None:
    """Of the components; where they need not be, of the axes of their span, and components have length one."""
    V = result.components_
    lengths = np.linalg.norm(V, axis=1)
    assert np.abs(lengths - 1.0).max() <= 1e-13, f"components must have length 1, and have {lengths}"
    A = V if result.cross_ is None else result.axes[0].T
    products = A @ A.T
    off = np.abs(products - np.eye(len(A))).max()
    assert off <= 1e-13, f"components must be orthonormal, or the class say orthonormal = False; products:\n{products}"


def openings(result: PCAResult) -> int:
    return len(result.history.of("opening"))


def is_of(result: PCAResult, name: str, shards: list[Any], k: int, seed: int, center: bool = True) -> None:
    """The answer of just these clients: LAPACK's, or of an average that of a run that never knew any other."""
    reference = pooled(shards, center=center)
    if averages(name):
        fresh = simulate(name, shards, n_components=k, seed=seed, center=center)
        assert sine(result.components_, fresh.components_) <= 1e-10
        np.testing.assert_allclose(result.explained_variance_, fresh.explained_variance_, rtol=1e-10)
        np.testing.assert_allclose(result.mean_, reference.mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(result.total_variance_, reference.total, rtol=1e-12)
        assert result.n_samples_ == reference.n
    else:
        agrees(result, reference, k, promise(exact(name), reference, k))


def _solves(name: str, problem: Problem, seed: int, tol: float = TOL) -> None:
    algorithm, reference = exact(name, tol), pooled(problem.shards)
    result = simulate(algorithm, problem.shards, n_components=problem.k, seed=seed)
    agrees(result, reference, problem.k, promise(algorithm, reference, problem.k))


def matches_lapack(name: str, seed: int, folder: Path) -> None:
    _solves(name, mixed(seed), seed)


def partition_invariant(name: str, seed: int, folder: Path) -> None:
    X = np.vstack(mixed(seed).shards)
    for clients in (1, 3, 10):
        _solves(name, Problem(evenly(X, clients), 3), seed)


def rotation_equivariant(name: str, seed: int, folder: Path) -> None:
    problem, R = mixed(seed), rotation(12, seed + 100)
    algorithm, turned = exact(name), [X @ R for X in problem.shards]
    a, b = (simulate(algorithm, s, n_components=3, seed=seed) for s in (problem.shards, turned))
    bound = 2.0 * promise(algorithm, pooled(problem.shards), 3)
    assert sine(a.components_ @ R, b.components_) <= bound
    error = max(ROUNDING, bound**2) * a.explained_variance_[0]
    np.testing.assert_allclose(a.explained_variance_, b.explained_variance_, rtol=0.0, atol=error)


def client_order_invariant(name: str, seed: int, folder: Path) -> None:
    problem = mixed(seed)
    for order in ((2, 0, 1), (1, 0, 2)):
        shards = [problem.shards[i] for i in order]
        a, b = (simulate(brief(name, 4), s, n_components=3, seed=seed) for s in (problem.shards, shards))
        assert sine(a.components_, b.components_) <= 1e-10
        np.testing.assert_allclose(a.explained_variance_, b.explained_variance_, rtol=1e-10)


def orthonormal_components(name: str, seed: int, folder: Path) -> None:
    for problem, k in (
        (mixed(seed), 1),
        (three_clients(seed), 3),
        (separated(seed), 8),
        (rank_deficient(seed), 8),
        (few_rows(seed), 3),
    ):
        orthonormal(simulate(brief(name, 3), problem.shards, n_components=k, seed=seed))


def ritz_values_never_above(name: str, seed: int, folder: Path) -> None:
    for problem in (mixed(seed), three_clients(seed)):
        true = pooled(problem.shards).variances
        for rounds in (1, 2, 5):
            result = simulate(brief(name, rounds), problem.shards, n_components=problem.k, seed=seed)
            assert (result.explained_variance_ <= true[: problem.k] + ROUNDING * true[0]).all()
            assert (np.diff(result.explained_variance_) <= 0.0).all()


def residuals_are_true(name: str, seed: int, folder: Path) -> None:
    """The reported residuals are ||C z - theta z|| / theta_1, and bound the angle as Davis and Kahan say."""
    problem = mixed(seed)
    reference, X = pooled(problem.shards), np.vstack(problem.shards)
    C = np.cov(X, rowvar=False)
    for rounds in (1, 3):
        r = simulate(brief(name, rounds), problem.shards, n_components=3, seed=seed)
        R = C @ r.components_.T - r.components_.T * r.explained_variance_
        np.testing.assert_allclose(
            r.residuals_, np.linalg.norm(R, axis=0) / r.explained_variance_[0], rtol=1e-6, atol=ROUNDING
        )
        gap = r.explained_variance_[-1] - reference.variances[3]
        assert gap > 0.0
        bound = np.linalg.norm(r.residuals_) * r.explained_variance_[0] / gap
        assert sine(r.components_, reference.components[:3]) <= bound + ROUNDING


def rank_deficient_data(name: str, seed: int, folder: Path) -> None:
    problem = rank_deficient(seed)
    reference = pooled(problem.shards)
    for k in (2, 3, 5):
        result = simulate(exact(name), problem.shards, n_components=k, seed=seed)
        orthonormal(result)
        assert result.status.ok
        if k >= 3:  # The three existing components are found, whatever spans the rest.
            assert sine(result.components_[:3], reference.components[:3]) <= 1e-9
            true = reference.variances
            np.testing.assert_allclose(result.explained_variance_, true[:k], rtol=0.0, atol=ROUNDING * true[0])


def all_components(name: str, seed: int, folder: Path) -> None:
    """k = d: the closing Rayleigh-Ritz makes every algorithm exact."""
    problem = separated(seed)
    reference = pooled(problem.shards)
    result = simulate(exact(name), problem.shards, n_components=10, seed=seed)
    orthonormal(result)
    true = reference.variances
    np.testing.assert_allclose(result.explained_variance_, true, rtol=0.0, atol=ROUNDING * true[0])
    assert abs(result.explained_variance_ratio_.sum() - 1.0) <= 1e-12
    for j in range(4):
        assert sine(result.components_[j : j + 1], reference.components[j : j + 1]) <= 1e-10


def a_client_with_few_rows(name: str, seed: int, folder: Path) -> None:
    X = rows(160, [8.0, 6.0, 4.5, *SPECTRUM[3:12]], seed=seed)
    for sizes in ((158, 2), (159, 1), (100, 57, 2, 1)):
        problem = Problem(deal(X, sizes), 3)
        if averages(name):
            result = simulate(name, problem.shards, n_components=3, seed=seed)
            orthonormal(result)
            assert result.n_samples_ == 160
        else:
            _solves(name, problem, seed)


def one_row_per_client(name: str, seed: int, folder: Path) -> None:
    problem = one_row_clients(seed)
    if averages(name):
        result = simulate(name, problem.shards, n_components=2, seed=seed)
        orthonormal(result)
        assert result.n_samples_ == len(problem.shards)
    else:
        _solves(name, problem, seed, tol=1e-6)


def float32_rows(name: str, seed: int, folder: Path) -> None:
    """Against the same numbers in float64: LAPACK's answer, or the average's own."""
    shards = [X.astype(np.float32) for X in mixed(seed).shards]
    wide = [X.astype(np.float64) for X in shards]
    reference = pooled(wide)
    result = simulate(exact(name), shards, n_components=3, seed=seed)
    answer = simulate(name, wide, n_components=3, seed=seed).components_ if averages(name) else reference.components[:3]
    orthonormal(result)
    assert result.status.ok
    assert sine(result.components_, answer) <= FLOAT32 * np.finfo(np.float32).eps / reference.gap(3)


def fewer_rows_than_columns(name: str, seed: int, folder: Path) -> None:
    """Of n rows, n - 1 directions are left once they are centered."""
    X = rows(9, 8.0 * 0.7 ** np.arange(20), seed=seed)
    shards, reference = deal(X, (4, 3, 2)), pooled([X])
    for k in (2, 8):
        result = simulate(exact(name), shards, n_components=k, seed=seed)
        orthonormal(result)
        assert result.n_samples_ == 9
        if not averages(name):
            assert sine(result.components_, reference.components[:k]) <= 1e-7
            true = reference.variances
            np.testing.assert_allclose(result.explained_variance_, true[:k], rtol=0.0, atol=ROUNDING * true[0])


def zeros_beside_others(name: str, seed: int, folder: Path) -> None:
    """A client of nothing but zeros, dense or sparse, is rows like any others."""
    problem = mixed(seed)
    for zeros in (np.zeros((7, 12)), sparse.csr_array((7, 12))):
        shards = [*problem.shards, zeros]
        result = simulate(exact(name), shards, n_components=3, center=False, seed=seed)
        orthonormal(result)
        assert result.n_samples_ == sum(len(X) for X in problem.shards) + 7
        if not averages(name):
            agrees(result, pooled(shards, center=False), 3, promise(exact(name), pooled(shards, center=False), 3))


def zero_data(name: str, seed: int, folder: Path) -> None:
    with pytest.raises(DataError, match="contain only zeros"):
        simulate(name, [np.zeros((5, 6)), np.zeros((3, 6))], n_components=2, seed=seed)


def close_on_iid_clients(name: str, seed: int, folder: Path) -> None:
    """sin <= 2 max_i ||E_i|| / (gap - ||E_i||), E_i = C_i / n_i - C / n: Davis and Kahan, client by client."""
    problem = iid_clients(seed)
    reference = pooled(problem.shards)
    C = np.vstack(problem.shards) - reference.mean
    C = C.T @ C / len(C)
    off = max(np.linalg.norm((X - reference.mean).T @ (X - reference.mean) / len(X) - C, 2) for X in problem.shards)
    values = np.linalg.eigvalsh(C)[::-1]
    gap = values[2] - values[3]
    assert values[3] + off <= gap / 2  # The part that a weighted average leaves out is then no larger than its error.
    bound = 2.0 * off / (gap - off)
    assert bound < 0.6
    assert (
        sine(simulate(name, problem.shards, n_components=3, seed=seed).components_, reference.components[:3]) <= bound
    )


def exact_for_one_client(name: str, seed: int, folder: Path) -> None:
    problem = Problem([np.vstack(mixed(seed).shards)], 3)
    agrees(simulate(name, problem.shards, n_components=3, seed=seed), pooled(problem.shards), 3, 1e-10)


FOR_ALL: tuple[Check, ...] = (
    client_order_invariant, rotation_equivariant, orthonormal_components, ritz_values_never_above, residuals_are_true,
    rank_deficient_data, all_components, a_client_with_few_rows, one_row_per_client, float32_rows, zero_data,
    fewer_rows_than_columns, zeros_beside_others,
)  # fmt: skip
FOR_EXACT: tuple[Check, ...] = (matches_lapack, partition_invariant)
FOR_AVERAGES: tuple[Check, ...] = (close_on_iid_clients, exact_for_one_client)
FOR_OTHERS: tuple[Check, ...] = (client_order_invariant, orthonormal_components, zero_data)
