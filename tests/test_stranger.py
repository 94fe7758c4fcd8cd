"""An algorithm of a stranger, from a module of its own: no name of its arrays means something to anybody else."""

import importlib.util
import sys

import numpy as np
import pytest
from builders import unequal
from fake_grid import grid_of

from flower_pca import registry, simulate
from flower_pca.strategies import PCAStrategy

pytestmark = pytest.mark.usefixtures("lines")

SHARDS = unequal()
K = 2
MODULE = '''
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flower_pca.algorithms.ssi import SSI, SSIState
from flower_pca.core.kinds import BLOCK, Ask, index, number
from flower_pca.core.kinds import COUNT, ROWS, Kind, Part


@dataclass(frozen=True)
class State(SSIState):
    hits: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Stranger(SSI):
    """Subspace iteration by another name, which counts beside its products."""

    name: ClassVar[str] = "stranger"
    asks: ClassVar[Mapping[str, Ask]] = {"start": BLOCK, "share": number(0, 1), "d": index(9), "k": number(-1e3, 1e3)}

    def start(self, model):
        return State(**vars(super().start(model)))

    def broadcast(self, state):
        return {"start": state.block, "share": np.array(0.25), "d": np.array(3), "k": np.array(-1e-200)}

    @staticmethod
    def parts(arrays, d):
        return {"Y": Part(arrays["start"].shape, Kind.PRODUCT, of="start"), "hits": COUNT, "n": ROWS}

    @staticmethod
    def client(arrays, data, memory):
        hits = int(arrays["d"]) * data.n + 1
        return {"Y": data.matmat(arrays["start"]), "hits": np.array(hits), "n": np.array(data.n)}, memory

    def server(self, state, total, answered):
        told = super().server(state, total, answered)
        return State(**{**vars(told), "hits": float(total["hits"])})

    def metrics(self, state):
        return {**super().metrics(state), **({"hits": state.hits} if state.hits else {})}
'''


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    path = tmp_path_factory.mktemp("stranger") / "stranger.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("stranger", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["stranger"] = module
    spec.loader.exec_module(module)
    registry.register(module.Stranger)
    yield module.Stranger
    for table in (registry.TABLE, registry.ALGORITHMS, registry.STAGES):
        del table["stranger"]
    del sys.modules["stranger"]


@pytest.mark.slow
@pytest.mark.parametrize("times", [1.0, 1e9])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("over", ["in process", "grid"])
def test_it_runs_plain_and_masked_and_its_counts_are_exact(stranger, over, mask, times):
    """However large the rows: a count is whole by its kind, whatever it is called."""
    shards = [times * X for X in SHARDS]
    algorithm = stranger(max_rounds=400, tol=1e-7)
    if over == "grid":
        result = PCAStrategy(algorithm, n_components=K, mask=mask).fit(grid_of(shards))
    else:
        result = simulate(algorithm, shards, n_components=K, mask=mask)
    expected = simulate("ssi(max_rounds=400, tol=1e-7)", shards, n_components=K)
    assert result.status.ok
    assert result.angle_to(expected.components_) < 1e-6
    assert not any(record.failures for record in result.history)
    hits = [record.metrics["hits"] for record in result.history if "hits" in record.metrics]
    assert hits
    assert set(hits) == {3.0 * sum(map(len, shards)) + len(shards)}


def test_arrays_that_it_does_not_name_are_refused_by_name(stranger):
    class Careless(stranger):
        def broadcast(self, state):
            return {**super().broadcast(state), "spare": np.array(1)}

    found = PCAStrategy(Careless(max_rounds=3), n_components=K, min_nodes=1)
    with pytest.raises(Exception, match="The arrays of a message must be those of stranger: start, share, d, k"):
        found.fit(grid_of(SHARDS))
