"""Test that compare() measures every algorithm against LAPACK's answer for the pooled rows."""

import json
import sys

import numpy as np
import pytest
from builders import mixed, pooled, sine
from cases import every
from scipy import sparse

from flower_pca import ConfigError, DataError, cli, make, registry, simulate
from flower_pca.comparison import compare, slow
from flower_pca.comparison.algorithms import pooled_components as reference
from flower_pca.names.table import Table
from flower_pca.rows.local import LocalData

ALGORITHMS = ["krylov", "ssi", make("local_power"), "faps(inner_steps=5)", "uda"]


@pytest.fixture(scope="module")
def courses():
    return compare(mixed(0).shards, algorithms=ALGORITHMS, n_components=3, seed=2)


@pytest.mark.slow
def test_the_results_are_those_of_the_runs_alone(courses):
    assert [course.algorithm for course in courses] == ["krylov", "ssi", "local_power", "faps(inner_steps=5)", "uda"]
    for course, algorithm in zip(courses, ALGORITHMS, strict=True):
        alone = simulate(algorithm, mixed(0).shards, n_components=3, seed=2)
        assert course.result.components_.tobytes() == alone.components_.tobytes()


@pytest.mark.slow
def test_the_angles_are_those_to_lapacks_answer(courses):
    truth = pooled(mixed(0).shards).components[:3]
    for course in courses:
        np.testing.assert_allclose(np.sin(course.angle), sine(course.result.components_, truth), atol=1e-12)
        assert len(course.angles) == len(course.messages) == len(course.bytes)
        np.testing.assert_allclose(course.angles[-1], course.angle, rtol=1e-6, atol=1e-12)
    krylov, ssi, _, _, uda = courses
    assert krylov.angle < 1e-6 < uda.angle
    assert min(np.diff(ssi.angles[:10])) < 0 < min(ssi.angles)


def test_the_figures_are_those_of_the_history(courses):
    for course in courses:
        history, figures = course.result.history, course.to_json()
        assert course.messages[0] == 1
        assert course.bytes[-1] == history.bytes_up + history.bytes_down
        assert figures["seconds"] == course.seconds == sum(record.seconds for record in history) > 0
        assert (figures["messages"], figures["bytes_up"]) == (len(history), history.bytes_up)
        assert [point["angle"] for point in figures["course"]] == list(course.angles)


@every("center", [True, False])
@every("scale", [None, "std", "max_abs"])
def test_the_reference_is_lapacks_in_every_frame(center, scale):
    shards = mixed(1).shards
    truth = pooled(shards, center=center, scale=scale).components[:3]
    for kind in (np.asarray, sparse.csr_array):
        Z = reference([kind(X) for X in shards], 3, center=center, scale=scale, missing="error")
        assert sine(Z[:, :3].T, truth) <= 1e-10


LAYOUTS = {
    "sites that share an order, out of the alphabet": [[3, 0, 2, 1, 4]] * 3,
    "sites in three orders": [[3, 0, 2, 1, 4], [0, 1, 2, 3, 4], [4, 3, 2, 1, 0]],
    "names in the order of the alphabet": [[0, 1, 2, 3, 4]] * 3,
}


def sites_in(layout):
    """Sites whose columns lie in these orders, and LAPACK's components of the pooled rows, columns by name."""
    rng = np.random.default_rng(7)
    names = np.array(["age", "bmi", "crp", "hba1c", "ldl"])
    rows = [rng.standard_normal((n, 5)) * [1.0, 9.0, 4.0, 2.0, 6.0] + rng.normal(size=5) for n in (40, 25, 31)]
    sites = [Table(X[:, order], tuple(names[order])) for X, order in zip(rows, layout, strict=True)]
    return sites, dict(zip(names, pooled(rows).components[:2].T, strict=True))


@every("layout", LAYOUTS)
@every("limit", [4096, 2])
def test_angles_are_true_in_whatever_order_columns_lie(layout, limit, monkeypatch):
    monkeypatch.setattr(sys.modules[reference.__module__], "_GRAM", limit)
    sites, truth = sites_in(LAYOUTS[layout])
    for course in compare(sites, algorithms=["covariance", "krylov", "ssi", "uda"], n_components=2):
        columns = [truth[name] for name in course.result.feature_names_in_]
        true = sine(course.result.components_, np.array(columns).T)
        assert true <= (1e-4 if course.algorithm != "uda" else 0.5)
        np.testing.assert_allclose([np.sin(course.angle), np.sin(course.angles[-1])], true, atol=1e-10)


@every("layout", LAYOUTS)
def test_the_command_measures_true_angles_in_whatever_order_columns_lie(layout, tmp_path, capsys):
    sites, _ = sites_in(LAYOUTS[layout])
    for i, site in enumerate(sites):
        path = tmp_path / "sites" / f"site{i}.csv"
        path.parent.mkdir(exist_ok=True)
        np.savetxt(path, site.values, delimiter=",", header=",".join(site.names), comments="")
    words = ["compare", str(tmp_path / "sites"), "--components", "2", "--out", str(tmp_path / "out"), "--json"]
    assert cli.main([*words, "--algorithms", "krylov,covariance"]) == 0
    assert max(course["angle"] for course in json.loads(capsys.readouterr().out)) <= 1e-7


