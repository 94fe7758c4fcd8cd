"""Test epsilon and delta of the Gaussian mechanism against their integral and another accountant."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from flower_pca.dp import gaussian


def integral(mu, epsilon):
    """delta = integral of max(p - exp(epsilon) q, 0), p and q the densities of N(mu, 1) and N(0, 1), in 30 digits."""
    with mpmath.workdps(30):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)

        def excess(x):
            return mpmath.npdf(x, mu, 1) - mpmath.e**epsilon * mpmath.npdf(x)

        start = epsilon / mu + mu / 2  # where the two terms are equal
        ends = [start, *(max(start, mu) + 4 * step for step in range(1, 8))]
        return mpmath.quad(excess, ends)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.3, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0, 3.0, 8.0])
def test_delta_is_the_integral(mu, factor):
    epsilon = factor * mu
    assert gaussian.delta_of(mu, epsilon) == pytest.approx(float(integral(mu, epsilon)), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.01, 0.2, 1.0, 3.0, 15.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12, 1e-25])
def test_epsilon_agrees_with_the_root_of_the_integral(mu, delta):
    found = gaussian.epsilon_of(mu, delta)
    if found == 0.0:
        assert integral(mu, 0.0) <= delta
        return
    assert integral(mu, found - 1e-6) > delta > integral(mu, found + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 200.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_calibrated_noise_uses_nearly_all_of_the_budget_and_no_more(epsilon, delta):
    mu = gaussian.noise_of(epsilon, delta)
    assert integral(mu, epsilon) <= delta * (1.0 + 1e-9)
    assert integral(mu * (1.0 + 1e-6), epsilon) > delta
    assert gaussian.epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-9)


def test_no_mechanism_costs_nothing():
    assert gaussian.delta_of(0.0, 1.0) == gaussian.epsilon_of(0.0, 1e-6) == 0.0


def test_several_mechanisms_are_one():
    """Two releases with mu 3 and 4 tell what one with mu 5 does: the likelihood ratio of both depends on their sum."""
    h = 0.02
    x, y = np.meshgrid(np.arange(-6.0, 13.0, h), np.arange(-5.0, 14.0, h))
    p, q = (np.exp(-((x - a) ** 2 + (y - b) ** 2) / 2) / (2 * np.pi) for a, b in ((3, 4), (0, 0)))
    delta = h**2 * np.maximum(p - np.exp(9.0) * q, 0.0).sum()
    assert delta == pytest.approx(gaussian.delta_of(5.0, 9.0), rel=1e-5)


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("messages", [1, 5, 20])
def test_the_accountant_of_flowers_dp_extra_is_an_upper_bound(mu, messages):
    rdp = pytest.importorskip("dp_accounting.rdp", reason="dp-accounting is not installed")
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    ours, event = gaussian.epsilon_of(mu, 1e-6), dp_accounting.GaussianDpEvent(messages**0.5 / mu)
    loose, tight = (kind().compose(event, messages).get_epsilon(1e-6) for kind in (rdp.RdpAccountant, PLDAccountant))
    assert ours <= loose <= 1.1 * ours
    assert ours <= tight <= ours + 1e-6


@pytest.mark.parametrize("delta", [1e-5, 1e-6, 1e-9])
@pytest.mark.parametrize("factor", [np.sqrt(2.0), 2.0, 5.0, 20.0], ids="{:.3g}".format)
def test_a_change_that_is_so_many_times_as_large_costs_more_than_so_many_times_the_epsilon(factor, delta):
    """As that by a person who has so many rows."""
    for mu in np.geomspace(1e-2, 20.0, 15):
        assert gaussian.epsilon_of(factor * mu, delta) > factor * gaussian.epsilon_of(mu, delta) > 0.0
