"""Test columns, and combinations of columns, in which few rows differ: an honest sum would be about these few rows."""

import itertools

import numpy as np
import pandas as pd
import pytest
from dishonest import Node, RefusedError, Sums, signed
from scipy import sparse

from flower_pca.clients import Rules
from flower_pca.clients.policy import small_cells
from flower_pca.names.table import Table
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData

pytestmark = pytest.mark.usefixtures("home")

D, N = 6, 200
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D))
NAMES = tuple("abcdef")
LEAST = {"min_rows": 50}


def with_third_column(values):
    rows = X.copy()
    rows[:, 2] = values
    return rows


def first(count, value=1.0, others=0.0):
    return np.where(np.arange(N) < count, value, others)


COLUMNS = {  # the values of a column, and whether it reveals fewer than 50 rows
    "a constant": (first(0), False),
    "a rare code": (first(1), True),
    "a code of 49": (first(49), True),
    "a code of 50": (first(50), False),
    "half of them": (first(100), False),
    "all but one": (first(N - 1), True),
    "one value": (first(1, 7.25, np.nan), True),
    "no value": (first(0, 1.0, np.nan), False),
    "fifty values": (np.where(np.arange(N) < 50, RNG.standard_normal(N), np.nan), False),
    "three far from a constant": (first(3, 1e6, 5.0), True),
    "many values": (RNG.integers(0, 9, N).astype(float), False),
}


@pytest.mark.parametrize("how", COLUMNS)
@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array, lambda X: X.astype(np.float32)])
@pytest.mark.parametrize("at", [0, 1])
def test_a_column_that_tells_of_few_rows_is_refused_by_name_to_the_operator_alone(how, store, at, caplog):
    values, rare = COLUMNS[how]
    rows = with_third_column(values)[:: (1, -1)[at]]
    asked = {"stage": "opening", "arrays": {"peaks": False, "seed": 1, "width": 1}, "algorithm": "krylov"}
    rules = dict(LEAST)
    if not np.isfinite(values).all():
        asked["arrays"]["gaps"], rules["missing"] = True, "mean"
    node = Node(0, Table(store(rows), NAMES) if at else store(rows), **rules)
    if not rare:
        assert node.ask(**asked)["n"] == N
        return
    with pytest.raises(RefusedError, match="A column of this node reveals fewer rows than its min_rows") as said:
        node.ask(**asked)
    assert "column c" not in str(said.value)
    assert "column 2" not in str(said.value)
    assert ("c" if at else "column 2") in caplog.text
    Node(0, rows, min_rows=50, allow_sparse_columns=True).client.get_properties({})


def test_the_carrier_of_a_rare_code_is_not_told_under_masks(tmp_path):
    parts = [with_third_column(first(0)) for _ in "123"]
    parts[2] = with_third_column(first(1))
    nodes = signed(tmp_path, parts, min_peers=2, **LEAST)
    with pytest.raises(RefusedError, match="A column of this node reveals fewer rows"):
        Sums(nodes).product(np.eye(D)[:, 2:3])


def test_columns_that_the_operator_allows_are_answered_of():
    rows = Table(with_third_column(first(1)), NAMES)
    for allowed in ("c", "a, c", ["c"], True):
        assert Node(0, rows, allow_sparse_columns=allowed, **LEAST).ask("ssi", {"Z": np.eye(D)})["Y"].shape == (D, D)
    with pytest.raises(RefusedError, match="A column of this node"):
        Node(0, rows, allow_sparse_columns="a", **LEAST).ask("ssi", {"Z": np.eye(D)})


CODED = np.random.default_rng(1)
HALF, THIRD = (CODED.random(N) < 0.5) * 1.0, (CODED.random(N) < 0.35) * 1.0
STAGE = CODED.integers(0, 4, N) * 1.0
TENTH = np.random.default_rng(6).permutation(N) % 10  # ten codes with twenty rows each


