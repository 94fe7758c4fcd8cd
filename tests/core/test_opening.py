"""Test the opening against pooled numpy in extended precision."""

import functools
import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from builders import EPS, deal, framed
from by_hand import honest, local_clients, model, session
from cases import every

from flower_pca import PCAResult, registry
from flower_pca.base import linalg
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.stages import opening
from flower_pca.stages.opening import SITE_ROWS, SITE_SUMS, Opening

RATIO = 1e5  # mean over deviation: what a frame loses to rounding is this times eps


def replies(stage, state, shards):
    """What each client sends up."""
    up = [stage.client(stage.broadcast(state), LocalData(X), {})[0] for X in shards]
    for reply in up:
        assert set(reply) == set(stage.parts(stage.broadcast(state), None))
    return up


def opened(shards, *, width=4, known=None, order=None):
    """The model after the opening, the replies merged in this order."""
    known = model() if known is None else known
    stage, total = Opening(width=width), None
    state = stage.start(known)
    up = replies(stage, state, shards)
    for i in range(len(shards)) if order is None else order:
        total = stage.merging(state)(total, i, up[i])
    return stage.finish(stage.server(state, total, frozenset(range(len(shards)))), known)


def far_from_zero(seed=0, n=400, d=8):
    """Rows whose means are 1e5 deviations away from zero."""
    rng = np.random.default_rng(seed)
    sd = rng.uniform(0.5, 2.0, d)
    return (rng.standard_normal((n, d)) @ np.linalg.qr(rng.standard_normal((d, d)))[0] + RATIO) * sd


def near(seed=0, n=400, d=8):
    rng = np.random.default_rng(seed)
    return rng.integers(1, 20, (n, d)) * (rng.random((n, d)) < 0.3) * rng.uniform(0.5, 3.0, d)


ROWS = {
    "far": (far_from_zero, np.asarray, RATIO),
    "near": (near, np.asarray, 1.0),
    "sparse matrix": (near, sp.csr_matrix, 1.0),
    "sparse array": (near, sp.csr_array, 1.0),
}


@every("scale", [None, "std", "max_abs"])
@every("center", [True, False])
@every("rows", ROWS)
def test_frame_trace_and_product_are_those_of_all_rows_together(rows, center, scale):
    make, kind, ratio = ROWS[rows]
    X = make()
    known = opened([kind(part) for part in deal(X, (130, 1, 200, 69))], known=model(center=center, scale=scale))
    exact = framed(X.astype(np.longdouble), center=center, scale=scale)
    C = exact.T @ exact
    loss = 64 * EPS * ratio

    assert (known.n, known.d, known.eps) == (400, 8, EPS)
    if center:
        np.testing.assert_allclose(known.frame.mean, X.astype(np.longdouble).mean(axis=0).astype(float), rtol=8 * EPS)
    else:
        assert known.frame.mean is None
    if scale is None:
        assert known.frame.scale is None
    else:
        divisor = X.astype(np.longdouble).std(axis=0) if scale == "std" else np.abs(X).max(axis=0)
        np.testing.assert_allclose(known.frame.scale, divisor.astype(float), rtol=loss)
    assert known.trace == pytest.approx(float(np.trace(C)), rel=loss)
    Z = known.basis
    np.testing.assert_allclose(Z.T @ Z, np.eye(4), atol=32 * EPS)
    size = np.linalg.norm(C.astype(float))
    np.testing.assert_allclose(known.product, (C @ Z).astype(float), rtol=0, atol=loss * size)


@pytest.mark.parametrize("center", [True, False])
def test_the_model_does_not_depend_on_the_order_of_replies(center):
    shards = deal(far_from_zero(1), (7, 93, 200, 100))
    stage, known = Opening(width=3), model(center=center)
    state = stage.start(known)
    answers = list(enumerate(replies(stage, state, shards)))

    def folded(total, answer):
        return stage.merging(state)(total, *answer)

    totals = [functools.reduce(folded, order, None) for order in itertools.permutations(answers)]
    first, *others = (stage.finish(stage.server(state, total, frozenset(range(4))), known) for total in totals)
    size = np.linalg.norm(first.product)
    for other in others:
        assert other.n == first.n
        assert other.trace == pytest.approx(first.trace, rel=64 * EPS * RATIO)
        np.testing.assert_array_equal(other.basis, first.basis)
        np.testing.assert_allclose(other.product, first.product, rtol=0, atol=64 * EPS * RATIO * size)