def test_the_reference_of_wide_and_of_missing_values(monkeypatch):
    shards = [X.copy() for X in mixed(2).shards]
    shards[0][3, 4] = np.nan
    filled = [np.where(np.isnan(X), np.nanmean(np.vstack(shards), axis=0), X) for X in shards]
    truth = pooled(filled).components[:3]
    for most in (4096, 2):
        monkeypatch.setattr(sys.modules[reference.__module__], "_GRAM", most)
        Z = reference(shards, 3, center=True, scale=None, missing="mean")
        assert sine(Z[:, :3].T, truth) <= 1e-10


def test_the_reference_of_many_columns_needs_no_matrix_of_all_columns(monkeypatch):
    shards = [np.random.default_rng(i).standard_normal((4, 30)) for i in range(3)]
    monkeypatch.setattr(sys.modules[reference.__module__], "_GRAM", 29)
    monkeypatch.setattr(LocalData, "gram", None)
    Z = reference(shards, 3, center=True, scale=None, missing="error")
    assert sine(Z[:, :3].T, pooled(shards).components[:3]) <= 1e-10


def test_a_share_of_the_variance_and_limits():
    few, many = compare(mixed(0).shards, algorithms=["ssi", "krylov"], n_components=0.9, max_rounds=4, tol=1e-3)
    assert few.result.rounds <= 4
    assert many.angle < 1e-2
    assert compare(mixed(0).shards, algorithms=["uda"], n_components=2, tol=1e-3)[0].algorithm == "uda"


def test_what_cannot_be_compared_is_refused_before_any_run():
    seen = []
    for algorithms, message in ((["krylov", "ssj"], "Did you mean 'ssi'"), ([], "at least one"), ("ssi", "a list")):
        with pytest.raises(ConfigError, match=message):
            compare(mixed(0).shards, algorithms=algorithms, n_components=2, on_round=seen.append)
    with pytest.raises(DataError, match="shards is "):
        compare([], algorithms=["ssi"], n_components=2)
    assert seen == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_picture_has_a_curve_for_each_on_both_sides(courses, kind, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from flower_pca.plots import course, style

    drawn, write = [], style.write
    monkeypatch.setattr(style, "write", lambda figure, *rest: (drawn.append(figure), write(figure, *rest)))
    path = course.draw_comparison(courses, tmp_path / f"picture.{kind}")
    assert path.read_bytes()[:5] in (b"<?xml", b"\x89PNG\r")
    for ax, places in zip(drawn[0].axes, ("messages", "bytes"), strict=True):
        for line, each in zip(ax.lines, courses, strict=True):
            assert line.get_label() == each.algorithm
            assert np.array_equal(line.get_xdata(), getattr(each, places))
            np.testing.assert_allclose(line.get_ydata(), np.maximum(each.angles, 1e-17))
    with pytest.raises(ConfigError, match=r"^A picture is saved as \.svg or \.png"):
        course.draw_comparison(courses, tmp_path / "picture.gif")


SSI = "ssi(oversample=0)"


def nearly_tied(ratio, n=240, d=8):
    """Rows whose fourth eigenvalue is this part of their third."""
    rng = np.random.default_rng(4)
    deviations = np.concatenate([[5.0, 4.0, 3.0], 3.0 * np.sqrt(ratio) * 0.9 ** np.arange(d - 3)])
    X = rng.standard_normal((n, d))
    return np.array_split(np.linalg.qr(X - X.mean(axis=0))[0] * deviations * np.sqrt(n), 4)


def test_what_would_take_thousands_of_rounds_is_known_beforehand():
    asked = {"algorithms": ["krylov", "faps", SSI, "local_power(oversample=0)", "uda"], "n_components": 3}
    assert slow(nearly_tied(0.9), **asked) == {}
    found = slow(nearly_tied(0.999), **asked)
    assert list(found) == ["faps", SSI, "local_power(oversample=0)"]
    assert 5000 <= found[SSI] <= 20_000
    assert slow(nearly_tied(0.999), **{**asked, "n_components": 2}) == {}
    others = [name for name, kind in registry.ALGORITHMS.items() if not (kind.measured and kind.orthonormal)]
    assert slow(nearly_tied(0.999), **{**asked, "algorithms": others}) == {}
    assert slow(nearly_tied(0.999), **{**asked, "algorithms": ["ssi"]}) == {}  # The same with one more column.
    assert slow(nearly_tied(1.0), **{**asked, "algorithms": [SSI]})[SSI] > 10**6


@pytest.mark.slow
def test_rounds_are_of_the_size_that_was_foreseen():
    (rounds,) = slow(nearly_tied(0.995), algorithms=[SSI], n_components=3).values()
    taken = simulate(SSI, nearly_tied(0.995), n_components=3, max_rounds=4000).rounds
    assert 0.5 <= taken / rounds <= 2.0


@pytest.mark.slow
def test_the_command_leaves_it_out_by_default_and_says_so(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.vstack(nearly_tied(0.999)))
    words = ["compare", str(tmp_path / "x.npy"), "--components", "3", "--out", str(tmp_path / "out")]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "Not run, because eigenvalues of these rows are close together: faps (about " in said
    assert said.count("krylov") >= 1
    assert "To run these algorithms anyway, name them in --algorithms." in said
    assert cli.main([*words, "--algorithms", "ssi", "--max-rounds", "3", "--json"]) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)[0]["algorithm"], err) == ("ssi(max_rounds=3)", "")
