"""Hints: about a column that numbers the rows, and about columns in different units."""

import json

import numpy as np
import pytest
from builders import mixed
from fake_grid import grid_of
from sklearn.datasets import load_digits, load_iris
from test_cli import flower_pca

from flower_pca import PCAResult, simulate
from flower_pca.strategies import PCAStrategy

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((300, 4)) * [3.0, 2.0, 1.5, 1.0] + [50.0, 20.0, 5.0, 0.0]
HEAD = "age,bmi,glucose,score"


def with_column(values, place=1):
    return np.insert(ROWS, place, values, axis=1)


def shards(table):
    return [table[:120], table[120:200], table[200:]]


IDS = RNG.permutation(np.arange(1000, 1300))
ALONE = "Column 1 alone has 99.80% of the variance, so component 1 is that column. "
NUMBERS = "It holds whole numbers, no two alike, as an identifier does: leave it out."
UNITS = 'Leave it out if it numbers the rows, or use scale="std" if it is measured in other units than the rest.'


def test_a_column_that_numbers_the_rows_is_hinted_at():
    result = simulate("krylov", shards(with_column(IDS)), n_components=2)
    assert result.hints == (ALONE + NUMBERS,)
    own = with_column(np.concatenate([np.arange(n) for n in (120, 80, 100)]) * 10.0)  # each client counts its own
    (hint,) = simulate("krylov", shards(own), n_components=2).hints
    assert NUMBERS in hint


@pytest.mark.parametrize("values", [IDS + 0.5, np.repeat(IDS[:150], 2)], ids=["no whole numbers", "pairs"])
def test_a_column_alone_that_does_not_is_hinted_at_for_its_size(values):
    (hint,) = simulate("krylov", shards(with_column(values)), n_components=2).hints
    assert hint.endswith(f"so component 1 is that column. {UNITS}")


def test_columns_of_very_different_size_are_hinted_at():
    rows = np.hstack([ROWS * [1.0, 1.0, 300.0, 400.0], ROWS[:, ::-1]])
    (hint,) = simulate("krylov", shards(rows), n_components=2).hints
    assert hint.startswith("Columns differ much in size: Column 2 has a deviation of ")
    assert hint.endswith('Use scale="std" if they are measured in different units.')


QUIET = {
    "rows of one unit": (shards(ROWS), {}),
    "iris": (shards(load_iris().data[np.argsort(IDS[:150])].repeat(2, axis=0)), {}),
    "digits, with columns that hardly vary": (np.array_split(load_digits().data, 3), {}),
    "unlike clients": (mixed(0).shards, {}),
    "an identifier, scaled": (shards(with_column(IDS)), {"scale": "std"}),
    "a single column": ([ROWS[:, :1]], {"n_components": 1}),
    "noise": (
        shards(with_column(IDS)),
        {"algorithm": "ssi(max_rounds=2)", "dp": "dp(epsilon=1.0, delta=1e-6, clip=10.0)"},
    ),
}


@pytest.mark.parametrize("case", QUIET)
def test_there_is_nothing_to_say_of_other_rows(case):
    tables, settings = QUIET[case]
    assert simulate(**{"algorithm": "krylov", "n_components": 2, **settings}, shards=tables).hints == ()


@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("mask", [False, True])
def test_nodes_and_masks_make_the_same_hint_without_a_look_at_rows(mask, lines):
    tables = shards(with_column(IDS))
    result = PCAStrategy("krylov", n_components=2, min_nodes=3, mask=mask).fit(grid_of(tables))
    assert result.hints == (ALONE + UNITS,)
    assert result.hints[0] in lines
    if mask:
        assert simulate("krylov", tables, n_components=2, mask=True).hints == (ALONE + NUMBERS,)


@pytest.mark.slow
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
