"""Test differential privacy under masks: clients add noise in shares, and the server sees it in sums only."""

from __future__ import annotations

import numpy as np
import pytest
from builders import clipped, three_lead
from cases import paired
from fake_grid import FakeGrid, app_of, arrays_in, examples_of, grid_of, listen_to
from masked import Run, gone
from scipy.stats import chi2, kstest

from flower_pca import DP, MaskedSums, NotEnoughNodes, Outcome, PCAResult, ProtocolError, client_half, simulate
from flower_pca.clients.storage.folders import StateStore
from flower_pca.dp import gaussian
from flower_pca.layers import noise
from flower_pca.masking import fixed
from flower_pca.masking.messages import Phase
from flower_pca.masking.secrets import SetupSecrets
from flower_pca.rows.local import LocalData
from flower_pca.strategies import PCAStrategy

pytestmark = pytest.mark.slow

METHODS = ["ssi(oversample=2, max_rounds=4)", "krylov(oversample=2, max_rounds=3)", "covariance"]
OFF = 1e-9  # the chance on either side beyond which a statistic is taken for wrong


def shared_budget(**changes):
    return DP(**{"epsilon": 2.0, "delta": 1e-6, "clip": 3.0, **changes})


def clipped_sums(name, message, X, clip):
    """What rows clipped by hand add to a sum."""
    mean = 0.0 if message.frame.mean is None else message.frame.mean
    F = clipped(X, clip, mean)
    if name == "private_opening":
        parts = [[len(F)], F.sum(axis=0) / clip, [np.sum(F**2) / clip**2]]
        return np.concatenate(parts) * clip**2 / np.sqrt(3)
    if name == "covariance":
        C = F.T @ F
        return np.concatenate([np.diag(C), np.sqrt(2) * C[np.triu_indices(len(C), 1)]])
    return F.T @ F @ message.arrays["Z" if name == "ssi" else "B"]


def residues(monkeypatch, parts, method, *, gone=(), **settings):
    """By stage: the sums that the server has unmasked, less the exact ones, over the stated deviation."""
    decoded = []
    decode = fixed.decode
    monkeypatch.setattr(fixed, "decode", lambda *a: decoded.append(decode(*a)) or decoded[-1])
    driven, found = Run(parts, method, **{"dp": shared_budget(clip=4.0), "n_components": 3, **settings}), {}
    (plan,) = driven.session.layers
    while driven.message() is not None:
        uploads = Phase(int(driven.message().arrays["mask.step"])) is Phase.UPLOAD
        driven.step(gone=gone if uploads and driven.session.message.stage != "krylov" else ())
        if uploads:
            sent, stage = driven.sent[-1], driven.session.message.stage
            from_ = driven.came[-1]
        elif len(decoded) > sum(map(len, found.values())):
            clip, std = (
                (plan.raw_row_norm, plan.frame_noise) if stage == "private_opening" else (plan.dp.clip, plan.noise)
            )
            truth = sum(clipped_sums(stage, sent, parts[i], clip) for i in from_)
            (got,) = (a for name, a in decoded[-1].items() if name != "n")
            assert decoded[-1]["n"] == len(from_) if "n" in decoded[-1] else stage == "krylov"
            found.setdefault(stage, []).append(((got - truth) / std).ravel())
    return {stage: np.concatenate(z) for stage, z in found.items()}


def assert_normal(z, variance):
    low, high = chi2(len(z)).ppf([OFF, 1 - OFF]) / len(z)
    assert low < np.mean(z**2) / variance < high
    assert kstest(z / np.sqrt(variance), "norm").pvalue > OFF


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("masks", "colluding", "among"),
    [({}, 0, 6), ({}, 2, 4), ({"threshold": 0.8}, 0, 9), ({"neighbors": 4}, 0, 3)],
    ids=["six of ten", "two collude", "nine of ten", "rings"],
)
def test_the_noise_in_a_sum_is_that_of_all_shares(method, masks, colluding, among, monkeypatch):
    """Ten clients with std / sqrt(m) each: std sqrt(10 / m), against chi-square and a normal law."""
    parts = three_lead(10, n=400, d=40)
    dp = shared_budget(clip=4.0, colluding=colluding)
    found = residues(monkeypatch, parts, method, masks=MaskedSums(**masks), dp=dp)
    assert set(found) == {"private_opening", method.split("(")[0]}
    for z in found.values():
        assert_normal(z, 10 / among)


