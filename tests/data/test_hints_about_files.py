"""Test files with one fault each: `check` and `run` name it by file, line or column. Clean files give no hint."""

import re

import numpy as np
import pytest
from cases import every
from pages import flower_pca

from flower_pca import from_frame, simulate
from flower_pca.data import partition, sources
from flower_pca.hints import faults
from flower_pca.names.table import Table

pd = pytest.importorskip("pandas")
NAMES = ["age", "weight", "height", "glucose", "temperature", "platelets", "smoker"]
SITES = ("bonn", "jena", "trier")


def patients_of(site, n=40):
    rng = np.random.default_rng(site)
    common = rng.standard_normal(n)
    age = np.rint(np.clip(rng.normal(52.0, 15.0, n), 18, 95))
    weight = np.round(rng.normal(76.0, 13.0, n) + 4.0 * common, 1)
    height = np.round(rng.normal(170.0, 9.0, n) + 3.0 * common, 1)
    glucose = np.round(rng.lognormal(np.log(98.0), 0.22, n), 1)
    temperature = np.round(rng.normal(36.9, 0.6, n), 1)
    platelets = np.rint(rng.normal(250.0, 60.0, n))
    return np.c_[age, weight, height, glucose, temperature, platelets, rng.random(n) < 0.3]


def lines_of(rows, names=NAMES):
    return [",".join(names), *(",".join(f"{value:.12g}" for value in row) for row in rows)]


def column_changed(column, change, rows=slice(None)):
    """A site's file whose column is changed in some rows."""

    def fault(site):
        found = patients_of(site)
        found[rows, NAMES.index(column)] = change(found[rows, NAMES.index(column)])
        return lines_of(found)

    return fault


def cell(line, column, text):
    """A site's file with this text in a cell."""

    def fault(site):
        lines = lines_of(patients_of(site))
        cells = lines[line - 1].split(",")
        cells[NAMES.index(column)] = text
        lines[line - 1] = ",".join(cells)
        return lines

    return fault


def with_line(text, at=None):
    def fault(site):
        lines = lines_of(patients_of(site))
        lines.insert(len(lines) if at is None else at, text if isinstance(text, str) else text(patients_of(site)))
        return lines

    return fault


def with_more_columns(name, values):
    return lambda site: lines_of(np.c_[patients_of(site), values(patients_of(site), site)], [*NAMES, name])


def totals_line(rows):
    return ",".join(f"{value:g}" for value in rows.sum(axis=0).round(1))


def total_before_rounding(rows):
    """Of what the rows were before each number was rounded, as a spreadsheet adds it up."""
    before = rows + np.random.default_rng(3).uniform(-0.05, 0.05, rows.shape)
    return totals_line(np.where((rows % 1.0).any(axis=0), before, rows))


def mean(rows):
    return ",".join(f"{value:.1f}" for value in rows.mean(axis=0))


