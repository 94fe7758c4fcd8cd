"""Test cells of AnnData objects and .h5ad files: layers, marked genes, normalized counts."""

import weakref
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from fake_grid import grid_of

from flower_pca import (
    ConfigError,
    DataError,
    FlowerPCAError,
    NotEnoughNodes,
    PCAResult,
    Table,
    cells,
    simulate,
    strategies,
)
from flower_pca.blocks import adapters, compressed, source
from flower_pca.cli import main
from flower_pca.data import sources

GENES = 12


@cache
def counts_of_labs():
    rng = np.random.default_rng(0)
    rates = rng.gamma(1.0, 1.0, GENES)
    return [rng.poisson(rates * rng.gamma(3, 0.3, (n, 1))).astype(np.float64) for n in (60, 40, 25)]


def lab_of_cells(lab=0, *, kept="sparse", marked=(1, 4, 7)):
    ad, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    counts = counts_of_labs()[lab].copy()
    X = sp.csr_matrix(counts) if kept == "sparse" else counts
    genes = pd.DataFrame(index=pd.Index([f"g{j}" for j in range(GENES)], dtype=object))
    if marked:
        genes["highly_variable"] = np.isin(np.arange(GENES), marked)
    whose = pd.Index([f"lab{lab}_{i}" for i in range(len(counts))], dtype=object)
    made = ad.AnnData(X, obs=pd.DataFrame({"batch": np.arange(len(counts)) % 2}, index=whose), var=genes)
    made.layers["twice"] = 2 * X
    return made


def normalized_by_hand(counts, target=1e4):
    sums = counts.sum(axis=1, keepdims=True)
    return np.log1p(counts / np.where(sums > 0, sums / target, 1.0))


@pytest.mark.parametrize("kept", ["dense", "sparse"])
def test_cells_in_memory_backed_and_in_a_file_are_the_same_normalized_rows(kept, tmp_path, monkeypatch):
    ad = pytest.importorskip("anndata")
    monkeypatch.setattr(source, "_ENTRIES", 50)
    made = lab_of_cells(kept=kept)
    made.write_h5ad(tmp_path / "x.h5ad")
    backed = ad.read_h5ad(tmp_path / "x.h5ad", backed="r")
    spec = f"h5ad(path='{tmp_path}/x.h5ad', normalize=1e4, log=True, use_highly_variable=True)"
    options = {"normalize": 1e4, "log": True, "use_highly_variable": True}
    tables = [cells(made, **options), cells(backed, **options), sources.table(spec)]
    expected = normalized_by_hand(counts_of_labs()[0])[:, [1, 4, 7]]
    results = [simulate("krylov", [table], n_components=2).components_ for table in tables]
    for table, result in zip(tables, results, strict=True):
        assert table.names == ("g1", "g4", "g7")
        assert table.ids[:2] == ("lab0_0", "lab0_1")
        assert list(table.beside["batch"][:3]) == [0, 1, 0]
        assert source.is_sparse(adapters.as_blocks(table.values)) == (kept == "sparse")
        np.testing.assert_allclose(np.asarray(adapters.as_blocks(table.values)), expected, rtol=1e-14)
        assert np.array_equal(result, results[0])


def test_a_layer_of_cells_is_taken_and_a_missing_one_is_named():
    made = lab_of_cells(kept="dense")
    assert np.array_equal(cells(made, layer="twice").values, 2 * counts_of_labs()[0])
    with pytest.raises(ConfigError, match=r"has no layer 'raw'\. It has the layers twice\."):
        cells(made, layer="raw")
    made.X = None
    with pytest.raises(DataError, match=r"has no X\. Name a layer: cells\(adata, layer='twice'\)\."):
        cells(made)


def test_a_cell_without_counts_stays_as_it_is_and_single_precision_stays_single():
    counts = counts_of_labs()[0].astype(np.float32)
    counts[3] = 0.0
    made = lab_of_cells(kept="dense")
    made.X = sp.csr_matrix(counts)
    rows = cells(made, normalize=1e4).values
    assert rows.dtype == np.float32
    sums = rows.toarray().sum(axis=1)
    assert sums[3] == 0.0
    np.testing.assert_allclose(sums[counts.sum(axis=1) > 0], 1e4, rtol=1e-5)


