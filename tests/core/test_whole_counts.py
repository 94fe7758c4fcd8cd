"""Fixed answers of genotypes: exact whole numbers, against Python's integers and numpy's products of decoded rows."""

import numpy as np
import pytest
from cases import every
from fake_grid import grid_of
from genotypes import populations, write_bed

from flower_pca import simulate, strategies
from flower_pca.base.errors import DataError
from flower_pca.blocks import bed as blocks_of_bed
from flower_pca.data import sources
from flower_pca.rows import by_columns, statistics
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.rows.whole_counts import ExactCounts


@pytest.fixture
def always(monkeypatch):
    """Whole numbers for every file, however small."""
    monkeypatch.setattr(statistics, "_LARGEST_COUNTED", 0)


@pytest.fixture
def tiny_blocks(monkeypatch):
    monkeypatch.setattr(blocks_of_bed, "_ENTRIES", 32)
    monkeypatch.setattr(blocks_of_bed, "_PEOPLE", 8)


def genotypes(path, *, people=61, variants=90, gaps=0.0, seed=0, order=None):
    """Counts as they were drawn, and the file, whose people may come in another order."""
    counts, _ = populations(people=people, variants=variants, gaps=gaps, seed=seed)
    if gaps:
        counts[:, 5] = np.nan
    write_bed(path, counts if order is None else counts[order], swapped=range(0, variants, 7))
    return counts, sources.make(str(path))


def in_integers(counts):
    """Counts with 0 for a missing value, and 1 where one is, in Python's integers."""
    gone = np.isnan(counts)
    return np.where(gone, 0, counts).astype(int).astype(object), gone.astype(int).astype(object)


def whole_of(table):
    rows = table.values
    return ExactCounts(rows, by_columns.moments_by_column(rows))


@every("gaps", [0.0, 0.1, 0.6])
@every("shape", [(61, 90), (1, 40), (40, 1), (9, 300)])
def test_sums_over_variants_and_over_people_are_those_of_integers(tmp_path, tiny_blocks, shape, gaps):
    counts, table = genotypes(tmp_path / "a.bed", people=shape[0], variants=max(shape[1], 6), gaps=gaps)
    G, M = in_integers(counts)
    whole, rng = whole_of(table), np.random.default_rng(1)
    most = 2 ** (whole._across - 1)
    W = rng.integers(-most, most + 1, (counts.shape[1], 3))
    V = rng.integers(-2 * most, 2 * most + 1, W.shape)
    W[:, 0], V[:, 0] = most, 2 * most
    Y = G @ W.astype(object) + M @ V.astype(object)
    np.testing.assert_array_equal(whole._product_of_counts(W.astype(float), V.astype(float)).astype(int), Y.astype(int))
    digits = rng.integers(-(2 ** (whole._bits - 1)), 2 ** (whole._bits - 1), (2, len(counts), 3))
    digits[:, :, 0] = -(2 ** (whole._bits - 1))
    down, lost = whole._adjoint_digits(digits.astype(float))
    for digit, found, there in zip(digits.astype(object), down, lost if gaps else down, strict=True):
        np.testing.assert_array_equal(found, (G.T @ digit).astype(int))
        if gaps:
            np.testing.assert_array_equal(there, (M.T @ digit).astype(int))


