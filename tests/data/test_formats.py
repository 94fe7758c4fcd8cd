"""Test files of every kind: each gives the bits of the same rows as csv, and a bad file gives one sentence."""

import gzip
import os
import re
import zipfile

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from genotypes import populations, write_bed

from flower_pca import PCAResult, cli, simulate
from flower_pca.base.errors import ConfigError, DataError, FlowerPCAError
from flower_pca.blocks import source
from flower_pca.blocks.adapters import as_blocks
from flower_pca.data import delimited, gaps, reading, sources
from flower_pca.names.table import Table

NAMES = ["age", "pulse", "bmi", "sodium"]
N = 60


def rows_of_site(seed):
    """Rows that text and every binary format write without rounding."""
    drawn = np.random.default_rng(seed).standard_normal((N, 4)) * [9, 6, 3, 1] + [60, 80, 25, 140]
    return np.round(drawn * 64) / 64


def csv_text(rows, names=NAMES, sep=","):
    return "".join(sep.join(map(str, line)) + "\n" for line in [names, *np.asarray(rows).tolist()])


def write_csv(path, rows):
    path.write_text(csv_text(rows))


def write_tsv(path, rows):
    path.write_text(csv_text(rows, sep="\t"))


def write_gz(path, rows):
    path.write_bytes(gzip.compress(csv_text(rows).encode()))


def write_zip(path, rows):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inside.csv", csv_text(rows))


def frame_of_rows(rows):
    return pytest.importorskip("pandas").DataFrame(np.asarray(rows), columns=NAMES)


def write_parquet(path, rows):
    pytest.importorskip("pyarrow")
    frame_of_rows(rows).to_parquet(path, row_group_size=7)


def write_feather(path, rows):
    pytest.importorskip("pyarrow.feather").write_feather(frame_of_rows(rows), str(path))


def write_arrow(path, rows):
    pa = pytest.importorskip("pyarrow")
    table = pa.Table.from_pandas(frame_of_rows(rows))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table, max_chunksize=11)


def write_h5(path, rows):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["X"] = rows
        file["feature_names"] = NAMES


def write_zarr(path, rows):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    group.create_array("X", shape=rows.shape, dtype=rows.dtype, chunks=(13, 4))[:] = rows
    names = group.create_array("columns", shape=(4,), dtype="U6")
    names[:] = np.array(NAMES)


def write_h5ad(path, rows):
    anndata = pytest.importorskip("anndata")
    pd = pytest.importorskip("pandas")
    cells = pd.DataFrame(
        {"day": np.arange(len(rows))}, index=pd.Index([f"p{i}" for i in range(len(rows))], dtype=object)
    )
    genes = pd.DataFrame(index=pd.Index(NAMES, dtype=object))
    anndata.AnnData(np.asarray(rows), obs=cells, var=genes).write_h5ad(path)


def write_npz(path, rows):
    np.savez(path, X=rows, feature_names=np.array(NAMES))


def write_xlsx(path, rows, *, above=(), sheets=("data",)):
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name in sheets:
        sheet = book.create_sheet(name)
        for line in [*above, NAMES, *np.asarray(rows).tolist()]:
            sheet.append(line)
    book.save(path)


def write_sav(path, rows):
    pytest.importorskip("pyreadstat").write_sav(frame_of_rows(rows), str(path))


def write_dta(path, rows):
    pytest.importorskip("pyreadstat").write_dta(frame_of_rows(rows), str(path))


def write_xpt(path, rows):
    pytest.importorskip("pyreadstat").write_xport(frame_of_rows(rows), str(path))


WRITERS = {
    ".csv": write_csv,
    ".tsv": write_tsv,
    ".txt": write_tsv,
    ".csv.gz": write_gz,
    ".csv.zip": write_zip,
    ".parquet": write_parquet,
    ".feather": write_feather,
    ".arrow": write_arrow,
    ".h5": write_h5,
    ".zarr": write_zarr,
    ".h5ad": write_h5ad,
    ".npz": write_npz,
    ".xlsx": write_xlsx,
    ".sav": write_sav,
    ".zsav": write_sav,
    ".dta": write_dta,
    ".xpt": write_xpt,
}


@pytest.mark.parametrize("end", WRITERS)
@pytest.mark.parametrize("held", [True, False], ids=["held", "by pieces"])
def test_a_site_in_each_format_gives_the_bits_of_the_same_rows_as_csv(end, held, tmp_path, monkeypatch):
    if not held:
        monkeypatch.setattr(reading, "HELD", 0)
        monkeypatch.setattr(delimited, "_WHOLE", 0)
        monkeypatch.setattr(source, "_PIECE", 17 * 4 * 8)
    for folder in ("all", "plain"):
        (tmp_path / folder).mkdir()
    for i, name in enumerate(("north", "south")):
        write_csv(tmp_path / "plain" / f"{name}.csv", rows_of_site(i))
        write = WRITERS[end] if i else write_csv
        write(tmp_path / "all" / f"{name}{end if i else '.csv'}", rows_of_site(i))
    tables = [sources.table(str(tmp_path / folder)) for folder in ("all", "plain")]
    assert tables[0].sites == tables[1].sites == ("north", "south")
    assert sorted(tables[0].names) == sorted(NAMES)
    monkeypatch.setattr(reading, "HELD", 2**28)
    here, there = (simulate("krylov", list(table.parts), n_components=2, columns=NAMES) for table in tables)
    assert np.array_equal(here.components_, there.components_)
    assert np.array_equal(here.explained_variance_, there.explained_variance_)


