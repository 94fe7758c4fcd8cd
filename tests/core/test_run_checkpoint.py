"""Test that a run that is stopped after any round and resumed gives the same bits and counts."""

import copy
import json

import numpy as np
import pytest
from builders import deal, falling
from by_hand import drive, local_clients, session, step

X = falling(120, 6, seed=0, ratio=1.3)
SHARDS = deal(X, (30, 20, 50, 20))

RUNS = {  # Every algorithm with its defaults is tested in protocol_checks.py.
    "krylov with restarts of its basis": ("krylov(oversample=0, max_basis=4, tol=1e-10)", {"n_components": 1}),
    "krylov of a fraction": ("krylov", {"n_components": 0.9, "scale": "std"}),
    "auto": ("auto", {"n_components": 1}),
    "ssi of sampled clients": (
        "ssi(max_rounds=9)",
        {"fraction": 0.5, "seed": 4, "center": False, "reconstruction_error": True},
    ),
    "local_power": ("local_power(local_steps=4, halve_every=2, max_rounds=9)", {"scale": "max_abs"}),
    "local_power by signs": ("local_power(align='sign', decay=False, max_rounds=5)", {}),
}


def assert_went_on(result, expected):
    for name in ("components_", "explained_variance_", "mean_", "scale_", "residuals_"):
        np.testing.assert_array_equal(getattr(result, name), getattr(expected, name))
    for name in ("total_variance_", "n_samples_", "sine_estimate_", "mse_", "rounds", "status", "algorithm", "seed"):
        assert getattr(result, name) == getattr(expected, name)
    untimed = [[{**row, "seconds": 0.0} for row in r.history.to_json()] for r in (result, expected)]
    assert untimed[0] == untimed[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_going_on_from_a_checkpoint_of_any_round_gives_the_very_bits(name):
    algorithm, arguments = RUNS[name]
    run, nodes, memories, kept = session(algorithm, **arguments), local_clients(SHARDS), {}, []
    while True:
        header, arrays = run.checkpoint()
        arrays = {key: a.copy() for key, a in arrays.items()}
        kept.append((json.dumps(header), arrays, copy.deepcopy(memories)))
        if step(run, nodes, memories=memories) is None:
            break
    expected = run.result()
    kept.append((json.dumps(run.checkpoint()[0]), run.checkpoint()[1], {}))  # the state of the finished run
    assert len(kept) == len(expected.history) + 2
    for header, arrays, held in kept:
        resumed = session(algorithm, **arguments)
        resumed.restore(json.loads(header), arrays)
        assert_went_on(drive(resumed, local_clients(SHARDS), memories=held), expected)


def test_clients_turned_away_stay_so_after_a_checkpoint():
    run, nodes = session("krylov"), local_clients(SHARDS)
    for _ in range(2):  # The opening asks a second time.
        step(run, nodes, change=lambda replies: [r for r in replies if r.client != 3])
    bad = step(
        run, nodes, change=lambda replies: [type(r)(r.client, r.number, {}) if r.client == 1 else r for r in replies]
    )
    assert bad.to == (0, 1, 2)
    resumed = session("krylov")
    header, arrays = run.checkpoint()
    resumed.restore(json.loads(json.dumps(header)), arrays)
    first, second = run.pending(range(4)), resumed.pending(range(4))
    assert first.to == second.to == (0, 2, 3)
    assert first.stage == second.stage == "opening"


def test_a_half_answered_round_is_asked_again_as_a_whole():
    run, nodes = session("krylov(tol=1e-12)"), local_clients(SHARDS)
    step(run, nodes)
    step(run, nodes, change=lambda replies: replies[:2])
    header, arrays = run.checkpoint()
    resumed = session("krylov(tol=1e-12)")
    resumed.restore(json.loads(json.dumps(header)), arrays)
    assert run.pending(range(4)).to == (2, 3)
    assert resumed.pending(range(4)).to == (0, 1, 2, 3)
    expected = drive(session("krylov(tol=1e-12)"), local_clients(SHARDS))
    np.testing.assert_array_equal(drive(resumed, nodes).components_, expected.components_)


F = 8  # bytes of a float
d, k, p, N = 6, 2, 4, 4  # features, components, columns (krylov oversamples by 2), clients
DRAW = 1 + 8 + 8  # the opening's message: a flag, a seed and a width
MOMENTS = F * (3 + 2 * d)  # n, rows, eps, mean, m2


def test_bytes_of_a_krylov_run_are_those_of_its_arrays():
    result = drive(session("krylov(tol=1e-12, max_rounds=1)"), local_clients(SHARDS))
    opening, product = result.history
    assert opening.stage == "opening"
    assert product.stage == "krylov"
    assert (opening.bytes_down, opening.bytes_up) == (N * DRAW, N * (MOMENTS + F * d * p))
    left = d - p  # The second block has the remaining columns of the space.
    assert (product.bytes_down, product.bytes_up) == (N * F * (d + d * left), N * F * d * left)
    assert result.history.bytes_up == opening.bytes_up + product.bytes_up
    assert result.history.bytes_down == opening.bytes_down + product.bytes_down


def test_bytes_of_an_ssi_run_count_frame_and_evaluation():
    result = drive(session("ssi(max_rounds=1)", scale="max_abs", reconstruction_error=True), local_clients(SHARDS))
    frame, p = F * 2 * d, k + 1  # one more column, for the gap
    expected = {
        "opening": (DRAW, MOMENTS + F * (d + d * p)),
        "ssi": (frame + F * d * p, F * (d * p + 1)),
        "evaluate": (frame + F * d * k, F * 2),
    }
    assert [r.stage for r in result.history] == list(expected)
    for record in result.history:
        assert (record.bytes_down, record.bytes_up) == tuple(N * b for b in expected[record.stage])


def test_bytes_of_a_local_power_round_with_alignment_double_upwards():
    result = drive(session("local_power(max_rounds=1)", center=False), local_clients(SHARDS))
    flags, p = F + 1, k + 1  # the number of steps, and whether to align; one more column, for the gap
    (record,) = result.history.of("local_power")
    assert (record.bytes_down, record.bytes_up) == (N * (F * d * p + flags), N * F * (2 * d * p + 1))
    (closing,) = result.history.of("ritz")
    assert (closing.bytes_down, closing.bytes_up) == (N * F * d * p, N * F * d * p)


def test_bytes_of_dr_svd_count_what_each_client_alone_gets():
    r, m = 3, 20
    shards = deal(X[: 3 * m], (m, m, m))
    result = drive(session("dr_svd(rank=3)", center=False), local_clients(shards))
    down = [F * (1 + d * r)] * 2 + [F * (1 + d * r) + F * r * r]
    up = [F * d * r, F * r * r, F * d * r]
    rounds = result.history.of("dr_svd")
    assert [(x.bytes_down, x.bytes_up) for x in rounds] == [(3 * a, 3 * b) for a, b in zip(down, up, strict=True)]


def test_single_precision_answers_take_half_the_bytes():
    result = drive(session("ssi(max_rounds=1)"), local_clients([s.astype(np.float32) for s in SHARDS]))
    assert result.history[1].bytes_up == N * (4 * d * (k + 1) + 8)


def test_answers_that_do_not_count_still_cost_their_bytes():
    run, nodes = session("ssi"), local_clients(SHARDS)
    step(run, nodes)
    step(run, nodes, change=lambda replies: [type(r)(r.client, r.number, {"Z": np.zeros(3)}) for r in replies])
    assert run.history[1].bytes_up == N * 3 * F