def working_days(n, week):
    """Days as Excel counts them from a Monday in 2023 on and so many weeks later, without weekends."""
    return 44998 + 7 * (week + np.arange(n) // 5) + np.arange(n) % 5


def days(rows, site):
    return 20240101 + 100 * (np.arange(len(rows)) % 12) + np.arange(len(rows)) % 28


def german_lines(site, number=lambda value: f"{value:g}".replace(".", ",")):
    return [";".join(NAMES), *(";".join(map(number, row)) for row in patients_of(site))]


def thousand(site):
    """All numbers a thousand times as large, with points between thousands and no decimals."""
    values = np.rint(patients_of(site) * 10.0 + 900.0)
    return [";".join(NAMES), *(";".join(f"{value:,.0f}".replace(",", ".") for value in row) for row in values)]


def sum_and_mean(site):
    """A file of which the second last line is the sum of those above, and the last one their mean."""
    return [*with_line(totals_line)(site), mean(patients_of(site))]


# What the file of one site is (of all, where a fault is in all of them), and what is said of it: a hint, or an error.
FAULTS = {
    "-999": (cell(6, "glucose", "-999"), r"hint: Column glucose holds -999 1 time.* line 6 of .*jena\.csv"),
    "9999": (cell(9, "platelets", "9999"), r"hint: Column platelets holds 9999 1 time.* line 9 of .*jena\.csv"),
    "999 in several rows": (
        column_changed("weight", lambda w: 999.0, slice(4, 7)),
        r"hint: Column weight holds 999 3 times.*line 6 of .*jena\.csv",
    ),
    "888 in several rows": (
        column_changed("glucose", lambda g: 888.0, slice(4, 7)),
        r"hint: Column glucose holds 888 3 times.*line 6 of .*jena\.csv",
    ),
    "one -99": (cell(6, "glucose", "-99"), r"hint: Column glucose holds -99 1 time.* line 6 of .*jena\.csv"),
    "-1 in several rows": (
        column_changed("glucose", lambda g: -1.0, slice(4, 7)),
        r"hint: Column glucose holds -1 3 times.*line 6 of .*jena\.csv",
    ),
    "-9 for a word": (
        column_changed("smoker", lambda s: -9.0, slice(2, 4)),
        r"hint: Column smoker holds -9 2 times.*line 4 of .*jena\.csv",
    ),
    "0 for a gap": (
        column_changed("temperature", lambda t: 0.0, slice(10, 12)),
        r"hint: Column temperature holds 0 2 times.*line 12 of .*jena\.csv",
    ),
    "a line of totals": (with_line(totals_line), r"hint: Line 42 of .*jena\.csv is the sum of the lines above it"),
    "a line of totals of more decimals": (
        with_line(total_before_rounding),
        r"hint: Line 42 of .*jena\.csv is the sum of the lines above it",
    ),
    "a line of totals above one of means": (sum_and_mean, r"hint: Line 42 of .*jena\.csv is the sum of"),
    "a line of means": (with_line(mean), r"hint: Line 42 of .*jena\.csv is the mean of the lines above it"),
    "a line of totals with a word": (
        with_line("Total,1,2,3,4,5,6"),
        r"error: .*jena\.csv.*a text of 5 letters in column age \(line 42\)",
    ),
    "empty lines of Excel": (
        lambda site: [*lines_of(patients_of(site)), ",,,,,,", ",,,,,,"],
        r"hint: Lines 42 to 43 of .*jena\.csv hold separators only",
    ),
    "an empty line between others": (with_line(",,,,,,", 7), r"hint: Line 8 of .*jena\.csv holds no value"),
    "the file of another site": (lambda site: lines_of(patients_of(0)), r"hint: jena holds the same rows as bonn"),
    "rows of another site": (
        lambda site: lines_of(np.r_[patients_of(site), patients_of(0)[5:20]]),
        r"hint: 15 rows of jena are also in bonn.*line 42 of .*jena\.csv",
    ),
    "rows twice": (
        lambda site: lines_of(np.r_[patients_of(site), patients_of(site)]),
        r"hint: 40 rows of jena repeat earlier rows. The first is line 42 of .*jena\.csv",
    ),
    "a column twice": (
        "all",
        with_more_columns("mass", lambda rows, site: rows[:, 1]),
        r"hint: Column (weight|mass) holds the same values",
    ),
    "a column in two units": (
        "all",
        with_more_columns("stones", lambda rows, site: rows[:, 1] / 8.0),
        r"hint: Column (weight|stones) holds the same measurement, in another unit, as column (stones|weight)",
    ),
    "dates": ("all", with_more_columns("visit", days), r"hint: Column visit holds dates of eight digits, such as 2024"),
    "dates of Excel": (
        "all",
        with_more_columns("admission_date", lambda rows, site: 45000 + 7 * np.arange(len(rows)) % 300),
        r"hint: Column admission_date holds dates in Excel's numbering of days",
    ),
    "working days of Excel": (
        "all",
        with_more_columns("q7", lambda rows, site: working_days(len(rows), week=10 * site)),
        r"hint: Column q7 holds dates in Excel's numbering of days",
    ),
    "seconds": (
        "all",
        with_more_columns("taken", lambda rows, site: 1.7e9 + 86413 * (np.arange(len(rows)) % 37)),
        r"hint: Column taken holds times in seconds since 1970",
    ),
    "dates as text": (cell(5, "age", "2024-01-31"), r"error: .*jena\.csv.*a date in column age \(line 5\)"),
    "numbers of patients": (
        "all",
        with_more_columns("patient_id", lambda rows, site: 7000 + 13 * np.arange(len(rows)) + 1000 * site),
        r"hint: Column patient_id holds whole numbers, all different",
    ),
    "numbered rows": (
        "all",
        with_more_columns("n", lambda rows, site: np.arange(len(rows)) + 1),
        r"hint: Column n holds whole numbers, all different, which are consecutive",
    ),
    "mmol/l": (
        column_changed("glucose", lambda g: np.round(g / 18.016, 1)),
        r"hint: Column glucose looks as if jena had other units.*mmol/l of glucose",
    ),
    "Fahrenheit": (
        column_changed("temperature", lambda t: np.round(1.8 * t + 32.0, 1)),
        r"hint: Column temperature looks as if jena had other units.*Fahrenheit",
    ),
    "pounds": (
        column_changed("weight", lambda w: np.round(2.20462 * w, 1)),
        r"hint: Column weight looks as if jena had other units.*pounds",
    ),
    "of no known unit": (
        column_changed("platelets", lambda p: 1.0 + np.linspace(0.0, 1.0, len(p))),
        r"hint: Column platelets looks as if jena had other units: its median is 1\.5.*a factor of about 1\d\d\.",
    ),
    "meters": (
        column_changed("height", lambda h: h / 100.0),
        r"hint: Column height looks as if jena had other units.*a factor of 100",
    ),
    "a default": (
        column_changed("platelets", lambda p: 100.0),
        r"hint: Column platelets is 100 in all rows of jena, but rarely at other sites",
    ),
    "an empty column": (
        lambda site: [re.sub(r"^(\d+),[^,]*,", r"\1,,", line) for line in lines_of(patients_of(site))],
        r"hint: Column weight has no value at jena",
    ),
    "a site of two rows": (lambda site: lines_of(patients_of(site, 2)), r"hint: Jena has 2 rows: their answers"),
    "a point between thousands": (
        thousand,
        r"error: .*jena\.csv has a number in column age \(line \d+\) in which '\.' may separate decimals or",
    ),
    "commas between thousands": (cell(4, "platelets", '"1 008"'), r"error: .*a number with separators of "
    r"thousands in column platelets \(line 4\)"),
    "a decimal comma among points": (cell(4, "weight", '"76,5"'), r"error: .*a number with a comma in "
    r"column weight \(line 4\)"),
    "a word for a gap": (
        cell(6, "height", "k.A."),
        r"error: .*'k\.A\.' in column height \(line 6\) among numbers\. Correct these cells, or empty them",
    ),
    "a limit of detection": (cell(7, "glucose", "<5"), r"error: .*a number after a sign such as < in "
    r"column glucose \(line 7\) among numbers"),
    "an error of Excel": (cell(7, "age", "#DIV/0!"), r"error: .*an error of a spreadsheet in column age "
    r"\(line 7\) among numbers"),
    "an infinite value": (cell(7, "age", "inf"), r"error: .*The first is in line 7 of .*jena\.csv, column age"),
    "a line of units": (
        with_line("years,kg,cm,mg/dl,C,G/l,-", 1), r"error: .*a text of 5 letters in column age \(line "
        r"2\) among numbers"
    ),
    "a title above the names": (
        lambda site: ["Export 2024-05-01", *lines_of(patients_of(site))],
        r"error: Line 2 of .*jena\.csv has 7 cells, but the first line has 1\. .*remove the lines above the names",
    ),
    "a name twice": (
        lambda site: [lines_of(patients_of(site))[0].replace("glucose", "weight"), *lines_of(patients_of(site))[1:]],
        r"error: The columns of .*jena\.csv must have different names, but there is 'weight' more than once",
    ),
    "a cell too many": (with_line("1,2,3,4,5,6,7,8", 9),
                        r"error: Line 10 of .*jena\.csv has 8 cells, but the first line has 7\."),
    "another name": (lambda site: ["Age" + lines_of(patients_of(site))[0][3:], *lines_of(patients_of(site))[1:]],
                     r"error: The columns of .*jena\.csv.*'age' and 'Age' differ only by case"),
}  # fmt: skip


def write_folder(folder, fault=None, whose="jena"):
    folder.mkdir()
    for i, site in enumerate(SITES):
        lines = fault(i) if fault is not None and whose in (site, "all") else lines_of(patients_of(i))
        (folder / f"{site}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_named_with_its_file_and_line_or_column(case, tmp_path, capsys):
    *whose, fault, said = FAULTS[case]
    folder = write_folder(tmp_path / "sites", fault, *whose)
    code, out, err = flower_pca(capsys, "check", folder, "--missing", "mean")
    assert re.search(said, out), out
    assert not err
    assert code == (2 if said.startswith("error") else 1)
    options = ["--missing", "mean", "--scale", "std", "--components", 2, "--out", tmp_path / "out"]
    code, out, err = flower_pca(capsys, "run", folder, *options)
    assert re.search(said.removeprefix("error: ").removeprefix("hint: "), out + err), out + err
    assert code == (2 if said.startswith("error") else 0)


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_no_fault_hides_another(tmp_path, capsys):
    """A line of totals is far from all others, and has no number of a patient; a file that is there twice is no other.

    So of five sites one has totals below, one -999 for a gap, one another unit, which is there twice, all have a
    column of ids and of dates, and nothing is left out of what is said.
    """
    folder, names = tmp_path / "sites", [*NAMES, "patient_id", "visit"]
    folder.mkdir()
    for i, site in enumerate(("bonn", "essen", "jena", "kiel", "trier")):
        rows = np.c_[patients_of(i), 7000 + 13 * np.arange(40) + 1000 * i, days(patients_of(i), i)]
        if site == "essen":
            rows[:, 3] = np.round(rows[:, 3] / 18.016, 1)
        lines = lines_of(rows, names)
        if site == "jena":
            lines[5] = lines[5].replace(f",{rows[4, 3]:.12g},", ",-999,")
        if site == "kiel":
            lines += [f"{totals_line(rows[:, :7])},,", f"{mean(rows[:, :7])},,"]
        (folder / f"{site}.csv").write_text("\n".join(lines) + "\n")
    (folder / "essen (1).csv").write_text((folder / "essen.csv").read_text())
    code, out, _ = flower_pca(capsys, "check", folder, "--missing", "mean")
    assert code == 1
    for said in (
        r"Line 42 of .*kiel\.csv is the sum of the lines above it",
        r"essen holds the same rows as essen \(1\)|essen \(1\) holds the same rows as essen",
        r"Column glucose holds -999 1 time.* line 6 of .*jena\.csv",
        r"Column patient_id holds whole numbers, all different",
        r"Column visit holds whole numbers, all different",
        r"Column visit holds dates of eight digits",
        r"Column glucose looks as if essen.* had other units.*mmol/l of glucose",
    ):
        assert re.search(said, out), out
    assert re.match(r"0 errors and \d+ hints about 242 rows at 6 sites", out.splitlines()[-1]), out


@pytest.mark.slow
@pytest.mark.parametrize("change", [lambda w: 2.20462 * w, lambda w: w / 2.54, lambda w: 0.5 * w + 300.0, None])
def test_few_rows_hide_no_other_unit(change):
    """Of 20 rows median and spread are off by chance, as much as the bounds were that hold for many rows."""
    found = 0
    for draw in range(40):
        sites = [patients_of(100 * draw + i, 20) for i in range(3)]
        if change is not None:
            sites[1][:, 1] = np.round(change(sites[1][:, 1]), 1)
        tables = [Table(rows, tuple(NAMES), site=site) for rows, site in zip(sites, SITES, strict=True)]
        found += any("other units" in hint for hint in faults.find_hints(tables))
    if change is None or change(0.0) > 0.0:  # A change that is no conversion is not taken for one.
        assert found == 0
    else:
        assert found >= 37


@pytest.mark.parametrize(
    "usual", [(1.0,), (0.0, 1.0), (0.0, 1.0, 2.0, 3.0), np.arange(0.0, 12.0), np.arange(2.0, 40.0, 3.0)]
)
def test_minus_one_beside_what_it_may_be_one_of_is_no_gap(usual):
    rng, rows = np.random.default_rng(1), patients_of(0)
    rows[:, 3] = rng.choice([-1.0, *usual], len(rows))
    assert "holds -1" not in " ".join(faults.find_hints([Table(rows, tuple(NAMES))]))


@pytest.mark.parametrize("far", [1e5, 1e7])
def test_a_wild_value_hides_no_code_for_a_gap(far):
    rows = patients_of(0)
    rows[3, 3], rows[7, 3] = far, -999.0
    assert "glucose holds -999 1 time" in " ".join(faults.find_hints([Table(rows, tuple(NAMES))]))


def test_the_same_file_twice_is_named(tmp_path, capsys):
    folder = write_folder(tmp_path / "sites")
    (folder / "bonn (1).csv").write_text((folder / "bonn.csv").read_text())
    assert "holds the same rows" not in flower_pca(capsys, "check", folder, "--without", "bonn (1)")[1]
    _, out, _ = flower_pca(capsys, "check", folder)
    assert re.search(r"bonn(?: \(1\))? holds the same rows as bonn", out)


def test_check_says_what_the_run_says_of_correlations(tmp_path, capsys):
    """A sign that is turned about 0 shows in the correlations only. They are not compared where a run fills gaps."""
    folder = tmp_path / "sites"
    folder.mkdir()
    for site, name in enumerate(SITES):
        rng = np.random.default_rng([site, 3])
        common = rng.standard_normal((300, 1))
        rows = common * [1.0, 1.0, 1.0, 1.0] + 0.5 * rng.standard_normal((300, 4))
        if site == 1:
            rows[:, 2] *= -1.0
        (folder / f"{name}.csv").write_text("\n".join(lines_of(rows, ["a", "b", "c", "d"])))
    said = "The correlations of column c with the other columns at jena differ from those of most other sites"
    _, out, err = flower_pca(capsys, "run", folder, "--components", "2", "--out", tmp_path / "out")
    assert said in " ".join((out + err).split())
    assert said in flower_pca(capsys, "check", folder)[1]
    assert said not in flower_pca(capsys, "check", folder, "--missing", "mean")[1]


CLEAN = {
    "as they are": lambda site: lines_of(patients_of(site)),
    "German": german_lines,
    "other people": lambda site: lines_of(patients_of(site) * [1.15, 1.1, 1, 1.1, 1, 1, 1]),
    "without rare kinds": lambda site: lines_of(patients_of(site) * [1, 1, 1, 1, 1, 1, 0]),
    "gaps": cell(8, "glucose", ""),
    "few rows": lambda site: lines_of(patients_of(site, 9)),
    "one column": lambda site: lines_of(patients_of(site)[:, :1], NAMES[:1]),
}


@pytest.mark.parametrize("case", CLEAN)
def test_nothing_is_said_of_clean_files(case, tmp_path, capsys):
    folder = write_folder(tmp_path / "sites", CLEAN[case], "all" if case == "one column" else "jena")
    code, out, err = flower_pca(capsys, "check", folder, "--missing", "mean")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"0 errors and 0 hints about \d+ rows at 3 sites\n", out)
    assert flower_pca(capsys, "check", folder, "--missing", "mean", "--json")[1].count("hint") == 1


READY = [
    *(f"sklearn(name={name!r})" for name in ("iris", "wine", "breast_cancer", "diabetes", "digits")),
    *("synthetic(n=2000, d=30, clients=10)", "geometric(n=500, d=20)", "arithmetic(n=500, d=20)"),
]


@pytest.mark.slow
@pytest.mark.parametrize("spec", READY)
@pytest.mark.parametrize("deal", [None, "iid(seed=1)", "contiguous", "by_label(column='y')"])
def test_nothing_is_said_of_ready_data(spec, deal):
    found = sources.table(spec)
    if deal is not None and "y" in deal and "y" not in found.beside:
        pytest.skip("it has no labels")
    shards = partition.deal(found, deal, 10)
    hints = simulate("krylov", shards, n_components=2, scale="max_abs").hints
    apart = "between sites" if deal is None or "label" not in deal else "between sites|most other sites|at client"
    assert [hint for hint in hints if not re.search(apart, hint)] == []  # Parts that are sorted by label do differ.


@pytest.mark.slow
@every("seed", range(20))
def test_ordinary_sites_are_hardly_ever_accused(seed):
    """Many draws at once: alike sites, unlike ones, few rows, rare codes, heavy tails, counts, and rounded numbers."""
    rng = np.random.default_rng(seed)
    n, kinds = int(rng.integers(8, 60)), []
    for _ in range(6):
        site = np.c_[
            rng.normal(50.0 + rng.normal(0.0, 3.0), 12.0, n).round(1),
            rng.lognormal(1.0 + rng.normal(0.0, 0.2), 0.8, n).round(2),
            rng.poisson(3.0, n), rng.random(n) < 0.05, rng.standard_t(2, n), rng.integers(1, 6, n),
            rng.normal(120.0, 15.0, n).round(),
        ]  # fmt: skip
        kinds.append(site)
    assert faults.find_hints([Table(site) for site in kinds]) == ()


def test_a_file_by_itself_is_one_site(tmp_path, capsys):
    folder = write_folder(tmp_path / "sites")
    assert flower_pca(capsys, "check", folder / "bonn.csv")[1] == "0 errors and 0 hints about 40 rows at 1 site\n"
    assert "Client 0 has 2 rows" in flower_pca(capsys, "check", folder / "bonn.csv", "--clients", 20)[1]


def with_wards(site, fault=""):
    """A file's lines with the ward and the name of each patient, and a 999 in the age of one."""
    lines = lines_of(patients_of(site))
    wards, first = ["medicine", "surgery", "eye"], [lines[0] + ",ward,name"]
    rows = [f"{line},{wards[i % 3]},patient {site} {i}" for i, line in enumerate(lines[1:])]
    rows[4] = ",".join(["999", *rows[4].split(",")[1:]])
    if fault:
        rows[6] = ",".join([fault, *rows[6].split(",")[1:]])
    return first + rows


@pytest.mark.slow
def test_columns_of_words_are_named_and_the_others_looked_into(tmp_path, capsys):
    folder = write_folder(tmp_path / "sites", with_wards, "all")
    code, out, err = flower_pca(capsys, "check", folder)
    assert (code, err) == (2, "")
    errors, hints = ([line for line in out.splitlines() if line.startswith(f"{kind}: ")] for kind in ("error", "hint"))
    assert [
        re.search(r"(\w+)\.csv must hold numbers, but there is a text of 8 letters in column ward", e)[1]
        for e in errors
    ] == [*SITES]
    assert all("--drop ward,name" in error for error in errors)
    column = f"Column ward of {folder} holds words. Add --categorical ward to make a column of each word"
    assert hints[0] == f"hint: {column}."
    assert any("holds 999" in hint for hint in hints[1:])
    assert out.splitlines()[-1].endswith("about 120 rows at 3 sites")
    # The same for a single file, and for the other columns as if there were no words.
    _, out, _ = flower_pca(capsys, "check", folder / "jena.csv")
    assert "jena.csv holds words. Add --categorical ward" in out
    assert "holds 999" in out
    assert out.splitlines()[-1] == "1 error and 2 hints about 40 rows at 1 site"
    dropped = flower_pca(capsys, "check", folder, "--drop", "ward,name")[1].splitlines()
    assert dropped[:-1] == hints[1:]


def test_a_column_with_words_among_its_numbers_at_one_site_keeps_no_other_from_being_looked_into(tmp_path, capsys):
    folder = write_folder(tmp_path / "sites", lambda site: with_wards(site, "unknown" if site == 2 else ""), "all")
    code, out, _ = flower_pca(capsys, "check", folder, "--drop", "name,ward")
    assert code == 2
    assert out.count("error: ") == 1
    assert re.search(r"there is 'unknown' in column age", out)
    assert "--categorical" not in out
    assert out.splitlines()[-1].endswith("about 120 rows at 3 sites")


def test_simulate_names_the_site_and_the_row_of_data_frames():
    frames = {site: pd.DataFrame(patients_of(i), columns=NAMES) for i, site in enumerate(SITES)}
    frames["jena"].loc[3, "glucose"] = -999.0
    (hint,) = simulate("krylov", frames, n_components=2, scale="std").hints
    assert hint.startswith("Column glucose holds -999 1 time, far from all other values: the first is row 3")
    whole = pd.concat([frame.assign(site=site) for site, frame in frames.items()])
    assert len(simulate("krylov", from_frame(whole, by="site"), n_components=2, scale="std").hints) == 1


def test_a_site_without_a_value_hides_no_other_in_other_units():
    names = ("bonn", "jena", "trier", "ulm")
    frames = {name: pd.DataFrame(patients_of(i), columns=NAMES) for i, name in enumerate(names)}
    frames["bonn"]["glucose"] = np.nan
    frames["jena"]["glucose"] /= 18.016
    found = simulate("krylov", list(frames.values()), n_components=2, scale="std", missing="mean")
    (said,) = [hint for hint in found.hints if "units" in hint]
    assert said.startswith("Column glucose looks as if client 1 had other units: its median is 5.")


def test_single_cells_of_many_rows_of_arrays_without_names_are_looked_at(monkeypatch):
    monkeypatch.setattr(faults, "BARE", 2_000)
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((150, 5)) + 50.0 for _ in range(3)]
    parts[1][7, 2] = -999.0
    few = [X[:100] for X in parts]
    assert "holds -999" in " ".join(simulate("krylov", few, n_components=2).hints)
    assert "holds -999 1 time" in " ".join(simulate("krylov", parts, n_components=2).hints)
    named = [pd.DataFrame(X, columns=list("abcde")) for X in parts]
    assert "holds -999" in " ".join(simulate("krylov", named, n_components=2).hints)


