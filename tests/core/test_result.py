"""Test PCAResult against pooled LAPACK and scikit-learn."""

import dataclasses
import json

import numpy as np
import pytest
import scipy.sparse as sp
from builders import EPS, deal, falling, framed, svd
from cases import every

from flower_pca import DataError, TrackingResult, simulate, to_sklearn, track
from flower_pca.base.history import Outcome
from flower_pca.results.pca import PCAResult

X = falling(90, 7, seed=3) + 5.0
NEW = falling(11, 7, seed=4) + 5.0
SCALES = [None, "std", "max_abs"]


def run_exactly(*, k=3, rows=X, **arguments):
    return simulate("krylov(tol=1e-12)", deal(rows, (40, 30, 20)), n_components=k, **arguments)


@pytest.fixture(params=[(c, s) for c in (True, False) for s in SCALES], ids=str)
def setting(request):
    center, scale = request.param
    return {"center": center, "scale": scale}


def test_attributes_are_those_of_the_pooled_rows(setting):
    result = run_exactly(**setting)
    Y = framed(X, **setting)
    s, V = svd(Y)
    assert (result.n_components_, result.n_features_in_, result.n_samples_) == (3, 7, 90)
    assert result.centered is setting["center"]
    np.testing.assert_allclose(result.singular_values_, s[:3], rtol=1e-12)
    np.testing.assert_allclose(result.explained_variance_, s[:3] ** 2 / 89, rtol=1e-12)
    assert result.total_variance_ == pytest.approx(np.sum(s**2) / 89, rel=1e-12)
    np.testing.assert_allclose(result.explained_variance_ratio_, s[:3] ** 2 / np.sum(s**2), rtol=1e-12)
    np.testing.assert_allclose(result.mean_, X.mean(axis=0) if setting["center"] else np.zeros(7), rtol=1e-13)
    signs = np.sign(V[np.abs(V).argmax(axis=0), np.arange(7)])
    np.testing.assert_allclose(result.components_, (V * signs).T[:3], atol=1e-11)
    np.testing.assert_allclose(result.components_ @ result.components_.T, np.eye(3), atol=32 * EPS)
    assert (result.residuals_ <= 1e-12).all()
    assert result.status.outcome is Outcome.CONVERGED
    assert result.status.ok


@pytest.mark.parametrize("rows", [falling(90, 7, seed=5), falling(7, 7, seed=6, ratio=1.1)[:5]], ids=["tall", "wide"])
def test_attributes_are_scikit_learns_of_the_pooled_rows_for_any_number_of_components(rows):
    decomposition = pytest.importorskip("sklearn.decomposition")
    rounding = 1e-14 * rows.var(axis=0, ddof=1).sum()  # rounding errors in place of zero variance
    for k in range(1, min(rows.shape) + 1):
        theirs = decomposition.PCA(n_components=k, svd_solver="full").fit(rows)
        ours = simulate("krylov(tol=1e-12)", deal(rows, (2, len(rows) - 2)), n_components=k)
        assert ours.noise_variance_ == pytest.approx(theirs.noise_variance_, rel=1e-11, abs=rounding)
        for name in ("n_components_", "n_features_in_", "n_samples_"):
            assert getattr(ours, name) == getattr(theirs, name)
        varying = theirs.explained_variance_ > rounding
        for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_"):
            found, expected = getattr(ours, name), getattr(theirs, name)
            np.testing.assert_allclose(found[varying], expected[varying], rtol=1e-11, err_msg=name)
        np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-11, atol=1e-15)
        cosines = np.abs(np.sum(ours.components_ * theirs.components_, axis=1))
        np.testing.assert_allclose(cosines[varying], 1.0, rtol=1e-13)


@pytest.mark.parametrize("kind", [np.asarray, np.float32, sp.csr_matrix, sp.coo_array, np.ndarray.tolist])
def test_transform_is_the_projection_of_framed_rows_dense_or_sparse(kind, setting):
    result = run_exactly(**setting)
    V = result.components_.T
    mean = X.mean(axis=0) if setting["center"] else 0.0
    scale = {None: 1.0, "std": X.std(axis=0), "max_abs": np.abs(X).max(axis=0)}[setting["scale"]]
    Y = (NEW - mean) / scale
    scores = result.transform(kind(NEW))
    eps = np.finfo(np.float32).eps if kind is np.float32 else EPS
    size = np.linalg.norm(NEW / scale)
    np.testing.assert_allclose(scores, Y @ V, rtol=0, atol=16 * eps * size)
    assert scores.dtype == (np.float32 if kind is np.float32 else np.float64)
    np.testing.assert_allclose(result.inverse_transform(Y @ V), Y @ V @ V.T * scale + mean, rtol=0, atol=1e-13 * size)
    expected = np.linalg.norm(Y - Y @ V @ V.T) ** 2 / len(NEW)
    assert result.reconstruction_error(kind(NEW)) == pytest.approx(expected, rel=0, abs=16 * eps * size**2)


