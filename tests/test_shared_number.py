"""Test n_components="shared": as many shared components as nearly all clients have."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pytest
from builders import Array, sine
from fake_grid import grid_of, in_a_run

from flower_pca import DataError, PersonalResult, cli, simulate, strategies
from flower_pca.algorithms.personal.shared import CUT

D = 24
NOISE = np.geomspace(0.01, 1.0, D)
AUTO = "exact_per_pca(local_components='auto')"


@functools.cache
def problem(shared: int, *, n: int = 60, seed: int = 0, own: tuple[int, ...] = (0, 1, 2, 3, 4)) -> Any:
    """Rows of clients with shared and own directions, and noise of a ratio of 100 over the columns."""
    rng = np.random.default_rng([seed, shared, n])
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    shards = []
    for number in own:
        V = Q[:, shared:] @ np.linalg.qr(rng.standard_normal((D - shared, D - shared)))[0][:, :number]
        rows = 2.0 * rng.standard_normal((n, shared)) @ Q[:, :shared].T + 3.0 * rng.standard_normal((n, number)) @ V.T
        shards.append(rows + rng.permutation(NOISE) * rng.standard_normal((n, D)))
    return shards, Q[:, :shared].T


def run_shared(shards: list[Array], algorithm: str = AUTO, **given: Any) -> PersonalResult:
    result = simulate(algorithm, shards, **{"n_components": "shared", "center": False, **given})
    assert isinstance(result, PersonalResult)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("shared", [1, 2, 4])
@pytest.mark.parametrize("algorithm", [AUTO, "per_pca(local_components='auto', max_rounds=5)"])
def test_the_planted_number_is_found(shared: int, algorithm: str) -> None:
    for seed in range(2):
        shards, truth = problem(shared, seed=seed)
        result = run_shared(shards, algorithm)
        assert result.n_components_ == shared
        assert [len(result.local_components_of(i)) for i in range(5)] == [0, 1, 2, 3, 4]
        assert sine(result.components_, truth) < (0.1 if algorithm == AUTO else 0.3)


@pytest.mark.slow
def test_the_number_follows_from_the_mean_of_the_clients_projectors() -> None:
    """By LAPACK, of spaces whose numbers are known."""
    shards, _ = problem(2)
    P = np.mean([(V := np.linalg.svd(X)[2][: 2 + i]).T @ V for i, X in enumerate(shards)], axis=0)
    values = np.linalg.eigvalsh(P)[::-1]
    said = next(words for words in run_shared(shards).decisions if "shared" in words)
    assert values[1] > CUT > values[2]
    assert said.startswith(
        f"2 shared components: {values[1]:.0%} of 5 clients have component 2, {values[2]:.0%} have component 3"
    )


@pytest.mark.slow
def test_the_algorithm_begins_at_what_is_found_and_ends_where_it_would() -> None:
    shards, _ = problem(2)
    found, named = run_shared(shards), run_shared(shards, n_components=2)
    assert sine(found.components_, named.components_) < 1e-5
    assert found.config["n_components"] == "shared"
    assert {record.stage for record in found.history} == {"opening", "shared", "exact_per_pca", "personal"}
    assert len(found.history) <= len(named.history) + 2


@pytest.mark.slow
@pytest.mark.parametrize("given", [{"mask": True}, {"answers": "fixed"}])
def test_sums_and_fixed_answers_tell_the_same(given: dict[str, Any]) -> None:
    shards, _ = problem(2)
    plain, other = run_shared(shards), run_shared(shards, **given)
    assert other.n_components_ == 2
    assert sine(other.components_, plain.components_) < 1e-5


@pytest.mark.slow
def test_nodes_choose_the_same_number_as_simulate() -> None:
    shards, _ = problem(2)
    given = {"n_components": "shared", "center": False, "min_nodes": 5}
    with in_a_run():
        found = strategies.PCAStrategy(AUTO, **given).fit(grid_of(shards, allow=("exact_per_pca", "shared")))
    np.testing.assert_array_equal(found.components_, run_shared(shards).components_)
    with in_a_run(), pytest.raises(Exception, match="does not serve shared"):
        strategies.PCAStrategy(AUTO, **given).fit(grid_of(shards, allow=("exact_per_pca",)))


@pytest.mark.slow
def test_a_client_that_misses_a_message_does_no_harm() -> None:
    shards, _ = problem(2)
    missed = run_shared(shards, fraction=lambda number: [0, 1, 2, 4] if number == 2 else range(5))
    assert missed.n_components_ == 2


@pytest.mark.slow
def test_clients_with_few_rows_do_not_count() -> None:
    shards, _ = problem(2)
    assert "of 4 clients" in run_shared([*shards[:4], shards[4][:10]]).decisions[0]
    with pytest.raises(DataError, match=r"needs at least 3 clients with 20 rows or more each, but this run has 2\."):
        run_shared([*shards[:2], shards[2][:10]])


@pytest.mark.slow
def test_where_nothing_is_shared_nothing_counts() -> None:
    shards, _ = problem(0, own=(2, 2, 2, 2))
    with pytest.raises(DataError, match=r"No component is shared by 75% of the clients"):
        run_shared(shards)


@pytest.mark.usefixtures("unillustrated")
@pytest.mark.slow
def test_the_command_line_takes_shared(tmp_path: Any, capsys: Any) -> None:
    for i, rows in enumerate(problem(2)[0]):
        head = ",".join(f"c{j}" for j in range(D))
        np.savetxt(tmp_path / f"site{i}.csv", rows, delimiter=",", header=head, comments="")
    given = ["--algorithm", AUTO, "--components", "shared", "--json"]
    assert cli.main(["run", str(tmp_path), *given, "--out", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out)["n_components"] == 2
