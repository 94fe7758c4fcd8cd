"""Test the geometry of subspaces by identities and against LAPACK."""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from builders import EPS, sine
from cases import every
from hypothesis import given
from hypothesis import strategies as st

from flower_pca.base import linalg
from flower_pca.tracking.solver import orthogonal_columns

seeds = st.integers(0, 2**32 - 1)


@st.composite
def tall(draw, *, largest=12):
    """A d x p Gaussian block with p <= d."""
    d = draw(st.integers(1, largest))
    p = draw(st.integers(1, d))
    return np.random.default_rng(draw(seeds)).standard_normal((d, p))


def orthonormal_columns(d, p, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, p)))[0]


def assert_orthonormal(Q):
    np.testing.assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), rtol=0, atol=32 * EPS * max(Q.shape))


@given(tall(), seeds)
@pytest.mark.slow
def test_orth_depends_on_the_flag_of_the_columns_only(Y, seed):
    p = Y.shape[1]
    T = np.triu(np.random.default_rng(seed).uniform(0.1, 1.0, (p, p))) + np.eye(p)
    np.testing.assert_allclose(linalg.orth(Y @ T), linalg.orth(Y), atol=1e3 * EPS * np.linalg.cond(Y @ T))


@every("rank", [0, 1, 3])
def test_orth_of_a_deficient_block_keeps_its_width_and_holds_its_span(rank):
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((9, rank)) @ rng.standard_normal((rank, 4))
    Q = linalg.orth(Y)
    assert Q.shape == (9, 4)
    assert_orthonormal(Q)
    np.testing.assert_allclose(Q @ (Q.T @ Y), Y, atol=1e-14)


def test_complement_is_orthogonal_even_of_a_block_almost_inside_the_space():
    Q = orthonormal_columns(50, 5, seed=1)
    Y = Q @ np.ones((5, 2)) + 1e-12 * np.random.default_rng(2).standard_normal((50, 2))
    rest = linalg.complement(Y, Q)
    assert np.abs(Q.T @ rest).max() <= 8 * EPS * np.linalg.norm(rest)
    np.testing.assert_allclose(rest + Q @ (Q.T @ Y), Y, atol=1e-14)


@every("scale", [1.0, 1e-200, 1e200])
def test_independent_keeps_exactly_the_directions_longer_than_the_floor(scale):
    U, W = orthonormal_columns(20, 4, seed=3), orthonormal_columns(4, 4, seed=4)
    Y = scale * U * np.array([1.0, 1e-3, 1.1e-6, 0.9e-6]) @ W.T
    Q = linalg.independent_columns(Y, 1e-6 * scale)
    assert Q.shape == (20, 3)
    assert_orthonormal(Q)
    np.testing.assert_allclose(Q @ Q.T, U[:, :3] @ U[:, :3].T, atol=1e-9)  # 1e-9 = eps / 1e-6, and slack


@every("lengths", [[1, 0.5, 0.1, 0.01], [1, 1e-3, 1e-6, 1e-9], [1, 1, 0, 0], [1, 1, 1e-7, 0]])
@every("turned", [False, True])
def test_a_krylov_block_is_what_lapack_finds_outside_of_the_space(lengths, turned):
    Q, W = orthonormal_columns(60, 5, seed=1), orthonormal_columns(4, 4, seed=2)
    outside = linalg.orth(linalg.complement(orthonormal_columns(60, 4, seed=3), Q))
    S = outside * np.array(lengths) @ (W.T if turned else np.eye(4))
    S = S + Q @ np.random.default_rng(4).standard_normal((5, 4))
    block, inside, along = linalg.next_block(S, Q, 1.0)
    np.testing.assert_allclose(inside, Q.T @ S, atol=1e-14)
    np.testing.assert_allclose(along, block.T @ S, atol=1e-14)
    # For shorter ones, rounding of size eps in S turns a direction by more than this test allows.
    kept = np.array(lengths) > 1e-8
    sure = outside[:, kept]
    assert sure.shape[1] <= block.shape[1] <= int(np.sum(np.array(lengths) > 0.0))
    assert_orthonormal(block)
    assert np.abs(Q.T @ block).max() < 1e-14
    np.testing.assert_allclose(block @ (block.T @ sure), sure, atol=1e-7)