def test_single_precision_clients_are_declared_in_eps():
    shards = deal(near(3), (200, 200))
    mixed = opened([shards[0], shards[1].astype(np.float32)])
    assert mixed.eps == float(np.finfo(np.float32).eps)


def test_a_column_constant_at_each_client_but_not_over_all_is_varying():
    X = near(5, n=20)
    X[:10, 0], X[10:, 0] = 1.0, 2.0
    assert opened(deal(X, (10, 10)), known=model(scale="std")).frame.scale[0] == pytest.approx(0.5, rel=1e-15)


def test_a_zero_column_is_left_as_it_is_under_max_abs():
    X = near(6)
    X[:, 3] = 0.0
    known = opened(deal(X, (200, 200)), known=model(scale="max_abs"))
    assert known.frame.scale[3] == 1.0
    assert np.isfinite(known.product).all()


@pytest.mark.parametrize("scale", ["std", "max_abs"])
def test_a_badly_conditioned_scaled_block_leaves_a_start_without_its_product(scale):
    X = near(7) * np.logspace(0, 8, 8)
    known = opened(deal(X, (150, 250)), width=6, known=model(scale=scale))
    block = linalg.random_block(8, 6, 3) * known.frame.scale[:, None]
    assert np.linalg.cond(block) > 1e3
    assert known.product is None
    Y = framed(X, scale=scale)
    start = np.linalg.qr(Y.T @ (Y @ block))[0]
    np.testing.assert_allclose(known.basis.T @ known.basis, np.eye(6), atol=32 * EPS)
    np.testing.assert_allclose(known.basis @ known.basis.T @ start[:, :1], start[:, :1], atol=1e-9)


def test_a_run_reaches_the_answer_from_a_start_without_its_product():
    X = near(7) * np.logspace(0, 8, 8)
    run = session("krylov(tol=1e-12)", scale="std", n_components=4)
    nodes = local_clients(deal(X, (150, 250)))
    while (message := run.pending([0, 1])) is not None:
        run.advance([honest(message, i, nodes[i]) for i in message.to])
    exact = np.linalg.svd(framed(X, scale="std"), compute_uv=False)[:4]
    np.testing.assert_allclose(run.result().singular_values_, exact, rtol=1e-12)


@pytest.mark.parametrize(("n", "d"), [(5, 8), (9, 3)])
def test_there_may_be_as_many_components_as_rows_or_columns(n, d):
    X, most = near(8, n=n, d=d), min(n, d)
    assert opened(deal(X, (2, n - 2)), known=model(n_components=most)).n == n


def test_a_block_wider_than_the_rows_is_cut_to_their_columns():
    known = opened([near(9, d=3)], width=7)
    assert known.basis.shape == known.product.shape == (3, 3)


@every("name", registry.ALGORITHMS)
def test_the_opening_is_as_wide_as_the_algorithm_iterates(name):
    algorithm = registry.make(name, oversample=3)
    gap = name == "fed_oapm"  # It takes one more column for the gap.
    assert algorithm.width(5) == 8 + gap
    if (
        registry.entry_of(type(algorithm)).result is PCAResult and algorithm.orthonormal
    ):  # Robust and sparse algorithms need a number.
        assert algorithm.width(0.9) == 13 + gap


def test_a_given_block_is_multiplied_instead_of_a_drawn_one():
    X, block = near(10), np.linalg.qr(np.random.default_rng(1).standard_normal((8, 3)))[0]
    known = opened(deal(X, (100, 300)), known=model(basis=block))
    Y = framed(X)
    np.testing.assert_allclose(np.abs(known.basis.T @ block), np.eye(3), atol=1e-14)
    np.testing.assert_allclose(known.product, Y.T @ (Y @ known.basis), atol=1e-13 * np.linalg.norm(Y) ** 2)


