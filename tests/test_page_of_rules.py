"""Test the page of a node's rules: it covers every rule, and follows the registry."""

import json
import re
from dataclasses import fields

import numpy as np
import pytest
from cases import every
from pages import text

from flower_pca import SSI, ConfigError, Stream, assembly, cli, registry
from flower_pca.audit.sentences import LASTING, SEEN, disclosures_of
from flower_pca.audit.served import kinds_in_run
from flower_pca.cli import main
from flower_pca.clients import Rules
from flower_pca.clients.policy import limits
from flower_pca.clients.policy.rules import allowed_names
from flower_pca.core.algorithm import Iterative
from flower_pca.core.drive import rounds
from flower_pca.core.kinds import KINDS, Kind
from flower_pca.masking import messages
from flower_pca.rows.local import LocalData
from flower_pca.simulation.backend import InProcessTransport, Shards

NEUTRAL = {
    "memory_dir",
    "data_name",
    "output_dir",
    "run_record",
    "record_days",
    "sign_key",
    "profile",
}  # the folders of a node, and the names by which others know it
EVERY = allowed_names()


def test_every_kind_and_every_rule_has_words():
    assert all(kind.tells for kind in KINDS)
    spoken = {rule for line in SEEN + LASTING for rule in line.rules}
    assert spoken | NEUTRAL == {f.name for f in fields(Rules)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "rules", [{}, {"masked_only": True}, {"max_epsilon": 1.0, "max_delta": 1e-6}, {"allow": EVERY}]
)
def test_every_algorithm_is_served_or_refused_as_the_node_does(rules):
    found = disclosures_of(Rules(**rules))
    assert sorted({*found.served, *found.refused} - {"any algorithm"}) == sorted(EVERY)
    assert {name for name in found.served if name in EVERY} <= Rules(**rules).served_algorithms
    for name in found.refused:
        stage = registry.STAGES[name]
        masked, noised = "masked_only" in rules, "max_epsilon" in rules
        refused = (masked and not stage().additive) or (noised and not stage.bounded)
        assert refused or name not in Rules(**rules).served_algorithms