@pytest.mark.parametrize("end", [".npy", ".mtx", ".npz"])
def test_a_site_without_names_in_each_format_gives_what_csv_does(end, tmp_path):
    """Rows of .npy to the last bit; sparse ones to rounding, as their products are summed up in another order."""
    for folder in ("all", "plain"):
        (tmp_path / folder).mkdir()
    first, second = rows_of_site(0), rows_of_site(1)
    np.save(tmp_path / "all/north.npy", first)
    np.save(tmp_path / "plain/north.npy", first)
    np.savetxt(tmp_path / "plain/south.csv", second, delimiter=",", fmt="%.17g")
    write = {
        ".npy": lambda path: np.save(path, second),
        ".mtx": lambda path: scipy.io.mmwrite(path, sp.csr_array(second), precision=17),
        ".npz": lambda path: sp.save_npz(path, sp.csr_array(second)),
    }
    write[end](tmp_path / f"all/south{end}")
    here, there = (
        simulate("krylov", list(sources.table(str(tmp_path / folder)).parts), n_components=2)
        for folder in ("all", "plain")
    )
    if end == ".npy":
        assert np.array_equal(here.components_, there.components_)
        assert np.array_equal(here.explained_variance_, there.explained_variance_)
    np.testing.assert_allclose(here.components_, there.components_, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("precision", "near"), [("single", 1e-6), ("double", 1e-12)])
def test_a_site_in_bed_gives_what_csv_does_to_the_rounding_of_its_precision(precision, near, tmp_path):
    counts, _ = populations(80, 30)
    names = [f"1:{1000 + j}:A:G" for j in range(30)]
    write_bed(tmp_path / "south.bed", counts[40:], swapped=(3, 17))
    for name, rows in (("north", counts[:40]), ("south", counts[40:])):
        lines = [",".join(names), *(",".join(f"{value:g}" for value in row) for row in rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    north, south = (sources.make(str(tmp_path / f"{name}.csv")) for name in ("north", "south"))
    stored = sources.make(f"bed(path='{tmp_path}/south.bed', precision='{precision}')")
    here, there = (simulate("krylov", [north, site], n_components=2, tol=1e-9) for site in (stored, south))
    assert list(here.feature_names_in_) == list(there.feature_names_in_)
    np.testing.assert_allclose(here.components_, there.components_, rtol=0, atol=near)
    np.testing.assert_allclose(here.explained_variance_, there.explained_variance_, rtol=near)


@pytest.mark.parametrize("end", [".csv", ".parquet", ".h5"])
def test_rows_with_missing_values_are_read_by_pieces_as_whole(end, tmp_path, monkeypatch):
    rows = rows_of_site(3)
    rows[4:9, 1] = np.nan
    WRITERS[end](tmp_path / f"x{end}", rows)
    if end == ".csv":
        (tmp_path / "x.csv").write_text(csv_text(rows).replace("nan", ""))
    whole = np.asarray(sources.make(str(tmp_path / f"x{end}")))
    monkeypatch.setattr(reading, "HELD", 0)
    monkeypatch.setattr(delimited, "_WHOLE", 0)
    monkeypatch.setattr(source, "_PIECE", 17 * 4 * 8)
    read = sources.make(str(tmp_path / f"x{end}"))
    assert hasattr(read.values, "pieces")
    assert np.array_equal(np.asarray(read), whole, equal_nan=True)
    assert np.array_equal(whole, rows, equal_nan=True)


def test_a_large_text_file_with_cells_in_quotes_and_words_beside_is_read_by_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "_WHOLE", 0)
    monkeypatch.setattr(delimited, "_HELD", 40)
    lines = [f'"two\nlines",{i},{i * i % 7}' for i in range(50)]
    (tmp_path / "x.csv").write_text("note,a,b\n" + "\n".join(lines) + "\n")
    table = sources.table(str(tmp_path / "x.csv"), beside=["note"])
    assert np.array_equal(np.asarray(table), [[i, i * i % 7] for i in range(50)])
    assert table.place(3) == f"line 8 of {tmp_path / 'x.csv'}"


def test_a_file_that_changes_while_it_is_read_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "HELD", 0)
    write_parquet(tmp_path / "x.parquet", rows_of_site(0))
    read = sources.make(str(tmp_path / "x.parquet"))
    write_parquet(tmp_path / "x.parquet", rows_of_site(1)[:50])
    with pytest.raises(DataError, match="has been changed or removed while a run was reading it"):
        np.asarray(read)


