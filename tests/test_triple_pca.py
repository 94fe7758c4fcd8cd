"""Test triple_pca against planted subspaces and a numpy reference of its step."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from builders import sine
from cases import slow_if

from flower_pca import ExactPerPCA, Outcome, PCAResult, TripleResult, client_half, make, simulate
from flower_pca.algorithms.personal.closing import OWN
from flower_pca.base.history import Status
from flower_pca.rows.local import LocalData

SHARED, APART = 3, 2
SPEC = f"triple_pca(local_components={APART})"


class Planted(NamedTuple):
    U: Any
    V: list[Any]
    clean: list[Any]
    S: list[Any]

    @property
    def rows(self) -> list[Any]:
        return [X + S for X, S in zip(self.clean, self.S, strict=True)]


@functools.cache
def planted(seed: int, *, far: float, size: float = 100.0, uneven: bool = False, sign: bool = True) -> Planted:
    """Eight clients of 200 rows, 40 columns: noise of .1, or from .02 to .4; far entries of 1 to 1.5 `size`."""
    rng, n, d = np.random.default_rng(seed), 200, 40
    U = np.linalg.qr(rng.standard_normal((d, SHARED)))[0]
    noise = 0.1 * np.exp(rng.uniform(-1.5, 1.5, d)) if uneven else 0.1
    found = Planted(U, [], [], [])
    for _ in range(8):
        V = rng.standard_normal((d, APART))
        V = np.linalg.qr(V - U @ (U.T @ V))[0]
        L = 3.0 * rng.standard_normal((n, SHARED)) @ U.T + 2.0 * rng.standard_normal((n, APART)) @ V.T
        signs = rng.choice([-1.0, 1.0], (n, d)) if sign else 1.0
        S = (rng.random((n, d)) < far) * signs * size * (1.0 + rng.random((n, d)) / 2.0)
        found.V.append(V)
        found.clean.append(L + noise * rng.standard_normal((n, d)))
        found.S.append(S)
    return found


@functools.cache
def run_triple(seed: int, far: float, **settings: Any) -> TripleResult:
    result = simulate(SPEC, planted(seed, far=far, **settings).rows, n_components=SHARED)
    assert isinstance(result, TripleResult)
    return result


KINDS = {
    "far": {},
    "near": {"size": 8.0},
    "of one sign": {"size": 8.0, "sign": False},
    "noise by column": {"uneven": True, "size": 20.0},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("far", "kind"),
    slow_if([(0.1, "far"), (0.02, "near"), (0.05, "of one sign"), (0.1, "noise by column")], *list(KINDS)[1:]),
)
def test_shared_components_are_found_as_from_clean_rows(far: float, kind: str) -> None:
    problem, result = planted(1, far=far, **KINDS[kind]), run_triple(1, far, **KINDS[kind])
    plain = f"exact_per_pca(local_components={APART}, tol=1e-8)"
    clean = simulate(plain, problem.clean, n_components=SHARED, center=False)
    assert result.status.ok
    best = sine(clean.components_, problem.U.T)
    assert sine(result.components_, problem.U.T) <= max(1.2 * best, 0.010)
    if kind == "far":
        assert best <= 0.009
        spoilt = simulate(f"exact_per_pca(local_components={APART}, max_rounds=20)", problem.rows, n_components=SHARED)
        assert sine(spoilt.components_, problem.U.T) >= 0.9


@pytest.mark.slow
def test_own_components_and_what_was_taken_out_are_those_planted() -> None:
    problem, result = planted(2, far=0.05), run_triple(2, 0.05)
    for i, own in result.local.items():
        assert sine(own[OWN], problem.V[i].T) <= 0.05
        taken, far = own["S"] != 0.0, problem.S[i] != 0.0
        assert (taken & far).sum() == far.sum()
        assert (taken & ~far).mean() <= 1e-3
        np.testing.assert_allclose(own["S"][far], problem.S[i][far], atol=0.6)
        assert np.sqrt(np.mean((own["L"] + own["S"] - problem.rows[i])[~taken] ** 2)) == pytest.approx(
            0.1 * np.sqrt(1.0 - 5.0 / 40.0), rel=0.03
        )
    shares = np.mean([(own["S"] != 0.0).mean(axis=0) for own in result.local.values()], axis=0)
    np.testing.assert_allclose(result.removed_share_, shares, atol=1e-12)
    np.testing.assert_allclose(result.noise_, 0.1, rtol=0.2)
    assert result.threshold_ == 4.0


@pytest.mark.slow
def test_a_mean_is_one_shared_component_more() -> None:
    problem = planted(1, far=0.05, size=50.0)
    result = simulate(SPEC, [X + 5.0 for X in problem.rows], n_components=SHARED + 1)
    assert result.status.ok
    ones = np.full((1, 40), 40**-0.5)
    assert sine(np.linalg.qr(np.vstack([problem.U.T, ones]).T)[0].T, result.components_) <= 0.012


@pytest.mark.slow
def test_nothing_is_taken_out_of_rows_without_far_entries() -> None:
    result = run_triple(3, 0.0)
    assert result.removed_share_.max() <= 2e-3
    assert result.total_variance_ * result.n_samples_ == pytest.approx(
        sum(np.sum(X**2) for X in planted(3, far=0.0).clean), rel=1e-3
    )


# An independent reference of the client's half, entry by entry.


def steps_by_hand(X: Any, U: Any, own: int, cut: float, steps: int) -> tuple[Any, Any, Any]:
    """Z, L and the far entries after so many steps from nothing, in plain numpy."""
    L, far = np.tile(np.median(X, axis=0), (len(X), 1)), np.zeros(X.shape, dtype=bool)

    def judged() -> None:
        for j in range(X.shape[1]):
            sizes = np.abs(X[:, j] - L[:, j])
            limit = cut * 1.4826 * np.median(sizes[sizes > 0.0])
            for i in range(len(X)):
                far[i, j] = sizes[i] > (0.5 * limit if far[i, j] else limit)

    judged()
    size = np.mean(np.sum(np.where(far, L, X) ** 2, axis=1))
    for _ in range(steps):
        clean = np.where(far, L, X)
        P = np.eye(len(U)) - U @ U.T
        V = np.linalg.eigh(P @ clean.T @ clean @ P)[1][:, ::-1][:, :own]
        L = clean @ (U @ U.T + V @ V.T)
        judged()
    clean = np.where(far, L, X)
    S = clean.T @ clean / len(X)
    return (np.eye(len(U)) - V @ V.T) @ S @ U / size, L, far


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2])
def test_a_client_answers_as_plain_numpy_does(steps: int) -> None:
    problem = planted(4, far=0.05)
    X, U = problem.rows[0], problem.U
    numbers = {"own": APART, "samples": False, "steps": 0, "cut": 4.0, "inner": steps}
    arrays = {"U": U, "b": np.eye(len(U))[:, :1], **{name: np.array(value) for name, value in numbers.items()}}
    up, memory = client_half.answer("triple_pca", arrays, LocalData(X), {})
    Z, L, far = steps_by_hand(X, U, APART, 4.0, 10 * steps)
    np.testing.assert_allclose(up["Z"], Z, atol=1e-10 * np.abs(Z).max())
    np.testing.assert_allclose(memory["T"] @ memory["W"].T, L, atol=1e-9)
    np.testing.assert_array_equal(memory["far"], np.flatnonzero(far))


@pytest.mark.slow
def test_columns_that_are_mostly_zero_or_constant_are_no_far_entries() -> None:
    problem = planted(5, far=0.02)
    rows = [np.hstack([X, np.zeros((len(X), 1)), np.r_[np.zeros(150), np.ones(50)][:, None]]) for X in problem.rows]
    result = simulate(SPEC, rows, n_components=SHARED)
    assert result.status.ok
    assert result.removed_share_[-2] <= 0.01
    assert np.isfinite(result.components_).all()
    assert sine(result.components_[:, :-2], problem.U.T) <= 0.012


@pytest.mark.slow
def test_gaps_count_for_nothing() -> None:
    problem = planted(6, far=0.05)
    rng = np.random.default_rng(0)
    rows = [np.where(rng.random(X.shape) < 0.1, np.nan, X) for X in problem.rows]
    result = simulate(SPEC, rows, n_components=SHARED, missing="mean")
    assert result.status.ok
    assert sine(result.components_, problem.U.T) <= 0.010
    assert all(not own["S"][np.isnan(X)].any() for own, X in zip(result.local.values(), rows, strict=True))


@pytest.mark.slow
def test_clients_that_miss_rounds_count_with_their_last_answers() -> None:
    problem = planted(7, far=0.05)

    def away(number: int) -> list[int]:
        return [i for i in range(8) if i != 2 or not 9 <= number < 12]

    result = simulate(SPEC, problem.rows, n_components=SHARED, fraction=away)
    assert result.status.ok
    assert sine(result.components_, problem.U.T) <= 0.010
    sampled = simulate(SPEC, problem.rows, n_components=SHARED, fraction=0.5)
    assert sine(sampled.components_, problem.U.T) <= 0.010


@pytest.mark.slow
def test_new_rows_are_taken_apart_whatever_is_far(tmp_path: Any) -> None:
    problem, result = planted(1, far=0.05), run_triple(1, 0.05)
    X, clean, S = problem.rows[1][:20], problem.clean[1][:20], problem.S[1][:20]
    plain = result.split(X, client=1)
    np.testing.assert_allclose(plain.shared + plain.own + plain.rest, X, atol=1e-10)
    exact = clean @ np.vstack([result.components_, result.local_components_of(1)]).T
    assert np.abs(result.transform(X, client=1) - exact).max() <= 0.6
    found = result.sparse_part(X, client=1)
    np.testing.assert_array_equal(found[S != 0.0] != 0.0, True)
    assert ((found != 0.0) & (S == 0.0)).mean() <= 5e-3
    assert sine(result.fit_local(problem.rows[1]), problem.V[1].T) <= 0.05
    result.save(tmp_path / "result.npz")
    read = PCAResult.load(tmp_path / "result.npz")
    assert isinstance(read, TripleResult)
    np.testing.assert_array_equal(read.noise_, result.noise_)
    np.testing.assert_array_equal(read.transform(X), result.transform(X))


SPOILT = {
    "noise": lambda rng, X: 10.0 * rng.standard_normal(X.shape),
    "heavy tails": lambda rng, X: 50.0 * rng.laplace(size=X.shape),
    "most entries far": lambda rng, X: X + 100.0 * rng.choice([-1.0, 1.0], X.shape) * (rng.random(X.shape) < 0.6),
    "other units": lambda rng, X: 1000.0 * X,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_if(list(SPOILT), *SPOILT))
def test_a_client_that_is_bad_as_a_whole_has_no_more_say_than_others(kind: str) -> None:
    problem = planted(1, far=0.05)
    rows = list(problem.rows)
    rows[3] = SPOILT[kind](np.random.default_rng(7), problem.clean[3])
    result = simulate(SPEC, rows, n_components=SHARED)
    assert result.status.ok
    assert len(result.history) <= 60
    assert sine(result.components_, problem.U.T) <= 0.012


@pytest.mark.slow
def test_a_client_that_has_other_components_is_counted_under_masks_too() -> None:
    """It pulls at the shared ones, with far entries and without: of the objective that is the optimum."""
    problem, rng = planted(1, far=0.05), np.random.default_rng(8)
    other = np.linalg.qr(rng.standard_normal((40, SHARED + APART)))[0]
    clean = list(problem.clean)
    clean[3] = rng.standard_normal((200, 5)) * [3, 3, 3, 2, 2] @ other.T + 0.1 * rng.standard_normal((200, 40))
    plain = f"exact_per_pca(local_components={APART}, tol=1e-8)"
    best = simulate(plain, clean, n_components=SHARED, center=False)
    rows = [X + S for X, S in zip(clean, problem.S, strict=True)]
    result = simulate(SPEC, rows, n_components=SHARED, mask=True)
    assert sine(result.components_, best.components_) <= 0.012
    assert [hint for hint in result.hints if hint.startswith("1 of 8 clients has different components")]
    assert not run_triple(1, 0.05).hints


@functools.cache
def of_the_last_six() -> PCAResult:
    return simulate(SPEC, planted(1, far=0.05).rows[2:], n_components=SHARED)


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
def test_clients_of_a_few_rows_have_no_say_and_are_taken_apart_beside_the_shared_components(mask: bool) -> None:
    problem = planted(1, far=0.05)
    rows = list(problem.rows)
    rows[0], rows[1] = rows[0][:2], rows[1][:3]
    result = simulate(SPEC, rows, n_components=SHARED, mask=mask)
    others = of_the_last_six()
    assert isinstance(result, TripleResult)
    assert isinstance(others, TripleResult)
    assert result.status.ok
    assert sine(result.components_, others.components_) <= 1e-5
    np.testing.assert_allclose(result.noise_, others.noise_, rtol=1e-4)
    assert [len(result.local[i][OWN]) for i in range(3)] == [0, 0, APART]
    assert any(hint.startswith("2 of 8 clients have too few rows") for hint in result.hints)
    for i in (0, 1):
        far = problem.S[i][: len(rows[i])] != 0.0
        assert (result.local[i]["S"][far] != 0.0).all()
        assert (result.local[i]["S"][~far] != 0.0).mean() <= 0.1


@pytest.mark.slow
def test_a_mean_of_far_entries_is_none_to_speak_of() -> None:
    assert not run_triple(1, 0.1).hints
    away = simulate(SPEC, [X + 5.0 for X in planted(1, far=0.1).rows], n_components=SHARED + 1)
    assert any("their mean makes up" in hint for hint in away.hints)


@pytest.mark.slow
def test_numbers_of_own_components_may_be_unlike() -> None:
    spec = make("triple_pca", local_components={0: 1, "others": 2})
    rows = planted(1, far=0.02).rows
    result = simulate(spec, rows, n_components=SHARED)
    assert [len(result.local_components_of(i)) for i in range(3)] == [1, 2, 2]


def test_a_node_refuses_a_threshold_within_the_noise_and_numbers_to_choose() -> None:
    asks = make(SPEC).asks
    assert "auto" not in asks
    assert asks["cut"].fault(np.array(4.0)) is None
    assert asks["cut"].fault(np.array(0.1)) is not None


def with_near_far_entries(seed: int, *, bad: float, others: float, size: float) -> tuple[Any, list[Any]]:
    """Five clients of 50 rows and 20 columns with two shared directions, and shares of far entries."""
    rng = np.random.default_rng([seed, 40])
    U = np.linalg.qr(rng.standard_normal((20, 2)))[0]
    shards = []
    for share in (bad, *4 * [others]):
        V = rng.standard_normal((20, 1))
        V = np.linalg.qr(V - U @ (U.T @ V))[0]
        X = rng.standard_normal((50, 2)) * [3.0, 1.5] @ U.T + 2.0 * rng.standard_normal((50, 1)) @ V.T
        far = rng.choice([-1.0, 1.0], X.shape) * rng.uniform(size, 1.5 * size, X.shape)
        X += 0.05 * rng.standard_normal(X.shape)
        shards.append(X + np.where(rng.random(X.shape) < share, far, 0.0))
    return U, shards


# The seed, shares of far entries at one client and at the others, and their size.
FOLLOWED = {
    "one client": (3, 0.45, 0.1, 20.0),
    "all clients": (3, 0.25, 0.25, 3.0),
    "none": (3, 0.05, 0.05, 20.0),
    "one client that takes them for noise": (505, 0.4, 0.05, 20.0),
    "one client that takes near ones for noise": (502, 0.4, 0.05, 4.0),
}


@pytest.mark.parametrize(
    ("structured", "loud", "theta", "swayed", "said"),
    [
        ([2, 3, 6], 0.9, 0.1, 0.1, "they leave tails of far entries at 3 of 6 clients."),
        ([4, 1, 6], 0.0, 0.5, 0.0, "they leave structure at 4 of 6 clients."),
        ([2, 2, 6], 0.0, 0.5, 0.0, ""),
        ([6, 0, 6], 0.0, 0.5, 0.0, ""),  # structure without any tail is not of outlying entries
        ([0, 0, 6], 0.7, 0.1, 0.0, "the local components of the other clients have a common direction"),
        ([0, 0, 6], 0.9, 0.5, 0.0, ""),
        ([0, 0, 6], 0.5, 0.1, 0.0, ""),
        ([0, 0, 6], 0.9, 0.5, 0.1, "they depend on one client that has several times the noise"),
        ([0, 0, 6], 0.5, 0.5, 0.1, "they would turn if clients with more noise had less influence"),
        ([0, 0, 2], 0.9, 0.1, 0.1, ""),
    ],
)
def test_what_is_said_follows_from_what_the_clients_report(
    structured: list[int], loud: float, theta: float, swayed: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the limits beside the code: half of the clients; .8 of the noise, squared; theta of 1.1 / N; a sine of .06."""
    right = Status(Outcome.CONVERGED, "converged")
    monkeypatch.setattr(ExactPerPCA, "verify", lambda stage, model: right)
    left = {"structured": structured, "loud": loud, "theta": theta, "swayed": swayed}
    found = make(SPEC).verify(SimpleNamespace(left=left))
    assert found.outcome is (Outcome.STALLED if said else Outcome.CONVERGED)
    assert found.words.startswith("converged, but the components") if said else found == right
    assert said in found.words


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("kind", FOLLOWED)
def test_components_that_follow_far_entries_are_not_called_converged(kind: str, mask: bool) -> None:
    seed, bad, others, size = FOLLOWED[kind]
    U, rows = with_near_far_entries(seed, bad=bad, others=others, size=size)
    result = simulate("triple_pca(local_components=1)", rows, n_components=2, mask=mask)
    wrong = sine(result.components_, U.T) > 0.1
    assert wrong == (kind != "none")
    assert result.status.ok != wrong
    said = "are not reliable" if kind.endswith("for noise") else "may follow outlying entries"
    assert (said in result.status.words) == wrong


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "mask"), [(0, False), (3, True), (6, False)])
def test_components_that_turn_if_noisy_clients_count_less_are_not_called_converged(seed: int, mask: bool) -> None:
    """One client with 30 % far entries keeps most of them, but has less than four times the noise of the others."""
    rng = np.random.default_rng([seed, 42])
    U = np.linalg.qr(rng.standard_normal((12, 3)))[0]
    clean, rows = [], []
    for share in (0.3, *4 * [0.01]):
        V = rng.standard_normal((12, 1))
        V = np.linalg.qr(V - U @ (U.T @ V))[0]
        X = rng.standard_normal((50, 3)) * [2.5, 2.0, 1.5] @ U.T + 1.5 * rng.standard_normal((50, 1)) @ V.T
        X += 0.3 * rng.standard_normal(X.shape)
        far = rng.choice([-1.0, 1.0], X.shape) * rng.uniform(5.0, 7.0, X.shape)
        clean.append(X)
        rows.append(X + np.where(rng.random(X.shape) < share, far, 0.0))
    result = simulate("triple_pca(local_components=1)", rows, n_components=3, mask=mask)
    reachable = simulate("exact_per_pca(local_components=1)", clean, n_components=3, center=False)
    assert sine(reachable.components_, U.T) < 0.1 < sine(result.components_, U.T)
    assert not result.status.ok
    assert "they would turn if clients with more noise had less influence" in result.status.words


