"""Test that the last digits of a noisy number do not reveal how the noise was added."""

import math
from fractions import Fraction

import flat
import numpy as np
import pytest
from cases import every
from scipy import stats

from flower_pca import DP, registry
from flower_pca.base.bits import seeded_bits
from flower_pca.dp import drawing
from flower_pca.layers import noise
from flower_pca.layers.noise import ClippedRows
from flower_pca.masking import fixed
from flower_pca.rows.local import LocalData

D, MESSAGES = 784, 100
BITS = seeded_bits(5, 0)


def one_hot_rows():
    """All other rows are 0 in all columns but the first, as one-hot columns are; the one in question is in none."""
    others = np.zeros((50, D))
    others[:, 0] = 0.5
    one = np.r_[0.7, np.full(D - 1, 0.7 / np.sqrt(D - 1))]
    return others, np.vstack([others, one])


def floats(a, deviation, bits):
    """Noise as it was before there was a grid."""
    return a + deviation * drawing.draw_normals(np.shape(a), bits)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "before"), [(0.1, 1), (1.0, 25)])
@pytest.mark.parametrize("stage", ["ssi", "krylov"])
def test_no_message_proves_that_a_row_is_missing(stage, epsilon, before, monkeypatch):
    """With the row an entry is rounded where it is; a number that is no multiple of that place shows there was none."""
    name, sent = {"ssi": ("Z", "Y"), "krylov": ("B", "S")}[stage]
    budget = noise.BudgetLayer(DP(epsilon=epsilon, delta=1e-9, clip=1.0), 1)
    Z = np.eye(D)[:, :1]
    asked = {name: Z, **flat.noise(clip=1.0, std=budget.noise, budget=budget.budget)}
    without, within = (LocalData(X) for X in one_hot_rows())
    place = np.spacing(np.abs(within.matmat(Z)[1:, 0]).min()) / 2

    def proofs(data):
        answers = (flat.answer(stage, asked, data, {}, bits=BITS)[0][sent][1:, 0] for _ in range(MESSAGES))
        return sum(bool((np.rint(y / place) * place != y).any()) for y in answers)

    monkeypatch.setattr(noise, "add_noise", floats)
    assert proofs(without) >= before
    assert proofs(within) == 0
    monkeypatch.undo()
    assert proofs(without) == proofs(within) == 0


@every("stage", [name for name, stage in registry.STAGES.items() if stage.bounded])
@every("std", [1e-3, 1.0, 3.7, 1e6])
def test_all_that_is_sent_with_noise_is_on_the_grid_of_masks(stage, std):
    Z = np.eye(6)[:, :2]
    arrays = {
        "ssi": {"Z": Z},
        "krylov": {"B": Z},
        "covariance": {"columns": np.array(6)},
        "private_opening": {"sums": np.array(True), "columns": np.array(True)},
    }[stage]
    X = np.random.default_rng(2).standard_normal((40, 6))
    asked = {**arrays, **flat.noise(clip=1.3, std=std, budget=1e12)}
    up, _ = flat.answer(stage, asked, LocalData(X), {}, bits=BITS)
    step = drawing.step_of(std)
    assert std / 2**11 < step <= std / 2**10
    bound = np.array(fixed.bound_with_noise(std, 5))
    assert fixed.decode(np.array([10_000], np.uint64), {"Y": (1,)}, {"Y": bound}, 5)["Y"][0] == 10_000 * step
    clean, _ = registry.STAGES[stage].client(arrays, ClippedRows(LocalData(X), 1.3), {})
    for key in set(up) - {"n"}:
        assert np.array_equal(np.rint(up[key] / step) * step, up[key])
        assert 0.0 < np.abs(up[key] - clean[key]).max() < 10.0 * std


@every("deviation", [0.75, 1.0, 3e5])
def test_no_digit_is_lost_before_the_noise_is_added(deviation):
    """Against fractions: whole steps and rest apart, so that the noise meets the same rest wherever a number is."""
    rng = np.random.default_rng(1)
    a = rng.standard_normal(300) * 10.0 ** rng.integers(-30, 14, 300)
    step, z = drawing.step_of(deviation), drawing.draw_normals((300,), seeded_bits(8))
    got = drawing.add_noise(a, deviation, seeded_bits(8))
    for x, n, y in zip(a, z, got, strict=True):
        steps = Fraction(x) / Fraction(step)
        rest = float(steps - math.floor(steps)) + deviation / step * n
        assert y / step == float(math.floor(steps) + round(rest))  # Beyond 2^53 steps, the number is rounded once more.
    whole = np.rint(rng.standard_normal(300) * 1e6) * step
    alone = drawing.add_noise(whole, deviation, seeded_bits(8)) - whole
    np.testing.assert_array_equal(alone, np.rint(deviation / step * z) * step)


def test_numbers_beyond_all_steps_are_cut_off_and_noise_below_all_numbers_has_the_least_step():
    far = drawing.add_noise(np.array([1e300, -1e300, 2.0**80]), 1e-100, BITS)
    step = drawing.step_of(1e-100)
    assert np.abs(far / step).max() < 2.0**62 + 2.0**15
    assert np.sign(far).tolist() == [1.0, -1.0, 1.0]
    assert drawing.step_of(5e-324) == 2.0**-1022
    assert np.isfinite(drawing.add_noise(np.array([1e-310, 3.0]), 5e-324, BITS)).all()


def bits_of(*blocks):
    """Bits that are these, one after another."""
    left = list(blocks)
    return lambda size: np.resize(np.array(left.pop(0), dtype=np.uint64), size)


def test_noise_has_tails_beyond_those_of_53_bits():
    """Before, no number was beyond 8.57 deviations, as if its chance of 1e-17 were none."""
    ones = 2**64 - 1
    largest = drawing.draw_normals((1,), bits_of([ones, 0], [0, 0]))[0]
    assert largest == pytest.approx(np.sqrt(2 * 193 * np.log(2)))
    assert drawing.draw_normals((1,), bits_of([ones, 0], [ones, 0]))[0] == pytest.approx(np.sqrt(2 * 64 * np.log(2)))
    assert drawing.draw_normals((1,), bits_of([0, 0], []))[0] == 0.0


def test_the_tails_have_the_law_of_a_normal_radius():
    """Given that 64 bits are all 0, the squared radius is 128 ln 2 beyond an exponential law of mean 2."""
    size, rng = 4000, np.random.default_rng(3)
    first = np.concatenate([np.full(size, 2**64 - 1, np.uint64), np.zeros(size, np.uint64)])
    more = rng.integers(0, 2**64, 2 * size, dtype=np.uint64)
    z = drawing.draw_normals((size,), bits_of(first, more))
    assert z.min() > 9.4
    assert stats.kstest(z**2 / 2 - 64 * np.log(2), "expon").pvalue > 1e-9
