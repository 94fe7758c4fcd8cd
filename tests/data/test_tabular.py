"""Test tables with named columns: the chosen columns, missing values as NaN, and text refused by name."""

import numpy as np
import pytest

from flower_pca import DataError, simulate
from flower_pca.data import partition
from flower_pca.data.delimited import csv
from flower_pca.data.files import parquet
from flower_pca.data.sources import make, table

AGE, BMI, SITE = [31.0, 45.0, np.nan], [22.5, 30.25, 27.0], ["Bonn", "Jena", "Bonn"]


@pytest.fixture(params=["csv", "parquet"])
def patients(request, tmp_path):
    """A table with a gap and a text column, in both kinds of file; the reader of the kind, and its path."""
    path = tmp_path / f"patients.{request.param}"
    if request.param == "csv":
        path.write_text("age,site,bmi\n31,Bonn,22.5\n45,Jena,30.25\n,Bonn,27\n")
        return csv, str(path)
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    ages = pa.array([31, 45, None], type=pa.int32())
    pq.write_table(pa.table({"age": ages, "site": pa.array(SITE).dictionary_encode(), "bmi": BMI}), path)
    return parquet, str(path)


@pytest.mark.parametrize(
    ("options", "names", "rows"),
    [
        ({"columns": ["bmi", "age"]}, ("bmi", "age"), [BMI, AGE]),
        ({"beside": ["site"]}, ("age", "bmi"), [AGE, BMI]),
        ({"columns": ["bmi"], "beside": ["site", "age"]}, ("bmi",), [BMI]),
    ],
)
def test_only_the_requested_columns_are_read(patients, options, names, rows):
    read, path = patients
    found = read(path=path, **options)
    assert found.names == names
    assert np.array_equal(found.rows, np.transpose(rows), equal_nan=True)
    assert set(found.beside) == set(options.get("beside", []))
    if "site" in found.beside:
        assert found.beside["site"].tolist() == SITE


def test_text_may_stay_beside_the_columns_that_a_run_names(patients):
    rows = make(patients[1])
    assert rows.names == ("age", "bmi")
    assert np.array_equal(rows.values, np.transpose([AGE, BMI]), equal_nan=True)


def test_a_gap_is_filled_where_that_is_asked_for(patients):
    """The mean of the two ages that are there is 38; three rows, so that the answer has a closed form."""
    rows = patients[0](path=patients[1], columns=["age", "bmi"]).rows
    result = simulate("krylov", [rows[:1], rows[1:]], n_components=2, missing="mean")
    np.testing.assert_allclose(result.mean_, [38.0, 79.75 / 3])
    np.testing.assert_allclose(result.total_variance_, np.var([31, 45, 38], ddof=1) + np.var(BMI, ddof=1))


def test_the_partition_brings_the_column_that_it_deals_by(patients):
    found = table(patients[1], beside=[partition.label_column("by_column('site')")])
    bonn, jena = partition.deal(found, "by_column('site')")
    assert np.array_equal(bonn, [[31, 22.5], [np.nan, 27]], equal_nan=True)
    assert np.array_equal(jena, [[45, 30.25]])


def test_csv_with_another_separator_and_every_word_for_a_gap(tmp_path):
    (tmp_path / "x.csv").write_text("a;b\n1;NA\nnan;2\nNULL;n/a\n none ;#N/A\n")
    rows = make(f"csv(path={str(tmp_path / 'x.csv')!r}, sep=';')")
    nan = np.nan
    assert np.array_equal(rows, [[1, nan], [nan, 2], [nan, nan], [nan, nan]], equal_nan=True)


def test_a_first_line_with_gaps_is_no_header_and_columns_have_numbers(tmp_path):
    (tmp_path / "x.csv").write_text("1,,3\n4,5,6\n")
    found = csv(path=str(tmp_path / "x.csv"), columns=["3", "2"])
    assert np.array_equal(found.rows, [[3, np.nan], [6, 5]], equal_nan=True)


def test_number_types_of_parquet_are_read(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    import decimal

    single = pa.table({"a": pa.array([1.5, None], type=pa.float32()), "b": pa.array([2.0, 3.0], type=pa.float32())})
    pq.write_table(single, tmp_path / "single.parquet")
    assert make(str(tmp_path / "single.parquet")).dtype == np.float32
    mixed = {"a": [True, None], "b": [decimal.Decimal("1.25"), decimal.Decimal("2.50")], "c": [1, 2]}
    pq.write_table(pa.table(mixed), tmp_path / "mixed.parquet")
    assert np.array_equal(make(str(tmp_path / "mixed.parquet")), [[1, 1.25, 1], [np.nan, 2.5, 2]], equal_nan=True)


SEPARATED = {
    "semicolons": ("age;bmi\n1;2\n3;4\n", ";"),
    "tabs": ("age\tbmi\n1\t2\n3\t4\n", "\t"),
    "bars": ("age|bmi\n1|2\n3|4\n", "|"),
    "without a header": ("1;2\n3;4\n", ";"),
    "decimal commas": ("1,5;2,5\n3,5;4,5\n", ";"),
}


@pytest.mark.parametrize("case", SEPARATED)
def test_another_separator_than_commas_is_found(case, tmp_path):
    text, sep = SEPARATED[case]
    path = tmp_path / "x.csv"
    path.write_text(text)
    rows = [[1.5, 2.5], [3.5, 4.5]] if "," in text else [[1.0, 2.0], [3.0, 4.0]]
    assert np.asarray(make(str(path))).tolist() == rows
    with pytest.raises(DataError) as caught:
        make(f"csv(path={str(path)!r}, sep=',')")
    options = f"sep={sep!r}" + (", decimal=','" if "," in text else "")
    by_file = f"sep={ {'x': sep}!r}" + (", decimal={'x': ','}" if "," in text else "")
    assert str(caught.value) == (
        f"{path} was read with the separator ',', but its first line uses {sep!r}. Write "
        f"csv(path={str(path)!r}, {options}); for a folder, folder(..., {by_file}), or leave sep out."
    )
    spec = str(caught.value).split("Write ")[1].split("; for a")[0]
    assert np.asarray(make(spec)).tolist() == rows


def test_a_semicolon_within_a_cell_is_no_separator(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('"temperature; C",bmi\n1,2\n')
    assert np.asarray(make(str(path))).tolist() == [[1.0, 2.0]]
