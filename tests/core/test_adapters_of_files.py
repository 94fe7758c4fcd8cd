"""Rows in files and objects of other packages: each gives the bits of the same rows as an array in memory."""

import subprocess
import sys
import tempfile
import textwrap
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from builders import least_peak
from cases import every

from flower_pca import simulate
from flower_pca.base.errors import DataError
from flower_pca.blocks import adapters, source
from flower_pca.blocks.compressed import PickedSparseColumns
from flower_pca.blocks.normalized import NormalizedRows
from flower_pca.data import reading
from flower_pca.data.sources import make
from flower_pca.hints import faults, large
from flower_pca.names.origin import Origin
from flower_pca.names.table import Table
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData

N, D = 400, 6
ROWS = np.random.default_rng(5).standard_normal((N, D)) * np.arange(D, 0, -1) + 0.5
COUNTS = np.where(np.random.default_rng(6).random((N, D)) < 0.3, ROWS, 0.0)


@pytest.fixture
def in_many_pieces(monkeypatch):
    monkeypatch.setattr(source, "_PIECE", 70 * D * 8)
    monkeypatch.setattr(source, "_BLOCK", 64 * D)
    monkeypatch.setattr(source, "_ENTRIES", 90)


def new_folder(place):
    return Path(tempfile.mkdtemp(dir=place))


def of_h5py(rows, folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "rows.h5", "w") as file:
        file.create_dataset("X", data=rows, chunks=(32, D))
    return h5py.File(folder / "rows.h5")["X"]


def of_zarr(rows, folder):
    zarr = pytest.importorskip("zarr")
    made = zarr.create_array(str(folder / "rows.zarr"), shape=rows.shape, dtype=rows.dtype, chunks=(512, D))
    made[:] = rows
    return zarr.open_array(str(folder / "rows.zarr"), mode="r")


def of_parquet(rows, folder):
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(arrow_table(rows), folder / "rows.parquet", row_group_size=50)
    return pq.ParquetFile(folder / "rows.parquet")


def arrow_table(rows):
    pa = pytest.importorskip("pyarrow")
    return pa.table({f"c{j}": rows[:, j] for j in range(D)})


def of_arrow(rows, folder):
    pa = pytest.importorskip("pyarrow")
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as sink, pa.ipc.new_file(sink, arrow_table(rows).schema) as out:
        out.write_table(arrow_table(rows), max_chunksize=37)
    return pa.ipc.open_file(pa.memory_map(str(folder / "rows.arrow")))


def of_tensor(rows, _):
    return pytest.importorskip("torch").from_numpy(rows.copy()).requires_grad_()


def of_loader(rows, _):
    torch = pytest.importorskip("torch")
    labeled = torch.utils.data.TensorDataset(torch.from_numpy(rows.copy()), torch.zeros(len(rows)))
    return torch.utils.data.DataLoader(labeled, batch_size=33)


class Foreign:
    """An array of another package, of which nothing is known but that numpy can make its own of it."""

    def __init__(self, rows):
        self._rows = rows

    def __array__(self, dtype=None, copy=None):
        return np.array(self._rows, dtype=dtype)


KINDS_OF_ROWS = {
    "h5py": of_h5py,
    "zarr": of_zarr,
    "parquet": of_parquet,
    "arrow file": of_arrow,
    "arrow table": lambda rows, _: arrow_table(rows),
    "arrow batch": lambda rows, _: arrow_table(rows).to_batches()[0],
    "tensor": of_tensor,
    "loader": of_loader,
    "foreign": lambda rows, _: Foreign(rows),
}


@pytest.mark.parametrize("kind", KINDS_OF_ROWS)
@every("dtype", [np.float64, np.float32])
@pytest.mark.usefixtures("in_many_pieces")
def test_rows_of_each_kind_give_the_bits_of_the_array(kind, dtype, tmp_path):
    rows = ROWS.astype(dtype)
    parts = rows[:150], rows[150:]
    given = [KINDS_OF_ROWS[kind](part, new_folder(tmp_path)) for part in parts]
    for algorithm in ("krylov", "covariance"):
        here, there = (simulate(algorithm, shards, n_components=2, scale="std") for shards in (parts, given))
        assert np.array_equal(here.components_, there.components_)
        assert np.array_equal(here.explained_variance_, there.explained_variance_)


