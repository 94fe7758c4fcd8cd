"""Test what a server sees and what a client never does, whoever drops out or lies, message by message."""

import numpy as np
import pytest
from builders import leading, sine, two_lead
from cases import every
from masked import Run, parts_without, restored_secrets
from scipy.stats import chi2, hypergeom

from flower_pca import client_half
from flower_pca.base.errors import NotEnoughNodes, ProtocolError
from flower_pca.core.stage import Failure, Reply
from flower_pca.masking import fixed, messages, primitives
from flower_pca.masking import group as server
from flower_pca.masking.client import SetupSecrets
from flower_pca.settings.masks import MaskedSums

FIVE = two_lead(5)
SINGLE = MaskedSums(self_masks=False)
EITHER = pytest.mark.parametrize("masks", [MaskedSums(), SINGLE], ids=["self-masks", "single masks"])


def is_leading(components, parts, within=1e-5):
    return sine(components, leading(parts)) < within


def upload(run, client, key, selves):
    """The attack: an upload without its masks, given the seeds of its mask key and of its self-mask."""
    message, arrays = run.sent[-1], run.came[-1]
    own, setup = message.arrays_for(client), message.arrays["mask.setup"].tobytes()
    number, position = int(own["mask.number"]), (run.group or run.session.group).position[client]
    y = arrays[client]["mask.y"]
    y = y - primitives.mask_of_key(
        primitives.derive_key(selves, messages.context_of_self_mask(setup, number, position)), len(y)
    )
    private, asked = primitives.private_key(key), arrays[client]["mask.past"].tobytes()
    for peer, public in zip(own["mask.peers"].tolist(), messages.rows_as_texts(own["mask.keys"]), strict=True):
        context = messages.context_of_pair_mask(setup, asked, number, *sorted((position, peer)))
        mask = primitives.mask_of_key(primitives.derive_key(primitives.shared_secret(private, public), context), len(y))
        y = y - mask if peer > position else y + mask
    return y


def bytes_look_uniform(words, level=1e-6):
    """Pearson's test over the 256 values of a byte."""
    counts = np.bincount(words.view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), 255) > level


@pytest.fixture
def seeded_secrets(monkeypatch):
    """Secrets from a seed, so that a statistical test says the same every time."""
    rng = np.random.default_rng(5)
    monkeypatch.setattr(primitives, "new_secret", lambda: rng.bytes(16))


def test_two_messages_of_set_up_and_two_for_each_sum():
    run = Run(FIVE, "krylov(max_rounds=2)")
    result = run.finish()
    stages = [r.stage for r in result.history]
    assert stages[:6] == ["mask.keys", "mask.shares", "summed_opening", "mask.sum", "summed_opening", "mask.sum"]
    assert stages[6:] == ["krylov", "mask.sum"] * result.rounds
    assert [message.number for message in run.sent] == list(range(len(stages)))
    assert all(r.asked == r.answered == 5 for r in result.history)


@pytest.mark.usefixtures("seeded_secrets")
def test_an_upload_is_indistinguishable_from_uniform_and_its_content_is_not():
    run = Run(two_lead(3, d=60), "ssi(oversample=10)").until("upload", 1)
    run.step()
    message, arrays = run.sent[-1], run.came[-1]
    bounds = messages.bounds_in_message(message.arrays)
    for i in range(3):
        assert len(arrays[i]["mask.y"]) > 800
        assert bytes_look_uniform(arrays[i]["mask.y"])
        up, _ = run.session.position.stage.client(messages.stage_arrays(message.arrays), run.nodes[i], {})
        assert not bytes_look_uniform(fixed.encode(up, bounds, 3))
    differences = arrays[0]["mask.y"] - arrays[1]["mask.y"]
    assert bytes_look_uniform(differences)


@pytest.mark.slow
def test_two_runs_and_two_sums_share_no_mask_and_no_key():
    words, keys = [], []
    for _ in range(2):
        run = Run(FIVE, "ssi(max_rounds=2)")
        run.finish()
        for answers in run.came:
            words += [a["mask.y"] for a in answers.values() if "mask.y" in a]
            keys += [a["mask.key"].tobytes() for a in answers.values() if "mask.key" in a]
    everything = np.concatenate(words)
    assert len(everything) > 1000
    assert len(np.unique(everything)) == len(everything)
    assert len(set(keys)) == len(keys)


