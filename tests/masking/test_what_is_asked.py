"""Test that a server learns nothing by asking clients of one sum different things, or with chosen bounds."""

import flat
import numpy as np
import pytest
from builders import leading, two_lead
from cases import every
from fake_grid import arrays_in, config_of, grid_of, in_a_run, is_pca_of, metrics_of, with_arrays
from masked import Run
from scipy.stats import ks_2samp

from flower_pca import DP, ConfigError, MaskedSums, strategies
from flower_pca.algorithms.ssi import SSI
from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.clients.storage.folders import FileStore, StateStore
from flower_pca.core.kinds import ROWS, Part
from flower_pca.core.stage import Reply
from flower_pca.dp import drawing
from flower_pca.layers import noise
from flower_pca.masking import fixed, messages
from flower_pca.masking.messages import SpentError
from flower_pca.masking.secrets import SetupSecrets
from flower_pca.rows.frame import Frame

FIVE = two_lead(5)
BUDGET = DP(epsilon=2.0, delta=1e-6, clip=3.0)


def answer_to_change(run, i, change, frame=None):
    """A client's answer to a message that has been changed for it; its memory moves on."""
    message = run.message()
    data = run.nodes[i].in_frame(message.frame if frame is None else frame)
    up, run.memories[i] = flat.answer(message.stage, {**flat.all_arrays(message, i), **change}, data, run.memories[i])
    return Reply(i, message.number, up)


def unnoticed(replies):
    """The server does not care that clients do not say the same of what they were asked."""
    past = replies[0].arrays["mask.past"]
    return [Reply(r.client, r.number, {**r.arrays, "mask.past": past}) for r in replies]


def sum_with_change(run, change, **frame):
    """The sum of an upload's round in which all clients but the first are asked something else."""
    message, group = run.message(), run.session.group
    replies = [run.answer(message, 0), *(answer_to_change(run, i, change, **frame) for i in message.to[1:])]
    run.session.advance(unnoticed(replies))
    unmask = run.message()
    words = group.unmasked_sum({i: run.answer(unmask, i).arrays for i in unmask.to})
    return run.session.layout.decode_sums(words)


OTHER = {
    "another block": {"Z": np.zeros((8, 2))},
    "another type": {"Z": np.zeros((8, 2), dtype=np.float32)},
    "one array more": {"more": np.array(1.0)},
    "a huge bound": {"mask.bound.Y": np.array(1e40)},
    "more clients": {"mask.clients": np.array(6)},
}


@pytest.mark.slow
@pytest.mark.parametrize("self_masks", [True, False])
@pytest.mark.parametrize("other", OTHER)
def test_masks_do_not_cancel_if_messages_differ(other, self_masks):
    """Else blocks of zeros, or bounds by which answers round to zero, would leave the first client's answer alone."""
    run = Run(FIVE, "ssi(oversample=0)", masks=MaskedSums(self_masks=self_masks)).until("upload", 2)
    change = OTHER[other]
    assert run.message().arrays["Z"].shape == (8, 2)
    if self_masks:
        with pytest.raises(
            ProtocolError,
            match=r"looks like noise .* at least one client sent wrong shares or received a different message\.",
        ):
            sum_with_change(run, change)
        return
    run.session.advance(
        unnoticed([run.answer(run.message(), 0), *(answer_to_change(run, i, change) for i in range(1, 5))])
    )
    assert run.due("keys", 0)  # The sum was noise, was recognized as such, and is requested again.
    assert run.finish().angle_to(leading(FIVE)) < 1e-4


@pytest.mark.parametrize("part", ["mean", "scale"])
def test_masks_do_not_cancel_if_frames_differ(part):
    """A frame travels beside the arrays: with another mean, or a huge scale, the others' answers would be known."""
    run = Run(FIVE, "ssi", scale="std").until("upload", 2)
    frame = run.message().frame
    parts = {"mean": frame.mean, "scale": frame.scale, part: getattr(frame, part) * {"mean": 1.001, "scale": 1e9}[part]}
    with pytest.raises(ProtocolError, match="noise"):
        sum_with_change(run, {}, frame=Frame(**parts))


