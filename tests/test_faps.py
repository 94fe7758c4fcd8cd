"""Test FAPS with the paper's penalties: its speed, the advice to use SSI, and its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import sine

from flower_pca import make, simulate
from flower_pca.algorithms.faps import FAPS, PaperRule, speed_relative_to_ssi
from flower_pca.algorithms.ssi import SSI

Array = np.ndarray[Any, Any]
PAPER = "faps(penalty='paper')"
SPECTRA = {
    "a large gap": (np.array([1.0, 0.9, 0.8, 0.5, 0.45, 0.3, 0.2, 0.1, 0.05]), 3),
    "a small gap": (np.array([1.0, 0.9, 0.8, 0.78, 0.45, 0.3, 0.2, 0.1, 0.05]), 3),
    "as in the paper": (1.01 ** (-2.0 * np.arange(40)), 5),
    "a large first": (np.array([1.0, 0.3, 0.1, 0.05, 0.02, 0.003]), 2),
}


def modeled(values: Array, k: int, rounds: int, beta_0: float = 0.15) -> Array:
    """The sines that are left of clients alike, whose inner problems LAPACK solves: C is diagonal."""
    C, b = np.diag(values), beta_0 * values[0]
    Z = np.linalg.qr(np.random.default_rng(0).standard_normal((len(C), k)))[0]
    Z = np.linalg.qr(np.linalg.matrix_power(C, 6) @ Z)[0]
    X, sines = Z, []
    for _ in range(rounds):
        CX = C @ X
        L = X @ (X @ (X.T @ CX) - CX).T
        X = np.linalg.eigh(C + L + L.T + b * Z @ Z.T)[1][:, -k:]
        CX = C @ X
        L = X @ (X @ (X.T @ CX) - CX).T
        Z = np.linalg.qr((b * X @ X.T - L - L.T) @ Z)[0]
        sines.append(np.linalg.norm(Z[k:], 2))
    return np.array(sines)


def rate(sines: Array) -> float:
    """By which the newest sines fall a round, as long as they are more than rounding."""
    large = sines[sines > 1e-11]
    return float((large[-1] / large[-6]) ** 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("beta_0", [0.15, 0.4])
def test_the_angle_falls_by_the_penalty_over_penalty_and_gap(name: str, beta_0: float) -> None:
    values, k = SPECTRA[name]
    b, gap = beta_0 * values[0], values[k - 1] - values[k]
    found = rate(modeled(values, k, 400, beta_0))
    assert found == pytest.approx(b / (b + gap), rel=5e-3)
    ssi = values[k] / values[k - 1]
    assert speed_relative_to_ssi(values[k - 1], values[k], penalty=b) == pytest.approx(
        np.log(found) / np.log(ssi), rel=1e-2
    )


def equal_products(values: Array, clients: int = 3) -> list[Array]:
    """Clients whose X'X is the same diagonal matrix, scaled by their number."""
    return [np.diag(np.sqrt(values / clients))] * clients


def course(algorithm: Any, values: Array, k: int) -> Array:
    sines: list[float] = []
    true = np.eye(len(values))[:k]

    def watch(run: Any) -> None:
        sines.append(sine(run.estimate().T[:k], true))

    simulate(algorithm, equal_products(values), n_components=k, center=False, on_round=watch)
    return np.array(sines)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a large gap", "a large first"])
def test_a_run_falls_as_fast_where_inner_problems_are_solved(name: str) -> None:
    values, k = SPECTRA[name]
    b, gap = 0.15 * values[0], values[k - 1] - values[k]
    solved = make("faps", penalty="paper", inner_steps=100, theta=0.0, tol=0.0, max_rounds=60, patience=60)
    assert rate(course(solved, values, k)) == pytest.approx(b / (b + gap), rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "k", "says"),
    [
        (np.array([1.0, 0.06, 0.05, 0.03, 0.01, 0.001]), 3, "at best 0.2"),
        (SPECTRA["a large first"][0], 2, "at best 0.7"),
        (SPECTRA["a small gap"][0], 3, ""),
    ],
)
def test_a_run_says_where_ssi_is_faster_and_only_there(values: Array, k: int, says: str) -> None:
    b = 0.15 * values[0]
    share = np.log1p((values[k - 1] - values[k]) / b) / np.log(values[k - 1] / values[k])
    result = simulate("faps(penalty='paper', max_rounds=40)", equal_products(values), n_components=k, center=False)
    assert (share < 1.0) == ("ssi and krylov are faster" in result.status.words), result.status
    assert says in result.status.words
    measured = simulate("faps(max_rounds=40)", equal_products(values), n_components=k, center=False)
    assert "ssi" not in measured.status.words


@pytest.mark.slow
def test_ssi_is_faster_where_the_status_says_so() -> None:
    values, k = np.array([1.0, 0.06, 0.05, 0.03, 0.01, 0.001]), 3
    faps, ssi = (course(make(name, tol=1e-9), values, k) for name in (PAPER, SSI.name))
    rounds = [int(np.flatnonzero(sines <= 1e-6)[0]) for sines in (faps, ssi)]
    assert rounds[0] > 2 * rounds[1]


