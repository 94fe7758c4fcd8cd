"""Every sentence that a profile is printed with, as a claim against a scripted foe under exactly its rules."""

import logging
import re

import numpy as np
import pytest
from dishonest import Node, RefusedError, Sums, signed

from flower_pca import ConfigError
from flower_pca.audit.sentences import telling
from flower_pca.clients import Rules
from flower_pca.clients.policy.profiles import SETS
from flower_pca.dp.gaussian import epsilon_of, noise_of
from flower_pca.names.sites import SiteRows

pytestmark = pytest.mark.usefixtures("home")

D = 6
RNG = np.random.default_rng(0)
SHARDS = [RNG.standard_normal((100 + 10 * i, D)) + i for i in range(4)]
X, ALL, ONE = SHARDS[0], np.eye(D), np.eye(D)[:, :1]
OPENING = {"peaks": False, "seed": 1, "width": 2}
STD = 8.0
NOISED = {"Z": ONE, "dp.clip": 1.0, "dp.noise": STD, "dp.budget": noise_of(1.0, 1e-6) ** 2}


class Foe:
    """A server of nodes that run one profile."""

    def __init__(self, profile, folder):
        self.profile, self.folder, self.count = profile, folder, 0

    def page(self):
        keys = {"trusted_keys": "/k"} if self.profile == "masked" else {}
        return telling(Rules.of(None, {"profile": self.profile, **keys}))

    def nodes(self, shards=SHARDS):
        """New nodes with nothing in their books."""
        self.count += 1
        place = self.folder / str(self.count)
        if self.profile == "masked":
            return signed(place, shards, profile=self.profile)
        return [Node(i, rows, profile=self.profile, memory_dir=place) for i, rows in enumerate(shards)]

    def product(self, nodes, Z=ALL):
        """What these nodes tell of C Z, as much of it as the profile lets through."""
        for node in nodes:
            node.start()
        if self.profile == "masked":
            return Sums(nodes).product(Z)
        if self.profile == "private":
            return [node.ask("ssi", NOISED)["Y"] for node in nodes]
        return [node.ask("ssi", {"Z": Z})["Y"] for node in nodes]

    def refused(self, words, shards=SHARDS):
        with pytest.raises(RefusedError, match=words):
            self.product(self.nodes(shards))


def no_answer_of_its_own(foe):
    node = foe.nodes()[0]
    for stage, arrays in (("ssi", {"Z": ONE}), ("opening", OPENING), ("ssi", NOISED)):
        with pytest.raises(RefusedError, match=r"masked_only is set|allow_noise is not set"):
            node.ask(stage, arrays, algorithm={"opening": "krylov"}.get(stage))


def in_sums_with_two_others_of_its_list(foe):
    no_answer_of_its_own(foe)
    nodes = foe.nodes()
    with pytest.raises(RefusedError, match="min_peers"):
        Sums(nodes[:2])
    with pytest.raises(RefusedError, match="must be signed by their owners"):
        Sums([nodes[0], *[Node(i, np.zeros((30, D))) for i in (1, 2)]])


def always_the_same_ones(foe):
    nodes = foe.nodes()
    foe.product(nodes)
    with pytest.raises(RefusedError, match="max_groups and max_lost"):
        Sums(nodes[1:]).product(ALL)
    with pytest.raises(RefusedError, match="max_groups and max_lost"):
        Sums(nodes).product(ALL, lost=[3])


def rows_come_in_lots(foe):
    nodes = foe.nodes()
    spent = [foe.product(nodes)]
    if foe.profile == "private":  # whose answers have noise: the rows are those of the version all the same
        before = nodes[0].client._rows().n
        nodes[0].X = np.vstack([X, X[:1] + 9.0])
        nodes[0].start()
        assert nodes[0].client._rows().n == before
        return
    for count, changed in ((1, False), (19, False), (20, True)):
        nodes[0].X = np.vstack([X, RNG.standard_normal((count, D)) * 9.0])
        spent.append(foe.product(nodes))
        assert (np.abs(spent[-1] - spent[0]).max() > 1.0) == changed