def test_masks_do_not_cancel_if_the_noise_differs():
    run = Run(FIVE, "ssi(max_rounds=2)", dp=BUDGET).until("upload", 1)
    with pytest.raises(ProtocolError, match="noise"):
        sum_with_change(run, {"dp.budget": np.array(1e9)})


def test_all_that_a_client_is_asked_is_in_the_digest_and_nothing_of_its_own():
    dp = DP(epsilon=50.0, delta=1e-6, clip=3.0, reach=20.0)
    run = Run(FIVE, "ssi(max_rounds=2)", dp=dp, scale="std").until("upload", 1)
    message = run.message()
    digests = {messages.digest_of_message(flat.all_arrays(message, i), message.frame) for i in message.to}
    asked = flat.all_arrays(message, -1)
    assert digests == {messages.digest_of_message(asked, message.frame)}
    common = {name for name in asked if name not in ("mask.step", "mask.setup", "mask.number")}
    assert common == {"Z", "dp.clip", "dp.noise", "dp.budget", "dp.among"} | {
        *("mask.stage", "mask.clients", "mask.bound.Y", "mask.bound.n")
    }
    for name in common:  # Change a bit of any of them.
        a = asked[name].copy()
        a.reshape(-1).view(np.uint8)[0] ^= 1
        digests.add(messages.digest_of_message({**asked, name: a}, message.frame))
    for name in ("Z", "dp.noise"):  # The same bytes in another shape or under another name give another digest.
        reshaped, renamed = {name: asked[name].reshape(1, -1)}, {"X": asked[name]}
        rest = {n: a for n, a in asked.items() if n != name}
        digests |= {
            messages.digest_of_message({**rest, **changed}, message.frame) for changed in (reshaped, renamed, {})
        }
    digests |= {messages.digest_of_message(asked, frame) for frame in (Frame(), Frame(message.frame.mean))}
    digests.add(messages.digest_of_message(message.arrays, Frame(message.frame.scale, message.frame.mean)))
    assert len(digests) == 1 + len(common) + 6 + 3


def test_frames_that_are_the_same_to_a_client_have_one_digest():
    """A client may find rows in a frame of equal numbers among those that it has at hand."""
    one, same = Frame(np.zeros(3), np.ones(3)), Frame(-np.zeros(3), np.ones(3, dtype=np.float32))
    assert one.maps_rows_alike(same)
    assert messages.digest_of_message({}, one) == messages.digest_of_message({}, same)


class Partial(SSI):
    """An algorithm that tells one client something of its own."""

    def personal(self, state):
        return {2: {"secret": np.array(1)}}


def test_a_stage_that_tells_clients_different_things_is_refused_at_the_server():
    with pytest.raises(
        ConfigError, match=r"ssi sends each client a different message, but masked sums need the same message for all"
    ):
        Run(FIVE, Partial()).finish()


@pytest.mark.slow
@pytest.mark.parametrize("self_masks", [True, False])
def test_masks_of_a_client_that_drops_out_are_found_again_by_what_was_asked(self_masks):
    run = Run(FIVE, "ssi(min_rounds=3)", masks=MaskedSums(self_masks=self_masks), scale="std").until("upload", 2)
    run.step(gone={1})
    run.step(gone={1})
    assert run.session.group is not None  # Its masks have been removed, so the sum was not noise.
    assert len(run.finish().history.of("mask.keys")) == 2  # The second set-up is for the client that came back.


# Bounds.


