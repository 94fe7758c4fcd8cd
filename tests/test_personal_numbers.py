"""Test numbers of own components that differ by client, over every transport."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Array, gone_on, sine
from fake_grid import grid_of, in_a_run
from results import own_counts

from flower_pca import ExactPerPCA, PCAResult, PersonalResult, Ray, make, simulate
from flower_pca.clients.storage.folders import local_file
from flower_pca.comparison.ranks import alternatives
from flower_pca.core.layer import ClientIdentity, Work
from flower_pca.layers import single as apart
from flower_pca.report import write
from flower_pca.strategies import PCAStrategy

D, TRUE = 12, (0, 1, 3, 3, 1, 0)
SITES = ("Aachen", "Bonn", "Trier", "Düren", "Essen", "Fulda")
BY_POSITION = dict(enumerate(TRUE))
MIXED = {"Trier": 3, "Bonn": 1, 3: 3, 4: 1, "others": 0}
MAPPED = f"exact_per_pca(local_components={BY_POSITION})"


def unequal_problem(seed: int, n: int = 200) -> tuple[list[Array], Array, list[Array]]:
    """Rows of clients with 0, 1 and 3 own directions beside two common ones; the common and the own directions."""
    rng = np.random.default_rng([50, seed])
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    U, rest = Q[:, :2], Q[:, 2:]
    owns = [rest @ np.linalg.qr(rng.standard_normal((D - 2, D - 2)))[0][:, :r] for r in TRUE]
    shards = []
    for V in owns:
        rows = 2.0 * rng.standard_normal((n, 2)) @ U.T + 3.0 * rng.standard_normal((n, V.shape[1])) @ V.T
        shards.append(rows + 0.2 * rng.standard_normal((n, D)))
    return shards, U, owns


SHARDS, SHARED, OWN = unequal_problem(0)
NAMED = dict(zip(SITES, SHARDS, strict=True))


def run_unequal(algorithm: Any, shards: Any = SHARDS, **settings: Any) -> PersonalResult:
    result = simulate(algorithm, shards, n_components=2, seed=7, center=False, **settings)
    assert isinstance(result, PersonalResult)
    return result


def by_alternation(shards: list[Array], U: Array) -> Array:
    """The best shared components for these numbers of own ones, by plain alternation in numpy on X'X / n."""
    S = [X.T @ X / len(X) for X in shards]
    for _ in range(400):
        Z = np.zeros_like(U)
        for C, r in zip(S, TRUE, strict=True):
            P = np.eye(D) - U @ U.T
            V = np.linalg.eigh(P @ C @ P)[1][:, D - r :]
            Z += C @ U - V @ (V.T @ C @ U)
        a, _, b = np.linalg.svd(Z, full_matrices=False)
        U = a @ b
    return U


@pytest.mark.slow
@pytest.mark.parametrize("answers", ["rows", "fixed"])
@pytest.mark.parametrize(
    "algorithm",
    ["exact_per_pca(tol=1e-9", "per_pca(tol=1e-7, max_rounds=3000", "exact_per_pca(tol=1e-9, init='upload'"],
)
def test_the_optimum_for_these_numbers_is_found(algorithm: str, answers: str) -> None:
    result = run_unequal(f"{algorithm}, local_components={BY_POSITION})", answers=answers)
    assert own_counts(result) == list(TRUE)
    assert sine(result.components_, by_alternation(SHARDS, SHARED).T) <= 1e-5
    assert sine(result.components_, SHARED.T) <= 0.05
    for i, V in enumerate(OWN):
        if V.shape[1]:
            assert sine(result.local_components_of(i), V.T) <= 0.1
    assert result.local_components == 3


@pytest.mark.slow
def test_a_name_and_a_position_say_the_same() -> None:
    a, b = run_unequal(MAPPED, NAMED), run_unequal(f"exact_per_pca(local_components={MIXED})", NAMED)
    np.testing.assert_array_equal(a.components_, b.components_)
    assert own_counts(b) == list(TRUE)
    assert make(b.algorithm) == ExactPerPCA(local_components=MIXED)


@pytest.mark.slow
def test_equal_numbers_are_the_run_of_one_number() -> None:
    a, b = (
        run_unequal("exact_per_pca(local_components=2)"),
        run_unequal("exact_per_pca(local_components={'others': 2})"),
    )
    np.testing.assert_array_equal(a.components_, b.components_)
    np.testing.assert_array_equal(a.local_components_of(4), b.local_components_of(4))


def found_by_nodes(algorithm: str, reference: PersonalResult, folder: Path, **rules: Any) -> PCAResult:
    """The result over Flower, with the bits of the reference, at the nodes too."""
    with in_a_run():
        grid = grid_of(SHARDS, output_dir=folder, **rules)
        result = PCAStrategy(algorithm=algorithm, n_components=2, seed=7, center=False).fit(grid)
    np.testing.assert_array_equal(result.components_, reference.components_)
    for i, r in enumerate(TRUE):
        with np.load(local_file(folder, i)) as file:
            assert file["components"].shape == (r, D)
            np.testing.assert_array_equal(file["components"], reference.local_components_of(i))
    return result