def but_for(count, column, by=1.0):
    """A column with other values in so many rows, of those that are 1 if it is one of 0 and 1."""
    column = column.copy()
    places = np.flatnonzero(column > 0)[:count]
    column[places] = np.where(set(np.unique(column)) <= {0.0, 1.0}, 1.0 - column[places], column[places] + by)
    return column


TOGETHER = {  # columns of codes, and whether a combination of them reveals fewer than 20 rows
    "one of a code has not the other": ([HALF, but_for(1, HALF)], True),
    "nineteen have not": ([HALF, but_for(19, HALF)], True),
    "twenty have not": ([HALF, but_for(20, HALF)], False),
    "all have both": ([HALF, HALF], False),
    "one has both, all others one": ([HALF, but_for(1, 1.0 - HALF)], True),
    "codes that have nothing to do with each other": ([HALF, THIRD, STAGE], False),
    "a code in another unit, but for one": ([STAGE, but_for(1, 2.0 * STAGE + 5.0)], True),
    "a code in another unit": ([STAGE, 2.0 * STAGE + 5.0], False),
    "two codes and their sum, but for one": ([HALF, THIRD, but_for(1, HALF + THIRD)], True),
    "two codes and their sum": ([HALF, THIRD, HALF + THIRD], False),
    "all levels, and two of them together, but for three": (
        [*((level == STAGE) * 1.0 for level in range(4)), but_for(3, (STAGE >= 2) * 1.0)],
        True,
    ),
    "all levels, and two of them together": (
        [*((level == STAGE) * 1.0 for level in range(4)), (STAGE >= 2) * 1.0],
        False,
    ),
    **{
        f"all of ten levels, and {count} of them together, but for one": (
            [*((level == TENTH) * 1.0 for level in range(10)), but_for(1, (count > TENTH) * 1.0)],
            True,
        )
        for count in (2, 4, 7)
    },
    "a code and four times another, but for one": ([HALF, THIRD, but_for(1, HALF + 4.0 * THIRD)], True),
    "grades of ten levels, and the levels, but for one": (
        [but_for(1, TENTH * 1.0), *((level == TENTH) * 1.0 for level in range(10))],
        True,
    ),
    "many codes": ([(CODED.random(N) < 0.4) * 1.0 for _ in range(25)], False),
    "many grades": ([CODED.integers(1, 6, N) * 1.0 for _ in range(12)], False),
}


@pytest.mark.parametrize("how", TOGETHER)
@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
def test_a_combination_of_codes_that_tells_of_few_rows_is_refused(how, store, caplog):
    columns, tells = TOGETHER[how]
    rows = np.column_stack([X[:, :2], *columns])
    node = Node(0, store(rows), min_rows=20)
    Z = np.eye(rows.shape[1])
    if not tells:
        assert node.ask("ssi", {"Z": Z})["Y"].shape == Z.shape
        return
    with pytest.raises(RefusedError, match="A column of this node reveals fewer rows than its min_rows"):
        node.ask("ssi", {"Z": Z})
    assert " with column " in caplog.text  # No single column is named.
    every = ",".join(f"column {i}" for i in range(2, rows.shape[1]))
    assert Node(0, store(rows), min_rows=20, allow_sparse_columns=every).ask("ssi", {"Z": Z})["Y"].shape == Z.shape


def products_in(node, names, run):
    """What a run of these columns tells of the last one."""
    return node.ask("ssi", {"Z": np.eye(len(names))[:, -1:]}, Frame(names=names), run=run)["Y"]


