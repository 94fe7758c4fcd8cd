"""Test masks without self-masks: one message per sum, drop-outs, and what a lying server can see."""

import numpy as np
import pytest
from builders import leading, two_lead
from cases import paired
from fake_grid import grid_of, is_pca_of
from masked import STEPS, Run, parts_without, restored_secrets

from flower_pca import MaskedSums, NotEnoughNodes, client_half, simulate, strategies
from flower_pca.base.errors import ProtocolError
from flower_pca.core.stage import Reply
from flower_pca.masking import fixed, messages, primitives
from flower_pca.masking.secrets import SetupSecrets

FIVE = two_lead(5)
SINGLE = MaskedSums(self_masks=False)


@pytest.mark.slow
def test_a_client_that_drops_out_before_its_upload_costs_one_message_of_its_key_alone():
    run = Run(FIVE, "ssi(min_rounds=4)", masks=SINGLE).until("upload", 2)
    run.step(gone={2})
    assert run.due("unmask", 2)
    run.step()
    assert {name for arrays in run.came[-1].values() for name in arrays} == {"mask.keys"}
    assert all(arrays["mask.keys"].shape == (1, 16) for arrays in run.came[-1].values())
    result = run.finish()
    assert len(result.history.of("mask.sum")) == 1
    assert len(result.history.of("mask.keys")) == 2  # The client returned, and came back by a new set-up.
    assert result.angle_to(leading(FIVE)) < 1e-4


@pytest.mark.slow
def test_a_client_that_drops_out_after_its_upload_is_in_the_sum():
    left = {2: 6, 4: 7}  # the message from which on each client is absent

    def present(number):
        return [i for i in range(5) if number < left.get(i, number + 1)]

    result = simulate("ssi(min_rounds=6)", FIVE, n_components=2, mask=SINGLE, fraction=present)
    assert not result.history.of("mask.sum")
    assert [r.answered for r in result.history][:9] == [5, 5, 5, 5, 5, 5, 4, 3, 3]
    assert len(result.history.of("mask.keys")) == 1
    assert result.angle_to(leading(parts_without(FIVE, 2, 4))) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name", "parts"), paired([0, 1, 2, 3], ["krylov", "ssi"], [FIVE, two_lead(9)]))
def test_two_that_drop_out_at_once(name, number, parts):
    run = Run(parts, f"{name}(min_rounds=3)", masks=SINGLE).until("upload", number)
    run.step(silent={0}, gone={3})
    run.step(gone={0, 3})
    assert all(len(arrays["mask.keys"]) == 2 for arrays in run.came[-1].values())
    while (message := run.message()) is not None:
        run.step(gone={0, 3} & set(message.to))
    result = run.session.result()
    assert result.angle_to(leading(parts_without(parts, 0, 3))) < 1e-3


@pytest.mark.slow
def test_drop_outs_in_a_ring():
    parts = two_lead(12)
    run = Run(parts, "ssi(min_rounds=3)", masks=MaskedSums(neighbors=6, self_masks=False)).until("upload", 2)
    run.step(gone={5})
    asked = run.message()
    dropped = [len(asked.arrays_for(i)["mask.dropped"]) for i in asked.to]
    assert sorted(dropped) == [0] * 5 + [1] * 6
    assert run.finish().angle_to(leading(parts)) < 1e-4


def lied_to(run, victim):
    """What a server gets that tells all others that a client has dropped out which has uploaded."""
    shares, setup = [], run.message().arrays["mask.setup"]
    for client in (i for i in range(5) if i != victim):
        survived = [i for i in range(5) if i not in (client, victim)]
        forged = {"mask.survived": np.array(survived), "mask.dropped": np.array([victim])}
        common = {"mask.step": np.array(3), "mask.setup": setup, "mask.number": np.array(1)}
        up, _ = client_half.answer("masked", {**common, **forged}, run.nodes[client], run.memories[client])
        shares.append((client, up["mask.keys"][0].tobytes()))
    return primitives.restore_secret(shares[:3])


def unmasked_upload(run, victim, seed):
    """Its upload, less the masks that it shares with the others."""
    group, number = run.session.group, 1
    asked = run.came[-1][victim]["mask.past"].tobytes()
    y, private = run.came[-1][victim]["mask.y"], primitives.private_key(seed)
    for peer in (i for i in range(5) if i != victim):
        context = messages.context_of_pair_mask(group.setup, asked, number, *sorted((victim, peer)))
        agreed = primitives.shared_secret(private, run.keys[peer])
        mask = primitives.mask_of_key(primitives.derive_key(agreed, context), len(y))
        y = y - mask if peer > victim else y + mask
    return y