@every("left", [0.0, 1e-12, 1e-8, 1e-4, 1.0])
def test_a_krylov_block_is_the_same_when_most_was_projected_out_before(left):
    Q = orthonormal_columns(60, 5, seed=1)
    outside = linalg.complement(np.random.default_rng(3).standard_normal((60, 4)), Q) * [1, 0.5, 0.1, 0.01]
    S = outside + left * Q @ np.random.default_rng(4).standard_normal((5, 4))
    block, inside, along = linalg.next_block(S, Q, 1.0)
    np.testing.assert_allclose(inside, Q.T @ S, atol=1e-14)
    np.testing.assert_allclose(along, block.T @ S, atol=1e-14)
    assert_orthonormal(block)
    assert np.abs(Q.T @ block).max() < 1e-14
    assert linalg.sin_theta(block, linalg.orth(outside)) < 1e-12


@every("left", [0.0, 1e-12, 1e-9, 1e-7, 1e-3])
@every("directions", [1, 4])
@every("theta", [1.0, 1e3])
def test_a_krylov_block_keeps_no_more_of_older_columns_than_it_may(left, directions, theta):
    rng = np.random.default_rng(4)
    Q, T = orthonormal_columns(60, 5, seed=1), np.diag([theta, 1.0, 1.0, 1.0, 1.0])
    S = linalg.complement(rng.standard_normal((60, 4)), Q)
    S = S + left * Q @ rng.standard_normal((5, directions)) @ rng.standard_normal((directions, 4))
    block, inside, along = linalg.next_block(S, Q, 1.0, skew=1e-10, T=T)
    assert_orthonormal(block)
    assert np.linalg.norm(T @ Q.T @ block, 2) < 2e-10 * np.linalg.norm(along, -2)
    np.testing.assert_allclose(Q @ inside + block @ along, S, atol=1e-13)


@every("size", [1e-12, 1e-8, 1e-3, 10.0])
def test_polished_columns_are_orthonormal_and_span_the_same(size):
    Z = orthonormal_columns(30, 4, seed=5)
    rough = Z + size * np.random.default_rng(6).standard_normal((30, 4))
    assert_orthonormal(linalg.newton_orthonormalize(rough))
    assert linalg.sin_theta(linalg.newton_orthonormalize(rough), linalg.orth(rough)) < 1e-14


def test_independent_of_nothing_but_rounding_is_empty():
    assert linalg.independent_columns(np.full((6, 3), 1e-17), 1e-16).shape == (6, 0)


@pytest.mark.slow
@given(tall())
def test_polar_is_the_orthonormal_factor_of_scipys_polar_decomposition(W):
    np.testing.assert_allclose(linalg.polar(W), scipy.linalg.polar(W)[0], atol=1e3 * EPS * np.linalg.cond(W))


@pytest.mark.slow
@given(tall(), seeds)
def test_no_orthogonal_matrix_aligns_better_than_procrustes(X, seed):
    rng = np.random.default_rng(seed)
    B, p = rng.standard_normal(X.shape), X.shape[1]
    O = linalg.procrustes(X, B)
    assert_orthonormal(O)
    nuclear = np.linalg.svd(X.T @ B, compute_uv=False).sum()  # the maximum of <XO, B>, by von Neumann
    assert np.sum((X @ O) * B) == pytest.approx(nuclear, rel=1e-13)
    best = np.linalg.norm(X @ O - B)
    for _ in range(5):
        other = np.linalg.qr(rng.standard_normal((p, p)))[0]
        assert best <= np.linalg.norm(X @ other - B) + 1e-12


def test_procrustes_undoes_a_rotation():
    X, turn = orthonormal_columns(30, 4, seed=5), orthonormal_columns(4, 4, seed=6)
    np.testing.assert_allclose(linalg.procrustes(X, X @ turn), turn, atol=1e-14)


