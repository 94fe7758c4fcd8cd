"""Test rules on groups of nodes: differences of groups and invented peers must reveal nothing."""

import logging

import numpy as np
import pytest
from dishonest import Node, RefusedError, Sums, error_of, signed

from flower_pca import MaskedSums
from flower_pca.clients import Rules, client_app

D = 12
RNG = np.random.default_rng(3)
SHARDS = [RNG.standard_normal((80 + 5 * i, D)) * 0.8 ** np.arange(D) + 0.3 * RNG.standard_normal(D) for i in range(7)]
EVERYTHING = np.eye(D)


def second_moments_of(i):
    return SHARDS[i].T @ SHARDS[i]


@pytest.mark.slow
def test_one_left_out_tells_it_alone_unless_there_is_a_rule(tmp_path):
    """The attack, as it works by default, and by the rule that docs/attacks.md names against it."""
    nodes = signed(tmp_path / "default", SHARDS[:5])
    found = Sums(nodes).product(EVERYTHING) - Sums(nodes[1:]).product(EVERYTHING)
    assert error_of(found, second_moments_of(0)) < 1e-9
    nodes = signed(tmp_path / "one", SHARDS[:5], max_groups=1)
    for _ in range(3):
        assert Sums(nodes).product(EVERYTHING).shape == (D, D)
    with pytest.raises(RefusedError, match="sums with at most 1 group of peers, of whom at most 0 may be lost"):
        Sums(nodes[1:]).product(EVERYTHING)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [([0, 1], [1, 2], [0, 2]), ([0, 1, 2, 3, 4, 5, 6], [0, 1, 2], [3, 4, 5])])
def test_no_sums_of_other_groups_tell_a_single_node(groups, tmp_path):
    """Pairs, and a node that is in one group only while the others are in two."""
    nodes = signed(tmp_path, SHARDS, max_groups=1)
    Sums([nodes[i] for i in groups[0]]).product(EVERYTHING)
    for others in groups[1:]:
        with pytest.raises(RefusedError, match="max-groups and max-dropouts"):
            Sums([nodes[i] for i in others]).product(EVERYTHING)


@pytest.mark.slow
def test_groups_are_remembered_from_run_to_run_and_not_by_position(tmp_path):
    nodes = signed(tmp_path, SHARDS[:4], max_groups=1)
    Sums(nodes).product(EVERYTHING)
    for node in nodes:
        node.start()
    assert Sums(nodes[::-1]).product(EVERYTHING).shape == (D, D)
    with pytest.raises(RefusedError, match="max-groups"):
        Sums(nodes[:3])
    assert Sums(nodes).product(EVERYTHING).shape == (D, D)  # A refused request does not count as a group.


@pytest.mark.slow
def test_a_group_more_and_a_loss_are_what_the_operator_admits(tmp_path):
    nodes = signed(tmp_path, SHARDS[:6], max_groups=2, max_dropouts=1)
    Sums(nodes[:5]).product(EVERYTHING)
    Sums(nodes[:5]).product(EVERYTHING, lost=[4])  # one is lost
    Sums(nodes[:5]).product(EVERYTHING, lost=[4])  # again
    Sums(nodes[:4]).product(EVERYTHING)  # It stays refused.
    Sums(nodes).product(EVERYTHING)  # A site joins, which makes a second group.
    with pytest.raises(RefusedError, match="at most 2 groups of peers, of whom at most 1 may be lost"):
        Sums(nodes[:5]).product(EVERYTHING, lost=[3])
    with pytest.raises(RefusedError, match="at most 2 groups"):
        Sums(nodes[1:4]).product(EVERYTHING)


@pytest.mark.slow
def test_a_loss_counts_when_survivors_are_named(tmp_path):
    nodes = signed(tmp_path, SHARDS[:5], max_groups=1)
    sums = Sums(nodes)
    sums.product(EVERYTHING)
    with pytest.raises(RefusedError, match="max-groups and max-dropouts"):
        sums.product(EVERYTHING, lost=[2])


@pytest.mark.slow
def test_enough_peers_must_be_there_when_shares_are_made_and_when_survivors_are_named(tmp_path):
    words = "This masked sum has 3 other nodes, but this node's min_peers requires at least 4"
    nodes = signed(tmp_path, SHARDS[:5], min_peers=4)
    assert Sums(nodes).product(EVERYTHING).shape == (D, D)
    with pytest.raises(RefusedError, match=words):
        Sums(nodes[:4])
    with pytest.raises(RefusedError, match=words):
        Sums(nodes).product(EVERYTHING, lost=[1])


def test_an_invented_peer_opens_unsigned_masks_and_no_signed_ones(tmp_path):
    victim, invented = Node(0, SHARDS[0], masked_only=True), Node(1, 1e-9 * SHARDS[1])
    assert error_of(Sums([victim, invented]).product(EVERYTHING), second_moments_of(0)) < 1e-9
    victim = signed(tmp_path, SHARDS[:3])[0]
    with pytest.raises(RefusedError, match="has not signed its keys, but this node's trusted_keys require it"):
        Sums([victim, invented])


@pytest.mark.parametrize("made", [Rules, lambda **rules: client_app(lambda context: SHARDS[0], **rules)])
def test_masks_without_trusted_keys_are_warned_of_at_the_start(made, caplog, monkeypatch, tmp_path):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        made(masked_only=True)
        assert "masked_only without trusted_keys" in caplog.text
        assert "invented node is enough to unmask" in caplog.text
        caplog.clear()
        made(masked_only=True, trusted_keys=tmp_path)
        made(min_rows=5)
        assert not caplog.text


@pytest.mark.slow
def test_without_self_masks_a_sum_counts_when_it_is_uploaded(tmp_path):
    nodes = signed(tmp_path, SHARDS[:4], max_groups=1, single_masks=True)
    settings = {"masks": MaskedSums(self_masks=False), "single": True}
    Sums(nodes, **settings).product(EVERYTHING)
    with pytest.raises(RefusedError, match="max-groups"):
        Sums(nodes[:3], **settings).product(EVERYTHING)
