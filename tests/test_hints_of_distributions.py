"""Test hints about the distribution of columns: faults are named, and clean tables give no hint."""

import numpy as np
import pytest
import scipy.sparse as sp
from cases import every

from flower_pca import simulate
from flower_pca.hints import faults, large, shapes, totals
from flower_pca.hints.sites import Stack, rows_of_client
from flower_pca.names.table import Table
from flower_pca.rows.local import LocalData

COLUMNS = ("age", "weight", "systolic", "glucose", "sex", "visits")


def ward_of(seed, n=120):
    rng = np.random.default_rng(seed)
    return np.c_[
        rng.normal(60, 12, n).round(),
        rng.normal(75, 8, n).round(1),
        rng.normal(130, 15, n).round(),
        rng.normal(100, 12, n).round(1),
        rng.random(n) < 0.5,
        rng.poisson(3, n),
    ].astype(float)


def said_of_sites(sites, columns=COLUMNS):
    tables = [Table(rows, columns, site=f"site{i}") for i, rows in enumerate(sites)]
    return " ".join(faults.find_hints(tables))


def four_sites():
    return [ward_of(seed) for seed in range(4)]


@pytest.mark.parametrize("value", [1e20, 3.4e38, -(2.0**31), 2.0**63, 1e30])
def test_fill_values_are_named(value):
    sites = four_sites()
    sites[2][[5, 9], 3] = value
    said = said_of_sites(sites)
    assert "glucose holds" in said.lower().replace("column ", "")
    assert "times" in said
    assert "gaps" in said


@pytest.mark.parametrize("factor", [10.0, 100.0, 0.1])
def test_a_value_with_its_point_elsewhere_is_named(factor):
    sites = four_sites()
    sites[1][17, 1] *= factor
    words = {10.0: "10 times too large", 100.0: "100 times too large", 0.1: "10 times too small"}[factor]
    assert f"Column weight holds a value that looks {words}, in row 17 (from 0 on)" in said_of_sites(sites)


@pytest.mark.parametrize("column", [1, 3])
def test_a_sign_that_is_turned_at_one_site_is_named(column):
    sites = four_sites()
    sites[3][:, column] *= -1
    assert f"Column {COLUMNS[column]} seems to have the opposite sign at site3" in said_of_sites(sites)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
@pytest.mark.parametrize("factor", [0.01, 18.016, 38.67])
def test_two_units_in_one_column_of_a_site_are_named(factor, share):
    sites = [ward_of(seed, 200) for seed in range(3)]
    other = np.random.default_rng(5).random(200) < share
    sites[1][other, 3] *= factor
    said = said_of_sites(sites)
    assert "Column glucose seems to hold two units at site1" in said
    assert "Convert" in said
    # Without other sites, groups that differ by another factor may be people of two kinds.
    assert ("Column glucose seems to hold two units at site0" in said_of_sites(sites[1:2])) == (factor == 0.01)


def test_two_temperatures_in_one_column_of_a_site_are_named():
    sites = [np.c_[ward_of(seed, 200), np.random.default_rng(seed).normal(37, 0.6, 200)] for seed in range(3)]
    sites[2][50:140, 6] = sites[2][50:140, 6] * 1.8 + 32
    said = said_of_sites(sites, (*COLUMNS, "temperature"))
    assert "Column temperature seems to hold two units at site2" in said
    assert "Fahrenheit" in said


def test_groups_that_all_sites_have_are_not_two_units():
    rng = np.random.default_rng(3)
    sites = [np.c_[ward_of(seed, 200), rng.normal(5, 0.5, 200) * 10.0 ** rng.integers(0, 2, 200)] for seed in range(3)]
    assert "two units" not in said_of_sites(sites, (*COLUMNS, "dose"))


def test_columns_that_are_swapped_at_one_site_are_named():
    sites = four_sites()
    sites[0][:, [1, 2]] = sites[0][:, [2, 1]]
    assert "Column weight and column systolic seem to be swapped at site0" in said_of_sites(sites)


def test_other_codes_at_one_site_are_named():
    sites = four_sites()
    sites[2][:, 4] += 1
    assert "Column sex is coded by 1 and 2 at site2, but by 0 and 1 elsewhere" in said_of_sites(sites)