def test_components_are_those_of_the_normalized_cells_of_all_labs_together():
    labs = [cells(lab_of_cells(lab), normalize=1e4, log=True) for lab in range(3)]
    result = simulate("covariance", labs, n_components=3)
    pooled = np.concatenate([normalized_by_hand(counts) for counts in counts_of_labs()])
    _, s, Vt = np.linalg.svd(pooled - pooled.mean(axis=0))
    order = [int(name[1:]) for name in result.feature_names_in_]
    np.testing.assert_allclose(np.abs(np.sum(result.components_ * Vt[:3][:, order], axis=1)), 1.0, rtol=1e-10)
    np.testing.assert_allclose(result.explained_variance_, s[:3] ** 2 / (len(pooled) - 1), rtol=1e-10)


def test_a_folder_of_cells_takes_what_a_file_takes(tmp_path):
    for lab in range(2):
        lab_of_cells(lab).write_h5ad(tmp_path / f"lab{lab}.h5ad")
    found = sources.table(f"folder(path='{tmp_path}', normalize=1e4, log=True)")
    np.testing.assert_allclose(np.asarray(found)[:60], normalized_by_hand(counts_of_labs()[0]), rtol=1e-14)
    (tmp_path / "lab2.csv").write_text("g0,g1\n1,2\n")
    with pytest.raises(ConfigError, match=r"lab2\.csv.*normalize.*use \.h5ad files"):
        sources.table(f"folder(path='{tmp_path}', normalize=1e4)")


REFUSED_CELLS = {
    "no cells": (lambda: cells(np.ones((3, 2))), r"cells takes an AnnData object.*h5ad\(path="),
    "no marks": (lambda: cells(lab_of_cells(marked=()), use_highly_variable=True), "no column highly_variable in var"),
    "none marked": (lambda: cells(lab_of_cells(marked=(99,)), use_highly_variable=True), "marks no gene"),
    "target": (lambda: cells(lab_of_cells(), normalize=0), r"normalize must be .* Write normalize=1e4"),
    "text as target": (lambda: cells(lab_of_cells(), normalize="1e4"), "normalize"),
    "log": (lambda: cells(lab_of_cells(), log="yes"), "log"),
}


@pytest.mark.parametrize("bad", REFUSED_CELLS)
def test_what_cannot_be_done_with_cells_is_one_sentence(bad):
    make, words = REFUSED_CELLS[bad]
    with pytest.raises(FlowerPCAError, match=words) as raised:
        make()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("entry", [-1.0, np.nan])
def test_counts_that_are_negative_or_missing_are_refused_only_where_they_are_normalized(entry):
    made = lab_of_cells(kept="dense")
    made.X[0, 0] = entry
    cells(made)
    with pytest.raises(DataError, match="are negative or missing, so they are not counts"):
        cells(made, log=True)


