"""Test names of columns and sites from data frames and files to the result, in any order of columns."""

import dataclasses

import numpy as np
import pytest
from builders import falling
from cases import every, paired
from scipy import sparse

from flower_pca import PCAResult, Stream, TrackingResult, from_frame, registry, report, simulate, track
from flower_pca.base.errors import ConfigError
from flower_pca.core.algorithm import Iterative
from flower_pca.data import partition, sources
from flower_pca.names.columns import ColumnNames, Heading, digest_of_names
from flower_pca.names.table import Table
from flower_pca.results import matching
from flower_pca.rows import statistics
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData

NAMES = ("weight", "age", "size", "beat")  # sorted: age, beat, size, weight
SORTED = tuple(sorted(NAMES))
X = falling(60, 4, seed=5) + np.array([70.0, 40.0, 1.7, 60.0])
ORDERS = ((0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0))
SPLITS = (slice(0, 30), slice(30, 50), slice(50, 60))


def named_rows(rows, order, names=NAMES, **more):
    order = list(order)
    return Table(np.ascontiguousarray(rows[:, order]), tuple(names[j] for j in order), **more)


def named_shards(names=NAMES):
    return [named_rows(X[part], order, names) for part, order in zip(SPLITS, ORDERS, strict=True)]


def pooled_by_name(columns):
    rows = X[:, [NAMES.index(name) for name in columns]]
    _, s, V = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    return s**2 / (len(rows) - 1), V


def is_pooled_by_name(result, columns, tol=1e-12):
    values, V = pooled_by_name(columns)
    k = result.n_components_
    assert result.feature_names_in_.tolist() == list(columns)
    np.testing.assert_allclose(result.explained_variance_, values[:k], rtol=tol)
    np.testing.assert_allclose(
        result.components_, V[:k] * np.sign(np.sum(V[:k] * result.components_, axis=1))[:, None], atol=1e-10
    )
    np.testing.assert_allclose(result.mean_, X[:, [NAMES.index(name) for name in columns]].mean(axis=0), rtol=1e-13)


@pytest.mark.slow
@every("answers", ["rows", "fixed"])
@every("mask", [False, True])
def test_columns_are_matched_by_name(answers, mask):
    tol = 1e-9 if mask else 1e-12
    is_pooled_by_name(simulate("krylov", named_shards(), n_components=3, answers=answers, mask=mask), SORTED, tol)


@pytest.mark.slow
@every("answers", ["rows", "fixed"])
@every("mask", [False, True])
@every("columns", [NAMES, ("size", "age", "weight")])
def test_a_run_may_name_its_columns_in_its_own_order(answers, mask, columns):
    tol = 1e-9 if mask else 1e-12
    result = simulate("krylov", named_shards(), n_components=3, answers=answers, mask=mask, columns=columns)
    is_pooled_by_name(result, columns, tol)
    assert result.config["columns"] == list(columns)


def test_names_change_no_bit_beside_the_order():
    plain = simulate("krylov", [X[part] for part in SPLITS], n_components=2)
    same = simulate("krylov", [named_rows(X[part], range(4), "abcd") for part in SPLITS], n_components=2)
    assert plain.feature_names_in_ is None
    for name in ("components_", "explained_variance_", "mean_", "residuals_"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(same, name))
    order = simulate("krylov", named_shards(), n_components=2)
    again = simulate("krylov", [named_rows(X[part], (2, 0, 3, 1)) for part in SPLITS], n_components=2)
    names = [NAMES[j] for j in (2, 0, 3, 1)]  # the order of all
    assert again.feature_names_in_.tolist() == names
    mixed = order.components_[:, [SORTED.index(name) for name in names]]
    np.testing.assert_allclose(mixed, again.components_, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["array", "sparse", "memmap", "float32"])
