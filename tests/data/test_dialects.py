"""Test dialects of text files: thousands marks, words for true and false, and what is ignored."""

import numpy as np
import pytest
from pages import flower_pca

from flower_pca import DataError, PCAResult
from flower_pca.data.sources import make, parties, table

RNG = np.random.default_rng(0)
ROWS = np.round(RNG.standard_normal((30, 3)) * 900.0, 2)


def english(value):
    return f"{value}"


def german_number(value):
    return f"{value:,}".translate(str.maketrans(",.", ".,"))


def write_lines(path, head, rows, sep=",", number=english, above=""):
    lines = [sep.join(head), *(sep.join(map(number, row)) for row in rows.tolist())]
    path.write_text(above + "\n".join(lines) + "\n", encoding="utf-8")
    return path


DIALECTS = {
    "commas": {},
    "German": {"sep": ";", "number": german_number},
    "Excel's line": {"sep": ";", "number": german_number, "above": "sep=;\n"},
    "tabs": {"sep": "\t"},
    "Excel's line with bars": {"sep": "|", "above": '"sep=|"\n'},
}


def test_every_file_of_a_folder_has_its_own_dialect(tmp_path):
    for i, (name, dialect) in enumerate(DIALECTS.items()):
        write_lines(tmp_path / f"{i} {name}.csv", ["a", "b", "c"], ROWS, **dialect)
    found = table(str(tmp_path))
    assert found.names == ("a", "b", "c")
    assert all(np.array_equal(part, ROWS) for part in found.parts)
    assert found.origin.place_of_row(2 * 30) == f"line 3 of {tmp_path}/2 Excel's line.csv"


MARKS = {
    "points": ("a;b\n1.008;2\n950;3\n", ".", [[1008, 2], [950, 3]]),
    "commas": ('a,b\n"1,008",2\n950,3\n', ",", [[1008, 2], [950, 3]]),
    "blanks": ("a,b\n1 008,2.5\n12 345.5,3\n", " ", [[1008, 2.5], [12345.5, 3]]),
    "quotes": ("a,b\n1'008,2.5\n950,3\n", "'", [[1008, 2.5], [950, 3]]),
    "hard blanks and decimal commas": ("a;b\n1\u00a0008;2,5\n950;3\n", " ", [[1008, 2.5], [950, 3]]),
}


@pytest.mark.parametrize("case", MARKS)
def test_the_mark_between_thousands_is_reported(case, tmp_path):
    text, mark, rows = MARKS[case]
    path = str(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"\(line 2\).*(thousands|may separate decimals or thousands\. Write csv)"):
        np.asarray(make(path))
    assert np.array_equal(make(f"csv(path={path!r}, thousands={mark!r})"), rows)


UNCLEAR = {
    "semicolons": ("a;b\n1.008;2\n1.100;3\n", "a number in column a (line 2) in which '.'"),
    "whole numbers in the column": ("a,b\n950,2\n1.008,3\n", "a number in column a (line 3) in which '.'"),
    "in quotes": ('a,b\n7,2\n5,"1,008"\n', "a number in column b (line 3) in which ','"),
    "far below": ("a,b\n" + "7,8\n" * 500 + "7,1.008\n", "a number in column b (line 502) in which '.'"),
}


@pytest.mark.parametrize("case", UNCLEAR)
def test_a_thousand_and_eight_or_a_little_more_than_one_is_an_error_until_somebody_says(case, tmp_path):
    text, place = UNCLEAR[case]
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match="may separate decimals or thousands") as caught:
        make(str(tmp_path / "x.csv"))
    assert place in str(caught.value)
    assert "008" not in str(caught.value)
    spec = str(caught.value).split("Write ")[1].split("; for a")[0]
    assert 1.008 in np.asarray(make(spec))
    mark = str(caught.value).split("thousands=")[1][:3]
    assert 1008.0 in np.asarray(make(f"csv(path={str(tmp_path / 'x.csv')!r}, thousands={mark})"))


CLEAR = {
    "another number with decimals": ("a;b\n1.008;2\n1.1;3\n", 1.008),
    "below one": ("a;b\n1.008;0.123\n", 1.008),
    "a decimal comma": ("a;b\n1.008;2,5\n", 1008.0),
    "two points": ("a;b\n1.008;1.234.567\n", 1008.0),
    "both marks": ("a;b\n1.008;1.234,5\n", 1008.0),
    "three decimals between commas": ("a,b\n1.008,2.125\n1.100,3.250\n", 1.008),
}