@pytest.mark.slow
def test_nothing_but_sums_is_told_in_the_clear():
    """Not one number of rows, not one entry of an answer, by name or by value."""
    run = Run(FIVE, "ssi", reconstruction_error=True)
    run.finish()
    told = {name for answers in run.came for arrays in answers.values() for name in arrays}
    keys = {"mask.exchange", "mask.key", "mask.d", "mask.signature", "mask.past", "mask.earlier", "mask.kept"}
    assert told == keys | {"mask.shares", "mask.agreed", "mask.y", "mask.selves", "mask.keys"}
    counts = {float(node.n) for node in run.nodes}
    for answers in run.came:
        for arrays in answers.values():
            assert all(float(a) not in counts for a in arrays.values() if a.ndim == 0)


def test_a_client_that_drops_at_sum_3_leaves_its_earlier_uploads_hidden(monkeypatch):
    found = restored_secrets(monkeypatch)
    run, victim, seen = Run(FIVE, "ssi(min_rounds=3)"), 4, []
    for number in (0, 1):
        run.until("upload", number)
        before = SetupSecrets.from_memory(run.memories[victim]).own.tobytes()
        run.step()
        seen.append((run.sent[-1], run.came[-1], before))
        found.clear()
        run.step()
        assert before[:16] in found  # The server knows its self-mask, like that of every survivor.
        assert before[16:32] not in found
    run.until("upload", 2)
    own = SetupSecrets.from_memory(run.memories[victim]).own.tobytes()
    run.step(silent={victim})
    found.clear()
    run.step(gone={victim})
    assert own[16:32] in found  # The server has recovered its mask key of this sum ...
    assert own[:16] not in found
    late_message, late, _ = run.sent[-2], {**run.came[-2]}, None
    for message, arrays, secrets in seen:
        attack = Run(FIVE, "ssi")
        attack.group, attack.sent, attack.came = run.session.group, [message], [arrays]
        bounds = messages.bounds_in_message(message.arrays)
        exposed = upload(attack, victim, secrets[16:32], secrets[:16])  # The attack works with the key of that sum.
        up, _ = run.session.position.stages[0].client(messages.stage_arrays(message.arrays), run.nodes[victim], {})
        shapes = {name: a.shape for name, a in up.items()}
        found_out = fixed.decode(exposed, shapes, bounds, 5, whole={"n", "single", "rows"})
        for name, a in up.items():
            np.testing.assert_allclose(found_out[name], a, rtol=1e-10, atol=1e-10 * np.abs(a).max())
        hidden = upload(attack, victim, own[16:32], secrets[:16])  # ... but this key opens no other sum.
        with pytest.raises(ProtocolError, match="looks like noise"):
            fixed.decode(hidden, shapes, bounds, 5)
    assert victim not in late
    assert int(late_message.arrays["mask.number"]) == 2


@EITHER
def test_a_late_upload_of_a_dropped_client_is_discarded_and_never_unmasked(masks):
    run = Run(FIVE, "ssi(min_rounds=3)", masks=masks).until("upload", 2)
    message = run.message()
    replies = [run.answer(message, i) for i in message.to]
    late = replies.pop(2)
    run.session.advance([*replies, Failure(2, "late")])
    unmask = run.message()
    assert 2 not in unmask.to
    answers = [run.answer(unmask, i) for i in unmask.to]
    record = run.session.advance([late, *answers])
    assert "was not counted" in record.failures["2"]
    for client in (0, 1, 3, 4):  # A second request for its shares, as if it had survived, gets none.
        forged = {**unmask.arrays_for(client)}
        forged["mask.survived"] = np.append(forged["mask.survived"], forged["mask.dropped"])
        forged["mask.dropped"] = forged["mask.dropped"][:0]
        with pytest.raises(
            ProtocolError, match="This masked message is out of turn or repeated, because this node next expects"
        ):
            messages_to(run, client, forged)
    stale = Reply(2, run.message().number, late.arrays)  # The same upload under a new number answers no other message.
    record = run.session.advance([stale, *(run.answer(run.message(), i) for i in (0, 1, 3, 4))])
    assert record.answered == 4
    assert "but should have" in record.failures["2"]
    assert is_leading(run.finish().components_, parts_without(FIVE, 2), within=1e-4)


def messages_to(run, client, arrays):
    """A client's answer to these arrays; its memory stays, as after an error."""
    return client_half.answer("masked", arrays, run.nodes[client], run.memories[client])[0]