def test_lines_of_statistics_at_the_end_are_named():
    sites = four_sites()
    X = sites[1]
    lines = [X.mean(axis=0), X.std(axis=0, ddof=1), X.min(axis=0), X.max(axis=0)]
    sites[1] = np.r_[X, np.round(lines, 2)]
    expected = "Row 120 (from 0 on) to row 123 (from 0 on) are the mean, standard deviation, minimum and maximum"
    assert expected in said_of_sites(sites)


@pytest.mark.parametrize("at", [[40], [20, 61], [0]])
def test_subtotals_and_totals_in_any_line_are_named(at):
    sites = four_sites()
    X = sites[0]
    if at == [0]:
        sites[0] = np.r_[X.sum(axis=0)[None], X]
    else:
        parts = np.split(X, at)
        sites[0] = np.concatenate([line for part in parts[:-1] for line in (part, part.sum(axis=0)[None])] + parts[-1:])
    said = said_of_sites(sites)
    assert f"Row {at[0]} (from 0 on) is the sum of other lines" in said


def test_a_row_that_is_there_many_times_is_named():
    sites = [ward_of(seed, 400) for seed in range(3)]
    sites[1][30:300:27] = sites[1][30]
    assert "The values of row 30 (from 0 on) occur in 10 rows" in said_of_sites(sites)


DATES = {
    "05012024": lambda d, m, y: d * 10**6 + m * 10**4 + y,
    "240105": lambda d, m, y: (y - 2000) * 10**4 + m * 100 + d,
    "milliseconds": lambda d, m, y: ((y - 1970) * 365.25 + (m - 1) * 30.4 + d).astype(int) * 86_400_000,
}


@pytest.mark.parametrize("kind", DATES)
def test_dates_in_digits_are_named_by_their_shape(kind):
    rng = np.random.default_rng(7)
    sites = [np.c_[ward_of(seed), np.zeros(120)] for seed in range(3)]
    for rows in sites:
        rows[:, 6] = DATES[kind](rng.integers(1, 29, 120), rng.integers(1, 13, 120), rng.integers(2018, 2026, 120))
    assert kind in said_of_sites(sites, (*COLUMNS, "when"))


@pytest.mark.parametrize("name", ["zip", "post_code", "PLZ", "phone", "ward_nr", "ward", "Region"])
def test_codes_that_measure_nothing_are_named_by_what_they_are_called(name):
    rng = np.random.default_rng(7)
    sites = [np.c_[ward_of(seed), rng.integers(10**4, 10**5, 120)] for seed in range(3)]
    assert f"Column {name} holds codes, which are not measurements" in said_of_sites(sites, (*COLUMNS, name))


def test_a_measurement_that_is_called_like_codes_is_none_of_them():
    rng = np.random.default_rng(7)
    days = [np.c_[ward_of(seed), rng.gamma(2.0, 3.0, 120).round(1)] for seed in range(3)]
    assert "holds codes" not in said_of_sites(days, (*COLUMNS, "hospital"))
    scores = [np.c_[ward_of(seed), rng.integers(1, 9, 120)] for seed in range(3)]
    assert "holds codes" not in said_of_sites(scores, (*COLUMNS, "regions"))


@every("seed", range(40))
def test_nothing_of_these_is_said_of_ordinary_tables(seed):
    """Heavy tails, counts, rare events, shares, signs, amounts and scores, of several sites that differ a little."""
    rng = np.random.default_rng(100 + seed)
    sites = []
    for _ in range(int(rng.integers(2, 7))):
        n = int(rng.integers(20, 200))
        sites.append(
            np.c_[
                rng.standard_t(2, n),
                rng.standard_cauchy(n),
                rng.lognormal(3, 1.5, n).round(2),
                rng.poisson(2, n),
                rng.random(n) < 0.1,
                rng.random(n).round(3),
                rng.normal(0, 5, n),
                rng.integers(1, 8, n),
                rng.integers(100_000, 999_999, n),
                rng.pareto(1.5, n),
                rng.normal(100, 15, n).round(),
            ]
        )
    assert faults.find_hints([Table(rows.astype(float)) for rows in sites]) == ()


def large_site(seed, n=3000):
    return ward_of(seed, n)


def said_of_large(sites, columns=COLUMNS, most=2**14):
    """What a look says that may look at few entries, so that it takes a sample."""
    assert sum(rows.size for rows in sites) > most
    clients = [LocalData(Table(rows, columns, site=f"site{i}"), missing=True) for i, rows in enumerate(sites)]
    return " ".join(faults.find_hints(clients, most=most))


