"""Test that every source returns what was written, and says what it cannot read."""

import itertools

import numpy as np
import pytest
from builders import dense
from cases import every
from scipy import sparse

from flower_pca import ConfigError, DataError, simulate
from flower_pca.data.sources import SOURCES, make, table
from flower_pca.names.table import Table
from flower_pca.rows.local import LocalData

X = np.random.default_rng(0).standard_normal((20, 4)).round(3)
S = sparse.csr_array(sparse.random(20, 4, density=0.4, random_state=np.random.default_rng(1)))


def source_written(folder, name):
    """A file of the source's kind that holds X, or S."""
    path = folder / f"x.{'npz' if name == 'sparse' else name}"
    if name == "npy":
        np.save(path, X)
    elif name == "npz":
        np.savez(path, X=X, y=X[:, 0])
    elif name == "sparse":
        sparse.save_npz(path, S)
    elif name == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table(dict(zip("abcd", X.T, strict=True))), path)
    elif name == "svmlight":
        pytest.importorskip("sklearn.datasets").dump_svmlight_file(X, X[:, 0] > 0, str(path))
    else:
        np.savetxt(path, X, delimiter=",", header="a,b,c,d", comments="")
    return path


FILES = ["npy", "npz", "sparse", "csv", "parquet", "svmlight"]
# sources that are tested below or in other files
ELSEWHERE = {"folder", "sklearn", "hugging_face", "synthetic", "geometric", "arithmetic"}


def test_every_source_is_tested():
    in_test_formats = {"bed", "arrow", "h5", "zarr", "h5ad", "excel", "spss", "stata", "sas", "mtx"}
    assert set(SOURCES) == {*FILES, *ELSEWHERE, *in_test_formats}


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_each_source_returns_what_was_written(name, bare, tmp_path):
    path = source_written(tmp_path, name)
    rows = make(str(path) if bare else f"{name}(path={str(path)!r})")
    assert np.array_equal(dense(rows), S.toarray() if name == "sparse" else X)
    assert LocalData(rows).n == 20


def test_npy_stays_on_disk_and_so_does_a_run_of_its_rows(tmp_path):
    rows = make(str(source_written(tmp_path, "npy")))
    assert isinstance(rows, np.memmap)
    run = Table(rows).take(np.arange(3, 9)).values
    assert isinstance(run, np.memmap)
    assert np.shares_memory(run, rows)
    assert np.array_equal(run, X[3:9])


@pytest.mark.parametrize("index", [[4], [0, 1, 2], [0, 2, 3], [5, 4, 6], [19]])
@pytest.mark.parametrize("rows", [X, S], ids=["dense", "sparse"])
def test_take_takes_these_rows(rows, index):
    assert np.array_equal(dense(Table(rows).take(np.array(index)).values), dense(rows)[index])


def test_a_home_folder_and_a_relative_path_are_understood(tmp_path, monkeypatch):
    source_written(tmp_path, "npy")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(make("~/x.npy"), X)
    assert np.array_equal(make("x.npy"), X)


CSV = {
    "a header": ("a,b\n1,2\n3,4\n", [[1, 2], [3, 4]]),
    "no header": ("1,2\n3,4\n", [[1, 2], [3, 4]]),
    "a quoted header over two lines": ('"a\nb",c\n1,2\n', [[1, 2]]),
    "quotes, spaces and exponents": ('a,b\n"1", 2e3\n', [[1, 2000]]),
    "a byte order mark": ("\ufeffa,b\n1,2\n", [[1, 2]]),
    "Windows line ends": ("a,b\r\n1,2\r\n", [[1, 2]]),
    "empty lines": ("\na,b\n\n1,2\n\n", [[1, 2]]),
    "one column": ("1\n2\n", [[1], [2]]),
    "no end of the last line": ("1,2\n3,4", [[1, 2], [3, 4]]),
}


