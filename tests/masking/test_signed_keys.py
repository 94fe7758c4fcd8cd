"""Test signed keys: a server that swaps, replays, drops or invents keys learns nothing."""

import base64
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from builders import two_lead
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384
from fake_grid import FakeGrid, app_of, is_pca_of
from masked import Run

from flower_pca import ConfigError, MaskedSums, NotEnoughNodes, client_half, keys, simulate, strategies
from flower_pca.base.errors import ProtocolError
from flower_pca.clients import PCAClient
from flower_pca.core.stage import Reply
from flower_pca.masking import messages, primitives
from flower_pca.masking.identity import NodeIdentity, printable_fingerprint
from flower_pca.masking.messages import SumConditions
from flower_pca.masking.secrets import SetupSecrets

FOUR = two_lead(4)
SETUP = np.arange(16, dtype=np.uint8)


@pytest.fixture(scope="module")
def six_keys(tmp_path_factory):
    """Six nodes' keys, as `flower-pca keys` writes them; the last two are of no federation."""
    return keys.write_keys(tmp_path_factory.mktemp("made") / "keys", nodes=6)


@pytest.fixture(scope="module")
def handed_out(six_keys, tmp_path_factory):
    """The list that is handed out."""
    path = tmp_path_factory.mktemp("known") / "trusted"
    path.write_text("# our nodes\n\n" + "".join(public.read_text() for public in six_keys.publics[:4]))
    return path


@pytest.fixture
def signing_run(six_keys, handed_out):
    """Four clients that sign, and ask for signatures; the next message is that of the peers' keys."""
    run = Run(FOUR, identities=[NodeIdentity.load(six_keys.nodes[i], handed_out) for i in range(4)])
    run.step()
    return run


def answer_of(run, client, arrays):
    """A client's answer to these arrays; its memory stays, as after an error."""
    identity, memory = run.identities[client], dict(run.memories[client])
    return client_half.answer("masked", arrays, run.nodes[client], memory, demands=SumConditions(identity))[0]


def published_by(identity, setup=SETUP):
    """What a node answers to the first message of a set-up of this name."""
    asked = {"mask.step": np.array(0), "mask.setup": setup, "mask.single": np.array(False)}
    return answer_of(Run(FOUR, identities=[identity] * 4), 0, asked)


def put(asked, place, published):
    """The peers' keys, with those of one peer replaced by others."""
    changed = dict(asked)
    for name, part in (("exchanges", "exchange"), ("firsts", "key"), ("signatures", "signature")):
        changed[f"mask.{name}"] = asked[f"mask.{name}"].copy()
        changed[f"mask.{name}"][place] = published[f"mask.{part}"]
    return changed


def digest(public):
    """The name of a key, from its file."""
    return hashlib.sha256(base64.b64decode(public.read_bytes().split()[1])).digest()


def test_a_signature_is_what_plain_calls_say_it_is(six_keys):
    up = published_by(NodeIdentity.load(six_keys.nodes[2], None))
    signed = up["mask.signature"].tobytes()
    assert len(signed) == messages.SIGNATURE == 32 + 66 + 66
    assert signed[:32] == digest(six_keys.publics[2])
    r, s = int.from_bytes(signed[32:98], "big"), int.from_bytes(signed[98:], "big")
    text = b"flower_pca masks: set-up" + bytes(range(16)) + up["mask.exchange"].tobytes() + up["mask.key"].tobytes()
    public = serialization.load_ssh_public_key(six_keys.publics[2].read_bytes())
    public.verify(encode_dss_signature(r, s), text, ec.ECDSA(SHA384()))


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
@pytest.mark.parametrize("form", ["OpenSSH", "PEM", "PKCS8"])
@pytest.mark.parametrize("bits", ["256", "384", "521"])
def test_keys_of_ssh_keygen_load_and_sign(bits, form, tmp_path):
    path = tmp_path / "node"
    words = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", bits, "-N", "", "-C", "a comment", "-f", str(path)]
    subprocess.run([*words, *([] if form == "OpenSSH" else ["-m", form])], check=True)
    identity = NodeIdentity.load(path, f"{path}.pub")
    signed = identity.sign(b"text")
    NodeIdentity(None, identity.trusted).check({3: b"text"}, {3: signed})
    with pytest.raises(ProtocolError, match="A peer's keys differ from the keys that SHA256:"):
        NodeIdentity(None, identity.trusted).check({3: b"texts"}, {3: signed})
    said = subprocess.run(["ssh-keygen", "-lf", f"{path}.pub"], capture_output=True, text=True, check=True).stdout
    with pytest.raises(ProtocolError, match=re.escape(f"{said.split()[1]} signed the keys of two members")):
        identity.check({3: b"text"}, {3: signed})  # its own


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_key_with_a_passphrase_is_refused(tmp_path):
    path = tmp_path / "node"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "secret", "-f", str(path)], check=True)
    with pytest.raises(ConfigError, match=r"is not a usable private key. .* and without a passphrase"):
        PCAClient(FOUR[0], sign_key=path)


