"""Test that people are added to a copy of the rows only if the copy has ids from its beginning."""

import numpy as np
import pytest
from dishonest import Node, RefusedError, Sums, signed
from test_versions import people

from flower_pca import cli

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]

D = 12
RNG = np.random.default_rng(0)
SHARDS = [RNG.standard_normal((200 + i, D)) + i for i in range(4)]
LARGER = [np.vstack([rows, RNG.standard_normal((25, D)) + i]) for i, rows in enumerate(SHARDS)]
LATER = {"min_change": 20, "id_column": "patient"}


def second_moments_told(rows, folder, run, **rules):
    return Node(0, rows, memory_dir=folder, **rules).ask("ssi", {"Z": np.eye(D)}, run=run)["Y"]


def test_to_a_copy_that_was_made_without_ids_nobody_is_added(tmp_path):
    first = second_moments_told(people(SHARDS[0]).drop(columns="patient"), tmp_path, "first", min_change=20)
    for rows in (SHARDS[0], LARGER[0]):
        np.testing.assert_array_equal(second_moments_told(people(rows), tmp_path, f"{len(rows)}", **LATER), first)


def test_after_forget_the_copy_has_ids_and_people_are_added(tmp_path, capsys):
    first = second_moments_told(people(SHARDS[0]).drop(columns="patient"), tmp_path, "first", min_change=20)
    assert cli.main(["forget", f"memory-dir='{tmp_path}' partition-id=0", "--what", "rows", "--yes"]) == 0
    assert "flower_pca-rows-0.npz" in capsys.readouterr().out
    np.testing.assert_allclose(second_moments_told(people(SHARDS[0]), tmp_path, "again", **LATER), first)
    larger = second_moments_told(people(LARGER[0]), tmp_path, "larger", **LATER)
    np.testing.assert_allclose(larger, LARGER[0].T @ LARGER[0])


@pytest.mark.parametrize("late", [False, True], ids=["from the beginning", "late"])
def test_a_site_that_joins_is_let_in_by_people_who_are_added_if_there_were_ids(late, tmp_path):
    """As docs/add-a-node.md says it of the profile masked."""
    tables = [people(rows) for rows in SHARDS]
    given = [table.drop(columns="patient") if late else table for table in tables]
    rules = {"profile": "masked", "max_dropouts": 0}
    nodes = signed(tmp_path, given, **rules, **({} if late else {"id_column": "patient"}))

    def product(*which):
        for node in nodes:
            node.start()
        return Sums([nodes[i] for i in which]).product(np.eye(D))

    before = product(0, 1, 2)
    for node, table in zip(nodes, tables, strict=True):
        node.X, node.rules = table, node.rules | {"max_groups": 2, "id_column": "patient"}
    with pytest.raises(RefusedError, match="nobody has been added to its rows since"):
        product(0, 1, 2, 3)
    for node, rows in zip(nodes[:3], LARGER, strict=False):
        node.X = people(rows)
    if late:
        with pytest.raises(RefusedError, match="nobody has been added to its rows since"):
            product(0, 1, 2, 3)
        return
    added = product(0, 1, 2, 3) - before
    lots = sum(rows[len(old) :].T @ rows[len(old) :] for old, rows in zip(SHARDS[:3], LARGER, strict=False))
    np.testing.assert_allclose(added, SHARDS[3].T @ SHARDS[3] + lots, atol=1e-6)


def test_without_min_change_a_site_that_joins_is_told_by_the_difference(tmp_path):
    nodes = signed(tmp_path, SHARDS, max_groups=2, max_dropouts=0)
    before = Sums(nodes[:3]).product(np.eye(D))
    np.testing.assert_allclose(Sums(nodes).product(np.eye(D)) - before, SHARDS[3].T @ SHARDS[3], atol=1e-6)