@every("fill", ["own", "given", "far"])
@every("gaps", [0.0, 0.1])
def test_a_product_is_that_of_integers_rounded_once(tmp_path, gaps, fill):
    """The mean is taken off and the filling is put in after the sums, which are integers."""
    counts, table = genotypes(tmp_path / "a.bed", gaps=gaps)
    whole, rng = whole_of(table), np.random.default_rng(2)
    Z = rng.standard_normal((90, 3)) * 10.0 ** rng.integers(-3, 4, 3)
    given = {"own": None, "given": rng.uniform(0, 2, 90), "far": 1e6 * rng.standard_normal(90)}[fill]
    found = whole.scatter_times(Z, given)
    mean = np.nan_to_num(np.nanmean(np.vstack([counts, np.where(np.isnan(counts).all(axis=0), 0.0, np.nan)]), axis=0))
    filled = np.where(np.isnan(counts), mean if given is None else given, counts)
    about = filled - filled.mean(axis=0)
    grid = 2.0 ** (1 - whole._across) * np.abs(Z * np.maximum(2.0, np.abs(filled).max(axis=0))[:, None]).max(axis=0)
    bound = 2.0 * np.linalg.norm(about) * np.sqrt(filled.shape[1]) * np.linalg.norm(about, axis=0)[:, None] * grid
    assert (np.abs(found - about.T @ (about @ Z)) <= bound).all()
    np.testing.assert_allclose(found, about.T @ (about @ Z), rtol=0, atol=1e-9 * np.abs(found).max())


@every("gaps", [0.0, 0.1])
def test_bits_depend_neither_on_blocks_nor_on_the_order_of_people(tmp_path, monkeypatch, gaps):
    _, table = genotypes(tmp_path / "a.bed", gaps=gaps)
    Z = np.random.default_rng(3).standard_normal((90, 4))
    known = whole_of(table).scatter_times(Z)
    order = np.random.default_rng(4).permutation(61)
    _, other = genotypes(tmp_path / "b.bed", gaps=gaps, order=order)
    np.testing.assert_array_equal(whole_of(other).scatter_times(Z), known)
    for entries, people in ((32, 8), (4096, 20), (7, 2**12)):
        monkeypatch.setattr(blocks_of_bed, "_ENTRIES", entries)
        monkeypatch.setattr(blocks_of_bed, "_PEOPLE", people)
        np.testing.assert_array_equal(whole_of(table).scatter_times(Z), known)


def test_a_block_that_is_not_finite_gives_no_number(tmp_path):
    _, table = genotypes(tmp_path / "a.bed")
    Z = np.ones((90, 2))
    Z[3, 1] = np.inf
    assert np.isnan(whole_of(table).scatter_times(Z)).all()


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("fill", [None, "own", "given"])
@pytest.mark.parametrize("some", [False, True], ids=["all", "some"])
def test_what_is_asked_of_genotypes_is_what_rows_say(tmp_path, some, fill):
    counts, table = genotypes(tmp_path / "a.bed", gaps=0.1 if fill else 0.0)
    rng = np.random.default_rng(5)
    rows = LocalData(table, missing=True)
    names = rows.names
    place = {name: j for j, name in enumerate(table.names)}
    if some:
        names = tuple(names[j] for j in rng.permutation(90)[:50])
        rows = rows.select(names)
    counts = counts[:, [place[name] for name in names]]
    d = len(names)
    given = rng.uniform(0, 2, d)
    frame = Frame(rng.uniform(0, 2, d), rng.uniform(0.3, 2, d), given if fill else None, fill == "own")
    there = ~np.isnan(counts)
    mean = np.where(there, counts, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    filling = np.where(there.any(axis=0), mean, given) if fill == "own" else given
    F = (np.where(there, counts, filling) - frame.mean) / frame.scale
    data = FixedData.of_rows(rows.in_frame(frame), gaps=fill == "given")
    Z = np.linalg.qr(rng.standard_normal((d, 3)))[0]
    bound = {"rtol": 0, "atol": 1e-10 * np.linalg.norm(F) ** 2}
    np.testing.assert_allclose(data.matmat(Z), F.T @ (F @ Z), **bound)
    np.testing.assert_allclose(data.gram(), F.T @ F, **bound)
    np.testing.assert_allclose(data.root().T @ data.root(), F.T @ F, **bound)
    np.testing.assert_allclose(data.squared_error(Z), np.sum((F - F @ Z @ Z.T) ** 2), **bound)
    np.testing.assert_allclose(data.squares(), np.sum(F**2, axis=0), **bound)
    along, adjoint = data.sketch(Z)
    np.testing.assert_allclose(along.T @ along, Z.T @ F.T @ F @ Z, **bound)
    np.testing.assert_allclose(adjoint(along), F.T @ (F @ Z), **bound)
    values = data.top(3)[1]
    np.testing.assert_allclose(values, np.linalg.svd(F, compute_uv=False)[:3] ** 2, **bound)
    moments, pair = data.local_product(Z)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-14)
    about = np.where(there, counts - mean, 0.0)
    np.testing.assert_allclose(pair, about.T @ (about @ Z), **bound)
    np.testing.assert_array_equal(data.peak(), np.where(there, counts, 0.0).max(axis=0))