@pytest.mark.parametrize("kept", ["dense", "sparse"])
def test_the_estimator_is_fitted_to_cells_and_transforms_them(kept, tmp_path):
    pytest.importorskip("sklearn")
    ad = pytest.importorskip("anndata")
    from flower_pca import FederatedPCA

    labs = [lab_of_cells(lab, kept=kept) for lab in range(2)]
    labs[0].write_h5ad(tmp_path / "x.h5ad")
    backed = ad.read_h5ad(tmp_path / "x.h5ad", backed="r")
    expected = simulate("covariance", labs, n_components=2)
    fitted = FederatedPCA(n_components=2, algorithm="covariance").fit([backed, labs[1]])
    by_name = [list(expected.feature_names_in_).index(name) for name in fitted.feature_names_in_]
    np.testing.assert_allclose(fitted.components_, expected.components_[:, by_name], atol=1e-12)
    np.testing.assert_allclose(fitted.transform(backed), expected.transform(labs[0]), atol=1e-10)
    alone = FederatedPCA(n_components=2).fit(labs[0], sites=labs[0].obs["batch"])
    np.testing.assert_allclose(alone.mean_, counts_of_labs()[0].mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("kept", ["dense", "sparse"])
def test_results_lie_in_the_object_where_scanpy_puts_those_of_the_pooled_cells(kept, tmp_path):
    ad = pytest.importorskip("anndata")
    decomposition = pytest.importorskip("sklearn.decomposition")
    labs = [lab_of_cells(lab, kept=kept) for lab in range(3)]
    options = {"normalize": 1e4, "log": True}
    result = simulate("covariance", [cells(lab, **options) for lab in labs], n_components=3)
    pooled = np.concatenate([normalized_by_hand(counts) for counts in counts_of_labs()])
    reference = decomposition.PCA(3, svd_solver="full").fit(pooled)
    scores = reference.transform(pooled)
    start = 0
    for lab in labs:
        assert result.to_anndata(lab, **options) is None
        np.testing.assert_allclose(lab.obsm["X_pca"], scores[start : start + lab.n_obs], atol=1e-9)
        start += lab.n_obs
    np.testing.assert_allclose(labs[0].varm["PCs"], reference.components_.T, atol=1e-9)
    found = labs[0].uns["pca"]
    np.testing.assert_allclose(found["variance"], reference.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(found["variance_ratio"], reference.explained_variance_ratio_, rtol=1e-10)
    assert found["params"] == {"zero_center": True, "use_highly_variable": False}
    labs[0].write_h5ad(tmp_path / "x.h5ad")
    assert np.array_equal(ad.read_h5ad(tmp_path / "x.h5ad").obsm["X_pca"], labs[0].obsm["X_pca"])


def test_genes_that_a_run_left_out_have_loadings_of_zero():
    labs = [lab_of_cells(lab) for lab in range(2)]
    result = simulate("krylov", [cells(lab, use_highly_variable=True) for lab in labs], n_components=2)
    result.to_anndata(labs[0], key="X_joint")
    loadings = labs[0].varm["X_joint"]
    assert (np.flatnonzero(np.any(loadings, axis=1)) == [1, 4, 7]).all()
    assert labs[0].uns["X_joint"]["params"]["mask_var"] == "highly_variable"
    with pytest.raises(ConfigError, match="g7"):
        result.to_anndata(labs[1][:, :7])
    with pytest.raises(ConfigError, match='Write key="X_pca"'):
        result.to_anndata(labs[1], key="")


def many_genes(lab=None):
    """Counts of cells of four kinds, of 200 genes, at one lab or at all; one gene is never seen."""
    rng = np.random.default_rng(5)
    rates = rng.gamma(0.5, 1.0, (4, 200))
    counts = rng.poisson(rates[rng.integers(4, size=150)] * rng.gamma(3, 0.3, (150, 1))).astype(np.float64)
    counts[:, 7] = 0.0
    return counts if lab is None else np.split(counts, [70, 120])[lab]


def table_of_genes(lab):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(normalized_by_hand(many_genes(lab)), columns=[f"g{j:03d}" for j in range(200)])


def highly_variable_by_hand(flavor, genes):
    """What scanpy.pp.highly_variable_genes does, by pandas as there."""
    pd = pytest.importorskip("pandas")
    X = normalized_by_hand(many_genes())
    if flavor == "seurat":
        X = np.expm1(X)
    mean, variance = X.mean(axis=0), X.var(axis=0, ddof=1)
    mean[mean == 0] = 1e-12
    dispersion = variance / mean
    if flavor == "seurat":
        dispersion = np.log(np.where(dispersion == 0, np.nan, dispersion))
        mean = np.log1p(mean)
        bins = 20
    else:
        bins = np.r_[-np.inf, np.percentile(mean, np.arange(10, 105, 5)), np.inf]
    frame = pd.DataFrame({"bin": pd.cut(pd.Series(mean), bins=bins), "dispersion": dispersion})
    found = np.full(len(mean), np.nan)
    for _, group in frame.groupby("bin", observed=True)["dispersion"]:
        if flavor == "seurat":
            middle, spread = group.mean(), group.std()
            middle, spread = (0.0, middle) if np.isnan(spread) else (middle, spread)
        else:
            middle = group.median()
            spread = (group - middle).abs().median() / 0.6744897501960817
        found[group.index] = (group - middle) / spread if spread else np.nan
    cutoff = np.sort(found[~np.isnan(found)])[-genes]
    return [f"g{j:03d}" for j in np.flatnonzero(np.nan_to_num(found, nan=-np.inf) >= cutoff)]


@pytest.mark.slow
@pytest.mark.parametrize("flavor", ["seurat", "cell_ranger"])
@pytest.mark.parametrize("options", [{}, {"mask": True}, {"answers": "fixed"}], ids=["plain", "masks", "fixed"])
def test_genes_chosen_from_sums_are_those_of_all_cells_together(flavor, options):
    labs = [table_of_genes(lab) for lab in range(3)]
    result = simulate("covariance", labs, n_components=2, highly_variable=f"{flavor}(40)", **options)
    expected = highly_variable_by_hand(flavor, 40)
    assert list(result.feature_names_in_) == expected
    places = [int(name[1:]) for name in expected]
    pooled = normalized_by_hand(many_genes())[:, places]
    s = np.linalg.svd(pooled - pooled.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(result.explained_variance_, s[:2] ** 2 / (len(pooled) - 1), rtol=1e-8)
    assert any(f"160 of 200 genes were left out by {flavor}(40)" in said for said in result.decisions)
    assert result.history[0].stage == ("mask.keys" if "mask" in options else "gene_sums")


def test_sparse_cells_choose_the_genes_that_dense_ones_do():
    dense = [table_of_genes(lab) for lab in range(3)]
    ad = pytest.importorskip("anndata")
    sparse = [ad.AnnData(sp.csr_matrix(table.to_numpy()), var={"x": np.zeros(200)}) for table in dense]
    for made in sparse:
        made.var_names = list(dense[0].columns)
    results = [simulate("krylov", labs, n_components=2, highly_variable="seurat(30)") for labs in (dense, sparse)]
    assert list(results[0].feature_names_in_) == list(results[1].feature_names_in_)


def test_more_genes_than_there_are_leave_out_only_those_that_never_vary():
    result = simulate("krylov", [table_of_genes(0)], n_components=2, highly_variable="seurat(5000)")
    assert "g007" not in result.feature_names_in_


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"highly_variable": "seurat_v3(10)"}, "seurat_v3"),
        ({"highly_variable": "seurat(0)"}, "highly_variable .the number of genes. must"),
        ({"highly_variable": 2000}, r"seurat\(2000\)"),
        ({"highly_variable": "seurat(9)", "missing": "mean"}, "counts have no missing values"),
        ({"highly_variable": "seurat(9)", "adjust": ["site"]}, "use_highly_variable=True"),
    ],
)
def test_settings_of_genes_that_do_not_fit_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        simulate("krylov", [table_of_genes(0)], n_components=2, **options)


