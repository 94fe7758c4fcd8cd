"""Test that one table in two federations has one budget, and what a site's departure reveals."""

import numpy as np
import pytest
from dishonest import Node, RefusedError, Sums, error_of, keys_of, signed
from test_versions import people

from flower_pca.data import sources
from flower_pca.dp.gaussian import noise_of
from flower_pca.layers import noise
from flower_pca.names.table import Table

pytestmark = pytest.mark.usefixtures("home")

D = 12
RNG = np.random.default_rng(0)
SHARDS = [RNG.standard_normal((200 + i, D)) + i for i in range(4)]
X, ALL, ONE = 0.3 * SHARDS[0], np.eye(D), np.eye(D)[:, :1]
BUDGET = noise_of(1.0, 1e-6) ** 2
ASKED = noise.noise_instruction(clip=1.0, std=1.0001 / np.sqrt(BUDGET), budget=BUDGET)
PARTS = {"n": (), "single": (), "rows": (), "sums": (D,), "squares": (D,)}

AGAIN = {  # ways in which a table gets into another federation
    "the same": lambda X: X,
    "in another order": lambda X: X[::-1],
    "with its columns in another order": lambda X: X[:, ::-1],
    "in single precision": lambda X: X.astype(np.float32),
    "with a row more": lambda X: np.vstack([X, X[:1] + 1.0]),
    "with a birthday in every tenth row": lambda X: X + (np.arange(len(X)) % 10 == 0)[:, None],
    "with names": lambda X: Table(X, tuple(f"c{i:02d}" for i in range(D))),
}


@pytest.mark.parametrize("how", AGAIN)
@pytest.mark.parametrize("memory", [True, False], ids=["in a folder", "at home"])
def test_a_budget_is_spent_once_whatever_partition_id_asks(how, memory, tmp_path):
    rules = {"profile": "private", **({"memory_dir": tmp_path} if memory else {})}
    Node(0, X, **rules).ask("ssi", {"Z": ONE}, layers={"dp": ASKED})
    for key in range(1, 6):
        with pytest.raises(RefusedError, match="max_epsilon"):
            Node(key, AGAIN[how](X), **rules).ask("ssi", {"Z": ONE}, layers={"dp": ASKED})
    other = Node(9, 0.3 * SHARDS[1], **rules).ask("ssi", {"Z": ONE}, layers={"dp": ASKED})
    assert other["Y"].shape == (D, 1)  # Other rows have a separate budget.


def test_two_names_for_the_same_rows_are_said_to_the_operator(tmp_path, caplog):
    rules = {"max_columns": 2, "memory_dir": tmp_path}
    Node(0, X, data_name="cohort", **rules).ask("ssi", {"Z": ONE})
    Node(0, X, data_name="study", **rules).ask("ssi", {"Z": ONE})
    assert "are for the same rows, but count separately" in caplog.text


def test_messages_and_columns_are_counted_in_all_ledgers_of_the_rows(tmp_path):
    for rule, words in (("max_columns", "max_columns"), ("max_messages_ever", "max_messages_ever")):
        rules = {rule: 2, "memory_dir": tmp_path / rule}
        for key in range(2):
            Node(key, X, **rules).ask("ssi", {"Z": ONE})
        with pytest.raises(RefusedError, match=words):
            Node(2, X, **rules).ask("ssi", {"Z": ONE})


def test_tables_of_few_codes_are_not_taken_for_the_same(tmp_path):
    """Rows of two columns of codes are alike everywhere: two sites in one folder keep their own ledgers."""
    rules = {"max_columns": 1, "memory_dir": tmp_path}
    for key in range(3):
        rows = (np.random.default_rng(key).random((100, D)) < 0.5) * np.r_[1.0, 1.0, np.zeros(D - 2)]
        assert Node(key, rows, **rules).ask("ssi", {"Z": ONE})["Y"].shape == (D, 1)


def sites_of(which, folder, shift, **more):
    """Nodes of these sites by other partition-ids."""
    _, made = keys_of("ours", 4)
    own = {"profile": "masked", "trusted_keys": made.ca.parent, "memory_dir": folder, **more}
    return [Node(shift + i, SHARDS[i], sign_key=made.nodes[i], **own) for i in which]


def test_two_federations_that_differ_by_a_site_do_not_reveal_the_site(tmp_path):
    def sums(nodes):
        return Sums(nodes).sum("summed_opening", {}, PARTS, dict.fromkeys(PARTS, 0.0))["sums"]

    sums(sites_of((0, 1, 2), tmp_path, 10))
    sums(sites_of((0, 1, 2), tmp_path, 30))  # The same nodes again reveal nothing new.
    with pytest.raises(RefusedError, match="max-groups and max-dropouts"):
        sums(sites_of((0, 1, 2, 3), tmp_path, 20))


def test_another_partition_id_does_not_answer_from_a_newer_copy(tmp_path):
    """Of two copies of one table, made before and after a person came, the difference would be that person."""
    rules = {"min_change": 20, "memory_dir": tmp_path}
    before = Node(0, X, **rules).ask("ssi", {"Z": ALL})["Y"]
    after = Node(7, np.vstack([X, X[:1] + 2.0]), **rules).ask("ssi", {"Z": ALL})["Y"]
    np.testing.assert_array_equal(before, after)


