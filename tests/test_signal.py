"""Test n_components="signal": as many components as exceed tables with flipped signs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas
import pytest
from builders import Array, gone_on
from fake_grid import grid_of, in_a_run

from flower_pca import DataError, PCAResult, cli, simulate, strategies
from flower_pca.base.bits import random_signs
from flower_pca.base.errors import ProtocolError
from flower_pca.core.stage import KEY
from flower_pca.rows.local import LocalData
from flower_pca.stages.lanczos import BatchedLanczos
from flower_pca.stages.signal import Signal

NOISE = np.geomspace(0.6, 1.6, 12)


def planted_rows(n: int, seed: int, strengths: tuple[float, ...] = (5.0, 3.0, 2.0)) -> Array:
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(np.random.default_rng(9).standard_normal((12, max(len(strengths), 1))))[0]
    planted = (rng.standard_normal((n, len(strengths))) * np.array(strengths)) @ Q[:, : len(strengths)].T
    return np.asarray(rng.standard_normal((n, 12)) * NOISE + planted + 3.0)


def sites_with_signal(seed: int = 0, n: int = 600, **given: Any) -> list[Array]:
    return np.split(planted_rows(n, seed, **given), [n // 2, n // 2 + n // 3])


def flipped_by_hand(X: Array, k: int, *, draws: int = 400) -> Array:
    """The largest eigenvalues, with divisor n - 1, of pooled tables with flipped signs, less k planted directions."""
    rng = np.random.default_rng(3)
    Y = X - X.mean(axis=0)
    if k:  # The noise is known here, so no estimate is needed.
        Z = Y / NOISE
        W = np.linalg.svd(Z, full_matrices=False)[2][:k].T
        Y = (Z - Z @ W @ W.T) * NOISE / np.sqrt(1.0 - (W**2).sum(axis=1)) * np.sqrt(len(X) / (len(X) - k))
    flipped = (Y * rng.choice([-1.0, 1.0], Y.shape) for _ in range(draws))
    return np.array([np.linalg.norm(F, 2) ** 2 / (len(X) - 1) for F in flipped])


@pytest.mark.slow
def test_planted_components_are_counted_and_found() -> None:
    shards = sites_with_signal()
    found, named = simulate("krylov", shards, n_components="signal"), simulate("krylov", shards, n_components=3)
    assert found.n_components_ == 3
    assert found.config["n_components"] == "signal"
    np.testing.assert_allclose(found.components_, named.components_, atol=1e-7)
    np.testing.assert_allclose(found.explained_variance_, named.explained_variance_, rtol=1e-12)
    assert found.left_out_variance_ == pytest.approx(named.left_out_variance_)
    assert "3 components above noise: component 3 has" in found.decisions[0]


@pytest.mark.slow
@pytest.mark.parametrize("k", [0, 3])
def test_thresholds_are_those_of_pooled_tables(k: int) -> None:
    found = simulate("krylov", sites_with_signal(), n_components="signal")
    assert found.noise_thresholds_ is not None
    drawn = flipped_by_hand(np.vstack(sites_with_signal()), k)
    expected = drawn.mean() + 3.0 * drawn.std()
    assert len(found.noise_thresholds_) == 4
    assert found.noise_thresholds_[k] == pytest.approx(expected, rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("strengths", [(), (4.0,), (9.0, 5.0, 4.0, 3.5, 3.0)])
def test_the_number_is_that_of_planted_components(strengths: tuple[float, ...]) -> None:
    for seed in range(5):
        shards = sites_with_signal(seed, strengths=strengths)
        if not strengths:
            with pytest.raises(DataError, match=r"No component stands out from noise: the first variance is"):
                simulate("krylov", shards, n_components="signal")
        else:
            assert simulate("auto", shards, n_components="signal").n_components_ == len(strengths)


@pytest.mark.slow
def test_eight_steep_components_in_twenty_columns_do_not_shadow_the_last() -> None:
    found = []
    for seed in range(12):
        rng = np.random.default_rng([seed, 8])
        noise, Q = rng.standard_normal((200, 20)), np.linalg.qr(rng.standard_normal((20, 8)))[0]
        # the last of them is twice the largest direction of noise, each other one 3.5 times the next
        sizes = 2.0 * np.linalg.norm(noise, 2) ** 2 / 200 * 3.5 ** np.arange(8)
        X = noise + (rng.standard_normal((200, 8)) * np.sqrt(sizes)) @ Q.T
        found.append(simulate("krylov", np.array_split(X, 3), n_components="signal", seed=seed).n_components_)
    assert found == [8] * 12


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d"), [(200, 12), (20, 30)])
def test_rounding_is_no_component(n: int, d: int) -> None:
    for k in (1, 3):
        rng = np.random.default_rng(k)
        X = rng.standard_normal((n, k)) @ rng.standard_normal((k, d)) + 5.0
        assert simulate("krylov", np.array_split(X, 3), n_components="signal").n_components_ == k


@pytest.mark.slow
def test_a_column_of_large_noise_is_no_component() -> None:
    noise = np.geomspace(0.5, 2.0, 20)
    for seed in range(8):
        X = np.random.default_rng([seed, 9]).standard_normal((200, 20)) * noise
        with pytest.raises(DataError, match="No component stands out from noise"):
            simulate("krylov", np.array_split(X, 3), n_components="signal", seed=seed)


def long_rows(seed: int) -> Array:
    """Noise of Student's law by row: the largest direction is along the longest row."""
    rng = np.random.default_rng([seed, 5])
    return rng.standard_normal((60, 100)) / np.sqrt(rng.chisquare(5, (60, 1)) / 5.0)