@pytest.mark.parametrize("self_masks", [True, False])
def test_a_server_that_lies_about_drop_outs_opens_an_upload_unless_there_are_self_masks(self_masks):
    run, victim = Run(FIVE, "ssi", masks=MaskedSums(self_masks=self_masks)).until("upload", 1), 2
    run.keys = {i: published.key for i, published in run.session.group._now.items()}
    message = run.message()
    replies = [run.answer(message, i) for i in message.to]
    run.came.append({r.client: r.arrays for r in replies})
    y = unmasked_upload(run, victim, lied_to(run, victim))
    up, _ = run.session.position.stage.client(messages.stage_arrays(message.arrays), run.nodes[victim], {})
    truth = fixed.encode(up, messages.bounds_in_message(message.arrays), 5)
    apart = np.abs((y - truth).view(np.int64)).max()  # two draws of the noise that blurs its last digits
    assert (apart < 40) is not self_masks


def key_of(memory, number):
    """The seed of a client's mask key for a sum, which it may still be about to begin."""
    secrets = SetupSecrets.from_memory(memory)
    return secrets.mask_key_seed if secrets.number == number else secrets.coming.tobytes()[:16]


def test_a_key_that_is_found_again_is_that_of_one_sum(monkeypatch):
    found = restored_secrets(monkeypatch)
    run, earlier = Run(FIVE, "ssi(min_rounds=3)", masks=SINGLE), []
    for number in (0, 1):
        run.until("upload", number)
        earlier.append(key_of(run.memories[4], number))
        run.step()
    assert found == []  # No client has dropped out, so no key was recovered.
    run.until("upload", 2)
    own = key_of(run.memories[4], 2)
    run.step(silent={4})
    run.step(gone={4})
    assert found == [own]
    assert own not in earlier


def test_a_server_that_tells_one_client_of_self_masks_and_others_not_gets_no_upload():
    run = Run(FIVE, "ssi", masks=SINGLE)
    message = run.message()
    assert STEPS[int(message.arrays["mask.step"])] == "keys"
    odd = {**message.arrays_for(0), "mask.single": np.array(False)}
    replies = [run.answer(message, i) for i in range(1, 5)]
    up, run.memories[0] = client_half.answer("masked", odd, run.nodes[0], {})
    run.session.advance([Reply(0, message.number, up), *replies])
    shares = run.message()
    answers = {i: run.answer(shares, i).arrays["mask.shares"] for i in range(5)}
    assert answers[0].shape == (4, 80)
    assert answers[1].shape == (4, 64)
    held = [answers[i][0] for i in range(1, 5)]  # The first letter of every client is for client 0.
    asked = {
        **{"mask.step": np.array(2), "mask.setup": shares.arrays["mask.setup"], "mask.number": np.array(0)},
        **{"mask.stage": messages.bytes_as_array(b"summed_opening"), "mask.peers": np.array([1, 2, 3, 4])},
        "mask.keys": messages.texts_as_rows([a["mask.key"].tobytes() for a in (r.arrays for r in replies)], 32),
        "mask.shares": np.stack(held),
    }
    with pytest.raises(ProtocolError, match="A sealed share belongs to a different kind of set-up"):
        client_half.answer("masked", asked, run.nodes[0], run.memories[0])


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
def test_over_flower_it_is_the_same_to_the_bit():
    settings = {"n_components": 2, "max_rounds": 3, "reconstruction_error": True, "mask": "masks(self_masks=False)"}
    result = strategies.Krylov(**settings).fit(grid_of(FIVE, single_masks=True))
    simulated = simulate("krylov", FIVE, **settings)
    np.testing.assert_array_equal(result.components_, simulated.components_)
    assert result.mse_ == simulated.mse_
    assert len(result.history) == 2 + 2 + result.rounds + 1


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
def test_nodes_refuse_unless_their_own_rule_agrees():
    with pytest.raises(
        NotEnoughNodes, match=r"not take part in masked sums without self-masks, because its single_masks is not set"
    ):
        strategies.SSI(n_components=2, mask=SINGLE).fit(grid_of(FIVE))
    agreed = grid_of(FIVE, single_masks=True)
    assert is_pca_of(strategies.SSI(n_components=2, mask=True).fit(agreed), FIVE, angle=1e-4)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("masks", MaskedSums()),
        ("masks(0.7)", MaskedSums(threshold=0.7)),
        ("MaskedSums(neighbors=20, self_masks=False)", MaskedSums(neighbors=20, self_masks=False)),
        ("true", MaskedSums()),
        (True, MaskedSums()),
        (np.True_, MaskedSums()),
        ("False", None),
        (False, None),
        (None, None),
    ],
    ids=str,
)
def test_settings_as_they_may_be_given(given, made):
    assert MaskedSums.of(given) == made