@pytest.mark.parametrize("columns", [None, ("size", "age")])
def test_every_kind_of_rows_can_be_arranged(tmp_path, kind, columns):
    def of(part, order, i):
        rows = np.ascontiguousarray(X[part][:, list(order)])
        if kind == "sparse":
            rows = sparse.csr_array(rows)
        if kind == "float32":
            rows = rows.astype(np.float32)
        if kind == "memmap":
            np.save(tmp_path / f"{i}.npy", rows)
            rows = np.load(tmp_path / f"{i}.npy", mmap_mode="r")
        return Table(rows, tuple(NAMES[j] for j in order))

    parts = [of(*pair, i) for i, pair in enumerate(zip(SPLITS, ORDERS, strict=True))]
    if kind == "memmap":
        loaded = [dataclasses.replace(part, values=np.array(part.values)) for part in parts]
        both = [simulate("krylov", given, n_components=2, columns=columns) for given in (parts, loaded)]
        np.testing.assert_array_equal(*(result.components_ for result in both))
    for answers in ("rows", "fixed"):
        result = simulate("krylov", parts, n_components=2, columns=columns, answers=answers)
        values, _ = pooled_by_name(columns or SORTED)
        np.testing.assert_allclose(result.explained_variance_, values[:2], rtol=1e-4 if kind == "float32" else 1e-10)
        np.testing.assert_allclose(
            np.vstack([result.transform(part) for part in parts]),
            (X[:, [NAMES.index(name) for name in columns or SORTED]] - result.mean_) @ result.components_.T,
            atol=1e-4,
        )


@every("missing", ["mean", "local_mean"])
@every("answers", ["rows", "fixed"])
def test_gaps_stay_in_their_columns(missing, answers):
    rows = X.copy()
    rows[3, 0] = rows[40, 2] = rows[55, 1] = np.nan
    ask = {"n_components": 2, "missing": missing, "answers": answers}
    parts = [named_rows(rows[part], order) for part, order in zip(SPLITS, ORDERS, strict=True)]
    wanted = ("size", "age", "weight")
    found = simulate("krylov", parts, columns=wanted, **ask)
    index = [NAMES.index(name) for name in wanted]
    there = simulate("krylov", [rows[part][:, index] for part in SPLITS], **ask)
    np.testing.assert_allclose(found.explained_variance_, there.explained_variance_, rtol=1e-12)
    np.testing.assert_allclose(found.mean_, there.mean_, rtol=1e-12)


def test_a_gap_in_a_column_that_is_left_out_is_none():
    rows = X.copy()
    rows[3, 0] = np.nan
    parts = [named_rows(rows[part], order) for part, order in zip(SPLITS, ORDERS, strict=True)]
    for answers in ("rows", "fixed"):
        result = simulate("krylov", parts, n_components=2, columns="size, age", answers=answers)
        np.testing.assert_allclose(result.explained_variance_, pooled_by_name(("size", "age"))[0], rtol=1e-12)


def test_a_checkpoint_is_of_these_columns(tmp_path):
    path = tmp_path / "run"
    ask = {"n_components": 2, "columns": NAMES, "checkpoint": path}
    copy = tmp_path / "copy"
    whole = simulate("ssi", named_shards(), on_round=lambda _: copy.write_bytes(path.read_bytes()), **ask)
    copy.replace(path)
    again = simulate("ssi", named_shards(), **ask)
    assert again.feature_names_in_.tolist() == list(NAMES)
    np.testing.assert_array_equal(again.components_, whole.components_)


def test_transform_goes_by_name(tmp_path):
    result = simulate("krylov", named_shards(), n_components=2)
    rows = X[:, [NAMES.index(name) for name in SORTED]]
    scores = (rows - result.mean_) @ result.components_.T
    new = named_rows(np.hstack([X, X[:, :1]]), (4, 2, 3, 1, 0), (*NAMES, "dose"))
    np.testing.assert_allclose(result.transform(new), scores, atol=1e-12)
    path = tmp_path / "new.csv"
    lines = [",".join(f"{v:.17g}" for v in row) + ",Bonn" for row in X[:, [2, 0, 1, 3]]]
    path.write_text("\n".join([" size , weight,age,beat,city", *lines]))
    np.testing.assert_allclose(result.transform(path), scores, atol=1e-12)
    np.testing.assert_allclose(result.transform(str(path)), scores, atol=1e-12)
    loaded = PCAResult.load(result.save(tmp_path / "result.npz"))
    np.testing.assert_array_equal(loaded.transform(new), result.transform(new))


class Unsearched(tuple):
    """Names that nobody may look through one by one: of a million that takes hours."""

    def __contains__(self, name):
        raise AssertionError("a name was searched for among all")