@pytest.mark.parametrize("end", ["parquet", "feather"])
@pytest.mark.parametrize("name", [None, "patient"])
def test_the_index_of_a_data_frame_in_a_file_is_no_column_of_the_rows(end, name, tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = np.random.default_rng(0).standard_normal((30, 3))
    frame = pandas.DataFrame(rows, columns=["a", "b", "c"], index=pandas.Index(list(range(0, 60, 2)), name=name))
    path, kind = tmp_path / f"x.{end}", {"feather": "arrow"}.get(end, end)
    if end == "parquet":
        frame.to_parquet(path)
    else:
        feather = pytest.importorskip("pyarrow.feather")
        pyarrow = pytest.importorskip("pyarrow")
        feather.write_feather(pyarrow.Table.from_pandas(frame), path)
    table = sources.make(str(path))
    assert table.names == ("a", "b", "c")
    np.testing.assert_array_equal(np.asarray(table.values), rows)
    if name:
        asked = sources.make(f"{kind}(path={str(path)!r}, ids='patient')")
        assert asked.names == ("a", "b", "c")
        assert list(asked.ids)[:2] == ["0", "2"]


def test_cells_of_a_file_of_anndata_bring_their_names_and_labels(tmp_path):
    write_h5ad(tmp_path / "x.h5ad", rows_of_site(0))
    table = sources.table(str(tmp_path / "x.h5ad"))
    assert table.names == tuple(NAMES)
    assert table.ids[:2] == ("p0", "p1")
    assert table.beside["day"].tolist() == list(range(N))


def test_a_layer_of_sparse_cells_is_read(tmp_path):
    anndata = pytest.importorskip("anndata")
    counts = sp.csr_matrix(np.where(rows_of_site(0) > 60, rows_of_site(0), 0.0))
    pd = pytest.importorskip("pandas")
    cells = pd.DataFrame(index=pd.Index([f"c{i}" for i in range(N)], dtype=object))
    genes = pd.DataFrame(index=pd.Index(NAMES, dtype=object))
    made = anndata.AnnData(counts * 0.0, obs=cells, var=genes, layers={"counts": counts})
    made.write_h5ad(tmp_path / "x.h5ad")
    table = sources.table(f"h5ad(path='{tmp_path}/x.h5ad', layer='counts')")
    assert np.array_equal(np.asarray(table), counts.toarray())
    with pytest.raises(ConfigError, match=r"has no layer 'raw'\. It has the layers counts"):
        sources.table(f"h5ad(path='{tmp_path}/x.h5ad', layer='raw')")


def test_a_matrix_of_matrix_market_is_read_by_its_rows_or_by_its_columns(tmp_path):
    S = sp.random(9, 4, 0.5, random_state=0, format="coo")
    scipy.io.mmwrite(tmp_path / "x.mtx", S)
    (tmp_path / "y.mtx.gz").write_bytes(gzip.compress((tmp_path / "x.mtx").read_bytes()))
    assert np.allclose(sources.make(str(tmp_path / "x.mtx")).toarray(), S.toarray())
    assert np.allclose(sources.make(f"mtx(path='{tmp_path}/y.mtx.gz', transpose=True)").toarray(), S.T.toarray())


def test_words_in_a_column_of_a_spreadsheet_are_named_by_their_line(tmp_path):
    write_xlsx(tmp_path / "x.xlsx", [[1.5, "n/k", 3, 4], [2, 3, 4, 5]])
    with pytest.raises(DataError, match=r"a text of 3 characters in column pulse \(line 2\)"):
        sources.table(str(tmp_path / "x.xlsx")).whole()
    table = sources.table(str(tmp_path / "x.xlsx"), gaps=["n/k"]).whole()
    assert np.array_equal(np.asarray(table), [[1.5, np.nan, 3, 4], [2, 3, 4, 5]], equal_nan=True)


# What stands for a missing value.


CODED = "age,pulse,bmi\n60,.,-999\n?,80,21.5\n999,70,22\n-999.0,71,.\n"
WITHOUT = [[60, np.nan, np.nan], [np.nan, 80, 21.5], [999, 70, 22], [np.nan, 71, np.nan]]


def is_read_as(found, expected):
    return np.array_equal(np.asarray(found), np.asarray(expected, dtype=float), equal_nan=True)


@pytest.mark.parametrize("large", [False, True])
def test_words_and_numbers_stand_for_missing_values_in_spec_and_python(large, tmp_path, monkeypatch):
    if large:
        monkeypatch.setattr(delimited, "_WHOLE", 0)
    (tmp_path / "x.csv").write_text(CODED)
    path = str(tmp_path / "x.csv")
    assert is_read_as(sources.table(path, gaps=[".", "?", -999]), WITHOUT)
    assert is_read_as(sources.make(f"csv(path={path!r}, gaps=['.', '?', -999])"), WITHOUT)
    by_column = {"*": [".", "?"], "age": [999, "-999"], "b*": [-999]}
    expected = np.array(WITHOUT)
    expected[2, 0] = np.nan
    assert is_read_as(sources.table(path, gaps=by_column), expected)
    assert is_read_as(sources.table(str(tmp_path), gaps=[".", "?", -999]), WITHOUT)


def test_gaps_of_a_column_that_is_not_there_are_an_error(tmp_path):
    (tmp_path / "x.csv").write_text(CODED)
    with pytest.raises(ConfigError, match=r"No column with gaps matches 'agee'. The names are age, pulse, bmi"):
        sources.table(str(tmp_path / "x.csv"), gaps={"*": [".", "?"], "agee": [999]})
    for odd in ("-999", {"age": -999}, [True], [None], 3):
        with pytest.raises(ConfigError, match="gaps cannot be"):
            sources.table(str(tmp_path / "x.csv"), gaps=odd)


def test_a_point_that_stands_for_a_gap_says_nothing_of_decimals(tmp_path):
    (tmp_path / "x.csv").write_text("a;b\n1,5;.\n2,25;3\n.;4,5\n")
    assert is_read_as(sources.table(str(tmp_path / "x.csv"), gaps=["."]), [[1.5, np.nan], [2.25, 3], [np.nan, 4.5]])


@pytest.mark.parametrize("end", [".npy", ".npz", ".parquet", ".arrow", ".h5", ".zarr", ".h5ad", ".sav", ".xlsx"])
@pytest.mark.parametrize("held", [True, False])
def test_codes_in_files_of_every_kind_become_missing_values(end, held, tmp_path, monkeypatch):
    rows = rows_of_site(1)
    rows[3, 2] = rows[5, 0] = -999
    write = WRITERS.get(end, lambda path, rows: np.save(path, rows))
    write(tmp_path / f"x{end}", rows)
    if not held:
        monkeypatch.setattr(reading, "HELD", 0)
    expected = np.where(rows == -999, np.nan, rows)
    assert is_read_as(sources.table(str(tmp_path / f"x{end}"), gaps=[-999]), expected)


def test_whole_and_sparse_numbers_become_missing_too(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[1, -9], [2, 3]], dtype=np.int16))
    assert is_read_as(sources.make(f"npy(path='{tmp_path}/x.npy', gaps=[-9])"), [[1, np.nan], [2, 3]])
    sp.save_npz(tmp_path / "s.npz", sp.csr_matrix([[1.0, -9.0], [0.0, 3.0]]))
    for codes in ([-9], {"1": [3, -9], "2": [-9]}):
        found = sources.table(str(tmp_path / "s.npz"), gaps=codes).rows
        assert np.array_equal(found.toarray(), [[1, np.nan], [0, 3]], equal_nan=True)


