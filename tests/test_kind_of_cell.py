"""Test how messages describe a cell that is no number: by its kind, never by its content."""

import datetime

import numpy as np
import pandas as pd
import pytest

from flower_pca import DataError
from flower_pca.base.shown import kind_of_cell
from flower_pca.data import sources

KINDS = {
    "Müller": "a text of 6 letters",
    "x": "a text of 1 letter",
    "Anna Müller": "a text of 11 characters",
    "3,14": "a number with a comma",
    "1.234,5": "a number with separators of thousands",
    "1 234": "a number with separators of thousands",
    "1\u00a0234\u202f567,5": "a number with separators of thousands",
    "80 kg": "a number with a unit",
    "5,2mmol/l": "a number with a unit",
    "12 %": "a number with a percent sign",
    "<5": "a number after a sign such as <",
    "120/80": "two numbers",
    "01.02.1950": "a date",
    "1950-02-01 08:15": "a date",
    "8:15": "a time of day",
    "0": "a number in an unknown form",
    "-12.5": "a number in an unknown form",
    "12.34,5": "a number in an unknown form",
    "#DIV/0!": "an error of a spreadsheet",
    "": "a text of 0 characters",
    datetime.date(1950, 2, 1): "a value of type date",
}


@pytest.mark.parametrize(("cell", "kind"), KINDS.items())
def test_a_cell_is_described_by_its_kind(cell, kind):
    assert kind_of_cell(cell) == kind


def lines_of_numbers():
    rows = np.random.default_rng(0).normal(80.0, 12.0, (40, 3)).round(1)
    return [",".join(map(str, row)) for row in rows.tolist()]


def test_a_second_line_of_names_is_to_be_removed(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["age,weight,glucose", "years,kg,mg/dl", *lines_of_numbers()]))
    with pytest.raises(DataError, match=r"Remove line 2 if it holds names or units\. Correct these cells"):
        sources.table(str(path)).whole()


def test_units_are_to_be_removed_from_cells(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["age,weight,glucose,size", *(f"{line},180 cm" for line in lines_of_numbers())]))
    with pytest.raises(DataError, match=r"a number with a unit in column size \(line 2\)\. Remove the units, so that"):
        sources.table(str(path)).whole()


@pytest.mark.parametrize("cell", ["3,14", "1.234,5"])
def test_a_spreadsheet_is_not_to_be_read_with_marks_that_it_has_not(tmp_path, cell):
    """`excel` has no decimal, and a folder ignores it for spreadsheets, so this advice would lead back to the error."""
    path = tmp_path / "sites" / "a.xlsx"
    path.parent.mkdir()
    pd.DataFrame({"age": [60.0, 51.0, 77.0], "hb": [cell, "5,2", "6,1"]}).to_excel(path, index=False)
    for spec in (str(path), str(path.parent)):
        with pytest.raises(
            DataError, match=r"Turn these cells from text into numbers in the program that wr"
        ) as refused:
            sources.table(spec, columns=["age", "hb"]).whole()
        assert "decimal=" not in str(refused.value)
        assert "thousands=" not in str(refused.value)


@pytest.mark.parametrize("sign", [" %", "%", " g/dl"])
def test_decimals_before_a_sign_are_not_called_thousands(tmp_path, sign):
    """Whoever reads "13.543 g/dl" with thousands="." gets 13543 once the unit is removed."""
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["age,weight,glucose,hb", *(f"{line},13.543{sign}" for line in lines_of_numbers())]))
    with pytest.raises(DataError, match=r"Remove the (percent signs|units), so that the cells hold numbers") as refused:
        sources.table(str(path)).whole()
    assert "thousands" not in str(refused.value)


def test_a_remark_that_fills_the_line_of_one_person_is_not_shown(tmp_path):
    lines = [line.split(",") * 2 for line in lines_of_numbers()]
    lines[7] = ["Anna withdrew"] * 6
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["a,b,c,d,e,f", *map(",".join, lines)]))
    with pytest.raises(DataError, match=r"a text of 13 characters in column a \(line 9\)") as raised:
        sources.table(str(path)).whole()
    assert "Anna" not in str(raised.value)
