"""Test the rules of a node: declared once, checked once, and equal however they are given."""

from dataclasses import fields

import numpy as np
import pytest
from builders import unequal
from cases import every
from fake_grid import FakeGrid, grid_of, is_pca_of
from flwr.app import Context, RecordDict
from pages import text

from flower_pca import keys, strategies
from flower_pca.clients import PCAClient, Rules, client_app
from flower_pca.masking import identity

SHARDS = unequal()
NAMES = [f.name for f in fields(Rules)]


pytestmark = pytest.mark.usefixtures("lines")


@every("name", NAMES)
def test_every_rule_is_in_the_docs_under_both_of_its_names(name):
    page = text("docs/node-rules.md")
    assert f"`{name}`" in page
    assert f"`{name.replace('_', '-')}`" in page


def test_rules_as_an_object_as_keywords_and_of_a_node_config_are_the_same():
    given = {"min_rows": 5, "masked_only": True, "allow": ["ssi", "faps"]}
    config = {"min-rows": 5, "masked-only": True, "allow": " ssi,faps, ", "data": "/x.npy", "partition-id": 3}
    assert Rules(**given) == Rules.with_changes(None, given) == Rules.of_node_config(config)
    assert Rules.with_changes(Rules(min_rows=7, masked_only=True), {"min_rows": 5}) == Rules(
        min_rows=5, masked_only=True
    )
    assert Rules.of_node_config({}) == Rules()


@pytest.mark.slow
def test_a_node_reads_its_key_files_once(tmp_path, monkeypatch):
    made = keys.write_keys(tmp_path / "keys", nodes=3)
    rules = [Rules(sign_key=key, trusted_keys=tmp_path / "keys") for key in made.nodes]
    read = []
    load = identity.NodeIdentity.load
    monkeypatch.setattr(identity.NodeIdentity, "load", lambda *given: read.append(given) or load(*given))
    app = client_app(
        lambda context: SHARDS[context.node_config["partition-id"]],
        rules=lambda context: rules[context.node_config["partition-id"]],
    )
    result = strategies.Krylov(n_components=2, mask=True).fit(FakeGrid(app, 3))
    assert is_pca_of(result, SHARDS[:3])
    assert len(read) == 3
    PCAClient(SHARDS[0], rules=rules[0])  # another client with the same rules
    assert len(read) == 3


@pytest.mark.slow
def test_a_client_is_made_once_in_a_process_and_run(monkeypatch):
    made = []
    build = PCAClient.__init__
    monkeypatch.setattr(PCAClient, "__init__", lambda self, *a, **given: made.append(1) or build(self, *a, **given))
    result = strategies.FAPS(n_components=2, max_rounds=3).fit(grid_of(SHARDS))
    assert len(result.history) > 3
    assert len(made) == len(SHARDS)


def test_a_client_within_another_context_remembers_what_that_knows():
    """As Flower's contexts come and go: what a run remembers is theirs, and not the client's."""
    here, there = (Context(1, 7, {}, RecordDict(), {}) for _ in range(2))
    client = PCAClient(SHARDS[0], context=here)
    other = client.in_context(there)
    assert other is not client
    assert other._store is not client._store
    assert other._lots is client._lots


def test_rules_of_a_function_are_asked_for_by_node(lines):
    app = client_app(
        lambda context: SHARDS[context.node_config["partition-id"]],
        rules=lambda context: Rules(min_rows=10_000 if context.node_config["partition-id"] == 2 else 1),
    )
    result = strategies.Krylov(n_components=2).fit(FakeGrid(app, 5))
    assert is_pca_of(result, [X for i, X in enumerate(SHARDS) if i != 2])
    assert any("This node has fewer rows than its min_rows, 10000." in line for line in lines)


@pytest.mark.slow
def test_the_rules_of_rows_that_cannot_be_loaded_still_keep_quiet():
    def load(context):
        i = context.node_config["partition-id"]
        return np.full((3, 10), np.nan) if i == 2 else SHARDS[i]

    for masked_only, told in ((False, True), (True, False)):
        app = client_app(load, rules=lambda context, quiet=masked_only: Rules(masked_only=quiet))
        mask = masked_only
        grid = FakeGrid(app, 5)
        result = strategies.Krylov(n_components=2, mask=mask).fit(grid)
        said = " ".join(words for r in result.history for words in r.failures.values())
        assert told or "its own log says why" in said
        assert ("30 missing values" in said) == told


def test_a_node_answers_by_rules_of_numpy_numbers(tmp_path):
    rules = {"max_columns": np.int64(500), "min_rows": np.int64(5), "memory_dir": tmp_path}
    assert is_pca_of(strategies.Krylov(n_components=2).fit(grid_of(SHARDS, **rules)), SHARDS)