def test_a_client_gives_away_one_share_of_a_peer_and_only_if_enough_survive():
    run = Run(FIVE, "ssi").until("unmask", 0)
    asked = run.message().arrays_for(1)
    peers = asked["mask.survived"]
    lies = {
        "both shares": {"mask.dropped": peers[:1]},
        "too few": {"mask.survived": peers[:1], "mask.dropped": peers[1:]},
        "nobody in between": {"mask.survived": peers[:-1]},
        "one twice": {"mask.survived": np.append(peers[:-1], peers[0])},
        "of another sum": {"mask.number": np.array(1)},
    }
    for lie in lies.values():
        with pytest.raises(ProtocolError, match="This node has sent nothing"):
            messages_to(run, 1, {**asked, **lie})
    up = messages_to(run, 1, asked)
    assert up["mask.selves"].shape == (5, 16)
    assert up["mask.keys"].shape == (0, 16)


@every("what", ["shares", "upload", "unmask"])
def test_a_replayed_message_is_refused(what):
    run = Run(FIVE, "ssi").until(what, 0)
    message = run.message()
    run.step()
    with pytest.raises(ProtocolError, match=r"out of turn or repeated, .*\. This node has sent nothing"):
        messages_to(run, 0, message.arrays_for(0))


def test_the_secrets_of_a_sum_are_gone_when_it_is_unmasked():
    run = Run(FIVE, "ssi").until("unmask", 0)
    before = SetupSecrets.from_memory(run.memories[0])
    run.step()
    stored = b"".join(np.asarray(a).tobytes() for a in run.memories[0].values())
    own = before.own.tobytes()
    for secret in (own[:16], own[16:32], *messages.rows_as_texts(before.deposits)):
        assert secret not in stored
    assert before.coming.tobytes() in stored


LIES = {
    "too low a threshold": {"mask.needed": np.array(2)},
    "itself as a peer": {"mask.position": np.array(1)},
    "nobody": {"mask.peers": np.empty(0, dtype=np.int64), "mask.exchanges": np.empty((0, 32), dtype=np.uint8)},
}


@every("lie", LIES)
def test_a_set_up_that_would_not_protect_is_refused(lie):
    run = Run(FIVE, "ssi")
    run.step()
    asked = run.message().arrays_for(0)
    with pytest.raises(ProtocolError, match="This node has sent nothing"):
        messages_to(run, 0, {**asked, **LIES[lie]})


def test_a_server_that_plays_all_the_peers_by_one_key_is_refused():
    run = Run(FIVE, "ssi")
    run.step()
    asked = run.message().arrays_for(0)
    asked["mask.exchanges"] = np.repeat(asked["mask.exchanges"][:1], 4, axis=0)
    with pytest.raises(ProtocolError, match="This set-up has fewer than two clients, or names a client twice"):
        messages_to(run, 0, asked)


def test_a_server_that_puts_a_mask_key_of_its_own_in_a_peer_s_place_is_refused():
    run = Run(FIVE, "ssi").until("upload", 1)
    asked = run.message().arrays_for(0)
    asked["mask.keys"] = asked["mask.keys"].copy()
    asked["mask.keys"][1] = messages.bytes_as_array(primitives.public_key(bytes(16)))
    with pytest.raises(ProtocolError, match="A peer's key for this sum differs from the key that the peer sealed"):
        messages_to(run, 0, asked)


@every("how", ["flipped", "cut", "swapped"])
def test_sealed_shares_that_were_tampered_with_are_refused_by_their_receiver(how):
    run = Run(FIVE, "ssi").until("upload", 0)
    asked = run.message().arrays_for(0)
    sealed = asked["mask.shares"].copy()
    if how == "flipped":
        sealed[2, 5] ^= 16
    sealed = {"flipped": sealed, "cut": sealed[:, :-1], "swapped": sealed[::-1]}[how]
    with pytest.raises(ProtocolError, match="A share from another node cannot be decrypted"):
        messages_to(run, 0, {**asked, "mask.shares": sealed})


