"""Test an algorithm from another module, whose array names have no meaning elsewhere.

Its components are not orthonormal, so that whoever takes components for that is wrong about it.
"""

import importlib.util
import sys
from dataclasses import replace

import checks
import numpy as np
import protocol_checks
import pytest
import test_pairs
from builders import pooled, unequal
from cases import every
from fake_grid import grid_of

from flower_pca import ConfigError, registry, simulate
from flower_pca.core.kinds import BLOCK
from flower_pca.stages.ritz import RayleighRitz
from flower_pca.strategies import PCAStrategy

pytestmark = pytest.mark.usefixtures("lines")

SHARDS = unequal()
K = 2
MODULE = '''
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from flower_pca.base import linalg
from flower_pca.core.algorithm import Iterative, Progress
from flower_pca.core.kinds import BLOCK, COUNT, ROWS, ArrayRule, Kind, Part, index_rule, number_rule


@dataclass(frozen=True)
class State:
    block: np.ndarray
    progress: Progress
    basis: np.ndarray | None = None
    hits: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Stranger(Iterative[State]):
    """Power steps, and a count beside each product. Each component leans to the first by a third of a right angle."""

    name: ClassVar[str] = "stranger"
    asks: ClassVar[Mapping[str, ArrayRule]] = {
        "start": BLOCK, "share": number_rule(0, 1), "d": index_rule(9), "k": number_rule(-1e3, 1e3)
    }
    orthonormal: ClassVar[bool] = False

    oversample: int = 1

    def start(self, model):
        return State(model.columns, Progress.begin(self.tol, model))

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
        values, Z, Y, residuals = linalg.rayleigh_ritz(linalg.orth(state.block), total["Y"])
        wanted = max(1, Z.shape[1] - self.oversample)
        error = residuals[:wanted].max() / max(values[0], np.finfo(float).tiny)
        block = linalg.orth(Y if Y.any() else Z)
        return State(block, state.progress.step(float(error)), Z, float(total["hits"]))

    def metrics(self, state):
        return {**super().metrics(state), **({"hits": state.hits} if state.hits else {})}

    def finish(self, state, model):
        lean = np.eye(model.k)
        lean[0, 1:], lean[1:, 1:] = 0.5, np.sqrt(0.75) * np.eye(model.k - 1)
        return replace(model, basis=state.basis[:, : model.k] @ lean, product=None)
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
@pytest.mark.parametrize(
    ("over", "mask", "times"),
    [("in process", False, 1.0), ("in process", True, 1e9), ("grid", False, 1e9), ("grid", True, 1.0)],
)
def test_the_algorithm_runs_plain_and_masked_with_exact_counts(stranger, over, mask, times):
    """However large the rows: a count is whole by its kind, whatever it is called."""
    shards = [times * X for X in SHARDS]
    algorithm = stranger(max_rounds=400, tol=1e-7)
    if over == "grid":
        result = PCAStrategy(algorithm, n_components=K, mask=mask).fit(grid_of(shards))
    else:
        result = simulate(algorithm, shards, n_components=K, mask=mask)
    reference = pooled(np.vstack(shards))
    assert result.status.ok
    assert result.angle_to(reference.components[:K]) < 1e-6
    np.testing.assert_allclose(result.explained_variance_, reference.variances[:K], rtol=1e-6)
    # up to signs: a component's largest entries may be two of one size, of which rounding tells one
    between = np.abs(result.components_ @ result.components_.T)
    np.testing.assert_allclose(between, [[1.0, 0.5], [0.5, 1.0]], atol=1e-6)
    assert not any(record.failures for record in result.history)
    hits = [record.metrics["hits"] for record in result.history if "hits" in record.metrics]
    assert hits
    assert set(hits) == {3.0 * sum(map(len, shards)) + len(shards)}


def test_a_product_of_another_basis_is_named(stranger):
    class Stale(stranger):
        def finish(self, state, model):
            return replace(model, basis=state.basis[:, : model.k])

    words = r"finish\(\) of stranger left a product of shape \(10, 3\), but a basis of shape \(10, 2\)"
    with pytest.raises(RuntimeError, match=words):
        simulate(Stale(), SHARDS, n_components=K)


def test_components_that_are_not_orthonormal_are_not_turned_at_the_end(stranger):
    assert registry.TABLE["stranger"].closing.name == "oblique"
    assert registry.entry_of(type("Unlisted", (stranger,), {"name": "unlisted"})).closing.name == "oblique"
    for entry in registry.TABLE.values():
        assert entry.algorithm.orthonormal or not issubclass(entry.closing, RayleighRitz)
    with pytest.raises(
        ConfigError,
        match=r"The closing stage ritz rotates components, which works only if they are orthonormal, but the "
        r"components of stranger are not orthonormal\. Leave the closing stage out\.",
    ):
        registry.register(stranger, closing=RayleighRitz)


@pytest.mark.slow
@every("n_components", [2, 0.8])
def test_a_basis_that_is_wider_than_what_is_wanted_is_cut(stranger, n_components):
    class Wide(stranger):
        def finish(self, state, model):
            lean = np.eye(state.basis.shape[1])
            lean[0, 1:], lean[1:, 1:] = 0.5, np.sqrt(0.75) * np.eye(len(lean) - 1)
            return replace(model, basis=state.basis @ lean, product=None)

    result = simulate(Wide(max_rounds=400), SHARDS, n_components=n_components, monitor=True, reconstruction_error=True)
    k = result.n_components_
    assert result.cross_.shape == (k, k)
    F = np.vstack(SHARDS) - result.mean_
    Q = np.linalg.qr(result.components_.T)[0]
    assert result.reconstruction_error(np.vstack(SHARDS)) == pytest.approx(np.sum((F - F @ Q @ Q.T) ** 2) / len(F))
    assert result.mse_ == pytest.approx(np.sum((F - F @ Q @ Q.T) ** 2) / len(F))


def test_names_of_arrays_have_no_dot(stranger):
    dotted = type("Dotted", (stranger,), {"name": "dotted", "asks": {"frame.mean": BLOCK}})
    with pytest.raises(ConfigError, match=r"The arrays of dotted have names with a dot: frame\.mean\. Rename them\."):
        registry.register(dotted)


def test_arrays_that_it_does_not_name_are_refused_by_name(stranger):
    class Careless(stranger):
        def broadcast(self, state):
            return {**super().broadcast(state), "spare": np.array(1)}

    found = PCAStrategy(Careless(max_rounds=3), n_components=K, min_nodes=1)
    with pytest.raises(
        Exception, match="A message for stranger has the array spare, but should have only start, share, d, k"
    ):
        found.fit(grid_of(SHARDS))


@pytest.mark.slow
@pytest.mark.parametrize("check", [*protocol_checks.FOR_ALL, *checks.FOR_OTHERS], ids=lambda check: check.__name__)
def test_the_algorithm_passes_every_shared_check(stranger, check, tmp_path):
    check("stranger", 0, tmp_path)


@pytest.mark.slow
@every("option", test_pairs.OPTIONS)
def test_the_algorithm_accepts_an_option_or_names_what_it_lacks(stranger, option, tmp_path):
    test_pairs.check("stranger", (option,), tmp_path)