@every("scale", [1.0, 1e-300, 1e-160, 1e160, 1e300])
def test_norm2_is_the_spectral_norm_at_every_size(scale):
    E = np.random.default_rng(7).standard_normal((40, 5))
    assert linalg.norm2(scale * E) == pytest.approx(scale * np.linalg.norm(E, 2), rel=1e-14)


def test_norm2_of_subnormal_zero_empty_and_unbounded_blocks():
    tiny = np.array([[5e-324, 0.0], [0.0, 5e-324]])
    assert linalg.norm2(tiny) == 5e-324
    assert linalg.norm2(np.zeros((3, 2))) == 0.0
    assert linalg.norm2(np.empty((3, 0))) == 0.0
    assert linalg.norm2(np.array([[1.0], [np.inf]])) == np.inf
    assert math.isnan(linalg.norm2(np.array([[1.0], [np.nan]])))


ANGLES = [0.0, 1e-12, 1e-9, 1e-4, 0.3, math.pi / 4, 1.2, math.pi / 2 - 1e-9, math.pi / 2 - 1e-12, math.pi / 2]


def tilted(angles, seed, *, extra=0):
    """Bases of two spaces with these principal angles; `extra` columns more in the first."""
    k = len(angles)
    Q = orthonormal_columns(3 * k + extra, 2 * k + extra, seed)
    turn = np.random.default_rng(seed + 1)
    A = np.hstack([Q[:, :k], Q[:, 2 * k :]])
    B = Q[:, :k] * np.cos(angles) + Q[:, k : 2 * k] * np.sin(angles)
    return (S @ np.linalg.qr(turn.standard_normal((S.shape[1],) * 2))[0] for S in (A, B))


@every("extra", [0, 3])
@every("seed", [0, 1, 2])
def test_principal_angles_are_accurate_at_both_ends(seed, extra):
    A, B = tilted(np.array(ANGLES), seed, extra=extra)
    np.testing.assert_allclose(linalg.principal_angles(A, B), ANGLES, rtol=0, atol=1e-14)
    np.testing.assert_allclose(linalg.principal_angles(B, A), ANGLES, rtol=0, atol=1e-14)


@every("theta", [1e-12, 1e-6, 0.7, math.pi / 2 - 1e-6])
def test_principal_angles_of_a_single_column(theta):
    A, B = tilted(np.array([theta]), seed=8)
    assert linalg.principal_angles(A, B) == pytest.approx([theta], rel=0, abs=1e-15)


@every("largest", [0.0, 1e-12, 1e-6, 0.5, math.pi / 2])
def test_sin_theta_is_the_sine_of_the_largest_angle(largest):
    A, B = tilted(np.array([0.0, largest / 3, largest]), seed=9)
    assert linalg.sin_theta(A, B) == pytest.approx(math.sin(largest), rel=0, abs=2e-15)
    assert linalg.sin_theta(A, B) <= 1.0


@every("angles", [[1e-12, 1e-9], [0.1, 0.2], [1e-12, math.pi / 2], ANGLES])
def test_projection_distance_is_the_norm_of_the_sines(angles):
    A, B = tilted(np.array(angles), seed=10)
    expected = math.sqrt(2.0) * math.hypot(*map(math.sin, angles))
    assert linalg.projection_distance(A, B) == pytest.approx(expected, rel=1e-12, abs=3e-15)


@pytest.mark.slow
@given(tall(), seeds)
def test_fix_signs_makes_the_largest_entry_positive_and_forgets_the_sign_given(V, seed):
    fixed = linalg.fix_signs(V)
    assert (fixed[np.abs(fixed).argmax(axis=0), np.arange(V.shape[1])] > 0).all()
    assert np.array_equal(np.abs(fixed), np.abs(V))
    flips = np.random.default_rng(seed).choice([-1.0, 1.0], V.shape[1])
    assert np.array_equal(linalg.fix_signs(V * flips), fixed)