def one_row_of_twenty_is_long(seed: int) -> Array:
    rng = np.random.default_rng([seed, 6])
    return rng.standard_normal((60, 100)) * np.where(rng.random((60, 1)) < 0.05, 5.0, 1.0)


@pytest.mark.parametrize("noise", [long_rows, one_row_of_twenty_is_long])
def test_a_long_row_is_no_component(noise: Any) -> None:
    """A level of 5 %: 4 of 20 draws or more would be a chance of 1.6 %."""
    found = 0
    for seed in range(20):
        try:
            found += simulate("krylov", np.array_split(noise(seed), 3), n_components="signal", seed=seed).n_components_
        except DataError as failed:
            assert "No component stands out from noise" in str(failed)  # noqa: PT017
    assert found <= 3


@pytest.mark.slow
def test_few_columns_take_two_messages_whatever_the_number() -> None:
    for strengths in ((5.0,), (30.0, 9.0, 4.0, 3.0, 2.5, 2.0)):
        history = simulate("auto", sites_with_signal(strengths=strengths), n_components="signal").history
        assert [r.stage for r in history] == ["opening", "signal", "signal"]


@pytest.mark.slow
def test_under_masks_it_is_the_same() -> None:
    plain, masked = (
        simulate("krylov", sites_with_signal(), n_components="signal", mask=mask) for mask in (False, True)
    )
    np.testing.assert_allclose(masked.noise_thresholds_, plain.noise_thresholds_, rtol=1e-6)
    np.testing.assert_allclose(masked.components_, plain.components_, atol=1e-7)


def test_nodes_serve_it_by_name_only() -> None:
    with in_a_run(), pytest.raises(Exception, match=r"Answers for signal compare single rows"):
        strategies.PCAStrategy("krylov", n_components="signal", min_nodes=3).fit(
            grid_of(sites_with_signal(), allow=None)
        )


@pytest.mark.parametrize("number", [1, 2])
def test_a_client_may_be_missing(number: int) -> None:
    found = simulate(
        "ssi", sites_with_signal(), n_components="signal", fraction=lambda now: [0, 1] if now == number else [0, 1, 2]
    )
    assert found.n_components_ == 3