def test_the_tables_of_the_page_name_every_rule():
    page = text("docs/node-rules.md")
    table = page[page.index("| rule | what it says |") : page.index("Keys of a node-config")]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [rule for row in rows for rule in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(f.name for f in fields(Rules))
    attacks = text("docs/attacks.md")
    ways = attacks[attacks.index("Prevented by a rule:") : attacks.index("## Audit")]
    closed = set(re.findall(r"^- `(\w+)`: ", ways, re.MULTILINE))
    assert closed <= set(named)
    assert len(closed) > 5


def test_what_answers_bring_out_follows_from_the_parts_of_a_stage():
    class Own(SSI):
        name = "own_ssi"

        @staticmethod
        def parts(arrays, d):
            parts = SSI.parts(arrays, d)
            return {name: part for name, part in parts.items() if name == "n"} if d == 1 else parts

    registry.register(Own)
    try:
        found = disclosures_of(Rules())
        assert found.served["own_ssi"] == found.served["ssi"] == "nothing more"
        assert Kind.PRODUCT.tells in found.served["any algorithm"]  # The closing stage of each algorithm is served.
        assert Kind.GRAM.tells in found.served["covariance"]
        assert Kind.EIGENVECTORS.tells in found.served["uda"]
        assert Kind.LIFTED.tells in found.served["dr_svd"]
    finally:
        for table in (registry.TABLE, registry.ALGORITHMS, registry.STAGES):
            del table["own_ssi"]


def test_own_components_are_told_by_who_agrees_only():
    words = Kind.COMPONENTS.tells
    init = "per_pca"
    assert words not in disclosures_of(Rules()).served[init]
    assert any("share_local" in line for line in disclosures_of(Rules(share_local=True)).seen)


CASES = [
    ({"min_rows": 50}, "there are so few rows, and whether there are any.", "min_rows prevents such"),
    (
        {"min_rows": 50, "min_change": 50},
        "fewer than 50 rows, it refuses every message. The server learns only this.",
        "whether there are any",
    ),
    ({"max_columns": 7}, "In all runs together, this node sends at most 7 columns of d numbers", "Rules: all"),
    ({"max_columns": 1}, "at most 1 column of d numbers", "1 columns"),
    ({"max_messages": 1, "max_messages_ever": 2}, "This node answers at most 1 message in a run.", "1 messages"),
    ({"max_epsilon": 2.0, "max_delta": 1e-6}, "than epsilon 2.0 at delta 1e-06 allows", "With enough messages"),
    ({"min_noise": 3.0}, "noise is at least 3.0 times the squared clip", "no noise, unless"),
    ({"min_noise": 3.0}, "max_epsilon would limit all runs together", "scale="),
    ({"max_clip": 4.0}, "Rows are clipped to a length of at most 4.0", "no noise, unless"),
    (
        {"masked_only": True},
        "A server that takes part in a sum in place of the other nodes can compute this node's answer.",
        "The server sees this node's own answers.",
    ),
    ({"masked_only": True}, "max_groups and max_dropouts limit these sums", "scale="),
    ({"masked_only": True, "trusted_keys": "/k"}, "have keys on this node's own list", "in place of the other"),
    ({"masked_only": True, "trusted_keys": "/k", "min_peers": 4}, "at least 4 other nodes", "A sum over two"),
    (
        {"masked_only": True, "trusted_keys": "/k", "max_groups": 2, "max_dropouts": 3},
        "in sums over at most 2 groups of nodes, with at most 3 members of a group missing.",
        "max_groups and max_dropouts limit these sums",
    ),
    (
        {"masked_only": True, "trusted_keys": "/k", "max_groups": 1, "max_dropouts": 0},
        "in sums over at most 1 group of nodes, with no member of a group missing.",
        "0 of its members",
    ),
    ({"masked_only": True}, "it sees whether they keep to the bounds that it sets for masked sums", "or not."),
    (
        {"masked_only": True, "trusted_keys": "/k", "max_epsilon": 1.0, "max_delta": 1e-6, "max_colluders": 2},
        "m is the number of nodes that the sum needs, minus 2.",
        "all of the noise itself",
    ),
    ({"max_epsilon": 1.0, "max_delta": 1e-6}, "Under masks it adds all of the noise itself", "its share"),
    ({"max_epsilon": 1.0, "max_delta": 1e-6}, "A row with a cell that is not a finite number", "Rules: all"),
    ({"min_noise": 3.0}, "If columns of a run have missing values, this node refuses", "A row with a cell"),
    ({"single_masks": True}, "a server that lies about who dropped out", "max_dropouts"),
    ({"answers": "rows"}, 'with answers="rows" it can make rounding compare', "measures statistics of its rows"),
    ({"missing": "mean", "min_rows": 9}, "If 9 or more rows have a missing value", "with its own means"),
    ({"allow": ["krylov", "st_miss"]}, "learn single rows from them, under masks too: st_miss.", "too: dcf_pca"),
    (
        {"max_messages": 12, "max_messages_ever": 99},
        "This node answers at most 99 messages in all runs together.",
        "Rules: all",
    ),
    (
        {"share_names": False},
        "The server sees how many columns this node has, and a digest of their names.",
        "the names of this",
    ),
    ({"noise_seed": 1}, "noise_seed is for simulations only", "Rules: all"),
]


@pytest.mark.slow
@every(("rules", "there", "gone"), CASES)
def test_a_rule_says_what_it_grants_and_without_it_what_is_open(rules, there, gone):
    page = disclosures_of(Rules(**rules)).text()
    assert there in page
    assert gone not in page
    for name in rules:
        assert f"{name}=" in page.splitlines()[0]
    assert max(map(len, page.splitlines())) < 400


def test_the_page_of_a_node_without_rules(capsys):
    assert cli.main(["rules"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(
        "Rules: all at their defaults\n\nWhat the server sees and does not see\n  - The server sees this"
    )
    assert "What these rules do not prevent" in page
    assert (
        "dcf_pca, consensus_rpca, triple_pca, st_miss, robust_tracking, monitor, standard_errors, signal, gene_sums, "
        "hardy_weinberg: Answers compare single rows, so the rule allow must name the algorithm." in page
    )
    assert "krylov, ssi, fed_oapm, sparse_pca: nothing more" in page
    (common,) = [line for line in page.splitlines() if line.startswith("  - any algorithm: ")]
    assert "C Z; " in common
    assert "which is one true entry" in common
    assert max(map(len, page.splitlines())) < 400


def test_the_command_reads_what_a_supernode_does(tmp_path, capsys):
    config = 'partition-id=0 data="/srv/my rows.npy" min-rows=50 allow="krylov, ssi" masked-only=true trusted-keys="/k"'
    assert cli.main(["rules", "--json", config]) == 0
    one = json.loads(capsys.readouterr().out)
    file = tmp_path / "node.toml"
    file.write_text('min-rows = 50\nallow = "krylov,ssi"\nmasked-only = true\ntrusted-keys = "/k"\n')
    assert cli.main(["rules", "--json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out) == one
    assert one["rules"]["min_rows"] == "50"
    assert set(one["served"]) == {"any algorithm", "krylov", "ssi"}


def test_a_rule_below_a_heading_of_a_file_is_refused_by_the_command_and_by_the_node(tmp_path, capsys):
    """Flower gives it to the node as node.min-rows, which the node would ignore, so it would have no such rule."""
    from flwr.common.config import parse_config_args

    file = tmp_path / "node.toml"
    file.write_text('data = "/srv/rows.npy"\n[node]\nmin-rows = 50\n')
    said = "The node-config has node.min-rows, which is not a rule. Did you mean min-rows?"
    assert cli.main(["rules", str(file)]) == 2
    assert said in capsys.readouterr().err
    with pytest.raises(ConfigError, match=re.escape(said)):
        Rules.of_node_config(parse_config_args([str(file)]))
    file.write_text("min-rows = 50\n[training]\nepochs = 3\n")  # keys of another app
    assert cli.main(["rules", "--json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["rules"] == {"min_rows": "50"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["min-rows"], "A rule is written as key=value, unlike 'min-rows'. For example: 'min-rows=50"),
        (
            ["masked-only=yes"],
            "The value of a rule must be true, false, a number, or text in quotation marks, but this one cannot be "
            "read: ",
        ),
        (["min_rows=5"], "which is not a rule. Did you mean min-rows?"),
        (["min-rows=0"], "min_rows must be a whole number of at least 1, not 0."),
        (["none.toml"], "No such file or directory: none.toml."),
    ],
)
def test_rules_that_are_none_are_refused_in_words(words, said, capsys):
    assert cli.main(["rules", *words]) == 2
    assert said in capsys.readouterr().err


def test_scaling_alone_brings_out_no_products():
    assert "C Z" not in disclosures_of(Rules(allow=["standardize"])).served["standardize"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is")
@every("name", EVERY)
@every("masked", [False, True])
def test_all_that_a_run_asks_of_a_node_is_among_what_it_can_be_asked(name, masked):
    """The kinds that are worked out from the stages alone, beside those of the messages of a small run."""
    if name in registry.EXTRA_STAGES or (masked and not limits.has_additive_answers(name)):
        return
    transport = Shards([LocalData(np.random.default_rng(i).standard_normal((40, 6)) + 3.0) for i in range(3)])
    if name in registry.TRACKERS:
        transport = InProcessTransport(
            [Stream(np.random.default_rng(i).standard_normal((40, 6)), batch=20) for i in range(3)]
        )
        run = assembly.tracking(registry.tracker(name), n_components=2, steps=1, mask=masked)
    elif name in registry.OPENING_ONLY:
        run = assembly.standardizing(mask=masked)
    else:
        spec = "per_pca(eta=0.1)" if name == "per_pca" and masked else name
        few = {"max_rounds": 3} if issubclass(registry.STAGES[name], Iterative) else {}
        run = assembly.run(assembly.config(spec, n_components=2, mask=masked, reconstruction_error=True, **few))
    asked = set()
    for message in rounds(run, transport):
        arrays = message.arrays_for(message.to[0])
        stage = messages.inner_stage(arrays) or message.stage
        if stage != messages.STAGE:
            parts = registry.STAGES[stage].parts(messages.stage_arrays(arrays), 6)
            asked |= {(part.kind, part.own) for part in parts.values() if 0 not in part.shape}
    assert asked
    assert asked <= kinds_in_run(name, masked=masked)


def test_the_page_of_the_profile_masked_can_be_read_before_there_are_keys(capsys):
    assert main(["rules", "--profile", "masked"]) == 0
    said = capsys.readouterr().out
    assert "The server sees answers of this node only in sums with at least 2 other nodes" in said
    assert "which you have not set yet" in said