def test_counts_whose_logarithm_was_not_taken_are_refused():
    labs = [table_of_genes(0) * 1000]
    with pytest.raises(FlowerPCAError, match=r"not logarithms of counts.*normalize=1e4, log=True"):
        simulate("krylov", labs, n_components=2, highly_variable="seurat(9)")


def test_genes_without_names_cannot_be_chosen():
    with pytest.raises(ConfigError, match="highly_variable selects columns by name"):
        simulate("krylov", [normalized_by_hand(many_genes(0))], n_components=2, highly_variable="seurat(9)")


def test_picked_columns_of_sparse_cells_are_the_same_whether_they_are_kept_in_memory_or_not(monkeypatch, tmp_path):
    lab_of_cells().write_h5ad(tmp_path / "x.h5ad")
    table = sources.table(f"h5ad(path='{tmp_path}/x.h5ad')")
    names = ["g3", "g1", "g8", "g0"]
    monkeypatch.setattr(source, "_ENTRIES", 25)
    kept = table.pick(names)
    monkeypatch.setattr(compressed, "_HELD", 0)
    lazy = table.pick(names)
    assert hasattr(kept.values, "tocsr")
    assert isinstance(lazy.values, compressed.PickedSparseColumns)
    both = [list(adapters.as_blocks(found.values).pieces()) for found in (kept, lazy)]
    assert len(both[0]) == len(both[1]) > 2
    assert all((a != b).nnz == 0 for a, b in zip(*both, strict=True))
    assert np.array_equal(np.asarray(lazy), counts_of_labs()[0][:, [3, 1, 8, 0]])


def test_picked_columns_of_sparse_cells_are_read_from_the_file_once_for_all_picks(monkeypatch, tmp_path):
    lab_of_cells().write_h5ad(tmp_path / "x.h5ad")
    table = sources.table(f"h5ad(path='{tmp_path}/x.h5ad')")
    monkeypatch.setattr(compressed, "_HELD", 0)
    names = table.names
    turned = table.pick(names[::-1])
    assert turned.pick(names).values is table.values
    again = turned.pick(["g3", "g1"])
    assert again.values.source is table.values
    assert np.array_equal(np.asarray(again), counts_of_labs()[0][:, [3, 1]])
    assert np.array_equal(np.asarray(turned[5:9]), counts_of_labs()[0][5:9, ::-1])


