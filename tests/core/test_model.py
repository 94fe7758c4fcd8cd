"""Test Model: the number of components, and where an algorithm starts."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from by_hand import model
from hypothesis import given
from hypothesis import strategies as st

from flower_pca.core.model import fraction_rank


@pytest.mark.slow
@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(0, 40), st.integers(1, 999))
def test_fraction_rank_is_the_least_rank_whose_share_exceeds_the_fraction(values, rest, thousandths):
    values = sorted(values, reverse=True)
    trace = sum(values) + rest
    got = fraction_rank(np.array(values, dtype=float), float(trace), thousandths / 1000)
    if trace == 0:
        assert got == 1
        return
    shares = [Fraction(sum(values[:r]), trace) for r in range(1, len(values) + 1)]
    expected = next((r for r, share in enumerate(shares, 1) if share > Fraction(thousandths, 1000)), None)
    assert got == expected


def test_fraction_rank_takes_negative_rounding_for_zero():
    assert fraction_rank(np.array([9.0, -1e-17, 1.0]), 10.0, 0.95) == 3


def test_k_is_what_was_asked_for():
    assert model(n_components=3).k == 3


def test_k_of_a_fraction_grows_with_what_is_known():
    assert model(n_components=0.8).k == 1
    basis = np.eye(6)[:, :4]
    assert model(n_components=0.8, basis=basis).k == 4
    values = np.array([6.0, 2.5, 0.5, 0.5])
    assert model(n_components=0.8, basis=basis, values=values, trace=10.0).k == 2
    assert model(n_components=0.85, basis=basis, values=values, trace=10.0).k == 3
    # The fraction is not reached, so all components are kept.
    assert model(n_components=0.99, basis=basis, values=values, trace=10.0).k == 4


def test_columns_need_the_opening():
    with pytest.raises(RuntimeError, match="The opening has not been answered yet, so there is no basis"):
        _ = model().columns


def test_power_start_has_one_power_step_where_the_product_is_known():
    rng = np.random.default_rng(0)
    Z, A = np.linalg.qr(rng.standard_normal((6, 2)))[0], rng.standard_normal((9, 6))
    assert model(basis=Z).power_start() is Z
    Y = A.T @ (A @ Z)
    powered = model(basis=Z, product=Y).power_start()
    np.testing.assert_allclose(powered.T @ powered, np.eye(2), atol=1e-14)
    np.testing.assert_allclose(powered @ (powered.T @ Y), Y, atol=1e-13)


def test_a_model_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        model().n = 3


def test_a_share_that_equals_the_fraction_to_rounding_does_not_exceed_it():
    values = np.array([0.7, 0.1, 0.1, 0.1])
    third = float(np.cumsum(values)[2])
    for fraction in (np.nextafter(third, 0.0), third, np.nextafter(third, 1.0)):
        assert fraction_rank(values, 1.0, fraction) == 4
