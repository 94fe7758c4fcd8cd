"""Test the rules that docs/data-protection.md begins with: masked runs pass, runs without masks do not."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from builders import falling, leading
from dishonest import Node, RefusedError
from fake_grid import FakeGrid, in_a_run
from pages import SHELLS, blocks

from flower_pca import cli, keys, registry
from flower_pca.base.errors import FlowerPCAError, NotEnoughNodes
from flower_pca.clients import Rules
from flower_pca.clients.base import node_rows
from flower_pca.clients.policy.rules import allowed_names
from flower_pca.commands.trust import node_config
from flower_pca.data import sources
from flower_pca.rows.frame import Frame

with warnings.catch_warnings():  # Warnings of Flower's own imports are not tested here.
    warnings.simplefilter("ignore", DeprecationWarning)
    from flower_pca import app, strategies

NAMES = tuple("abcdefghij")
SHARDS = np.split(falling(240, 10, seed=19) + 3.0, [120, 180])
ASKED = {"n_components": 3, "min_nodes": 3, "columns": NAMES}


@pytest.fixture
def protected_grid(tmp_path):
    """Three nodes with those rules in their node-configs, with files and keys of their own."""
    (command,) = [block for block in blocks("docs/data-protection.md", *SHELLS) if "trusted-keys" in block]
    rules = node_config([re.search(r'rules "(.*)"', re.sub(r"\\\n\s*", " ", command), re.DOTALL)[1]])
    made = keys.write_keys(tmp_path / "keys", nodes=3)
    grid = FakeGrid(app.client_app, 3)
    for i, (context, rows) in enumerate(zip(grid.nodes.values(), SHARDS, strict=True)):
        np.savetxt(tmp_path / f"{i}.csv", rows, delimiter=",", header=",".join(NAMES), comments="", fmt="%.17g")
        own = {
            "sign-key": str(made.nodes[i]),
            "trusted-keys": str(tmp_path / "keys"),
            "data": str(tmp_path / f"{i}.csv"),
        }
        context.node_config = {**rules, **own, "partition-id": i, "memory-dir": str(tmp_path / f"memory-{i}")}
    return grid


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["krylov", "auto(oversample='auto')"])
def test_a_masked_run_finds_what_one_table_would_give(protected_grid, algorithm):
    with in_a_run():
        result = strategies.PCAStrategy(algorithm, mask=True, **ASKED).fit(protected_grid)
    assert result.n_samples_ == 240
    assert result.angle_to(leading(SHARDS, 3)) < 1e-6


def test_a_run_without_masks_gets_no_answer(protected_grid):
    with in_a_run(), pytest.raises(NotEnoughNodes, match="masked-only is set"):
        strategies.PCAStrategy("krylov", **ASKED).fit(protected_grid)


@pytest.mark.slow
def test_a_second_run_counts_with_the_first(protected_grid):
    """So max-columns bounds what all runs send: this one has room for two."""
    with in_a_run():
        for _ in range(2):
            result = strategies.PCAStrategy("krylov", mask=True, **ASKED).fit(protected_grid)
    assert result.status.ok


def grid_of_files(folder, tables, **rules):
    """Nodes with these tables as files, as an operator starts them."""
    grid = FakeGrid(app.client_app, len(tables))
    for i, (context, table) in enumerate(zip(grid.nodes.values(), tables, strict=True)):
        table.to_csv(folder / f"{i}.csv", index=False)
        own = {"data": str(folder / f"{i}.csv"), "partition-id": i, "memory-dir": str(folder / f"memory-{i}")}
        context.node_config = {**own, **rules}
    return grid


def tables_of(sites=SHARDS, **more):
    return [pd.DataFrame(rows, columns=list(NAMES)).assign(**more) for rows in sites]


def tables_of_wards():
    tables = tables_of()
    for table in tables:
        table["ward"] = np.where(np.arange(len(table)) % 3, "surgery", "icu")
    return tables


def tables_with_gaps():
    tables = tables_of()
    for table in tables:
        table.loc[::4, "c"] = np.nan
    return tables


def tables_of_counts():
    rng = np.random.default_rng(2)
    return tables_of([rng.poisson(3.0, (n, 10)) for n in (120, 60, 60)])


def tables_of_alleles():
    rng = np.random.default_rng(2)
    tables = tables_of([rng.binomial(2, 0.3, (n, 10)) for n in (120, 60, 60)])
    for table in tables:
        table.loc[::10, "c"] = np.nan
    return tables


# Of the table "What a run may ask for beside": the rows, the option, the rule with which a node answers, and its words
# without this rule.
ASKED_BESIDE = {
    "missing": (tables_with_gaps, {"missing": "mean"}, {"missing": "mean"}, "own means only"),
    "monitor": (tables_of, {"monitor": True}, {"allow": "krylov,monitor"}, "monitor compare single rows"),
    "standard_errors": (
        tables_of,
        {"standard_errors": True},
        {"allow": "krylov,standard_errors"},
        "standard_errors compare single rows",
    ),
    "highly_variable": (
        tables_of_counts,
        {"highly_variable": "seurat(4)"},
        {"allow": "krylov,standardize,gene_sums"},
        "gene_sums compare single rows",
    ),
    "variants": (
        tables_of_alleles,
        {"variants": "variants(maf=0, call=0.5)", "missing": "mean"},
        {"missing": "mean"},
        "own means only",
    ),
    "variants(hwe=...)": (
        tables_of_alleles,
        {"variants": "variants(maf=0, call=0, hwe=1e-6)", "missing": "local_mean"},
        {"allow": "krylov,standardize,hardy_weinberg"},
        "hardy_weinberg compare single rows",
    ),
    "explain": (tables_of, {"explain": "j"}, {"covariates": "j"}, "its rule covariates does not name it"),
    "adjust": (tables_of, {"adjust": "j"}, {"covariates": "j"}, "its rule covariates does not name it"),
    "categorical": (tables_of_wards, {"categorical": "ward"}, {"categorical": "ward"}, "text in column ward"),
    "signal": (tables_of, {"n_components": "signal"}, {"allow": "krylov,signal"}, "signal compare single rows"),
}


@pytest.mark.slow
@pytest.mark.parametrize("option", ASKED_BESIDE)
def test_what_a_run_asks_for_beside_is_answered_by_the_rule_of_the_table_only(option, tmp_path):
    tables, settings, rules, words = ASKED_BESIDE[option]
    asked = {"n_components": 2, "min_nodes": 3, "node_timeout": 0.1, **settings}
    with in_a_run(), pytest.raises(FlowerPCAError, match=words):
        strategies.Krylov(**asked).fit(grid_of_files(tmp_path, tables()))
    with in_a_run():
        result = strategies.Krylov(**asked).fit(grid_of_files(tmp_path, tables(), **rules))
    assert result.n_samples_ == 240


def test_without_its_rule_about_missing_values_a_node_answers_of_variants_without_a_call_rate(tmp_path):
    asked = {"variants": "variants(maf=0, call=0)", "missing": "local_mean", "min_nodes": 3}
    with in_a_run():
        result = strategies.Krylov(n_components=2, **asked).fit(grid_of_files(tmp_path, tables_of_alleles()))
    assert result.n_samples_ == 240


PER_ROW = ("dcf_pca", "consensus_rpca", "triple_pca")  # algorithms for which a node remembers something about each row


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", registry.ALGORITHMS)
def test_neither_a_result_nor_the_folder_of_a_node_without_a_copy_has_anything_as_long_as_the_rows(algorithm, tmp_path):
    """But for what the page says: robust algorithms remember coordinates of each row."""
    sites = [falling(n, 10, seed=n) + 3.0 for n in (131, 73, 67)]
    for rows in sites:
        rows[::5, 2] = np.nan
    rules = {"allow": ",".join(allowed_names())}
    settings = {"n_components": 2, "missing": "local_mean"}
    if algorithm in ("dcf_pca", "consensus_rpca", "triple_pca"):
        settings["max_rounds"] = 3
    with in_a_run():
        result = strategies.PCAStrategy(algorithm, **settings).fit(grid_of_files(tmp_path, tables_of(sites), **rules))
    result.save(tmp_path / "result.npz")

    def as_long_as_rows(path):
        with np.load(path, allow_pickle=False) as stored:
            return [name for name in stored.files if {131, 73, 67, 271} & {*stored[name].shape}]

    assert not as_long_as_rows(tmp_path / "result.npz")
    kept = [path for path in (tmp_path / "memory-0").glob("*.npz") if as_long_as_rows(path)]
    assert all("-run-" in path.name for path in kept)
    assert bool(kept) == (algorithm in PER_ROW)


def test_a_corrected_value_waits_until_the_copy_is_erased_and_is_then_told_by_the_difference(tmp_path, capsys):
    """Under a change of one value of one person: what the page says of rectification, and of a person who withdraws."""
    rows = falling(60, 4, seed=1)
    corrected, node_config = rows.copy(), f"memory-dir='{tmp_path}' partition-id=0"
    corrected[7, 2] += 5.0

    def told(table, run):
        return Node(0, table, memory_dir=tmp_path, min_change=20).ask("ssi", {"Z": np.eye(4)}, run=run)["Y"]

    before = told(rows, "first")
    np.testing.assert_array_equal(told(corrected, "second"), before)
    assert cli.main(["forget", node_config, "--what", "rows", "--yes"]) == 0
    assert "can work out what has changed" in capsys.readouterr().out
    after = told(corrected, "third")
    assert np.linalg.norm(after - corrected.T @ corrected) < 1e-9
    assert np.linalg.norm((after - before)[[0, 1, 3], 2] - 5.0 * rows[7, [0, 1, 3]]) < 1e-9


def test_dates_are_text_unless_they_are_written_as_numbers_as_ages_and_zip_codes_are(tmp_path):
    table = pd.DataFrame(
        {
            "age": [40.0, 92.0] * 30,
            "zip": [10115, 80331] * 30,
            "born": ["1930-01-02", "1984-05-06"] * 30,
            "seen": [20240105, 20231107] * 30,
        }
    )
    table.to_csv(tmp_path / "rows.csv", index=False)
    table["born"] = pd.to_datetime(table["born"])
    table.to_parquet(tmp_path / "rows.parquet")
    for file in ("rows.csv", "rows.parquet"):
        rows = node_rows(sources.make(str(tmp_path / file)), Rules())
        assert rows.names == ("age", "seen", "zip")
        assert [*rows.table.words] == ["born"]
    node = Node(0, sources.make(str(tmp_path / "rows.csv")))
    names = ("age", "seen", "zip")
    told = node.ask("opening", {"peaks": True, "seed": 1, "width": 1}, Frame(names=names), algorithm="krylov")
    assert told["peak"].tolist() == [92.0, 20240105.0, 80331.0]
    with pytest.raises(RefusedError, match="text in column born"):
        node.ask("ssi", {"Z": np.eye(3)}, Frame(names=("age", "born", "seen")))
