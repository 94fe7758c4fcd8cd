"""Test differential privacy with units from public ranges of columns, and from nothing in the rows."""

import importlib.util
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from cases import every
from fake_grid import grid_of, in_a_run

from flower_pca import DP, DataError, PCAResult, cli, simulate
from flower_pca.dp.outlook import Outlook
from flower_pca.names import ranges
from flower_pca.strategies import Covariance

pd = pytest.importorskip("pandas")

ROOT = Path(__file__).parents[1]
NAMES = ("age", "weight", "height")
PUBLIC = {"age": (20, 80), "weight": (40, 120), "height": (150, 200)}
USUAL = np.array([50.0, 80.0, 175.0])
SPREAD = np.array([10.0, 13.0, 8.0])


def ranged_tables(sizes=(900, 500), gaps=0.0, seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for n in sizes:
        common = rng.standard_normal((n, 1)) * [0.9, 0.8, 0.1]
        X = USUAL + SPREAD * (common + 0.4 * rng.standard_normal((n, 3)))
        X[rng.random(X.shape) < gaps] = np.nan
        made.append(pd.DataFrame(X, columns=NAMES))
    return made


def ranged(epsilon=1e6, **more):
    return DP(**{"epsilon": epsilon, "delta": 1e-6, "ranges": PUBLIC, "noise_seed": 1, **more})


@pytest.mark.slow
@every("method", ["auto", "covariance", "krylov(max_rounds=3)", "ssi(oversample=1, max_rounds=15)"])
@every("order", [NAMES, NAMES[::-1]])
def test_with_hardly_any_noise_it_is_the_pca_of_columns_over_half_their_ranges(method, order):
    shards = [table[list(order)] for table in ranged_tables()]
    found = simulate(method, shards, n_components=2, dp=ranged(1e10, clip=10.0, reach=10.0))
    X = np.vstack([table[list(NAMES)] for table in shards])
    halves = np.array([30.0, 40.0, 25.0])
    values, vectors = np.linalg.eigh(np.cov(X.T / halves[:, None]))
    assert tuple(found.feature_names_in_) == NAMES
    np.testing.assert_allclose(found.scale_, halves, rtol=1e-12)
    np.testing.assert_allclose(found.mean_, X.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(found.explained_variance_, values[::-1][:2], rtol=0.01)
    assert found.angle_to(vectors[:, ::-1][:, :2].T) < 0.02
    np.testing.assert_allclose(found.transform(shards[0])[:, 0].var(), values[-1], rtol=0.2)


def test_the_mean_is_in_the_units_of_the_rows():
    shards = ranged_tables((90, 50))
    found = simulate("covariance", shards, n_components=1, dp=ranged(1e10, clip=10.0, reach=10.0))
    np.testing.assert_allclose(found.mean_, np.vstack(shards).mean(axis=0), atol=0.02)


def test_clip_and_columns_follow_from_the_ranges_alone():
    one, other = (simulate("auto", ranged_tables(seed=seed), n_components=1, dp=ranged(5.0)) for seed in (0, 9))
    assert one.privacy.clip == other.privacy.clip == pytest.approx(np.sqrt(3) / 2)
    assert one.algorithm.startswith("covariance")
    assert any(words.startswith("auto chose covariance, because the result has less noise") for words in one.decisions)
    more = [table.assign(id=np.arange(len(table))) for table in ranged_tables()]
    assert simulate("auto", more, n_components=1, dp=ranged(5.0)).components_.tobytes() == one.components_.tobytes()


def test_gaps_are_the_middle_of_the_range_and_then_the_mean_with_its_noise():
    gappy, whole = ranged_tables(gaps=0.1), ranged_tables()
    found = simulate("auto", gappy, n_components=1, missing="mean", dp=ranged(1e10, clip=10.0, reach=10.0))
    assert found.angle_to(simulate("auto", whole, n_components=1, dp=ranged(1e10, clip=10.0, reach=10.0))) < 0.1
    np.testing.assert_array_equal(found.fill_, found.mean_)


def test_masks_and_a_deployment_have_the_same_frame():
    shards = ranged_tables()
    plain, masked = (simulate("covariance", shards, n_components=1, dp=ranged(), mask=mask) for mask in (False, True))
    assert masked.angle_to(plain) < 0.02
    np.testing.assert_array_equal(masked.scale_, plain.scale_)
    strategy = Covariance(n_components=1, dp=ranged(noise_seed=None))
    with in_a_run():
        served = strategy.fit(grid_of(shards))
    assert served.angle_to(plain) < 0.02
    np.testing.assert_array_equal(served.scale_, plain.scale_)


@pytest.mark.parametrize("rows", [60, 200, 1000, 20000])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("mask", [False, True])
def test_what_is_said_beforehand_is_what_the_result_says(rows, epsilon, mask, caplog):
    shards = ranged_tables((rows, rows // 2))
    dp = ranged(epsilon)
    with caplog.at_level("INFO", logger="flower_pca"):
        try:
            found = simulate("auto", shards, n_components=1, dp=dp, mask=mask)
        except DataError as error:
            least = int(
                re.search(r"3 columns at 2 clients need at least ([\d,]+) rows", str(error))[1].replace(",", "")
            )
            assert rows * 1.5 < least
            return
    floor = float(re.search(r"a component a variance of ([\d.e-]+), in squared half widths", caplog.text)[1])
    # The run counts rows with noise.
    said = found.certainty.floor * (found.n_samples_ / (rows * 1.5)) ** np.array([1.0, 2.0])
    assert 0.95 * said.min() <= floor <= 1.05 * said.max()


def test_nothing_is_run_under_which_nothing_could_be_seen():
    calls = []
    with pytest.raises(DataError, match=r"of 60 rows: 3 columns .* need at least [\d,]+ rows\. .* mask=True"):
        simulate("auto", ranged_tables((40, 20)), n_components=1, dp=ranged(0.1), on_round=calls.append)
    assert not calls
    Outlook(1000, 10, 3, noise=500.0, off=400.0, ranged=True).require()
    with pytest.raises(DataError, match="noise hides all components of 400 rows") as refused:
        Outlook(400, 10, 3, noise=500.0, off=400.0, ranged=True).require()
    least = int(re.search(r"at least ([\d,]+)", str(refused.value))[1].replace(",", ""))
    Outlook(least, 10, 3, noise=500.0, off=400.0, ranged=True).require()
    with pytest.raises(DataError, match=f"need at least {least:,} rows"):
        Outlook(least - 3, 10, 3, noise=500.0, off=400.0, ranged=True).require()


@pytest.mark.slow
def test_rows_of_next_to_no_variance_are_told_from_noise_by_nobody():
    """The noise on the mean included, which gives all rows the same step away from it."""
    public = {f"c{i}": (-3, 3) for i in range(10)}
    rng, clear = np.random.default_rng(0), 0
    for seed in range(60):
        shards = [pd.DataFrame(0.01 * rng.standard_normal((n, 10)), columns=list(public)) for n in (900, 400, 80)]
        dp = DP(epsilon=0.3, delta=1e-6, ranges=public, noise_seed=seed)
        clear += simulate("auto", shards, n_components=2, dp=dp).certainty.signal[0] > 1.0
    assert clear <= 3


def test_ranges_in_words_in_a_file_and_in_python_are_the_same(tmp_path):
    lines = "".join(f"{name},{low},{high}\n" for name, (low, high) in PUBLIC.items())
    (tmp_path / "plain.csv").write_text(lines)
    (tmp_path / "headed.csv").write_text(f"column,low,high\n{lines}")
    words = "age=20..80, weight=40..120,height=1.5e2..200"
    every = [PUBLIC, words, tmp_path / "plain.csv", str(tmp_path / "headed.csv"), ranges.read_ranges(PUBLIC)]
    assert len({DP(epsilon=1.0, delta=1e-6, ranges=given) for given in every}) == 1
    spec = DP.of(f"dp(epsilon=1.0, delta=1e-6, ranges={words!r})")
    assert DP.of(repr(spec)) == spec
    assert ranges.read_ranges("t=-5..40")[0] == ("t", -5.0, 40.0)


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_the_line_of_the_readme_runs_on_the_patients_of_the_docs(tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("three_hospitals", ROOT / "examples/three_hospitals.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["three_hospitals.py"])
    script.main()
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    written = re.search(r"\| limit what a run reveals about a single row \|[^`]*`([^`]*)`", page)
    words = ["run", "hospitals", "--missing", "mean", "--components", "1", *shlex.split(written[1])]
    capsys.readouterr()
    code = cli.main(words)
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "With this budget and 930 rows, noise alone can give a component a variance of" in said.err
    assert "cannot be distinguished from noise" in said.out or "times as much" in said.out
    result = PCAResult.load("flower-pca-out/result.npz")
    assert (result.privacy.epsilon, len(result.feature_names_in_)) == (pytest.approx(1.0), 10)
    assert cli.main([*words[:-4], *shlex.split(written[1].replace("1.0", "0.01"))]) == 2
    assert (
        "Under this budget, noise hides all components of 930 rows: 10 columns at 3 clients need at least"
        in capsys.readouterr().err
    )