@pytest.mark.slow
def test_a_file_and_the_pictures_have_the_thresholds(tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    found = simulate("krylov", sites_with_signal(), n_components="signal")
    same = PCAResult.load(found.save(tmp_path / "result.npz"))
    np.testing.assert_array_equal(same.noise_thresholds_, found.noise_thresholds_)
    picture = found.plot("scree", tmp_path / "scree.svg").read_text(encoding="utf-8")
    assert "the dashed line is what noise alone would give" in picture


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_the_command_line_takes_signal(tmp_path: Any, capsys: Any) -> None:
    np.savetxt(
        tmp_path / "rows.csv",
        np.vstack(sites_with_signal()),
        delimiter=",",
        header=",".join("abcdefghijkl"),
        comments="",
    )
    given = [str(tmp_path / "rows.csv"), "--clients", "3", "--components", "signal", "--out", str(tmp_path / "out")]
    assert cli.main(["run", *given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["n_components"] == 3
    assert len(found["noise_thresholds"]) == 4


@pytest.mark.slow
def test_the_estimator_takes_signal() -> None:
    pytest.importorskip("sklearn")
    from flower_pca import FederatedPCA

    found = FederatedPCA(n_components="signal").fit(sites_with_signal())
    assert found.n_components_ == 3
    assert found.transform(sites_with_signal()[0]).shape == (300, 3)


def more_columns_than_tables(planted: int, seed: int, n: int = 300, d: int = 360) -> list[Array]:
    """More columns than go into tables; each planted component a third above the largest direction of noise."""
    rng = np.random.default_rng([seed, planted])
    noise, Q = rng.standard_normal((n, d)), np.linalg.qr(rng.standard_normal((d, max(planted, 1))))[0]
    sizes = 1.3 * np.linalg.norm(noise, 2) ** 2 / n * 1.5 ** np.arange(planted)
    return np.split(noise + (rng.standard_normal((n, planted)) * np.sqrt(sizes)) @ Q[:, :planted].T, [n // 2])


@pytest.mark.slow
@pytest.mark.parametrize("planted", [0, 1, 3])
def test_many_columns_are_asked_for_by_products_in_few_messages(planted: int) -> None:
    tables = more_columns_than_tables(planted, planted)
    if not planted:
        with pytest.raises(DataError, match="No component stands out from noise"):
            simulate("krylov", tables, n_components="signal")
        return
    found = simulate("krylov", tables, n_components="signal", seed=planted)
    assert found.n_components_ == planted
    assert [r.stage for r in found.history][1:5] == ["signal"] * 4
    named = simulate("krylov", tables, n_components=planted)
    np.testing.assert_allclose(found.components_, named.components_, atol=1e-6)


@pytest.mark.slow
def test_what_few_products_tell_of_flipped_tables_lies_little_below_them() -> None:
    X = np.vstack(more_columns_than_tables(1, 5))
    found = simulate("krylov", np.array_split(X, 3), n_components="signal")
    rng, Y = np.random.default_rng(8), X - X.mean(axis=0)
    drawn = [np.linalg.norm(Y * rng.choice([-1.0, 1.0], Y.shape), 2) ** 2 / (len(X) - 1) for _ in range(20)]
    assert found.noise_thresholds_ is not None
    assert 0.8 < found.noise_thresholds_[0] / (np.mean(drawn) + 3.0 * np.std(drawn)) < 1.02


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{"mask": True}, {"fraction": lambda now: [1] if now == 3 else [0, 1]}])
def test_many_columns_under_masks_and_without_a_client_once(asked: dict[str, Any]) -> None:
    shards = more_columns_than_tables(2, 1)
    plain, found = (simulate("ssi", shards, n_components="signal", **more) for more in ({}, asked))
    assert found.n_components_ == plain.n_components_ == 2
    if "mask" in asked:
        np.testing.assert_allclose(found.noise_thresholds_, plain.noise_thresholds_, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [2, 3])
def test_a_run_goes_on_from_a_checkpoint(stop: int, tmp_path: Any) -> None:
    """After the tables, or in the midst of the products."""
    given = ("krylov", sites_with_signal() if stop == 2 else more_columns_than_tables(2, 1))
    whole = simulate(*given, n_components="signal")
    found = gone_on(simulate, *given, path=tmp_path / "run.npz", stop=[stop], n_components="signal")
    np.testing.assert_array_equal(found.components_, whole.components_)
    np.testing.assert_array_equal(found.noise_thresholds_, whole.noise_thresholds_)


@pytest.mark.slow
@pytest.mark.parametrize(("by", "answers"), [("tables", "fixed"), ("products", "rows")])
def test_nodes_that_allow_signal_give_the_same_number(by: str, answers: str) -> None:
    shards = sites_with_signal() if by == "tables" else more_columns_than_tables(2, 1)
    here = simulate("krylov", shards, n_components="signal", answers=answers)
    allowed = {"allow": ("krylov", "signal"), "answers": answers, "noise_seed": 0}
    with in_a_run():
        found = strategies.PCAStrategy("krylov", n_components="signal", min_nodes=2).fit(grid_of(shards, **allowed))
    np.testing.assert_array_equal(found.noise_thresholds_, here.noise_thresholds_)
    np.testing.assert_array_equal(found.components_, here.components_)


def test_clients_keep_their_flips_for_the_same_tables_and_draw_others_for_others() -> None:
    X, draws = planted_rows(40, 2), 2
    Z = np.random.default_rng(3).standard_normal((12, 2 * (1 + draws)))
    W = np.linalg.qr(np.random.default_rng(4).standard_normal((12, 1)))[0]
    asked = {"weights": np.ones((12, 1)), "W": np.empty((12, 0)), "first": np.array(0), "draws": np.array(draws)}
    up, kept = Signal.client({**asked, "Z": Z}, LocalData(X), {KEY: np.arange(4)})
    again, _ = Signal.client({**asked, "Z": 2.0 * Z}, LocalData(X), {**kept, KEY: np.arange(4, 8)})
    np.testing.assert_allclose(again["products"], 2.0 * up["products"])
    # the same tables that are sent if there are few of them
    tables, _ = Signal.client(asked, LocalData(X), {KEY: np.arange(4)})
    for j, table in enumerate(tables["tables"]):
        C = np.zeros((12, 12))
        C[np.triu_indices(12)] = table
        C += np.triu(C, 1).T
        np.testing.assert_allclose(up["products"][:, 2 * j : 2 * j + 2], C @ Z[:, 2 * j : 2 * j + 2])
    np.testing.assert_allclose(up["squares"], (X**2).sum(axis=0)[None])
    others = {**asked, "W": W, "first": np.array(1), "Z": Z}
    first, changed = Signal.client(others, LocalData(X), {**kept, KEY: np.arange(4, 8)})
    fresh, _ = Signal.client(others, LocalData(X), {KEY: np.arange(4, 8)})
    np.testing.assert_array_equal(first["products"], fresh["products"])
    assert not np.array_equal(changed["signs"], kept["signs"])
    with pytest.raises(ProtocolError, match="but needs a multiple of 3"):
        Signal.client({**asked, "Z": Z[:, :5]}, LocalData(X), {KEY: np.arange(4)})


def test_lanczos_finds_lapacks_eigenvalues_once_its_blocks_fill_the_space() -> None:
    rng = np.random.default_rng(1)
    roots = rng.standard_normal((3, 30, 12))
    tables = roots @ roots.transpose(0, 2, 1)
    away = np.linalg.eigh(tables[0])[1][:, -1:]
    search, known = BatchedLanczos.begin(3, 4, away, seed=2), []
    for _ in range(4):
        search = search.with_products(tables @ search.block, more=True)
        known.append(replace(search, Q=search.Q[:, :, :-4]).ritz_values()[:, 0])
    first, *others = np.linalg.eigvalsh(tables)
    expected = [first[-2], *(values[-1] for values in others)]  # the first without its leading direction
    assert (np.diff(known, axis=0) >= -1e-9).all()
    assert (np.array(known) <= np.array(expected) + 1e-9).all()
    np.testing.assert_allclose(known[-1], expected, rtol=1e-10)


def test_signs_are_fair_and_hang_on_the_key() -> None:
    drawn = random_signs(b"one", (400, 30))
    assert set(np.unique(drawn)) == {-1.0, 1.0}
    assert abs(drawn.mean()) < 4.0 / np.sqrt(drawn.size)
    np.testing.assert_array_equal(drawn, random_signs(b"one", (400, 30)))
    assert abs(float(np.mean(drawn * random_signs(b"two", (400, 30))))) < 4.0 / np.sqrt(drawn.size)


def test_flipped_tables_keep_squares_and_lose_products() -> None:
    X = planted_rows(500, 1) - planted_rows(500, 1).mean(axis=0)
    arrays = {"weights": np.ones((12, 1)), "W": np.empty((12, 0)), "first": np.array(0), "draws": np.array(2)}
    up, _ = Signal.client(arrays, LocalData(X), {KEY: np.arange(4)})
    upper = np.triu_indices(12)
    np.testing.assert_allclose(up["tables"][0], (X.T @ X)[upper])
    on_diagonal = upper[0] == upper[1]
    np.testing.assert_allclose(up["tables"][1][on_diagonal], (X**2).sum(axis=0))
    assert np.abs(up["tables"][1] - up["tables"][2]).max() > 1.0


@pytest.mark.slow
def test_columns_of_words_that_have_nothing_in_common_count_for_nothing() -> None:
    """Of one column's levels no two are in a row; by a sign for each of them that would pass for signal."""
    shards, rng = sites_with_signal(strengths=(5.0,)), np.random.default_rng(4)
    tables = []
    for X in shards:
        columns: dict[str, Any] = {f"x{j}": X[:, j] for j in range(12)}
        words = {"ward": rng.choice(["a", "b", "c", "d"], len(X)), "sex": rng.choice(["f", "m"], len(X))}
        tables.append(pandas.DataFrame({**columns, **words}))
    found = simulate("krylov", tables, n_components="signal", scale="std", categorical="ward,sex")
    assert found.n_components_ == 1