@pytest.mark.parametrize("method", ["ssi(oversample=2, max_rounds=8)", "covariance"])
def test_the_fewest_survivors_alone_have_the_stated_noise(method, monkeypatch):
    """Four of ten gone at every sum, never to be in it: what is left is std, no less and no more."""
    parts = three_lead(10, n=400, d=40)
    found = residues(monkeypatch, parts, method, gone=(0, 3, 4, 8))
    for z in found.values():
        assert_normal(z, 1.0)


def test_the_noise_is_less_than_that_in_full_by_the_root_of_the_survivors(monkeypatch):
    parts = three_lead(20, n=2000, d=40)
    shared = residues(monkeypatch, parts, "covariance")["covariance"]
    assert_normal(shared * np.sqrt(11), 20.0)  # 20 draws with the stated deviation each


@pytest.mark.parametrize("method", METHODS)
def test_the_answer_is_better_than_with_noise_in_full_at_the_same_epsilon(method):
    """Ten clients, six of whom suffice: less noise by sqrt(6), so angles that are smaller by about as much."""
    parts = three_lead(10, n=20_000)
    truth = simulate("krylov", parts, n_components=3)
    angles = {
        mask: [
            simulate(method, parts, n_components=3, mask=mask, dp=shared_budget(noise_seed=s, clip=4.0)).angle_to(truth)
            for s in range(3)
        ]
        for mask in (False, True)
    }
    ratio = np.median(angles[False]) / np.median(angles[True])
    assert 0.5 * np.sqrt(6) < ratio < 2.0 * np.sqrt(6)


def test_a_variance_that_the_noise_swallows_counts_as_large_as_the_shared_noise():
    """A column of zeros: squares of deviation R^2 sqrt(3) (std / R^2) sqrt(5 / 3) among n rows."""
    parts = [np.hstack([X, np.zeros((len(X), 1))]) for X in three_lead(5, n=10_000)]
    for seed in range(20):
        dp = shared_budget(clip=4.0, reach=6.0, noise_seed=seed)
        found = simulate("covariance", parts, n_components=3, dp=dp, mask=True, scale="std")
        mu = 4.0**2 / found.privacy.noise / np.sqrt(0.9)
        floor = np.sqrt(6.0**2 * np.sqrt(3) / (mu * np.sqrt(0.1)) * np.sqrt(5 / 3) / found.n_samples_)
        assert found.scale_[-1] >= floor * (1 - 1e-12)
        if found.scale_[-1] == pytest.approx(floor, rel=1e-9):
            return
    pytest.fail("of twenty draws none was below its own deviation")


@pytest.mark.parametrize(("epsilon", "clip"), [(0.1, 1e-6), (0.1, 1e7), (1.0, 1.0), (10.0, 1e7), (100.0, 1e-6)])
@pytest.mark.parametrize("method", METHODS)
def test_no_entry_with_noise_is_beyond_the_bound_whatever_the_units(method, epsilon, clip):
    """Rows that all point the same way, at one client nearly all of them: sums as large as they can be."""
    direction = np.ones(6) / np.sqrt(6)
    parts = [np.tile(5 * clip * direction, (rows, 1)) for rows in (30_000, 10, 1)]
    dp = shared_budget(epsilon=epsilon, clip=clip)
    found = simulate(method, parts, n_components=1, center=False, dp=dp, mask=True)
    assert found.status.ok
    assert [r.failures for r in found.history if r.failures] == []
    if epsilon >= 10.0:
        assert found.angle_to(direction[None]) < 0.05


@pytest.mark.parametrize("clients", [2, 10, 100, fixed.MOST_CLIENTS])
@pytest.mark.parametrize("deviation", [1e-13, 0.37, 4e9])
def test_fixed_point_is_finer_than_the_noise_by_ten_bits_and_leaves_room_for_rows(clients, deviation):
    """What one step of the last bit is, measured on the words themselves."""
    bound = np.array(fixed.bound_with_noise(deviation, clients))
    words = np.array([10_000, 10_001], dtype=np.uint64)
    low, high = fixed.decode(words, {"Y": (2,)}, {"Y": bound}, clients)["Y"]
    assert deviation / 2**11 < high - low <= deviation / 2**10
    assert bound >= 2**36 * deviation
    largest = fixed.encode({"Y": np.array([bound, -bound])}, {"Y": bound}, clients).view(np.int64)
    assert np.abs(largest).max() * clients < 2**61


