"""The simulations at tiny size: their problems, how they count, what they read, print and write."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pages import table
from scipy import sparse

from flower_pca import registry, simulate
from flower_pca.audit import audit
from flower_pca.registry import ALGORITHMS
from sims import batched, claims, faps, leak, private
from sims.common import data, problems, report
from sims.local_power import experiments as local_power
from sims.local_power import sets, theory
from sims.local_power.known import SETS

pytestmark = pytest.mark.slow


def tiny(seed=0, center=False, scale=None):
    X = problems.synthetic(400, problems.geometric(20, 1.1), seed)
    return problems.pose(problems.evenly(X, 3), k=3, center=center, scale=scale)


@pytest.mark.parametrize(
    ("spectrum", "first", "last"),
    [(problems.geometric(12, 1.3), 1.0, 1.3**-11), (problems.arithmetic(12, 50.0), 1.0, 1.0 / 50.0)],
)
def test_synthetic_rows_have_the_spectrum_they_claim(spectrum, first, last):
    X = problems.synthetic(90, spectrum, seed=3)
    assert X.shape == (90, 12)
    s = np.linalg.svd(X, compute_uv=False)
    np.testing.assert_allclose(s, spectrum, rtol=1e-12)
    np.testing.assert_allclose([s[0], s[-1]], [first, last], rtol=1e-12)


def test_spectra_fall_by_a_factor_or_by_an_amount():
    g, a = problems.geometric(9, 1.01), problems.arithmetic(9, 10.0)
    np.testing.assert_allclose(g[1:] / g[:-1], 1 / 1.01)
    np.testing.assert_allclose(np.diff(a), -(1 - 1 / 10.0) / 8)


@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("scale", [None, "max_abs"])
def test_the_reference_is_the_svd_of_the_pooled_rows(store, center, scale):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((80, 7)) * np.arange(1, 8) * (rng.random((80, 7)) < 0.6)
    problem = problems.pose([store(X[:30]), store(X[30:])], k=2, center=center, scale=scale)
    F = X - X.mean(axis=0) if center else X
    F = F / np.abs(X).max(axis=0) if scale else F
    _, s, Vt = np.linalg.svd(F, full_matrices=False)
    np.testing.assert_allclose(np.sqrt(problem.values), s, rtol=1e-10)
    np.testing.assert_allclose(np.abs(Vt[:2] @ problem.basis), np.eye(2), atol=1e-7)
    result = simulate("krylov", problem.shards, n_components=2, center=center, scale=scale)
    assert problems.sin_theta(problem, result.components_.T) < 1e-6


def test_heterogeneity_is_its_formula():
    X = np.random.default_rng(2).standard_normal((60, 5))
    parts = [X[:10], X[10:]]
    cov = [P.T @ P / len(P) for P in (X, *parts)]
    expected = max(np.linalg.svd(c - cov[0])[1][0] for c in cov[1:]) / np.linalg.svd(cov[0])[1][0]
    assert problems.heterogeneity(problems.pose(parts, k=2)) == pytest.approx(expected, rel=1e-10)
    assert problems.heterogeneity(problems.pose([X, X], k=2)) < 1e-14


def test_rows_are_dealt_in_order_and_shuffled_whole():
    X = np.arange(10)[:, None]
    assert [len(s) for s in problems.evenly(X, 3)] == [4, 3, 3]
    np.testing.assert_array_equal(np.vstack(problems.deal(X, [1, 2, 7])), X)
    assert sorted(problems.shuffled(X, 5)[:, 0]) == list(range(10))
    assert not np.array_equal(problems.shuffled(X, 5), problems.shuffled(X, 6))


@pytest.mark.parametrize("algorithm", ["ssi", "krylov", "local_power(local_steps=2)", "faps", "uda", "dr_svd"])
def test_a_curve_has_one_error_per_message_with_a_product(algorithm):
    problem = tiny()
    curve = problems.trace(algorithm, problem, measure=problems.sin_theta, seed=4, messages=6)
    limit = {} if algorithm in ("uda", "dr_svd") else {"max_rounds": len(curve) - 1, "tol": 0.0}
    result = simulate(algorithm, problem.shards, n_components=3, center=False, seed=4, **limit)
    carrying = [r for r in result.history if r.stage != "ritz"]
    # 20 columns in blocks of 3 + 2: Krylov's space is the whole one after four messages.
    assert len(carrying) == len(curve) == {"krylov": 4, "uda": 2, "dr_svd": 4}.get(algorithm, 6)
    assert curve[-1] == pytest.approx(problems.sin_theta(problem, result.components_.T), rel=1e-6, abs=1e-12)


def test_ssi_falls_at_the_rate_of_the_power_method():
    curve = problems.trace("ssi(oversample=0)", tiny(), measure=problems.sin_theta, seed=0, messages=80)
    np.testing.assert_allclose((curve[59] / curve[39]) ** (1 / 20), 1.1**-2, rtol=1e-3)
    values = problems.trace("ssi(oversample=0)", tiny(), measure=problems.rel_sv, seed=0, messages=80)
    np.testing.assert_allclose((values[49] / values[39]) ** (1 / 10), 1.1**-4, rtol=2e-2)


def test_a_curve_ends_at_its_target():
    curve = problems.trace("ssi(oversample=0)", tiny(), measure=problems.sin_theta, seed=0, messages=90, target=1e-2)
    assert curve[-1] <= 1e-2 < curve[-2]
    assert problems.rounds_to(curve, 1e-2) == len(curve)
    assert problems.rounds_to(curve, 1e-9) is None


def test_spans_count_never_as_more_than_any_number():
    assert report.span([7, None, 3]) == "3..-"
    assert report.span([7, 3]) == "3..7"
    assert report.span([7, 7]) == "7"
    assert report.span([2e-9, 1.4e-9], report.number) == "1.4e-09..2.0e-09"


SVMLIGHT = """# a comment
+1 1:0.5 3:-2 # end