@pytest.mark.slow
@pytest.mark.parametrize("times", [1.0, 10.0])
def test_a_client_of_much_noise_is_no_client_of_far_entries(times: float) -> None:
    U, rows = with_near_far_entries(4, bad=0.0, others=0.05, size=20.0)
    rows[0] = rows[0] + 0.05 * times * np.random.default_rng(5).standard_normal(rows[0].shape)
    result = simulate("triple_pca(local_components=1)", rows, n_components=2)
    assert result.status.ok
    assert sine(result.components_, U.T) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "mask"), [(0, False), (5, False), (8, False), (0, True)])
def test_a_shared_direction_that_is_left_to_local_components_is_told(seed: int, mask: bool) -> None:
    """One client's far entries take the place of a shared direction, which all other clients keep as local."""
    rng = np.random.default_rng([seed, 41])
    U = np.linalg.qr(rng.standard_normal((20, 2)))[0]
    rows = []
    for share in (0.45, *4 * [0.02]):
        X = rng.standard_normal((50, 2)) * [3.0, 1.5] @ U.T + 0.2 * rng.standard_normal((50, 20))
        far = rng.choice([-1.0, 1.0], X.shape) * rng.uniform(20.0, 30.0, X.shape)
        rows.append(X + np.where(rng.random(X.shape) < share, far, 0.0))
    result = simulate("triple_pca(local_components=1)", rows, n_components=2, mask=mask)
    assert sine(result.components_, U.T) > 0.1
    assert not result.status.ok
    assert "have a common direction" in result.status.words
