"""`flower-pca spent` prints what a node's ledgers have counted, next to the limits of its rules."""

import json

import numpy as np
import pytest
from dishonest import Node, Sums, signed

from flower_pca import cli
from flower_pca.dp.gaussian import delta_of, noise_of

pytestmark = pytest.mark.usefixtures("home")

X = np.random.default_rng(3).standard_normal((60, 6))
NOISED = {"Z": np.eye(6)[:, :1], "dp.clip": 1.0, "dp.noise": 8.0, "dp.budget": noise_of(1.0, 1e-6) ** 2}
PRIVATE = "max-epsilon=1.0 max-delta=1e-6"


def spent_printed(capsys, *words):
    assert cli.main(["spent", *words]) == 0
    return capsys.readouterr().out


def test_spent_prints_the_epsilon_of_all_answers_together(tmp_path, capsys):
    config = f"memory-dir='{tmp_path}' partition-id=0 {PRIVATE}"
    assert spent_printed(capsys, config) == f"There is no ledger in {tmp_path}, so nothing is spent.\n"
    for run in range(3):
        Node(0, X, memory_dir=tmp_path, max_epsilon=1.0, max_delta=1e-6).ask("ssi", NOISED, run=f"{run}")
    (counts,) = json.loads(spent_printed(capsys, config, "--json"))["ledgers"].values()
    # Three answers, each with noise of eight times the clip, are one with a mu of the root of 3 / 64.
    assert abs(delta_of(np.sqrt(3.0) / 8.0, counts["epsilon"]["spent"]) - 1e-6) < 1e-12
    line = f"  epsilon: {counts['epsilon']['spent']:.4g} of 1 at delta 1e-06\n"
    assert spent_printed(capsys, config) == f"flower_pca-ledger-0.npz\n{line}"


def test_spent_prints_every_limit_of_the_rules(tmp_path, capsys):
    limits = {"max_columns": 50, "max_messages_ever": 30, "max_groups": 2, "max_dropouts": 1}
    nodes = signed(tmp_path, [X, X[::-1] + 1.0, X - 1.0], **limits)
    sums = Sums(nodes)
    sums.product(np.eye(6)[:, :2])
    sums.product(np.eye(6)[:, :2], lost=[2])
    words = " ".join(f"{name.replace('_', '-')}={most}" for name, most in limits.items())
    out = spent_printed(capsys, f"memory-dir='{tmp_path / 'memory'}' trusted-keys='/k' {words}")
    assert out.startswith(
        "flower_pca-ledger-0.npz\n  columns: 4 of 50\n  messages: 6 of 30\n  groups: 1 of 2\n  lost members: 1 of 1\n"
    )


def test_a_folder_that_is_not_there_is_a_mistake(tmp_path, capsys):
    """A wrong memory-dir must not look like a node that has spent nothing."""
    assert cli.main(["spent", f"memory-dir='{tmp_path / 'wrong'}' {PRIVATE}"]) == 2
    assert f"There is no folder {tmp_path / 'wrong'}, so it is unknown how much is spent." in capsys.readouterr().err
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize("command", ["spent", "forget"])
def test_a_partition_that_is_no_number_is_a_mistake(tmp_path, capsys, command):
    assert cli.main([command, f"memory-dir='{tmp_path}' partition-id='first' {PRIVATE}"]) == 2
    assert "partition-id must be " in capsys.readouterr().err


def test_rules_that_limit_nothing_are_a_mistake(capsys):
    assert cli.main(["spent", "min-rows=20"]) == 2
    assert "These rules limit nothing over all runs, so nothing is spent." in capsys.readouterr().err
