"""Test that a site tests its own variants for Hardy-Weinberg equilibrium, and that runs leave out what fails."""

from fractions import Fraction
from math import factorial

import numpy as np
import pytest
from fake_grid import grid_of
from genotypes import write_bed

from flower_pca import DataError, simulate, strategies
from flower_pca.base.errors import NotEnoughNodes
from flower_pca.data import sources
from flower_pca.names.table import Table
from flower_pca.rows.frame import Moments
from flower_pca.rows.hardy_weinberg import p_values
from flower_pca.rows.local import LocalData


def by_hand(none, one, two):
    """The p-value with whole numbers: the share of the ways that are not more probable than what was seen."""
    n, rare = none + one + two, min(one + 2 * none, one + 2 * two)
    ways = {}
    for h in range(rare % 2, rare + 1, 2):
        r = (rare - h) // 2
        ways[h] = Fraction(2**h * factorial(n), factorial(h) * factorial(r) * factorial(n - h - r))
    return float(sum(w for w in ways.values() if w <= ways[one]) / sum(ways.values()))


def column(none, one, two, gaps=0):
    return np.repeat([0.0, 1.0, 2.0, np.nan], [none, one, two, gaps])


COUNTS = [(10, 30, 60), (60, 30, 10), (100, 0, 0), (99, 1, 0), (50, 0, 50), (0, 100, 0), (80, 11, 9), (25, 50, 25)]


def test_p_values_are_those_of_exact_whole_numbers():
    X = np.stack([column(*counts) for counts in COUNTS], axis=1)
    found = p_values(LocalData(X).observed_moments(), "site")
    np.testing.assert_allclose(found, [by_hand(*counts) for counts in COUNTS], rtol=1e-9)
    plinks = [0.0588581, 0.0588581, 1, 1, 1.11422e-30, 1.51139e-29, 2.65401e-06, 1]  # by plink2 --hardy
    np.testing.assert_allclose(found, plinks, rtol=5e-6)


def test_people_without_a_value_do_not_count():
    X = np.stack([column(10, 30, 55, gaps=5), column(40, 20, 10, gaps=30), column(0, 0, 0, gaps=100)], axis=1)
    found = p_values(LocalData(X, missing=True).observed_moments(), "site")
    np.testing.assert_allclose(found, [by_hand(10, 30, 55), by_hand(40, 20, 10), 1.0], rtol=1e-9)


def test_many_people_are_tested_by_what_has_weight():
    n, p = 200_000, 0.3
    expected = np.array([(1 - p) ** 2, 2 * p * (1 - p), p**2]) * n
    moments = []
    for fewer in (0, 300, 1000, 20_000):
        _, one, two = expected + np.array([fewer / 2, -fewer, fewer / 2])
        mean = (one + 2 * two) / n
        moments.append((mean, one + 4 * two - n * mean**2))
    mean, m2 = np.array(moments).T
    found = p_values(Moments(n, mean, m2), "site")
    # With so many people, the exact test is nearly that of chi-square.
    from scipy.stats import chi2

    usual = chi2.sf([n * (fewer / expected[1]) ** 2 for fewer in (0, 300, 1000)], 1)
    np.testing.assert_allclose(found[:3], usual, rtol=0.1)
    assert found[3] < 1e-300


def test_other_values_than_counts_are_refused():
    X = np.array([[0.5, 1.0], [0.0, 2.0], [1.0, 0.0]])
    with pytest.raises(DataError, match=r"needs allele counts of 0, 1 or 2, but 1 column of site holds other values"):
        p_values(LocalData(X).observed_moments(), "site")


NAMES = tuple(f"1:{1000 + j}:A:G" for j in range(20))


def two_populations(seed=1):
    """Two sites of one population each, in equilibrium but for columns 3 and 8 at one site; and the names of these."""
    rng = np.random.default_rng(seed)
    p = np.stack([rng.uniform(0.1, 0.4, 20), rng.uniform(0.6, 0.9, 20)])
    sites = [rng.binomial(2, own, (150, 20)).astype(float) for own in p]
    sites[1][:, 3] = 2.0 * (rng.random(150) < 0.7)
    sites[1][:, 8] = np.where(rng.random(150) < 0.9, 1.0, 2.0)
    return sites, {NAMES[3], NAMES[8]}


ASKED = {"scale": "genotype", "n_components": 2, "variants": "variants(maf=0, call=0, hwe=1e-6)"}


@pytest.mark.parametrize("options", [{}, {"mask": True}, {"answers": "fixed"}], ids=["plain", "masks", "fixed"])
def test_variants_that_fail_at_one_site_are_left_out_and_mixed_populations_are_not(options):
    sites, out = two_populations()
    result = simulate("covariance", [Table(part, NAMES) for part in sites], **ASKED, **options)
    assert set(NAMES) - set(result.feature_names_in_) == out
    words = "2 of 20 variants were left out: 2 out of Hardy-Weinberg equilibrium (p < 1e-06) at one site or more"
    assert words in result.decisions
    together = p_values(LocalData(np.vstack(sites)).observed_moments(), "all")
    assert (together < 1e-6).sum() > 10  # which is why there is no test of all people


def test_the_test_takes_one_message_more(tmp_path):
    sites, _ = two_populations()
    files = [write_bed(tmp_path / f"{i}.bed", part) for i, part in enumerate(sites)]
    tables = [sources.table(str(file)) for file in files]
    tested, untested = (
        simulate("covariance", tables, scale="genotype", variants=f"variants(maf=0, call=0{more})")
        for more in (", hwe=1e-6", "")
    )
    assert tested.history.count == untested.history.count + 1
    assert untested.n_features_in_ - tested.n_features_in_ == 2


@pytest.mark.usefixtures("lines")
def test_nodes_test_if_their_operators_have_named_it():
    sites, out = two_populations()
    tables = [Table(part, NAMES) for part in sites]
    strategy = strategies.Covariance(**ASKED, min_nodes=2, node_timeout=0.1)
    with pytest.raises(NotEnoughNodes, match="hardy_weinberg"):
        strategy.fit(grid_of(tables, answers="fixed", allow=None))
    found = strategy.fit(grid_of(tables, answers="fixed", allow=["standardize", "covariance", "hardy_weinberg"]))
    assert set(NAMES) - set(found.feature_names_in_) == out