@pytest.mark.parametrize("bound", [0.0, 1.0, 1e30])
@pytest.mark.parametrize("name", ["Y", "n"])
def test_under_noise_a_client_keeps_to_its_own_bounds_and_draws_nothing_for_others(name, bound, monkeypatch):
    """Whether noise and entry together keep to a bound, asked again and again, would give the entry."""
    run = Run(FIVE, "ssi(max_rounds=2)", dp=BUDGET).until("upload", 1)
    kept = dict(run.memories[0])
    monkeypatch.setattr(drawing, "draw_normals", lambda *_: pytest.fail("noise was drawn"))
    change = {f"mask.bound.{name}": np.array(2.0 if (name, bound) == ("n", 1.0) else bound)}
    with pytest.raises(ProtocolError, match="The bounds of this masked sum do not follow from its noise"):
        answer_to_change(run, 0, change)
    entries = np.full((8, 2), run.message().arrays["mask.bound.Y"])
    with pytest.raises(ProtocolError, match="The bounds of this masked sum do not follow from its noise"):
        answer_to_change(run, 0, {"mask.bound.Y": entries})
    assert run.memories[0] == kept


@pytest.mark.parametrize("settings", [{}, {"dp": BUDGET}], ids=["", "noise"])
@pytest.mark.parametrize(
    "clients", [np.array(4), np.array(0), np.array(8193), np.array(5.0), np.array([5, 5])], ids=str
)
def test_fixed_point_suits_the_clients_of_the_sum(clients, settings, monkeypatch):
    run = Run(FIVE, "ssi(max_rounds=2)", **settings).until("upload", 1)
    monkeypatch.setattr(fixed, "encode", lambda *_: pytest.fail("the answer was computed"))
    with pytest.raises(
        ProtocolError, match=r"The number of clients in this masked sum is .*, but must be from 5 to 8,192\."
    ):
        answer_to_change(run, 0, {"mask.clients": clients})


@pytest.mark.slow
def test_in_a_ring_there_are_more_clients_than_peers():
    run = Run(two_lead(9), "ssi(max_rounds=2)", masks=MaskedSums(neighbors=4), dp=BUDGET)
    assert run.finish().status.ok
    uploads = [m for m in run.sent if "mask.clients" in m.arrays]
    assert {int(m.arrays["mask.clients"]) for m in uploads} == {9}
    assert {len(m.arrays_for(3)["mask.peers"]) for m in uploads} == {4}


def test_a_bound_that_a_client_cannot_keep_costs_it_the_set_up():
    run = Run(FIVE, "ssi").until("upload", 2)
    with pytest.raises(SpentError, match="Y of this client has an entry that is not finite or exceeds 1e-09") as caught:
        answer_to_change(run, 0, {"mask.bound.Y": np.array(1e-9)})
    assert isinstance(caught.value, DataError)
    assert SetupSecrets.from_memory(caught.value.memory) is None
    run.memories[0] = caught.value.memory
    assert answer_to_change(run, 0, {}).arrays.keys() == {"mask.lost"}


def test_what_was_drawn_counts_even_if_it_is_beyond_the_bound():
    """Rows whose sums outgrow the noise a thousand billion times, as a server may have chosen it."""
    run = Run([1e3 * X for X in FIVE], "ssi(max_rounds=2)", dp=DP(epsilon=1e14, delta=1e-6, clip=1e9)).until(
        "upload", 0
    )
    small = {"dp.noise": np.array(1e-3), "dp.clip": np.array(1e9), "dp.budget": np.array(1e60)}
    bounds = fixed.bounds_with_noise({"moments": Part((3,)), "n": ROWS}, noise.noise_share(1e-3, 3), 5)
    with pytest.raises(SpentError, match=r"^moments of this client has an entry") as caught:
        answer_to_change(run, 0, {**small, **{f"mask.bound.{name}": bound for name, bound in bounds.items()}})
    assert float(caught.value.memory["dp.spent"]) > 1e40