@pytest.mark.slow
def test_a_signed_run_in_process_is_the_unsigned_one(signing_run):
    plain = simulate("ssi", FOUR, n_components=2, mask=True)
    np.testing.assert_array_equal(signing_run.finish().components_, plain.components_)


def test_whoever_has_no_keys_gets_as_many_bytes_as_before():
    run = Run(FOUR)
    run.step()
    assert all(answer["mask.signature"].shape == (0,) for answer in run.came[0].values())
    assert not {"mask.signatures", "mask.firsts"} & set(run.message().arrays_for(0))


MEDDLING = {
    "an exchange key swapped": (
        lambda asked, others: put_one(asked, "exchanges", primitives.public_key(bytes(16))),
        r"A peer's keys differ from the keys that SHA256:\S+ has signed for this set-up\.",
    ),
    "the first mask key swapped": (
        lambda asked, others: put_one(asked, "firsts", primitives.public_key(bytes(16))),
        r"A peer's keys differ from the keys that SHA256:.* has signed for this set-up\.",
    ),
    "both, signed by a stranger": (
        lambda asked, others: put(asked, 1, others["stranger"]),
        r"A peer's keys are signed by SHA256:.*, which is not in this node's trusted_keys\.",
    ),
    "both, signed by it for another set-up": (
        lambda asked, others: put(asked, 1, others["replayed"]),
        r"A peer's keys differ from the keys that SHA256:.* has signed for this set-up\.",
    ),
    "a peer twice": (
        lambda asked, others: put(asked, 1, others["again"]),
        r"SHA256:.* signed the keys of two members of this set-up\.",
    ),
    "the node itself as its peer": (
        lambda asked, others: put(asked, 1, others["own"]),
        "signed the keys of two members",
    ),
    "a signature dropped": (
        lambda asked, others: put_one(asked, "signatures", bytes(messages.SIGNATURE)),
        r"The peer at position 2 has not signed its keys, but this node's trusted_keys require it\.",
    ),
    "all signatures dropped": (
        lambda asked, others: {k: a for k, a in asked.items() if k not in ("mask.signatures", "mask.firsts")},
        r"The peer at position 1 has not signed its keys, but this node's trusted_keys require it\.",
    ),
    "a signature of zeros": (
        lambda asked, others: put_one(asked, "signatures", others["replayed"]["mask.signature"].tobytes()[:32], 132),
        r"A peer's keys differ from the keys that SHA256:.* has signed for this set-up\.",
    ),
}


def put_one(asked, name, value, zeros=0):
    changed = asked[f"mask.{name}"].copy()
    changed[1] = messages.bytes_as_array(value + bytes(zeros))
    return {**asked, f"mask.{name}": changed}


