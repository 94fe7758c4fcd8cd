"""Test audit(): the reconstruction against the true second moments, for every algorithm, with and without masks."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from builders import shards
from cases import every
from pages import table

from flower_pca import ConfigError, cli, registry, simulate
from flower_pca.audit import audit
from flower_pca.audit.attack import Attack, independent_numbers, minimum_norm, symmetric_minimum_norm
from flower_pca.audit.view import Pair, pair_of_sums
from flower_pca.core.kinds import ROWS, Kind, Part
from flower_pca.core.stage import Stage

D, K = 18, 3


SHARDS = shards((90, 60, 70), 0.85 ** np.arange(D))


def moments(X, pool, center=True, scale=None):
    """X'X in the frame of the pooled rows."""
    mean = pool.mean(axis=0) if center else 0.0
    divisor = {None: 1.0, "std": pool.std(axis=0), "max_abs": np.abs(pool).max(axis=0)}[scale]
    F = (X - mean) / divisor
    return F.T @ F


def test_the_attack_is_the_product_with_the_pseudoinverse():
    rng = np.random.default_rng(1)
    C = moments(SHARDS[0], SHARDS[0])
    attack, blocks, answers = Attack(D), [], []
    for p in (4, 3, 4, 30, 30):
        Z = rng.standard_normal((D, p))
        Z /= np.linalg.norm(Z, axis=0)
        attack.learn(Z, C @ Z)
        blocks, answers = [*blocks, Z], [*answers, C @ Z]
        ((U, S),) = attack.solve()
        expected = np.hstack(answers) @ np.linalg.pinv(np.hstack(blocks))
        np.testing.assert_allclose(minimum_norm(U, S), expected, atol=1e-9 * np.linalg.norm(C))
        P = U @ U.T
        np.testing.assert_allclose(symmetric_minimum_norm(U, S), C - (np.eye(D) - P) @ C @ (np.eye(D) - P), atol=1e-8)
    np.testing.assert_allclose(symmetric_minimum_norm(U, S), C, atol=1e-9 * np.linalg.norm(C))


def test_answers_that_contradict_each_other_are_met_in_the_least_squares_sense():
    rng = np.random.default_rng(2)
    Z, Y = rng.standard_normal((2, D, 70))
    Z *= 0.6 ** np.arange(D)[:, None]
    Z /= np.linalg.norm(Z, axis=0)
    attack = Attack(D)
    for part in np.array_split(np.arange(70), 9):
        attack.learn(Z[:, part], Y[:, part])
    ((U, S),) = attack.solve()
    np.testing.assert_allclose(minimum_norm(U, S), Y @ np.linalg.pinv(Z), atol=1e-9)
    (all_of_it, _), (few, _) = attack.solve((1e-12, 1e-2))
    assert few.shape[1] < all_of_it.shape[1] == D


def test_numbers_are_those_of_a_symmetric_matrix():
    for d, r in ((5, 0), (5, 2), (5, 5), (9, 4)):
        known = np.zeros((d, d), dtype=bool)
        known[:r] = known[:, :r] = True
        assert independent_numbers(d, r) == np.triu(known).sum()


