"""The comparators of robust PCA, and the experiments of DCF-PCA as they are run."""

import csv

import numpy as np
import pytest

from flower_pca import make
from sims.common import stepwise
from sims.robust import experiments as robust
from sims.robust import pooled

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", pooled.METHODS)
def test_the_comparators_recover_and_stop_when_they_should(name):
    problem = pooled.pose(80, 4, 0.05, seed=1)
    iterates = list(pooled.METHODS[name](problem.M))
    (err, rel), most = problem.errors(*iterates[-1]), {"APGM": 130, "ALM": 60, "IALM": 25}[name]
    assert len(iterates) <= most
    assert rel <= (1e-3 if name == "APGM" else 5e-6)
    assert err <= 1e-8


def test_ialm_is_the_one_of_pyrpca():
    pyrpca = pytest.importorskip("pyrpca")
    problem = pooled.pose(60, 3, 0.1, seed=2)
    *_, (L, S) = pooled.ialm(problem.M)
    low, sparse = pyrpca.rpca_pcp_ialm(problem.M, 1 / np.sqrt(60), verbose=False)
    np.testing.assert_allclose(L, low, atol=1e-4)
    np.testing.assert_allclose(S, sparse, atol=1e-4)


def test_the_problem_is_the_papers_and_its_measures_are_traps():
    problem = pooled.pose(500, 25, 0.05, seed=0)
    assert np.linalg.matrix_rank(problem.L) == 25
    assert np.count_nonzero(problem.S) == 12500
    assert set(np.abs(problem.S[problem.S != 0.0])) == {500.0}
    err, rel = problem.errors(np.zeros_like(problem.L), problem.M)
    assert err == pytest.approx(4e-3, rel=0.05)
    assert rel == 1.0


def test_a_third_of_the_drawn_entries_may_be_zero():
    problem, filled = (pooled.pose(300, 5, 0.2, seed=1, zeros=zeros) for zeros in (True, False))
    np.testing.assert_array_equal(np.unique(problem.S), [-300.0, 0.0, 300.0])
    np.testing.assert_allclose(np.mean(problem.S != 0.0), 2.0 / 3.0 * np.mean(filled.S != 0.0), rtol=0.02)
    np.testing.assert_array_equal(problem.L, filled.L)


def test_a_course_ends_where_its_run_ends():
    problem = pooled.pose(60, 3, 0.05, seed=0)
    rows = list(robust.course("consensus_rpca(gamma=0.7)", problem, 3, seed=1, clients=4))
    result, L = robust.solved("consensus_rpca(gamma=0.7)", problem, 3, seed=1, clients=4)
    assert len(rows) == result.rounds
    assert rows[-1][1] == problem.errors(L, problem.S)[1] <= 1e-6
    rels = [row[1] for row in rows]
    assert rels[0] > 0.1 > rels[12] > rels[-1]
    assert (np.diff([row[2] for row in rows]) >= 0.0).all()


def test_a_course_has_each_round_as_clients_have_it_and_solves_nothing_itself():
    problem, spec = pooled.pose(60, 3, 0.05, seed=4), "dcf_pca(tol=0.0)"
    rows = list(robust.course(spec, problem, 3, seed=1))
    for rounds in (1, 7, 30):
        L = robust.halted(spec, problem.M, 3, 1, rounds=rounds)
        assert rows[rounds - 1][1] == pytest.approx(problem.errors(L, problem.S)[1], rel=1e-9)
    assert len(rows) == 50


def test_a_course_follows_a_run_that_narrows_its_basis_and_tries_again():
    problem = pooled.pose(60, 3, 0.05, seed=4)
    rows = list(robust.course("consensus_rpca", problem, 6, seed=1, clients=4))
    result, L = robust.solved("consensus_rpca", problem, 6, seed=1, clients=4)
    assert result.n_components_ == 3
    assert (len(rows), rows[-1][1]) == (result.rounds, problem.errors(L, problem.S)[1])
    assert rows[-2][1] < 1e-5


def test_without_the_last_solve_more_local_steps_leave_the_papers_larger_floor():
    problem, floors = pooled.pose(200, 10, 0.05, seed=3), []
    for steps in (1, 10):
        spec = f"dcf_pca(local_steps={steps}, eta=0.025, anneal=False, tol=0.0, max_rounds=60)"
        result, L = robust.solved(spec, problem, 10, seed=3)
        S = np.vstack([result.local[i]["S"] for i in range(10)])
        floors.append((robust.as_published(spec, problem, 10, seed=3), problem.errors(L, S)[0]))
    (one, solved_one), (ten, solved_ten) = floors
    assert 1.3 <= ten / one <= 1.8
    assert 1.0 < solved_ten / solved_one < ten / one  # what solving V for the last U is good for


