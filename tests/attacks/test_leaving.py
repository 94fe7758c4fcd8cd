"""Test what is revealed if a site leaves masked sums, and that no other node can make it leave."""

import json

import numpy as np
import pytest
from dishonest import RefusedError, Sums, error_of, keys_of, signed

from flower_pca import cli

D = 4
RNG = np.random.default_rng(11)
SITES = [RNG.standard_normal((200 + i, D)) + i for i in range(4)]


def total_of(nodes):
    for node in nodes:
        node.start()
    return Sums(nodes).product(np.eye(D))


@pytest.fixture
def four(tmp_path):
    """Four nodes with the profile that were summed, what they told, and their node-configs."""
    _, made = keys_of("ours", 4)
    nodes = signed(tmp_path, SITES, profile="masked")
    memory = tmp_path / "memory"
    configs = [
        f"profile='masked' trusted-keys='{made.ca.parent}' sign-key='{made.nodes[i]}' memory-dir='{memory}' "
        f"partition-id={i}"
        for i in range(4)
    ]
    return nodes, total_of(nodes), configs


def leave(*words):
    return cli.main(["leave", *map(str, words)])


def test_new_rows_that_are_like_the_old_ones_do_not_hide_a_site_that_has_left(four, tmp_path):
    """Of sums over all rows, before and after: what is left of the others' change is small beside the site's matrix."""
    _, before, _ = four
    new = [RNG.standard_normal((len(rows), D)) + i for i, rows in enumerate(SITES[:3])]
    after = total_of(signed(tmp_path / "later", new, profile="masked"))
    left = SITES[3].T @ SITES[3]
    assert error_of(before - after, left) < 0.2
    assert error_of(before / 4, left) > 0.5  # A guess from the earlier sum is far off.


def test_a_site_that_leaves_is_told_by_the_sums_of_the_others_as_the_command_says(four, tmp_path, capsys):
    nodes, before, configs = four
    consent = tmp_path / "consent.txt"
    assert leave(configs[3], "--go", "--consent", consent) == 0
    said = capsys.readouterr().out
    assert "exactly the number of rows, the means and the covariance matrix of your rows" in said
    assert said.endswith("Nothing has been changed yet. Run the command again with --yes.\n")
    assert not consent.exists()
    assert leave(configs[3], "--go", "--consent", consent, "--yes") == 0
    assert leave(configs[0], "--consent", consent) == 0
    with pytest.raises(RefusedError, match="max-groups"):
        total_of(nodes[:3])  # Nothing has been changed yet.
    for config in configs[:3]:
        capsys.readouterr()
        assert leave(config, "--consent", consent, "--yes", "--json") == 0
        assert json.loads(capsys.readouterr().out)["done"]
    after = total_of(nodes[:3])
    assert error_of(before - after, SITES[3].T @ SITES[3]) < 1e-9
    with pytest.raises(RefusedError, match="has left for good"):
        total_of(nodes)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_one_site_that_has_not_agreed_is_enough_to_refuse_the_sum(missing, four, tmp_path):
    nodes, _, configs = four
    # Ledgers in one folder go together, so each of these nodes gets one of its own.
    nodes = [type(node)(node.key, node.X, **{**node.rules, "memory_dir": tmp_path / str(node.key)}) for node in nodes]
    total_of(nodes)
    consent = tmp_path / "consent.txt"
    leave(configs[3], "--go", "--consent", consent, "--yes")
    for i in {0, 1, 2} - {missing}:
        own = configs[i].replace(str(tmp_path / "memory"), str(tmp_path / str(i)))
        assert leave(own, "--consent", consent, "--yes") == 0
    with pytest.raises(RefusedError, match="max-groups"):
        total_of(nodes[:3])


def test_nobody_is_made_to_leave(four, tmp_path, capsys):
    """Without the signature of the site itself, the others cannot go on without it."""
    _, _, configs = four
    _, strangers = keys_of("strangers", 4)
    forged = tmp_path / "forged.txt"
    own = configs[3].replace(str(keys_of("ours", 4)[1].ca.parent), str(strangers.ca.parent))
    leave(own, "--go", "--consent", forged, "--yes")
    genuine = tmp_path / "genuine.txt"
    leave(configs[3], "--go", "--consent", genuine, "--yes")
    other = tmp_path / "of-another.txt"
    leave(configs[2], "--go", "--consent", other, "--yes")
    mixed = tmp_path / "mixed.txt"
    mixed.write_text(genuine.read_text()[:64] + other.read_text()[64:])
    for file in (forged, mixed):
        assert leave(configs[0], "--consent", file, "--yes") == 2
        assert "must be signed with one of the keys in trusted-keys" in capsys.readouterr().err
    forged.write_text("no signature")
    assert leave(configs[0], "--consent", forged, "--yes") == 2
    assert leave(configs[0], "--consent", tmp_path / "none.txt", "--yes") == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_signature_for_another_list_of_nodes_is_none_for_this_one(four, tmp_path, capsys):
    """A site takes part in two federations with one key, and leaves one of them."""
    _, _, configs = four
    _, made = keys_of("ours", 4)
    others = tmp_path / "others"
    others.mkdir()
    for key in (made.publics[3], *keys_of("strangers", 4)[1].publics[:3]):
        (others / f"{key.parent.parent.name}-{key.name}").write_bytes(key.read_bytes())
    consent = tmp_path / "consent.txt"
    elsewhere = configs[3].replace(f"trusted-keys='{made.ca.parent}'", f"trusted-keys='{others}'")
    assert leave(elsewhere, "--go", "--consent", consent, "--yes") == 0
    capsys.readouterr()
    assert leave(configs[0], "--consent", consent, "--yes") == 2
    assert "for the same list of keys as at this node" in capsys.readouterr().err


def test_a_site_that_was_in_no_sum_has_nothing_to_leave(four, tmp_path, capsys):
    _, _, configs = four
    consent = tmp_path / "consent.txt"
    leave(configs[3], "--go", "--consent", consent, "--yes")
    elsewhere = configs[0].replace(str(tmp_path / "memory"), str(tmp_path / "elsewhere"))
    assert leave(elsewhere, "--consent", consent, "--yes") == 2
    assert "records a sum with the node whose key is SHA256:" in capsys.readouterr().err