def only_what_n_means_and_C_say(foe):
    """Another table of the same statistics: rows turned among themselves, beside the direction of their sum."""
    turn = np.linalg.qr(np.c_[np.ones(len(X)), RNG.standard_normal((len(X), len(X) - 1))])[0]
    spin = np.linalg.qr(RNG.standard_normal((len(X) - 1, len(X) - 1)))[0]
    twin = turn @ np.r_[turn[:, :1].T @ X, spin @ turn[:, 1:].T @ X]
    told = []
    for rows in (X, twin):
        node = foe.nodes([rows])[0]
        blocks = [RNG.standard_normal((D, 2)) for RNG in [np.random.default_rng(1)] for _ in range(5)]
        asked = [node.ask("ssi", {"Z": Z}) for Z in blocks]
        told.append(np.concatenate([answer["Y"] for answer in asked]))
        told[-1] = np.r_[
            told[-1].ravel(), *(np.ravel(a) for a in node.ask("opening", OPENING, algorithm="krylov").values())
        ]
    np.testing.assert_allclose(told[1], told[0], rtol=1e-9, atol=1e-9)


def no_noise(foe):
    node = foe.nodes()[0]
    with pytest.raises(RefusedError, match=r"allow_noise is not set|masked_only"):
        node.ask("ssi", NOISED)
    assert SETS[foe.profile]["allow_noise"] is False


def no_names(foe):
    named = [SiteRows(rows, tuple("abcdef")) for rows in SHARDS]
    node = foe.nodes(named)[0]
    assert "abcdef"[0] not in str(node.client.get_properties({}).get("columns", ""))
    assert node.client._site == ""
    assert node.client._rules.share_names is False


def answers_of_its_own(foe):
    assert foe.profile == "private" or np.allclose(foe.product(foe.nodes())[0], X.T @ X)
    if foe.profile == "private":
        assert np.linalg.norm(foe.product(foe.nodes())[0]) > 0.0


def all_noise_by_this_node_alone(foe):
    nodes = foe.nodes()
    assert nodes[0].client._account.demands is not None
    with pytest.raises(RefusedError, match="must be"):
        Sums(nodes).sum("ssi", NOISED, {"Y": (D, 1), "n": ()}, {"Y": 1.0, "n": 1.0}, beside={"dp.among": 4})


def nothing_by_missing_values(foe):
    rows = np.where(np.arange(X.size).reshape(X.shape) == 7, np.nan, X)
    if foe.profile == "private":
        foe.refused("The missing values of this node must be none", [rows])
        return
    node = foe.nodes([rows, *SHARDS[1:]])[0]
    with pytest.raises(RefusedError, match=r"own means|masked_only"):
        node.ask("opening", {**OPENING, "gaps": True}, algorithm="krylov")


def nothing_of_single_people_by_columns(foe):
    assert foe.nodes()[0].client._rules.split_columns is False


def nothing_of_fewer_rows(foe):
    foe.refused("must be at least 20", [rows[:19] for rows in SHARDS])


def nothing_of_rare_columns(foe):
    for few in (1, 19):
        rare = [np.c_[rows[:, 1:], np.arange(len(rows)) < few] for rows in SHARDS]
        foe.refused("The columns of this node must be ones", rare)


def epsilon_over_all_runs(foe):
    node, answers = foe.nodes()[0], 0

    def once_more():
        node.start()
        node.ask("ssi", NOISED, run=f"r{answers}")

    while epsilon_of(np.sqrt(answers + 1) / STD, 1e-6) <= 1.0:
        once_more()
        answers += 1
    assert answers > 1
    with pytest.raises(RefusedError, match="max_epsilon"):
        once_more()
    for stage, arrays in (("ssi", {"Z": ONE}), ("opening", OPENING)):
        with pytest.raises(RefusedError, match="asks for noise"):
            foe.nodes()[0].ask(stage, arrays, algorithm="krylov")