def test_no_name_is_searched_for_among_all_of_them():
    names = tuple(f"gene{j}" for j in range(50))
    rows = Table(np.ones((2, 50)), names)
    matching._check_columns(rows, Unsearched(names), Unsearched(reversed(names)), "")
    with pytest.raises(ConfigError, match="gene99"):
        matching._check_columns(rows, Unsearched(names), Unsearched((*names, "gene99")), "")


def test_a_frame_of_one_kind_is_taken_whole_and_others_column_by_column(monkeypatch):
    pd = pytest.importorskip("pandas")
    for kind in (np.float32, np.float64, np.int16, bool):
        frame = pd.DataFrame(X.astype(kind), columns=NAMES)
        by_column = Table(np.column_stack([frame[name].to_numpy() for name in NAMES]), NAMES)
        with monkeypatch.context() as patched:
            patched.setattr(pd.DataFrame, "__getitem__", lambda self, name: pytest.fail(f"took {name} by itself"))
            whole = Table.of(frame)
        assert whole.names == NAMES
        assert whole.dtype == by_column.dtype
        assert np.array_equal(whole.values, by_column.values)
    mixed = pd.DataFrame({"age": [1, 2], "size": [1.5, np.nan], "ward": ["north", "south"]})
    assert Table.of(mixed).names == ("age", "size")
    assert list(Table.of(mixed).words) == ["ward"]
    texts = pd.DataFrame({"age": ["old", "young"], "ward": ["north", "south"]})
    assert list(Table.of(texts).words) == ["age", "ward"]


def test_transform_says_so_where_it_goes_by_position():
    result = simulate("krylov", named_shards(), n_components=2)
    rows = X[:, [NAMES.index(name) for name in SORTED]]
    with pytest.warns(
        UserWarning, match=r"^The result has column names but the rows have none, so they are matched by"
    ):
        np.testing.assert_allclose(result.transform(rows), (rows - result.mean_) @ result.components_.T, atol=1e-12)
    plain = simulate("krylov", [X], n_components=2)
    with pytest.warns(
        UserWarning, match=r"^The rows have column names but the result has none, so they are matched by"
    ):
        np.testing.assert_array_equal(plain.transform(named_rows(X, range(4))), plain.transform(X))


def test_a_result_that_knows_a_digest_only_takes_the_same_columns():
    result = simulate("krylov", named_shards(), n_components=2)
    known = dataclasses.replace(result, feature_names_in_=None)
    np.testing.assert_array_equal(known.transform(named_shards()[1]), result.transform(named_shards()[1]))


def test_headings_say_how_they_differ():
    ours, few = Heading(3, digest_of_names("abc"), tuple("abc")), Heading(2, digest_of_names("ab"))
    assert str(few.mismatch("client 7", ours)) == (
        "The columns of client 7 do not fit: there are 2 with other names instead of the 3 of the run. Give all "
        "clients the same columns."
    )
    assert str(Heading(2).mismatch("client 7", Heading(3))) == (
        "The columns of client 7 do not fit: there are 2 instead of the 3 of the run. Give all clients the same "
        "columns."
    )
    assert digest_of_names("abc") == digest_of_names("cab") != digest_of_names(["ab", "c"])
    assert ColumnNames(("b", "a")).heading.names == ("a", "b")


def test_rows_know_where_their_columns_are():
    data = LocalData(named_shards()[2])
    assert data.names == SORTED
    assert data.places is None
    view = data.arrange(("size", "age"))
    assert view.places.tolist() == [2, 0]
    assert view is data.arrange(("size", "age"))
    assert view.arrange(SORTED).names == SORTED
    np.testing.assert_array_equal(np.vstack(list(view.rows())), X[50:][:, [2, 1]])


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_pictures_and_reports_take_the_same_mapping(tmp_path):
    pytest.importorskip("matplotlib")
    given = dict(zip(("north", "east", "west"), named_shards(), strict=True))
    result = simulate("krylov", given, n_components=2)
    for shown in (given, list(given.values())):
        result.plot("scores", tmp_path / f"{type(shown).__name__}.svg", shards=shown)
        report.write(result, tmp_path / f"{type(shown).__name__}.html", title="Three sites", shards=shown)
    for kind in ("svg", "html"):
        assert (tmp_path / f"dict.{kind}").read_bytes() == (tmp_path / f"list.{kind}").read_bytes()


