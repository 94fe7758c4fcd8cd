"""Test the report of every kind of run, shown completely by a browser, in light and dark mode."""

import functools
import io
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import deal, rows, shards
from cases import paired, slow_if
from test_report import CUT, Reader, page_of_sketches, page_of_words, report_page

from flower_pca import DP, PCAResult, TrackingResult, simulate, track
from flower_pca.names.table import Table
from flower_pca.plots import figure, pictures_for_report

pytestmark = pytest.mark.xdist_group("browser")  # One browser serves all pages.

COLUMNS = [
    "age",
    "pulse",
    "glucose",
    "lactate",
    "price in $ per $",
    "Größe",
    "a_very_long_name_of_a_column_indeed",
    "hb",
]
SITES = {0: "North <Hospital>", 1: "East", 2: "a_very_long_name_of_a_site_that_does_not_end"}
D = len(COLUMNS)


def named_parts(parts):
    """The rows with the names of their columns and sites."""
    return [Table(X, names=tuple(COLUMNS), site=SITES[i]) for i, X in enumerate(parts)]


def plain_rows():
    return named_parts(shards((60, 25, 40), 0.8 ** np.arange(D)))


def rows_with_far_entries():
    """Rows of rank two with far entries, ever more from column to column."""
    rng = np.random.default_rng(0)
    B, parts = rng.standard_normal((2, D)), []
    for n in (80, 50, 60):
        X = rng.standard_normal((n, 2)) @ B
        hit = rng.random((n, D)) < np.linspace(0.0, 0.14, D)
        X[hit] += 50.0 * rng.choice([-1.0, 1.0], hit.sum())
        parts.append(X)
    return named_parts(parts)


def split():
    """Two shared directions, and one of its own for each client."""
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    return named_parts([
        3.0 * rng.standard_normal((n, 2)) @ Q[:2] + 2.0 * rng.standard_normal((n, 1)) @ Q[2 + i : 3 + i]
        + 0.1 * rng.standard_normal((n, D)) for i, n in enumerate((80, 50, 60))
    ])  # fmt: skip


def stepped():
    rng = np.random.default_rng(2)
    halves = [rng.standard_normal((120, 2)) @ rng.standard_normal((2, D)) for _ in range(2)]
    return np.vstack(halves) + 0.01 * rng.standard_normal((240, D))