@pytest.mark.parametrize("how", ["two codes", "two codes in turn", "three codes", "words"])
def test_two_runs_with_a_column_of_a_combination_each_tell_no_person(how, tmp_path):
    """The difference of the products with `dia`, in one run, and with `ins`, in another, was the row of one person."""
    rows = pd.DataFrame(X[:, :2], columns=["age", "bmi"]).assign(dia=HALF, ins=but_for(1, HALF))
    rules, one, other = {}, ("age", "bmi", "dia"), ("ins",)
    if how == "two codes in turn":
        rows = rows[["ins", "dia", "bmi", "age"]]
    if how == "three codes":
        rows = rows.assign(dia=HALF, hyp=THIRD, ins=but_for(1, HALF + THIRD))
    if how == "words":
        rows = rows.assign(kind=np.where(rows["ins"] > 0, "yes", "no")).drop(columns="ins")
        rules, other = {"categorical": "kind"}, ("kind=no", "kind=yes")
    node = Node(0, rows, memory_dir=tmp_path, **LEAST, **rules)
    told = products_in(node, one, "one")
    for names in (("age", "bmi", *other), (*one, *other), other):
        with pytest.raises(RefusedError, match="A column of this node"):
            products_in(node, names, str(names))
    np.testing.assert_array_equal(products_in(node, one, "another"), told)
    if how == "three codes":
        assert products_in(node, ("age", "bmi", "hyp"), "hyp").shape == (3, 1)


def test_without_one_column_of_a_pair_the_others_are_looked_at_together():
    """Of two pairs, and of a sum of three beside a pair, enough columns are in no run."""
    third, both = but_for(1, THIRD), but_for(2, HALF + THIRD)
    rows = Table(np.column_stack([X[:, :2], HALF, THIRD, third, both]), ("age", "bmi", "a", "b", "c", "d"))
    found = small_cells.revealing_columns(LocalData(rows), Rules(min_rows=20))
    assert found == {"c": "b with c", "d": "a with b with d"}


def test_pairs_are_found_as_by_hand():
    """Against every line through two cells of the cross table, counted row by row."""
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(200):
        kinds = rng.integers(2, 5, 2)
        a = rng.integers(0, kinds[0], 80) * 1.0
        b = np.where(rng.random(80) < 0.9, np.minimum(a, kinds[1] - 1), rng.integers(0, kinds[1], 80)) * 1.0
        if min(len(np.unique(a)), len(np.unique(b))) < 2:
            continue
        points = np.column_stack([a, b])
        few = False
        for i in range(80):
            off = (points - points[i]) @ np.array([[0.0, -1.0], [1.0, 0.0]]) @ (points - points[i]).T
            missed = np.count_nonzero(np.abs(off) > 1e-9, axis=0)
            others = np.any(points != points[i], axis=1)
            few |= bool(np.any((missed[others] > 0) & (missed[others] < 10)))
        mine = bool([*small_cells._collinear_pairs(points, 10)])
        single = any(np.unique(column, return_counts=True)[1].max() > 70 for column in (a, b))
        found += mine
        assert mine == few or single
    assert 20 < found < 180


def drawn_codes(rng):
    """Six columns of codes, the last of which is a sum of one, two or three others for all but some people."""
    while True:
        codes = [rng.integers(0, rng.integers(2, 5), N) * 1.0 for _ in range(5)]
        parts = rng.permutation(5)[: rng.integers(1, 4)]
        total = sum(rng.choice([-2.0, -1.0, 1.0, 2.0, 3.0]) * codes[i] for i in parts)
        values = np.unique(total)
        if len(values) <= 12:
            break
    for row in rng.permutation(N)[: rng.integers(1, 20)]:
        total[row] = rng.choice(values[values != total[row]])
    return np.column_stack([*codes, total])


def fewest_rows(codes):
    """The fewest people whom a sum of up to four of these columns tells apart from all others; N if it tells none."""
    fewest = N
    for some in itertools.chain.from_iterable(itertools.combinations(codes.T[::-1], k) for k in (1, 2, 3, 4)):
        for factors in itertools.product((-3.0, -2.0, -1.0, 1.0, 2.0, 3.0), repeat=len(some) - 1):
            total = some[0] + sum(factor * column for factor, column in zip(factors, some[1:], strict=True))
            counts = np.bincount((total - total.min()).astype(int))
            fewest = min(fewest, N - max(counts) or N)
    return fewest