@pytest.mark.parametrize("case", CLEAR)
def test_a_file_that_shows_its_decimals_is_read(case, tmp_path):
    text, value = CLEAR[case]
    (tmp_path / "x.csv").write_text(text)
    assert np.asarray(make(str(tmp_path / "x.csv")))[0, 0] == value


def test_true_and_false_are_numbers(tmp_path):
    (tmp_path / "x.csv").write_text("a,smoker\n1.5,True\n2.5,FALSE\n3.5,\n")
    assert np.array_equal(make(str(tmp_path / "x.csv")), [[1.5, 1], [2.5, 0], [3.5, np.nan]], equal_nan=True)


def test_lines_of_separators_at_the_end_are_no_rows_and_said(tmp_path):
    write_lines(tmp_path / "x.csv", ["a", "b"], ROWS[:, :2], ";", german_number)
    with (tmp_path / "x.csv").open("a") as file:
        file.write(";\n;\n")
    with pytest.warns(UserWarning, match=r"^Lines 32 to 33 of .*x\.csv hold separators only, .* not read as rows\.$"):
        found = table(str(tmp_path / "x.csv"), beside=["b"])
    assert np.array_equal(found.rows, ROWS[:, :1])
    assert len(found.beside["b"]) == 30


@pytest.fixture
def hospital_files(tmp_path):
    for i, name in enumerate(("bonn", "jena", "trier")):
        write_lines(tmp_path / f"{name}.csv", ["age", "lab_a", "lab_b"], ROWS[10 * i : 10 * i + 10])
    (tmp_path / "trier.csv").write_text("age;word\nnothing of this;is read\n")
    text = (tmp_path / "jena.csv").read_text().splitlines()
    (tmp_path / "jena.csv").write_text("\n".join([f"{text[0]},note", *(f"{line},well" for line in text[1:])]))
    return str(tmp_path)


def test_columns_and_files_are_left_out_by_name_or_pattern(hospital_files):
    found = table(hospital_files, drop=["note", "lab_*"], without=["tri*"])
    assert found.names == ("age",)
    assert found.sites == ("bonn", "jena")
    assert np.array_equal(found.rows, ROWS[:20, :1])
    spec = f"folder(path={hospital_files!r}, drop=['note'], without=['trier.csv'])"
    assert np.array_equal(table(spec).rows, ROWS[:20])
    assert [part.site for part in parties(spec)] == ["bonn", "jena"]
    assert table(f"{hospital_files}/jena.csv", drop=["note", "age"]).names == ("lab_a", "lab_b")


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_the_command_leaves_out_columns_and_sites(hospital_files, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["--drop", "note,lab_b", "--without", "trier", "--components", 1, "--out", out]
    assert flower_pca(capsys, "run", hospital_files, *options)[0] == 0
    result = PCAResult.load(out / "result.npz")
    assert result.feature_names_in_.tolist() == ["age", "lab_a"]
    assert sorted(result.site_names.values()) == ["bonn", "jena"]


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_the_command_leaves_out_sites_of_a_column(tmp_path, capsys):
    write_lines(tmp_path / "x.csv", ["age", "bmi", "pulse", "site"], np.c_[ROWS, np.arange(30) % 3])
    options = ["--partition", "by_column('site')", "--without", "2", "--components", 1, "--out", tmp_path / "out"]
    assert flower_pca(capsys, "run", tmp_path / "x.csv", *options)[0] == 0
    assert sorted(PCAResult.load(tmp_path / "out/result.npz").site_names.values()) == ["0", "1"]
    code, _, err = flower_pca(capsys, "run", tmp_path / "x.csv", "--clients", 3, "--without", "2")
    assert code == 2
    assert "No site to leave out matches '2'. The list is empty. Leave it out." in err


def test_one_table_becomes_consecutive_groups_of_columns(tmp_path):
    (tmp_path / "x.csv").write_text("a,b,c,d,e\n1,2,3,4,5\n6,7,8,9,1\n")
    tables = parties(str(tmp_path / "x.csv"), clients=2)
    assert [table.names for table in tables] == [("a", "b", "c"), ("d", "e")]
    np.testing.assert_array_equal(
        np.hstack([np.asarray(table) for table in tables]), [[1, 2, 3, 4, 5], [6, 7, 8, 9, 1]]
    )