def test_a_piece_of_sparse_rows_is_not_in_memory_any_more_when_the_next_one_is_read(monkeypatch, tmp_path):
    from flower_pca.blocks.compressed import CompressedRows
    from flower_pca.rows.frame import Frame, product_in_frame

    lab_of_cells().write_h5ad(tmp_path / "x.h5ad")
    rows = sources.table(f"h5ad(path='{tmp_path}/x.h5ad')").values
    monkeypatch.setattr(source, "_ENTRIES", 25)
    read, before = CompressedRows._stored_between, []

    def watched(self, *place):
        assert all(piece() is None for piece in before)
        piece = read(self, *place)
        before.append(weakref.ref(piece))
        return piece

    monkeypatch.setattr(CompressedRows, "_stored_between", watched)
    Z = np.eye(rows.shape[1])
    product_in_frame(rows.pieces(), Z, Frame())
    assert len(before) > 2


@pytest.mark.parametrize("lengths", [[4, 9, 0, 30, 0, 0, 25, 1, 0], [0, 0, 25, 0, 0], [30, 30], [0], [5] * 40])
@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_sparse_rows_are_cut_at_the_same_places_whatever_the_lengths_of_the_pieces_are(monkeypatch, lengths, rows):
    from scipy.sparse import csr_array

    monkeypatch.setattr(source, "_ENTRIES", 25)
    whole = csr_array((np.arange(len(lengths))[:, None] >= 0) & (np.arange(30) < np.array(lengths)[:, None])) * 1.0
    expected = [stop - start for start, stop in source.sparse_piece_bounds(whole.indptr)]
    pieces = [whole[i : i + rows] for i in range(0, len(lengths), rows)]
    assert [piece.shape[0] for piece in source.recut_sparse(pieces)] == expected


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("mask", [None, True], ids=["plain", "masks"])
def test_nodes_choose_genes_if_their_operators_have_named_it(mask):
    sites = [Table.of(table_of_genes(lab)) for lab in range(3)]
    strategy = strategies.Krylov(highly_variable="seurat(40)", mask=mask, min_nodes=3, node_timeout=0.1)
    with pytest.raises(NotEnoughNodes, match="gene_sums"):
        strategy.fit(grid_of(sites, answers="fixed", allow=None))
    result = strategy.fit(grid_of(sites, answers="fixed", allow=["standardize", "krylov", "gene_sums"]))
    assert list(result.feature_names_in_) == highly_variable_by_hand("seurat", 40)
    assert result.answers == "fixed"


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_genes_are_chosen_from_the_command_line_and_new_cells_are_prepared_likewise(tmp_path):
    folder = tmp_path / "labs"
    folder.mkdir()
    for lab in range(3):
        lab_of_cells(lab).write_h5ad(folder / f"lab{lab}.h5ad")
    data, out = f"folder(path='{folder}', normalize=1e4, log=True)", tmp_path / "out"
    assert main(["run", data, "--highly-variable", "seurat(5)", "--components", "2", "--out", str(out)]) == 0
    new = f"h5ad(path='{folder}/lab1.h5ad', normalize=1e4, log=True)"
    assert main(["transform", str(out / "result.npz"), new, "--out", str(tmp_path / "scores.npy")]) == 0
    result = PCAResult.load(out / "result.npz")
    assert result.decisions[-1] == "7 of 12 genes were left out by seurat(5)"
    places = [int(name[1:]) for name in result.feature_names_in_]
    expected = (normalized_by_hand(counts_of_labs()[1])[:, places] - result.mean_) @ result.components_.T
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), expected, atol=1e-12)


def test_of_sparse_rows_in_a_file_one_piece_at_a_time_is_in_memory(tmp_path, monkeypatch):
    """In another order of columns too, as a run gives them that sorts the names of genes."""
    h5py = pytest.importorskip("h5py")
    counts = sp.random(400, 30, 0.3, format="csr", random_state=0)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", counts.shape
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(counts, name)
    monkeypatch.setattr(source, "_ENTRIES", 300)
    monkeypatch.setattr(compressed, "_HELD", 0)
    read = []
    between = compressed.CompressedRows._stored_between

    def noted(*args):
        read.append(weakref.ref(piece := between(*args)))
        return piece

    monkeypatch.setattr(compressed.CompressedRows, "_stored_between", noted)
    opened = compressed.CompressedRows.from_group(h5py.File(tmp_path / "x.h5")["X"])
    order = np.random.default_rng(0).permutation(30)
    pieces = compressed.with_sparse_columns(opened, order).pieces()
    found = []
    for piece in pieces:
        found.append(piece.toarray())
        assert not [there for there in read if there() is not None]
    np.testing.assert_array_equal(np.vstack(found), counts.toarray()[:, order])
    assert len(read) == len(found) > 5