@pytest.mark.parametrize("how", MEDDLING)
def test_a_server_that_meddles_with_the_keys_is_refused(how, signing_run, six_keys, handed_out):
    message = signing_run.message()
    asked, name = message.arrays_for(0), message.arrays["mask.setup"]
    identity = [NodeIdentity.load(path, None) for path in six_keys.nodes]
    others = {
        "stranger": published_by(identity[4], name),
        "replayed": published_by(identity[2], SETUP),
        "again": published_by(identity[1], name),  # a new set-up with the same name, signed
        "own": published_by(identity[0], name),
    }
    change, words = MEDDLING[how]
    with pytest.raises(ProtocolError, match=words) as caught:
        answer_of(signing_run, 0, change(asked, others))
    assert "This node has sent nothing." in str(caught.value)
    assert answer_of(signing_run, 0, asked)["mask.shares"].shape == (3, 80)  # The true keys still work.


def test_keys_signed_before_under_the_same_name_get_no_upload(signing_run):
    """A server that repeats a name has signatures that hold, of keys that nobody has any more: no letter comes."""
    message = signing_run.message()
    old, name = published_by(signing_run.identities[2], message.arrays["mask.setup"]), message.arrays["mask.setup"]
    asked = put(message.arrays_for(0), 1, old)
    signing_run.memories[0] = client_half.answer(
        "masked", asked, signing_run.nodes[0], signing_run.memories[0], demands=SumConditions(signing_run.identities[0])
    )[1]
    letters = [answer_of(signing_run, i, message.arrays_for(i))["mask.shares"][0] for i in (1, 2, 3)]
    firsts = [signing_run.came[0][i]["mask.key"] for i in (1, 2, 3)]
    firsts[1] = old["mask.key"]
    upload = {
        **{"mask.step": np.array(2), "mask.setup": name, "mask.number": np.array(0)},
        **{"mask.stage": messages.bytes_as_array(b"summed_opening"), "mask.peers": np.array([1, 2, 3])},
        **{"mask.keys": np.stack(firsts), "mask.shares": np.stack(letters)},
    }
    with pytest.raises(ProtocolError, match="as the server sent them here, have no valid signature from SHA256:"):
        answer_of(signing_run, 0, upload)
    signing_run.memories[0]["mask.vouched"] = np.array([1, 2, 3])  # as if they had signed that group as well
    with pytest.raises(ProtocolError, match="A share from another node cannot be decrypted"):
        answer_of(signing_run, 0, upload)


# The group.

APART = {"another threshold": {"mask.needed": np.array(4)}, "another member": {"mask.members": None}, "another run": {}}


@pytest.mark.parametrize("how", APART)
def test_nodes_that_are_told_of_different_groups_send_nothing(how, signing_run):
    """One node of four is told another thing of the group than the others, and each notices by what the others sign."""
    message = signing_run.message()
    for i in message.to:
        asked, node = message.arrays_for(i), signing_run.identities[i]
        if i == 2 and how == "another member":
            asked["mask.members"] = np.vstack(
                [*(signing_run.came[0][j]["mask.exchange"] for j in range(4)), np.ones(32, np.uint8)]
            )
        elif i == 2:
            asked |= APART[how]
        demands = SumConditions(node, run="b" if i == 2 and how == "another run" else "a")
        given = ("masked", asked, signing_run.nodes[i], signing_run.memories[i])
        up, signing_run.memories[i] = client_half.answer(*given, demands=demands)
        signing_run.came.append({i: up})
    answers = {i: came[i] for i, came in zip(range(4), signing_run.came[-4:], strict=True)}
    signing_run.session.advance([Reply(i, message.number, up) for i, up in answers.items()])
    upload = signing_run.message()
    name = digest_of(signing_run.identities[2])
    for i in (0, 1, 3):
        with pytest.raises(ProtocolError) as caught:
            answer_of(signing_run, i, upload.arrays_for(i))
        assert str(caught.value) == (
            "The run, members and threshold of this set-up, as the server sent them here, have no valid signature "
            f"from {name}. This node has sent nothing. Do not start another run until the operator of the server has "
            "explained this."
        )
    with pytest.raises(ProtocolError, match="have no valid signature from"):
        answer_of(signing_run, 2, upload.arrays_for(2))


def digest_of(identity):
    """The name of a node's key as it is shown."""
    return printable_fingerprint(identity.sign(b"")[:32])