@pytest.mark.parametrize("store", [np.asarray, np.asfortranarray, sp.csr_array])
def test_codes_of_each_column_are_looked_for_in_this_column_only(store, monkeypatch):
    X = np.random.default_rng(0).integers(1, 9, (50, 7)).astype(float)
    codes = {"a": [3.0], "b": [3.0], "c": [4.0, 5.0], "d": [6.0], "e": [7.0]}
    expected, searched, search = X.copy(), [], np.isin
    for j, some in enumerate(codes.values()):
        expected[np.isin(X[:, j], some), j] = np.nan
    monkeypatch.setattr(gaps.np, "isin", lambda entries, of: searched.append(entries.size) or search(entries, of))
    found = gaps.with_gaps_as_nan(Table(store(X), tuple("abcdefg")), codes).rows
    assert np.array_equal(found.toarray() if store is sp.csr_array else found, expected, equal_nan=True)
    assert sum(searched) == 50 * len(codes)


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_codes_of_many_columns_are_not_compared_with_each_other(store):
    compared = []

    class Code(float):
        __hash__ = float.__hash__

        def __eq__(self, other):
            compared.append(other)
            return float(self) == float(other)

    d = 200
    X = np.random.default_rng(0).integers(1, d, (20, d)).astype(float)
    rows = gaps.RowsWithGaps(as_blocks(store(X)), [(Code(j + 1),) for j in range(d)])
    (found,) = rows.pieces()
    expected = np.where(np.arange(1, d + 1) == X, np.nan, X)
    assert np.array_equal(found.toarray() if store is sp.csr_array else found, expected, equal_nan=True)
    assert len(compared) <= d


@pytest.mark.usefixtures("unillustrated")
def test_the_command_line_says_what_stands_for_a_missing_value(tmp_path):
    (tmp_path / "x.csv").write_text(CODED)
    words = ["run", str(tmp_path / "x.csv"), "--clients", "1", "--missing", "mean", "--out", str(tmp_path / "out")]
    assert cli.main([*words, "--gaps=.,?", "--gaps", "age=-999", "--gaps=bmi=-999"]) == 0
    expected = np.array(WITHOUT)
    filled = np.where(np.isnan(expected), np.nanmean(expected, axis=0), expected)
    variances = np.linalg.svd(filled - filled.mean(axis=0))[1][:2] ** 2 / 3
    found = PCAResult.load(tmp_path / "out" / "result.npz").explained_variance_
    np.testing.assert_allclose(found, variances, rtol=1e-6)


@pytest.mark.usefixtures("unillustrated")
def test_a_code_that_check_has_found_becomes_a_gap_by_the_option_that_it_prints(tmp_path, capsys):
    (tmp_path / "s").mkdir()
    for i in range(2):
        rows = rows_of_site(i)
        rows[[4, 9], 3] = -999
        write_csv(tmp_path / "s" / f"{i}.csv", rows)
    assert cli.main(["check", str(tmp_path / "s")]) == 1
    printed = capsys.readouterr().out
    option = re.search(r"(--gaps=\S+) and use (--missing \w+)", printed)
    assert cli.main(["check", str(tmp_path / "s"), option[1], *option[2].split()]) == 0
    out = ["--out", str(tmp_path / "out"), "--clients", "2"]
    assert cli.main(["run", str(tmp_path / "s"), option[1], *option[2].split(), *out]) == 0


# Files among others in a folder.


def test_a_file_of_latin_1_among_files_of_utf_8_is_read_with_its_own_encoding(tmp_path):
    (tmp_path / "bonn.csv").write_text("größe,alter\n1.5,2\n3,4\n", encoding="utf-8")
    (tmp_path / "trier.csv").write_text("größe,alter\n5,6\n7,8.5\n", encoding="latin-1")
    with pytest.raises(DataError, match=r"for a folder, folder\(\.\.\., encoding=\{'trier': 'latin-1'\}\)"):
        sources.table(str(tmp_path))
    table = sources.table(f"folder(path={str(tmp_path)!r}, encoding={{'trier': 'latin-1'}})")
    assert table.names == ("größe", "alter")
    assert np.array_equal(table.rows, [[1.5, 2], [3, 4], [5, 6], [7, 8.5]])


def test_separators_and_decimals_may_be_said_by_the_file(tmp_path):
    (tmp_path / "bonn.csv").write_text("a,b\n1.250,2\n3,4\n")
    (tmp_path / "trier.csv").write_text("a;b\n1.250;6\n7;8\n")
    spec = f"folder(path={str(tmp_path)!r}, thousands={{'trier.csv': '.'}}, decimal={{'bonn': '.'}})"
    assert np.array_equal(sources.table(spec).rows, [[1.25, 2], [3, 4], [1250, 6], [7, 8]])


