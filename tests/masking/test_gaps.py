"""Masks and missing values together: the opening's counts by column are sums as well. References pool the rows."""

import numpy as np
import pytest
from builders import imputed, mixed, pooled, sine, two_lead
from fake_grid import grid_of, in_a_run
from masked import gappy

from flower_pca import simulate
from flower_pca.strategies import PCAStrategy

FAPS = "faps(inner_steps=10)"
BOTH = {"missing": "mean", "mask": True}


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "center"), [("krylov", True), ("ssi", False), (FAPS, True)])
def test_the_answer_is_that_of_pooled_and_imputed_rows(algorithm, center):
    parts = gappy(mixed(0).shards)
    result = simulate(algorithm, parts, n_components=3, center=center, tol=1e-10, **BOTH)
    reference = pooled(imputed(parts), center=center)
    assert result.status.ok
    assert sine(result.components_, reference.components[:3]) <= 1e-7
    np.testing.assert_allclose(result.explained_variance_, reference.variances[:3], rtol=1e-9)
    np.testing.assert_allclose(result.total_variance_, reference.total, rtol=1e-10)
    np.testing.assert_allclose(result.fill_, np.nanmean(np.vstack(parts), axis=0), rtol=1e-11)
    assert result.n_samples_ == reference.n


@pytest.mark.slow
def test_a_client_that_misses_the_second_message_takes_its_values_along():
    """The mean of the first message is then that of others than the product's: it is put right by column."""
    parts, others = gappy(two_lead(5)), [0, 1, 2, 4]
    result = simulate("krylov", parts, n_components=2, fraction=lambda n: range(5) if n < 4 else others, **BOTH)
    first, second = (record for record in result.history if record.stage == "summed_opening")
    assert (first.answered, second.answered) == (5, 4)
    reference = pooled(imputed([parts[i] for i in others]), center=True)
    assert result.n_samples_ == reference.n
    np.testing.assert_allclose(result.mean_, reference.mean, rtol=1e-9)
    assert sine(result.components_, reference.components[:2]) <= 1e-7


@pytest.mark.slow
def test_over_flower_it_is_the_run_in_process():
    parts = gappy(two_lead(5))
    with in_a_run():
        result = PCAStrategy("krylov", n_components=2, **BOTH).fit(grid_of(parts))
    assert np.array_equal(result.components_, simulate("krylov", parts, n_components=2, **BOTH).components_)


@pytest.mark.slow
def test_without_gaps_counts_change_nothing():
    parts = two_lead(5)
    counted, plain = (simulate("krylov", parts, n_components=2, mask=True, missing=m) for m in ("mean", "error"))
    np.testing.assert_allclose(counted.components_, plain.components_, rtol=0, atol=1e-12)
    assert counted.rounds == plain.rounds