def test_files_of_a_folder_keep_their_names(tmp_path):
    for site, part, order in zip(("bonn", "jena", "trier"), SPLITS, ORDERS, strict=True):
        lines = [",".join(f"{v:.17g}" for v in row) + ",x" for row in X[part][:, list(order)]]
        (tmp_path / f"{site}.csv").write_text("\n".join([",".join([*(NAMES[j] for j in order), "note"]), *lines]))
    result = simulate("krylov", partition.deal(sources.table(str(tmp_path), columns=NAMES)), n_components=3)
    is_pooled_by_name(result, NAMES)
    assert result.site_names == {0: "bonn", 1: "jena", 2: "trier"}


class TestDataFrames:
    pd = pytest.importorskip("pandas")

    def frames(self):
        return [self.pd.DataFrame(s.values, columns=list(s.names)) for s in named_shards()]

    def test_frames_of_pandas_keep_their_names(self):
        is_pooled_by_name(simulate("krylov", self.frames(), n_components=3), SORTED)
        numbered = [self.pd.DataFrame(X[part]) for part in SPLITS]
        plain = simulate("krylov", numbered, n_components=3)
        assert plain.feature_names_in_ is None
        as_stored = [frame.to_numpy() for frame in numbered]
        np.testing.assert_array_equal(plain.components_, simulate("krylov", as_stored, n_components=3).components_)

    def test_words_are_left_out_by_name(self):
        first, second, third = self.frames()
        third = third.assign(city="Bonn", day=self.pd.Timestamp("2026-01-01"))
        is_pooled_by_name(simulate("krylov", [first, second, third], n_components=2, columns=NAMES), NAMES)

    def test_numbers_of_every_kind(self):
        frame = self.pd.DataFrame({"a": [1, 2, 4], "b": [True, False, True], "c": [0.5, None, 2.0]})
        frame["d"] = self.pd.array([1, None, 3], dtype="Int64")
        frame["e"] = self.pd.Series([1.5, None, 2], dtype=object)
        rows = Table.of(frame)
        assert rows.names == tuple("abcde")
        nan = np.nan
        np.testing.assert_array_equal(rows.values, [[1, 1, 0.5, 1, 1.5], [2, 0, nan, nan, nan], [4, 1, 2, 3, 2]])

    def test_a_table_with_the_site_of_each_row(self):
        frame = self.pd.DataFrame(X, columns=list(NAMES))
        mixed = np.random.default_rng(0).permutation(60)
        kinds = (["west", "east"], [10, 9], [1234567, 89], [True, False])
        for whose in (np.repeat(kind, 30) for kind in kinds):
            parts = from_frame(frame.assign(site=whose).iloc[mixed], by="site")
            result = simulate("krylov", parts, n_components=3)
            is_pooled_by_name(result, NAMES)
            assert result.site_names == {i: str(name) for i, name in enumerate(np.unique(whose))}
            assert [len(part) for part in parts] == [30, 30]
        noted = frame.assign(site=np.repeat(["west", "east"], 30), note="x")
        is_pooled_by_name(simulate("krylov", from_frame(noted, by="site"), n_components=2, columns=NAMES), NAMES)
        given = named_rows(np.hstack([X, np.repeat([[7.0], [5.0]], 30, axis=0)]), range(5), (*NAMES, "site"))
        assert [part.site for part in from_frame(given, by="site")] == ["5", "7"]
        kinds = self.pd.Categorical(np.repeat(["west", "east"], 30))
        assert [part.site for part in from_frame(frame.assign(site=kinds), by="site")] == ["east", "west"]


class Series:
    """A column as polars has it: an array, and the name of its type."""

    def __init__(self, values):
        self.values, self.dtype = values, str(values.dtype)

    def to_numpy(self):
        return self.values


class OtherFrame:
    """A data frame that is not of pandas: names, columns by name, and its own arrays."""

    def __init__(self, columns):
        self.data = {name: Series(np.asarray(values)) for name, values in columns.items()}
        self.columns = list(columns)

    def __getitem__(self, name):
        return self.data[name]

    def to_numpy(self):
        return np.column_stack([series.values for series in self.data.values()])