-1 2:1e1
3 qid:4 1:1 4:0.25
"""
ROWS = np.array([[0.5, 0, -2, 0], [0, 10, 0, 0], [1, 0, 0, 0.25]])


def test_svmlight_is_read_right(tmp_path):
    path = tmp_path / "three.txt"
    path.write_text(SVMLIGHT)
    np.testing.assert_array_equal(data.read(path), ROWS)
    X = np.random.default_rng(0).integers(0, 2, (40, 30)) * (np.random.default_rng(1).random((40, 30)) < 0.1)
    X[0, [0, -1]] = 1
    lines = (" ".join(["1", *(f"{j}:{v}" for j, v in enumerate(row) if v)]) for row in X)
    path.write_text("\n".join(lines))  # counts from 0
    read = data.read(path)
    assert sparse.issparse(read)
    np.testing.assert_array_equal(read.toarray(), X)


def test_svmlight_is_read_as_scikit_learn_does(tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    X = np.random.default_rng(3).standard_normal((25, 9))
    path = tmp_path / "some.svm"
    datasets.dump_svmlight_file(X, np.ones(25), str(path), zero_based=False)
    np.testing.assert_array_equal(data.read(path), datasets.load_svmlight_file(str(path))[0].toarray())


def test_npz_is_read_by_key(tmp_path):
    path = tmp_path / "some.npz"
    pictures = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
    np.savez(path, X=np.ones((3, 2), np.float32), pictures=pictures, y=np.ones(4))
    assert data.read(path).dtype == np.float64
    np.testing.assert_array_equal(data.read(f"{path}:pictures"), pictures.reshape(4, 6))
    sparse.save_npz(path, sparse.csr_array(ROWS))
    np.testing.assert_array_equal(data.read(path).toarray(), ROWS)


def test_condensed_rows_have_the_same_second_moments():
    problem = tiny(seed=5)
    short = problem.condensed()
    assert max(len(X) for X in short.shards) == 20 < min(problem.sizes)
    for X, R in zip(problem.shards, short.shards, strict=True):
        np.testing.assert_allclose(R.T @ R, X.T @ X, atol=1e-12)
    assert problems.heterogeneity(short) == pytest.approx(problems.heterogeneity(problem), rel=1e-9)
    whole, less = (problems.trace("uda", p, measure=problems.sin_theta, seed=0, messages=9) for p in (problem, short))
    np.testing.assert_allclose(whole, less, rtol=1e-6)
    with pytest.raises(ValueError, match="cannot be condensed"):
        tiny(center=True).condensed()


def test_local_power_on_a_users_file(tmp_path, capsys):
    X = np.round(np.vstack([problems.synthetic(300, problems.geometric(9, 1.4), seed) for seed in range(2)]), 5)
    path = tmp_path / "mine.svm"
    path.write_text("\n".join(" ".join(["1", *(f"{j + 1}:{v!r}" for j, v in enumerate(row))]) for row in X.tolist()))
    out = tmp_path / "out"
    only = "table4,table6,table7,packaged7,fig5"
    local_power.main(["--data", str(path), "--out", str(out), "--seeds", "1", "--only", only])
    assert "Table 6" in capsys.readouterr().out
    assert (out / "local_power_fig5_curves.png").read_bytes().startswith(b"\x89PNG")

    (first,) = table(out / "local_power_table4.csv")
    s = np.linalg.svd((X - X.min(axis=0)) / np.ptp(X, axis=0), compute_uv=False)
    assert (first["data"], first["n"], first["d"], first["clients"]) == ("mine", "600", "9", "3")
    assert float(first["lambda_6 / lambda_5"]) == pytest.approx(s[5] ** 2 / s[4] ** 2, abs=1e-4)

    final, printed = table(out / "local_power_table6.csv")
    assert (final["of"], printed["of"]) == ("ours", "ours, all five columns")
    assert all(float(final[method]) <= float(printed[method]) for method in ("OPT", "sign", "vanilla"))
    decayed, _ = table(out / "local_power_table7.csv")
    assert float(decayed["OPT"]) < float(final["OPT"])
    halved, slowly = table(out / "local_power_packaged7.csv")
    assert (halved["of"], slowly["of"]) == ("ours", "ours, 8 halved every 3")
    assert float(slowly["OPT"]) < 0.1 * float(final["OPT"])


def test_local_power_without_data_takes_a_synthetic_set(tmp_path, capsys):
    local_power.main(["--data-dir", str(tmp_path), "--out", str(tmp_path), "--seeds", "1", "--only", "table4,table5"])
    assert "synthetic" in capsys.readouterr().out
    (row,) = table(tmp_path / "local_power_table5.csv")
    eta = [float(row[f"m={m}"]) for m in (20, 40, 60, 80, 100)]
    assert eta == sorted(eta)


def test_blocks_drift_apart_as_the_second_theorem_says():
    problem = tiny(seed=2)
    Z = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 3)))[0]
    apart = theory.drifts(problem, Z, 6)
    assert all(turned <= plain + 1e-12 for turned, plain in apart)
    assert apart[0][0] < apart[3][0] < 2.0
    same = theory.drifts(replace(problem, shards=[problem.shards[0]] * 3), Z, 3)
    assert max(map(max, same)) < 1e-12


# Of the files; where the paper prints others, with fewer rows, or columns of zeros left out: `known.SIZES`.
FILES = {
    "a9a": (32561, 123), "abalone": (4177, 8), "connect4": (67557, 126), "covtype": (581012, 54), "housing": (506, 13),
    "ijcnn1": (49990, 22), "mnist": (60000, 784), "poker": (25010, 10), "space-ga": (3107, 7), "splice": (1000, 60),
    "w8a": (49749, 300),
}  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_the_papers_sets_have_the_size_that_is_known_of_their_files(name, papers_data):
    assert data.read(papers_data(name.replace("-", "_"))).shape == FILES[name]


def test_local_power_on_abalone_is_near_the_paper(tmp_path, papers_data):
    path = papers_data("abalone")
    words = ["--data", str(path), "--out", str(tmp_path), "--seeds", "5", "--only", "table6,packaged6,table7"]
    local_power.main(words)
    paper, ours, _ = table(tmp_path / "local_power_table6.csv")
    for method, factor in (("OPT", 2.5), ("sign", 2.5), ("DR-SVD", 2.0), ("UDA", 2.0), ("WDA", 2.0)):
        assert 1 / factor < claims.number(ours[method]) / claims.number(paper[method]) < factor
    _, packaged = table(tmp_path / "local_power_packaged6.csv")
    assert claims.number(packaged["OPT"]) > 2.0 * claims.number(ours["OPT"])
    paper, ours, _ = table(tmp_path / "local_power_table7.csv")
    assert claims.number(paper["OPT"]) == 3.5e-10
    assert 1e-10 < claims.number(ours["OPT"]) < 1e-9


def small_faps(monkeypatch):
    monkeypatch.setattr(faps, "TABLE1", faps.Size(d=40, n=1440, k=4, xi=1.08, clients=3))
    monkeypatch.setattr(faps, "TABLE4", faps.Size(d=40, n=1440, k=4, xi=1.08, clients=3))
    monkeypatch.setattr(faps, "FIG4", faps.Size(d=40, n=800, k=4, clients=4))
    monkeypatch.setattr(faps, "CUTS", dict.fromkeys(faps.CUTS, 1))
    monkeypatch.setattr(faps, "STARTS", 1)


def test_faps_lies_between_krylov_and_ssi(tmp_path, capsys, monkeypatch):
    small_faps(monkeypatch)
    pictures = np.abs(problems.synthetic(480, problems.geometric(25, 1.3), 0)).reshape(480, 5, 5)
    np.savez(tmp_path / "faces.npz", X=255.0 * pictures / pictures.max())
    source = str(tmp_path / "faces.npz")
    faps.main(["--out", str(tmp_path), "--data", source, "--data-dir", str(tmp_path), "--only", "table1,table3,table4"])
    assert "d=40, n=1440, k=4, xi=1.08, 3 clients" in capsys.readouterr().out
    rows = {row["algorithm"]: row for row in table(tmp_path / "faps_table1.csv")}
    assert (rows["FAPS"]["messages, paper"], rows["FAPS"]["error, paper"]) == ("42", "8.04e-08")
    messages = {name: int(row["messages"]) for name, row in rows.items()}
    assert messages["Krylov"] < messages["FAPS"] < messages["SSI"]
    curves = [r for r in table(tmp_path / "faps_table1_curves.csv") if r["curve"] == "SSI"]
    errors = [float(r["error"]) for r in curves]
    assert errors[messages["SSI"] - 1] <= faps.TARGET < errors[messages["SSI"] - 2]
    assert int(rows["SSI"]["by rule (27)"]) == len(errors)
    assert float(rows["SSI"]["error then"]) < 0.2 * faps.TARGET  # the rule stops later than the paper's errors say
    plain, centred, paper = table(tmp_path / "faps_table3.csv")
    assert (plain["pictures"], plain["frame"], centred["frame"]) == ("faces, 480 of 480 x 25", "as they are", "centred")
    assert paper["error then"] == "5.06e-08"
    paper, ours = table(tmp_path / "faps_table4.csv")
    assert (paper["SSI"], paper["LocalPower"], paper["FAPS"]) == ("337", "164", "55")
    assert int(ours["Krylov"]) < int(ours["SSI"])


@pytest.mark.parametrize(
    "algorithm",
    [
        "local_power(oversample=0, local_steps=4, halve_every=2)",
        "faps(penalty='paper', beta_0=0.3)",
        "faps(penalty='measured')",
    ],
)
@pytest.mark.parametrize("n", [480, 60])
def test_all_clients_in_one_are_the_same_run(algorithm, n):
    X = problems.synthetic(n, problems.geometric(15, 1.1), seed=0)
    problem = problems.pose(problems.evenly(X, 6), k=3).condensed()
    single = faps.course(algorithm, problem, seed=1, messages=25, to_rule=True)
    with batched.known(algorithm) as chosen:
        joined = faps.course(chosen, batched.joined(problem), seed=1, messages=25, to_rule=True)
    assert chosen.name not in registry.STAGES
    np.testing.assert_allclose(joined.errors, single.errors, rtol=1e-6, atol=1e-13)
    np.testing.assert_allclose(joined.kkt, single.kkt, rtol=1e-6, atol=1e-13)
    assert not np.allclose(faps.course("ssi", problem, seed=1, messages=25).errors[:5], single.errors[:5], rtol=1e-2)


def test_rows_of_clients_of_several_sizes_are_joined_condensed():
    X = problems.synthetic(60, problems.geometric(15, 1.1), seed=0)
    with pytest.raises(ValueError, match="condensed"):
        batched.joined(problems.pose(problems.evenly(X, 2), k=3))


def test_faps_varies_one_thing_at_a_time(tmp_path, monkeypatch):
    small_faps(monkeypatch)
    base = faps.Size(d=50, n=900, k=6, xi=1.2, clients=3)
    grid = {"d": (base, replace(base, d=40)), "n": (base,), "k": (base,), "xi": (replace(base, xi=1.3),)}
    monkeypatch.setattr(faps, "GRID", grid)
    monkeypatch.setattr(faps, "LIMITS", {False: 40})
    faps.main(["--out", str(tmp_path), "--only", "table2,fig4", "--data-dir", str(tmp_path)])
    rows = [row for row in table(tmp_path / "faps_table2.csv") if not row["problem"].startswith("paper")]
    assert [row["varied"] for row in rows] == ["d", "d", "n", "k", "xi"]
    assert all(int(row["Krylov"]) <= 30 for row in rows)
    assert [row["kappa"] for row in table(tmp_path / "faps_fig4.csv")] == ["10", "100", "1000"]


def test_pictures_of_all_sets_at_hand_are_in_their_table(tmp_path, monkeypatch):
    small_faps(monkeypatch)
    monkeypatch.setattr(faps, "IMAGE_MESSAGES", 3)
    for seed, name in enumerate(faps.IMAGES):
        pictures = np.abs(problems.synthetic(320, problems.geometric(12, 1.3), seed))
        np.savez(tmp_path / f"{name}.npz", X=255.0 * pictures / pictures.max())
    faps.main(["--out", str(tmp_path), "--data-dir", str(tmp_path), "--only", "table3"])
    rows = table(tmp_path / "faps_table3.csv")
    assert [row["pictures"].partition(",")[0] for row in rows[:-1:2]] == ["fashion_mnist", "mnist"]
    assert {row["SSI"] for row in rows} == {"-"}  # not in three messages


def test_without_pictures_their_table_is_left_out(tmp_path, capsys):
    faps.main(["--out", str(tmp_path), "--data-dir", str(tmp_path), "--only", "table3"])
    assert "table3 is left out" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_there_are_numbers_and_no_picture(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    drawing = report.Drawing("title", {"panel": {"curve": np.array([1.0, 0.5])}}, error="error")
    report.show(tmp_path, "c", report.Found("title", [["x"], [1]], drawing=drawing))
    assert "needs matplotlib" in capsys.readouterr().err
    assert [row["error"] for row in table(tmp_path / "c_curves.csv")] == ["1.0", "0.5"]
    assert not (tmp_path / "c_curves.png").exists()


def test_leak_shows_ssi_giving_the_client_away_before_it_converges(tmp_path, monkeypatch):
    monkeypatch.setattr(leak, "SMALL", (30, 400, 5))
    monkeypatch.setattr(leak, "FLAT", ("ssi(oversample=0, max_rounds=12)", "faps(max_rounds=6)"))
    monkeypatch.setattr(leak, "FALLING", ("faps(tol=1e-4)",))
    leak.main(["--only", "fig1a", "--seeds", "2", "--out", str(tmp_path)])
    ssi, faps_flat, faps_falling = table(tmp_path / "leak_fig1a.csv")
    assert int(ssi["C_1 to 1e-5"]) in (6, 7, 8)
    assert ssi["PCA to 1e-5"] == "> 13"
    for row in (faps_flat, faps_falling):
        assert row["C_1 to 1e-5"].startswith("> ")
        assert float(row["C_1 at the end"].partition("..")[0]) > 1e-2  # the smallest of the draws
    points = table(tmp_path / "leak_fig1a_curves.csv")
    assert len({point["panel"] for point in points}) == 3
    assert (tmp_path / "leak_fig1a_curves.png").read_bytes().startswith(b"\x89PNG")


def test_leak_counts_messages_by_columns(tmp_path, monkeypatch):
    monkeypatch.setattr(leak, "SIZES", (10, 20))
    monkeypatch.setattr(leak, "SMALL", (30, 400, 5))
    monkeypatch.setattr(leak, "LATE", 25)
    monkeypatch.setattr(leak, "LONG", 30)
    leak.main(["--only", "fig1b", "--seeds", "2", "--out", str(tmp_path)])
    for row in table(tmp_path / "leak_fig1b.csv"):
        assert int(row["d / p"]) == int(row["d"]) // 5 <= int(row["C_1 to 1e-5"]) <= int(row["d / p"]) + 2
        assert row["rank after 25"] == row["d"]
        assert row["PCA to 1e-5"] == "> 30"


def test_the_attack_of_the_figure_is_told_for_other_rows_and_solvers(tmp_path, monkeypatch):
    monkeypatch.setattr(leak, "OTHER", (20, 30, 40))
    monkeypatch.setattr(leak, "SMALL", (30, 400, 5))
    monkeypatch.setattr(leak, "LATE", 12)
    leak.main(["--only", "others", "--out", str(tmp_path)])
    rows = table(tmp_path / "leak_others.csv")
    assert [row["entries"] for row in rows[::2]] == [*leak.RANDOM, "normal", "normal"]
    for row in rows:
        assert (int(row["rank after 12"]), row["d / p"]) == (int(row["d"]), str(int(row["d"]) // 5))
        assert float(row["error after 12"]) < (1e-8 if row["solver"].startswith("least norm") else 1e-4)


def test_the_attack_of_the_figure_is_that_of_an_audit():
    shards = problems.evenly(np.random.default_rng(0).standard_normal((400, 30)), 2)
    told, _ = leak.watched(shards, 5, looks=range(1, 10), messages=9)
    seen = audit("ssi(oversample=0, max_rounds=8, tol=0.0)", shards, n_components=5, center=False, clients=(0,))
    for known in seen.leaks[:5]:
        assert told[known.message][1] == pytest.approx(known.minimum_norm, rel=1e-6)
    assert told[7][1] < 1e-8 < told[5][1]


def test_every_algorithm_has_its_sentence_in_the_table_of_leaks():
    assert set(leak.SENTENCES) == set(ALGORITHMS)


def test_the_table_on_privacy_compares_with_the_pooled_answer(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 8)) * 0.6 ** np.arange(8)
    np.savez(tmp_path / "mine.npz", X=X)
    setting = private.Setting(lambda X: X, clip=3.0, reach=3.0, delta=1e-6)
    monkeypatch.setattr(private, "EXPERIMENTS", {"mine": private.experiment("mine", setting)})
    monkeypatch.setattr(private, "K", 2)
    monkeypatch.setattr(private, "EPSILONS", (0.5, 1e6))
    monkeypatch.setattr(private, "METHODS", ("covariance",))
    private.main(["--data-dir", str(tmp_path), "--out", str(tmp_path), "--seeds", "1"])
    rows = table(tmp_path / "private_mine.csv")
    assert [row["noise"] for row in rows] == ["summed", "masked", "local"]
    for row in rows:
        noisy, free = (float(row[f"epsilon {e}"].split(" / ")[0]) for e in ("0.5", "1e+06"))
        assert noisy > 5.0 > 2.0 > free
    C, V = private.truth(X)
    F = X - X.mean(axis=0)
    np.testing.assert_allclose(C, F.T @ F, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(V * np.linalg.svd(F)[2][:2], axis=1)), 1.0, rtol=1e-9)


def test_data_are_looked_for_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.delenv(data.VARIABLE, raising=False)
    assert not data.folder().is_absolute()
    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    assert data.folder() == tmp_path
    assert report.options([], about="", known=("a",), seeds=(1, 1)).data_dir == tmp_path


SIMS = Path(report.__file__).parents[1]
PUBLIC = {
    "flower_pca",
    "flower_pca.audit",
    "flower_pca.registry",
    "flower_pca.analysis.groups",
    "flower_pca.plots.personal",
}


@pytest.mark.parametrize("path", sorted(SIMS.rglob("*.py")), ids=lambda path: str(path.relative_to(SIMS)))
def test_simulations_use_what_users_use(path):
    modules = {node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
    inner = {module for module in modules if module and module.startswith("flower_pca")} - PUBLIC
    assert not inner or path.name in ("batched.py", "stepwise.py")


@pytest.mark.parametrize("schedule", ["local_steps=4, halve_every=1", "halve_every=2", "local_steps=2, halve_every=1"])
@pytest.mark.parametrize("align", ["procrustes", "sign", "none"])
def test_single_steps_of_local_power_go_on_by_the_covariance_of_all(schedule, align):
    algorithm, problem = f"local_power(oversample=0, {schedule}, align={align!r})", tiny(seed=3)
    whole = problems.trace(algorithm, problem, measure=problems.sin_theta, seed=2, messages=40)
    quick = sets.traced(algorithm, problem, 2, 40)
    assert len(whole) == len(quick) == 40
    np.testing.assert_allclose(quick, whole, rtol=1e-6, atol=1e-13)
    np.testing.assert_array_equal(sets.traced(algorithm, problem, 2, 40, target=0.1), quick[: (quick > 0.1).sum() + 1])
    np.testing.assert_array_equal(sets.traced(algorithm, problem, 2, 2), whole[:2])


def test_a_curve_that_is_there_is_cut_where_a_target_is_asked_for():
    rows = problems.synthetic(300, problems.geometric(12, 1.3), 4)
    bench, other = (sets.Bench("one", rows) for _ in range(2))
    whole = bench.curve("ssi(oversample=0)", 1)
    there = bench.curve("ssi(oversample=0)", 1, messages=200, target=0.05)
    np.testing.assert_array_equal(there, whole[: len(there)])
    np.testing.assert_array_equal(there, other.curve("ssi(oversample=0)", 1, messages=200, target=0.05))


def test_of_many_columns_fewer_messages_are_looked_at(monkeypatch):
    for name, value in {"PAPER": (40, 400, 10), "LARGE": (40, 60), "WIDE": 50, "LATE": 14, "LONG": 30}.items():
        monkeypatch.setattr(leak, name, value)
    looked = []
    monkeypatch.setattr(leak, "attacked", lambda Z, X: looked.append(Z.shape) or (Z.shape[0], 1e-9))
    found = leak.fig1b(report.Options(("fig1b",), Path(), (), Path(), 1, True))
    _, few, many = found.rows
    assert [shape[1] // 10 for shape in looked] == [4, 5, 6, 9, 14, 11, 14]
    assert (few[0], many[0]) == (40, 60)
    assert (few[-1], many[-1]) == ("> 30", "> 14")