def test_each_client_adds_the_same_noise_as_without_masks_but_a_share_of_it():
    """The opening's count: 4000 and five draws, once in full and once each over sqrt(3)."""
    parts = three_lead(5)
    full, shared = (
        simulate("covariance", parts, n_components=2, dp=shared_budget(noise_seed=4, epsilon=0.3), mask=mask)
        for mask in (False, True)
    )
    assert abs(full.n_samples_ - 4000) > 20
    assert shared.n_samples_ - 4000 == pytest.approx((full.n_samples_ - 4000) / np.sqrt(3), abs=1.0)


# What is refused.


@pytest.mark.parametrize("among", [np.array(4), np.array(0), np.array(2.0), np.array([1, 1])], ids=str)
def test_a_client_shares_the_noise_with_no_more_than_must_survive_in_its_own_group(among):
    """Three of five have to; a message that counts on four would leave three with less than the stated noise."""
    node = Run(three_lead(5), "ssi(max_rounds=2)", dp=shared_budget()).until("upload", 0)
    message = node.message()
    assert message.layers["dp"]["among"] == int(SetupSecrets.from_memory(node.memories[1]).needed) == 3
    message.layers["dp"]["among"] = among
    kept = dict(node.memories[1])
    with pytest.raises(ProtocolError) as caught:
        node.answer(message, 1)
    rule = "A message divides its noise among "
    several = "A message with noise has several numbers in among instead of one."
    assert (several if among.ndim else rule) in str(caught.value)
    assert node.memories[1].keys() == kept.keys()
    assert "dp.spent" not in kept


def test_without_masks_a_client_adds_the_noise_in_full():
    Z = np.eye(4)[:, :2]
    says = noise.noise_instruction(clip=1.0, std=2.0, budget=9.0)
    client_half.answer("ssi", {"Z": Z}, LocalData(np.eye(4)), {}, layers={"dp": {**says, **noise.sharing_arrays(1)}})
    with pytest.raises(ProtocolError, match=r"among 2 clients, but the server may see a sum of only 1 answer"):
        client_half.answer(
            "ssi", {"Z": Z}, LocalData(np.eye(4)), {}, layers={"dp": {**says, **noise.sharing_arrays(2)}}
        )
    with pytest.raises(ProtocolError, match="A message with noise"):
        client_half.answer("ssi", {"Z": Z}, LocalData(np.eye(4)), {}, layers={"dp": noise.sharing_arrays(1)})


# Drop-outs, and sums that cannot be had.


@pytest.mark.parametrize(("at", "back"), paired(range(1, 12), [None, 1]))
def test_ssi_goes_on_without_clients_that_drop_out(at, back):
    parts = three_lead(5, n=20_000)
    present = gone(1, 4, at=at, back=back and at + back)
    dp = shared_budget(epsilon=50.0, clip=6.0)
    found = simulate(METHODS[0], parts, n_components=3, dp=dp, mask=True, fraction=present)
    assert found.rounds == 4
    assert found.privacy.messages == 5
    assert found.status.outcome is Outcome.BUDGET_SPENT
    assert found.angle_to(simulate("krylov", parts, n_components=3)) < 0.1


@pytest.mark.parametrize("at", [6, 7])
def test_krylov_ends_with_a_client_that_it_needs(at):
    with pytest.raises(NotEnoughNodes, match="The set of clients changed after a part of the privacy budget was spent"):
        simulate(METHODS[1], three_lead(5), n_components=2, dp=shared_budget(), mask=True, fraction=gone(2, at=at - 2))


def spoilt_shares(reply):
    """Shares of self-masks that are not those of anybody: the sum cannot be unmasked."""
    arrays = dict(reply.arrays)
    arrays["mask.selves"] = arrays["mask.selves"] ^ np.uint8(1)
    return type(reply)(reply.client, reply.number, arrays)


@pytest.mark.parametrize("number", [1, 3])
def test_a_sum_that_is_lost_costs_a_round(number):
    node = Run(three_lead(5), METHODS[0], n_components=3, dp=shared_budget()).until("unmask", number)
    node.step(change=spoilt_shares)
    result = node.finish()
    assert result.rounds == 3
    assert result.status.ok
    assert result.status.words.startswith("the privacy budget is spent: 3 of 4 planned rounds gave a sum")
    assert len(result.history.of("mask.keys")) == 2
    assert result.privacy.messages == 5
    assert result.privacy.epsilon == pytest.approx(2.0, rel=1e-9)
    for memory in node.memories:  # Only what was sent before the new set-up has been counted.
        assert memory["dp.spent"] == pytest.approx(node.session.layers[0].budget, rel=1e-9)


