"""Test warm starts: the rows of an earlier run are recognized, and no direction is missed in other rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from builders import Array, pooled, rotation, sine
from cases import every

from flower_pca import PCAResult, simulate
from flower_pca.core.hidden import RandomTraces, random_overlap

K = 3
WARM = ["krylov", "ssi", "local_power", "faps", "fed_oapm"]
DEVIATIONS = {
    "with a gap": np.r_[9.0, 6.0, 4.0, 2.0, 1.5, np.linspace(1.0, 0.3, 15)],
    "flat": np.linspace(3.0, 1.0, 20),
}


def tables(kind: str, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300, 20)) * DEVIATIONS[kind] @ rotation(20, seed) + rng.standard_normal(20)
    return np.array_split(X, 4)


def with_a_hidden_column(d: int, size: float, seed: int) -> tuple[list[Array], list[Array]]:
    """Rows whose last column is 0, and the same with a client more, of whom only the last column varies."""
    rng = np.random.default_rng(seed)
    deviations = np.r_[9.0, 6.0, 4.0, np.full(d - 4, 0.3)]
    turned = np.linalg.qr(rng.standard_normal((d - 1, d - 1)))[0]
    X = np.pad(rng.standard_normal((300, d - 1)) * deviations @ turned, ((0, 0), (0, 1)))
    third = float(np.linalg.svd(X, compute_uv=False)[2] ** 2)
    new = np.zeros((50, d))
    new[:, -1] = np.sqrt(size * third / 50.0) * rng.choice([-1.0, 1.0], 50)
    old = np.array_split(X, 3)
    return old, [*old, new]


@every("kind", DEVIATIONS)
@every("name", WARM)
def test_the_same_rows_take_three_messages_at_most(name: str, kind: str) -> None:
    shards = tables(kind)
    first = simulate(name, shards, n_components=K)
    for start in (first, simulate("krylov", shards, n_components=K)):
        again = simulate(name, shards, n_components=K, seed=7, init=start)
        assert again.status.ok
        assert len(again.history) <= 3
        error = sine(again.components_, pooled(shards).components[:K])
        assert error <= max(1e-8, 1.5 * sine(start.components_, pooled(shards).components[:K]))


@every("kind", DEVIATIONS)
@every("name", [name for name in WARM if name != "local_power"])
def test_under_masks_the_same_rows_take_three_sums_at_most(name: str, kind: str) -> None:
    """Two sums are the opening, and the third measures the components if the opening has not done so."""
    shards = tables(kind)
    first = simulate(name, shards, n_components=K, mask=True)
    again = simulate(name, shards, n_components=K, seed=7, init=first, mask=True)
    assert again.status.ok
    assert len(again.history.of("mask.sum")) <= 3


@every("option", [{"scale": "std"}, {"center": False}, {"missing": "mean"}])
def test_the_same_rows_are_recognized_under_options(option: dict[str, object]) -> None:
    shards = tables("with a gap")
    if "missing" in option:
        shards[0][3, 5] = np.nan
    first = simulate("ssi", shards, n_components=K, **option)
    most = 4 if "missing" in option else 3  # the product of an opening is not known exactly if values are missing
    assert len(simulate("ssi", shards, n_components=K, init=first, seed=3, **option).history) <= most


def test_the_same_rows_are_recognized_by_names_and_from_a_file(tmp_path) -> None:
    names = [f"c{j:02}" for j in np.random.default_rng(0).permutation(20)]
    shards = [pd.DataFrame(X, columns=names) for X in tables("with a gap")]
    simulate("krylov", shards, n_components=K + 2).save(tmp_path / "first.npz")
    again = simulate("krylov", shards, n_components=K, columns=names, seed=3, init=tmp_path / "first.npz")
    assert len(again.history) == 1
    assert again.feature_names_in_.tolist() == names


def test_a_result_that_has_not_converged_says_nothing_of_its_rows() -> None:
    """Its components may be any invariant directions of the rows: the run looks beside them."""
    shards, V = tables("with a gap"), pooled(tables("with a gap")).components
    first = simulate("krylov(max_rounds=1)", shards, n_components=K)
    assert not first.status.ok
    again = simulate("krylov", shards, n_components=K, init=first, seed=5)
    assert again.status.ok
    assert sine(again.components_, V[:K]) < 1e-6


@every("size", [1.5, 4.0, 30.0])
@every("name", [*WARM, "ssi(oversample=0)", "fed_oapm(qr_every=2)"])
def test_no_direction_hides_from_a_warm_start(name: str, size: float) -> None:
    """The old components are orthogonal to the new column, and stay exact eigenvectors."""
    for seed in range(3):
        old, new = with_a_hidden_column(120, size, seed)
        first = simulate("krylov", old, n_components=K, center=False, tol=1e-10)
        for start in (first, first.components_):
            result = simulate(name, new, n_components=K, center=False, seed=seed, init=start)
            assert result.status.ok
            assert sine(result.components_, pooled(new, center=False).components[:K]) < 1e-4


@every("name", ["krylov", "ssi", "fed_oapm"])
def test_no_direction_hides_where_a_client_is_swapped(name: str) -> None:
    for seed in range(3):
        old, new = with_a_hidden_column(120, 1.5, seed)
        shards = [*new, old[0]]
        result = simulate(
            name, shards, n_components=K, center=False, seed=seed,
            fraction=lambda m: (0, 1, 2, 4) if m < 9 else (0, 1, 2, 3),
        )  # fmt: skip
        here = new if result.n_samples_ == sum(map(len, new)) else [*old, old[0]]
        assert sine(result.components_, pooled(here, center=False).components[:K]) < 1e-4


def test_a_run_that_is_cut_before_it_is_sure_says_so() -> None:
    shards = tables("flat")
    first = simulate("krylov", shards, n_components=K)
    result = simulate("krylov(max_rounds=1)", shards, n_components=K, init=first.components_)
    assert not result.status.ok
    assert "a larger direction may still be hidden" in result.status.words


@pytest.mark.parametrize(("d", "p"), [(20, 1), (20, 3), (300, 1), (300, 5)])
def test_a_random_block_has_the_overlap_but_for_one_draw_in_a_thousand(d: int, p: int) -> None:
    """The projection of an axis has the lengths of the first row of an orthonormal block; here from normal numbers."""
    rng = np.random.default_rng(0)
    axis = rng.chisquare(p, 200_000)
    shares = np.sqrt(axis / (axis + rng.chisquare(d - p, 200_000)))
    assert 0.0005 < np.mean(shares < random_overlap(d, p)) < 0.0015
    assert random_overlap(d, d) == 1.0


def test_traces_bound_what_a_power_iteration_may_hide() -> None:
    """The share of a hidden eigenvector, whose eigenvalue is above the last, stays below the bound."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        Q = np.linalg.qr(rng.standard_normal((15, 15)))[0]
        values = np.r_[5.0, 4.0, 4.2, np.linspace(2.0, 0.1, 12)]
        C = Q * values @ Q.T
        Z = np.linalg.qr(np.hstack([Q[:, :2], rng.standard_normal((15, 2))]))[0]
        share = np.linalg.norm(Q[:, 2] @ Z[:, 2:])
        traces = RandomTraces.begin(Z, 2)
        for _ in range(4):
            here, Y = Z, C @ Z
            Z, R = np.linalg.qr(Y)
            traces = traces.in_ritz_coordinates(np.eye(4), 2).after_product(R, 4.0)
            assert np.linalg.norm(traces.left, 2) >= share * (1.0 - 1e-12)
            assert here.shape == Z.shape
        assert traces.may_hide_direction


def test_rows_with_the_same_number_and_variance_are_others_if_the_mean_is() -> None:
    shards = tables("with a gap")
    first = simulate("krylov", shards, n_components=K)
    moved = [X + 1.0 for X in shards]
    again = simulate("krylov", moved, n_components=K, init=first, seed=2)
    assert isinstance(again, PCAResult)
    assert again.status.ok
    assert len(again.history) > 1
