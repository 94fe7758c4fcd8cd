"""Test rotated components against factor_analyzer and R, and by their invariants."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from builders import rotation as random_rotation
from cases import every
from pages import flower_pca

from flower_pca import PCAResult, simulate, track
from flower_pca.analysis import rotation
from flower_pca.analysis.rotation import METHODS, promax, rotate, varimax

SPECS = ("varimax", "varimax(kaiser=False)", "promax", "promax(kaiser=False, power=3)")
NAMES = [f"sensor_{j}" for j in range(12)]

# factanal(~., 2, data = swiss) in R, as R's own reference output tests/Examples/stats-Ex.Rout.save prints what
# varimax(normalize = FALSE) and promax make of its loadings. It leaves out what is below 0.1.
R_VARIMAX = [[0.999973881, -0.007227595], [0.007227595, 0.999973881]]
R_PROMAX = [[1.2114045, 0.4029296], [0.4956199, 1.2453063]]
R_LOADINGS = [[-0.595, 0.227], [-0.599, 0.160], [0.577, -0.360], [1.192, 0.363], [0.326, 1.147]]
R_LAST = (0.176, 0.180)  # the last row's second loading after varimax, and after promax


def shards_of_sources(seed=0, noise=0.5):
    """Rows of three clients, of which each of three sources moves four columns, and the others little."""
    rng = np.random.default_rng(seed)
    sources = np.kron(np.diag([1.0, 0.8, 0.9]), np.ones((1, 4))) + 0.15 * rng.standard_normal((3, 12))
    return [rng.standard_normal((n, 3)) @ sources + noise * rng.standard_normal((n, 12)) for n in (300, 200, 100)]


@pytest.fixture(scope="module")
def scaled_result():
    return simulate("krylov", shards_of_sources(), n_components=3, scale="std")


def loadings_of(result):
    return result.components_.T * np.sqrt(result.explained_variance_)


def criterion(B):
    """What varimax makes largest, of loadings whose rows count as they are."""
    return float(np.sum(B**4) - np.sum(np.sum(B**2, axis=0) ** 2) / len(B))


def in_order_of(loadings, others):
    """Loadings with the columns and signs of others that they go with."""
    places = np.abs(loadings.T @ others).argmax(axis=0)
    assert sorted(places) == list(range(len(places)))
    return loadings[:, places] * np.sign(np.sum(loadings[:, places] * others, axis=0))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "kaiser"), [("varimax", True), ("varimax", False), ("promax", False)])
def test_loadings_are_those_of_factor_analyzer(method, kaiser):
    theirs = pytest.importorskip("factor_analyzer")
    result = simulate("covariance", shards_of_sources(), n_components=3, scale="std")
    rotator = theirs.Rotator(method=method, normalize=kaiser, max_iter=5000, tol=1e-15)
    loadings = rotator.fit_transform(loadings_of(result))
    ours = rotate(result, f"{method}(kaiser={kaiser})")
    np.testing.assert_allclose(in_order_of(loadings, ours.loadings), ours.loadings, atol=1e-7)
    if method == "promax":
        np.testing.assert_allclose(
            np.sort(np.abs(rotator.phi_), None), np.sort(np.abs(ours.correlations), None), atol=1e-7
        )


def test_rotations_are_those_of_R():
    (_, across), (_, down) = R_PROMAX
    last = [(R_LAST[1] - down * R_LAST[0]) / across, R_LAST[0]]
    A = np.vstack([R_LOADINGS @ np.linalg.inv(R_PROMAX), last])
    np.testing.assert_allclose(varimax(A, kaiser=False), R_VARIMAX, atol=5e-4)
    R = promax(A)
    np.testing.assert_allclose(R, R_PROMAX, atol=2e-3)
    np.testing.assert_allclose((A @ R)[:-1], R_LOADINGS, atol=2e-3)


@pytest.mark.filterwarnings("ignore:The rotation has not settled")
@pytest.mark.parametrize("shape", [(5, 2), (12, 3), (30, 10), (8, 8), (200, 6)])
def test_the_criterion_never_falls(shape, monkeypatch):
    A = np.random.default_rng(sum(shape)).standard_normal(shape)
    found = [criterion(A)]
    for sweeps in range(1, 12):
        monkeypatch.setattr(rotation, "SWEEPS", sweeps)
        found.append(criterion(A @ varimax(A, kaiser=False)))
    assert np.all(np.diff(found) >= -1e-12 * found[-1])
    assert found[1] > found[0]


@pytest.mark.slow
@every("shape", [(5, 2), (12, 3), (30, 10), (6, 6)])
def test_at_the_end_no_small_turn_makes_the_criterion_larger(shape):
    rng = np.random.default_rng(sum(shape))
    A = rng.standard_normal(shape)
    B = A @ varimax(A, kaiser=False)
    for _ in range(50):
        skew = rng.standard_normal((shape[1], shape[1]))
        turn = np.linalg.qr(np.eye(shape[1]) + 1e-3 * (skew - skew.T))[0]
        turn = turn * np.sign(np.diag(turn))
        assert criterion(B @ turn) <= criterion(B) * (1.0 + 1e-13)


@pytest.mark.parametrize("kaiser", [True, False])
def test_a_simple_structure_is_found_from_wherever_it_was_turned_to(kaiser):
    simple = np.kron(np.eye(4), np.array([[0.9], [0.7], [-0.8]])) * np.array([1.0, 0.9, 0.8, 0.7])
    for seed in range(10):
        A = simple @ random_rotation(4, seed)
        B = A @ varimax(A, kaiser=kaiser)
        np.testing.assert_allclose(in_order_of(B, simple), simple, atol=1e-12)
        np.testing.assert_allclose(in_order_of(A @ promax(A, kaiser=kaiser), simple), simple, atol=1e-12)


def test_the_size_of_loadings_and_a_column_of_zeros_change_nothing():
    A = np.random.default_rng(0).standard_normal((9, 3))
    for method in METHODS.values():
        np.testing.assert_allclose(method(A * 1e-60), method(A), atol=1e-12)
    padded = np.vstack([A, np.zeros(3)])
    assert np.isfinite(varimax(padded)).all()
    np.testing.assert_allclose(np.abs(varimax(padded * 1e60)), np.abs(varimax(padded)), atol=1e-12)


@pytest.mark.parametrize("method", SPECS)
def test_a_rotation_leaves_span_rows_and_variance_as_they_are(scaled_result, method):
    found, X = rotate(scaled_result, method), np.vstack(shards_of_sources())
    scores = found.transform(X)
    np.testing.assert_allclose(loadings_of(scaled_result) @ found.matrix, found.loadings, atol=1e-12)
    back = scores @ found.loadings.T * scaled_result.scale_ + scaled_result.mean_
    np.testing.assert_allclose(back, scaled_result.inverse_transform(scaled_result.transform(X)), atol=1e-10)
    np.testing.assert_allclose(np.cov(scores.T), found.correlations, atol=1e-10)
    np.testing.assert_allclose(np.diag(found.correlations), 1.0, atol=1e-12)
    np.testing.assert_allclose(found.explained_variance.sum(), scaled_result.explained_variance_.sum())
    np.testing.assert_allclose(found.explained_variance_ratio.sum(), scaled_result.explained_variance_ratio_.sum())
    assert found.oblique == method.startswith("promax")
    if not found.oblique:
        np.testing.assert_allclose(found.matrix.T @ found.matrix, np.eye(3), atol=1e-12)
        np.testing.assert_allclose(found.explained_variance, np.sum(found.loadings**2, axis=0))


def test_loadings_of_scaled_columns_are_correlations_with_the_scores(scaled_result):
    found, X = rotate(scaled_result), np.vstack(shards_of_sources())
    together = np.corrcoef(np.hstack([X, found.transform(X)]).T)[:12, 12:]
    np.testing.assert_allclose(found.loadings * np.sqrt((len(X) - 1) / len(X)), together, atol=1e-10)


@pytest.mark.parametrize("method", SPECS)
def test_order_and_signs_are_fixed(scaled_result, method):
    found = rotate(scaled_result, method)
    assert np.all(np.diff(found.explained_variance) <= 0.0)
    assert np.all(found.loadings[np.abs(found.loadings).argmax(axis=0), range(3)] > 0.0)
    turned = replace(scaled_result, components_=scaled_result.components_ * np.array([[-1.0], [1.0], [-1.0]]))
    again = rotate(turned, method)
    np.testing.assert_allclose(again.loadings, found.loadings, atol=1e-9)
    np.testing.assert_allclose(again.correlations, found.correlations, atol=1e-9)
    X = shards_of_sources()[0]
    np.testing.assert_allclose(again.transform(X), found.transform(X), atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("method", SPECS)
def test_clients_and_masks_change_nothing(scaled_result, method):
    found = rotate(scaled_result, method)
    for other in (
        simulate("krylov", [np.vstack(shards_of_sources())], n_components=3, scale="std"),
        simulate("covariance", shards_of_sources()[::-1], n_components=3, scale="std", mask=True),
    ):
        again = rotate(other, method)
        np.testing.assert_allclose(again.loadings, found.loadings, atol=1e-7)
        np.testing.assert_allclose(again.explained_variance, found.explained_variance, atol=1e-7)


def test_columns_at_different_places_rotate_where_all_loadings_are_at_hand():
    X = np.vstack(shards_of_sources())
    whole = rotate(simulate("krylov", [X], n_components=3))
    apart = simulate("krylov", [X[:, :5], X[:, 5:]], n_components=3, partitioned_by="columns")
    found = rotate(apart)
    np.testing.assert_allclose(found.loadings, whole.loadings, atol=1e-7)
    np.testing.assert_allclose(found.transform({0: X[:, :5], 1: X[:, 5:]}), whole.transform(X), atol=1e-6)


@pytest.mark.slow
def test_a_rotation_that_still_turns_says_so(scaled_result, monkeypatch):
    monkeypatch.setattr(rotation, "SWEEPS", 1)
    with pytest.warns(UserWarning, match="varimax still turns by .* degrees after 1 sweeps"):
        rotate(scaled_result)


@pytest.fixture
def saved_with_names(scaled_result, tmp_path):
    names = np.array(NAMES, dtype=object)
    replace(scaled_result, feature_names_in_=names).save(tmp_path / "result.npz")
    return tmp_path / "result.npz"


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_show_prints_the_rotated_components_below_the_others(saved_with_names, capsys):
    code, before, _ = flower_pca(capsys, "show", saved_with_names)
    code, said, err = flower_pca(capsys, "show", saved_with_names, "--rotate", "varimax")
    assert (code, err) == (0, "")
    assert said.startswith(before)
    found = rotate(PCAResult.load(saved_with_names))
    below = said.removeprefix(before)
    assert found.words in below
    for line in found.axes_table(digits=6).lines:
        assert all(cell in below for cell in line)


@pytest.mark.usefixtures("unillustrated")
def test_show_prints_all_of_a_rotation_as_json(saved_with_names, capsys):
    assert "rotation" not in json.loads(flower_pca(capsys, "show", saved_with_names, "--json")[1])
    said = json.loads(flower_pca(capsys, "show", saved_with_names, "--json", "--rotate", "promax(power=3)")[1])[
        "rotation"
    ]
    found = rotate(PCAResult.load(saved_with_names), "promax(power=3)")
    assert said["feature_names"] == NAMES
    for name in ("loadings", "matrix", "correlations", "explained_variance", "explained_variance_ratio"):
        np.testing.assert_array_equal(said[name], getattr(found, name))


UNITS = {
    "std": "Loadings are correlations of columns and scores, as columns have variance 1.",
    "max_abs": "Loadings refer to columns divided by their largest values.",
    None: "Loadings are in the units of the columns.",
}


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
@pytest.mark.parametrize("scale", UNITS)
def test_show_says_what_the_rotated_loadings_are_of_and_scores_go_with_them(scale, tmp_path, capsys):
    sizes = np.geomspace(1.0, 30.0, 12)  # columns in different units
    tables = [pd.DataFrame(X * sizes + 5.0, columns=NAMES) for X in shards_of_sources()]
    path = simulate("covariance", tables, n_components=3, scale=scale).save(tmp_path / "result.npz")
    assert UNITS[scale] in flower_pca(capsys, "show", path, "--rotate", "varimax")[1]
    said = json.loads(flower_pca(capsys, "show", path, "--json", "--rotate", "varimax")[1])["rotation"]
    loadings, X = np.array(said["loadings"]), pd.concat(tables)
    frame = {"std": X.std(ddof=0), "max_abs": X.abs().max(), None: 1.0}[scale]
    Z = ((X - X.mean()) / frame).to_numpy()
    _, s, V = np.linalg.svd(Z, full_matrices=False)
    explained = Z @ V[:3].T @ V[:3]
    scores = rotate(PCAResult.load(path)).transform(X)
    np.testing.assert_allclose(scores @ loadings.T, explained, atol=1e-9 * s[0])
    np.testing.assert_allclose(np.cov(scores.T), np.eye(3), atol=1e-10)
    # the covariance of scaled columns with scores: of columns of variance 1 their correlation
    np.testing.assert_allclose(Z.T @ scores / (len(Z) - 1), loadings, atol=1e-9)


def test_promax_and_levels_claim_no_correlations(scaled_result):
    assert "Loadings refer to columns divided by their deviations." in rotate(scaled_result, "promax").words
    rows = pd.DataFrame({**dict(zip(NAMES, shards_of_sources()[0].T, strict=True)), "ward": ["a", "b", "c"] * 100})
    found = rotate(simulate("covariance", [rows], n_components=3, scale="std", categorical="ward"))
    assert ("as the run has scaled them. Columns made of words are scaled by their shares.") in found.words
    scores = found.transform(rows)
    np.testing.assert_allclose(np.cov(scores.T), np.eye(3), atol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_the_report_has_the_rotated_loadings_of_all_columns(saved_with_names, capsys):
    assert flower_pca(capsys, "report", saved_with_names, "--rotate", "promax")[0] == 0
    page = (saved_with_names.parent / "report.html").read_text()
    found = rotate(PCAResult.load(saved_with_names), "promax")
    assert "Rotated components" in page
    assert found.words in page
    table = page.partition("Rotated loadings")[2]
    order = sorted(range(12), key=lambda j: table.index(f">{NAMES[j]}<"))
    blocks = [sorted(order[i : i + 4]) for i in (0, 4, 8)]
    # Columns that load on the same axis are listed together.
    assert sorted(blocks) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert flower_pca(capsys, "report", saved_with_names)[0] == 0
    assert "Rotated" not in (saved_with_names.parent / "report.html").read_text()


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_a_run_of_steps_has_nothing_to_rotate(tmp_path, capsys):
    batches = [[x[i : i + 20] for i in range(0, 100, 20)] for x in shards_of_sources()]
    track("st_miss", batches, n_components=2).save(tmp_path / "tracking.npz")
    code, _, err = flower_pca(capsys, "show", tmp_path / "tracking.npz", "--rotate", "varimax")
    assert code == 2
    assert "Only orthonormal components of the covariance of all rows can be rotated" in err