@pytest.mark.parametrize("case", CSV)
def test_csv_reads(case, tmp_path):
    text, rows = CSV[case]
    (tmp_path / "x.csv").write_bytes(text.encode())
    assert np.array_equal(make(str(tmp_path / "x.csv")), np.array(rows, dtype=float))


@pytest.mark.parametrize("text", ["", "a,b\n"])
def test_csv_without_rows_is_an_empty_table(text, tmp_path):
    (tmp_path / "x.csv").write_text(text)
    rows = make(str(tmp_path / "x.csv"))
    assert rows.shape == (0, text.count(",") + bool(text))


OTHER_KINDS = set(itertools.permutations(FILES, 2)) - {("csv", "svmlight")}  # svmlight is a column of text to csv


@pytest.mark.parametrize(("name", "other"), sorted(OTHER_KINDS))
def test_a_file_of_another_kind_is_named(name, other, tmp_path):
    path = source_written(tmp_path, other)
    with pytest.raises(
        (DataError, ConfigError),
        match=r"/x\.(npy|npz|csv|parquet|svmlight) (cannot be read as|is compressed with|has) ",
    ):
        make(f"{name}(path={str(path)!r})")


@every(
    ("text", "law"),
    [
        ("geometric(n=300, d=20, xi=1.1)", 1.1 ** -np.arange(20.0)),
        ("arithmetic(n=300, d=20, kappa=50.0)", np.linspace(1.0, 1 / 50, 20)),
        ("geometric(n=3, d=1)", [1.0]),
    ],
)
def test_spectra_are_those_of_the_spec(text, law):
    np.testing.assert_allclose(np.linalg.svd(make(text), compute_uv=False), law, rtol=0, atol=1e-14)
    assert np.array_equal(make(text), make(text))
    assert not np.allclose(make(text), make(text.replace(")", ", seed=1)")))


def clients_of(text):
    rows = table(text)
    return [rows.rows[rows.beside["client"] == i] for i in range(rows.beside["client"].max() + 1)]


def test_means_sizes_and_spectra_differ_as_much_as_asked():
    alike = "n=40000, d=5, clients=4, means=0.0, sizes=0.0, spectra=0.0, tilt=0.0"
    variances = np.arange(1.0, 6.0) ** -2 + 0.02**2
    for X in clients_of(f"synthetic({alike})"):
        assert len(X) == 10000
        assert np.abs(X.mean(axis=0)).max() < 0.05
        np.testing.assert_allclose(np.linalg.eigvalsh(np.cov(X.T))[::-1], variances, rtol=0.1)
    assert [len(X) for X in clients_of("synthetic(n=60, clients=3, sizes=1.0)")] == [33, 16, 11]
    means = [
        np.linalg.norm(X.mean(axis=0)) for X in clients_of(f"synthetic({alike})".replace("means=0.0", "means=9.0"))
    ]
    assert min(means) > 3.0
    slopes = [
        np.polyfit(np.log(np.arange(1, 6)), np.log(np.linalg.eigvalsh(np.cov(X.T))[::-1]), 1)[0]
        for X in clients_of(f"synthetic({alike})".replace("spectra=0.0", "spectra=0.6"))
    ]
    assert max(slopes) - min(slopes) > 0.4


def test_synthetic_rows_are_as_asked_and_seeded():
    rows = make("synthetic(n=301, d=7, clients=4, seed=5)")
    assert rows.shape == (301, 7)
    assert np.array_equal(rows, make("synthetic(n=301, d=7, clients=4, seed=5)"))
    assert not np.allclose(rows, make("synthetic(n=301, d=7, clients=4, seed=6)"))
    assert make("synthetic(n=1, d=1, clients=1)").shape == (1, 1)


def test_synthetic_clients_differ_and_their_spectrum_falls():
    rows = make("synthetic(n=4000, d=20, clients=4)")
    first, last = rows[:1000], rows[-400:]
    assert np.linalg.norm(first.mean(axis=0) - last.mean(axis=0)) > 0.2
    values = simulate("krylov", [rows], n_components=20).explained_variance_
    assert values[0] > 10 * values[4] > 10 * values[19]