def test_fix_signs_lets_the_first_of_equally_large_entries_decide():
    V = np.array([[-0.5, 0.1, 0.0], [0.5 + 1e-12, -0.7, 0.0], [0.1, 0.7 - 1e-12, 0.0]])
    expected = np.array([[0.5, -0.1, 0.0], [-0.5 - 1e-12, 0.7, 0.0], [-0.1, -0.7 + 1e-12, 0.0]])
    np.testing.assert_array_equal(linalg.fix_signs(V), expected)


def test_fix_signs_takes_no_columns():
    assert linalg.fix_signs(np.empty((4, 0))).shape == (4, 0)


@pytest.mark.slow
@given(tall())
def test_eigh_descending_agrees_with_scipy(Y):
    H = Y.T @ Y
    values, vectors = linalg.eigh_descending(H)
    size = np.linalg.norm(H)
    np.testing.assert_allclose(values, scipy.linalg.eigvalsh(H)[::-1], rtol=0, atol=32 * EPS * size)
    np.testing.assert_allclose(H @ vectors, vectors * values, rtol=0, atol=64 * EPS * size)
    assert_orthonormal(vectors)


@pytest.mark.slow
@given(tall(), seeds)
def test_rayleigh_ritz_gives_eigenpairs_of_the_projection_with_their_true_residuals(Y, seed):
    d, p = Y.shape
    A = np.random.default_rng(seed).standard_normal((d + 2, d))
    C = A.T @ A
    Z = np.linalg.qr(Y)[0]
    values, V, CV, residuals = linalg.rayleigh_ritz(Z, C @ Z)
    size = np.linalg.norm(C)
    assert_orthonormal(V)
    np.testing.assert_allclose(V @ V.T, Z @ Z.T, atol=1e-13)
    np.testing.assert_allclose(CV, C @ V, atol=1e-13 * size)
    np.testing.assert_allclose(values, scipy.linalg.eigvalsh(Z.T @ C @ Z)[::-1], atol=1e-13 * size)
    np.testing.assert_allclose(residuals, np.linalg.norm(C @ V - V * values, axis=0), atol=1e-13 * size)
    assert (values <= scipy.linalg.eigvalsh(C)[::-1][:p] + 1e-13 * size).all()


def test_random_block_is_box_muller_on_the_raw_bits_of_pcg64():
    d, p, seed = 7, 3, 123
    bits = [int(b) >> 11 for b in np.random.PCG64(seed).random_raw(2 * d * p)]
    u = [b / 2**53 for b in bits]
    expected = [math.sqrt(-2.0 * math.log1p(-u[i])) * math.cos(2.0 * math.pi * u[d * p + i]) for i in range(d * p)]
    np.testing.assert_allclose(linalg.random_block(d, p, seed).ravel(), expected, rtol=1e-13)


def test_random_block_is_standard_normal():
    draws = linalg.random_block(400, 100, 5)
    assert scipy.stats.kstest(draws.ravel(), "norm").pvalue > 0.01
    for power, moment, spread in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:  # E x^m and Var x^m
        assert abs(np.mean(draws**power) - moment) < 4 * math.sqrt(spread / draws.size)
    correlation = np.corrcoef(draws[:, :10], rowvar=False) - np.eye(10)
    assert np.abs(correlation).max() < 5 / math.sqrt(400)


def test_random_block_is_reproducible_read_only_and_differs_between_seeds():
    first = linalg.random_block(6, 2, 9).copy()
    linalg._small_block.cache_clear()
    again = linalg.random_block(6, 2, 9)
    assert np.array_equal(first, again)
    assert not np.array_equal(again, linalg.random_block(6, 2, 10))
    with pytest.raises(ValueError, match="read-only"):
        again[0, 0] = 0.0


def test_a_column_beside_no_basis_is_uniform_on_the_raw_bits_of_pcg64():
    drawn = [(int(b) >> 11) / 2**52 - 1.0 for b in np.random.PCG64(8).random_raw(50)]
    column = orthogonal_columns(np.zeros((50, 0)), 1, 8)[:, 0]
    np.testing.assert_allclose(column, drawn / np.linalg.norm(drawn), rtol=1e-12)