@pytest.mark.parametrize(("last", "penalty", "limit"), [(0.5, 0.15, 10 / 3), (0.1, 0.15, 2 / 3)])
def test_where_gaps_are_small_it_is_the_last_eigenvalue_over_the_penalty(
    last: float, penalty: float, limit: float
) -> None:
    assert speed_relative_to_ssi(last, None, penalty=penalty) == pytest.approx(limit)
    assert speed_relative_to_ssi(last, last * (1 - 1e-6), penalty=penalty) == pytest.approx(limit, rel=1e-4)
    nearer = [speed_relative_to_ssi(last, share * last, penalty=penalty) for share in (0.0, 0.1, 0.5, 0.9, 1.0)]
    assert nearer == sorted(nearer)
    assert 0.0 < nearer[0] < 0.1


@pytest.mark.slow
def test_the_papers_numbers_are_defaults_and_no_message_names_them() -> None:
    rows = np.random.default_rng(0).standard_normal((30, 6)) * np.linspace(3.0, 1.0, 6)
    sent: list[set[str]] = []

    def runs(spec: str) -> Any:
        return simulate(spec, [rows[:15], rows[15:]], n_components=2, max_rounds=12, tol=1e-12, on_round=note)

    def note(run: Any) -> None:
        if run.history[-1].stage != "ritz" and run.position.stage is run.algorithm:
            sent.append(set(run.algorithm.broadcast(run.position.state)))

    plain, spelt = runs(PAPER), runs("faps(penalty='paper', beta_0=0.15, theta=0.1, mu=0.01)")
    np.testing.assert_array_equal(plain.components_, spelt.components_)
    assert set().union(*sent) == {"Z", "inner_steps", "inner_tol"}
    sent.clear()
    other = runs("faps(penalty='paper', beta_0=2, mu=0.5)")
    assert set().union(*sent) == {"Z", "inner_steps", "inner_tol", "beta_0", "mu"}
    assert sine(other.components_, plain.components_) > 1e-6
    assert other.algorithm == "faps(tol=1e-12, max_rounds=12, penalty='paper', beta_0=2, mu=0.5)"


def test_a_penalty_grows_where_the_distance_has_not_fallen_enough() -> None:
    rule, distances = PaperRule(theta=0.5, mu=0.1), np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.95])
    assert rule.next_penalty(2.0, distances[:5])[0] == 2.0
    grown, rest = rule.next_penalty(2.0, distances)
    assert (grown, list(rest)) == (3.0, [0.95])
    assert rule.next_penalty(2.0, np.append(distances[:5], 0.9))[0] == 2.0
    assert PaperRule.from_message({"theta": np.array(0.5)}) == PaperRule(theta=0.5)


def top(C: Array, k: int) -> Array:
    return np.linalg.eigh(C)[1][:, ::-1][:, :k]


def measured_anew(covariances: list[Array], Z: Array, rounds: int) -> list[Array]:
    """The blocks of as many rounds with measured penalties, where LAPACK solves all inner problems."""
    k, blocks = Z.shape[1], []
    X = [Z] * len(covariances)
    W = [Z @ (Z.T @ C @ Z) - C @ Z for C in covariances]
    for _ in range(rounds):
        total = np.zeros_like(Z)
        outside = np.eye(len(Z)) - Z @ Z.T
        for i, C in enumerate(covariances):
            d = np.linalg.eigvalsh(outside @ C @ outside)[-1]
            a, Q = np.linalg.eigh(Z.T @ C @ Z)
            delta = max(0.0, 1.0 - a[0] / d)
            t, kappa = 0.15 + 0.6 * delta, 2.0 + 2.0 * delta
            B = (Q * np.maximum(t * a, kappa * (d - a))) @ Q.T
            V = top(C + X[i] @ W[i].T + W[i] @ X[i].T + Z @ B @ Z.T, k)
            A, along = V.T @ C @ V, V.T @ Z
            X[i], W[i] = V, V @ A - C @ V
            total += t * V @ A @ along - V @ (W[i].T @ Z) - W[i] @ along
        Z = np.linalg.qr(total)[0]
        blocks.append(Z)
    return blocks


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_the_error_of_the_method_itself_does_not_fall_in_every_round(seed: int) -> None:
    """A round may step past the solution, whoever solves the inner problems. Hence a run that is cut may, too."""
    rng = np.random.default_rng(seed)
    shards = [rng.standard_normal((60, 8)) * [2.0, 1.7, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5] for _ in range(3)]
    mean = np.vstack(shards).mean(axis=0)
    covariances = [(X - mean).T @ (X - mean) for X in shards]
    true = top(sum(covariances), 2).T
    blocks: list[Array] = []

    class Watched(FAPS):
        def server(self, state: Any, total: Any, answered: frozenset[int]) -> Any:
            blocks.append(state.Z)
            return super().server(state, total, answered)

    simulate(Watched(inner_steps=300, tol=0.0, max_rounds=9), shards, n_components=2, seed=seed)
    anew = [blocks[0], *measured_anew(covariances, blocks[0], 8)]
    assert max(sine(own.T, Z.T) for own, Z in zip(anew, blocks, strict=True)) < 1e-3
    for errors in ([sine(true, Z.T) for Z in blocks], [sine(true, Z.T) for Z in anew]):
        assert errors[2] > 1.1 * errors[1]
