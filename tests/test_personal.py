"""Test personalized PCA against plain numpy, closed forms and LAPACK."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from builders import Array, StopError, rotation, sine
from cases import paired
from scipy import sparse

from flower_pca import (
    ExactPerPCA,
    NotEnoughNodes,
    Outcome,
    PCAResult,
    PerPCA,
    PersonalResult,
    ProtocolError,
    make,
    simulate,
)
from flower_pca.algorithms.personal import deflation
from flower_pca.rows.local import LocalData
from sims.personal import methods, problems, small
from sims.personal.problems import Setting, Split

pytestmark = pytest.mark.slow

SEEDS = pytest.mark.parametrize("seed", [0, 1])
SMALL = Setting(d=12, r1=2, r2=3, clients=12)


def small_setting(seed: int, n: int = 300, setting: Setting = SMALL) -> Split:
    return setting.draw(problems.halves(setting.clients, n), seed)[0]


def run_personal(algorithm: Any, shards: list[Any], r1: int, *, seed: int = 900, **settings: Any) -> PersonalResult:
    result = simulate(algorithm, shards, n_components=r1, seed=seed, **{"center": False, **settings})
    assert isinstance(result, PersonalResult)
    return result


def objective(S: list[Array], U: Array, r2: int, weights: Array | None = None) -> float:
    """Mean of tr U'SU and the largest r2 eigenvalues of (I - UU')S(I - UU'), by LAPACK."""
    P = np.eye(len(U)) - U @ U.T
    values = [np.trace(U.T @ C @ U) + np.linalg.eigvalsh(P @ C @ P)[::-1][:r2].sum() for C in S]
    return float(np.average(values, weights=weights))


def optimum(S: list[Array], r1: int, r2: int, weights: Array | None = None) -> tuple[Array, float]:
    """The best of plain alternation in numpy, from the projector average, until nothing changes."""
    U = methods.dist_pca(S, r1, r2, r1 + r2)[0]
    w = np.ones(len(S)) if weights is None else weights
    for _ in range(3000):
        V = [methods.own(C, U, r2) for C in S]
        Z = sum(x * (C @ U - v @ (v.T @ (C @ U))) for x, C, v in zip(w, S, V, strict=True))
        a, _, b = np.linalg.svd(Z, full_matrices=False)
        before, U = U, a @ b
        if np.linalg.norm(U - before @ (before.T @ U)) <= 1e-13:
            break
    return U, objective(S, U, r2, weights)


@functools.cache
def weighed(seed: int, weights: str) -> tuple[Split, Array, Array, float]:
    """Clients, their rows, and the optimum."""
    split = small_setting(seed)
    sizes = np.array([len(X) for X in split.shards], dtype=float)
    best = optimum(methods.covariances(split.shards), 2, 3, sizes if weights == "samples" else None)
    return split, sizes, *best


@SEEDS
@pytest.mark.parametrize(("weights", "init"), paired(["equal", "samples"], ["projection", "upload", "qu", "random"]))
def test_every_start_leads_to_the_optimum(init: str, weights: str, seed: int) -> None:
    split, sizes, U, best = weighed(seed, weights)
    S = methods.covariances(split.shards)
    result = run_personal(ExactPerPCA(local_components=3, init=init, weights=weights, tol=1e-9), split.shards, 2)
    assert result.status.outcome is Outcome.CONVERGED
    assert sine(result.components_, U.T) <= 1e-6
    assert objective(S, result.components_.T, 3, sizes if weights == "samples" else None) >= best * (1.0 - 1e-13)
    for i, C in enumerate(S):
        assert sine(result.local_components_of(i), methods.own(C, result.components_.T, 3).T) <= 1e-8


@pytest.mark.parametrize(("retraction", "seed"), [("polar", 0), ("qr", 1)])
def test_choice_one_has_the_same_fixed_points(retraction: str, seed: int) -> None:
    split = small_setting(seed)
    U, best = optimum(methods.covariances(split.shards), 2, 3)
    result = run_personal(PerPCA(local_components=3, retraction=retraction, tol=1e-7, max_rounds=5000), split.shards, 2)
    assert result.status.ok
    assert sine(result.components_, U.T) <= 1e-5
    assert objective(methods.covariances(split.shards), result.components_.T, 3) >= best * (1.0 - 1e-9)


def test_choice_two_is_off_by_more_the_longer_its_step() -> None:
    split = small_setting(3, setting=Setting(d=8, r1=2, r2=2, clients=6))
    _, best = optimum(methods.covariances(split.shards), 2, 2)
    S, gaps = methods.covariances(split.shards), []
    for step in (0.3, 1.0, 10.0):
        result = run_personal(
            PerPCA(local_components=2, choice=2, step=step, tol=1e-8, max_rounds=5000), split.shards, 2
        )
        assert result.status.ok
        gaps.append(1.0 - objective(S, result.components_.T, 2) / best)
    assert 1e-10 < gaps[0] < gaps[1] < gaps[2] < 1e-2


def test_a_scale_free_step_does_not_see_the_units() -> None:
    split = small_setting(4)
    shards = {c: [c * X for X in split.shards] for c in (1e-3, 1e3)}
    a, b = (run_personal("per_pca(local_components=3, tol=1e-6, max_rounds=5000)", X, 2) for X in shards.values())
    assert a.status.ok
    assert b.status.ok
    assert sine(a.components_, b.components_) <= 1e-4


@pytest.mark.parametrize("acceleration", ["none", "lbfgs"])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_the_objective_never_falls(acceleration: str, steps: int) -> None:
    """On rows of random spectra, which are no mixture of shared and own ones at all."""
    seed = steps
    rng = np.random.default_rng([77, seed])
    shards = [rng.standard_normal((40, 9)) * rng.lognormal(0.0, 1.5, 9) @ rotation(9, 10 * seed + i) for i in range(7)]
    algorithm = ExactPerPCA(
        local_components=2, init="random", acceleration=acceleration, local_steps=steps, tol=0.0, max_rounds=80
    )
    result = run_personal(algorithm, shards, 2)
    told = [r.metrics["objective"] for r in result.history.of("exact_per_pca")]
    assert len(told) == 80 or result.status.ok  # to the precision of the data
    assert min(np.diff(told)) >= -1e-12 * told[-1]
    assert told[-1] > told[0] * 1.01


def rounds_to(split: Split, algorithm: ExactPerPCA, best: float, gap: float, *, limit: int) -> int:
    S, r2, r1 = methods.covariances(split.shards), algorithm.local_components, split.U.shape[1]
    found = []

    def watch(session: Any) -> None:
        if session.history[-1].stage == "exact_per_pca" and "objective" in session.history[-1].metrics:
            found.append(1.0 - objective(S, session.estimate(), r2) / best <= gap)
            if found[-1]:
                raise StopError

    with pytest.raises(StopError):
        simulate(
            make(algorithm, max_rounds=limit + 20, tol=1e-12),
            split.shards,
            n_components=r1,
            seed=901,
            center=False,
            on_round=watch,
        )
    return len(found)


def test_few_rounds_are_enough_on_balanced_clients() -> None:
    """Limits of this project's reference: 8 from projectors, 60 from a random start."""
    split = small_setting(5, 1000, Setting(clients=40))
    best = optimum(methods.covariances(split.shards), split.U.shape[1], 10)[1]
    for init, limit in (("projection", 8), ("upload", 8), ("random", 60)):
        assert rounds_to(split, ExactPerPCA(local_components=10, init=init), best, 1e-8, limit=limit) <= limit


def test_a_fifth_of_the_clients_a_round_is_enough_with_cached_sums() -> None:
    split = small_setting(6, 500, Setting(r2=4, clients=40))
    U, _ = optimum(methods.covariances(split.shards), 2, 4)
    result = run_personal(ExactPerPCA(local_components=4, tol=0.0, max_rounds=156), split.shards, 2, fraction=0.2)
    distance = 2.0 * np.linalg.norm(U - result.components_.T @ (result.components_ @ U)) ** 2
    assert distance <= 1e-5
    counts = [r.answered for r in result.history.of("exact_per_pca")]
    assert set(counts) == {8, 40}  # The start asks all clients.
    assert counts.count(8) >= 150


def test_rates_are_those_of_theory() -> None:
    """Fig. 3: with two clients in three dimensions, choice 1 falls by exp(-2 eta lambda theta) a round."""
    from sims.personal.rates import slope

    for theta in (0.15, 0.3):
        found, _ = slope(problems.two_planes(theta, seed=2), "per_pca(init='random', eta=0.1)", 400, seed=902)
        assert abs(found / theta / (-0.2 / np.log(10.0)) - 1.0) <= 0.1


def test_theta_of_the_true_rank_is_that_of_the_axes() -> None:
    """Each of ten axes is the own one of 2 of 20 clients: lambda_max = 0.1."""
    split, _ = Setting(d=30, r1=1, r2=1, clients=20, noise=0.0, axes=10).draw(200, seed=1)
    result = run_personal("exact_per_pca", split.shards, 1)
    assert abs(result.theta_ - 0.9) <= 1e-3
    assert abs(result.theta_estimate_ - 0.9) <= 1e-3
    assert abs(split.theta - 0.9) <= 1e-12
    assert problems.error(split, result.components_.T, [result.local_components_of(i).T for i in range(20)])[0] <= 1e-12


def test_shared_and_own_that_cannot_be_told_apart_are_warned_of() -> None:
    """Two clients alike: what is common to both spaces could as well be called own."""
    X = np.random.default_rng(8).standard_normal((50, 6)) * [4.0, 3.0, 2.0, 0.1, 0.1, 0.1]
    with pytest.warns(
        UserWarning, match=r"theta is .* with 1 shared and 2 local components, and below 0\.05 they cannot"
    ):
        result = simulate("exact_per_pca(local_components=2)", [X, X.copy()], n_components=1, center=False)
    assert isinstance(result, PersonalResult)
    assert result.theta_ <= 1e-12


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_own_bases_are_those_of_the_d_by_d_form(form: str) -> None:
    rng = np.random.default_rng(9)
    n, d = (40, 300) if form == "rows" else (300, 40)
    X = rng.standard_normal((n, d)) * np.linspace(3.0, 0.1, d)
    U = np.linalg.qr(rng.standard_normal((d, 3)))[0]
    S = X.T @ X / n
    for rows in (X, sparse.csr_array(X)):
        V = deflation.local_basis(LocalData(rows), U, 5)
        assert sine(V.T, methods.own(S, U, 5).T) <= 1e-10
        assert np.abs(V.T @ V - np.eye(5)).max() <= 1e-13
        assert np.abs(U.T @ V).max() <= 1e-14
        W = np.hstack([U, V])
        assert np.linalg.norm(deflation.covariance_product(LocalData(rows), W) - S @ W) <= 1e-12 * np.linalg.norm(S)


def test_low_memory_and_d_by_d_forms_give_the_same_run() -> None:
    setting = Setting(d=80, r1=2, r2=2, clients=5, shared=4.0, own=4.0)
    split = setting.draw(30, seed=10)[0]
    U, _ = optimum(methods.covariances(split.shards), 2, 2)
    result = run_personal(ExactPerPCA(local_components=2, tol=1e-12, init="upload"), split.shards, 2)
    assert sine(result.components_, U.T) <= 1e-10


def test_subspace_iteration_stands_in_where_no_side_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    split = small_setting(11)
    dense = run_personal("exact_per_pca(local_components=3, tol=1e-9)", split.shards, 2)
    monkeypatch.setattr(deflation, "_SIDE", 3)
    wide = run_personal("exact_per_pca(local_components=3, tol=1e-9)", split.shards, 2)
    assert sine(dense.components_, wide.components_) <= 1e-7


@SEEDS
def test_clients_with_fewer_rows_than_components(seed: int) -> None:
    split = SMALL.draw([300, 200, 3, 2, 1, *[150] * 7], seed)[0]
    result = run_personal("exact_per_pca(local_components=3, weights='samples')", split.shards, 2)
    assert result.status.ok
    ranks = [len(result.local_components_of(i)) for i in range(12)]
    assert ranks == [3, 3, 3, 2, 1, *[3] * 7]
    S = methods.covariances(split.shards)
    for i in (2, 3, 4):  # With as many components as rows, nothing is lost.
        rank = min(3, len(split.shards[i]))
        assert sine(result.local_components_of(i), methods.own(S[i], result.components_.T, rank).T) <= 1e-8
        assert result.reconstruction_error(split.shards[i], client=i) <= 1e-20 * np.trace(S[i]) + 1e-24
    assert run_personal("per_pca(local_components=3, max_rounds=30)", split.shards, 2).error_ > 0.0


def test_a_client_that_joins_late_or_leaves_is_no_trouble() -> None:
    split = small_setting(12)
    shards = split.shards[:4]
    late = run_personal(
        "exact_per_pca(local_components=3, tol=1e-9)", shards, 2, fraction=lambda m: range(3 if m < 4 else 4)
    )
    U, _ = optimum(methods.covariances(shards), 2, 3)
    assert sine(late.components_, U.T) <= 1e-6
    left = run_personal(
        "exact_per_pca(local_components=3, tol=1e-9)", shards, 2, fraction=lambda m: range(4 if m < 4 else 3)
    )
    U, _ = optimum(methods.covariances(shards[:3]), 2, 3)
    assert sine(left.components_, U.T) <= 1e-6


def test_no_own_components_is_one_pca_of_the_mean_covariance() -> None:
    split = small_setting(13)
    top = methods.top(np.mean(methods.covariances(split.shards), axis=0), 2)
    result = run_personal("exact_per_pca(local_components=0, tol=1e-10)", split.shards, 2)
    assert sine(result.components_, top.T) <= 1e-8
    assert result.local_components_of(0).shape == (0, 12)


def test_a_given_start_is_where_the_run_begins() -> None:
    split = small_setting(14)
    first = run_personal("exact_per_pca(local_components=3, tol=1e-10)", split.shards, 2)
    again = run_personal(ExactPerPCA(local_components=3, given=first.components_.T), split.shards, 2)
    assert again.rounds == 4 < first.rounds  # as many as theta takes
    assert "given" not in again.algorithm


def test_rotations_of_all_rows_rotate_the_result() -> None:
    split, R = small_setting(15), rotation(12, 5)
    given = np.linalg.qr(np.random.default_rng(6).standard_normal((12, 2)))[0]
    a = run_personal(ExactPerPCA(local_components=3, given=given, tol=1e-9), split.shards, 2)
    b = run_personal(ExactPerPCA(local_components=3, given=R.T @ given, tol=1e-9), [X @ R for X in split.shards], 2)
    assert sine(a.components_ @ R, b.components_) <= 1e-7
    assert sine(a.local_components_of(0) @ R, b.local_components_of(0)) <= 1e-7
    assert abs(a.error_ - b.error_) <= 1e-10 * a.error_


def test_what_a_result_says_holds_for_the_rows(tmp_path: Any) -> None:
    split = small_setting(16)
    r = run_personal("exact_per_pca(local_components=3)", split.shards, 2, scale="std", center=True)
    X = split.shards[1]
    F, V = (X - r.mean_) / r.scale_, r.local_components_of(1)
    parts = r.split(X, client=1)
    np.testing.assert_allclose(parts.shared, F @ r.components_.T @ r.components_ * r.scale_, atol=1e-12)
    np.testing.assert_allclose(parts.own, F @ V.T @ V * r.scale_, atol=1e-12)
    np.testing.assert_allclose(r.mean_ + sum(parts), X, atol=1e-12)
    both = np.vstack([r.components_, V])
    np.testing.assert_allclose(both @ both.T, np.eye(5), atol=1e-13)
    scores = r.transform(X, client=1)
    np.testing.assert_allclose(scores, F @ both.T, atol=1e-12)
    np.testing.assert_allclose(r.inverse_transform(scores, client=1), r.mean_ + parts.shared + parts.own, atol=1e-12)
    np.testing.assert_allclose(r.inverse_transform(r.transform(X)), r.mean_ + parts.shared, atol=1e-12)
    np.testing.assert_allclose(r.transform(X, client=V), scores, atol=0.0)
    rest = []
    for i, Y in enumerate(split.shards):
        G, W = (Y - r.mean_) / r.scale_, np.vstack([r.components_, r.local_components_of(i)])
        rest.append(np.mean(np.sum((G - G @ W.T @ W) ** 2, axis=1)))
    np.testing.assert_allclose(r.error_, np.mean(rest), rtol=1e-10)
    np.testing.assert_allclose(r.reconstruction_error(X, client=1), rest[1], rtol=1e-10)
    variances = np.mean((F @ V.T) ** 2, axis=0)
    np.testing.assert_allclose(r.local[1]["variances"], variances, rtol=1e-10)
    assert (np.diff(variances) <= 0.0).all()
    assert (V[np.arange(3), np.abs(V).argmax(axis=1)] > 0.0).all()
    assert (np.diff(r.explained_variance_) <= 0.0).all()
    exact = 1.0 - np.linalg.eigvalsh(sum(o["components"].T @ o["components"] for o in r.local.values()) / 12)[-1]
    np.testing.assert_allclose(r.theta_, exact, atol=1e-12)
    back = PCAResult.load(r.save(tmp_path / "r.npz"))
    assert isinstance(back, PersonalResult)
    assert (back.error_, back.theta_, back.local_components) == (r.error_, r.theta_estimate_, 3)


def test_the_estimate_of_theta_needs_no_own_components() -> None:
    split = small_setting(17)
    open_ = run_personal("exact_per_pca(local_components=3, tol=1e-8)", split.shards, 2)
    closed = run_personal("exact_per_pca(local_components=3, tol=1e-8)", split.shards, 2, hide_local=range(12))
    assert closed.local == {}
    assert closed.theta_ == closed.theta_estimate_ >= open_.theta_ - 1e-12
    assert closed.theta_ - open_.theta_ <= 0.02


def test_a_start_from_uploads_needs_one_at_least() -> None:
    stage = make("exact_per_pca(init='upload')")
    state = stage.start(_five_columns())
    with pytest.raises(ProtocolError, match="No node has sent components for init='upload'"):
        stage.server(state, {0: {"E": np.empty((5, 0))}}, frozenset({0}))


def _five_columns() -> Any:
    from flower_pca.core.model import Model

    return Model(n_components=1, center=False, scale=None, seed=0, d=5, n=9, basis=np.eye(5)[:, :1])


def test_sampled_clients_leave_noise_in_per_pca_but_no_trouble() -> None:
    split = small_setting(18)
    U, _ = optimum(methods.covariances(split.shards), 2, 3)
    result = run_personal("per_pca(local_components=3, max_rounds=300, tol=0.0)", split.shards, 2, fraction=0.5)
    assert 1e-8 < 2.0 * np.linalg.norm(U - result.components_.T @ (result.components_ @ U)) ** 2 < 1e-1
    assert sorted(result.local) == list(range(12))


def test_clients_that_keep_leaving_end_a_run_with_an_error_or_a_status() -> None:
    """Its closing message needs answers, so it must not be sent again for ever."""
    shards, algorithm = small_setting(19).shards[:3], "exact_per_pca(local_components=2, max_rounds=49)"

    def present(number: int, size: int) -> list[int]:
        assert number < 200, "the run does not end"
        return [(number + i) % 3 for i in range(size)]

    with pytest.raises(NotEnoughNodes, match="The set of clients changed for the"):
        run_personal(algorithm, shards, 2, fraction=lambda m: present(m, 1))
    # No round is left, so the run opens once more and closes, instead of beginning anew again and again.
    assert run_personal(algorithm, shards, 2, fraction=lambda m: present(m, 2)).status.outcome is Outcome.MAX_ROUNDS


def test_steps_grow_while_the_objective_does() -> None:
    """The largest client makes the steps of all others short: the default finds its way without a step given."""
    split = small_setting(7)
    shards = [X * (4.0 if i == 0 else 1.0) for i, X in enumerate(split.shards)]
    start = "per_pca(local_components=3, init='random', tol=1e-5, max_rounds="
    own = run_personal(f"{start}6000)", shards, 2)  # rounding may say how many it takes: a thousand or three
    assert own.status.outcome is Outcome.CONVERGED
    assert (
        run_personal(f"{start}{own.rounds}, step=0.5)", shards, 2).rounds == own.rounds
    )  # The run has not converged earlier.
    best = run_personal("exact_per_pca(local_components=3, init='random', tol=1e-9)", shards, 2)
    assert own.error_ <= best.error_ * (1.0 + 1e-3)


@pytest.mark.parametrize(("tol", "limit"), [(1e-6, 143), (1e-12, 420)])
def test_steps_come_to_rest_where_growing_again_leads_round_in_a_circle(tol: float, limit: int) -> None:
    """Stable are steps of up to about two. Of 1 each it takes 143 rounds, and 346."""
    covariances, _ = small.perturbed(float(np.arcsin(12.0**-0.5)), small.RHO, small.EPSILON)
    shards = [small.four_rows(C) for C in covariances]
    start = f"per_pca(local_components=1, tol={tol}, max_rounds="
    result = run_personal(f"{start}{limit})", shards, 1)
    assert result.status.outcome is Outcome.CONVERGED
    best = run_personal(f"{start}1000, step=1.0)", shards, 1)
    assert sine(result.components_, best.components_) <= 1e3 * tol


def test_steps_of_choice_2_stay_as_their_fixed_point_depends_on_them() -> None:
    split = small_setting(7)
    free, given = (
        run_personal(f"per_pca(local_components=3, choice=2, max_rounds=20{s})", split.shards, 2)
        for s in ("", ", step=0.5")
    )
    np.testing.assert_array_equal(free.components_, given.components_)


@pytest.mark.parametrize("algorithm", ["exact_per_pca", "triple_pca"])
@pytest.mark.parametrize("seed", [0, 11, 22, 33, 34])
def test_two_clients_with_the_same_rows_of_rank_one_have_its_direction(algorithm: str, seed: int) -> None:
    """The gradient is 0 to the last bit, so that no step has a length."""
    rng = np.random.default_rng(seed)
    sizes, direction = rng.standard_normal(5), rng.standard_normal(3)
    rows = np.outer(sizes, direction)
    result = simulate(f"{algorithm}(local_components=1, max_rounds=30)", [rows, rows], n_components=1, center=False)
    assert result.status.outcome is Outcome.CONVERGED
    assert sine(result.components_, direction[None] / np.linalg.norm(direction)) <= 1e-7