def test_files_with_a_sample_in_each_column_are_told_from_files_that_lack_columns(tmp_path):
    for i, name in enumerate(("north", "south")):
        samples = [f"mouse{i}{j}" for j in range(4)]
        (tmp_path / f"{name}.csv").write_text(csv_text(rows_of_site(i), samples))
    with pytest.raises(DataError, match="If each column is a sample, transpose the files"):
        sources.table(str(tmp_path))


def test_the_sheet_of_a_spreadsheet_may_be_said_by_the_file(tmp_path):
    write_xlsx(tmp_path / "bonn.xlsx", rows_of_site(0), sheets=("data", "notes"))
    write_csv(tmp_path / "jena.csv", rows_of_site(1))
    with pytest.raises(DataError, match=r"for a folder, folder\(\.\.\., sheet=\{'bonn': 'data'\}\)"):
        sources.table(str(tmp_path))
    for sheet in ("'data'", "{'bonn': 'data'}"):
        table = sources.table(f"folder(path={str(tmp_path)!r}, sheet={sheet})")
        assert np.array_equal(table.rows, np.concatenate([rows_of_site(0), rows_of_site(1)]))


@pytest.mark.usefixtures("unillustrated")
def test_a_word_for_missing_values_in_many_columns_is_said_once(tmp_path, capsys):
    names = [f"p{j}" for j in range(12)]
    lines = [[f"{i + j / 7:.3f}" for j in range(12)] for i in range(50)]
    for j in range(12):
        lines[j + 3][j] = "Filtered"
    text = [",".join(["sample", *names]), *(",".join([f"s{i}", *line]) for i, line in enumerate(lines))]
    (tmp_path / "x.csv").write_text("\n".join(text) + "\n")
    words = ["run", str(tmp_path / "x.csv"), "--clients", "2", "--out", str(tmp_path / "out")]
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert (
        "a text of 2 characters in column sample (line 2), 'Filtered' in column p0 (line 5) and in 11 more columns. "
        in said
    )
    gaps = re.search(r"read the data with (--gaps=\w+) to mark them as missing", said)[1]
    assert "--drop sample," in said
    assert cli.main([*words, gaps, "--drop", "sample", "--missing", "mean"]) == 0


@pytest.mark.usefixtures("unillustrated")
def test_a_file_that_may_be_a_site_is_an_error_until_it_is_left_out(tmp_path, capsys):
    write_csv(tmp_path / "bonn.csv", rows_of_site(0))
    write_csv(tmp_path / "jena.csv", rows_of_site(1))
    (tmp_path / "trier.rds").write_bytes(b"RDX3")
    (tmp_path / "README.txt").write_text("Nothing here is a table.")
    (tmp_path / "~$bonn.xlsx").write_bytes(b"lock")
    out = ["--out", str(tmp_path / "out")]
    assert cli.main(["run", str(tmp_path), *out]) == 2
    printed = capsys.readouterr().err
    assert "may be a site, but flower_pca cannot read this kind of file: trier.rds" in printed
    option = re.search(r"--without \S+\w", printed)[0].split()
    assert cli.main(["run", str(tmp_path), *out, *option]) == 0
    assert sources.table(str(tmp_path), without=["trier"]).sites == ("bonn", "jena")


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((os.mkfifo, name) for name in ("trier.csv", "trier.parquet", "trier.rds")),
        *((os.mkdir, name) for name in ("trier.csv", "trier.parquet")),
    ],
)
def test_a_pipe_or_a_folder_that_may_be_a_site_is_an_error_too(make, name, tmp_path, capsys):
    write_csv(tmp_path / "bonn.csv", rows_of_site(0))
    make(tmp_path / name)
    for command in ("run", "check"):
        assert cli.main([command, str(tmp_path)]) == 2
        printed = "".join(capsys.readouterr())
        assert "may be a site" in printed
        assert f"--without {name}" in printed
    assert sources.table(str(tmp_path), without=["trier"]).sites == ("bonn",)


# Bad files: each ends in one sentence that names it and says what to do.


def cut_gz(path):
    write_gz(path, rows_of_site(0))
    path.write_bytes(path.read_bytes()[:-40])


def two_in_a_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "x,y\n1,2\n")
        archive.writestr("b.csv", "x,y\n1,2\n")


def protected_xlsx(path):
    pytest.importorskip("python_calamine")
    # The head of a compound file, and the name of the stream that a protected one has.
    path.write_bytes(
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le") + bytes(600)
    )


def xlsx_of(lines, *, merged=None):
    def make(path):
        openpyxl = pytest.importorskip("openpyxl")
        pytest.importorskip("python_calamine")
        book = openpyxl.Workbook()
        for line in lines:
            book.active.append(line)
        if merged is not None:
            book.active.merge_cells(merged)
        book.save(path)

    return make


def empty_h5(path):
    with pytest.importorskip("h5py").File(path, "w") as file:
        file.create_group("nothing")


def cut_file(write):
    def make(path):
        write(path, rows_of_site(0))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return make


def h5ad_of(change):
    def make(path):
        write_h5ad(path, rows_of_site(0))
        with pytest.importorskip("h5py").File(path, "r+") as file:
            change(file)

    return make


def cells_by_columns(file):
    del file["X"]
    S = sp.csc_matrix(rows_of_site(0))
    group = file.create_group("X")
    group.attrs["encoding-type"], group.attrs["shape"] = "csc_matrix", S.shape
    for name in ("data", "indices", "indptr"):
        group[name] = getattr(S, name)