@pytest.mark.parametrize("kind", KINDS_OF_ROWS)
@pytest.mark.usefixtures("in_many_pieces")
def test_rows_and_columns_of_each_kind_are_taken_as_numpy_takes_them(kind, tmp_path):
    table = Table.of(KINDS_OF_ROWS[kind](ROWS, tmp_path))
    for rows in (slice(40, 200), np.array([3, 70, 71, 399]), np.array([9, 2, 2]), ROWS[:, 0] > 0):
        assert np.array_equal(np.asarray(table.take(rows)), ROWS[rows])
    if table.names is not None:
        assert np.array_equal(np.asarray(table.pick(["c4", "c0"])), ROWS[:, [4, 0]])


def write_cells(path, X, *, form="csr"):
    """A file as anndata writes it, by h5py alone."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        if sp.issparse(X):
            group = file.create_group("X")
            group.attrs["encoding-type"] = f"{form}_matrix"
            group.attrs["shape"] = X.shape
            for name in ("data", "indices", "indptr"):
                group[name] = getattr(X, name)
        else:
            file["X"] = X
    return h5py.File(path)


@pytest.mark.parametrize("kind", ["h5py", "zarr", "parquet", "arrow file"])
@pytest.mark.usefixtures("in_many_pieces")
def test_consecutive_rows_are_read_without_the_rows_around_them(kind, tmp_path):
    part = adapters.rows_of_source(adapters.as_blocks(KINDS_OF_ROWS[kind](ROWS, tmp_path)), np.arange(180, 220))
    assert not isinstance(part, adapters.RowSubset)
    assert np.array_equal(source.all_rows(part), ROWS[180:220])


@every("some", [False, True])
@every("normalized", [False, True])
def test_consecutive_sparse_rows_are_read_without_the_rows_around_them(some, normalized, tmp_path):
    counts = sp.csr_array(np.rint(4.0 * np.abs(COUNTS)))
    rows = adapters.as_blocks(write_cells(tmp_path / "x.h5ad", counts)["X"])
    expected = counts.toarray()
    if normalized:
        rows, expected = NormalizedRows(rows, "the rows", None, True), np.log1p(expected)
    if some:
        rows, expected = PickedSparseColumns(rows, np.array([4, 1])), expected[:, [4, 1]]
    part = adapters.rows_of_source(rows, np.arange(180, 220))
    assert not isinstance(part, adapters.RowSubset)
    assert np.array_equal(source.all_rows(part).toarray(), expected[180:220])


@every("dtype", [np.float64, np.float32, np.int32])
@every("center", [True, False])
@every("gaps", [False, True])
@pytest.mark.usefixtures("in_many_pieces")
def test_sparse_rows_in_a_file_give_the_bits_of_those_in_memory(dtype, center, gaps, tmp_path):
    dense = COUNTS.copy()
    if gaps and np.dtype(dtype).kind == "f":
        dense[::17, 2] = np.nan
    parts = [sp.csr_array((4 * part).astype(dtype)) for part in (dense[:170], dense[170:])]
    given = [write_cells(new_folder(tmp_path) / "x.h5ad", part)["X"] for part in parts]
    assert len(list(adapters.as_blocks(given[1]).pieces())) > 3
    for algorithm in ("krylov", "covariance"):
        here, there = (
            simulate(algorithm, shards, n_components=2, center=center, missing="mean") for shards in (parts, given)
        )
        assert np.array_equal(here.components_, there.components_)
        assert np.array_equal(here.explained_variance_, there.explained_variance_)
    filled = np.where(np.isnan(dense), np.nanmean(np.trunc(4 * dense), axis=0), dense) if gaps else dense
    if not (gaps or np.dtype(dtype).kind == "i"):
        kept = filled - center * filled.mean(axis=0)
        expected = np.linalg.svd(kept)[1][:2] ** 2 * 16 / (N - 1)
        np.testing.assert_allclose(here.explained_variance_, expected, rtol=1e-5)


@pytest.mark.usefixtures("in_many_pieces")
def test_pieces_of_sparse_rows_multiply_as_the_whole_does():
    S = sp.csr_array(COUNTS)
    data = LocalData(S).in_frame(Frame(COUNTS.mean(axis=0), np.arange(1.0, D + 1)))
    framed = (COUNTS - COUNTS.mean(axis=0)) / np.arange(1.0, D + 1)
    Z = np.linalg.qr(np.random.default_rng(1).standard_normal((D, 2)))[0]
    np.testing.assert_allclose(data.matmat(Z), framed.T @ (framed @ Z), atol=1e-11)
    np.testing.assert_allclose(data.gram(), framed.T @ framed, atol=1e-11)
    np.testing.assert_allclose(data.scores(Z), framed @ Z, atol=1e-12)
    np.testing.assert_allclose(data.adjoint(framed @ Z), framed.T @ (framed @ Z), atol=1e-11)
    np.testing.assert_allclose(np.concatenate(list(data.dense())), framed, atol=1e-14)
    np.testing.assert_allclose(data.moments().m2, COUNTS.var(axis=0) * N, rtol=1e-12)


@every("backed", [False, True])
@every("kept", ["dense", "sparse"])
@pytest.mark.usefixtures("in_many_pieces")
def test_an_annotated_object_in_memory_or_in_its_file_is_a_table_with_names(backed, kept, tmp_path):
    ad = pytest.importorskip("anndata")
    pd = pytest.importorskip("pandas")
    X = sp.csr_matrix(COUNTS) if kept == "sparse" else COUNTS
    genes = [f"g{j}" for j in range(D)]
    whose = pd.Index([f"cell{i}" for i in range(N)], dtype=object)
    cells = pd.DataFrame({"batch": np.arange(N) % 3}, index=whose)
    made = ad.AnnData(X, obs=cells, var=pd.DataFrame(index=pd.Index(genes, dtype=object)))
    if backed:
        file = new_folder(tmp_path) / "cells.h5ad"
        made.write_h5ad(file)
        made = ad.read_h5ad(file, backed="r")
    table = Table.of(made)
    assert table.names == tuple(genes)
    assert table.ids[:2] == ("cell0", "cell1")
    assert list(table.beside["batch"][:4]) == [0, 1, 2, 0]
    here = simulate("krylov", [X], n_components=2)
    there = simulate("krylov", [made], n_components=2)
    assert np.array_equal(here.components_, there.components_)
    assert list(there.feature_names_in_) == genes


def test_consecutive_rows_of_a_table_take_no_list_of_their_places():
    """A list for each client would take much of the memory that rows in a file leave."""
    n = 200_000
    table = Table(np.zeros((n, 1)), ids=tuple(map(str, range(n))), origin=Origin.of_file("rows.npy", n))
    tracemalloc.start()
    try:
        part = table.take(np.arange(1000, n - 1000))
        assert tracemalloc.get_traced_memory()[0] < 1.2 * 8 * n + 8 * n  # the ids of the part, and the given places
        assert tracemalloc.get_traced_memory()[1] < 4.5 * 8 * n
    finally:
        tracemalloc.stop()
    assert part.origin.rows == range(1000, n - 1000)
    assert part.ids == table.ids[1000:-1000]
    assert table.take(np.array([7, 3])).ids == ("7", "3")


def test_genes_that_share_a_name_are_refused_with_what_makes_them_differ():
    ad = pytest.importorskip("anndata")
    pd = pytest.importorskip("pandas")
    made = ad.AnnData(COUNTS, obs=pd.DataFrame(index=[str(i) for i in range(N)]))
    made.var_names = ["a", "a", "b", "c", "d", "e"]
    with pytest.raises(DataError, match=r"'a' more than once.*var_names_make_unique"):
        Table.of(made)


def test_sparse_rows_stored_by_columns_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"by columns.*adata\.X = adata\.X\.tocsr\(\)"):
        adapters.as_blocks(write_cells(tmp_path / "x.h5ad", sp.csc_array(COUNTS), form="csc")["X"])


def test_a_loader_that_shuffles_or_changes_is_refused():
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(ROWS)
    with pytest.raises(DataError, match=r"a different order at each pass\. Build it with shuffle=False"):
        adapters.as_blocks(torch.utils.data.DataLoader(tensor, batch_size=30, shuffle=True))
    with pytest.raises(DataError, match="one row of real numbers per sample"):
        adapters.as_blocks(torch.utils.data.DataLoader(torch.zeros(9), batch_size=3))

    class Augmented(torch.utils.data.Dataset):
        def __len__(self):
            return N

        def __getitem__(self, i):
            return tensor[i] + torch.rand(1)

    loader = adapters.as_blocks(torch.utils.data.DataLoader(Augmented(), batch_size=50))
    with pytest.raises(DataError, match="gave other rows in a later pass"):
        list(loader.pieces())


def loaders_that_lose_or_double_rows(torch):
    data = torch.utils.data
    rows = data.TensorDataset(torch.from_numpy(ROWS))

    class Fixed(data.Sampler):
        def __init__(self, positions):
            self.positions = positions

        def __iter__(self):
            return iter(self.positions)

        def __len__(self):
            return len(self.positions)

    class Rows(data.IterableDataset):
        def __iter__(self):
            return iter(torch.from_numpy(ROWS))

    class Counted(Rows):
        def __len__(self):
            return N

    class Short(Rows):
        def __len__(self):
            return N + 1

    def named(batch):
        return {"age": batch, "size": batch}

    weighted = data.WeightedRandomSampler(np.ones(N), N)
    random = data.BatchSampler(data.RandomSampler(rows), 30, False)
    order = [*range(1, N), 0]
    return {
        "dropped": (data.DataLoader(rows, batch_size=150, drop_last=True), r"leaves out 100 of 400 rows\. Build it"),
        "dropped by batches": (
            data.DataLoader(rows, batch_sampler=data.BatchSampler(Fixed(order), 150, True)),
            r"leaves out 100 of 400 rows\. Build it with drop_last=False",
        ),
        "part": (data.DataLoader(rows, sampler=Fixed(order[5:])), r"sampler .*leaves out 5 of 400 rows.*Subset"),
        "repeated": (data.DataLoader(rows, sampler=Fixed([3, *order[1:]])), "repeats rows"),
        "too many": (data.DataLoader(rows, sampler=Fixed([*order, 0])), "repeats rows"),
        "weighted": (data.DataLoader(rows, sampler=weighted), "a different order"),
        "shuffled batches": (data.DataLoader(rows, batch_sampler=random), "a different order"),
        "a share": (
            data.DataLoader(rows, sampler=data.DistributedSampler(rows, 3, 0, shuffle=False)),
            "leaves out 266 of 400 rows",
        ),
        "no length": (data.DataLoader(Rows(), batch_size=9), "has no length"),
        "fewer than its length": (data.DataLoader(Short(), batch_size=9), "yields 400 rows, but .* has 401"),
        "names": (data.DataLoader(rows, collate_fn=named), "dictionaries with age and size"),
        "two tables": (
            data.DataLoader(data.TensorDataset(torch.zeros(9, 3), torch.zeros(9, 2)), batch_size=4),
            "2 tables each",
        ),
        "whole samples": (data.DataLoader(torch.zeros(9, 3, 2), collate_fn=list, batch_size=4), "4 tables each"),
        "other columns": (
            data.DataLoader([torch.zeros(2), torch.zeros(3)], batch_size=1),
            "a batch with 3 columns after batches with 2",
        ),
        "in order": (data.DataLoader(rows, batch_size=150), None),
        "in another order": (data.DataLoader(rows, batch_size=150, sampler=Fixed(order)), None),
        "iterable": (data.DataLoader(Counted(), batch_size=150), None),
    }


def test_a_loader_gives_every_row_once_or_is_refused():
    torch = pytest.importorskip("torch")
    for name, (loader, words) in loaders_that_lose_or_double_rows(torch).items():
        if words is None:
            rows = source.all_rows(adapters.as_blocks(loader))
            assert np.array_equal(np.sort(rows, axis=0), np.sort(ROWS, axis=0)), name
        else:
            with pytest.raises(DataError, match=words):
                source.all_rows(adapters.as_blocks(loader))


class LoaderWithoutBatches:
    """A loader such as a DataLoader with batch_size=None, whose sampler gives the positions of whole batches."""

    batch_sampler = None

    def __init__(self, dataset, sampler):
        self.dataset, self.sampler = dataset, sampler

    def __iter__(self):
        return (self.dataset[some] for some in self.sampler)


def test_a_sampler_may_give_lists_of_positions():
    batches = [list(range(start, min(start + 150, N))) for start in range(0, N, 150)]
    rows = source.all_rows(adapters.as_blocks(LoaderWithoutBatches(ROWS, batches)))
    assert np.array_equal(rows, ROWS)
    with pytest.raises(DataError, match="leaves out 100 of 400 rows"):
        adapters.as_blocks(LoaderWithoutBatches(ROWS, batches[:2]))
    with pytest.raises(DataError, match="repeats rows"):
        adapters.as_blocks(LoaderWithoutBatches(ROWS, [*batches, [0]]))


def test_a_data_set_of_batches_whose_length_counts_batches_is_named():
    class Batches(LoaderWithoutBatches):
        def __iter__(self):
            return iter(self.dataset)

    loader = adapters.as_blocks(Batches(np.split(ROWS, 4), range(4)))
    with pytest.raises(DataError, match=r"has 4 items with 400 rows, so an item is a batch of rows\. Make"):
        source.all_rows(loader)


def test_a_sampler_may_give_positions_that_are_no_numbers():
    names = [f"p{i}" for i in range(N)]

    class Named(LoaderWithoutBatches):
        def __iter__(self):
            return (self.dataset[int(name[1:])][None] for name in self.sampler)

    assert np.array_equal(source.all_rows(adapters.as_blocks(Named(ROWS, names))), ROWS)
    with pytest.raises(DataError, match="leaves out 1 of 400 rows"):
        adapters.as_blocks(Named(ROWS, names[1:]))


def test_a_sampler_may_give_positions_of_several_numbers():
    class Pages(LoaderWithoutBatches):
        def __iter__(self):
            return (self.dataset[20 * page + line][None] for page, line in self.sampler)

    positions = [(page, line) for page in range(N // 20) for line in range(20)]
    rows = source.all_rows(adapters.as_blocks(Pages(ROWS, positions)))
    assert np.array_equal(rows, ROWS)
    with pytest.raises(DataError, match="yields 399 rows, but its data set has 400"):
        source.all_rows(adapters.as_blocks(Pages(ROWS, positions[1:])))


def test_a_loader_whose_later_batches_change_between_passes_is_refused():
    torch = pytest.importorskip("torch")
    rows = torch.from_numpy(ROWS.copy())
    loader = adapters.as_blocks(torch.utils.data.DataLoader(rows, batch_size=50))
    list(loader.pieces())
    rows[-1, 0] += 1.0
    with pytest.raises(DataError, match="gave other rows in a later pass"):
        list(loader.pieces())


def test_tensors_of_kinds_that_numpy_has_not_are_read_or_refused():
    torch = pytest.importorskip("torch")
    assert adapters.as_blocks(torch.ones(3, 2, dtype=torch.bfloat16)).dtype == np.float32
    with pytest.raises(DataError, match="to_dense"):
        adapters.as_blocks(torch.eye(3).to_sparse())
    with pytest.raises(DataError, match="reshape"):
        adapters.as_blocks(torch.zeros(3, 2, 2))


@pytest.mark.parametrize("given", [None, "x.csv", {1: 2}, object(), (row for row in ROWS), {1, 2}])
def test_what_is_none_of_these_is_refused_with_what_is_accepted(given):
    with pytest.raises(DataError, match=r"cannot be read from .*Give an array, a data frame, .*__array__"):
        adapters.as_blocks(given)


@every("given", [ROWS[1:], np.vstack([ROWS, ROWS[:1]])])
def test_a_source_whose_pieces_are_not_its_rows_is_refused(given):
    class Wrong(source.Stored):
        shape, dtype = ROWS.shape, ROWS.dtype

        def pieces(self):
            yield from np.array_split(given, 3)

    with pytest.raises(DataError, match=rf"Wrong have {len(given)} rows, but its shape says 400"):
        simulate("krylov", [Wrong()], n_components=2)


def test_an_arrow_dataset_is_refused_with_what_is_accepted():
    dataset = pytest.importorskip("pyarrow.dataset").dataset(arrow_table(ROWS))
    with pytest.raises(DataError, match="cannot be read from an InMemoryDataset"):
        adapters.as_blocks(dataset)


def test_no_package_is_imported_to_recognize_an_object():
    code = """
        import sys
        import numpy as np
        from flower_pca.blocks import adapters
        adapters.as_blocks(np.ones((3, 2)))
        print(sorted({"torch", "h5py", "zarr", "anndata", "pyarrow", "pandas"} & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("kind", ["h5py", "zarr", "parquet", "arrow file"])
def test_a_run_on_rows_in_a_file_holds_a_small_part_of_them(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_PIECE", 2**17)
    monkeypatch.setattr(source, "_BLOCK", 2**12)
    monkeypatch.setattr(faults, "CHEAP", 2**15)  # The search for faults copies a few rows, which are all of these.
    monkeypatch.setattr(faults, "BARE", 2**15)
    monkeypatch.setattr(large, "_HELD", 2**15)
    rows = np.tile(ROWS, (40, 20))  # A few numbers for each row are kept, so these rows are wide.
    rows += np.random.default_rng(2).standard_normal(rows.shape)
    assert rows.size > 2**15
    given = KINDS_OF_ROWS[kind](rows, tmp_path)

    def run():
        return simulate("krylov", [given], n_components=2, max_rounds=3)

    run()  # Load what is imported on first use.
    assert least_peak(run) < 0.25 * rows.nbytes


def test_a_pass_over_a_parquet_file_holds_a_few_of_its_row_groups(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    monkeypatch.setattr(source, "_PIECE", 2**20)
    monkeypatch.setattr(reading, "HELD", 2**20)
    rows, of_a_group = np.random.default_rng(0).standard_normal((2**18, 8)), 2**13
    table = pa.table({f"c{j}": rows[:, j] for j in range(8)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=of_a_group)
    del table
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in make(str(tmp_path / "rows.parquet")).values.pieces()]
    assert len(held) > 8
    assert max(held) < rows.nbytes / 4