@pytest.mark.parametrize("twice", [True, False])
def test_rows_twice_are_told_of_few_columns_and_not_where_values_come_again_by_themselves(twice):
    """25 rows of three columns that hold hardly a value twice; and of three whose rows are often alike by accident."""
    rng = np.random.default_rng(4)
    sites = [rng.standard_normal((25, 3)).round(2) * [1.0, 9.0, 15.0] + [36.8, 60.0, 120.0] for _ in range(3)]
    if twice:
        sites[0] = np.vstack([sites[0], sites[0]])
    else:
        sites = [rng.integers(0, 12, (200, 3)).astype(float) for _ in range(3)]
    said = [hint for hint in simulate("krylov", sites, n_components=2).hints if "repeat earlier rows" in hint]
    assert len(said) == twice
    assert not twice or said[0].startswith("25 rows of client 0 repeat earlier rows. The first is row 25")


SIX = ("bonn", "jena", "trier", "ulm", "kiel", "mainz")


def six_frames(*bad, column="glucose", change=lambda values: values / 18.016):
    """Tables of six hospitals, of which some have a column in another unit."""
    frames = {name: pd.DataFrame(patients_of(i), columns=NAMES) for i, name in enumerate(SIX)}
    for name in bad:
        frames[name][column] = change(frames[name][column])
    return frames