def test_frames_of_other_packages_by_their_own_arrays():
    frames = [OtherFrame(dict(zip(s.names, s.values.T, strict=True))) for s in named_shards()]
    is_pooled_by_name(simulate("krylov", frames, n_components=3), SORTED)
    whole = OtherFrame({**dict(zip(NAMES, X.T, strict=True)), "site": np.repeat(["b", "a"], 30)})
    result = simulate("krylov", from_frame(whole, by="site"), n_components=3)
    is_pooled_by_name(result, NAMES)
    assert result.site_names == {0: "a", 1: "b"}


def test_an_npz_may_name_its_columns(tmp_path):
    for name in ("feature_names", "columns"):
        np.savez(tmp_path / "x.npz", X=X, **{name: np.array(NAMES)})
        is_pooled_by_name(simulate("krylov", [sources.make(str(tmp_path / "x.npz"))], n_components=2), NAMES)


def test_a_table_is_picked_by_name(tmp_path):
    np.savez(tmp_path / "x.npz", X=X, columns=np.array(NAMES))
    found = sources.table(str(tmp_path / "x.npz"), columns=["size", "age"])
    assert found.names == ("size", "age")
    np.testing.assert_array_equal(found.rows, X[:, [2, 1]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "columns"), paired(registry.ALGORITHMS, [None, tuple(f"c{j}" for j in (5, 2, 0, 3, 1))])
)
def test_every_algorithm_matches_by_name(name, columns):
    """The bits of plain rows whose columns are in that order, for the result, for new rows and for what is kept."""
    rows, names = falling(90, 6, seed=2), [f"c{j}" for j in range(6)]
    parts = [rows[:40], rows[40:70], rows[70:]]
    orders = [np.random.default_rng(i).permutation(6) for i in range(3)]
    given = [Table(part[:, order], tuple(names[j] for j in order)) for part, order in zip(parts, orders, strict=True)]
    index = [names.index(name) for name in columns or names]
    stopping = {"max_rounds": 3} if issubclass(registry.ALGORITHMS[name], Iterative) else {}
    found = simulate(name, given, n_components=2, columns=columns, **stopping)
    plain = simulate(name, [part[:, index] for part in parts], n_components=2, **stopping)
    for field in ("components_", "explained_variance_", "mean_"):
        np.testing.assert_array_equal(getattr(found, field), getattr(plain, field))
    assert found.local.keys() == plain.local.keys()
    for client, own in plain.local.items():
        for kind, array in own.items():
            np.testing.assert_array_equal(found.local[client][kind], array)
    np.testing.assert_array_equal(found.transform(given[1]), plain.transform(parts[1][:, index]))


def named_batches(order, names=NAMES, rows=X):
    return [named_rows(rows[i : i + 15], order, names) for i in range(0, len(rows), 15)]