@pytest.mark.parametrize("how", ["none", "zeros", "of another", "of another set-up"])
def test_a_signature_of_the_group_is_asked_for_of_every_peer(how, signing_run):
    other = Run(FOUR, identities=signing_run.identities).until("upload", 0)
    signing_run.until("upload", 0)
    asked = signing_run.message().arrays_for(0)
    if how == "none":
        del asked["mask.agreed"]
    else:
        asked["mask.agreed"] = asked["mask.agreed"].copy()
        replayed = other.message().arrays_for(0)["mask.agreed"][1]
        asked["mask.agreed"][1] = {"zeros": 0, "of another": asked["mask.agreed"][0], "of another set-up": replayed}[
            how
        ]
    with pytest.raises(ProtocolError, match=r"^The run, members and threshold of this set-up, .* from SHA256:"):
        answer_of(signing_run, 0, asked)


def test_a_peer_that_comes_in_later_must_have_signed_as_well(signing_run):
    """A server that says a peer was away in the first sum, so that nobody looks at what it has signed."""
    signing_run.until("upload", 0)
    asked = signing_run.message().arrays_for(0)
    first = {name: asked[name][:2] for name in ("mask.peers", "mask.keys", "mask.shares", "mask.agreed")}
    given = ("masked", {**asked, **first}, signing_run.nodes[0], signing_run.memories[0])
    _, memory = client_half.answer(*given, demands=SumConditions(signing_run.identities[0]))
    assert memory["mask.vouched"].tolist() == [1, 2]
    signing_run.until("upload", 1)
    later = signing_run.message().arrays_for(0)
    assert "mask.agreed" not in later
    signing_run.memories[0]["mask.vouched"] = np.array([1, 2])
    with pytest.raises(ProtocolError, match="as the server sent them here, have no valid signature from SHA256:"):
        answer_of(signing_run, 0, later)


@pytest.mark.slow
def test_in_a_ring_all_members_are_signed_and_peers_must_be_among_them(six_keys, handed_out):
    identities = [NodeIdentity.load(path, handed_out) for path in six_keys.nodes[:4]]
    run = Run(FOUR, identities=identities, masks=MaskedSums(neighbors=2))
    run.step()
    asked = run.message().arrays_for(0)
    assert asked["mask.members"].shape == (4, 32)
    assert asked["mask.exchanges"].shape == (2, 32)
    own = run.came[0][0]["mask.exchange"]
    for left_out in (own, asked["mask.exchanges"][1]):
        rest = asked["mask.members"][~(asked["mask.members"] == left_out).all(axis=1)]
        with pytest.raises(ProtocolError, match="The list of members of this set-up does not contain this client"):
            answer_of(run, 0, {**asked, "mask.members": rest})
    assert run.finish().status.ok


def test_a_node_that_does_not_ask_for_signatures_looks_at_none(six_keys):
    run = Run(FOUR, identities=[NodeIdentity.load(path, None) for path in six_keys.nodes[:4]]).until("upload", 0)
    asked = run.message().arrays_for(0)
    del asked["mask.agreed"]
    assert "mask.y" in answer_of(run, 0, asked)


def test_the_mask_key_of_the_first_sum_is_that_of_the_letter(signing_run):
    signing_run.until("upload", 0)
    asked = signing_run.message().arrays_for(0)
    asked["mask.keys"] = asked["mask.keys"].copy()
    asked["mask.keys"][1] = messages.bytes_as_array(primitives.public_key(bytes(16)))
    with pytest.raises(ProtocolError, match="A peer's key for this sum differs from the key that the peer sealed"):
        answer_of(signing_run, 0, asked)


def test_a_name_that_is_not_of_16_bytes_is_not_signed(six_keys):
    with pytest.raises(ProtocolError, match="The name of this set-up does not have 16 bytes"):
        published_by(NodeIdentity.load(six_keys.nodes[0], None), np.arange(48, dtype=np.uint8))