def test_an_opening_that_is_lost_costs_the_rounds_that_its_share_would_have_paid():
    node = Run(three_lead(5), "ssi(max_rounds=20)", n_components=3, dp=shared_budget()).until("unmask", 0)
    node.step(change=spoilt_shares)
    result = node.finish()
    assert result.rounds == 17  # 0.8 of the budget is left for rounds; 20 rounds would need 0.9
    assert result.privacy.messages == 19
    assert result.privacy.epsilon < 2.0
    assert max(memory["dp.spent"] for memory in node.memories) <= node.session.layers[0].budget


@pytest.mark.parametrize(("method", "number"), [("covariance", 0), ("covariance", 1), (METHODS[1], 2)])
def test_a_lost_sum_that_the_run_cannot_do_without_ends_it(method, number):
    node = Run(three_lead(5), method, n_components=3, dp=shared_budget()).until("unmask", number)
    with pytest.raises(NotEnoughNodes, match=r"A sum of answers was lost"):
        node.step(change=spoilt_shares)


def test_whatever_the_server_asks_again_a_client_tells_no_more_than_the_budget(monkeypatch):
    """A server that takes no round less: at the last one every client refuses, by name."""
    monkeypatch.setattr(noise.BudgetLayer, "after_lost_sum", lambda plan, stage, algorithm, why: (plan, algorithm))
    node = Run(three_lead(5), METHODS[0], n_components=3, dp=shared_budget()).until("unmask", 2)
    node.step(change=spoilt_shares)
    with pytest.raises(ProtocolError) as caught:
        node.finish()
    rule = "With this message, the client would spend 1.2"
    assert rule in str(caught.value)
    (told,) = {float(memory["dp.spent"]) for memory in node.memories}
    assert told <= node.session.layers[0].budget * (1 + 1e-9)


# Over Flower.


@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("method", METHODS)
def test_over_flower_with_the_nodes_own_bounds(method):
    """min_noise holds for the noise of the sum; set-ups and unmaskings ask for none and are answered."""
    parts = three_lead(5, n=20_000)
    grid = FakeGrid(app_of(parts, min_noise=0.5, max_clip=4.0, masked_only=True), 5)
    told = listen_to(grid, examples_of)
    found = PCAStrategy(method, n_components=3, dp="dp(epsilon=4.0, delta=1e-6, clip=4.0)", mask=True).fit(grid)
    assert found.angle_to(simulate("krylov", parts, n_components=3)) < 0.3
    assert found.privacy.shared
    assert found.privacy.noise >= 0.5 * 16.0
    assert set(told) == {0}


@pytest.mark.usefixtures("lines")
def test_over_flower_what_was_told_is_counted_across_set_ups():
    """An upload that is lost on its way counts at its node, which cannot know; it comes back with a new set-up."""
    grid, lost = grid_of(three_lead(5, n=20_000)), []
    victim = grid.node(2)

    def lose(message, reply):
        late = len(grid.sent) > 30 and not lost and "mask.y" in arrays_in(reply)
        if message.metadata.dst_node_id == victim and late:
            lost.append(message)
            return None
        return reply

    grid.tamper = lose
    dp = "dp(epsilon=50.0, delta=1e-6, clip=6.0)"
    found = PCAStrategy(METHODS[0], n_components=3, dp=dp, mask=True, round_timeout=3.0).fit(grid)
    assert found.rounds == 4
    assert len(found.history.of("mask.keys")) == 2
    assert sorted(r.answered for r in found.history.of("ssi")) == [4, 5, 5, 5]
    spent = [float(StateStore(context.state).load("").after["dp.spent"]) for context in grid.nodes.values()]
    assert spent == pytest.approx([gaussian.noise_of(50.0, 1e-6) ** 2] * 5, rel=1e-9)


def test_the_result_keeps_whether_noise_was_shared(tmp_path):
    found = simulate("covariance", three_lead(5), n_components=2, dp=shared_budget(), mask=True)
    assert PCAResult.load(found.save(tmp_path / "r.npz")).privacy == found.privacy
    assert str(found.privacy).endswith("on each sum, shared among clients")
    alone = simulate("covariance", three_lead(5), n_components=2, dp=shared_budget())
    assert (alone.privacy.noise, alone.privacy.shared) == (found.privacy.noise, False)
    assert str(alone.privacy).endswith("on each answer")
