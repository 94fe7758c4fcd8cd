"""The rules that docs/data-protection.md begins with let an ordinary masked run through, and no run without masks."""

import re
import warnings

import numpy as np
import pytest
from builders import falling, leading
from fake_grid import FakeGrid, in_a_run
from pages import SHELLS, blocks

from flower_pca import keys
from flower_pca.base.errors import NotEnoughNodes
from flower_pca.commands.trust import config

with warnings.catch_warnings():  # what Flower's own imports warn of is not ours to mend
    warnings.simplefilter("ignore", DeprecationWarning)
    from flower_pca import app, strategies

NAMES = tuple("abcdefghij")
SHARDS = np.split(falling(240, 10, seed=19) + 3.0, [120, 180])
ASKED = {"n_components": 3, "min_nodes": 3, "columns": NAMES}


@pytest.fixture
def protected_grid(tmp_path):
    """Three nodes with those rules in their node-configs, with files and keys of their own."""
    (command,) = [block for block in blocks("docs/data-protection.md", *SHELLS) if "trusted-keys" in block]
    rules = config([re.search(r'rules "(.*)"', re.sub(r"\\\n\s*", " ", command), re.DOTALL)[1]])
    made = keys.write(tmp_path / "keys", nodes=3)
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
    with in_a_run(), pytest.raises(NotEnoughNodes, match="masked_only is set"):
        strategies.PCAStrategy("krylov", **ASKED).fit(protected_grid)


@pytest.mark.slow
def test_a_second_run_counts_with_the_first(protected_grid):
    """So max-columns bounds what all runs send: this one has room for two."""
    with in_a_run():
        for _ in range(2):
            result = strategies.PCAStrategy("krylov", mask=True, **ASKED).fit(protected_grid)
    assert result.status.ok