@pytest.mark.parametrize("what", ["sum", "mean", "sum above mean"])
def test_a_line_of_totals_below_many_rows_is_named_by_sums(what):
    sites = [large_site(seed) for seed in range(3)]
    X = sites[1]
    lines = {"sum": [X.sum(axis=0)], "mean": [X.mean(axis=0)], "sum above mean": [X.sum(axis=0), X.mean(axis=0)]}[what]
    sites[1] = np.r_[X, np.round(lines, 4)]
    said = said_of_large(sites)
    kind = what.split()[0]
    assert f"Row 3000 (from 0 on) is the {kind} of the lines above it, not a row of data" in said


@pytest.mark.parametrize("n", [1, 2])
def test_a_site_of_one_or_two_rows_is_looked_at_beside_large_ones(n):
    X = large_site(0)
    sites = [np.r_[X, X.sum(axis=0)[None]], ward_of(1, n)]
    few = f"Site1 has {n} row{'s' * (n > 1)}: their answers nearly reveal their rows."
    assert said_of_large(sites[::-1]).startswith(few.replace("1 has", "0 has"))
    said = said_of_large(sites)
    assert said.startswith(few)
    assert "Row 3000 (from 0 on) is the sum of the lines above it" in said


def test_codes_and_units_among_many_rows_are_named_by_a_sample():
    sites = [large_site(seed) for seed in range(3)]
    sites[0][::5, 3] = -999
    sites[2][:, 1] = np.round(sites[2][:, 1] * 2.20462, 1)
    said = said_of_large(sites, most=2**15)
    assert "Column glucose holds -999 600 times" in said
    assert "Column weight looks as if site2 had other units" in said


def test_suspicious_columns_of_many_rows_are_read_together(monkeypatch):
    """Each look reads all rows again, and they may be in a large file."""
    sites = [large_site(seed) for seed in range(3)]
    for j in range(len(COLUMNS)):
        sites[0][7 + j, j] = -999
    read, columns_of = [], large._columns_of
    monkeypatch.setattr(large, "_columns_of", lambda client, some: read.append(len(some)) or columns_of(client, some))
    monkeypatch.setattr(large, "_HELD", 1)
    said = said_of_large(sites)
    assert "holds -999 1 time" in said
    assert read.count(4) == len(sites)


@every("seed", range(10))
def test_nothing_is_said_of_many_ordinary_rows(seed):
    assert said_of_large([ward_of(seed * 10 + i, 2000) for i in range(3)]) == ""


def test_a_run_names_a_line_of_totals_below_more_rows_than_are_looked_at_in_full(monkeypatch):
    monkeypatch.setattr(faults, "CHEAP", 2**13)
    rows = large_site(0)
    table = Table(np.r_[rows, rows.sum(axis=0)[None]], COLUMNS)
    hints = " ".join(simulate("krylov", [table], n_components=1).hints)
    assert "is the sum of the lines above it" in hints


def sites_with_many_faults(n, several):
    """Return sites of which some have n rows and one has a few more, with faults of many kinds."""
    sites = [columns_of_one_unit(seed, n) for seed in range(several)]
    sites[0][[5, 70, 105], 3] = -999
    sites[1][33, 1] *= 10.0
    sites[1][61] = np.nan
    sites[2][50] = sites[2][20:50].sum(axis=0)
    sites[2] = np.r_[sites[2], sites[2].sum(axis=0)[None]]
    sites[0][-10:, 0] = np.nan
    sites[3][60:90] = sites[3][:30]
    return sites


NAMES_OF_COLUMNS = [None, tuple(sorted(COLUMNS)), COLUMNS]


def passes_of_their_own(monkeypatch):
    """Let small tables count as large, and return a list that gets the number of sites of each pass for hints alone."""
    monkeypatch.setattr(faults, "BARE", 2**13)
    monkeypatch.setattr(faults, "CHEAP", 2**13)
    monkeypatch.setattr(large, "_STACKED", 2**11)
    passes = []
    monkeypatch.setattr(large, "_blocks_side_by_side", lambda some: passes.append(len(some)) or side_by_side(some))
    return passes


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("names", NAMES_OF_COLUMNS)
def test_hints_in_the_first_pass_are_those_of_a_pass_of_their_own(names, order, monkeypatch):
    passes = passes_of_their_own(monkeypatch)
    sites = [Table(np.array(rows, order=order), names) for rows in sites_with_many_faults(600, 5)]
    found = simulate("krylov", sites, n_components=1, missing="mean").hints
    assert passes == []
    monkeypatch.setattr(faults, "watches_of", lambda sites, columns: [None] * len(sites))
    assert simulate("krylov", sites, n_components=1, missing="mean").hints == found
    assert passes == [1] * len(sites)
    assert len(found) >= 5


