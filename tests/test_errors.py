"""Test standard errors of loadings and variances by formula, coverage and bootstrap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
from builders import Array
from fake_grid import grid_of, in_a_run
from scipy import stats

from flower_pca import ConfigError, PCAResult, simulate
from flower_pca.analysis.intervals import intervals
from flower_pca.strategies import PCAStrategy

VALUES = np.array([9.0, 5.0, 2.0, 1.0, 0.7, 0.5])
TURNED = np.linalg.qr(np.random.default_rng(7).standard_normal((6, 6)))[0]
FOUND = ("loading_errors_", "variance_errors_", "site_loading_errors_", "site_variance_errors_")


def turned_rows(n: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.standard_normal((n, 6)) * np.sqrt(VALUES) @ TURNED.T + 2.0)


def two_thirds(seed: int = 0, n: int = 400) -> list[Array]:
    return np.split(turned_rows(n, seed), [n // 2, n // 2 + n // 3])


def errors_by_differences(
    shards: list[Array], k: int, *, scaled: bool = False, levels: int = 0
) -> tuple[Array, Array, Array, Array]:
    """The errors of all eigenvectors by differences: what the estimate is where a row counts a little more."""
    X = np.vstack(shards)
    n = len(X)

    def estimate(weights: Array) -> Array:
        weights = weights / weights.sum()
        Y = X - weights @ X
        if scaled:
            sizes = weights @ Y**2
            if levels:  # the last columns, which are divided by roots of shares
                sizes[-levels:] = (weights @ X)[-levels:]
            Y = Y / np.sqrt(sizes)
        values, V = np.linalg.eigh((Y * weights[:, None]).T @ Y)
        V = V[:, ::-1][:, :k]
        return np.vstack([V * np.sign(V[np.abs(V).argmax(axis=0), range(k)]), values[::-1][:k]])

    step, whole = 1e-4, np.ones(n)
    moves = np.stack([(estimate(whole + step * row) - estimate(whole - step * row)) / 2.0 for row in np.eye(n)]) / step
    parts = np.split(moves, np.cumsum([len(S) for S in shards])[:-1])
    within = sum(np.var(part, axis=0, ddof=1) * len(part) for part in parts)
    between = sum(part.sum(axis=0) ** 2 for part in parts) * len(parts) / (len(parts) - 1)
    error, by_site = np.sqrt(within), np.sqrt(between)
    return error[:-1].T, error[-1], by_site[:-1].T, by_site[-1]


def assert_errors_are(found: PCAResult, expected: tuple[Array, Array, Array, Array]) -> None:
    """Of eigenvectors and of variances, whose divisor is n - 1, by rows of the same sites and by other sites."""
    unbiased = found.n_samples_ / (found.n_samples_ - 1)
    for name, factor, errors in zip(FOUND, (1.0, unbiased, 1.0, unbiased), expected, strict=True):
        np.testing.assert_allclose(getattr(found, name), factor * errors, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("scale", [None, "std"])
def test_errors_are_how_far_rows_and_sites_move_the_result(scale: str | None) -> None:
    shards = two_thirds(n=120)
    found = simulate("krylov", shards, n_components=4, scale=scale, standard_errors=True)
    assert_errors_are(found, errors_by_differences(shards, 4, scaled=scale is not None))


def test_where_the_server_has_all_of_the_covariance_no_eigenvalue_is_guessed() -> None:
    shards = two_thirds(n=120)
    found = simulate("covariance", shards, n_components=2, standard_errors=True)
    assert_errors_are(found, errors_by_differences(shards, 2))
    assert not any("assumed to be equal" in choice for choice in found.decisions)


@pytest.mark.slow
def test_nodes_take_what_is_sent_of_a_thousand_columns() -> None:
    rng = np.random.default_rng(8)
    shards = [rng.standard_normal((n, 1000)) * np.linspace(3.0, 1.0, 1000) for n in (12, 8, 30)]
    with in_a_run():
        found = PCAStrategy("covariance", n_components=2, min_nodes=3, standard_errors=True).fit(grid_of(shards))
    here = simulate("covariance", shards, n_components=2, standard_errors=True, answers="fixed")
    np.testing.assert_allclose(found.loading_errors_, here.loading_errors_, rtol=1e-10)
    # as 50 rows have no more than 49 eigenvalues
    assert not any("assumed to be equal" in choice for choice in found.decisions)


@pytest.mark.parametrize("gone", [False, True])
def test_standard_errors_are_of_all_clients_of_the_opening_or_left_out(gone: bool) -> None:
    """A client that misses this message is asked once more."""
    shards = two_thirds(n=120)
    found = simulate(
        "covariance",
        shards,
        n_components=2,
        standard_errors=True,
        fraction=lambda now: [0, 1] if now == 2 or (gone and now > 2) else [0, 1, 2],
    )
    asked = [record.answered for record in found.history if record.stage == "standard_errors"]
    assert asked == ([2] if gone else [2, 1])
    assert ("the message standard_errors got no answer from client 2" in found.status.words) == gone
    if gone:
        assert all(getattr(found, name) is None for name in FOUND)
    else:
        assert_errors_are(found, errors_by_differences(shards, 2))


def test_levels_move_the_roots_of_their_shares() -> None:
    shards, rng = two_thirds(n=120), np.random.default_rng(5)
    wards = [rng.choice(["a", "b", "c"], len(X), p=[0.5, 0.3, 0.2]) for X in shards]
    tables = [
        pandas.DataFrame({**{f"x{j}": X[:, j] for j in range(6)}, "ward": ward})
        for X, ward in zip(shards, wards, strict=True)
    ]
    found = simulate("covariance", tables, n_components=8, scale="std", standard_errors=True, categorical="ward")
    assert [*found.feature_names_in_[-3:]] == ["ward=a", "ward=b", "ward=c"]
    recoded = [np.hstack([X, 1.0 * (ward[:, None] == ["a", "b", "c"])]) for X, ward in zip(shards, wards, strict=True)]
    assert_errors_are(found, errors_by_differences(recoded, 8, scaled=True, levels=3))


def test_unscaled_categorical_columns_have_no_errors_of_roots_and_say_so() -> None:
    rng = np.random.default_rng(6)
    tables = [pandas.DataFrame({"x": rng.standard_normal(30), "ward": rng.choice(["a", "b"], 30)}) for _ in "12"]
    found = simulate("covariance", tables, n_components=1, standard_errors=True, categorical="ward")
    assert any("errors ignore that the scale comes from the same rows" in choice for choice in found.decisions)


@pytest.mark.slow
def test_errors_of_gaussian_rows_agree_with_andersons_formula() -> None:
    n = 200_000
    found = simulate("krylov", [turned_rows(n, 1)], n_components=2, standard_errors=True)
    for j in range(2):
        others = [i for i in range(6) if i != j]
        parts = [VALUES[i] * VALUES[j] / (n * (VALUES[i] - VALUES[j]) ** 2) * TURNED[:, i] ** 2 for i in others]
        np.testing.assert_allclose(found.loading_errors_[j], np.sqrt(sum(parts)), rtol=0.03)
    np.testing.assert_allclose(found.variance_errors_, VALUES[:2] * np.sqrt(2.0 / n), rtol=0.03)
    assert found.site_loading_errors_ is None


@pytest.mark.slow
def test_errors_agree_with_a_bootstrap_of_the_pooled_rows() -> None:
    X = turned_rows(600, 2)
    found = simulate("krylov", np.split(X, 3), n_components=2, standard_errors=True)
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(400):
        V = np.linalg.eigh(np.cov(X[rng.integers(0, 600, 600)].T))[1][:, ::-1][:, :2].T
        drawn.append(V * np.sign((V * found.components_).sum(axis=1))[:, None])
    np.testing.assert_allclose(found.loading_errors_, np.std(drawn, axis=0), rtol=0.2)


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    held = []
    for draw in range(60):
        found = simulate("krylov", two_thirds(100 + draw, 300), n_components=2, standard_errors=True)
        truth = TURNED[:, :2].T
        truth = truth * np.sign((truth * found.components_).sum(axis=1))[:, None]
        held.append(np.abs(found.components_ - truth) < 1.96 * found.loading_errors_)
    assert 0.90 < np.mean(held) < 0.98


@pytest.mark.parametrize("scale", [None, "std"])
def test_under_masks_they_are_the_same(scale: str | None) -> None:
    shards = two_thirds(3)
    plain, masked = (
        simulate("covariance", shards, n_components=2, scale=scale, standard_errors=True, mask=mask)
        for mask in (False, True)
    )
    for name in FOUND:
        np.testing.assert_allclose(getattr(masked, name), getattr(plain, name), rtol=1e-10)


def test_a_file_keeps_standard_errors(tmp_path: Any) -> None:
    found = simulate("krylov", two_thirds(), n_components=2, standard_errors=True)
    same = PCAResult.load(found.save(tmp_path / "result.npz"))
    for name in FOUND:
        np.testing.assert_array_equal(getattr(same, name), getattr(found, name))


def test_components_closer_than_their_errors_are_named() -> None:
    rng = np.random.default_rng(4)
    shards = np.split(rng.standard_normal((300, 6)) * [3.0, 2.0, 1.98, 1.0, 0.5, 0.5], 3)
    found = simulate("krylov", shards, n_components=2, standard_errors=True)
    assert "components 2 and 3 cannot be distinguished" in found.status.words
    assert "components" not in simulate("krylov", two_thirds(), n_components=1, standard_errors=True).status.words


def test_sites_that_are_unlike_have_larger_errors_by_site() -> None:
    shards = [turned_rows(400, i) * np.where(np.arange(6) == i, 3.0, 1.0) for i in range(3)]
    found = simulate("krylov", shards, n_components=1, standard_errors=True)
    assert "sites differ: errors by site are" in found.status.words
    alike = simulate("krylov", two_thirds(), n_components=1, standard_errors=True)
    assert "sites differ" not in alike.status.words


def test_unknown_errors_are_reported() -> None:
    found = simulate("ssi", two_thirds(), n_components=1, standard_errors=True, scale="max_abs")
    said = next(words for words in found.decisions if words.startswith("errors by row are"))
    assert "the 4 eigenvalues after the first 2 are assumed to be equal" in said
    assert "errors ignore that the scale comes from the same rows" in said


@pytest.mark.slow
def test_table_and_pictures_show_standard_errors(tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    found = simulate("krylov", two_thirds(), n_components=2, standard_errors=True)
    first = found.components_[0]
    heaviest = int(np.abs(first).argmax())
    assert f"{first[heaviest]:+.2f} ± {found.loading_errors_[0, heaviest]:.1g}" in found.table()
    for what in ("loadings", "scree"):
        assert "whiskers hold 95" in found.plot(what, tmp_path / f"{what}.svg").read_text(encoding="utf-8")


def test_rows_of_one_site_may_be_one() -> None:
    X = turned_rows(60, 5)
    found = simulate("krylov", [X[:59], X[59:]], n_components=2, standard_errors=True)
    assert np.isfinite(found.loading_errors_).all()


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 60])
def test_intervals_of_few_normal_rows_hold_the_truth_as_often_as_they_say(n: int) -> None:
    truth, loadings, variances = TURNED[:, :2].T, [], []
    for seed in range(150):
        found = simulate("krylov", two_thirds(seed, n), n_components=2, standard_errors=True)
        same = truth * np.sign((found.components_ * truth).sum(axis=1))[:, None]
        held = intervals(found)
        loadings.append((held.loadings[0] < same) & (same < held.loadings[1]))
        variances.append((held.variances[0] < VALUES[:2]) & (VALUES[:2] < held.variances[1]))
    assert 0.91 < np.mean(loadings) < 0.98
    assert 0.91 < np.mean(variances) < 0.98


def test_intervals_are_those_of_a_quantile_of_student_where_variances_have_no_bias() -> None:
    found = simulate("krylov", two_thirds(n=30_000), n_components=2, standard_errors=True)
    held = intervals(found, "99%")
    assert found.loading_errors_ is not None
    assert found.variance_errors_ is not None
    times = stats.t(30_000 - 3).ppf(0.995)
    np.testing.assert_allclose(held.loadings[1] - found.components_, times * found.loading_errors_, rtol=2e-3)
    roots = np.cbrt(held.variances)
    np.testing.assert_allclose(roots.mean(axis=0), np.cbrt(found.explained_variance_))
    np.testing.assert_allclose(
        roots[1] - roots.mean(axis=0), times * found.variance_errors_ / 3.0 / found.explained_variance_ ** (2 / 3)
    )
    with pytest.raises(ConfigError, match="Run again with standard_errors=True"):
        intervals(simulate("krylov", two_thirds(n=30), n_components=2))


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (20, "with 20 rows, standard errors are too small (at least 30 rows are needed)"),
        (90, "with 90 rows, standard errors are slightly too small (use analysis.intervals)"),
    ],
)
def test_few_rows_are_reported(n: int, words: str) -> None:
    assert words in simulate("krylov", two_thirds(n=n), n_components=2, standard_errors=True).status.words


def test_heavy_tails_of_scores_are_reported() -> None:
    rng = np.random.default_rng(4)
    scores = rng.standard_t(3, (900, 6)) / np.sqrt(3.0)
    scores[:, 1] = rng.standard_normal(900)
    found = simulate("covariance", np.split(scores * np.sqrt(VALUES), 3), n_components=2, standard_errors=True)
    y = (scores * np.sqrt(VALUES) - found.mean_) @ found.components_.T
    kurtosis = np.mean(y**4, axis=0) / np.mean(y**2, axis=0) ** 2
    assert kurtosis[0] > 4.0 > kurtosis[1]
    words = f"scores along component 1 have heavy tails (kurtosis {kurtosis[0]:.2g}, but normal rows have 3)"
    assert words in found.status.words
    assert (
        "too small" not in simulate("covariance", two_thirds(n=900), n_components=2, standard_errors=True).status.words
    )