@pytest.mark.slow
def test_under_flower_a_node_finds_its_number_by_partition_id(tmp_path: Path) -> None:
    found_by_nodes(MAPPED, run_unequal(MAPPED), tmp_path, share_local=True)


def test_collected_own_components_are_filled_up_with_zeros() -> None:
    result = run_unequal(f"{MAPPED[:-1]}, collect=True)")
    assert result.collected_.shape == (6, 3, D)
    for rows, r, i in zip(result.collected_, TRUE, range(6), strict=True):
        np.testing.assert_array_equal(rows[:r], result.local_components_of(i))
        np.testing.assert_array_equal(rows[r:], 0.0)


@pytest.mark.slow
def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    resumed, whole = gone_on(run_unequal, MAPPED, path=tmp_path / "run.npz", stop=[6]), run_unequal(MAPPED)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    assert own_counts(resumed) == list(TRUE)


def test_a_saved_result_keeps_the_numbers(tmp_path: Path) -> None:
    result = run_unequal(f"exact_per_pca(local_components={MIXED})", NAMED)
    result.save(tmp_path / "result.npz")
    read = PCAResult.load(tmp_path / "result.npz")
    assert isinstance(read, PersonalResult)
    assert (read.algorithm, read.local_components) == (result.algorithm, 3)


def test_the_report_and_the_alternatives_take_unequal_numbers() -> None:
    result = run_unequal(MAPPED, NAMED)
    shown = {fact.key: fact.text for fact in result.summary().facts}
    assert shown["local_components_of_a_client"] == "0 to 3"
    errors = alternatives(result, SHARDS)
    for i, (X, r) in enumerate(zip(SHARDS, TRUE, strict=True)):
        values = np.linalg.eigvalsh(X.T @ X / len(X))
        assert errors["indivPCA"][i] == pytest.approx(values[: D - 2 - r].sum())
        assert errors["indivPCA"][i] <= errors["personalized"][i] * (1.0 + 1e-12)
        assert errors["distPCA"][i] <= 1.2 * errors["personalized"][i]


def test_alternatives_have_as_many_components_as_all_rows_together_allow() -> None:
    shards = [np.random.default_rng(i).standard_normal((2, 6)) for i in range(2)]
    with pytest.warns(UserWarning, match="cannot be separated"):
        result = simulate("exact_per_pca(local_components=2)", shards, n_components=1, center=False)
    V = np.linalg.svd(np.vstack(shards))[2][:3]
    left = [np.sum((X - X @ V.T @ V) ** 2) / len(X) for X in shards]
    np.testing.assert_allclose(alternatives(result, shards)["CPCA"], left, rtol=1e-6)


@pytest.mark.slow
def test_the_page_of_a_run_has_its_pictures_where_a_client_has_no_own_component(tmp_path: Path) -> None:
    write(run_unequal(MAPPED, NAMED), tmp_path / "page.html", title="Unequal", shards=list(SHARDS))
    assert "The weights of the columns in the first own component" in (tmp_path / "page.html").read_text(
        encoding="utf-8"
    )


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings("ignore")  # Ray and Flower warn about their own files and processes.
def test_ray_gives_the_bits_of_a_run_in_process(cluster: str) -> None:
    algorithm = f"exact_per_pca(local_components={MIXED}, max_rounds=3)"
    a, b = (run_unequal(algorithm, NAMED, backend=backend) for backend in ("in_process", Ray(address=cluster)))
    np.testing.assert_array_equal(a.components_, b.components_)


def test_a_client_reads_its_own_line() -> None:
    tables = apart.table_arrays("own", {0: 5, "Bonn": 7, "others": 2})
    for who, number in (
        (ClientIdentity(0), 5),
        (ClientIdentity(1, "Bonn"), 7),
        (ClientIdentity(0, "Bonn"), 7),
        (ClientIdentity(3, "Trier"), 2),
        (ClientIdentity(), 2),
    ):
        work = Work(ExactPerPCA, {"U": np.eye(2)}, None, {}, who)
        read = apart.NumberTables.read_message(tables, work).arrays
        assert sorted(read) == ["U", "own"]
        assert int(read["own"]) == number


def test_a_newcomer_finds_own_components_beside_the_shared_ones() -> None:
    """As it would have with the same shared ones in the run: of what these leave of its rows."""
    result = run_unequal(f"exact_per_pca(local_components={BY_POSITION}, tol=1e-9)", SHARDS)
    for i, rows in enumerate(SHARDS):
        found = result.fit_local(rows, TRUE[i])
        np.testing.assert_allclose(found, result.local_components_of(i), atol=1e-7)
    own = result.fit_local(SHARDS[-1])
    assert len(own) == result.local_components
    np.testing.assert_allclose(own @ result.components_.T, 0.0, atol=1e-12)
    assert result.transform(SHARDS[-1], client=own).shape[1] == result.n_components_ + len(own)
    assert result.fit_local(SHARDS[0], 0).shape == (0, D)
