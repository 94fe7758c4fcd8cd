"""Hints: about a column that numbers the rows, and about columns in different units."""

import json

import numpy as np
import pytest
from builders import mixed
from cases import every
from fake_grid import FakeGrid, grid_of
from flwr.app import Context, RecordDict
from pages import flower_pca
from sklearn.datasets import load_digits, load_iris

from flower_pca import PCAResult, Table, clients, simulate
from flower_pca.hints.large import _Extremes
from flower_pca.names.identifiers import is_called_identifier
from flower_pca.strategies import PCAStrategy

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((300, 4)) * [3.0, 2.0, 1.5, 1.0] + [50.0, 20.0, 5.0, 0.0]
HEAD = "age,bmi,glucose,score"


def about_columns(result):
    """The hints that are not about sites: the sites of these tables differ, and a hint rightly says so."""
    return [hint for hint in result.hints if "between sites" not in hint]


def with_column(values, place=1):
    return np.insert(ROWS, place, values, axis=1)


def three_parts(table):
    return [table[:120], table[120:200], table[200:]]


IDS = RNG.permutation(np.arange(1000, 1300))
ALONE = "Column 1 alone has 99.80% of the variance, so component 1 is that column. "
NUMBERS = "It holds whole numbers, all different, like an identifier. Leave it out."
UNITS = 'Leave it out if it numbers the rows, or use scale="std" if its unit differs from the other columns.'


def test_a_column_that_numbers_the_rows_is_hinted_at():
    result = simulate("krylov", three_parts(with_column(IDS)), n_components=2)
    assert result.hints == (ALONE + NUMBERS,)
    # Each client numbers its own rows.
    own = with_column(np.concatenate([np.arange(n) for n in (120, 80, 100)]) * 10.0)
    (hint,) = simulate("krylov", three_parts(own), n_components=2).hints
    assert NUMBERS in hint


def test_without_centering_a_column_is_as_large_as_its_squares():
    table = with_column(IDS)
    squares = np.sum(table**2, axis=0)
    result = simulate("krylov", three_parts(table), n_components=2, center=False)
    share = f"Column 1 alone has {squares[1] / squares.sum():.2%} of the variance, so component 1 is that column. "
    assert share + NUMBERS in result.hints


@pytest.mark.parametrize("values", [IDS + 0.5, np.repeat(IDS[:150], 2)], ids=["no whole numbers", "pairs"])
def test_a_column_alone_that_does_not_is_hinted_at_for_its_size(values):
    (hint,) = simulate("krylov", three_parts(with_column(values)), n_components=2).hints
    assert hint.endswith(f"so component 1 is that column. {UNITS}")


def test_columns_of_very_different_size_are_hinted_at():
    rows = np.hstack([ROWS * [1.0, 1.0, 300.0, 400.0], np.roll(ROWS, 1, axis=0)[:, ::-1]])
    (hint,) = simulate("krylov", three_parts(rows), n_components=2).hints
    assert hint.startswith("Columns differ much in size: column 2 has a standard deviation of ")
    assert hint.endswith('Use scale="std" if they are measured in different units.')


QUIET = {
    "rows of one unit": (three_parts(ROWS), {}),
    "iris": (np.array_split(load_iris().data[np.argsort(IDS[:150])], 3), {}),
    "digits, with columns that hardly vary": (np.array_split(load_digits().data, 3), {}),
    "unlike clients": (mixed(0).shards, {}),
    "a single column": ([ROWS[:, :1]], {"n_components": 1}),
}