class TestStreams:
    rows = np.random.default_rng(3).standard_normal((60, 2)) @ np.random.default_rng(4).standard_normal((2, 4))

    def of(self, *orders, **asked):
        streams = [named_batches(order, rows=self.rows + 0.01 * i) for i, order in enumerate(orders)]
        return track("st_miss", streams, n_components=2, **asked)

    def test_columns_are_matched_by_name(self, tmp_path):
        same = [self.of(*orders, mask=mask) for orders in (ORDERS, ORDERS[::-1]) for mask in (False, True)]
        one, masked = same[:2]
        assert one.feature_names_in_.tolist() == list(SORTED) == masked.feature_names_in_.tolist()
        index = [NAMES.index(name) for name in SORTED]
        plain = track("st_miss", [(self.rows + 0.01 * i)[:, index] for i in range(3)], n_components=2, batch=15)
        np.testing.assert_array_equal(one.components_, plain.components_)
        assert plain.feature_names_in_ is None
        loaded = TrackingResult.load(one.save(tmp_path / "result.npz"))
        assert loaded.feature_names_in_.tolist() == list(SORTED)
        new = named_rows(self.rows, ORDERS[1])
        np.testing.assert_array_equal(loaded.transform(new), plain.transform(self.rows[:, index]))
        np.testing.assert_array_equal(loaded.complete(new), plain.complete(self.rows[:, index]))

    def test_a_named_array_with_missing_values_is_cut(self):
        rows = np.where(np.random.default_rng(5).random(self.rows.shape) < 0.2, np.nan, self.rows)
        order = list(ORDERS[1])
        cut = Stream(named_rows(rows, order, site="east"), batch=15)
        found = track("st_miss", [cut], n_components=2)
        index = [NAMES.index(name) for name in SORTED]
        plain = track("st_miss", [Stream(rows[:, index], batch=15)], n_components=2)
        np.testing.assert_array_equal(found.components_, plain.components_)
        assert found.site_names == {0: "east"}
        assert found.feature_names_in_.tolist() == list(SORTED)

    @pytest.mark.parametrize("mask", [False, True])
    def test_a_run_may_name_its_columns(self, mask):
        wanted = ("size", "age", "weight")
        index = [NAMES.index(name) for name in wanted]
        noted = [
            dataclasses.replace(part, words={"note": "'x' in column note"})
            for part in named_batches(ORDERS[1], rows=self.rows)
        ]
        for streams in (
            [named_batches(ORDERS[2], rows=self.rows), noted],
            [Stream(named_rows(self.rows, ORDERS[1]), batch=15)] * 2,
        ):
            found = track("st_miss", streams, n_components=2, columns=wanted, mask=mask)
            plain = track("st_miss", [self.rows[:, index]] * 2, n_components=2, batch=15, mask=mask)
            # Under masks what is asked, names and all, seeds the noise that blurs the steps of fixed point.
            np.testing.assert_allclose(found.components_, plain.components_, rtol=0.0, atol=1e-12 if mask else 0.0)
            assert found.feature_names_in_.tolist() == list(wanted) == found.config["columns"]


WANTED = ("size", "age", "weight")


@pytest.mark.parametrize("kind", ["tall", "wide", "sparse", "large"])
@pytest.mark.parametrize("gaps", [False, True])
def test_statistics_of_columns_are_numbers_of_those_of_all(kind, gaps, monkeypatch):
    """An order of a server meets statistics, not rows: the numbers are picked, and none of them is computed anew."""
    rows = (X[:3] if kind == "wide" else X).copy()
    if kind == "wide":
        rows = rows[:, [0, 1, 2, 3] * 2] + np.arange(8.0)
    if gaps and kind != "large":
        rows[1, 0] = rows[2, 2] = np.nan
    names = NAMES if rows.shape[1] == 4 else tuple(f"{name}{i}" for i in (1, 2) for name in NAMES)
    wanted = WANTED if rows.shape[1] == 4 else tuple(f"{name}{i}" for i in (2, 1) for name in WANTED)
    values = sparse.csr_array(rows) if kind in ("sparse", "large") else rows
    if kind == "large":
        monkeypatch.setattr(statistics, "_LARGEST", 1)
    data = LocalData(Table(values, names), missing=True)
    view = data.in_frame(Frame(names=wanted))
    whole, picked = FixedData.of_rows(data, gaps=gaps), FixedData.of_rows(view, gaps=gaps)
    places = view.places
    if kind != "large":
        for name in ("mean", "seen", "peak", "m2", "rest"):
            np.testing.assert_array_equal(getattr(picked._stored, name), getattr(whole._stored, name)[places])
        found = picked._stored.scatter if picked._stored.factor is None else picked._stored.factor
        there = whole._stored.scatter if whole._stored.factor is None else whole._stored.factor
        assert set(found.ravel().tolist()) <= set(there.ravel().tolist())
    frame = Frame(mean=np.arange(len(wanted)) * 0.1, fill=np.ones(len(wanted)) if gaps else None, names=wanted)
    index, Z = [names.index(name) for name in wanted], np.random.default_rng(0).standard_normal((len(wanted), 2))
    filled = np.where(np.isnan(rows[:, index]), 1.0, rows[:, index]) - frame.mean
    answer = FixedData.of_rows(data.in_frame(frame), gaps=gaps)
    np.testing.assert_allclose(answer.matmat(Z), filled.T @ (filled @ Z), rtol=1e-6)
    np.testing.assert_allclose(answer.squared_error(np.linalg.qr(Z)[0]), _error(filled, np.linalg.qr(Z)[0]), rtol=1e-6)
    assert (data.all_columns, data.places, view.all_columns) == (data, None, data)


def _error(rows, Z):
    return np.sum((rows - rows @ Z @ Z.T) ** 2)