def test_hints_about_columns_in_another_order_or_about_some_of_them_need_a_pass_of_their_own(monkeypatch):
    passes = passes_of_their_own(monkeypatch)
    sites = [Table(rows, COLUMNS) for rows in sites_with_many_faults(600, 5)]
    turned = [sites[0].pick(COLUMNS[::-1]), *sites[1:]]
    ordered = [site.pick(sorted(COLUMNS)) for site in sites]
    found = simulate("krylov", ordered, n_components=1, missing="mean").hints
    assert passes == []
    assert simulate("krylov", turned, n_components=1, missing="mean").hints == found
    assert passes == [1] * len(sites)
    passes.clear()
    some = [site.pick(COLUMNS[:4]) for site in sites]
    found = simulate("krylov", some, n_components=1, missing="mean").hints
    assert passes == []
    assert simulate("krylov", sites, n_components=1, missing="mean", columns=COLUMNS[:4]).hints == found
    assert passes == [1] * len(sites)


def test_nothing_looks_at_covariates_in_the_first_pass(monkeypatch):
    passes = passes_of_their_own(monkeypatch)
    monkeypatch.setattr(faults, "watches_of", None)
    sites = [Table(columns_of_one_unit(seed, 4000), COLUMNS) for seed in range(2)]
    simulate("covariance", sites, n_components=1, adjust=COLUMNS[-1:])
    assert passes == [1, 1]


def test_nothing_watches_the_first_pass_of_a_run_without_hints(monkeypatch):
    monkeypatch.setattr(faults, "BARE", 2**14)
    monkeypatch.setattr(faults, "watches_of", None)
    dp = "dp(epsilon=1.0, delta=1e-6, clip=1000.0, noise_seed=0)"
    assert simulate("covariance", [columns_of_one_unit(0, 4000)], n_components=1, dp=dp).hints == ()


@pytest.mark.parametrize("n", [200, 600])
def test_sites_of_equal_length_give_the_same_hints_together_as_alone(n, monkeypatch):
    sites = sites_with_many_faults(n, 40)
    sides = []
    monkeypatch.setattr(large, "_blocks_side_by_side", lambda some: sides.append(len(some)) or side_by_side(some))
    together = said_of_large(sites, most=2**15)
    assert max(sides) > 20
    monkeypatch.setattr(large, "_STACKED", 1)
    assert said_of_large(sites, most=2**15) == together
    assert "is the sum of other lines" in together
    assert "repeat earlier rows" in together


side_by_side = large._blocks_side_by_side


def columns_of_one_unit(seed, n=3000):
    """Return rows of measurements that are all positive and of which none depends on chance alone."""
    rng = np.random.default_rng(seed)
    return np.c_[ward_of(seed, n)[:, :4], rng.random(n) < 0.4, rng.gamma(9.0, 2.0, n).round(2)]


def three_large_sites():
    return [columns_of_one_unit(seed) for seed in range(3)]