def about_units(frames):
    tables = [Table.of(frame, site=name) for name, frame in frames.items()]
    return [hint for hint in faults.find_hints(tables) if "units" in hint]


@pytest.mark.parametrize("bad", [("jena",), ("jena", "kiel")])
def test_each_of_several_sites_in_other_units_is_named(bad):
    said = about_units(six_frames(*bad))
    assert len(said) == len(bad)
    for name, hint in zip(bad, said, strict=True):
        assert hint.startswith(f"Column glucose looks as if {name} had other units: its median is 5.")
        assert "the factor between mg/dl and mmol/l of glucose" in hint


def test_two_halves_in_two_units_are_said_as_two_halves():
    (hint,) = about_units(six_frames("jena", "kiel", "mainz"))
    assert hint.startswith("Column glucose looks as if jena, kiel and mainz had other units than ulm, bonn and trier")
    assert "at one half of the sites and 1" in hint
    assert hint.endswith(
        "at the other, the factor between mg/dl and mmol/l of glucose, or mg/dl and umol/l of bilirubin. Convert one "
        "half."
    )


@pytest.mark.parametrize("sites", [6, 12, 40])
def test_two_halves_of_any_number_of_sites_are_said_as_two_halves(sites):
    frames = {f"s{i:02d}": pd.DataFrame(patients_of(i), columns=NAMES) for i in range(sites)}
    for name in [*frames][::2]:
        frames[name]["glucose"] /= 18.016
    (hint,) = about_units(frames)
    assert hint.startswith("Column glucose looks as if s00, s02")
    assert ("more had other units than s01, s03" in hint) == (sites > 16)
    frames["s00"]["glucose"] = np.nan
    assert not [hint for hint in about_units(frames) if "one half" in hint]