def summed_product(nodes):
    for node in nodes:
        node.start()
    return Sums(nodes).product(ALL)


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_a_site_that_leaves_is_not_told_by_the_sum_of_those_that_are_left(groups, tmp_path):
    """Whatever their max_groups, until people have been added at all of them: then it is a sum over other rows."""
    nodes = signed(
        tmp_path, [people(rows) for rows in SHARDS], profile="masked", id_column="patient", max_groups=groups
    )
    before = summed_product(nodes)
    words = "max-groups" if groups == 1 else "nobody has been added to its rows since"
    with pytest.raises(RefusedError, match=words):
        summed_product(nodes[:3])
    lots = [RNG.standard_normal((25, D)) + i for i in range(3)]
    for changed in range(3):
        nodes[changed].X = people(np.vstack([SHARDS[changed], lots[changed]]))
        if changed < 2:
            with pytest.raises(RefusedError, match=words):  # The third site has no new people.
                summed_product(nodes[:3])
    if groups == 1:
        with pytest.raises(RefusedError, match=words):
            summed_product(nodes[:3])
        return
    after = summed_product(nodes[:3])
    own = SHARDS[3].T @ SHARDS[3]
    assert error_of(before - after, own) > 0.05
    assert error_of(before - after, own - sum(lot.T @ lot for lot in lots)) < 1e-9
    with pytest.raises(RefusedError, match="nobody has been added to its rows since"):
        summed_product(nodes)  # It may not come back with the same rows, either.


def test_without_ids_a_site_that_leaves_ends_the_sums(tmp_path):
    nodes = signed(tmp_path, SHARDS, profile="masked", max_groups=9)
    summed_product(nodes)
    for node in nodes:
        node.X = np.vstack([node.X, RNG.standard_normal((40, D))])
    with pytest.raises(RefusedError, match="nobody has been added to its rows since"):
        summed_product(nodes[:3])


MANY = RNG.standard_normal((2000, D))
NOT_KNOWN_AGAIN = {  # The page lists these.
    "in another precision": lambda X: X.round(3),
    "in other units": lambda X: 10.0 * X,
    "with a column more": lambda X: np.c_[X, np.arange(len(X))],
    "with a column less": lambda X: X[:, :-1],
    "among many others": lambda X: np.vstack([X, MANY]),
}


@pytest.mark.parametrize("how", NOT_KNOWN_AGAIN)
def test_what_is_not_known_again_in_another_file_has_a_ledger_of_its_own_but_for_data_name(how, tmp_path):
    again = NOT_KNOWN_AGAIN[how](X)
    one = np.eye(again.shape[1])[:, :1]
    for name in (None, "cohort"):
        rules = {"max_columns": 1, "memory_dir": tmp_path / f"{name}", "data_name": name}
        Node(0, X, **rules).ask("ssi", {"Z": ONE})
        if name is None:
            assert Node(1, again, **rules).ask("ssi", {"Z": one})["Y"].shape == one.shape
            continue
        with pytest.raises(RefusedError, match="max_columns"):
            Node(1, again, **rules).ask("ssi", {"Z": one})


@pytest.mark.parametrize("how", ["the same rows", "the same file"])
def test_a_node_warns_of_a_ledger_in_another_folder_that_knows_its_rows(how, tmp_path, caplog):
    """Once a run; and not of a ledger about other rows."""
    import logging

    logging.getLogger("flwr").propagate = True
    path = tmp_path / "rows.npy"
    np.save(path, X)
    rows = X if how == "the same rows" else sources.make(str(path))
    Node(0, RNG.standard_normal((60, D)), max_columns=99, memory_dir=tmp_path / "others").ask("ssi", {"Z": ONE})
    Node(0, rows, max_columns=99, memory_dir=tmp_path / "first").ask("ssi", {"Z": ONE})
    assert "in another folder" not in caplog.text
    if how == "the same file":
        np.save(path, X + 1.0)
        rows = sources.make(str(path))
    second = Node(3, rows, max_columns=99, memory_dir=tmp_path / "second")
    for _ in "12":
        second.ask("ssi", {"Z": ONE})
    said = [record.getMessage() for record in caplog.records if "also covers the rows of this node" in record.message]
    assert len(said) == 1
    assert str(tmp_path / "first" / "flower_pca-ledger-0.npz") in said[0]
    assert "others" not in said[0]


def test_a_home_that_nobody_may_write_to_is_no_hindrance(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert Node(0, X, max_columns=99, memory_dir=tmp_path / "memory").ask("ssi", {"Z": ONE})["Y"].shape == (D, 1)


def test_a_ledger_that_is_gone_beside_released_rows_is_damage(tmp_path):
    """Else whoever deletes it has every budget and every group anew."""
    words = r"ledger-0\.npz of this node is missing, but the rows that the node has released still exist"
    file, rules = tmp_path / "flower_pca-ledger-0.npz", {"min_change": 20, "memory_dir": tmp_path}
    Node(0, X, **rules).ask("ssi", {"Z": ONE})
    file.unlink()
    for key in (0, 4):
        for rows, more in ((X, {"max_columns": 99}), (np.vstack([X, X[:1] + 1.0]), {"max_messages_ever": 9}), (X, {})):
            with pytest.raises(RefusedError, match=words):
                Node(key, rows, **rules, **more).ask("ssi", {"Z": ONE})
    assert not file.exists()


def test_a_key_of_marks_that_is_gone_beside_ledgers_is_damage(tmp_path):
    """Else the same rows have a second budget under another partition-id; and no other folder makes the key anew."""
    rules = {"profile": "private"}
    Node(0, X, memory_dir=tmp_path / "one", **rules).ask("ssi", {"Z": ONE}, layers={"dp": ASKED})
    (tmp_path / "one" / "flower_pca-marks.npz").unlink()
    Node(0, 0.3 * SHARDS[1], memory_dir=tmp_path / "other", **rules).ask("ssi", {"Z": ONE}, layers={"dp": ASKED})
    for key in (0, 4):
        with pytest.raises(RefusedError, match=r"marks\.npz of this node is missing"):
            Node(key, X, memory_dir=tmp_path / "one", **rules).ask("ssi", {"Z": ONE}, layers={"dp": ASKED})
