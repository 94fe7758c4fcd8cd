"""Test the client's side of privacy: clipping, the sensitivity of every bounded stage, the noise, and refusals."""

from __future__ import annotations

import flat
import numpy as np
import pytest
from builders import clipped
from cases import every
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from flower_pca import ProtocolError, registry
from flower_pca.algorithms.covariance import pack_triangle, unpack_triangle
from flower_pca.base.bits import seeded_bits, system_bits
from flower_pca.core.model import Model
from flower_pca.dp import drawing
from flower_pca.layers import noise
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.stages.private_opening import PrivateOpening

BITS = seeded_bits(5, 0)
BOUNDED = [name for name, stage in registry.STAGES.items() if stage.bounded]


def bounded_message(stage, d, p=3, seed=0, size=1.0):
    Z = size * np.linalg.qr(np.random.default_rng([seed, 9]).standard_normal((d, min(p, d))))[0]
    flags = {"sums": np.array(bool(seed % 2)), "columns": np.array(bool(seed % 3))}
    return {"ssi": {"Z": Z}, "krylov": {"B": Z}, "covariance": {"columns": np.array(d)}, "private_opening": flags}[
        stage
    ]


def clean(stage, arrays, X, clip, frame):
    return registry.STAGES[stage].client(arrays, noise.ClippedRows(LocalData(X).in_frame(frame), clip), {})[0]


def test_without_noise_a_private_opening_gives_the_mean_and_scale_of_the_rows():
    X = np.random.default_rng(0).standard_normal((40, 3)) * [1.0, 2.0, 3.0] + [5.0, 0.0, -2.0]
    stage = PrivateOpening(width=2, clip=50.0, noise=1e-9)
    model = Model(n_components=1, center=True, scale="std", seed=0)
    state = stage.start(model)
    up = clean("private_opening", stage.broadcast(state), X, 50.0, Frame())
    frame = stage.finish(stage.server(state, {**up, "n": np.array(1)}, frozenset([0])), model).frame
    np.testing.assert_allclose(frame.mean, X.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(frame.scale, X.std(axis=0), rtol=1e-9)
    with pytest.raises(ProtocolError, match="1 moment, but at least 2 are needed"):
        stage.inspect(state, {"moments": np.ones(1)})


def test_the_bounded_stages_are_these():
    assert set(BOUNDED) == {"ssi", "krylov", "covariance", "private_opening"}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    stage=st.sampled_from(BOUNDED),
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 12),
    d=st.integers(1, 9),
    clip=st.sampled_from([1e-3, 0.7, 1.0, 30.0]),
    size=st.sampled_from([1.0, 0.4]),
    sizes=st.sampled_from([1e-2, 1.0, 1e4]),
    framed=st.booleans(),
)
def test_one_row_more_or_less_changes_an_answer_by_at_most_the_clip_squared(
    stage, seed, n, d, clip, size, sizes, framed
):
    rng = np.random.default_rng(seed)
    X = sizes * rng.standard_normal((n + 1, d)) * np.exp(rng.standard_normal((n + 1, 1)))
    frame = Frame(rng.standard_normal(d), np.exp(rng.standard_normal(d))) if framed else Frame()
    arrays = bounded_message(stage, d, seed=seed, size=size)
    one, other = (clean(stage, arrays, rows, clip, frame) for rows in (X, X[:-1]))
    change = np.sqrt(sum(np.sum((one[name] - other[name]) ** 2) for name in one if name != "n"))
    assert change <= clip**2 * (1.0 + 1e-9) + 1e-13 * max(np.abs(one[name]).max() for name in one if name != "n")


@every("stage", ["ssi", "krylov", "covariance"])
def test_the_bound_on_the_change_is_reached(stage):
    d, clip = 5, 2.0
    Z = np.eye(d)[:, :2]
    X = np.vstack([np.zeros(d), 7.0 * np.eye(d)[0]])
    arrays = {name: Z if a.ndim else a for name, a in bounded_message(stage, d).items()}
    one, other = (clean(stage, arrays, rows, clip, Frame()) for rows in (X, X[:1]))
    assert sum(np.sum((one[k] - other[k]) ** 2) for k in one if k != "n") ** 0.5 == pytest.approx(clip**2, rel=1e-12)