@pytest.mark.parametrize("name", ["fig1", "fig4"])
def test_an_experiment_leaves_its_table_and_curves(name, tmp_path, monkeypatch, capsys):
    pose = robust.pose
    monkeypatch.setattr(robust, "pose", lambda n, r, s, seed, **kept: pose(40, 2, s, seed, **kept))
    monkeypatch.setattr(robust, "LOCAL", (2,))
    course = robust.course
    monkeypatch.setattr(robust, "course", lambda spec, problem, p, seed, *clients: course(spec, problem, 2, seed, 2))
    robust.main(["--only", name, "--out", str(tmp_path)])
    with open(tmp_path / f"robust_{name}.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert (tmp_path / f"robust_{name}_curves.csv").exists()
    assert "Fig." in capsys.readouterr().out


def test_without_the_video_its_table_is_left_out(tmp_path, capsys):
    robust.main(["--only", "video", "--data-dir", str(tmp_path), "--out", str(tmp_path)])
    assert "video is left out: no escalator_video.npz" in capsys.readouterr().err


def test_the_background_of_the_video_over_eight_clients_is_ialms_at_a_lower_rank(tmp_path, papers_data):
    with np.load(papers_data("escalator_video")) as archive:
        frames = archive["frames"][:, ::3, ::3]
    np.savez(tmp_path / "escalator_video.npz", frames=frames)
    robust.main(["--only", "video", "--data-dir", str(tmp_path), "--out", str(tmp_path)])
    with open(tmp_path / "robust_video.csv", encoding="utf-8") as file:
        ours, theirs = csv.DictReader(file)
    assert float(theirs["background apart"]) < 0.1
    assert int(ours["rank"]) < int(theirs["rank"]) / 10.0
    assert 5.0 < float(ours["far entries"].rstrip("%")) < 40.0
    assert (tmp_path / "robust_video.png").read_bytes().startswith(b"\x89PNG")


def test_singular_values_of_a_known_rank_are_those_of_the_whole_matrix():
    rng = np.random.default_rng(3)
    truth = rng.standard_normal((90, 4)) @ rng.standard_normal((4, 70))
    L = truth + 0.1 * rng.standard_normal((90, 3)) @ rng.standard_normal((3, 70))
    assert pooled.sv_error(L, truth, 4, rank=8) == pytest.approx(pooled.sv_error(L, truth, 4), rel=1e-9)


def test_a_halted_run_is_the_published_one_after_so_many_rounds():
    problem, spec = pooled.pose(60, 3, 0.05, seed=4), "dcf_pca(tol=0.0, max_rounds={})"
    shards = np.array_split(problem.M, 10)
    *_, closing = stepwise.steps(make(spec.format(7)), shards, n_components=3, seed=1)
    lam = float(closing.message.arrays["lam"])
    L = robust.halted(spec.format(50), problem.M, 3, 1, rounds=7)
    err = problem.errors(L, pooled.soft(problem.M - L, lam))[0]
    assert err == pytest.approx(robust.as_published(spec.format(7), problem, 3, seed=1), rel=1e-9)


@pytest.mark.parametrize("tau", [1e-3, 0.1, 3.0, 1e5])
def test_the_singular_values_above_a_limit_are_those_of_all(tau):
    X = pooled.pose(60, 3, 0.05, 0).M / 100.0
    U, s, Vt = np.linalg.svd(X)
    kept = s > tau
    reference = (U[:, kept] * s[kept]) @ Vt[kept]
    found, values, right = pooled.above(X, tau)
    assert np.allclose(values, s[kept], rtol=1e-12)
    assert np.abs((found * values) @ right - reference).max() < 1e-10 * s[0]
    assert np.isclose(pooled.largest(X), s[0], rtol=1e-12)


@pytest.mark.parametrize("shape", [(60, 20), (20, 60)])
def test_the_largest_singular_value_is_that_of_all_of_any_shape(shape):
    X = np.random.default_rng(0).standard_normal(shape)
    assert np.isclose(pooled.largest(X), np.linalg.svd(X, compute_uv=False)[0], rtol=1e-12)
    found = pooled.above(X, 5.0)[1]
    assert np.allclose(found, [value for value in np.linalg.svd(X, compute_uv=False) if value > 5.0], rtol=1e-12)