@pytest.mark.slow
@pytest.mark.parametrize("memory_dir", [False, True])
def test_over_flower_every_such_question_takes_a_new_set_up(memory_dir, tmp_path):
    """The node refuses, says why in its own log, forgets its secrets, and has counted the message."""
    with in_a_run() as lines:
        grid = grid_of(FIVE, max_messages=100, **({"memory_dir": tmp_path} if memory_dir else {}))
        victim, said, seen = grid.node(2), [], []

        def lower(message):
            if message.metadata.dst_node_id != victim or said:
                return
            arrays = arrays_in(message)
            if "mask.bound.Y" in arrays:
                with_arrays(message, {**arrays, "mask.bound.Y": np.array(1e-9)})

        def look(message, reply):
            metrics = metrics_of(reply)
            if message.metadata.dst_node_id == victim and "refusal" in metrics:
                said.append(metrics["refusal"])
                state, of = grid.nodes[victim].state, config_of(message)["run"]
                seen.append((FileStore(tmp_path, 2) if memory_dir else StateStore(state)).load(of).after)
                seen.append(state["flower_pca.answered"]["messages"])
            return reply

        grid.on_push, grid.tamper = lower, look
        found = strategies.SSI(n_components=2, mask=True).fit(grid)
    assert len(said) == 1
    assert said[0].startswith("This node cannot answer from its rows, and its own log says why.")
    wrong = "Y of this client has an entry that is not finite or exceeds 1e-09, the bound of the masks"
    assert sum(wrong in line for line in lines) == 1
    assert seen == [{}, 7]
    assert is_pca_of(found, [X for i, X in enumerate(FIVE) if i != 2], angle=1e-4)


# Noise, and masks without self-masks.


def test_noise_is_not_shared_where_a_late_upload_could_be_opened():
    single = MaskedSums(self_masks=False)
    run = Run(FIVE, "ssi", masks=single).until("upload", 1)
    assert SetupSecrets.from_memory(run.memories[0]).min_uploads_in_sum == 1
    assert SetupSecrets.from_memory(Run(FIVE, "ssi").until("upload", 1).memories[0]).min_uploads_in_sum == 3
    told = {**flat.noise(clip=3.0, std=9.0, budget=9.0), "dp.among": np.array(3)}
    with pytest.raises(ProtocolError, match=r"among 3 clients, but the server may see a sum of only 1 answer\."):
        answer_to_change(run, 0, told)


# Carries.


def test_words_without_a_bound_say_no_more_than_the_sum():
    """0.6 and 0.6 have their carry still to come, 1.2 and 0 have had it: before, four words told them apart."""
    bounds, draws = {"x": np.array(0.0)}, 2000

    def words(*values):
        parts = [fixed.encode({"x": np.full(draws, value)}, bounds, len(values)) for value in values]
        total = np.sum(parts, axis=0, dtype=np.uint64)
        got = fixed.decode(total, {"x": (draws,)}, bounds, len(values))["x"]
        assert np.all(got == 0.6 + 0.6)
        return total.view(np.int64).reshape(4, draws)

    for one, other in zip(words(0.6, 0.6), words(1.2, 0.0), strict=True):
        # With this many draws, the exact law of the statistic is not available.
        for a, b in ((one >> 48, other >> 48), (one, other)):
            assert ks_2samp(a, b, method="asymp").pvalue > 1e-9


@every("clients", [1, 2, 3, 5, 100, 4095, 4096, 4097, fixed.MOST_CLIENTS])
def test_no_word_leaves_its_room(clients):
    x = np.array([2.0**95, -(2.0**95), 2.0**95 - 2.0**42, -1e-20, 0.1] * 400)
    words = fixed.encode({"x": x}, {"x": np.array(0.0)}, clients).view(np.int64)
    assert int(np.abs(words).max()) * clients <= 2**61
    few = fixed.decode(words.view(np.uint64), {"x": x.shape}, {"x": np.array(0.0)}, clients)
    assert np.abs(few["x"] - x).max() <= 18 * np.sqrt(clients) * 2.0**-96
