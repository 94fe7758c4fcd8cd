"""The robust and the personalized algorithms under masks: the unmasked result, rounds that miss somebody, own parts."""

from __future__ import annotations

import numpy as np
import pytest
from fake_grid import arrays_in, grid_of, in_a_run
from masked import shards
from test_masked_runs import assert_same, gone
from test_robust import ROWS, SMALL

from flower_pca import (
    AirChannel,
    ConfigError,
    ExactPerPCA,
    MaskedSums,
    NotEnoughNodes,
    Outcome,
    make,
    simulate,
    strategies,
)
from flower_pca.core.model import Model
from flower_pca.rows.local import LocalData

pytestmark = pytest.mark.filterwarnings("ignore:theta must be")  # clients this alike have hardly anything of their own
LOW, FIVE = np.array_split(ROWS, 5), shards(5)
SPECS = {
    "consensus_rpca": "consensus_rpca(gamma=0.7)",
    "dcf_pca": "dcf_pca(step='scaled')",
    "exact_per_pca": "exact_per_pca(local_components=2)",
    "per_pca": "per_pca(local_components=2, eta=0.02)",
}
RECOVERED = {"consensus_rpca": ("L", "S"), "dcf_pca": ("L", "S"), "exact_per_pca": ("components", "variances")}
RECOVERED["per_pca"] = RECOVERED["exact_per_pca"]


def both(spec, parts, k, masks=True, **settings):
    return [simulate(spec, parts, n_components=k, mask=mask, **settings) for mask in (False, masks)]


def assert_same_own(masked, plain, names, within=1e-8):
    assert sorted(masked.own) == sorted(plain.own)
    for i, parts in plain.own.items():
        for name in names:
            atol = within * max(1.0, np.abs(parts[name]).max())
            np.testing.assert_allclose(masked.own[i][name], parts[name], rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("name", "n_clients"),
    [*((name, n) for name in SPECS for n in (2, 5)), ("consensus_rpca", 30), ("exact_per_pca", 30)],
)
def test_masked_equals_unmasked(name, n_clients):
    rounds = {"max_rounds": 3 if n_clients == 30 else 8, **({"start_rounds": 1} if "per_pca" in name else {})}
    plain, masked = both(make(SPECS[name], **rounds), shards(n_clients), 2, evaluate=True)
    assert_same(masked, plain)
    assert_same_own(masked, plain, RECOVERED[name])
    assert abs(masked.mse_ / plain.mse_ - 1) < 1e-8


@pytest.mark.parametrize("name", ["consensus_rpca", "exact_per_pca"])
def test_masked_equals_unmasked_for_200_clients_in_rings(name):
    settings = {"max_rounds": 2} if name == "consensus_rpca" else {"max_rounds": 3, "start_rounds": 1}
    plain, masked = both(make(SPECS[name], **settings), shards(200, rows=2), 2, MaskedSums(neighbours=4))
    assert_same(masked, plain)
    assert_same_own(masked, plain, RECOVERED[name])


CONVERGED = {
    "robust": ("consensus_rpca(gamma=0.7)", LOW, 5),
    "a rank to be found": ("consensus_rpca(gamma=0.7, rank='unknown')", LOW, 8),
    "sigma is given": ("consensus_rpca(gamma=0.7, sigma=2.0)", LOW, 5),
    "personal": ("exact_per_pca(local_components=2)", FIVE, 2),
    "personal, by rows": ("exact_per_pca(local_components=2, weights='samples')", FIVE, 2),
    "personal, given": (ExactPerPCA(local_components=2, given=np.eye(8)[:, :2]), FIVE, 2),
}


@pytest.mark.parametrize("case", CONVERGED)
def test_masked_equals_unmasked_at_convergence(case):
    spec, parts, k = CONVERGED[case]
    plain, masked = both(spec, parts, k)
    assert plain.status.ok
    assert_same(masked, plain)
    assert_same_own(masked, plain, RECOVERED[make(spec).name])


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
@pytest.mark.parametrize("name", ["consensus_rpca", "exact_per_pca", "dcf_pca"])
def test_no_scale_of_the_rows_is_refused(name, scale):
    parts, k = (FIVE, 2) if name == "exact_per_pca" else (LOW, 5)
    plain, masked = both(make(SPECS[name], max_rounds=45), [scale * X for X in parts], k)
    assert_same(masked, plain)
    assert plain.status.ok or name == "dcf_pca"


@pytest.mark.parametrize("spread", [1e-3, 1e3])
@pytest.mark.parametrize("name", ["consensus_rpca", "exact_per_pca", "exact_per_pca(weights='samples')"])
def test_nor_are_clients_of_other_units_than_the_others(name, spread):
    parts = [X * (spread if i == 1 else 1.0) for i, X in enumerate(FIVE)]
    plain, masked = both(make(name, max_rounds=20), parts, 2)
    assert_same(masked, plain)