# Each of these changes three sites of many rows, of which a sample would miss most single rows and cells.
FAULTS_OF_LARGE_TABLES = {
    "Column glucose holds -999 3 times": lambda S: S[1].__setitem__(([7, 1501, 2888], 3), -999.0),
    "Column glucose holds 1e+20 1 time": lambda S: S[2].__setitem__((1501, 3), 1e20),
    "Column systolic holds 0 2 times, far below all other values": lambda S: S[0].__setitem__(([3, 1999], 2), 0.0),
    "looks 10 times too large, in row 1234": lambda S: S[0].__setitem__((1234, 1), 742.0),
    "looks 10 times too small, in row 1234": lambda S: S[0].__setitem__((1234, 1), 7.4),
    "Row 3000 (from 0 on) to row 3003 (from 0 on) are the mean, standard deviation, minimum and maximum": (
        lambda S: S.__setitem__(
            1, np.r_[S[1], np.round([S[1].mean(0), S[1].std(0, ddof=1), S[1].min(0), S[1].max(0)], 2)]
        )
    ),
    "Row 1700 (from 0 on) is the sum of other lines": (
        lambda S: S.__setitem__(1, np.r_[S[1][:1700], S[1].sum(0)[None], S[1][1700:]])
    ),
    "Row 40 (from 0 on) is the sum of other lines": (
        lambda S: S.__setitem__(2, np.r_[S[2][:40], S[2][33:40].sum(0)[None], S[2][40:]])
    ),
    "400 rows of site0 repeat earlier rows. The first is row 3000": (
        lambda S: S.__setitem__(0, np.r_[S[0], S[0][5:2005:5]])
    ),
    "400 rows of site2 are also in site0": lambda S: S.__setitem__(2, np.r_[S[2], S[0][5:2005:5]]),
    "The values of row 30 (from 0 on) occur in 10 rows": lambda S: S[1].__setitem__(slice(30, 3000, 300), S[1][30]),
    "site2 holds the same rows as site0": lambda S: S.__setitem__(2, S[0].copy()),
    "Row 1500 (from 0 on) holds no value": lambda S: S[1].__setitem__(1500, np.nan),
    "Column glucose has no value at site1": lambda S: S[1].__setitem__((slice(None), 3), np.nan),
    "Column sex is coded by 1 and 2 at site2": lambda S: S[2].__setitem__((slice(None), 4), S[2][:, 4] + 1.0),
    "Column systolic is 120 in all rows of site0": lambda S: S[0].__setitem__((slice(None), 2), 120.0),
}


