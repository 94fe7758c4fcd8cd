"""Test starts from known components: fewer messages, the same answer, and every form of a start."""

import numpy as np
import pandas as pd
import pytest
from builders import leading, pooled, rows, shards, sine, two_lead
from cases import every
from checks import EXACT_WITH, suiting
from fake_grid import grid_of
from flwr.app import Array, ArrayRecord

from flower_pca import PCAResult, cli, make, simulate, strategies
from flower_pca.strategies import PCAStrategy, arrays_of

K, DEVIATIONS = 4, 0.93 ** np.arange(30)
OLD = shards([300] * 4, DEVIATIONS, seed=1)
NEW = [np.vstack([shard, rows(15, DEVIATIONS, seed=9 + i)]) for i, shard in enumerate(OLD)]
ITERATING = [make(name, **EXACT_WITH.get(name, {})) for name in suiting("init")]


@pytest.fixture(scope="module")
def earlier():
    return simulate("krylov", OLD, n_components=K)


def messages(result):
    return len(result.history)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tol", "scale", "mask"), [(1e-3, None, False), (1e-8, "std", False), (1e-3, "std", True), (1e-8, None, True)]
)
def test_krylov_needs_fewer_messages_for_the_same_answer(scale, mask, tol):
    earlier = simulate("krylov", OLD, n_components=K, scale=scale)
    asked = {"n_components": K, "scale": scale, "tol": tol, "mask": mask}
    cold, warm = simulate("krylov", NEW, **asked), simulate("krylov", NEW, init=earlier, **asked)
    truth = pooled(NEW, scale=scale)
    assert cold.status.ok
    assert warm.status.ok
    assert messages(warm) < messages(cold)
    assert sine(warm.components_, truth.components[:K]) < 10 * tol / truth.gap(K)


@every("algorithm", ITERATING)
def test_the_answer_is_that_of_the_new_rows(algorithm):
    data = two_lead(4)
    far = simulate("krylov", [shard[:, ::-1] for shard in data], n_components=2)  # a start that does not help
    result = simulate(algorithm, data, n_components=2, init=far)
    assert result.status.ok
    assert sine(result.components_, leading(data, 2)) < 1e-4


@pytest.mark.slow
def test_a_direction_that_is_new_is_found():
    old = [np.pad(shard, ((0, 0), (0, 1))) for shard in OLD]  # the last column has no variance
    grown = [shard.copy() for shard in old]
    grown[1][:, -1] = 5.0 * np.random.default_rng(3).standard_normal(len(grown[1]))
    start = simulate("krylov", old, n_components=K)
    assert np.abs(start.components_[:, -1]).max() < 1e-12
    for name in ("krylov", "ssi", "faps"):
        result = simulate(name, grown, n_components=K, init=start, tol=1e-6)
        assert result.status.ok
        assert sine(result.components_, leading(grown, K)) < 1e-3


@pytest.mark.slow
def test_a_start_may_be_a_file_an_array_or_a_result_of_other_width(earlier, tmp_path):
    cold = messages(simulate("krylov", NEW, n_components=K))
    earlier.save(tmp_path / "earlier.npz")
    for start in (earlier, tmp_path / "earlier.npz", str(tmp_path / "earlier.npz"), earlier.components_):
        assert messages(simulate("krylov", NEW, n_components=K, init=start)) < cold
    for k in (2, 8):
        other = simulate("krylov", OLD, n_components=k)
        result = simulate("krylov", NEW, n_components=K, init=other)
        assert sine(result.components_, leading(NEW, K)) < 1e-6


@pytest.mark.slow
def test_columns_are_matched_by_name(earlier):
    names = [f"c{j:02}" for j in range(len(DEVIATIONS))]
    mixed = np.random.default_rng(0).permutation(len(names))
    old = [pd.DataFrame(shard, columns=names)[[names[j] for j in mixed]] for shard in OLD]
    new = [pd.DataFrame(shard, columns=names) for shard in NEW]
    start = simulate("krylov", old, n_components=K, columns=[names[j] for j in mixed])
    assert start.feature_names_in_.tolist() == [names[j] for j in mixed]
    by_position = messages(simulate("krylov", NEW, n_components=K, init=earlier))
    assert messages(simulate("krylov", new, n_components=K, init=start)) == by_position
    some = names[::-1][:20]
    result = simulate("krylov", new, n_components=K, init=start, columns=some)
    assert result.feature_names_in_.tolist() == some


def test_a_budget_goes_as_far_as_the_start(earlier):
    asked = {"n_components": K, "dp": "dp(epsilon=8.0, delta=1e-5, clip=6.0, noise_seed=1)", "seed": 2}
    cold = simulate("ssi(max_rounds=1)", NEW, **asked)
    warm = simulate("ssi(max_rounds=1)", NEW, init=earlier, **asked)
    truth = leading(NEW, K)
    assert sine(warm.components_, truth) < sine(cold.components_, truth)
    assert warm.privacy == cold.privacy