def noisy(epsilon=0.5, n=1500, mask=False):
    parts = named_parts(deal(rows(n, 0.7 ** np.arange(D), seed=4) + 0.2, (n // 2, n // 4, n - n // 2 - n // 4)))
    dp = DP(epsilon=epsilon, delta=1e-7, clip=3.0, noise_seed=1)
    return simulate("ssi(oversample=2, max_rounds=3)", parts, n_components=3, dp=dp, mask=mask), parts


def tracked():
    tracker = "st_miss(detect=True, update_length=2, threshold=0.5)"
    found = track(tracker, [stepped()], n_components=2, batch=24)
    return replace(found, feature_names_in_=np.array(COLUMNS, dtype=object))


def run_of_kind(algorithm, parts, **options):
    return simulate(algorithm, parts, n_components=2, **options), parts


KINDS = {
    "plain": lambda: run_of_kind("krylov", plain_rows(), reconstruction_error=True),
    "explained": lambda: run_of_kind("krylov", plain_rows(), explain="age"),
    "one shot": lambda: run_of_kind("uda", plain_rows()),
    "masked": lambda: run_of_kind("krylov", plain_rows(), mask=True),
    "robust": lambda: run_of_kind("consensus_rpca", rows_with_far_entries()),
    "robust, masked": lambda: run_of_kind("dcf_pca(max_rounds=30)", rows_with_far_entries(), mask=True),
    "robust, loaded": lambda: (replace(case("robust")[0], local={}), None),
    "personal": lambda: run_of_kind("exact_per_pca(local_components=1)", split()),
    "personal, loaded": lambda: (replace(case("personal")[0], local={}), None),
    "noise": noisy,
    "noise, masked": lambda: noisy(mask=True),
    "steps": lambda: (tracked(), None),
}


@functools.cache
def case(kind):
    return (KINDS | MANY)[kind]()


@functools.cache
def page_of_kind(kind):
    """The page of a kind, which is drawn once."""
    result, parts = case(kind)
    with tempfile.TemporaryDirectory() as folder:
        return report_page(result, Path(folder), shards=parts)


@functools.cache
def read_of_kind(kind):
    """The page of a kind, with its pictures' places: what is asked of its words needs no more."""
    result, parts = case(kind)
    with tempfile.TemporaryDirectory() as folder:
        return Reader(page_of_sketches(result, Path(folder), shards=parts))


def many(algorithm):
    """A run over 139 sites of a few rows each, with columns and sites of long names."""
    parts = [Table(X, names=tuple(COLUMNS), site=f"school number {i} of the district") for i, X in enumerate(
        shards(tuple(6 + i % 5 for i in range(139)), 0.8 ** np.arange(D)))]  # fmt: skip
    return run_of_kind(algorithm, parts)


MANY = {"139 sites": lambda: many("krylov"), "139 sites, personal": lambda: many("exact_per_pca(local_components=1)")}
SIGHTS = [(390, "dark"), (1280, "light"), (390, "light"), (1280, "dark")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "width", "scheme"),
    [(kind, *sight) for kind in ("plain", *MANY) for sight in SIGHTS]
    + [(kind, *SIGHTS[(i + j) % 4]) for i, kind in enumerate(KINDS) if kind != "plain" for j in (0, 1)],
)
def test_a_browser_shows_each_page_whole_in_the_colors_of_the_reader(tab, kind, width, scheme, tmp_path):
    from matplotlib.image import imread

    result, parts = case(kind)
    (tmp_path / "report.html").write_text(page_of_kind(kind), encoding="utf-8")
    tab.open((tmp_path / "report.html").as_uri(), width=width, height=900, mobile=width < 800, scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("document.images[0].getBoundingClientRect().top") < 1200
    tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert tab.evaluate(CUT) == []
    drawn = tab.evaluate("[...document.images].filter(i => i.complete && i.naturalWidth > 300).length")
    assert drawn == len(pictures_for_report(result, parts))
    assert tab.complaints == []
    place = tab.evaluate("(r => [r.left + r.width / 2, r.top + 3])(document.images[0].getBoundingClientRect())")
    seen = [imread(io.BytesIO(tab.screenshot((x, y, 1, 1))), format="png") for x, y in ((4, 4), place)]
    ground, paper = (float(pixel[0, 0, :3].mean()) for pixel in seen)
    assert (max(ground, paper) < 0.2) if scheme == "dark" else (min(ground, paper) > 0.9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_if(KINDS, *{*KINDS} - {"plain"}))
def test_every_kind_has_a_page_that_names_columns_and_clients(kind):
    result, parts = case(kind)
    read = read_of_kind(kind)
    assert len(read.images) == len(pictures_for_report(result, parts))
    words = " ".join(cell for table in read.tables.values() for row in table for cell in row)
    assert any(name in words for name in COLUMNS)
    if parts is not None:
        assert all(name in words for name in SITES.values())
    assert "nan" not in words.split()


@pytest.mark.slow
def test_a_robust_page_says_what_was_taken_out_of_whom():
    result, _ = case("robust")
    read = read_of_kind("robust")
    taken = [result.local[i]["S"] != 0.0 for i in range(3)]
    clients = read.tables["Clients: what was taken out"][1:]
    assert [row[2] for row in clients] == [f"{part.mean():.2%}" for part in taken]
    assert [row[4] for row in clients] == [f"{np.sqrt(np.mean(result.local[i]['S'] ** 2)):.4g}" for i in range(3)]
    assert [row[3] for row in clients] == [f"{np.sqrt(np.mean(result.local[i]['L'] ** 2)):.4g}" for i in range(3)]
    share = np.vstack(taken).mean(axis=0)
    order = np.argsort(-share, kind="stable")
    columns = read.tables["Columns: what was taken out"][1:]
    far = result.outlier_share_by_column_
    assert columns == [[result.feature_names_in_[j], f"{share[j]:.2%}", f"{far[j]:.2%}"] for j in order]
    assert read.facts["entries taken out"] == f"{share.mean():.2%}"
    assert read.facts["of all entries, far off"] == f"{result.outlier_share_:.2%}"
    assert "variance explained" not in read.facts
    assert "residual" not in " ".join(read.tables["Components"][0])
    assert any(f"in full: {share.mean():.2%} of all entries" in words for words in read.text["p"])


@pytest.mark.slow
def test_a_robust_page_from_a_file_finds_the_same_by_the_rows_and_says_so_without_them(tmp_path):
    result, parts = case("robust")
    result.save(tmp_path / "r.npz")
    loaded = PCAResult.load(tmp_path / "r.npz")
    read, whole = (Reader(page_of_words(given, tmp_path, shards=parts)) for given in (loaded, result))
    for title in ("Columns: what was taken out", "Clients: what was taken out"):
        place = read.tables[title][0].index("entries taken out")
        assert [row[place] for row in read.tables[title]] == [row[place] for row in whole.tables[title]]
    alone = Reader(page_of_words(loaded, tmp_path))
    order = np.argsort(-result.removed_share_, kind="stable")
    shares = [(result.removed_share_[j], result.outlier_share_by_column_[j]) for j in order]
    expected = [[result.feature_names_in_[j], f"{a:.2%}", f"{b:.2%}"] for j, (a, b) in zip(order, shares, strict=True)]
    assert alone.tables["Columns: what was taken out"][1:] == expected
    taken = [np.mean(result.local[i]["S"] != 0.0) for i in range(3)]
    assert [row[:3] for row in alone.tables["Clients: what was taken out"][1:]] == [
        [SITES[i], str(n), f"{share:.2%}"] for i, (n, share) in enumerate(zip((80, 50, 60), taken, strict=True))
    ]
    assert any("made without their rows" in words for words in alone.text["p"])
    assert not any("only sums over all clients" in words for words in alone.text["p"])


@pytest.mark.slow
def test_the_page_of_a_masked_robust_run_says_why_it_lacks_single_clients(tmp_path):
    result, _ = case("robust, masked")
    assert result.clients_ is None
    alone = Reader(page_of_words(replace(result, local={}), tmp_path))
    assert "Clients: what was taken out" not in alone.tables
    assert any("The server has seen only sums over all clients" in words for words in alone.text["p"])
    taken = np.vstack([result.local[i]["S"] != 0.0 for i in range(3)])
    np.testing.assert_allclose(result.removed_share_, taken.mean(axis=0), rtol=1e-12)
    assert any("Most of the corrected entries are not far off" in words for words in alone.text["p"])


def test_hints_stand_on_the_page(tmp_path):
    result = replace(case("plain")[0], hints=("The column id numbers the rows. Leave it out.",))
    assert "The column id numbers the rows. Leave it out." in Reader(page_of_words(result, tmp_path)).text["p"]


@pytest.mark.slow
def test_a_personalized_page_has_errors_with_and_without_own_components():
    result, parts = case("personal")
    read = read_of_kind("personal")
    table = read.tables["Clients: what is their own"]
    assert table[0][2:4] == ["error, shared only", "error, with own"]
    for i, row in enumerate(table[1:]):
        assert row[2] == f"{result.reconstruction_error(parts[i]):.4g}"
        assert row[3] == f"{result.reconstruction_error(parts[i], client=i):.4g}"
        assert result.feature_names_in_[np.abs(result.local_components_of(i)[0]).argmax()] in row[-1]
    assert read.facts["theta"] == f"{result.theta_:.3g}"
    assert any("can be separated" in words for words in read.text["p"])
    loaded = read_of_kind("personal, loaded")
    assert any("stay at the clients" in words for words in loaded.text["p"])


@pytest.mark.slow
def test_a_page_of_steps_says_where_the_subspace_changed(tmp_path):
    result, _ = case("steps")
    read = read_of_kind("steps")
    assert result.changes_.tolist() == [5]
    assert any("A change was declared at step 5." in words for words in read.text["p"])
    assert [row[0] for row in read.tables["Steps"][1:] if row[-1] == "yes"] == ["5"]
    assert read.facts["steps"] == "10"
    assert COLUMNS[np.abs(result.components_[-1, 0]).argmax()] in read.tables["Basis of the last step"][1][-1]
    result.save(tmp_path / "t.npz")
    loaded = TrackingResult.load(tmp_path / "t.npz")
    assert page_of_sketches(loaded, tmp_path) == page_of_sketches(result, tmp_path)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 50.0])
@pytest.mark.slow
def test_shares_under_noise_are_bounds_within_0_and_100_percent(epsilon, tmp_path):
    result, parts = noisy(epsilon)
    read = Reader(page_of_words(result, tmp_path, shards=parts))
    text = " ".join([*(cell for row in read.tables["Components"] for cell in row), *read.text["p"]])
    numbers = [float(number) for number in re.findall(r"(-?[\d.,]*\d)%", text)]
    assert numbers
    assert all(0.0 <= number <= 100.0 for number in numbers)
    assert 0.0 <= result.explained_variance_ratio_.sum() <= 1.0 + 1e-12
    (said,) = [words for words in read.text["p"] if words.startswith("Privacy noise")]
    assert ("cannot be distinguished from noise" in said) == bool((result.certainty.signal <= 1.0).any())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "options"),
    paired(
        ["ssi(oversample=2, max_rounds=3)", "krylov(max_rounds=3)", "covariance"],
        [{}, {"mask": True}, {"center": False}, {"scale": "std"}],
    ),
)
def test_true_shares_lie_within_the_bounds(algorithm, options):
    for seed in range(4):
        parts = deal(rows(6000, 0.6 ** np.arange(6), seed=seed) + 0.2, (3000, 2000, 1000))
        dp = DP(epsilon=3.0, delta=1e-7, clip=6.0, reach=6.0, noise_seed=seed)
        result = simulate(algorithm, parts, n_components=2, dp=dp, **options)
        exact = simulate("krylov", parts, n_components=2, **{k: v for k, v in options.items() if k != "mask"})
        known = result.certainty
        assert np.all(known.shares[:, 0] <= exact.explained_variance_ratio_ + 1e-3)
        assert np.all(exact.explained_variance_ratio_ <= known.shares[:, 1] + 1e-3)
        assert np.all(exact.explained_variance_ratio_.cumsum() <= known.together[:, 1] + 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ssi(oversample=2, max_rounds=3)", "krylov(max_rounds=3)", "covariance"])
@pytest.mark.parametrize("mask", [False, True])
def test_the_page_of_noisy_zero_rows_claims_nothing(algorithm, mask):
    for seed, (clients, d) in enumerate(((3, 6), (3, 30), (12, 12))):
        parts = np.array_split(1e-6 * rows(6000, np.ones(d), seed=seed), clients)
        dp = DP(epsilon=1.0, delta=1e-7, clip=1.0, noise_seed=seed)
        result = simulate(algorithm, parts, n_components=2, dp=dp, mask=mask)
        assert result.explained_variance_.max() <= result.certainty.floor


def test_a_run_without_noise_has_no_bounds():
    assert case("plain")[0].certainty is None


def test_a_result_that_cannot_be_told_from_noise_is_red(tmp_path):
    rng = np.random.default_rng(0)
    dp = DP(epsilon=0.02, delta=1e-7, clip=1.0, noise_seed=1)
    given = simulate("covariance", [rng.standard_normal((200, 6)) for _ in range(2)], n_components=2, dp=dp)
    assert (given.certainty.signal <= 1.0).all()
    text = page_of_words(given, tmp_path)
    assert '<p class="ended bad">Privacy noise alone can give a component a variance of' in text
    assert given.table().startswith("Privacy noise")


def test_a_doubt_is_never_in_the_green_box(tmp_path):
    rng = np.random.default_rng(0)
    given = simulate("krylov", [rng.standard_normal((60, 1)) @ rng.standard_normal((1, 6))], n_components=3)
    assert "; components 2 to 3 have no" in given.status.words.replace("2 and 3", "2 to 3")
    text = page_of_words(given, tmp_path)
    (green,) = re.findall('<p class="ended ok">(.*?)</p>', text)
    assert "no variance" not in green
    assert '<p class="ended">Components' in text


@pytest.mark.slow
def test_the_page_of_partitioned_columns_shows_the_scores(tmp_path):
    table = np.random.default_rng(0).standard_normal((40, 6))
    given = simulate("krylov", [table[:, :4], table[:, 4:]], n_components=2, partitioned_by="columns")
    drawn = figure(given, "scores").axes[0]
    np.testing.assert_allclose(np.sort(drawn.collections[0].get_offsets()[:, 0]), np.sort(given.scores_[:, 0]))
    assert "scores" in pictures_for_report(given)