def test_peaks_are_sent_under_max_abs_only():
    for scale, columns in ((None, 2), ("std", 2), ("max_abs", 3)):
        (reply,) = replies(Opening(width=2), Opening(width=2).start(model(scale=scale)), [near(12)])
        assert sum(a.shape == (8,) for a in reply.values()) == columns


def test_centering_turns_off_without_a_frame():
    known = opened([near(13)], known=model(center=False))
    assert known.frame.maps_rows_alike(Frame())


@pytest.mark.parametrize("compared", [2**15, 0])
@pytest.mark.parametrize("gaps", [False, True])
@every("scale", [None, "std"])
def test_the_sums_of_sites_are_those_of_their_rows_in_the_frame(scale, gaps, compared, monkeypatch):
    monkeypatch.setattr(opening, "COMPARED", compared)
    X, missing = far_from_zero(14), "error"
    parts = deal(X, (130, 69, 200, 1))
    if gaps:
        missing = "mean"
        for i, part in enumerate(parts):
            part[np.random.default_rng(i).random(part.shape) < 0.2] = np.nan
        parts[0][:, 3] = np.nan
    stage, total, known = Opening(width=4, judged=False), None, model(scale=scale, missing=missing)
    state = stage.start(known)
    clients = [LocalData(part, missing=gaps) for part in parts]
    for i, client in enumerate(clients):
        total = stage.merging(state)(total, i, stage.client(stage.broadcast(state), client, {})[0])
    known = stage.finish(stage.server(state, total, frozenset(range(4))), known)
    filled = [np.where(np.isnan(part), known.frame.mean, part).astype(np.longdouble) for part in parts]
    expected = [((part - known.frame.mean) / known.frame.column_divisors).sum(axis=0) for part in filled]
    assert known.sites[SITE_ROWS].tolist() == [130, 69, 200, 1]
    np.testing.assert_allclose(known.sites[SITE_SUMS], np.array(expected, dtype=float), rtol=0, atol=2e-8)


def kept_of(clients, *, judged):
    """What the server keeps of each client beside the merged answer."""
    stage, total = Opening(width=2, judged=judged), None
    state = stage.start(model())
    for i, up in enumerate(replies(stage, state, np.split(near(15, n=60 * clients), clients))):
        total = stage.merging(state)(total, i, up)
    return [set(own) for own in stage.server(state, total, frozenset(range(clients))).said.values()]


@pytest.mark.parametrize("judged", [False, True])
def test_the_server_keeps_of_many_clients_only_what_it_uses(judged, monkeypatch):
    monkeypatch.setattr(opening, "COMPARED", 2 * 8)
    monkeypatch.setattr(opening, "SUMMED", 3 * 8)
    claims = {"n", "eps", "mean", "m2"}
    assert kept_of(2, judged=judged) == [{*claims, "product"}] * 2
    assert kept_of(3, judged=judged) == [claims if judged else {"n", "mean"}] * 3
    assert kept_of(4, judged=judged) == ([claims] * 4 if judged else [])


@pytest.mark.parametrize("sizes", [(12, 30, 30, 9), (5, 4, 3), (2, 2, 40)])
def test_the_model_names_the_first_client_with_the_most_rows(sizes):
    rng = np.random.default_rng(0)
    stage, total, known = Opening(width=3, judged=False), None, model()
    state = stage.start(known)
    for i, n in enumerate(sizes):
        up, _ = stage.client(stage.broadcast(state), LocalData(rng.standard_normal((n, 6))), {})
        total = stage.merging(state)(total, 10 + i, up)
    state = stage.server(state, total, frozenset(range(10, 10 + len(sizes))))
    assert stage.finish(state, known).sites[opening.LARGEST_SITE] == 10 + np.argmax(sizes)