def without_entries(file):
    del file["X"]
    group = file.create_group("X")
    group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", (N, 4)
    group["data"], group["indices"], group["indptr"] = np.ones(3), np.zeros(3, int), np.arange(N + 1)


def cells_by_rows(file, indices):
    del file["X"]
    S = sp.csr_array(rows_of_site(0))
    group = file.create_group("X")
    group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", S.shape
    group["data"], group["indices"], group["indptr"] = S.data, indices, S.indptr


def column_outside(number):
    def change(file):
        indices = sp.csr_array(rows_of_site(0)).indices.copy()
        indices[3] = number
        cells_by_rows(file, indices)

    return change


def fewer_genes(file):
    del file["var"][file["var"].attrs["_index"]]
    file["var"]["_index"] = NAMES[:3]
    file["var"].attrs["_index"] = "_index"


def same_genes(file):
    del file["var"][file["var"].attrs["_index"]]
    file["var"]["_index"] = ["age", "age", "bmi", "sodium"]
    file["var"].attrs["_index"] = "_index"


def text_of_h5(path):
    with pytest.importorskip("h5py").File(path, "w") as file:
        file["X"] = [["a", "b"], ["c", "d"]]


def cube_of_h5(path):
    with pytest.importorskip("h5py").File(path, "w") as file:
        file["X"] = np.zeros((3, 2, 2))


def names_of_h5(path):
    with pytest.importorskip("h5py").File(path, "w") as file:
        file["X"], file["columns"] = np.zeros((3, 2)), ["a"]


def written_text(text):
    return lambda path: path.write_text(text)


def bytes_for(package, content=b"no such file"):
    def make(path):
        pytest.importorskip(package)
        path.write_bytes(content)

    return make


def people_in_latin(path):
    write_bed(path, np.ones((3, 2)))
    people = path.with_suffix(".fam").read_bytes()
    path.with_suffix(".fam").write_bytes(people.replace(b"p1", b"p\xe4"))


def h5_with(change):
    def make(path):
        with pytest.importorskip("h5py").File(path, "w") as file:
            change(file)

    return make


def x_without_values(file):
    del file["X"]
    file.create_dataset("X", data=pytest.importorskip("h5py").Empty("f4"))


def rows_in_blocks(file):
    cells_by_rows(file, sp.csr_array(rows_of_site(0)).indices)
    file["X"].attrs["encoding-type"] = "bsr_matrix"


def no_columns(path):
    pytest.importorskip("pyarrow.parquet").write_table(pytest.importorskip("pyarrow").table({}), path)


def link_to_nothing(file):
    file["X"] = pytest.importorskip("h5py").SoftLink("/nothing")