@pytest.mark.slow
def test_a_lost_opening_begins_with_the_same_block(earlier):
    here = lambda number: (0, 1, 2, 3) if number != 1 else (0, 1, 2)  # noqa: E731
    masked = simulate("krylov", NEW, n_components=K, init=earlier, mask=True, fraction=here)
    assert sine(masked.components_, leading(NEW, K)) < 1e-6


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
def test_a_strategy_takes_it_by_either_of_its_names(earlier):
    reference = simulate("krylov", NEW, n_components=K, init=earlier)
    found = PCAStrategy("krylov", n_components=K, init=earlier).fit(grid_of(NEW))
    assert np.array_equal(found.components_, reference.components_)
    result = strategies.Krylov(n_components=K).start(grid_of(NEW), arrays_of(earlier))
    assert np.array_equal(result.arrays["components"].numpy(), reference.components_)
    scaled = simulate("krylov", OLD, n_components=K, scale="std")
    reference = simulate("krylov", NEW, n_components=K, scale="std", init=scaled)
    result = strategies.Krylov(n_components=K, scale="std").start(grid_of(NEW), arrays_of(scaled))
    assert np.array_equal(result.arrays["components"].numpy(), reference.components_)


@pytest.mark.parametrize("name", ["krylov", "ssi", "local_power", "faps", "fed_oapm"])
@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.usefixtures("lines")
def test_a_strategy_knows_the_rows_of_its_start_again(name, saved, tmp_path):
    first = PCAStrategy(name, n_components=K).fit(grid_of(NEW))
    init = first
    if saved:
        init = tmp_path / "first.npz"
        first.save(init)
    again = PCAStrategy(name, n_components=K, init=init).fit(grid_of(NEW))
    assert messages(again) <= 3 < messages(first)
    assert again.status.ok
    truth = leading(NEW, K)
    assert sine(again.components_, truth) <= sine(first.components_, truth) + 1e-12


def test_other_arrays_are_left_aside_with_a_warning(lines):
    weights = ArrayRecord({"weights": Array(np.eye(2))})
    result = strategies.Krylov(n_components=2).start(grid_of(NEW), weights, num_rounds=3)
    assert result.arrays["components"].numpy().shape == (2, 30)
    assert "initial_arrays are ignored, because PCA starts only from an array with the name components." in lines


def test_a_strategy_has_flowers_names_for_what_it_has():
    ours = PCAStrategy("ssi", fraction=0.5, min_nodes=3)
    both = {"min_available_nodes": 2, "min_train_nodes": 3}
    for given in ({"min_available_nodes": 3}, {"min_train_nodes": 3}, {"min_evaluate_nodes": 3}, both):
        assert PCAStrategy("ssi", fraction_train=0.5, **given).config == ours.config
    assert strategies.SSI(fraction_train=0.5, min_available_nodes=3).config == ours.config


@pytest.mark.slow
@pytest.mark.usefixtures("unillustrated")
def test_the_command_line_begins_with_a_result(earlier, tmp_path, capsys):
    np.save(tmp_path / "rows.npy", np.vstack(NEW))
    earlier.save(tmp_path / "earlier.npz")
    words = ["run", str(tmp_path / "rows.npy"), "--clients", "4", "--components", str(K), "--algorithm", "krylov"]
    found = []
    for name, more in (("cold", []), ("warm", ["--init", str(tmp_path / "earlier.npz")])):
        assert cli.main([*words, "--out", str(tmp_path / name), *more]) == 0
        found.append(messages(PCAResult.load(tmp_path / name / "result.npz")))
    assert found[1] < found[0]
    assert cli.main([*words, "--out", str(tmp_path / "none"), "--init", str(tmp_path / "none.npz")]) == 2
    assert "none.npz" in capsys.readouterr().err


def test_the_estimator_begins_with_a_result(earlier):
    federated = pytest.importorskip("flower_pca.estimator").FederatedPCA
    names = [f"c{j:02}" for j in range(len(DEVIATIONS))][::-1]
    old = [pd.DataFrame(shard, columns=names) for shard in OLD]
    new = [pd.DataFrame(shard, columns=names) for shard in NEW]
    first = federated(n_components=K, algorithm="krylov").fit(old)
    cold, warm = (
        federated(n_components=K, algorithm="krylov").fit(new),
        federated(n_components=K, algorithm="krylov", init=first.result_).fit(new),
    )
    assert messages(warm.result_) < messages(cold.result_)
    assert np.allclose(cold.components_, warm.components_, rtol=0, atol=1e-6)