@every("store", [np.asarray, sparse.csr_array, lambda X: X.astype(np.float32)])
def test_clipped_rows_give_the_products_of_rows_clipped_by_hand(store):
    rng = np.random.default_rng(3)
    X = np.round(rng.standard_normal((400, 7)) * (rng.random((400, 7)) < 0.6), 3)
    frame, Z = Frame(rng.standard_normal(7), np.arange(1.0, 8.0)), rng.standard_normal((7, 2))
    F = clipped((X - frame.mean) / frame.scale, 1.1)
    rows = noise.ClippedRows(LocalData(store(X)).in_frame(frame), 1.1)
    tight = 1e-5 if store(X).dtype == np.float32 else 1e-12
    np.testing.assert_allclose(rows.matmat(Z), F.T @ (F @ Z), rtol=tight, atol=400 * tight)
    np.testing.assert_allclose(rows.gram(), F.T @ F, rtol=tight, atol=400 * tight)
    assert max(np.linalg.norm(B, axis=1).max() for B in rows.rows()) <= 1.1 * (1 + 1e-12)


def test_rows_beyond_all_numbers_count_as_none():
    X = np.array([[1e200, 1.0], [3.0, 4.0], [0.0, 0.0]])
    (B,) = noise.ClippedRows(LocalData(X), 1.0).rows()
    np.testing.assert_allclose(B, [[0.0, 0.0], [0.6, 0.8], [0.0, 0.0]], rtol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("stage", BOUNDED)
@pytest.mark.parametrize("bits", [system_bits, BITS], ids=["system", "seeded"])
def test_the_noise_that_is_added_has_the_stated_deviation(stage, bits):
    """Against the quantiles of chi-square (1e-9 on either side), and a normal law by Kolmogorov and Smirnov."""
    d, clip, std = 14, 1.5, 40.0
    X = np.random.default_rng(4).standard_normal((30, d))
    arrays = bounded_message(stage, d, seed=1)
    asked = {**arrays, **flat.noise(clip=clip, std=std, budget=1e9)}
    exact = clean(stage, arrays, X, clip, Frame())
    draws = [flat.answer(stage, asked, LocalData(X), {}, bits=bits)[0] for _ in range(200)]
    assert all(up["n"] == 1 for up in draws if "n" in up)
    z = np.concatenate([(up[k] - exact[k]).ravel() for up in draws for k in up if k != "n"]) / std
    low, high = stats.chi2(len(z)).ppf([1e-9, 1 - 1e-9]) / len(z)
    assert low < np.mean(z**2) < high
    assert stats.kstest(z, "norm").pvalue > 1e-9
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 6.0 / np.sqrt(len(z))


def test_noise_on_the_covariance_is_a_symmetric_gaussian_matrix():
    d, std = 40, 3.0
    asked = {"columns": np.array(d), **flat.noise(clip=1.0, std=std, budget=1e9)}
    draws = np.array(
        [unpack_triangle(flat.answer("covariance", asked, LocalData(np.zeros((2, d))), {})[0]["C"]) for _ in range(60)]
    )
    np.testing.assert_array_equal(draws, draws.transpose(0, 2, 1))
    diagonal, beside = draws[:, np.arange(d), np.arange(d)], draws[:, *np.triu_indices(d, 1)]
    for values, expected in ((diagonal, std), (beside, std / np.sqrt(2.0))):
        low, high = stats.chi2(values.size).ppf([1e-9, 1 - 1e-9]) / values.size
        assert low < np.mean(values**2) / expected**2 < high


def test_packing_keeps_the_frobenius_norm_and_reads_back():
    for d in (1, 2, 9):
        C = np.random.default_rng(d).standard_normal((d, d))
        C = C + C.T
        assert np.linalg.norm(pack_triangle(C)) == pytest.approx(np.linalg.norm(C), rel=1e-14)
        np.testing.assert_allclose(unpack_triangle(pack_triangle(C)), C, rtol=1e-15)


def test_seeded_noise_comes_again_and_differs_between_clients():
    one, again, other = (drawing.draw_normals((50,), seeded_bits(3, i)) for i in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.isin(one, other).any()
    system = drawing.draw_normals((50,), system_bits), drawing.draw_normals((50,), system_bits)
    assert not np.isin(*system).any()


def test_a_client_answers_up_to_the_budget_and_no_more():
    """Three messages of mu 1/2 fit into mu^2 = 3/4; the fourth does not, whatever its number."""
    data, Z = LocalData(np.eye(4)), np.eye(4)[:, :2]
    asked = {"Z": Z, **flat.noise(clip=1.0, std=2.0, budget=0.75)}
    memory = {}
    for _ in range(3):
        _, memory = flat.answer("ssi", asked, data, memory)
    with pytest.raises(ProtocolError) as caught:
        flat.answer("ssi", asked, data, memory)
    assert str(caught.value) == (
        "With this message, the client would spend 1.33 times the run's privacy budget. "
        "Start a new run with a new budget."
    )