@pytest.mark.parametrize("name", ["consensus_rpca", "exact_per_pca", "dcf_pca"])
def test_single_precision(name):
    parts, k = (FIVE, 2) if name == "exact_per_pca" else (LOW, 5)
    plain, masked = both(SPECS[name], [X.astype(np.float32) for X in parts], k)
    assert np.abs(masked.components_ - plain.components_).max() < 1e-5
    np.testing.assert_allclose(masked.explained_variance_, plain.explained_variance_, rtol=1e-5)
    assert masked.status.outcome is plain.status.outcome


@pytest.mark.parametrize("name", ["consensus_rpca", "dcf_pca"])
def test_the_size_of_an_entry_is_the_same_whoever_holds_the_rows(name):
    settings = {"n_components": 5, "seed": 1}
    cuts = ((), (3, 10, 40, 41, 90), tuple(range(2, 120, 2)))
    found = {simulate(make(name, max_rounds=1), np.split(ROWS, cut), **settings).spread_ for cut in cuts}
    found.add(simulate(make(name, max_rounds=1), LOW, mask=True, **settings).spread_)
    assert len(found) == 1
    assert found.pop() == pytest.approx(1.4826 * np.median(np.abs(ROWS)), rel=5e-3)


ONCE = {"its counts": 6, "the first round": 8, "a later one": 20, "the last one": 86, "the closing": 88}


@pytest.mark.parametrize("when", ONCE)
def test_a_robust_run_in_which_a_client_misses_one_sum(when):
    L, at = SMALL[0], ONCE[when]
    away = gone(2, at=at, back=at + 1)
    result = simulate("consensus_rpca(gamma=0.7)", LOW, n_components=5, mask=True, participation=away)
    low = np.vstack([result.own[i]["L"] for i in range(5)])
    assert result.status.ok
    assert result.n_samples_ == 120
    assert np.linalg.norm(low - L) <= 1e-6 * np.linalg.norm(L)
    again = when in ("the last one", "the closing")  # U is of the others, or V'V is: from the opening once more
    assert len(result.history.of("summed_opening")) == (4 if again else 2)


@pytest.mark.parametrize("at", [6, 10, 15, 21, 40, 42])
@pytest.mark.parametrize("weights", ["equal", "samples"])
def test_a_personalized_run_in_which_a_client_misses_one_sum(weights, at):
    algorithm = ExactPerPCA(local_components=2, weights=weights, tol=1e-9)
    whole = simulate(algorithm, FIVE, n_components=2)
    result = simulate(algorithm, FIVE, n_components=2, mask=True, participation=gone(1, at=at, back=at + 1))
    assert result.status.ok
    assert result.n_samples_ == whole.n_samples_
    assert result.angle_to(whole) <= 1e-7
    assert_same_own(result, whole, ["components"], within=1e-5)


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


@pytest.mark.parametrize("at", [5, 7, 20, 42])
def test_a_client_that_is_gone_for_good(at):
    rest = FIVE[:1] + FIVE[2:]
    spec = "exact_per_pca(local_components=2, tol=1e-8)"
    result = simulate(spec, FIVE, n_components=2, mask=True, participation=gone(1, at=at))
    assert result.status.ok
    assert result.n_samples_ == sum(map(len, rest))
    assert sorted(result.own) == [0, 2, 3, 4]
    assert result.angle_to(simulate(spec, rest, n_components=2)) <= 1e-6


@pytest.mark.parametrize("at", [7, 30, 88])
def test_a_robust_run_without_a_client_that_is_gone_for_good(at):
    L = np.vstack([A for i, A in enumerate(np.array_split(SMALL[0], 5)) if i != 4])
    spec = "consensus_rpca(gamma=0.7)"
    result = simulate(spec, LOW, n_components=5, mask=True, participation=gone(4, at=at))
    assert result.status.ok
    assert result.n_samples_ == len(L)
    low = np.vstack([result.own[i]["L"] for i in range(4)])
    assert np.linalg.norm(low - L) <= 1e-6 * np.linalg.norm(L)


@pytest.mark.parametrize("name", ["consensus_rpca", "exact_per_pca"])
def test_of_two_clients_none_may_miss_the_closing(name):
    parts, algorithm = FIVE[:2], make(SPECS[name], max_rounds=3)
    messages = len(simulate(algorithm, parts, n_components=2, mask=True).history)
    with pytest.raises(NotEnoughNodes, match="must be at least 2"):
        simulate(algorithm, parts, n_components=2, mask=True, participation=lambda m: [0, 1][: 1 + (m < messages - 2)])