@pytest.mark.parametrize("expected", FAULTS_OF_LARGE_TABLES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_single_wrong_rows_and_cells_are_found_among_many_rows(expected, order):
    sites = three_large_sites()
    FAULTS_OF_LARGE_TABLES[expected](sites)
    said = said_of_large([np.array(rows, order=order) for rows in sites])
    assert expected in said
    assert "not looked for" not in said


def wide_columns(seed, n=12_000):
    """Return rows of a wide column, a column with a long tail, deviations around 0, and positive measurements."""
    rng = np.random.default_rng(seed)
    weight, bound = rng.normal(75, 19, n).clip(30).round(1), rng.exponential(20.0, n) + 30.0
    return np.c_[weight, bound, rng.standard_normal((n, 4)), rng.normal((130, 100, 80), 15.0, (n, 3))]


WIDE = ("weight", "bound", *"abcdefg")


def test_a_value_with_its_point_elsewhere_is_named_in_a_wide_column_of_many_rows():
    sites = [wide_columns(seed) for seed in range(3)]
    assert said_of_large(sites, WIDE) == ""
    sites[1][4567, 0] = 690.0
    assert said_of_large(sites, WIDE) == (
        "Column weight holds a value that looks 10 times too large, in row 4567 (from 0 on). Check this cell."
    )


def test_a_value_far_beyond_a_long_tail_is_not_named():
    sites = [wide_columns(seed) for seed in range(3)]
    sites[1][4567, 1] = 10 * sites[1][4567, 1]
    assert said_of_large(sites, WIDE) == ""


def test_the_unit_of_a_number_does_not_depend_on_the_numbers_beside_it():
    numbers = np.array(
        [7.0, 3.14, 0.0, 1e-13, -3e-12, 0.123456789, 2.5e-7, np.nan, *np.random.default_rng(0).random(9)]
    )
    together = totals._unit_of_last_place(numbers)
    assert together[:4].tolist() == [1.0, 0.01, 1.0, 1.0]
    assert together.tolist() == [totals._unit_of_last_place(np.array([number]))[0] for number in numbers]


@every("size", [1_000, 4_000, 16_000])
def test_few_rows_are_tried_as_the_first_of_a_sum_although_many_sums_are_equal(size):
    """In a column with few values other than 0, the sums of many rows are equal."""
    rng = np.random.default_rng(size)
    column = np.zeros(size)
    candidates = np.sort(rng.choice(size, size // 10, replace=False))
    column[candidates] = 1.0
    before = np.append(0.0, np.cumsum(column))
    starts = before[candidates] - column[candidates]
    tried = [*shapes._rows_with_sums_near(before, starts, 1e-6)]
    assert sum(map(len, tried)) <= 50 * len(candidates)
    for start, rows in zip(starts, tried, strict=True):
        assert rows[:50].tolist() == np.flatnonzero(before == start)[:50].tolist()


def test_a_subtotal_that_is_small_in_columns_of_deviations_is_named():
    sites = [wide_columns(seed) for seed in range(3)]
    subtotal = sites[1][500:509].sum(axis=0)
    subtotal[2:6] = 0.0
    sites[1][508, 2:6] -= sites[1][500:509, 2:6].sum(axis=0)  # The deviations of these rows cancel out.
    sites[1] = np.insert(sites[1], 509, subtotal, axis=0)
    said = said_of_large(sites, WIDE)
    assert said.startswith("Row 509 (from 0 on) is the sum of other lines")
    assert "looks" not in said, "its values are no mistakes of their own"


def test_a_code_is_named_above_a_line_of_totals():
    sites = three_large_sites()
    sites[1][[7, 1501], 3] = -999.0
    sites[1] = np.r_[sites[1], sites[1].sum(0)[None]]
    said = said_of_large(sites)
    assert "is the sum of the lines above it" in said
    assert "Column glucose holds -999 2 times" in said


def test_nothing_is_said_of_many_rows_of_measurements():
    assert said_of_large(three_large_sites()) == ""


def test_centered_rows_are_read_in_full_only_if_a_last_line_is_a_statistic(monkeypatch):
    """The sums of centered columns are as small as their values, so a rough sum would fit every line."""
    rng = np.random.default_rng(0)
    sites = [rng.standard_normal((3000, 6)) for _ in range(3)]
    read, below = [], shapes.statistics_below
    monkeypatch.setattr(shapes, "statistics_below", lambda rows: read.append(len(rows)) or below(rows))
    assert said_of_large(sites) == ""
    assert read == []
    sites[1] = np.r_[sites[1], np.round([sites[1].sum(0), sites[1].std(0, ddof=1)], 2)]
    assert "are the sum and standard deviation of the lines above" in said_of_large(sites)
    assert read == [3002]


def test_rows_with_gaps_are_not_equal_to_rows_with_zeros():
    sites = three_large_sites()
    some = sites[1][:400].copy()
    sites[1][:400, 3] = 0.0
    some[:, 3] = np.nan
    sites[1] = np.r_[sites[1], some]
    assert "repeat earlier rows" not in said_of_large(sites)


def test_counts_that_add_up_by_accident_are_no_sums_of_rows():
    sites = [np.random.default_rng(seed).poisson(1.5, (20_000, 3)).astype(float) for seed in range(3)]
    assert "sum of other lines" not in said_of_large(sites, ("a", "b", "c"))


def test_what_was_not_looked_for_is_said(monkeypatch):
    sites = three_large_sites()
    monkeypatch.setattr(large, "ROWS", 8_000)
    said = said_of_large(sites)
    assert said == (
        "Totals and statistics among the rows, repeated rows and single wrong values were not looked for, because "
        "there are more than 8,000 rows."
    )
    many = [ward_of(seed, 20) for seed in range(200)]
    assert "were not looked for, because there are too many sites" in said_of_large(many, most=2**14)
    wide = [np.random.default_rng(seed).integers(0, 3, (40, 500)).astype(float) for seed in range(3)]
    assert "were not looked for, because there are too many columns" in said_of_large(wide, None)
    sparse = [sp.random(500, 20, density=0.1, random_state=seed, format="csr") for seed in (0, 1)]
    clients = [LocalData(rows, missing=True) for rows in sparse]
    (hint,) = faults.find_hints(clients)
    assert hint.endswith("similar mistakes were not looked for, because the rows are sparse.")


def test_rows_in_several_blocks_are_looked_at_as_one_array_of_doubles():
    rows = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    for parts in ([rows], [rows[:4], rows[4:]]):
        found = rows_of_client(LocalData(Table.together([Table(part) for part in parts], {}).rows))
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, rows)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("seed", range(4))
def test_medians_of_sizes_are_those_of_numpy(n, seed):
    rng = np.random.default_rng(seed)
    for draw in (rng.standard_normal, lambda size: rng.integers(-3, 4, size).astype(float), rng.standard_exponential):
        sites = [draw((n, 4)) for _ in range(3)]
        expected = np.median(np.abs(np.stack(sites))[:, :, [2, 0]], axis=1)
        assert np.array_equal(Stack([0, 1, 2], sites).median_sizes(np.array([2, 0])), expected)