@pytest.mark.parametrize("run", [{}, {"center": False}, {"scale": "std"}, {"scale": "max_abs"}], ids=str)
def test_the_opening_tells_the_product_in_the_global_frame(run):
    """After one message: the error of the symmetric solution is what is left of C_i outside the span of D B."""
    found = audit("ssi(oversample=0, max_rounds=1)", SHARDS, n_components=K, **run)
    pool = np.vstack(SHARDS)
    B = np.linalg.qr(simulate_block(pool, run.get("scale")))[0]
    rest = np.eye(D) - B @ B.T
    for i, X in enumerate(SHARDS):
        C = moments(X, pool, run.get("center", True), run.get("scale"))
        leak = next(leak for leak in found.leaks if leak.message == 1 and leak.client == i)
        assert leak.symmetric == pytest.approx(np.linalg.norm(rest @ C @ rest) / np.linalg.norm(C), rel=1e-9)
        assert leak.minimum_norm == pytest.approx(np.linalg.norm(C @ rest) / np.linalg.norm(C), rel=1e-9)
        assert (leak.numbers, leak.unknowns) == (D * K - K * (K - 1) // 2 + D, D * (D + 1) // 2)


def simulate_block(pool, scale):
    """D B for the Gaussian block that seed 0 stands for."""
    from flower_pca.base.linalg import random_block

    divisor = {None: np.ones(D), "std": pool.std(axis=0), "max_abs": np.abs(pool).max(axis=0)}[scale]
    return random_block(D, K, 0) * divisor[:, None]


@pytest.mark.slow
@pytest.mark.parametrize("run", [{}, {"scale": "std"}, {"center": False, "scale": "max_abs"}], ids=str)
@pytest.mark.parametrize("algorithm", ["ssi(oversample=1)", "krylov(oversample=1, tol=0.0, min_rounds=4)"])
def test_products_tell_everything_once_their_blocks_span_everything(algorithm, run):
    found = audit(algorithm, SHARDS, n_components=K, **run)
    for i in range(3):
        mine = [leak for leak in found.leaks if leak.client == i]
        assert mine[-1].symmetric < 1e-6
        assert mine[-1].angle < 1e-5
        assert mine[-1].numbers == mine[-1].unknowns
        assert min(leak.message for leak in mine if leak.error <= 1e-5) >= -(-D // (K + 1))


@pytest.mark.slow
def test_ssi_gives_a_client_away_before_it_has_converged():
    found = audit("ssi(tol=1e-7)", SHARDS, n_components=K)
    assert found.messages_to(1e-5) < found.converged_at(1e-5)


@pytest.mark.slow
def test_faps_does_not_give_c_away_but_its_late_answers_tell_what_is_beside_z():
    alike = np.array_split(np.random.default_rng(3).standard_normal((900, D)) * 0.85 ** np.arange(D), 3)
    found = audit("faps(tol=1e-7)", alike, n_components=K)
    assert found.result.status.ok
    assert all(leak.error > 1e-2 for leak in found.leaks)
    answers = [leak for leak in found.leaks if leak.stage == "faps"]
    late = answers[-1]
    assert answers[0].outside < 1e-12  # A client starts at X_i = Z.
    assert max(leak.outside for leak in answers) > 0.1
    assert late.outside < 1e-3
    (closing,) = [leak for leak in found.leaks if leak.stage == "ritz" and leak.client == late.client]
    assert closing.exact < late.exact


@every("algorithm", ["uda", "wda", "dist_pca(local_components=5)"])
def test_one_shot_averages_tell_the_clients_own_components_and_values(algorithm):
    found = audit(algorithm, SHARDS, n_components=K)
    averages = [leak for leak in found.leaks if leak.stage == algorithm.split("(")[0]]
    assert {leak.client for leak in averages} == {0, 1, 2}
    for leak in averages:
        assert leak.angle < 1e-7
        assert leak.outside is None  # These are eigenvectors, so C v has no other part.


@pytest.mark.slow
def test_local_power_tells_c_on_a_space_of_the_clients_own():
    found = audit("local_power(local_steps=8, decay=False, max_rounds=3)", SHARDS, n_components=K)
    first = [leak for leak in found.leaks if leak.stage == "local_power"][:3]
    assert {leak.client for leak in first} == {0, 1, 2}
    assert all(leak.exact < 0.5 and leak.symmetric == leak.exact for leak in first)
    alone = audit("local_power(local_steps=8, decay=False, max_rounds=3, align='none')", SHARDS, n_components=K)
    assert min(leak.exact for leak in alone.leaks if leak.stage == "local_power") > 0.5


def test_dr_svd_tells_c_on_both_of_its_wide_blocks():
    found = audit("dr_svd(rank=8)", SHARDS, n_components=K)
    known = {leak.message: leak.numbers for leak in found.leaks}
    columns = [K, K + 8, K + 8, D]  # the opening, G, R alone, then B with R; 3 + 8 + 8 columns span 18
    assert [known[m] for m in (1, 2, 3, 4)] == [min(independent_numbers(D, r) + D, D * (D + 1) // 2) for r in columns]
    assert all(leak.symmetric < 1e-6 for leak in found.leaks if leak.message >= 4)


@pytest.mark.parametrize("algorithm", ["exact_per_pca(max_rounds=5)", "per_pca(max_rounds=5)"])
def test_the_closing_product_of_a_personalized_run_is_a_product(algorithm):
    found = audit(algorithm, SHARDS, n_components=K)
    opening = next(leak for leak in found.leaks if leak.client == 0)
    *_, before, closing = (leak for leak in found.leaks if leak.client == 0)
    assert closing.stage == "personal" != before.stage
    assert before.numbers == opening.numbers  # There are no rounds.
    assert closing.numbers == min(independent_numbers(D, 2 * K) + D, D * (D + 1) // 2)
    assert closing.exact < before.exact


def test_the_covariance_without_noise_is_told_at_once():
    found = audit("covariance", SHARDS, n_components=K)
    assert found.messages_to(1e-12) == 2


@pytest.mark.parametrize("name", registry.ALGORITHMS)
def test_every_algorithm_can_be_audited_and_runs_as_ever(name):
    short = {} if not hasattr(registry.make(name), "max_rounds") else {"max_rounds": 4}
    found = audit(name, SHARDS, n_components=2, center=True, seed=5, **short)
    reference = simulate(registry.make(name, **short), SHARDS, n_components=2, center=True, seed=5)
    assert found.result.components_.tobytes() == reference.components_.tobytes()
    assert [leak.message for leak in found.leaks if leak.client == 0][-1] == len(reference.history)
    assert all(np.isfinite(leak.error) and leak.error <= 1.0 + 1e-9 for leak in found.leaks)
    true = np.linalg.svd(np.vstack(SHARDS) - reference.mean_)[2][:2]
    last = found.convergence[-1]
    assert last.sine == pytest.approx(np.sin(reference.angle_to(true)), abs=1e-9)


def test_an_answer_of_no_kind_that_says_so_is_attacked_by_the_block_of_its_shape(monkeypatch):
    class Twice(registry.ALGORITHMS["ssi"]):
        name = "twice"

        @staticmethod
        def parts(arrays, d):
            return {"Y": Part(arrays["Z"].shape, Kind.ESTIMATE), "n": ROWS}

        @staticmethod
        def client(arrays, data, memory):
            return {"Y": 2.0 * data.matmat(arrays["Z"]), "n": np.array(data.n)}, memory

    assert issubclass(Twice, Stage)
    monkeypatch.setitem(registry.STAGES, "twice", Twice)
    found = audit(Twice(max_rounds=3), SHARDS, n_components=K)
    opening = next(leak for leak in found.leaks if leak.client == 0)
    last = [leak for leak in found.leaks if leak.client == 0 and leak.stage == "twice"][-1]
    assert last.exact == opening.exact  # It is not mistaken for a product.
    assert last.outside == pytest.approx(1.0, rel=1e-9)


def test_answers_to_one_block_are_summed_and_no_others():
    rng = np.random.default_rng(0)
    Z, Y = rng.standard_normal((D, 2)), rng.standard_normal((3, D, 2))
    pairs = [Pair(Z, own, exact=True) for own in Y]
    np.testing.assert_allclose(pair_of_sums(pairs).Y, Y[0] + Y[1] + Y[2])
    assert pair_of_sums([*pairs, None]) is None
    assert pair_of_sums([*pairs, Pair(2.0 * Z, Y[0], exact=True)]) is None


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["krylov(tol=0.0, min_rounds=4)", "ssi", "faps(max_rounds=5)"])
def test_under_masks_the_attack_knows_the_sum_and_no_more(algorithm):
    """Whoever holds which rows, the server sees the same: so no attack of any kind tells clients apart."""
    found = audit(algorithm, SHARDS, n_components=K, masked=True)
    pool = np.vstack(SHARDS)
    C = moments(pool, pool) / 3
    last = {leak.client: leak for leak in found.leaks}
    for i, X in enumerate(SHARDS):
        own = moments(X, pool)
        guess = np.linalg.norm(C - own) / np.linalg.norm(own)
        assert last[i].guess == pytest.approx(guess, rel=1e-9)
        assert last[i].outside is None
        if not algorithm.startswith("faps"):
            assert last[i].symmetric == pytest.approx(guess, abs=1e-6)
        assert last[i].error >= 0.9 * guess > 0.2
    if algorithm.startswith("faps"):
        return
    dealt = np.array_split(np.random.default_rng(8).permutation(pool), 3)
    again = audit(algorithm, dealt, n_components=K, masked=True)
    sums = [np.linalg.norm(moments(X, pool)) for X in SHARDS], [np.linalg.norm(moments(X, pool)) for X in dealt]
    assert not np.allclose(*sums)
    assert [p.kkt for p in again.convergence[:4]] == pytest.approx([p.kkt for p in found.convergence[:4]], rel=1e-6)


def test_only_the_clients_named_are_attacked():
    found = audit("ssi(max_rounds=2)", SHARDS, n_components=K, clients=[2])
    assert {leak.client for leak in found.leaks} == {2}
    everyone = audit("ssi(max_rounds=2)", SHARDS, n_components=K)
    assert [leak for leak in everyone.leaks if leak.client == 2] == list(found.leaks)
    hidden = audit("ssi(max_rounds=2)", SHARDS, n_components=K, clients=[2], masked=True)
    assert {leak.client for leak in hidden.leaks} == {2}


@pytest.mark.slow
def test_long_runs_are_looked_at_ever_more_rarely_and_at_their_end():
    found = audit("ssi(oversample=0, tol=0.0, max_rounds=80, patience=100)", SHARDS, n_components=K, clients=[0])
    at = [leak.message for leak in found.leaks]
    assert at[:20] == list(range(1, 21))
    assert at[-1] == len(found.result.history) == 81
    assert max(np.diff(at)) <= 9
    assert len(found.convergence) == 81


@pytest.mark.slow
def test_the_command_writes_what_the_library_finds(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.vstack(SHARDS))
    given = ["audit", str(tmp_path / "x.npy"), "--algorithm", "ssi", "--clients", "2", "--components", "2"]
    assert cli.main([*given, "--max-rounds", "9", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    found = audit("ssi", np.array_split(np.vstack(SHARDS), 2), n_components=2, max_rounds=9)
    assert found.table() in printed
    assert [float(row["symmetric"]) for row in table(tmp_path / "out/leaks.csv")] == [
        leak.symmetric for leak in found.leaks
    ]
    assert (tmp_path / "out/leak.svg").read_bytes().startswith(b"<?xml")
    assert cli.main([*given, "--max-rounds", "2", "--mask", "--json", "--out", str(tmp_path / "out")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["masked"] is True
    assert len(told["leaks"]) == 3


def test_the_command_refuses_missing_values_and_unknown_algorithms(tmp_path, capsys):
    np.save(tmp_path / "x.npy", SHARDS[0])
    given = ["audit", str(tmp_path / "x.npy"), "--out", str(tmp_path / "out")]
    assert cli.main([*given, "--missing", "mean"]) == 2
    assert "An audit cannot handle missing values." in capsys.readouterr().err
    assert cli.main([*given, "--algorithm", "ssii"]) == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_picture_needs_matplotlib(tmp_path, monkeypatch):
    found = audit("covariance", SHARDS, n_components=2)
    assert found.picture(tmp_path / "leak.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(ConfigError, match="matplotlib is needed to draw"):
        found.picture(tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_the_table_says_in_words_what_the_server_knows():
    words = audit("krylov(tol=0.0, min_rounds=4)", SHARDS, n_components=K).table().splitlines()[-1]
    assert words == "The server saw every answer. A client's C_i is known up to 1e-5 after 4 messages."
    words = audit("ssi(oversample=0, max_rounds=1)", SHARDS, n_components=K, masked=True).table().splitlines()[-1]
    assert words.startswith("The server saw sums only. In the end, C_i of client ")
