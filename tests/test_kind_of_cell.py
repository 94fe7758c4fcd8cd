"""Test how messages describe a cell that is no number: by its kind, never by its content."""

import datetime

import pytest

from flower_pca.base.shown import kind_of_cell

KINDS = {
    "Müller": "a text of 6 letters",
    "x": "a text of 1 letter",
    "Anna Müller": "a text of 11 characters",
    "3,14": "a number with a comma",
    "1.234,5": "a number with separators of thousands",
    "1 234": "a number with separators of thousands",
    "80 kg": "a number with a unit",
    "5,2mmol/l": "a number with a unit",
    "12 %": "a number with a percent sign",
    "<5": "a number after a sign such as <",
    "120/80": "two numbers",
    "01.02.1950": "a date",
    "1950-02-01 08:15": "a date",
    "8:15": "a time of day",
    "12.34,5": "a number in an unknown form",
    "#DIV/0!": "an error of a spreadsheet",
    "": "a text of 0 characters",
    datetime.date(1950, 2, 1): "a value of type date",
}


@pytest.mark.parametrize(("cell", "kind"), KINDS.items())
def test_a_cell_is_described_by_its_kind(cell, kind):
    assert kind_of_cell(cell) == kind
