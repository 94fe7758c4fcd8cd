"""Test that sites far from most others are named, even if nearly half of all sites are far away."""

import numpy as np
import pandas as pd
import pytest
from fake_grid import grid_of, in_a_run

from flower_pca import PCAResult, simulate
from flower_pca.hints.repeats import without_repeated_hints
from flower_pca.stages.outlying_sites import OutlyingKind, find_outlying
from flower_pca.strategies import PCAStrategy

COLUMNS = 8
SPREAD = np.linspace(2.0, 8.0, COLUMNS)


def hospitals(rng, sites, rows):
    """Rows of sites that differ by chance and by a little in their means."""
    correlation = 0.4 + 0.6 * np.eye(COLUMNS)
    mix = np.linalg.cholesky(correlation).T * SPREAD
    return [rng.standard_normal((rows, COLUMNS)) @ mix + 50.0 + rng.standard_normal(COLUMNS) for _ in range(sites)]


def ten_times(rows, j):
    rows[:, j] *= 10.0


def hundred_times(rows, j):
    rows[:, j] *= 100.0


def ten_times_as_wide(rows, j):
    rows[:, j] = 50.0 + (rows[:, j] - 50.0) * 10.0


def other_units(rows, j):
    rows[:, j] /= 18.016


def one_row_again_and_again(rows, j):
    rows[:] = rows[0]


def elsewhere(rows, j):
    rows += 5.0 * SPREAD.max()


def turned_sign_and_mean(rows, j):
    rows[:, j] *= -1.0


def turned_sign(rows, j):
    rows[:, j] = 100.0 - rows[:, j]


def other_order(rows, j):
    rows[:] = np.roll(rows, 3, axis=1)


def outlying(shards, rng, width=6):
    """The places that are named, from the same figures that an opening has."""
    block = rng.standard_normal((COLUMNS, width))
    rows = np.array([len(X) for X in shards])
    means = np.array([X.mean(axis=0) for X in shards])
    deviations = np.array([X.std(axis=0) for X in shards])
    products = np.array([(X - X.mean(axis=0)).T @ ((X - X.mean(axis=0)) @ block) for X in shards])
    return [one.site for one in find_outlying(rows, means, deviations, block, products)]


FAULTS = [ten_times, hundred_times, ten_times_as_wide, other_units, one_row_again_and_again, elsewhere]


@pytest.mark.parametrize("fault", [*FAULTS, turned_sign_and_mean])
@pytest.mark.parametrize(("sites", "bad"), [(20, 2), (20, 8), (6, 2), (5, 1), (3, 1)])
def test_bad_sites_below_half_are_all_named_and_nobody_else_is(fault, sites, bad):
    if fault is ten_times_as_wide and sites < 5:
        pytest.skip("of fewer than five sites only a factor of thirty is sure")
    rng = np.random.default_rng(1)
    right = 0
    for _ in range(20):
        shards = hospitals(rng, sites, 100)
        for rows in shards[:bad]:
            fault(rows, 3)
        right += sorted(outlying(shards, rng)) == list(range(bad))
    assert right >= 19


@pytest.mark.parametrize("fault", [turned_sign, other_order])
@pytest.mark.parametrize(("sites", "bad"), [(20, 2), (6, 2), (3, 1)])
def test_a_turned_sign_and_another_order_of_columns_are_named_at_sites_of_many_rows(fault, sites, bad):
    """Means tell nothing here, as all columns have the same mean, about which the sign is turned."""
    rng = np.random.default_rng(2)
    right = 0
    for _ in range(20):
        shards = hospitals(rng, sites, 600)
        for rows in shards[:bad]:
            fault(rows, 3)
        right += sorted(outlying(shards, rng)) == list(range(bad))
    assert right >= 19


DRAWS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "exponential": lambda rng, shape: rng.standard_exponential(shape),
    "lognormal": lambda rng, shape: np.exp(rng.standard_normal(shape)),
    "heavy tails": lambda rng, shape: rng.standard_t(5, shape),
    "rare": lambda rng, shape: (rng.random(shape) < 0.05).astype(float),
}


@pytest.mark.parametrize("seed", range(12))
def test_the_column_whose_sign_is_turned_is_named_however_few_there_are(seed):
    """Of few columns, another one may lose as much of its correlations with the block as the turned one."""
    rng = np.random.default_rng([seed, 4])
    turned = int(rng.integers(4))
    parts = [rng.standard_normal((300, 1)) + 0.7 * rng.standard_normal((300, 4)) for _ in range(3)]
    parts[1][:, turned] *= -1.0
    named = [hint for hint in simulate("krylov", parts, n_components=2, seed=seed).hints if "correlations" in hint]
    assert [hint.split(" with ")[0] for hint in named] == [f"The correlations of column {turned}"]


@pytest.mark.slow
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("sites", [3, 6, 20])
def test_sites_that_are_alike_are_not_named(draw, sites):
    rng, accused = np.random.default_rng(3), 0
    for rows in (25, 100):
        for _ in range(100):
            accused += bool(outlying(np.split(DRAWS[draw](rng, (rows * sites, COLUMNS)), sites), rng))
    assert accused <= 2  # of 200


def test_many_sites_that_differ_much_are_not_named():
    """139 schools, whose means differ by as much as their pupils do."""
    rng = np.random.default_rng(4)
    shards = [
        rng.standard_normal((int(rng.integers(20, 60)), COLUMNS)) * np.exp(0.3 * rng.standard_normal(COLUMNS))
        + rng.standard_normal(COLUMNS)
        for _ in range(139)
    ]
    assert outlying(shards, rng) == []