def test_random_basis_is_orthonormal_and_of_the_span_of_the_block():
    Z = linalg.random_basis(30, 4, 11)
    assert_orthonormal(Z)
    B = linalg.random_block(30, 4, 11)
    np.testing.assert_allclose(Z @ (Z.T @ B), B, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 20])
def test_leading_eigenvectors_of_a_large_matrix_are_found_without_the_others(count, monkeypatch):
    m = 2 * linalg._LARGE
    H = np.random.default_rng(0).standard_normal((m, m))
    H = H @ H.T + 1e-14 * H
    expected = np.linalg.eigh((H + H.T) / 2)
    monkeypatch.setattr(linalg, "eigh_descending", None)
    values, vectors = linalg.eigh_leading(H, count)
    assert values.shape == (count,)
    assert vectors.shape == (m, count)
    assert np.allclose(values, expected.eigenvalues[::-1][:count], rtol=1e-12)
    assert np.allclose(vectors.T @ vectors, np.eye(count), atol=1e-12)
    assert np.linalg.norm(H @ vectors - vectors * values) <= 1e-12 * values[0] * np.sqrt(m)


@every(("m", "count"), [(10, 2), (10, 20), (320, 100)])
def test_all_eigenvectors_are_computed_if_the_matrix_is_small_or_many_are_needed(m, count):
    H = np.random.default_rng(1).standard_normal((m, m))
    values, vectors = linalg.eigh_leading(H, count)
    assert vectors.shape == (m, m)
    assert np.array_equal(values, linalg.eigh_descending(H)[0])


@every("size", [1e-300, 1e-170, 1e-3, 1.0, 1e170, 1e300])
def test_the_length_of_a_matrix_is_told_in_any_unit(size):
    E = np.random.default_rng(0).standard_normal((7, 3))
    assert linalg.frobenius_norm(size * E) == pytest.approx(size * np.linalg.norm(E), rel=1e-14)
    assert linalg.frobenius_norm(0.0 * E) == 0.0


@every("dtype", [np.float64, np.float32, np.int64])
@every("shape", [(1, 1), (9, 4), (4, 9), (200, 70), (5, 0), (0, 3)])
def test_qr_gives_the_factors_of_any_matrix_in_its_precision(shape, dtype):
    Y = (10.0 * np.random.default_rng(3).standard_normal(shape)).astype(dtype)
    Q, R = linalg.qr(Y)
    eps = np.finfo(np.float32 if dtype is np.float32 else np.float64).eps
    assert Q.dtype == R.dtype == (np.float32 if dtype is np.float32 else np.float64)
    assert Q.shape == (shape[0], min(shape))
    assert R.shape == (min(shape), shape[1])
    assert Q.flags.c_contiguous
    assert R.flags.c_contiguous
    np.testing.assert_allclose(Q @ R, Y, rtol=0, atol=64 * eps * np.linalg.norm(Y))
    np.testing.assert_allclose(Q.T @ Q, np.eye(min(shape)), rtol=0, atol=32 * eps * max(shape))
    assert np.all(np.diagonal(R) >= 0.0)
    assert not np.tril(R, -1).any()
    np.testing.assert_array_equal(linalg.orth(Y), Q, strict=True)


def side_by_side(blocks):
    stacked = linalg.SideBySide()
    for block in blocks:
        stacked.add(block)
    return stacked.matrix()


@pytest.mark.parametrize("d", [3, 30])
def test_blocks_side_by_side_have_the_singular_vectors_of_all_in_the_memory_of_few(d):
    rng = np.random.default_rng(5)
    blocks = [rng.standard_normal((d, 100)) * np.arange(d, 0, -1)[:, None] for _ in range(90)]
    whole = np.hstack(blocks)
    few = side_by_side(blocks)
    assert few.shape[1] < 1200 < whole.shape[1]
    assert np.allclose(few @ few.T, whole @ whole.T, rtol=1e-12, atol=1e-9)
    assert sine(linalg.leading_left_vectors(few, 2).T, np.linalg.svd(whole, full_matrices=False)[0][:, :2].T) < 1e-12
    assert np.array_equal(side_by_side(blocks[:10]), np.hstack(blocks[:10]))
