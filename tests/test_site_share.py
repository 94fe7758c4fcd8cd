"""Test the share of each component between sites, and the hint about it."""

import json

import numpy as np
import pytest
from builders import share_between_sites

from flower_pca import PCAResult, simulate
from flower_pca.stages import opening
from flower_pca.stages.site_share import exceeds_chance

SIZES = (80, 50, 60)
COLUMNS = 12


def scanners(seed, *, sizes=SIZES, columns=COLUMNS, offsets=(0.0, 2.5, -1.0), gaps=0.0):
    """Rows of sites whose means differ along one random direction."""
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(columns)
    direction /= np.linalg.norm(direction)
    spread = np.linspace(2.0, 1.0, columns)
    shards = [
        rng.standard_normal((n, columns)) * spread + off * direction + 3.0
        for n, off in zip(sizes, offsets, strict=True)
    ]
    for rows in shards:
        rows[rng.random(rows.shape) < gaps] = np.nan
    return shards


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("krylov", {}),
        ("krylov", {"scale": "std"}),
        ("krylov", {"scale": "max_abs"}),
        ("krylov", {"center": False}),
        ("krylov", {"missing": "mean"}),
        ("krylov", {"missing": "local_mean"}),
        ("krylov", {"answers": "fixed"}),
        ("covariance", {"scale": "std"}),
        ("ssi", {"missing": "mean"}),
        ("local_power", {"answers": "fixed"}),
        ("uda", {"center": False}),
        ("uda", {"scale": "max_abs"}),
        ("auto", {"missing": "local_mean"}),
    ],
    ids=str,
)
def test_the_share_is_that_of_an_analysis_of_variance_of_the_pooled_scores(algorithm, settings):
    shards = scanners(1, gaps=0.1 if "missing" in settings else 0.0)
    result = simulate(algorithm, shards, n_components=3, **settings)
    if settings.get("missing") == "local_mean":
        shards = [np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows) for rows in shards]
    expected = share_between_sites([result.transform(rows) for rows in shards])
    np.testing.assert_allclose(result.site_share_, expected, atol=1e-12)
    assert result.sites_ == 3