def test_all_components_rebuild_every_row(setting):
    result = run_exactly(k=7, **setting)
    np.testing.assert_allclose(result.inverse_transform(result.transform(NEW)), NEW, rtol=1e-13)
    assert result.reconstruction_error(NEW) <= 1e-26 * np.linalg.norm(NEW) ** 2
    assert result.noise_variance_ == 0.0
    assert result.sine_estimate_ == 0.0


def test_the_evaluated_error_is_that_of_the_pooled_rows(setting):
    result = run_exactly(reconstruction_error=True, **setting)
    Y, V = framed(X, **setting), result.components_.T
    assert result.mse_ == pytest.approx(np.linalg.norm(Y - Y @ V @ V.T) ** 2 / 90, rel=1e-12)
    assert result.reconstruction_error(X) == pytest.approx(result.mse_, rel=1e-12)
    assert run_exactly(**setting).mse_ is None


def test_the_sine_estimate_bounds_the_true_angle_of_a_rough_run():
    V = svd(framed(X))[1]
    rough = simulate("ssi(max_rounds=3, oversample=1)", deal(X, (40, 30, 20)), n_components=3)
    true = np.linalg.norm(V[:, :3] - rough.components_.T @ (rough.components_ @ V[:, :3]), 2)
    assert true > 1e-6
    assert true <= rough.sine_estimate_ <= 10 * true


def test_the_sine_estimate_of_tied_eigenvalues_is_undefined():
    axes = np.vstack([np.diag([3.0, 2.0, 2.0, 1.0]), -np.diag([3.0, 2.0, 2.0, 1.0])])
    tied, apart = (simulate("krylov", [axes], n_components=k).sine_estimate_ for k in (2, 3))
    assert tied is None
    assert apart < 1e-8


def test_angle_to_a_turned_result_is_the_turn_even_if_tiny():
    result = run_exactly()
    for turn in (1e-12, 1e-3, 1.0, np.pi / 2):
        components = result.components_.copy()
        components[0] = np.cos(turn) * components[0] + np.sin(turn) * svd(framed(X))[1][:, 5]
        other = dataclasses.replace(result, components_=components)
        assert result.angle_to(other) == pytest.approx(turn, rel=0, abs=1e-14)
        basis = 3.0 * np.tri(3) @ components  # another basis of the same space
        assert result.angle_to(basis) == pytest.approx(result.angle_to(other), rel=0, abs=1e-14)
    assert result.angle_to(result) <= 1e-15
    assert result.angle_to(result.components_[:1]) <= 1e-15
    assert result.angle_to(result.components_[0].tolist()) <= 1e-15


def assert_equal(a, b):
    for field in dataclasses.fields(PCAResult):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(x, np.ndarray):
            np.testing.assert_array_equal(x, y, strict=True)
        else:
            assert x == y, field.name


@pytest.mark.parametrize("evaluate", [False, True])
def test_saving_and_loading_gives_the_same_result(tmp_path, setting, evaluate):
    result = run_exactly(reconstruction_error=evaluate, **setting)
    path = result.save(tmp_path / "result.npz")
    assert path == tmp_path / "result.npz"
    loaded = PCAResult.load(path)
    assert_equal(loaded, result)
    np.testing.assert_array_equal(loaded.transform(NEW), result.transform(NEW))


def test_names_of_columns_and_sites_are_saved_with_a_result(tmp_path):
    names = np.array(["age", "Größe", "c", "d", "e", "f", "g, h"], dtype=object)
    result = dataclasses.replace(run_exactly(), feature_names_in_=names, site_names={0: "north", 2: "south"})
    loaded = PCAResult.load(result.save(tmp_path / "result.npz"))
    assert_equal(loaded, result)
    assert loaded.site_names == {0: "north", 2: "south"}
    assert run_exactly().feature_names_in_ is None
    assert run_exactly().site_names == {}


def test_scores_are_named_by_their_component():
    names = run_exactly(k=2).get_feature_names_out()
    assert names.dtype == object
    assert names.tolist() == ["pc1", "pc2"]


def test_a_saved_result_holds_a_json_header_and_no_pickle(tmp_path):
    path = run_exactly(scale="std").save(str(tmp_path / "no suffix"))
    with np.load(path, allow_pickle=False) as file:
        header = json.loads(file["header.json"].tobytes())
        names = set(file.files)
    arrays = {"components_", "explained_variance_", "mean_", "scale_", "residuals_", "site_share_"}
    assert names == {"header.json", *arrays}
    assert header["kind"] == "result"
    assert header["algorithm"] == "krylov(tol=1e-12)"
    assert header["status"][0] == "converged"