RECORDS = np.zeros(3, dtype=[("a", float), ("b", float)])
BAD = {
    "endless cell": (
        "x.csv",
        written_text(f"a,b\n1,2\n3,{'4' * 200_000}\n"),
        r"Line 3 of .*x\.csv has a cell of more than 131,072 characters",
    ),
    "endless quotation": (
        "x.csv",
        written_text('a,b\n1,2\n3,"4\n' + "5,6\n" * 50_000),
        r"Line 3 of .*x\.csv has a cell of more than 131,072 characters\. .* close its quotation marks",
    ),
    "records": ("x.npy", lambda path: np.save(path, RECORDS), "are records with 2 fields, .* Save each field"),
    "empty group": (
        "x.h5",
        h5_with(lambda file: file.create_group("X")),
        r"X of .*x\.h5 is an empty group\. Store the rows in it as an array",
    ),
    "parquet without columns": ("x.parquet", no_columns, "has no columns"),
    "h5ad with an empty X": ("x.h5ad", h5ad_of(x_without_values), "has no X"),
    "h5ad in another sparse format": (
        "x.h5ad",
        h5ad_of(rows_in_blocks),
        "is a group of arrays, .*: data, indices and indptr",
    ),
    "h5 with a link to nothing": ("x.h5", h5_with(link_to_nothing), "has no array 'X'. It has none"),
    "h5 of records": ("x.h5", h5_with(lambda file: file.update(X=RECORDS)), "store its 2 fields as columns"),
    "truncated gz": ("x.csv.gz", cut_gz, "ended before"),
    "gz that is none": ("x.csv.gz", written_text("a,b\n1,2\n"), "gzip"),
    "two tables in a zip": ("x.csv.zip", two_in_a_zip, "holds 2 files, but a zip file must hold one table. Unpack it"),
    "zip that is none": ("x.csv.zip", written_text("a,b\n1,2\n"), "zip"),
    "protected xlsx": ("x.xlsx", protected_xlsx, "protected by a password"),
    "merged cells": (
        "x.xlsx",
        xlsx_of([["laboratory", None, "age"], [1, 2, 3], [4, 5, 6]], merged="A1:B1"),
        r"names 2 of 3 columns and leaves 1 cell empty",
    ),
    "two lines of names": (
        "x.xlsx",
        lambda p: write_xlsx(p, [["years", "1/min", "kg/m2", "mmol"], [1, 2, 3, 4]]),
        "a text of 5 letters in column age",
    ),
    "title above": ("x.xlsx", lambda p: write_xlsx(p, rows_of_site(0), above=[["Report"]]), "names 1 of 4 columns"),
    "two sheets": (
        "x.xlsx",
        lambda p: write_xlsx(p, rows_of_site(0), sheets="ab"),
        r"Name one: excel\(path=.*sheet='a'\)",
    ),
    "empty sheet": ("x.xlsx", xlsx_of([]), "no cell"),
    "numbers above": ("x.xlsx", xlsx_of([[1.5, 2.5], [3, 4], [5, 6]]), "header=False"),
    "xlsx that is none": ("x.xlsx", bytes_for("python_calamine"), "not a readable spreadsheet"),
    "cut xlsx": ("x.xlsx", cut_file(write_xlsx), "not a readable spreadsheet"),
    "sav that is none": ("x.sav", bytes_for("pyreadstat"), "cannot be read as a file of SPSS"),
    "dta that is none": ("x.dta", bytes_for("pyreadstat"), "cannot be read as a file of Stata"),
    "sas that is none": ("x.sas7bdat", bytes_for("pyreadstat"), "cannot be read as a file of SAS"),
    "cut dta": ("x.dta", cut_file(write_dta), "cannot be read as a file of Stata"),
    "h5 that is none": ("x.h5", bytes_for("h5py"), "HDF5"),
    "cut h5": ("x.h5", cut_file(write_h5), "HDF5"),
    "h5 without arrays": ("x.h5", empty_h5, "has no array 'X'. It has nothing"),
    "h5 of text": ("x.h5", text_of_h5, "real numbers"),
    "h5 of three dimensions": ("x.h5", cube_of_h5, "3 dimensions"),
    "h5 with a name too few": ("x.h5", names_of_h5, "1 name for 2 columns"),
    "h5ad without X": ("x.h5ad", h5ad_of(lambda file: file.__delitem__("X")), "has no X"),
    "h5ad by columns": ("x.h5ad", h5ad_of(cells_by_columns), r"adata\.X\.tocsr"),
    "h5ad without entries": ("x.h5ad", h5ad_of(without_entries), "is damaged"),
    "h5ad with too few columns of entries": (
        "x.h5ad",
        h5ad_of(lambda file: cells_by_rows(file, sp.csr_array(rows_of_site(0)).indices[:-3])),
        "is damaged",
    ),
    "h5ad with a gene too few": ("x.h5ad", h5ad_of(fewer_genes), "var has 3 names"),
    "h5ad with a gene twice": ("x.h5ad", h5ad_of(same_genes), "var_names_make_unique"),
    "h5ad without obs": ("x.h5ad", h5ad_of(lambda file: file.__delitem__("obs")), r"no obs, .*h5\(path="),
    "zarr that is none": ("x.zarr", lambda path: path.mkdir(), "has no zarr array or group"),
    "bed with people in another encoding": ("x.bed", people_in_latin, r"x\.fam, .* is not in UTF-8"),
    "feather that is none": ("x.feather", bytes_for("pyarrow"), "feather"),
    "cut arrow": ("x.arrow", cut_file(write_arrow), "Arrow file"),
    "parquet that is none": ("x.parquet", bytes_for("pyarrow"), "parquet"),
    "mtx that is none": ("x.mtx", written_text("1 2 3\n"), "Matrix Market"),
    "complex mtx": (
        "x.mtx",
        written_text("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 2 3\n"),
        "complex",
    ),
}


@pytest.mark.parametrize("number", [4, 77, -1])
def test_sparse_rows_with_entries_in_columns_that_are_not_there_end_in_one_sentence(number, tmp_path):
    h5ad_of(column_outside(number))(tmp_path / "x.h5ad")
    with pytest.raises(DataError, match=r"of /.*x.h5ad has entries outside its 4 columns\. Write the file again"):
        simulate("covariance", [sources.make(str(tmp_path / "x.h5ad"))], n_components=1)
    S = sp.csr_matrix(rows_of_site(0))
    S.indices[3] = number
    sp.save_npz(tmp_path / "x.npz", S)
    with pytest.raises(DataError, match=r"The data file /.*x.npz cannot be read as a matrix saved by scipy"):
        sources.make(str(tmp_path / "x.npz"))


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_file_ends_in_one_sentence_that_names_it(bad, tmp_path):
    name, make, words = BAD[bad]
    make(tmp_path / name)
    with pytest.raises(FlowerPCAError) as raised:
        sources.table(str(tmp_path / name)).whole()
    said = str(raised.value)
    assert re.search(words, said), said
    assert name in said
    assert "\n" not in said
    assert said.endswith((".", ")", "]"))
    assert len(said) < 600


def write_sparse(path, rows):
    sp.save_npz(path, sp.csr_array(rows))


def write_svm(path, rows):
    pytest.importorskip("sklearn.datasets").dump_svmlight_file(rows, np.ones(len(rows)), str(path))


WHOLE = {
    "excel": (".xlsx", write_xlsx),
    "spss": (".sav", write_sav),
    "stata": (".dta", write_dta),
    "sas": (".xpt", write_xpt),
    "npz": (".npz", write_npz),
    "sparse": (".npz", write_sparse),
    "svmlight": (".svm", write_svm),
}


@pytest.mark.parametrize("reader", WHOLE)
def test_files_that_can_only_be_read_whole_are_refused_beyond_the_memory_that_is_allowed(reader, tmp_path):
    end, write = WHOLE[reader]
    write(tmp_path / f"x{end}", rows_of_site(0))
    with pytest.raises(DataError, match=r"can only be read whole\. Convert the file to parquet.*max_gb="):
        sources.table(f"{reader}(path='{tmp_path}/x{end}', max_gb=1e-7)")
    assert sources.table(f"{reader}(path='{tmp_path}/x{end}', max_gb=1)").shape == (N, 4)