@pytest.mark.parametrize("name", ["consensus_rpca", "exact_per_pca"])
@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_a_set_that_keeps_changing_comes_to_an_end(name, every):
    def present(number):
        assert number < 1000, "the run does not end"
        return [i for i in range(5) if number % every or i != (number // every) % 5]

    settings = {"n_components": 2, "mask": True, "participation": present}
    algorithm = make(name, max_rounds=15)
    if every < 5:
        with pytest.raises(NotEnoughNodes, match=r"The set of clients must be stable|The clients that .* at least 3"):
            simulate(algorithm, FIVE, **settings)
    else:
        assert simulate(algorithm, FIVE, **settings).status.outcome is Outcome.MAX_ROUNDS


REFUSED = {
    "exact_per_pca(init='upload')": 'Use init="projection": init="upload" asks every client for components',
    "exact_per_pca(init='qu')": 'Use init="projection": init="qu"',
    "exact_per_pca(collect=True)": "Leave collect out, which asks every client for its own components",
    "per_pca": r"Give eta: max_i \|\|S_i\|\|_2, which step is in proportion to, is no sum",
    "per_pca(eta=0.1, init='upload')": 'Use init="projection"',
}


@pytest.mark.parametrize("spec", REFUSED)
def test_settings_that_ask_for_single_answers_are_refused_by_name(spec):
    with pytest.raises(ConfigError, match=rf"The algorithm under masks must be one whose clients.*{REFUSED[spec]}"):
        simulate(spec, FIVE, n_components=2, mask=True)


@pytest.mark.parametrize("name", ["consensus_rpca", "exact_per_pca"])
def test_sampled_clients_would_need_last_answers(name):
    with pytest.raises(ConfigError, match=rf"The fraction of clients for {name} under masks must be 1\.0, as the last"):
        simulate(name, FIVE, n_components=2, mask=True, participation=0.5)


@pytest.mark.parametrize("name", SPECS)
def test_what_can_be_masked_cannot_therefore_be_sent_over_the_air(name):
    with pytest.raises(ConfigError, match=f"An algorithm over the air must be .*Got {name}"):
        simulate(SPECS[name], FIVE, n_components=2, channel=AirChannel(noise_std=1e-3))


@pytest.mark.parametrize("name", ["ConsensusRPCA", "ExactPerPCA"])
def test_over_flower_it_is_the_same_and_nodes_write_their_own_results(name, tmp_path):
    settings = {"gamma": 0.7} if name == "ConsensusRPCA" else {"local_components": 2}
    parts, k = (LOW, 5) if name == "ConsensusRPCA" else (FIVE, 2)
    settings |= {"max_rounds": 10}
    common = {"n_components": k, "mask": True, "evaluate": True}
    with in_a_run():
        grid, seen = grid_of(parts, output_dir=tmp_path), set()

        def look(message, reply):
            seen.update(arrays_in(reply))
            return reply

        grid.tamper = look
        result = getattr(strategies, name)(**settings, **common).fit(grid)
    here = simulate(make(getattr(strategies, name).name, **settings), parts, **common)
    np.testing.assert_array_equal(result.components_, here.components_)
    assert result.mse_ == here.mse_
    assert all(told.startswith("mask.") for told in seen)
    assert result.own == {}
    assert sorted(here.own) == list(range(5))
    for i, own in here.own.items():
        with np.load(tmp_path / f"flower_pca-own-{i}.npz") as file:
            assert sorted(file.files) == sorted([*own, "header.json"])
            for key, values in own.items():
                np.testing.assert_array_equal(file[key], values)


def test_a_node_that_is_killed_in_the_closing_is_out_of_the_answer(tmp_path):
    grid = grid_of(FIVE, output_dir=tmp_path)
    dead = grid.node(3)

    def kill(message):
        if message.metadata.group_id == str(last) and dead in grid.nodes:
            grid.kill(dead)

    with in_a_run():
        settings = {"n_components": 2, "local_components": 2, "start_rounds": 1, "tol": 1e-2, "mask": True}
        last = len(strategies.ExactPerPCA(**settings).fit(grid).history) - 2
        grid.on_push = kill
        result = strategies.ExactPerPCA(**settings).fit(grid)
    assert result.status.ok
    assert result.n_samples_ == sum(len(X) for i, X in enumerate(FIVE) if i != 3)


def test_a_run_goes_on_from_a_checkpoint(tmp_path):
    whole, path = simulate("consensus_rpca(gamma=0.7)", LOW, n_components=5, mask=True), tmp_path / "run.ckpt"

    def interrupt(session):
        if len(session.history) in (7, 21):
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            simulate("consensus_rpca(gamma=0.7)", LOW, n_components=5, mask=True, checkpoint=path, on_round=interrupt)
    resumed = simulate("consensus_rpca(gamma=0.7)", LOW, n_components=5, mask=True, checkpoint=path)
    np.testing.assert_allclose(resumed.components_, whole.components_, rtol=0, atol=1e-9)
