"""Test text files of hospitals: decimal commas, encodings, unnamed indices, repeated names."""

import io
import itertools

import numpy as np
import pytest

from flower_pca import DataError, simulate
from flower_pca.clients.base import node_rows
from flower_pca.clients.policy.rules import Rules
from flower_pca.data import partition
from flower_pca.data.sources import make, table

pd = pytest.importorskip("pandas")
RNG = np.random.default_rng(0)
ROWS = np.round(RNG.standard_normal((30, 3)), 4)


def text_written(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return str(path)


EUROPEAN = {
    "with names": ("größe;gewicht;puls\n", "\n", {}),
    "without names": ("", "\n", {}),
    "Windows line ends": ("a;b;c\r\n", "\r\n", {}),
    "empty lines": ("\na;b;c\n\n", "\n\n", {}),
    "tabs": ("a\tb\tc\n", "\n", {"sep": "\t"}),
    "commas in quotes": ("a,b,c\n", "\n", {"sep": ","}),
}


@pytest.mark.parametrize("case", EUROPEAN)
def test_decimal_commas_are_read(case, tmp_path):
    head, end, options = EUROPEAN[case]
    sep, quote = options.get("sep", ";"), '"' if options.get("sep") == "," else ""
    lines = [sep.join(quote + str(v).replace(".", ",") + quote for v in row) for row in ROWS.tolist()]
    path = text_written(tmp_path / "x.csv", head + end.join(lines) + end)
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    assert np.array_equal(make(f"csv(path={path!r}, decimal=','{given})"), ROWS)


def test_decimal_commas_with_gaps_and_text_beside_agree_with_pandas(tmp_path):
    text = "ort;alter;puls;größe\nBonn;1,5;NA;-3\nJena;;2e3;+0,25\nBonn; 7,0 ;1;.5\n".replace(".5\n", "0,5\n")
    path = text_written(tmp_path / "x.csv", text)
    found = table(f"csv(path={path!r}, decimal=',')", beside=["ort"])
    reference = pd.read_csv(io.StringIO(text), sep=";", decimal=",")
    assert found.names == ("alter", "puls", "größe")
    assert np.array_equal(found.rows, reference[list(found.names)], equal_nan=True)
    assert found.beside["ort"].tolist() == reference["ort"].tolist()


def test_points_between_thousands_are_read_beside_decimal_commas(tmp_path):
    path = text_written(tmp_path / "x.csv", "a;b\n1,5;2\n1.234,5;2\n")
    assert np.array_equal(make(f"csv(path={path!r}, decimal=',')"), [[1.5, 2.0], [1234.5, 2.0]])


LETTERS = "größe,gewicht\n1.5,2\n3,4\n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_says_the_encoding(encoding, tmp_path):
    path = text_written(tmp_path / "x.csv", LETTERS, encoding)
    assert make(path).names == ("größe", "gewicht")
    assert np.array_equal(make(path), [[1.5, 2], [3, 4]])


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16-le", "utf-8"])
def test_the_encoding_is_an_option(encoding, tmp_path):
    path = text_written(tmp_path / "x.csv", LETTERS, encoding)
    assert make(f"csv(path={path!r}, encoding={encoding!r})").names == ("größe", "gewicht")


def test_a_folder_takes_the_same_options(tmp_path):
    for name, part in (("a", ROWS[:10]), ("b", ROWS[10:])):
        lines = [";".join(str(v).replace(".", ",") for v in row) for row in part.tolist()]
        text_written(tmp_path / f"{name}.csv", "größe;b;c\n" + "\n".join(lines), "latin-1")
    found = make(f"folder(path={str(tmp_path)!r}, decimal=',', encoding='latin-1')")
    assert np.array_equal(found, ROWS)
    assert found.names == ("größe", "b", "c")


FRAME = pd.DataFrame(ROWS, columns=["age", "bmi", "pulse"])


def test_the_index_that_pandas_writes_can_be_left_out(tmp_path):
    path = str(tmp_path / "x.csv")
    FRAME.to_csv(path)
    for spec in (f"csv(path={path!r}, columns=['age', 'bmi', 'pulse'])", f"csv(path={path!r}, beside=[''])"):
        assert np.array_equal(make(spec), ROWS)
        assert make(spec).names == ("age", "bmi", "pulse")
    result = simulate("krylov", [make(path)], n_components=1, columns=["bmi", "age"])
    assert result.feature_names_in_.tolist() == ["bmi", "age"]


def test_an_index_above_numbered_columns_is_no_row(tmp_path):
    path = str(tmp_path / "x.csv")
    pd.DataFrame(ROWS).to_csv(path)
    assert np.array_equal(make(f"csv(path={path!r}, header=True, beside=[''])"), ROWS)


def test_a_name_that_is_there_twice_can_be_left_out(tmp_path):
    path = text_written(tmp_path / "x.csv", "a,b,a,c,\n1,2,3,4,\n5,6,7,8,\n")
    assert np.array_equal(make(f"csv(path={path!r}, columns=['c', 'b'])"), [[4, 2], [8, 6]])
    assert len(partition.deal(table(path, columns=["b", "c"]), "iid", 2)) == 2


@pytest.mark.slow
def test_parquet_with_blanks_in_its_names(tmp_path):
    pytest.importorskip("pyarrow")
    path = str(tmp_path / "x.parquet")
    FRAME.rename(columns={"age": " age ", "bmi": "b\nmi"}).to_parquet(path)
    found = make(f"parquet(path={path!r}, columns=['b mi', 'age'])")
    assert found.names == ("b mi", "age")
    assert np.array_equal(found, ROWS[:, [1, 0]])


def test_a_comma_within_the_only_column_is_no_separator(tmp_path):
    path = text_written(tmp_path / "x.csv", "weight, kg\n3,5\n4,25\n")
    assert np.array_equal(make(f"csv(path={path!r}, decimal=',')"), [[3.5], [4.25]])
    path = text_written(tmp_path / "y.csv", "weight, kg\n3.5\n4.25\n")
    assert np.array_equal(make(f"csv(path={path!r}, sep=';')"), [[3.5], [4.25]])


NUMBERS = np.random.default_rng(5)
HEADS = {
    "wave numbers above whole numbers": (
        "400.5,410.5,420.5,430.5,440.5,450.5,460.5",
        NUMBERS.integers(380, 500, (40, 7)),
    ),
    "whole wave numbers": ("400,410,420,430,440,450,460", NUMBERS.integers(380, 500, (40, 7))),
    "times": ("0.1,0.25,0.5,0.75,0.9", NUMBERS.random((300, 5)).round(2)),
    "falling": ("4000,3990,3970,3960,3955,3910", NUMBERS.integers(3900, 4001, (12, 6))),
    "four in equal steps": ("10,20,30,40", NUMBERS.integers(0, 50, (30, 4))),
    "far away": ("9000,800,9100", NUMBERS.integers(0, 50, (9, 3))),
    "far away, above smooth lines": ("9000.5,9100.5", np.sort(NUMBERS.random((60, 2)), axis=1)),
    "with an index": (",0.5,0.7,0.75,1.5,2.25", np.c_[np.arange(40), NUMBERS.random((40, 5)).round(3) * 3]),
    "years": ("2001,2002,2003,2004", NUMBERS.standard_normal((60, 4))),
    "places from 0 on": ("0,1,2,3", NUMBERS.standard_normal((60, 4))),
    "places from 1 on": ("1,2,3,4", NUMBERS.standard_normal((60, 4))),
}


@pytest.mark.parametrize("case", HEADS)
def test_names_that_are_numbers_are_no_row(case, tmp_path):
    head, rows = HEADS[case]
    lines = "\n".join(",".join(f"{value:g}" for value in row) for row in rows)
    path = text_written(tmp_path / "x.csv", f"{head}\n{lines}\n")
    with pytest.raises(
        DataError, match=r"The first line of .* may be names or values: it has .*header=True\) or header=Fa"
    ):
        make(path)
    named = make(f"csv(path={path!r}, header=True, beside={[''] if head.startswith(',') else []})")
    assert named.names == tuple(name for name in head.split(",") if name)
    assert len(named) == len(rows)
    assert len(make(f"csv(path={path!r}, header=False)")) == len(rows) + 1


@pytest.mark.slow
def test_files_of_ordinary_rows_without_names_are_read(tmp_path):
    draw, path = np.random.default_rng(6), tmp_path / "x.csv"
    kinds = {
        "normal": lambda d: draw.standard_normal((200, d)),
        "heavy": lambda d: draw.standard_cauchy((200, d)),
        "few values": lambda d: draw.integers(1, 6, (200, d)),
        "mostly zeros": lambda d: draw.poisson(0.1, (200, d)),
        "rising columns": lambda d: draw.standard_normal((200, d)) + 3.0 * np.arange(d),
        "curves": lambda d: np.cumsum(draw.standard_normal((200, d)), axis=1),
        "all rising": lambda d: np.sort(draw.random((200, d)), axis=1),
        "few rows": lambda d: draw.integers(0, 100, (4, d)),
        "in time": lambda d: np.cumsum(draw.standard_normal((200, d)), axis=0),
    }
    refused = []
    for kind, d in itertools.product(kinds, [2, 3, 4, 5, 8, 20] * 2):
        np.savetxt(path, kinds[kind](d), delimiter=",", fmt="%.6g")
        try:
            make(str(path))
        except DataError:
            refused.append((kind, d))
    assert len(refused) <= 1, refused  # of 108


def test_a_hint_says_that_the_first_line_was_read_as_data(tmp_path):
    for i, name in enumerate(("a", "b", "c")):
        np.savetxt(tmp_path / f"{name}.csv", np.random.default_rng(i).standard_normal((60, 3)), delimiter=",")
    shards = [make(str(tmp_path / f"{name}.csv")) for name in ("a", "b", "c")]
    words = "was read as a row of numbers. If it holds column names, read the data with header=True."
    assert simulate("krylov", shards[:1], n_components=2).hints == (f"The first line of a.csv {words}",)
    assert simulate("krylov", shards, n_components=2).hints == (
        f"The first line of a.csv, and of 2 more files, {words}",
    )
    told = make(f"csv(path={str(tmp_path / 'a.csv')!r}, header=False)")
    assert simulate("krylov", [told], n_components=2).hints == ()


def test_a_node_says_it_in_its_own_log(tmp_path, caplog):
    np.savetxt(tmp_path / "a.csv", np.random.default_rng(7).standard_normal((9, 2)), delimiter=",")
    node_rows(make(str(tmp_path / "a.csv")), Rules())
    assert "Of this node's rows: The first line of a.csv was read as a row of numbers" in caplog.text
