"""Test fixed point: sums to the stated error, exact without a bound, and errors instead of wrapping."""

from fractions import Fraction

import numpy as np
import pytest
from cases import every
from hypothesis import given
from hypothesis import strategies as st

from flower_pca import DataError, simulate
from flower_pca.masking import fixed


def summed(parts, bounds):
    """The sum of these clients' arrays by way of numbers mod 2^64."""
    bounds = {name: np.asarray(bound, dtype=float) for name, bound in bounds.items()}
    words = [fixed.encode(part, bounds, len(parts)) for part in parts]
    assert all(w.dtype == np.uint64 and len(w) == fixed.encoded_size(shapes(parts), bounds) for w in words)
    return fixed.decode(np.sum(words, axis=0, dtype=np.uint64), shapes(parts), bounds, len(parts), whole={"n"})


def shapes(parts):
    return {name: a.shape for name, a in parts[0].items()}


@pytest.mark.slow
@pytest.mark.parametrize("clients", [1, 2, 30, 1000])
@pytest.mark.parametrize("bound", [1e-9, 1.0, 3e17])
def test_the_error_of_a_sum_is_the_stated_one(clients, bound):
    rng = np.random.default_rng(clients)
    parts = [{"Y": bound * rng.uniform(-1, 1, (4, 3)), "n": np.array(rng.integers(1, 99))} for _ in range(clients)]
    total = summed(parts, {"Y": bound, "n": 2.0**40})
    stacked = np.array([p["Y"] for p in parts]).reshape(clients, -1)
    exact = np.array([float(sum(map(Fraction, column))) for column in stacked.T]).reshape(4, 3)
    step = clients * bound * 2.0**-60
    assert np.abs(total["Y"] - exact).max() <= 18 * np.sqrt(clients) * step + np.spacing(np.abs(exact)).max()
    assert total["n"] == sum(int(p["n"]) for p in parts)


def test_bounds_by_row_give_every_row_its_own_precision():
    scale = np.array([[1e9], [1.0], [1e-9]])
    rng = np.random.default_rng(0)
    parts = [{"P": scale * rng.uniform(-1, 1, (3, 5))} for _ in range(4)]
    exact = sum(p["P"] for p in parts)
    assert (np.abs(summed(parts, {"P": scale})["P"] - exact) <= 2e-15 * scale).all()


@pytest.mark.slow
@given(st.lists(st.floats(-1e25, 1e25, allow_subnormal=False), min_size=1, max_size=20))
def test_wide_sums_are_off_by_their_noise_whatever_the_scale(values):
    exact = sum(map(Fraction, values))
    total = Fraction(summed([{"s": np.array([v])} for v in values], {"s": 0.0})["s"][0])
    assert abs(total - exact) <= Fraction(18 * np.sqrt(len(values))) / 2**96 + Fraction(np.spacing(float(abs(exact))))


def test_sums_of_the_most_clients_do_not_overflow():
    bounds = {"s": np.array(0.0), "Y": np.array(1.0)}
    biggest = {"s": np.array([-(2.0**95)]), "Y": np.array([1.0])}
    words = fixed.encode(biggest, bounds, fixed.MOST_CLIENTS, lambda size: np.zeros(size, dtype=np.uint64))
    total = words * np.uint64(fixed.MOST_CLIENTS)
    back = fixed.decode(total, {"s": (1,), "Y": (1,)}, bounds, fixed.MOST_CLIENTS)
    assert back["s"][0] == -(2.0**95) * fixed.MOST_CLIENTS
    assert back["Y"][0] == fixed.MOST_CLIENTS


# ---- what a client's noise hides


def law(fractions, draws=100_000):
    """How often each whole number of steps is the sum of clients whose answers are these fractions of a step."""
    rng = np.random.default_rng(0)
    bits = lambda size: rng.integers(0, 2**64, size, dtype=np.uint64)  # noqa: E731
    bounds = {"Y": np.array(1.0)}
    exponent = int(fixed._step_exponents(bounds["Y"], len(fractions)))
    parts = [{"Y": np.full(draws, np.ldexp(f, -exponent))} for f in fractions]
    words = sum(fixed.encode(part, bounds, len(parts), bits).view(np.int64) for part in parts)
    return np.bincount(words + 64, minlength=160)


@every("fractions", [((0.2, 0.8), (0.5, 0.5)), ((0.1, 0.1, 0.8), (1 / 3, 1 / 3, 1 / 3)),
                                       ((0.49, 0.0, 0.49), (0.98, 0.0, 0.0))])  # fmt: skip
def test_a_step_as_large_as_the_answers_does_not_compare_clients(fractions):
    """The law of the sum is that of its sum: chi-squared of two samples of 1e5, far below where laws differ."""
    one, other = (law(f) for f in fractions)
    both = one + other
    place = both > 20
    statistic = np.sum((one - other)[place] ** 2 / both[place])
    assert statistic < place.sum() + 5 * np.sqrt(2 * place.sum())


@pytest.mark.parametrize("scale", [None, "std"])
@pytest.mark.parametrize(("size", "says"), [(1e-30, "too small for masked sums"), (1e30, "too large for masked sums")])
def test_rows_that_a_masked_sum_cannot_show_are_refused_with_advice_that_works(size, says, scale):
    """The sum of the squares has no bound yet, so it is from 2^-96 to 2^95, whatever the settings of the masks."""
    parts = [np.random.default_rng(i).standard_normal((9, 5)) for i in range(3)]
    for columns in (slice(None), slice(2, 3)):
        rows = [X.copy() for X in parts]
        for X in rows:
            X[:, columns] *= size
        with pytest.raises(DataError, match=says) as caught:
            simulate("krylov", rows, n_components=2, mask=True, scale=scale, center=False)
        assert "Scale the data" in str(caught.value)
        assert "MaskedSums" not in str(caught.value)
    assert simulate("krylov", parts, n_components=2, mask=True, scale=scale, center=False).status.ok


def test_plain_rounding_would():
    assert round(0.2) + round(0.8) != round(0.5) + round(0.5)


@every("size", [2.0**-60, 1.0, 2.0**55])
def test_the_noise_is_there_whatever_the_size_of_an_answer(size):
    """A number so large that float64 has no digits for the noise gets all of it."""
    bounds = {"Y": np.array(2.0**56)}
    words = fixed.encode({"Y": np.full(20_000, size)}, bounds, 2).view(np.int64)
    around = words - round(np.ldexp(size, int(fixed._step_exponents(bounds["Y"], 2))))
    assert abs(around.mean()) < 0.1
    assert 1.95 < around.std() < 2.1


@pytest.mark.slow
def test_counts_come_out_whole_and_nothing_as_nothing():
    bounds = {"n": np.array(2.0**32), "Y": np.array(1e3), "s": np.array(0.0)}
    parts = [{"n": np.array(7 + i), "Y": np.zeros(5), "s": np.zeros(2)} for i in range(200)]
    words = sum((fixed.encode(part, bounds, 200) for part in parts), np.zeros(14, dtype=np.uint64))
    total = fixed.decode(words, {"n": (), "Y": (5,), "s": (2,)}, bounds, 200, whole={"n"})
    assert total["n"] == sum(7 + i for i in range(200))
    assert not total["Y"].any()
    assert not total["s"].any()