def test_the_scikit_learn_object_gives_the_same_scores(setting):
    pytest.importorskip("sklearn")
    result = run_exactly(**setting)
    theirs = to_sklearn(result)
    np.testing.assert_allclose(theirs.transform(NEW), result.transform(NEW), rtol=0, atol=1e-12)
    scores = result.transform(NEW)
    np.testing.assert_allclose(theirs.inverse_transform(scores), result.inverse_transform(scores), rtol=1e-12)
    pca = theirs if setting["scale"] is None else theirs[-1]
    names = ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_")
    for name in names:
        np.testing.assert_array_equal(getattr(pca, name), getattr(result, name))
    assert list(theirs.get_feature_names_out()) == ["pca0", "pca1", "pca2"]


def test_to_sklearn_scores_as_a_fitted_pca_does():
    decomposition = pytest.importorskip("sklearn.decomposition")
    fitted = decomposition.PCA(n_components=3, svd_solver="full").fit(X)
    ours = to_sklearn(run_exactly())
    assert ours.score(NEW) == pytest.approx(fitted.score(NEW), rel=1e-10)
    np.testing.assert_allclose(ours.get_covariance(), fitted.get_covariance(), rtol=1e-9, atol=1e-12)


def test_table_and_repr_say_what_was_found():
    result = run_exactly(k=2)
    assert result.site_share_ is not None
    # The column of shares is tested in tests/test_site_share.py.
    result = dataclasses.replace(result, site_share_=None)
    heading, *rows = result.table().splitlines()
    assert heading.split() == ["component", "variance", "share", "together", "residual", "largest", "weights"]
    shares = svd(framed(X))[0] ** 2 / np.sum(svd(framed(X))[0] ** 2)
    assert [row.split()[0] for row in rows] == ["1", "2"]
    assert [row.split()[2] for row in rows] == [f"{share:.2%}" for share in shares[:2]]
    assert rows[1].split()[3] == f"{shares[:2].sum():.2%}"
    assert rows[0].split()[1] == f"{result.explained_variance_[0]:.4g}"
    assert {line.index("  ", 50) for line in (heading, *rows)} == {54}
    heaviest = np.argsort(-np.abs(result.components_[0]))[:3]
    assert rows[0][56:] == ", ".join(f"{result.components_[0, j]:+.2f} column {j}" for j in heaviest)
    named = dataclasses.replace(result, feature_names_in_=np.array(list("abcdefg"), dtype=object))
    assert named.table().splitlines()[1][56:] == ", ".join(
        f"{result.components_[0, j]:+.2f} {'abcdefg'[j]}" for j in heaviest
    )
    title = result.summary().title
    assert title == (
        f"2 components of 90 rows x 7 columns by krylov(tol=1e-12), converged after {len(result.history)} messages"
    )
    assert repr(result) == f"PCAResult({title})"


def test_a_printed_summary_has_title_findings_and_table():
    result = run_exactly(k=2)
    summary = result.summary(digits=6)
    said = str(summary).splitlines()
    assert said[0] == summary.title
    assert said[1] == summary.findings[0]
    assert f"{result.explained_variance_[0]:.6g}" in str(summary)
    assert said[-1] == summary.of_tone("good")[-1]


@every(
    ("result", "load"),
    [
        (simulate("krylov", deal(X, (50, 40)), n_components=2), PCAResult.load),
        (simulate("consensus_rpca(max_rounds=3)", deal(X, (50, 40)), n_components=2), PCAResult.load),
        (track("st_miss", [X], n_components=2, batch=30), TrackingResult.load),
    ],
)
def test_a_file_without_one_of_its_fields_is_refused(result, load, tmp_path):
    """As one without `privacy` would be a result that no budget was spent on."""
    path = result.save(tmp_path / "r.npz")
    with np.load(path) as there:
        parts = dict(there)
    header = json.loads(parts.pop("header.json").tobytes())
    assert len(header) > 14
    # An older file counts rows without leaving them out.
    for name in set(header) - {"kind", "arrays", "histograms_of"}:
        text = json.dumps({key: value for key, value in header.items() if key != name})
        np.savez(path, **{"header.json": np.frombuffer(text.encode(), np.uint8)}, **parts)
        with pytest.raises(DataError, match=rf"is not a complete (tracking )?result: it lacks {name}\."):
            load(path)


def test_a_file_from_before_rows_were_left_out_counts_them_as_they_are(tmp_path):
    path = run_exactly(k=2).save(tmp_path / "r.npz")
    with np.load(path) as there:
        parts = dict(there)
    header = json.loads(parts.pop("header.json").tobytes())
    del header["histograms_of"]
    np.savez(path, **{"header.json": np.frombuffer(json.dumps(header).encode(), np.uint8)}, **parts)
    assert PCAResult.load(path).histograms_of == "rows"