def test_letters_there_and_back_have_keys_of_their_own_whatever_positions_a_server_tells():
    """Told that both are the first, two clients would seal two texts by one key, and say what they have in common."""
    run = Run(FOUR[:2])
    run.step()
    message = run.message()
    for i in (0, 1):
        asked = {**message.arrays_for(i), "mask.position": np.array(0), "mask.peers": np.array([1])}
        run.memories[i] = client_half.answer("masked", asked, run.nodes[i], run.memories[i])[1]
    first, second = (SetupSecrets.from_memory(memory).common[0].tobytes() for memory in run.memories)
    assert first[:32] == second[32:] != first[32:] == second[:32]


def grid_with_rules(rules):
    """A grid whose nodes have rules of their own."""
    apps = [app_of(FOUR, **own) for own in rules]
    return FakeGrid(lambda message, context: apps[context.node_config["partition-id"]](message, context), len(rules))


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("mask", [True, "masks(self_masks=False)", "masks(neighbors=2)"])
@pytest.mark.parametrize("folder", [False, True], ids=["a file", "a folder"])
def test_nodes_that_sign_get_the_unsigned_result(mask, folder, six_keys, handed_out, tmp_path):
    if folder:
        for public in six_keys.publics[:4]:
            shutil.copy(public, tmp_path)
    rules = {"trusted_keys": tmp_path if folder else handed_out, "single_masks": True}
    grid = grid_with_rules([{"sign_key": six_keys.nodes[i], **rules} for i in range(4)])
    result = strategies.Krylov(n_components=2, mask=mask).fit(grid)
    assert is_pca_of(result, FOUR)
    plain = simulate("krylov", FOUR, n_components=2, mask=mask)
    np.testing.assert_array_equal(result.components_, plain.components_)
    assert not any(r.failures for r in result.history)


@pytest.mark.slow
def test_a_node_that_asks_for_signatures_leaves_a_group_in_which_one_is_missing(lines, six_keys, handed_out):
    rules = [{"sign_key": path} for path in six_keys.nodes[:4]]
    rules[1]["trusted_keys"] = handed_out
    rules[3] = {}
    result = strategies.SSI(n_components=2, mask=True).fit(grid_with_rules(rules))
    assert is_pca_of(result, [FOUR[0], FOUR[2], FOUR[3]], angle=1e-4)
    words = "has not signed its keys, but this node's trusted_keys require it. This node has sent nothing."
    assert sum(words in line for line in lines if "was left out" in line) == 1  # The node is not asked again.


@pytest.mark.usefixtures("lines")
def test_where_all_ask_for_signatures_one_that_does_not_sign_ends_the_run(six_keys, handed_out):
    rules = [{"sign_key": path, "trusted_keys": handed_out} for path in six_keys.nodes[:3]]
    with pytest.raises(
        NotEnoughNodes, match=r"The first missing client is \d+: The peer at position \d has not signed its keys"
    ):
        strategies.SSI(n_components=2, mask=True).fit(grid_with_rules([*rules, {}]))


def test_a_signature_of_another_length_is_left_out_and_named(signing_run, six_keys):
    signing_run = Run(FOUR, identities=[NodeIdentity.load(path, None) for path in six_keys.nodes[:4]])
    message = signing_run.message()
    replies = [signing_run.answer(message, i) for i in range(4)]
    replies[2].arrays["mask.signature"] = replies[2].arrays["mask.signature"][:-1]
    record = signing_run.session.advance(replies)
    assert "mask.signature in the answer of client 2 must be a real array of shape (164,)" in record.failures["2"]


@pytest.mark.slow
def test_a_key_that_is_not_read_is_not_imported(six_keys):
    code = (
        "import sys, numpy; from flower_pca.clients import PCAClient; PCAClient(numpy.eye(3)); "
        "print('flower_pca.masking.identity' in sys.modules); "
        "PCAClient(numpy.eye(3), sign_key=sys.argv[1]); print('flower_pca.masking.identity' in sys.modules)"
    )
    words = [sys.executable, "-W", "ignore", "-c", code, str(six_keys.nodes[0])]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_file_that_may_not_be_read_is_named(monkeypatch, six_keys):
    def denied(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", denied)  # The user of the tests may have all permissions.
    with pytest.raises(ConfigError, match=r"node-0 \(sign_key\) cannot be read \(Permission"):
        PCAClient(FOUR[0], sign_key=six_keys.nodes[0])