@pytest.mark.slow
@every("case", QUIET)
def test_ordinary_rows_give_no_hint(case):
    tables, settings = QUIET[case]
    assert about_columns(simulate(**{"algorithm": "krylov", "n_components": 2, **settings}, shards=tables)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("mask", [False, True])
def test_nodes_and_masks_make_the_same_hint_without_a_look_at_rows(mask, lines):
    tables = three_parts(with_column(IDS))
    result = PCAStrategy("krylov", n_components=2, min_nodes=3, mask=mask).fit(grid_of(tables))
    assert result.hints == (ALONE + UNITS,)
    assert result.hints[0] in lines
    if mask:
        assert simulate("krylov", tables, n_components=2, mask=True).hints == (ALONE + NUMBERS,)


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_hints_are_saved_and_shown_with_the_names_of_columns(tmp_path, capsys):
    np.savetxt(tmp_path / "x.csv", with_column(IDS), delimiter=",", header=HEAD.replace("bmi", "id,bmi"), comments="")
    out = tmp_path / "out"
    code, said, _ = flower_pca(capsys, "run", tmp_path / "x.csv", "--clients", 3, "--out", out)
    assert code == 0
    (hint,) = PCAResult.load(out / "result.npz").hints
    assert hint.startswith("Column id alone has 99.80% of the variance")
    assert "hint: Column id alone" in said
    assert "hint: Column id alone" in flower_pca(capsys, "show", out / "result.npz")[1]
    assert json.loads(flower_pca(capsys, "show", out / "result.npz", "--json")[1])["hints"] == [hint]


WHY = {
    "counted": "Column {} holds whole numbers, all different, which are consecutive. If it numbers the rows",
    "called": "Column {} holds whole numbers, all different, and its name looks like an identifier. If it numbers",
}
COUNTED = {
    "of all rows, shuffled": IDS,
    "of each site": np.concatenate([np.arange(n) for n in (120, 80, 100)]),
    "of all rows, small": np.arange(1, 301),
}


def named_sites(name, values):
    table = with_column(values)
    table[:, [0, 2]] *= 100.0  # The column then has little of the variance.
    return [Table(part, ("age", name, "bmi", "glucose", "score")) for part in three_parts(table)]


@pytest.mark.parametrize("settings", [{}, {"scale": "std"}, {"columns": ["glucose", "serial", "bmi"]}], ids=str)
@pytest.mark.parametrize("case", COUNTED)
def test_a_column_that_goes_up_by_one_is_hinted_at_whatever_its_size(case, settings):
    result = simulate("krylov", named_sites("serial", COUNTED[case]), n_components=2, **settings)
    assert any(hint.startswith(WHY["counted"].format("serial")) for hint in result.hints), result.hints


@pytest.mark.slow
def test_a_column_that_is_called_an_identifier_is_hinted_at():
    values = RNG.choice(np.arange(1000, 9000), 300, replace=False)
    for name in (
        "id",
        "MRN",
        "patient_id",
        "PatientID",
        "Patient Nr.",
        "record no",
        "Unnamed: 0",
        "Fallnummer",
        "subject",
    ):
        (hint,) = about_columns(simulate("krylov", named_sites(name, values), n_components=2, scale="std"))
        assert hint.startswith(WHY["called"].format(name))


@every("name", ["visits", "platelets", "number of cells", "covid", "paid", "sample_count", "no"])
def test_columns_with_ordinary_names_are_no_identifiers(name):
    assert not is_called_identifier(name)
    values = RNG.choice(np.arange(1000, 9000), 300, replace=False)
    assert about_columns(simulate("krylov", named_sites(name, values), n_components=2, scale="std")) == []


ORDINARY = {
    "ages": RNG.integers(18, 90, 300),
    "a pair": np.r_[np.arange(299), 5],
    "a gap in the numbers": np.r_[np.arange(299), 400],
    "halves": np.arange(300) + 0.5,
    "years, of which some come twice": np.repeat(np.arange(150), 2),
}


@every("case", ORDINARY)
def test_ordinary_whole_numbers_are_no_identifiers(case):
    for name in ("visits", "id") if case in ("ages", "halves") else ("visits",):
        assert about_columns(simulate("krylov", named_sites(name, ORDINARY[case]), n_components=2, scale="std")) == []


@pytest.mark.parametrize("name", ["id", "visits"])
def test_a_gap_hides_no_identifier_that_is_called_so(name):
    values = 7.0 * np.arange(300) + 3.0
    values[[7, 250]] = np.nan
    hints = about_columns(simulate("krylov", named_sites(name, values), n_components=2, scale="std", missing="mean"))
    assert ["its name looks like an identifier" in hint for hint in hints] == [True] * (name == "id")


def test_few_rows_and_noise_say_nothing():
    few = [Table(np.column_stack([np.arange(19), ROWS[:19]]), ("id", *"abcd"))]
    assert simulate("krylov", few, n_components=2, scale="std").hints == ()
    noise = {"algorithm": "ssi(max_rounds=2)", "dp": "dp(epsilon=1.0, delta=1e-6, clip=10.0)"}
    assert simulate(**noise, shards=named_sites("id", np.arange(300)), n_components=2).hints == ()


def test_a_node_says_so_in_its_own_log_and_tells_no_server(lines):
    app = clients.client_app(lambda context: named_sites("id", np.arange(300))[context.node_config["partition-id"]])
    grid = FakeGrid(app, 3)
    for i, context in enumerate(grid.nodes.values()):
        context.node_config = {"partition-id": i}
    result = PCAStrategy("krylov", n_components=2, min_nodes=3, scale="std").fit(grid)
    said = "Of this node's rows: " + WHY["counted"].format("id")
    assert sum(line.startswith(said) for line in lines) == 3
    assert about_columns(result) == []


def test_a_node_says_so_once_in_a_run_though_every_message_has_a_process_of_its_own(lines):
    """To look through the rows takes longer than to answer."""
    states = {}

    def anew(message, context):
        app = clients.client_app(lambda context: named_sites("id", np.arange(300))[0])
        own = Context(context.run_id, context.node_id, {}, states.setdefault(context.node_id, RecordDict()), {})
        return app(message, own)

    grid = FakeGrid(anew, 2)
    PCAStrategy("ssi(max_rounds=3, tol=0.0)", n_components=2, scale="std").fit(grid)
    assert len(grid.sent) > 4
    assert sum(line.startswith("Of this node's rows: ") for line in lines) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_the_command_prints_the_hint(tmp_path, capsys):
    table, head = with_column(IDS / 1.0) * [9, 1, 9, 9, 9], "age,id,bmi,glucose,score"
    np.savetxt(tmp_path / "x.csv", table, delimiter=",", header=head, comments="")
    _, said, _ = flower_pca(capsys, "run", tmp_path / "x.csv", "--scale", "std", "--out", tmp_path / "out")
    assert f"hint: {WHY['counted'].format('id')}, leave it out: name the other columns with --columns a,b.\n" in said


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("of", [np.fmin, np.fmax])
def test_extremes_of_columns_are_those_of_all_blocks_together(of, order):
    rows = np.random.default_rng(4).standard_normal((150, 3))
    rows[::7, 0] = rows[:, 2] = np.nan
    found = _Extremes(of, 3)
    for start, end in ((0, 5), (5, 5), (5, 21), (21, 121), (121, 150)):
        found.add(np.array(rows[start:end], order=order))
    np.testing.assert_array_equal(found.by_column, of.reduce(rows, axis=0))