@pytest.mark.usefixtures("always")
def test_too_many_genotypes_for_a_covariance_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(statistics, "_LARGEST", 2**10)
    _, table = genotypes(tmp_path / "a.bed")
    data = FixedData.of_rows(LocalData(table, who="site 2"))
    with pytest.raises(DataError, match=r"61 rows and 90 columns of site 2 are too many .* Use krylov or ssi"):
        data.gram()


def sites_of_genotypes(folder, gaps):
    counts, _ = populations(people=150, variants=60, gaps=gaps, seed=8)
    parts = np.split(counts, [40, 90])
    files = [
        write_bed(folder / f"s{i}.bed", part, swapped=range(i, 60, 7), first=100 * i) for i, part in enumerate(parts)
    ]
    return counts, [sources.make(str(file)) for file in files]


@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("missing", ["mean", "local_mean"])
@pytest.mark.parametrize("options", [{}, {"mask": True}], ids=["plain", "masked"])
def test_nodes_answer_for_genotypes_in_whole_numbers(tmp_path, monkeypatch, always, options, missing):
    counts, tables = sites_of_genotypes(tmp_path, gaps=0.05)
    asked = {"n_components": 3, "scale": "genotype", "missing": missing, "tol": 1e-11, **options}
    rules = {"answers": "fixed", "missing": missing}
    result = strategies.Krylov(**asked).fit(grid_of(tables, **rules))
    assert result.answers == "fixed"
    mean = np.nanmean(counts, axis=0)
    if missing == "local_mean":
        parts = np.split(counts, [40, 90])
        counts = np.concatenate([np.where(np.isnan(part), np.nanmean(part, axis=0), part) for part in parts])
        mean = counts.mean(axis=0)
    rows = (np.where(np.isnan(counts), mean, counts) - mean) / np.sqrt(mean * (1 - mean / 2))
    _, s, Vt = np.linalg.svd(rows, full_matrices=False)
    place = {name: j for j, name in enumerate(tables[0].names)}
    found = np.empty_like(result.components_)
    found[:, [place[name] for name in result.feature_names_in_]] = result.components_
    near = 1e-6 if options else 1e-9
    np.testing.assert_allclose(abs(np.sum(found * Vt[:3], axis=1)), 1.0, atol=near)
    np.testing.assert_allclose(result.explained_variance_, s[:3] ** 2 / (len(rows) - 1), rtol=near)


@pytest.mark.usefixtures("always")
def test_runs_have_the_same_bits_whatever_the_blocks(tmp_path, monkeypatch):
    _, tables = sites_of_genotypes(tmp_path, gaps=0.05)
    asked = {"n_components": 2, "scale": "genotype", "missing": "mean", "answers": "fixed"}
    known = simulate("krylov", tables, **asked)
    monkeypatch.setattr(blocks_of_bed, "_ENTRIES", 40)
    monkeypatch.setattr(blocks_of_bed, "_PEOPLE", 12)
    again = simulate("krylov", sites_of_genotypes(tmp_path, gaps=0.05)[1], **asked)
    np.testing.assert_array_equal(again.components_, known.components_)
    np.testing.assert_array_equal(again.explained_variance_, known.explained_variance_)