@pytest.mark.parametrize("bad", [("jena", "kiel"), ("jena", "kiel", "mainz")])
def test_groups_of_sites_that_differ_by_no_unit_are_not_named(bad):
    assert about_units(six_frames(*bad, change=lambda values: values + 150.0)) == []
    assert about_units(six_frames()) == []


OPTIONS = [
    ("--clients", 7),
    ("--drop", "age,agee"),
    ("--ids", "age"),
    ("--drop", "age", "--adjust", "age"),
    ("--highly-variable", "seurat(3)"),
    ("--variants", "variants(maf=0.01)"),
    ("--scale", "genotype"),
    ("--dp", "dp(epsilon=1.0, delta=1e-6, clip=10)", "--mask"),
    ("--harmonize", "combat", "--adjust", "site"),
]


@pytest.mark.parametrize("options", OPTIONS)
def test_check_ends_in_the_error_of_the_run(options, tmp_path, capsys):
    folder = write_folder(tmp_path / "sites", lambda site: lines_of(patients_of(site)), "all")
    code, _, refusal = flower_pca(capsys, "run", folder, *options, "--out", tmp_path / "out")
    assert code == 2
    code, out, error = flower_pca(capsys, "check", folder, *options)
    assert code == 2
    assert refusal.strip().removeprefix("flower-pca: ") in (out + error).replace("error: ", "")