CLAIMS = {
    "A server can learn of this node's rows how many": (only_what_n_means_and_C_say, no_noise),
    "No answer of this node is seen but in a sum": (
        in_sums_with_two_others_of_its_list,
        always_the_same_ones,
        rows_come_in_lots,
    ),
    "Of any single row, all answers of all runs": (epsilon_over_all_runs, nothing_by_missing_values, rows_come_in_lots),
    "Sums over this node and others, 2 at least": (in_sums_with_two_others_of_its_list,),
    r"Its own answers\. In a run with masks": (answers_of_its_own,),
    "No noise: runs with dp": (no_noise,),
    "Under masks all of that noise": (all_noise_by_this_node_alone,),
    "Nothing at all where it has missing": (nothing_by_missing_values,),
    "What its columns are called": (),  # says what is told
    "How many columns it has, and a digest": (no_names,),
    "Nothing of single people": (nothing_of_single_people_by_columns,),
    "Nothing while it has fewer than 20": (nothing_of_fewer_rows,),
    "Of single rows what C and the means": (only_what_n_means_and_C_say,),
    "Nothing by its missing values": (nothing_by_missing_values,),
    "Sums over 1 group": (always_the_same_ones,),
    "Nothing of columns in which fewer than 20": (nothing_of_rare_columns,),
    "Of rows that come or go": (rows_come_in_lots,),
    "Of any single row epsilon 1.0": (epsilon_over_all_runs,),
}
PLAYED = {"masked": {only_what_n_means_and_C_say}}  # under masks: tests/privacy, by sums


def claims(profile):
    page = Foe(profile, None).page()
    for sentence in (*page.profile, *page.seen, *page.lasting):
        (found,) = [played for start, played in CLAIMS.items() if re.match(start, sentence)]
        yield from ((profile, play) for play in found if play not in PLAYED.get(profile, ()))


ALL_CLAIMS = [claim for profile in SETS for claim in dict.fromkeys(claims(profile))]


@pytest.mark.parametrize(("profile", "play"), ALL_CLAIMS, ids=lambda part: getattr(part, "__name__", part))
def test_a_sentence_of_a_profile_holds(profile, play, tmp_path):
    play(Foe(profile, tmp_path))


@pytest.mark.parametrize("profile", ["masked", "private"])
@pytest.mark.parametrize(("rule", "value"), [("min_rows", 19), ("min_change", None)])
def test_lots_of_a_profile_are_at_least_twenty(profile, rule, value):
    with pytest.raises(ConfigError, match=f"{rule} in the profile {profile} must be a whole number of at least 20"):
        Rules.of(None, {"profile": profile, "trusted_keys": "/k", rule: value})


def test_masks_without_trusted_keys_are_no_profile():
    with pytest.raises(ConfigError, match="used with trusted_keys"):
        Rules.of(None, {"profile": "masked"})
    with pytest.raises(ConfigError, match="profile must be one of"):
        Rules.of(None, {"profile": "secret"})


def test_a_node_says_at_start_what_it_runs_and_what_its_own_rules_give_up(caplog, monkeypatch, tmp_path):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with caplog.at_level(logging.INFO, logger="flwr"):
        Node(0, X, profile="private", memory_dir=tmp_path)
        assert "This node runs the profile private. Of any single row" in caplog.text
        assert "leaves open" not in caplog.text
        Node(0, X, profile="private", memory_dir=tmp_path, max_epsilon=3.0, min_rows=50)
        assert "max_epsilon=3.0 in place of 1.0 leaves open more of single rows" in caplog.text
        assert "min_rows" not in caplog.text


def test_rules_given_beside_take_the_place_of_the_profiles():
    rules = Rules.of(Rules(min_rows=50), {"profile": "private"})
    assert (rules.min_rows, rules.min_change, rules.max_epsilon, rules.profile) == (50, 50, 1.0, "private")
    assert Rules.of(rules, {"max_epsilon": 2.0}).profile == "private"
    assert Rules.of_node_config({"profile": "open", "allow": "krylov"}).allow == ["krylov"]
