"""Test robust and personalized algorithms under masks: the unmasked result, missed rounds, own parts."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from builders import gone_on, two_lead
from fake_grid import arrays_in, grid_of, in_a_run, listen_to
from masked import gone
from results import assert_close_own
from spoilt import ROWS, SMALL

from flower_pca import ExactPerPCA, NotEnoughNodes, Outcome, make, simulate, strategies
from flower_pca.core.model import Model
from flower_pca.rows.local import LocalData

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:theta is"),  # Clients as similar as these have almost no own components.
]
LOW, FIVE = np.array_split(ROWS, 3), two_lead(5)
SPECS = {
    "consensus_rpca": "consensus_rpca(gamma=0.7)",
    "dcf_pca": "dcf_pca(step='scaled')",
    "exact_per_pca": "exact_per_pca(local_components=2)",
    "per_pca": "per_pca(local_components=2, eta=0.02)",
}


@pytest.mark.parametrize("name", ["consensus_rpca", "dcf_pca"])
def test_the_size_of_an_entry_is_the_same_whoever_holds_the_rows(name):
    settings = {"n_components": 5, "seed": 1}
    cuts = ((), (3, 10, 40, 41, 90), tuple(range(2, 120, 2)))
    found = {simulate(make(name, max_rounds=1), np.split(ROWS, cut), **settings).spread_ for cut in cuts}
    found.add(simulate(make(name, max_rounds=1), LOW, mask=True, **settings).spread_)
    assert len(found) == 1
    assert found.pop() == pytest.approx(1.4826 * np.median(np.abs(ROWS)), rel=5e-3)


ONCE = {"its counts": 6, "the first round": 8, "the last one": 86, "the proof": 88, "the closing": 90}


@pytest.mark.parametrize("when", ONCE)
def test_a_robust_run_in_which_a_client_misses_one_sum(when):
    L, at = SMALL[0], ONCE[when]
    away = gone(2, at=at, back=at + 1, of=3)
    result = simulate("consensus_rpca(gamma=0.7)", LOW, n_components=5, mask=True, fraction=away)
    low = np.vstack([result.local[i]["L"] for i in range(3)])
    assert result.status.ok
    assert result.n_samples_ == 120
    assert np.linalg.norm(low - L) <= 1e-6 * np.linalg.norm(L)
    # These belong to the other clients, so the run returns to the opening.
    again = when in ("the proof", "the closing")
    assert len(result.history.of("summed_opening")) == (4 if again else 2)


@functools.cache
def unbroken(weights):
    algorithm = ExactPerPCA(local_components=2, weights=weights, tol=1e-9)
    return algorithm, simulate(algorithm, FIVE, n_components=2)


@pytest.mark.parametrize(("weights", "at"), [("equal", 6), ("samples", 15), ("samples", 40), ("equal", 42)])
def test_a_personalized_run_in_which_a_client_misses_one_sum(weights, at):
    algorithm, whole = unbroken(weights)
    result = simulate(algorithm, FIVE, n_components=2, mask=True, fraction=gone(1, at=at, back=at + 1))
    assert result.status.ok
    assert result.n_samples_ == whole.n_samples_
    assert result.angle_to(whole) <= 1e-7
    assert_close_own(result, whole, ["components"], within=1e-5)


@pytest.mark.parametrize("weights", ["equal", "samples"])
def test_nothing_is_extrapolated_from_a_round_that_missed_somebody(weights):
    """By hand: where an answer is missing, U goes to the polar factor of the others, or back to the last plain one."""
    stage, data = ExactPerPCA(local_components=2, weights=weights, init="random"), [LocalData(X) for X in FIVE]
    n = sum(map(len, FIVE))
    model = Model(n_components=2, center=False, scale=None, seed=3, summed=True, n=n, d=8, basis=np.eye(8)[:, :2])
    state = stage.start(model)

    def after(state, here):
        total = None
        for i in here:
            total = stage.merging(state)(total, i, stage.client(stage.broadcast(state), data[i], {})[0])
        return stage.server(state, total, frozenset(here)), total["Z"]

    while not state.bold:
        state, _ = after(state, range(5))
    back, _ = after(state, (0, 1, 2))
    assert not back.bold
    np.testing.assert_array_equal(back.U, state.known)
    for here in ((0, 1, 2), (2, 3, 4), range(5)):
        back, Z = after(back, here)
        left, _, right = np.linalg.svd(Z, full_matrices=False)
        np.testing.assert_allclose(back.U, left @ right, atol=1e-12)
        assert not back.bold
    assert after(back, range(5))[0].bold  # two whole rounds in succession


REST, TIGHT = FIVE[:1] + FIVE[2:], "exact_per_pca(local_components=2, tol=1e-7)"


@functools.cache
def answer_of_the_rest():
    return simulate(TIGHT, REST, n_components=2)


@pytest.mark.parametrize("at", [5, 42])
def test_a_client_that_is_gone_for_good(at):
    result = simulate(TIGHT, FIVE, n_components=2, mask=True, fraction=gone(1, at=at))
    assert result.status.ok
    assert result.n_samples_ == sum(map(len, REST))
    assert sorted(result.local) == [0, 2, 3, 4]
    assert result.angle_to(answer_of_the_rest()) <= 1e-6


@pytest.mark.parametrize("at", [7, 88])
def test_a_robust_run_without_a_client_that_is_gone_for_good(at):
    L = np.vstack([A for i, A in enumerate(np.array_split(SMALL[0], 4)) if i != 3])
    spec = "consensus_rpca(gamma=0.7)"
    result = simulate(spec, np.array_split(ROWS, 4), n_components=5, mask=True, fraction=gone(3, at=at, of=4))
    assert result.status.ok
    assert result.n_samples_ == len(L)
    low = np.vstack([result.local[i]["L"] for i in range(3)])
    assert np.linalg.norm(low - L) <= 1e-6 * np.linalg.norm(L)


@pytest.mark.parametrize("name", ["consensus_rpca", "exact_per_pca"])
def test_with_two_clients_neither_may_miss_the_closing(name):
    parts, algorithm = FIVE[:2], make(SPECS[name], max_rounds=3)
    messages = len(simulate(algorithm, parts, n_components=2, mask=True).history)
    with pytest.raises(NotEnoughNodes, match=r"^Too few clients are ready for a masked sum: 1, but at least 2"):
        simulate(algorithm, parts, n_components=2, mask=True, fraction=lambda m: [0, 1][: 1 + (m < messages - 2)])


@pytest.mark.parametrize(
    ("name", "every"),
    [("consensus_rpca", 1), ("exact_per_pca", 2), ("consensus_rpca", 3), ("consensus_rpca", 5), ("exact_per_pca", 5)],
)
def test_a_set_that_keeps_changing_comes_to_an_end(name, every):
    def present(number):
        assert number < 1000, "the run does not end"
        return [i for i in range(5) if number % every or i != (number // every) % 5]

    settings = {"n_components": 2, "mask": True, "fraction": present}
    algorithm = make(name, max_rounds=15)
    if every < 5:
        with pytest.raises(NotEnoughNodes, match=r"The set of clients must be stable|Too few clients .* at least 3"):
            simulate(algorithm, FIVE, **settings)
    else:
        assert simulate(algorithm, FIVE, **settings).status.outcome is Outcome.MAX_ROUNDS


@pytest.mark.parametrize("name", ["ConsensusRPCA", "ExactPerPCA"])
def test_over_flower_it_is_the_same_and_nodes_write_their_own_results(name, tmp_path):
    settings = {"gamma": 0.7} if name == "ConsensusRPCA" else {"local_components": 2}
    parts, k = (LOW, 5) if name == "ConsensusRPCA" else (FIVE, 2)
    settings |= {"max_rounds": 4}
    common = {"n_components": k, "mask": True, "reconstruction_error": True}
    with in_a_run():
        grid = grid_of(parts, output_dir=tmp_path)
        seen = listen_to(grid, arrays_in)
        result = getattr(strategies, name)(**settings, **common).fit(grid)
    here = simulate(make(getattr(strategies, name).name, **settings), parts, **common)
    np.testing.assert_array_equal(result.components_, here.components_)
    assert result.mse_ == here.mse_
    assert all(told.startswith("mask.") for arrays in seen for told in arrays)
    assert result.local == {}
    assert sorted(here.local) == list(range(len(parts)))
    for i, own in here.local.items():
        with np.load(tmp_path / f"flower_pca-local-{i}.npz") as file:
            assert sorted(file.files) == sorted([*own, "header.json"])
            for key, values in own.items():
                np.testing.assert_array_equal(file[key], values)


@pytest.mark.parametrize("name", ["faps", "triple_pca", *SPECS])
def test_a_run_goes_on_from_a_checkpoint_to_the_last_bit(name, tmp_path):
    """It is killed when a message has been answered, but its sum is not known yet: the message is asked again."""
    settings = {"n_components": 2, "mask": True}
    spec = make(name, max_rounds=4, **({"eta": 0.1} if name == "per_pca" else {}))
    whole = simulate(spec, LOW, **settings)
    stops = [r.number + 1 for r in whole.history if r.stage == name][1:3]
    assert len(stops) == 2
    resumed = gone_on(simulate, spec, LOW, path=tmp_path / "run.ckpt", stop=stops, **settings)
    assert len(resumed.history) > len(whole.history)
    assert resumed.status == whole.status
    np.testing.assert_array_equal(resumed.components_, whole.components_)