def test_a_lack_of_memory_is_one_sentence(tmp_path, capsys):
    (tmp_path / "x.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 999999999999 1\n1 1 5\n")
    assert cli.main(["run", str(tmp_path / "x.mtx"), "--clients", "1", "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert "There is not enough memory (Unable to allocate" in said


EXTRA = {
    ".h5": "hdf5",
    ".h5ad": "hdf5",
    ".zarr": "zarr",
    ".xlsx": "excel",
    ".sav": "statistics-files",
    ".arrow": "parquet",
}


@pytest.mark.parametrize("end", EXTRA)
def test_without_its_package_the_error_names_the_extra(end, tmp_path, monkeypatch):
    for module in ("h5py", "zarr", "python_calamine", "pyreadstat", "pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    (tmp_path / f"x{end}").write_bytes(b"")
    with pytest.raises(ConfigError, match=rf'pip install "flower-pca\[{EXTRA[end]}\]"'):
        sources.table(str(tmp_path / f"x{end}"))


def write_stream(path, rows):
    pa = pytest.importorskip("pyarrow")
    table = pa.Table.from_pandas(frame_of_rows(rows), preserve_index=False)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table, max_chunksize=10)


def write_lists(path, _):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({name: [1.5, 2.5] for name in NAMES} | {"visits": [[1, 2], [3]]})
    pytest.importorskip("pyarrow.parquet").write_table(table, path)


def write_wards(path, _):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({name: [1.5, 2.5] for name in NAMES} | {"visits": ["surgery", "medicine"]})
    pytest.importorskip("pyarrow.parquet").write_table(table, path)


def write_two_groups(path, rows):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["first/X"], file["second/X"] = rows, rows[:9]


def test_texts_of_cells_that_may_be_missing_are_read(tmp_path):
    """Newer versions of anndata write such texts for all names and categories."""
    ad, h5py = pytest.importorskip("anndata"), pytest.importorskip("h5py")
    rows = rows_of_site(0)
    batches = np.array(["east", "west", "north"])[np.arange(len(rows)) % 3]
    made = ad.AnnData(sp.csr_matrix(rows), obs={"batch": batches})
    made.var_names, made.obs_names = NAMES, [f"cell {i}" for i in range(len(rows))]
    made.strings_to_categoricals()
    made.write_h5ad(tmp_path / "cells.h5ad")
    with h5py.File(tmp_path / "cells.h5ad", "a") as file:
        for name in ("var/_index", "obs/_index", "obs/batch/categories"):
            if not hasattr(file[name], "keys"):
                texts = file[name][:]
                del file[name]
                file[name + "/values"], file[name + "/mask"] = texts, np.zeros(len(texts), dtype=bool)
    found = sources.table(str(tmp_path / "cells.h5ad"))
    assert found.names == tuple(NAMES)
    assert found.ids[:2] == ("cell 0", "cell 1")
    np.testing.assert_array_equal(found.beside["batch"], batches)


def write_lacking_cells(path, rows):
    ad = pytest.importorskip("anndata")
    pytest.importorskip("h5py")
    made = ad.AnnData(sp.csr_matrix(rows))
    made.var_names = NAMES
    made.write_h5ad(path)
    import h5py

    with h5py.File(path, "a") as file:
        file["X/indices"][3] = 77


# For each file name: how the file is written, and what `check` says of it beside a good file.
UNFIT_IN_A_FOLDER = {
    "stream.arrow": (write_stream, r"stream\.arrow is a stream of Arrow.*\. Write it with pyarrow\.ipc\.new_file\."),
    "old.feather": (
        lambda path, _: path.write_bytes(b"FEA1" + bytes(40)), r"old\.feather is a feather file of version 1\. Write it"
    ),
    "lists.parquet": (
        write_lists, r"lists\.parquet must hold numbers, but there is a value of the type list<.*> in column visits"
    ),
    "wards.parquet": (
        write_wards, r"wards\.parquet must .* there is text in column visits\. .* use --categorical visits"
    ),
    "groups.h5": (write_two_groups, r"groups\.h5 has no array 'X'\. It has first, second\. Write key='first/X'\."),
    "cells.h5ad": (write_lacking_cells, r"cells\.h5ad has entries outside its 4 columns\. Write the file again\."),
    "empty.csv": (lambda path, _: path.write_text(""), r"empty\.csv has no rows\. Correct it, or remove it\."),
    "waves.npy": (lambda path, rows: np.save(path, rows + 1j), r"waves\.npy holds complex numbers"),
    "texts.npy": (lambda path, rows: np.save(path, rows.astype(str)), r"texts\.npy holds entries of the type <U"),
    "counts.pgen": (
        lambda path, _: path.write_bytes(b"\x6c\x1b\x10"),
        r"kind of file: counts\.pgen\. Write it as \.bed first: plink2 --make-bed\. Or leave it out with --without",
    ),
    "table.csv.bz2": (
        lambda path, _: path.write_bytes(b"BZh"), r"table\.csv\.bz2\. Unpack it first\. Or leave it out with --without"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT_IN_A_FOLDER)
def test_check_says_once_what_is_wrong_with_a_file_and_what_to_do(name, tmp_path, capsys):
    write, words = UNFIT_IN_A_FOLDER[name]
    write(tmp_path / name, rows_of_site(0))
    write_csv(tmp_path / "bonn.csv", rows_of_site(1))
    assert cli.main(["check", str(tmp_path)]) == 2
    printed = "".join(capsys.readouterr())
    assert len(re.findall(words, printed)) == 1, printed
    assert len([line for line in printed.splitlines() if line.startswith(("error: ", "flower-pca: "))]) == 1