def test_nobody_is_named_if_half_of_the_sites_are_odd():
    rng = np.random.default_rng(5)
    shards = hospitals(rng, 6, 100)
    for rows in shards[:3]:
        rows[:, 2] *= 100.0
    assert outlying(shards, rng) == []


def test_sites_of_few_rows_are_not_compared():
    rng = np.random.default_rng(5)
    shards = hospitals(rng, 6, 19)
    shards[0] *= 100.0
    assert outlying(shards, rng) == []


def two_of_six(seed=6):
    names = ["bonn", "jena", "trier", "ulm", "kiel", "mainz"]
    shards = dict(zip(names, hospitals(np.random.default_rng(seed), 6, 80), strict=True))
    for name in ("jena", "kiel"):
        other_units(shards[name], 4)
    return shards


def about_outlying(result):
    """One hint for each site, which names the unit if it is known."""
    return [hint for hint in result.hints if "most other sites" in hint or "had other units" in hint]


def test_both_of_six_hospitals_with_other_units_are_named_in_a_simulation(tmp_path):
    result = simulate("krylov", two_of_six(), n_components=2)
    hints = about_outlying(result)
    assert len(hints) == 2
    assert sorted(name for hint in hints for name in ("jena", "kiel") if name in hint) == ["jena", "kiel"]
    assert all("olumn 4 looks as if" in hint for hint in hints)
    assert about_outlying(PCAResult.load(result.save(tmp_path / "r.npz"))) == hints


@pytest.mark.parametrize("algorithm", ["median_pca", "covariance", "uda", "dcf_pca"])
@pytest.mark.filterwarnings("ignore")
def test_outlying_sites_are_named_by_every_algorithm(algorithm):
    assert len(about_outlying(simulate(algorithm, two_of_six(), n_components=2, center=True))) == 2


@pytest.mark.slow
def test_outlying_sites_are_named_over_flower():
    with in_a_run():
        result = PCAStrategy("krylov", n_components=2, min_nodes=6).fit(grid_of(list(two_of_six().values())))
    assert len(about_outlying(result)) == 2


def test_a_hint_about_an_identifier_leaves_them_named():
    shards = {name: np.column_stack([rows, 1000.0 * np.arange(80)]) for name, rows in two_of_six().items()}
    result = simulate("krylov", shards, n_components=2)
    assert len([hint for hint in result.hints if "olumn 8 alone has" in hint]) == 1
    assert len(about_outlying(result)) == 2


def test_the_server_does_not_name_them_under_masks_where_it_sees_no_site():
    hints = simulate("krylov", two_of_six(), n_components=2, mask=True).hints
    assert not [hint for hint in hints if "most other sites" in hint]


def test_missing_values_do_not_hide_outlying_sites():
    shards = two_of_six()
    rng = np.random.default_rng(7)
    for rows in shards.values():
        rows[rng.random(rows.shape) < 0.1] = np.nan
    assert len(about_outlying(simulate("krylov", shards, n_components=2, missing="mean"))) == 2


@pytest.mark.parametrize("left", [0, 5])
def test_a_column_of_which_a_site_has_few_values_names_nobody(left):
    shards = hospitals(np.random.default_rng(10), 4, 60)
    shards[1][left:, 2] = np.nan
    assert about_outlying(simulate("krylov", shards, n_components=2, missing="mean")) == []


def test_kinds_say_what_differs():
    rng = np.random.default_rng(8)
    shards = hospitals(rng, 7, 300)
    elsewhere(shards[0], 3)
    ten_times_as_wide(shards[1], 3)
    one_row_again_and_again(shards[2], 3)
    figures = (
        np.array([len(X) for X in shards]),
        np.array([X.mean(axis=0) for X in shards]),
        np.array([X.std(axis=0) for X in shards]),
    )
    found = {one.site: one for one in find_outlying(*figures)}
    assert {site: one.kind for site, one in found.items()} == {
        0: OutlyingKind.MEAN,
        1: OutlyingKind.SPREAD,
        2: OutlyingKind.CONSTANT,
    }
    assert found[1].column == 3
    assert 7.0 < found[1].times < 13.0


def measured(site, glucose):
    rng = np.random.default_rng([9, *site.encode()])
    rows = rng.normal([glucose, 75.0, 130.0], [glucose / 7.0, 12.0, 15.0], (80, 3))
    return pd.DataFrame(rows, columns=["glucose", "weight", "systolic"])


def two_in_other_units():
    return {site: measured(site, 5.6 if site in ("jena", "kiel") else 100.0) for site in two_of_six()}


def test_a_site_whose_units_are_named_is_not_named_twice():
    hints = simulate("krylov", two_in_other_units(), n_components=2, scale="std").hints
    assert [hint.partition(" had other units")[0] for hint in hints if "glucose" in hint] == [
        "Column glucose looks as if jena",
        "Column glucose looks as if kiel",
    ]


@pytest.mark.slow
def test_a_site_whose_units_are_named_is_not_named_twice_over_flower():
    with in_a_run():
        strategy = PCAStrategy("krylov", n_components=2, scale="std", min_nodes=6)
        hints = strategy.fit(grid_of(list(two_in_other_units().values()))).hints
    assert len([hint for hint in hints if "lucose looks as if" in hint]) == 2
    assert not [hint for hint in hints if "The mean of column glucose" in hint]


def test_hints_about_other_columns_and_sites_stay():
    units = "Column glucose looks as if jena had other units: its median is 5.4, against 98. Convert this column."
    far = "The mean of column {} at {} is 9 standard deviations away from the mean of most other sites."
    kept = [far.format("weight", "jena"), far.format("glucose", "kiel")]
    assert without_repeated_hints([units, far.format("glucose", "jena"), *kept]) == (units, *kept)