def test_check_reads_cells_whose_genes_are_selected(tmp_path, capsys):
    """Highly variable genes are selected from complete counts, so check must not ask for another --missing."""
    rng = np.random.default_rng(2)
    genes = [f"gene{j}" for j in range(20)]
    rates = rng.gamma(0.5, 2.0, (3, 20))

    def lines(site):
        return lines_of(np.log1p(rng.poisson(rates[rng.integers(3, size=60)]).astype(float)), genes)

    folder = write_folder(tmp_path / "sites", lines, "all")
    out = flower_pca(capsys, "check", folder, "--highly-variable", "seurat(8)")[1]
    assert "0 errors" in out


@pytest.mark.slow
def test_check_says_what_a_run_would_say_of_gaps_and_words(tmp_path, capsys):
    """Files with a gap and a column of few words, as a run without --missing and --categorical refuses them."""

    def lines(site):
        rows = [row.rpartition(",")[0] for row in with_wards(site)]
        return [",".join(["", *row.split(",")[1:]]) if i == 7 else row for i, row in enumerate(rows)]

    folder = write_folder(tmp_path / "sites", lines, "all")
    refusal = flower_pca(capsys, "run", folder, "--drop", "ward", "--out", tmp_path / "out")[2]
    code, out, _ = flower_pca(capsys, "check", folder)
    assert code == 2
    errors = [line.removeprefix("error: ") for line in out.splitlines() if line.startswith("error: ")]
    assert errors[0].startswith(f"Column ward of {folder} holds words. Add --categorical ward")
    assert f"flower-pca: {errors[1]}\n" == refusal
    assert "missing value (NaN)" in errors[1]
    assert flower_pca(capsys, "check", folder, "--drop", "ward")[0] == 2
    assert "0 errors" in flower_pca(capsys, "check", folder, "--drop", "ward", "--missing", "mean")[1]
