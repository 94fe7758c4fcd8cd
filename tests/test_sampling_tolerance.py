"""Test tol="auto": a run ends once numerical errors are a twentieth of the sampling error."""

import numpy as np
import pytest
from builders import pooled, sine
from cases import every
from results import assert_same_bits

from flower_pca import ConfigError, make, simulate
from flower_pca.base.options import with_advice_written

D, K = 1_500, 5


def some_spectrum(kind, *, seed=0):
    """Three clients of 100 rows: components and noise, a power law, or noise alone."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((300, D))
    if kind == "half":
        rows += (rng.standard_normal((300, 3)) * [9.0, 7.0, 5.0]) @ np.linalg.qr(rng.standard_normal((D, 3)))[0].T
    if kind == "decay":
        rows *= np.arange(1, D + 1) ** -0.7
    return np.split(rows, 3)


@every("kind", ["half", "decay", "flat"])
def test_fewer_messages_and_errors_below_the_sampling_error(kind):
    data = some_spectrum(kind)
    truth = pooled(data)
    rough, fine = (simulate("krylov", data, n_components=K, tol=tol) for tol in ("auto", 1e-6))
    assert rough.status.ok
    assert len(rough.history) < len(fine.history)
    np.testing.assert_array_less(
        np.abs(rough.explained_variance_ / truth.variances[:K] - 1.0), 0.05 * np.sqrt(2.0 / 300)
    )


def test_every_residual_is_at_most_what_is_promised():
    found = simulate("krylov", some_spectrum("half"), n_components=K, tol="auto")
    values = found.explained_variance_ * (found.n_samples_ - 1)
    assert (found.residuals_ <= np.maximum(1e-6 * values[0], 0.05 * np.sqrt(2.0 / 300) * values)).all()


def test_the_advice_of_the_status_is_named_as_in_each_interface():
    words = simulate("krylov", some_spectrum("half"), n_components=K, tol="auto").status.words
    assert "use tol=1e-08 for more precision" in words
    assert "use --tol=1e-08 for more precision" in with_advice_written(
        words, lambda advice: f"--{advice[1]}={advice[2]}"
    )


def test_components_that_stand_out_are_found_as_before():
    found = simulate("krylov", some_spectrum("half"), n_components=3, tol="auto")
    assert sine(found.components_.T, pooled(some_spectrum("half")).components[:3].T) < 5e-3


def test_correlated_columns_do_not_end_a_run_early():
    """Blocks of correlated columns have many eigenvalues above the edge of white noise."""
    rng = np.random.default_rng(3)
    rows = np.repeat(rng.standard_normal((300, D // 10)), 10, axis=1) + 0.3 * rng.standard_normal((300, D))
    data = np.split(rows, 3)
    found = simulate("krylov", data, n_components=K, tol="auto")
    np.testing.assert_allclose(found.explained_variance_, pooled(data).variances[:K], rtol=0.05 * np.sqrt(2.0 / 300))


def test_the_status_says_so_and_what_to_do_for_more():
    found = simulate("krylov", some_spectrum("half"), n_components=K, tol="auto")
    assert "errors are a twentieth of the sampling error after" in str(found.status)
    assert "tol=1e-08 for more" in str(found.status)


@pytest.mark.parametrize("name", ["krylov", "auto"])
def test_a_spec_keeps_tol_auto(name):
    assert make(f"{name}(tol='auto')").spec == f"{name}(tol='auto')"
    assert simulate(name, some_spectrum("decay"), n_components=2, tol="auto").algorithm == "krylov(tol='auto')"


def test_wide_blocks_accept_tol_auto():
    found = simulate("krylov(oversample='auto', tol='auto')", some_spectrum("half"), n_components=3)
    assert found.status.ok


@every("tol", ["fine", -1.0])
def test_what_is_no_tolerance_is_refused(tol):
    with pytest.raises(ConfigError, match="tol of krylov"):
        make("krylov", tol=tol)


def test_without_a_tolerance_it_is_the_default_above_twenty_thousand_columns():
    rng = np.random.default_rng(5)
    data = [rng.standard_normal((20, 20_001)) for _ in range(2)]
    left_out, named = (simulate("krylov", data, n_components=2, **given) for given in ({}, {"tol": "auto"}))
    assert_same_bits(left_out, named)
    assert left_out.algorithm == "krylov"
    fewer = [rows[:, :20_000] for rows in data]
    left_out, named = (simulate("krylov", fewer, n_components=2, **given) for given in ({}, {"tol": 1e-8}))
    assert_same_bits(left_out, named)