@pytest.mark.slow
def test_random_columns_of_codes_give_no_sum_that_reveals_few_people(tmp_path):
    """Thirty tables: whatever columns a server asks for, one after the other, no sum of those it gets is of a few."""
    names = tuple("cafebd")
    for seed in range(30):
        codes = drawn_codes(np.random.default_rng(seed))
        node = Node(0, Table(np.column_stack([X[:, :1], codes]), ("age", *names)), profile="open", memory_dir=tmp_path)
        told = []
        for name in names:
            try:
                products_in(node, ("age", name), f"{seed} {name}")
                told.append(names.index(name))
            except RefusedError:
                continue
        assert fewest_rows(codes) < 20
        assert len(told) >= 4
        assert fewest_rows(codes[:, told]) >= 20, seed


# the number of rows with a missing value in only one of two columns, and whether this reveals fewer than 20 rows
GAPS = {
    "one has no gap in the other": (1, True),
    "nineteen have none": (19, True),
    "twenty have none": (20, False),
    "all have both": (0, False),
}


def sum_of_gaps(node, names, column, width):
    """The sum of the rows with a gap in a column, by the products with two fills of it."""
    fills = (np.zeros(len(names)), np.eye(len(names))[names.index(column)])
    frames = (Frame(mean=np.zeros(len(names)), fill=fill, names=names) for fill in fills)
    one, other = (node.ask("ssi", {"Z": np.eye(len(names))}, frame, run=f"{fill}") for fill, frame in enumerate(frames))
    return (other["Y"] - one["Y"])[names.index(column), :width]


@pytest.mark.parametrize("how", GAPS)
def test_a_person_in_whom_the_gaps_of_two_columns_differ_is_not_revealed(how):
    """If the server chooses what stands for gaps; two such sums differ by whoever has one gap only."""
    count, tells = GAPS[how]
    rows = pd.DataFrame(X[:, :4].copy(), columns=["age", "bmi", "chol", "hb"])
    rows.loc[HALF > 0, "chol"] = np.nan
    rows.loc[but_for(count, HALF) > 0, "hb"] = np.nan
    node = Node(0, rows, min_rows=20, missing="mean")
    names = ("age", "bmi", "chol")
    told = sum_of_gaps(node, names, "chol", 2)
    np.testing.assert_allclose(told, X[HALF > 0, :2].sum(axis=0))
    others = ("age", "bmi", "hb")
    if tells:
        with pytest.raises(RefusedError, match="A column of this node"):
            sum_of_gaps(node, others, "hb", 2)
        filled = Node(0, rows, min_rows=20).ask("ssi", {"Z": np.eye(3)}, Frame(own=True, names=others))["Y"]
        assert filled.shape == (3, 3)
        return
    np.testing.assert_allclose(sum_of_gaps(node, others, "hb", 2), X[but_for(count, HALF) > 0, :2].sum(axis=0))


@pytest.mark.parametrize("missing", ["local_mean", "mean"])
@pytest.mark.parametrize("gaps", [1, 30, 120])
def test_people_without_either_of_two_codes_do_not_hide_the_person_in_whom_they_differ(gaps, missing):
    """Means replace their values, and are nearly alike. So the difference of the columns was nearly that person."""
    rows = pd.DataFrame(X[:, :2], columns=["age", "bmi"]).assign(dia=HALF, ins=but_for(1, HALF))
    rows.loc[N - gaps :, ["dia", "ins"]] = np.nan
    found = small_cells.revealing_columns(LocalData(Table.of(rows), missing=True), Rules(min_rows=20, missing=missing))
    assert found["ins"] == "dia with ins"


