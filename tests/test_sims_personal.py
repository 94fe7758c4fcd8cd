"""The simulations of personalized PCA at small size: their problems, their comparators, and what they claim."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from sims.common import report
from sims.personal import batched, experiments, methods, pictures, problems, rates, real, small, tables
from sims.personal.problems import Setting
from sims.personal.runs import fit
from sims.personal.words import STOP_WORDS

pytestmark = pytest.mark.slow


def report_options(folder: Path, *, seeds: int = 1, data: tuple[str, ...] = ()) -> report.Options:
    return report.Options((), folder, data, folder / "nowhere", seeds, False)


def test_rows_have_the_covariance_they_claim() -> None:
    setting = Setting(d=6, r1=1, r2=2, clients=2, shared=2.0, own=3.0, noise=0.5)
    split, test = setting.draw([40_000, 20_000], seed=1, test=40_000)
    true = [2.0 * split.U @ split.U.T + 3.0 * v @ v.T + 0.5 * np.eye(6) for v in split.V]
    for shards in (split.shards, test):
        for X, C in zip(shards, true, strict=True):
            np.testing.assert_allclose(X.T @ X / len(X), C, atol=0.15)
    assert not np.array_equal(split.shards[0][:10], test[0][:10])
    many = [setting.summaries([30, 8], seed) for seed in range(400)]
    np.testing.assert_array_equal(many[1].U, setting.draw(3, 1)[0].U)
    for i, n in enumerate((30, 8)):
        whitened = []
        for s in many:
            root = np.linalg.cholesky(2.0 * s.U @ s.U.T + 3.0 * s.V[i] @ s.V[i].T + 0.5 * np.eye(6))
            F = np.linalg.solve(root, s.shards[i].T)
            whitened.append(F @ F.T / 6)
        mean, spread = np.mean(whitened, axis=0), np.var(whitened, axis=0)
        np.testing.assert_allclose(mean, np.eye(6), atol=0.1)  # a Wishart's moments
        np.testing.assert_allclose(spread, (1.0 + np.eye(6)) / n, rtol=0.4)


def test_planes_axes_and_errors_are_what_they_say() -> None:
    assert abs(problems.two_planes(0.2, seed=0).theta - 0.2) <= 1e-12
    split, _ = Setting(d=15, r1=2, r2=3, clients=20, axes=10).draw(1, 0)
    assert abs(split.theta - (1.0 - 3 / 10)) <= 1e-12
    assert problems.halves(5, 100) == [100, 100, 10, 10, 10]
    U, V = split.V[0][:, :2], split.V[1:] + split.V[:1]
    P, Q = U @ U.T, split.U @ split.U.T
    own = [np.linalg.norm(v @ v.T - w @ w.T) ** 2 for v, w in zip(V, split.V, strict=True)]
    np.testing.assert_allclose(problems.error(split, U, V), (np.linalg.norm(P - Q) ** 2, np.mean(own)), atol=1e-12)


def test_too_many_own_components_fill_the_span_of_rows_and_leave_theta_at_nothing() -> None:
    assert abs(tables.own_rank(0, "random", 0)[0] - 0.9) <= 1e-9
    theta, _, rebuilt = tables.own_rank(1, "random", 0)
    assert abs(theta) <= 1e-9
    assert rebuilt <= 1e-20


def test_robust_pca_takes_low_rank_and_sparse_apart() -> None:
    rng = np.random.default_rng(2)
    L = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 50))
    S = np.where(rng.random((60, 50)) < 0.05, rng.choice([-20.0, 20.0], (60, 50)), 0.0)
    parts = methods.robust_pca(L + S)
    assert np.linalg.norm(parts.low_rank - L) <= 1e-5 * np.linalg.norm(L)
    assert np.linalg.norm(parts.sparse - S) <= 1e-5 * np.linalg.norm(S)


def test_table_2_comes_near_the_papers_figures_but_for_distpca() -> None:
    found = tables.table2_errors(seed=41)
    for group in (0, 1):
        e = {name: errors[group] for name, errors in found.items()}
        for name, off in (("CPCA", 0.1), ("PerPCA", 0.08), ("indivPCA", 0.2)):
            assert abs(e[name] - float(tables.TABLE2_PAPER[name][group])) <= off
        assert e["PerPCA"] < e["indivPCA"] - 0.08 < e["CPCA"]
        assert abs(e["ExactPerPCA"] - e["PerPCA"]) <= 0.02
        assert max(e["distPCA k=r1"], e["distPCA k=r1+r2"]) <= 1.01 * e["PerPCA"]  # 1.91 and 1.88 in the paper
        assert e["distPCA, by variances"] > e["distPCA, weighted"] + 0.2
        assert abs(e["truth"] - 1.5) <= 4.0 * 0.15 * np.sqrt(2.0 * 10.0 / 5000.0)  # noise in 10 directions, 5000 rows


def test_the_error_falls_with_the_rows_but_for_uploads_of_too_few_components(monkeypatch) -> None:
    monkeypatch.setattr(rates, "RUNS", {"ExactPerPCA": rates.RUNS["ExactPerPCA"]})  # The paper's run takes 500 rounds.
    found = [rates.statistical(rates.UNLIKE, n, seed=42) for n in (3000, 30_000)]
    ratio = {name: found[1][name] / found[0][name] for name in found[0]}
    assert 0.07 <= ratio["ExactPerPCA"] <= 0.14
    assert 0.07 <= ratio["distPCA k=r1+r2"] <= 0.16
    assert found[1]["distPCA k=r1"] >= 6.0


def test_flat_icons_are_for_robust_pca() -> None:
    error, exact, robust, *areas = real.segmented(pictures.icons(43), 43)
    assert robust < min(error, exact)
    assert areas[2] > max(areas[:2])


def test_areas_under_the_curve_are_shares_of_pairs() -> None:
    drawn = pictures.icons(44, clients=1)
    found = np.random.default_rng(3).standard_normal((1, 96, 96)) + drawn.masks
    inside, outside = np.abs(found[drawn.masks]), np.abs(found[~drawn.masks])
    above = (inside[:, None] > outside[None, :]).mean()
    assert abs(pictures.auc(drawn, found) - above) <= 1e-12


def test_files_of_the_user_are_dealt_by_writer_or_by_pairs_of_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "R1", 2)
    monkeypatch.setattr(real, "R2", 1)
    monkeypatch.setattr(real, "CLIENTS", 6)
    rng = np.random.default_rng(4)
    X, y = rng.integers(0, 255, (300, 4, 3), dtype=np.uint8), np.repeat(np.arange(5), 60)
    np.savez(tmp_path / "labels.npz", X=X, y=y)
    np.savez(tmp_path / "writers.npz", X=X, client=np.arange(300) % 7)
    sets = dict(
        real._sets(report_options(tmp_path, data=tuple(str(tmp_path / f"{n}.npz") for n in ("labels", "writers"))))
    )
    for shards in (sets["labels"](0), sets["writers"](0)):
        assert len(shards) == 6
        assert shards[0].shape[1] == 12
        assert len(np.unique(np.vstack(shards), axis=0)) == sum(map(len, shards))
    training, testing = real.fitted(sets["writers"](0), 20, 0, rounds=30)
    assert len(training) == len(testing) == 6
    assert min(training) == training[0] > 0.0  # a client's own components fit its own rows best
    assert min(testing) > 0.0


def test_tables_are_printed_and_written_and_missing_data_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "DRAWN", {"textured tiles": real.DRAWN["textured tiles"]})
    arguments = ["--only", "table4,video,topics", "--seeds", "1", "--out", str(tmp_path), "--data-dir", str(tmp_path)]
    experiments.main(arguments)
    out, err = capsys.readouterr()
    assert "Table 4: drawn pictures" in out
    assert "video is left out: video needs escalator_video.npz" in err
    assert "topics is left out: topics needs debates_counts.npz" in err
    with open(tmp_path / "personal_table4.csv", newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    for method in ("PerPCA", "ExactPerPCA"):  # for which textured pictures are
        assert float(row[f"{method} error"]) <= 0.6 * float(row["Robust PCA error"])


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_a_perturbed_shared_direction_is_the_papers_to_first_order(rho):
    covariances, u = small.perturbed(small.GAMMA, rho, 1e-4)
    shards = [small.four_rows(C) for C in covariances]
    U, _ = fit("exact_per_pca(local_components=1, tol=1e-13)", shards, 1, seed=0, max_rounds=5000)
    phi = (np.sqrt(3.0) + 0.5 + 2.0 * rho - 3.0) / (4.0 * (rho**2 - 3.0 * rho + 2.0))  # (47) with alpha = pi / 6
    assert abs(U[3, 0]) == pytest.approx(1e-4 * abs(phi), rel=0.01)
    assert abs(U[:, 0] @ u) > 1.0 - 1e-6


@pytest.mark.parametrize("word", ["it's", "don't", "won\u2019t", "we're", "that's"])
def test_contractions_are_stop_words_however_their_apostrophe_is_written(word: str) -> None:
    assert real._plain(word) in STOP_WORDS


@pytest.mark.parametrize("spec", ["", ", step=0.5", ", choice=2", ", retraction='qr'", ", weights='samples'"])
def test_the_rounds_of_all_clients_at_once_are_those_of_the_package(spec, monkeypatch):
    """Only those of choice 1 with polar factors and equal weights are batched; others go client by client."""
    split = Setting(d=7, r1=2, r2=3, clients=6, own=9.0).summaries([200, 200, 200, 20, 20, 20], seed=4)
    algorithm = f"per_pca(local_components=3, max_rounds=60, tol=1e-12{spec})"
    at_once, plain = [], batched.Together._round
    monkeypatch.setattr(batched.Together, "_round", lambda *given: at_once.append(1) or plain(*given))
    U, V = fit(algorithm, split.shards, 2, seed=5)
    U_too, V_too = batched.fit(algorithm, split.shards, 2, seed=5)
    np.testing.assert_allclose(U_too, U, atol=1e-10)
    np.testing.assert_allclose(V_too, V, atol=1e-10)
    assert (len(at_once) > 30) == (spec in ("", ", step=0.5"))