@pytest.mark.slow
def test_a_truncated_upload_is_left_out_and_named_and_its_sender_not_asked_again():
    def cut(reply):
        if reply.client == 3 and "mask.y" in reply.arrays:
            return Reply(3, reply.number, {**reply.arrays, "mask.y": reply.arrays["mask.y"][:-1]})
        return reply

    run = Run(FIVE, "ssi").until("upload", 2)
    record = run.step(change=cut)
    assert "mask.y in the answer of client 3 must be a real array of shape" in record.failures["3"]
    result = run.finish()
    assert run.session.roll.banned == {3}
    assert is_leading(result.components_, parts_without(FIVE, 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "masks"), [("mask.selves", MaskedSums()), ("mask.keys", MaskedSums()), ("mask.keys", SINGLE)]
)
def test_flipped_shares_spoil_no_result(name, masks):
    """The sum that they would have spoilt is noise, which shows; it is asked for again with new keys."""

    def flip(reply):
        a = reply.arrays[name].copy()
        a[..., 0] ^= 1
        return Reply(reply.client, reply.number, {**reply.arrays, name: a})

    run = Run(FIVE, "ssi", masks=masks).until("upload", 2)
    run.step(silent={4} if name == "mask.keys" else ())
    run.step(gone={4} if name == "mask.keys" else (), change=flip)
    assert run.due("keys", 0)
    result = run.finish()
    assert result.n_samples_ == sum(map(len, FIVE))
    assert is_leading(result.components_, FIVE)


@pytest.mark.slow
@EITHER
def test_a_client_that_lost_its_secrets_is_out_of_the_sum_and_comes_back_with_a_new_set_up(masks):
    run = Run(FIVE, "ssi(min_rounds=4)", masks=masks).until("upload", 2)
    run.memories[3] = {}
    record = run.step()
    assert "Client 3 has lost its secrets for this masked sum, or" in record.failures["3"]
    run.step()
    assert run.due("keys", 0)
    record = run.step()
    assert record.answered == 5
    result = run.finish()
    assert result.n_samples_ == sum(map(len, FIVE))
    assert is_leading(result.components_, FIVE)


@pytest.mark.parametrize(
    ("masks", "silent", "needed"),
    [(MaskedSums(threshold=0.7), {0, 1}, 4), (MaskedSums(threshold=0.99), {0}, 5), (SINGLE, {0, 1, 4}, 3)],
)
def test_fewer_survivors_than_the_threshold_end_the_run(masks, silent, needed):
    run = Run(FIVE, "ssi", masks=masks).until("upload", 1)
    words = f"Too few clients uploaded their part of a masked sum: {5 - len(silent)}, but at least {needed} are needed"
    with pytest.raises(NotEnoughNodes, match=words):
        run.step(silent=silent)


def test_rings_of_neighbors_are_regular_symmetric_and_whole():
    for clients, degree in ((200, 40), (101, 2), (30, 6), (5, 4), (2, 1)):
        near = server.neighbor_graph(clients, degree)
        assert all(len(set(peers)) == degree for peers in near)
        assert all(i in near[j] and i != j for i in range(clients) for j in near[i])
        reached, new = {0}, [0]
        while new:
            new = [j for i in new for j in near[i] if j not in reached and not reached.add(j)]
        assert len(reached) == clients
    assert server.neighbor_graph(200, 40) != server.neighbor_graph(200, 40)


def test_a_sum_has_too_few_clients_below_the_threshold_and_not_at_it():
    run = Run(FIVE).until("upload", 1)
    assert [n for n in range(6) if run.session.group.has_too_few_neighbors(range(n))] == [0, 1, 2]


@every("clients", [101, 102, 150, 200, 1000, 8192])
def test_neighbors_are_the_fewest_that_keep_to_the_stated_level_of_security(clients):
    """By scipy's hypergeometric distribution: where a fifth collude, a majority of some client's neighbors do."""
    k = MaskedSums().neighbor_count(clients)
    exposed, one_less = (clients * hypergeom.sf(m // 2, clients - 1, -(-clients // 5), m) for m in (k, k - 2))
    assert k % 2 == 0
    assert exposed <= 2.0**-20 < one_less


def test_degrees_and_thresholds():
    masks = MaskedSums()
    assert [masks.neighbor_count(n) for n in (2, 30, 100)] == [1, 29, 99]
    assert [masks.neighbor_count(n) for n in (101, 200, 1000)] == [36, 48, 72]
    assert [masks.quorum(n) for n in (2, 3, 4, 5, 41)] == [2, 2, 3, 3, 21]
    assert MaskedSums(neighbors=6).neighbor_count(4) == 3
    assert MaskedSums(threshold=0.99).quorum(5) == 5