def test_gaps_of_all_people_with_a_code_except_one_reveal_nobody(caplog):
    rows = pd.DataFrame(X[:, :2], columns=["age", "bmi"]).assign(
        dia=HALF, hb=np.where(but_for(1, HALF) > 0, np.nan, X[:, 2])
    )
    node = Node(0, rows, min_rows=20, missing="mean")
    with pytest.raises(RefusedError, match="A column of this node"):
        sum_of_gaps(node, ("age", "bmi", "hb"), "hb", 2)
    assert "dia with the missing values of hb" in caplog.text


def test_a_table_of_very_many_codes_says_that_combinations_are_not_looked_at(caplog):
    """Columns by themselves are; and one column less is a table whose combinations are looked at."""
    rng = np.random.default_rng(4)
    rows = (rng.random((N, small_cells.MOST + 1)) < 0.5) * 1.0
    rows[:, 1] = but_for(1, rows[:, 0])
    names = tuple(f"{i:04d}" for i in range(small_cells.MOST + 1))
    rules = Rules(min_rows=20)
    assert small_cells.revealing_columns(LocalData(Table(rows[:, :-1], names[:-1])), rules) == {
        "0001": "0000 with 0001"
    }
    assert "not check combinations" not in caplog.text
    assert small_cells.revealing_columns(LocalData(Table(rows, names)), rules) == {}
    assert "This node has 2001 columns of codes. With more than 2000, it does not check combinations" in caplog.text
    rows, names = np.column_stack([rows, first(1)]), (*names, "rare")
    assert small_cells.revealing_columns(LocalData(Table(rows, names)), rules) == {"rare": "rare"}


@pytest.mark.parametrize("columns", [50, 51])
def test_in_few_rows_the_log_says_that_few_combinations_are_found(columns, caplog):
    rows = (np.random.default_rng(7).random((100, columns)) < 0.5) * 1.0
    small_cells.revealing_columns(LocalData(rows), Rules(min_rows=20))
    said = f"This node has {columns} columns of codes and only 100 rows. In so few rows it finds few combinations"
    assert (said in caplog.text) == (columns > 50)


def test_a_person_in_whom_two_codes_differ_is_not_told_under_masks(tmp_path):
    """Of 60 with diabetes 59 take insulin, at one site of three."""
    parts = [np.column_stack([X[:, :4], HALF, HALF]) for _ in "123"]
    parts[2][np.flatnonzero(HALF)[0], 5] = 0.0
    nodes = signed(tmp_path, parts, min_peers=2, min_rows=20)
    with pytest.raises(RefusedError, match="A column of this node"):
        Sums(nodes).product(np.eye(D)[:, 4:])


def test_what_was_found_is_kept_for_the_next_process_and_for_these_rows_and_rules_only(tmp_path, monkeypatch):
    looked = []
    rare = small_cells._rare_columns
    monkeypatch.setattr(small_cells, "_rare_columns", lambda data, least: looked.append(least) or rare(data, least))
    rng = np.random.default_rng(5)
    plain = rng.standard_normal((100, 3))
    few = np.c_[plain, np.arange(100) < 3]

    runs = itertools.count()

    def words(rows, **rules):
        node = Node(0, rows, memory_dir=tmp_path, **{"min_rows": 20, **rules})
        try:
            return node.ask("ssi", {"Z": np.eye(rows.shape[1])[:, :1]}, run=f"{next(runs)}")["Y"].shape
        except RefusedError as refusal:
            return str(refusal)

    for rows, said in ((plain, (3, 1)), (few, words(few))):
        for _ in "12":
            assert words(rows) == said
    assert looked == [20, 20]
    assert words(few, min_rows=2) == (4, 1)
    assert words(few, allow_sparse_columns=True) == (4, 1)
    assert words(np.c_[plain, np.arange(100) < 4]) == said
    assert looked == [20, 20, 2, 20]
    (tmp_path / "flower_pca-cells-0.npz").write_bytes(b"damaged")
    assert words(few) == said
    assert len(looked) == 5
