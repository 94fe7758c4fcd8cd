"""Test that a site in other units is found without its rows, by means and deviations of the opening."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fake_grid import grid_of, in_a_run

from flower_pca.hints.units import hints_by_moments
from flower_pca.rows.frame import Frame
from flower_pca.stages import opening
from flower_pca.strategies import PCAStrategy

NAMES = ("glucose", "weight", "systolic")


def measured_tables(seed: int = 0, sites: int = 3) -> list[pd.DataFrame]:
    rng = np.random.default_rng(seed)
    means, sizes = np.array([105.0, 75.0, 130.0]), np.array([18.0, 12.0, 15.0])
    made = (means + sizes * (rng.standard_normal((60, 3)) + 0.2 * rng.standard_normal(3)) for _ in range(sites))
    return [pd.DataFrame(rows, columns=list(NAMES)) for rows in made]


def fitted_with_lines(shards: list[pd.DataFrame], **asked: Any) -> Any:
    with in_a_run() as lines:
        result = PCAStrategy("krylov", n_components=2, **{"scale": "std", **asked}).fit(grid_of(shards))
    return result, lines


@pytest.mark.parametrize("scale", [None, "std"])
def test_a_site_in_other_units_is_named(scale: str | None) -> None:
    shards = measured_tables()
    shards[1]["glucose"] /= 18.016
    result, lines = fitted_with_lines(shards, scale=scale)
    (said,) = [hint for hint in result.hints if "other units" in hint]
    assert re.match(r"Glucose looks as if client \d+ had other units: its mean is 5\.", said)
    assert "the factor between mg/dl and mmol/l of glucose" in said
    assert said in lines
    clean, _ = fitted_with_lines(measured_tables(), scale=scale)
    assert not [hint for hint in clean.hints if "other units" in hint]


@pytest.mark.slow
def test_a_site_without_a_value_is_no_other_to_compare_by() -> None:
    """By its mean of nothing, 0, a site in the middle would lie apart, or one in other units would not."""
    shards = measured_tables(sites=4)
    shards[0]["glucose"] = np.nan
    shards[1]["glucose"] /= 18.016
    result, _ = fitted_with_lines(shards, missing="mean")
    (said,) = [hint for hint in result.hints if "other units" in hint]
    assert re.search(r"its mean is 5\.\d+, against 1\d\d\.\d at the other sites, the factor between mg/dl", said)
    for table in shards[1:]:
        table["glucose"] = np.nan
    shards[3]["glucose"] = np.arange(60.0)
    assert not [hint for hint in fitted_with_lines(shards, missing="mean")[0].hints if "other units" in hint]


@pytest.mark.slow
def test_masked_sums_do_not_reveal_units_of_a_site() -> None:
    shards = measured_tables()
    shards[1]["glucose"] /= 18.016
    result, _ = fitted_with_lines(shards, mask=True)
    assert not result.hints


@pytest.mark.parametrize(("sites", "columns"), [(2, 2**14 + 1), (300, 200)])
def test_a_run_does_not_carry_the_means_of_very_many(sites: int, columns: int) -> None:
    said = {i: {"n": np.array(30), "mean": np.ones(columns), "m2": np.ones(columns)} for i in range(sites)}
    found = opening._site_statistics(opening.OpeningState(0, 1, peaks=False, said=said), Frame())
    assert opening.SITE_MEANS not in found
    assert found[opening.SITE_SUMS].shape == (sites, columns)
    few = {i: {name: a if a.ndim == 0 else a[:50] for name, a in said[i].items()} for i in range(2)}
    found = opening._site_statistics(opening.OpeningState(0, 1, peaks=False, said=few), Frame())
    assert found[opening.SITE_MEANS].shape == (2, 50)


@pytest.mark.slow
@pytest.mark.parametrize("draw", ["normal", "lognormal", "standard_exponential"])
def test_sites_that_are_alike_are_not_named(draw: str) -> None:
    rng, named = np.random.default_rng(3), 0
    for _ in range(200):
        made = [getattr(rng, draw)(size=(40, 6)) + 2.0 for _ in range(5)]
        means, deviations = (np.stack([of(X, axis=0) for X in made]) for of in (np.mean, np.std))
        named += bool(hints_by_moments(list("abcde"), np.full(5, 40), means, deviations, list("uvwxyz")))
    assert named <= 2