def test_the_share_is_known_after_a_run_that_stopped_early():
    shards = scanners(2)
    result = simulate("ssi(max_rounds=1)", shards, n_components=2)
    assert not result.status.ok
    np.testing.assert_allclose(
        result.site_share_, share_between_sites([result.transform(rows) for rows in shards]), atol=1e-12
    )


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("krylov", {"mask": True}),
        ("krylov", {"max_share": 0.35}),
        ("ssi", {"dp": "dp(epsilon=50.0, delta=1e-6, clip=20.0)", "max_rounds": 5}),
        ("median_pca", {}),
        ("sparse_pca", {}),
        ("dcf_pca", {}),
        ("exact_per_pca", {}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_share_that_cannot_be_known_is_absent(algorithm, settings):
    result = simulate(algorithm, scanners(3), n_components=2, **settings)
    assert result.site_share_ is None
    assert result.sites_ is None
    assert "between sites" not in result.table()
    assert not [hint for hint in result.hints if "between sites" in hint]


def test_sites_of_one_row_each_have_no_share():
    rows = np.random.default_rng(4).standard_normal((30, 6))
    assert simulate("krylov", np.split(rows, 30), n_components=2).site_share_ is None


@pytest.mark.parametrize("algorithm", ["krylov", "covariance"])
def test_rows_that_are_alike_within_every_site_lie_between_sites_alone(algorithm):
    result = simulate(algorithm, [np.full((30, 3), float(i)) for i in range(4)], n_components=2)
    np.testing.assert_allclose(result.site_share_, [1.0, 0.0], atol=1e-12)
    assert [hint for hint in result.hints if "100% of the variance" in hint]


def test_one_site_has_no_share():
    rows = np.random.default_rng(4).standard_normal((30, 6))
    assert simulate("krylov", [rows], n_components=2).site_share_ is None


def test_the_shares_of_a_site_that_left_are_those_of_the_others():
    shards = scanners(5)
    result = simulate("krylov", shards, n_components=2, fraction=lambda message: [0, 1, 2] if message < 2 else [0, 1])
    assert result.n_samples_ == sum(SIZES[:2])
    np.testing.assert_allclose(
        result.site_share_, share_between_sites([result.transform(rows) for rows in shards[:2]]), atol=1e-12
    )


def test_the_server_keeps_nothing_of_very_many_sites(monkeypatch):
    monkeypatch.setattr(opening, "SUMMED", 3 * COLUMNS - 1)
    assert simulate("krylov", scanners(6), n_components=2).site_share_ is None
    assert simulate("krylov", scanners(6)[:2], n_components=2).site_share_ is not None


def test_table_json_file_and_hint_have_the_share(tmp_path):
    result = simulate("krylov", scanners(7, offsets=(0.0, 5.0, -5.0)), n_components=2)
    (hint,) = [hint for hint in result.hints if "between sites" in hint]
    assert hint.startswith(f"Component 1 differs between sites: {result.site_share_[0]:.0%} of the variance along it")
    assert "the 3 sites" in hint
    assert "between sites" in result.table().splitlines()[0]
    assert f"{result.site_share_[0]:.1%}" in result.table().splitlines()[1]
    figures = {fact.key: fact.value for fact in result.summary().facts if fact.key}
    assert json.loads(json.dumps(figures["site_share"])) == result.site_share_.tolist()
    again = PCAResult.load(result.save(tmp_path / "result.npz"))
    assert np.array_equal(again.site_share_, result.site_share_)
    assert again.sites_ == 3
    assert hint in again.hints


def test_a_hint_about_an_identifier_leaves_the_hint_about_sites():
    shards = [np.column_stack([rows, np.arange(len(rows)) * 1000.0]) for rows in scanners(7, offsets=(0.0, 5.0, -5.0))]
    hints = simulate("krylov", shards, n_components=2).hints
    assert [hint for hint in hints if "column 12 alone" in hint or "Column 12 alone" in hint]
    assert [hint for hint in hints if "between sites" in hint]


def hinted(shards, k):
    """Whether the rule finds a difference between sites, by the components of LAPACK."""
    pooled = np.vstack(shards)
    n = len(pooled)
    components = np.linalg.svd(pooled - pooled.mean(axis=0), full_matrices=False)[2][:k]
    share = share_between_sites([rows @ components.T for rows in shards])
    return exceeds_chance(share, len(shards), n).any()


def alike(rng, kind):
    """Rows of sites that do not differ."""
    match kind:
        case "two large sites":
            return np.split(rng.standard_normal((600, 40)), [300])
        case "wide":
            return np.split(rng.standard_normal((90, 400)), [30, 60])
        case "thirty sites of ten rows":
            return np.split(rng.standard_normal((300, 8)), 30)
        case "a hundred sites of three rows":
            return np.split(rng.standard_normal((300, 8)), 100)
        case "sizes that differ":
            return np.split(rng.standard_normal((405, 10)), [5, 35, 105])
        case "lognormal":
            return np.split(np.exp(rng.standard_normal((300, 8))), 3)
        case "rare entries":
            return np.split((rng.random((300, 20)) < 0.05).astype(float), 3)
        case "heavy tails":
            return np.split(rng.standard_t(2.5, (300, 8)), 3)
        case _:
            return np.split(rng.standard_normal((12, 6)), 2)


KINDS = [
    *("two large sites", "wide", "thirty sites of ten rows", "a hundred sites of three rows"),
    *("sizes that differ", "lognormal", "rare entries", "heavy tails", "six rows each"),
]


@pytest.mark.slow
def test_sites_that_are_alike_give_no_hint():
    """At most 4 of 3,000 runs are expected to; these are 900."""
    rng = np.random.default_rng(8)
    found = {kind: sum(hinted(alike(rng, kind), 5) for _ in range(100)) for kind in KINDS}
    assert sum(found.values()) <= 2, found


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "least"), [(300, 100), (30, 97)])
def test_two_scanners_are_found(rows, least):
    """The second scanner lies 1.2 deviations off in every fourth column, with a spread of 1.3."""
    rng = np.random.default_rng(9)
    found = 0
    for _ in range(100):
        first = rng.standard_normal((rows, 20))
        second = 1.3 * rng.standard_normal((rows, 20)) + 1.2 * (np.arange(20) % 4 == 0)
        found += hinted([first, second], 3)
    assert found >= least
