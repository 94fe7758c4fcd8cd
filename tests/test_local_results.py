"""Test local results of clients: returned by a simulation, written by a node, never sent."""

import re
import subprocess
import sys
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
from builders import StopError, deal, gone_on, pooled, rows, sine
from fake_grid import FakeGrid, app_of, in_a_run
from numpy.typing import NDArray

from flower_pca import ConfigError, PCAResult, registry, simulate
from flower_pca.algorithms.ssi import SSI
from flower_pca.base.linalg import Array
from flower_pca.stages.ritz import RayleighRitz
from flower_pca.strategies import PCAStrategy

SHARDS = deal(rows(90, [6.0, 4.0, 1.0, 0.5, 0.2], seed=3) + 2.0, (40, 30, 20))


@dataclass(frozen=True, kw_only=True)
class Keeping(RayleighRitz):
    """Rayleigh-Ritz, after which a client keeps the basis, and has the scores of its rows for itself."""

    name: ClassVar[str] = "keeping"

    @staticmethod
    def client(arrays, data, memory):
        up, memory = RayleighRitz.client(arrays, data, memory)
        return up, {**memory, "Z": arrays["Z"]}

    @staticmethod
    def local_results(memory, data):
        return {"scores": data.scores(memory["Z"])}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KeptResult(PCAResult):
    """A result of a class of its own."""

    answer: int
    digits_: Array
    counts_: NDArray[np.int64]
    halves_: Annotated[np.ndarray, "a note"]
    none_: "NDArray[Any] | None" = None
    words: list[str] | None = None

    @classmethod
    def _fields(cls, model):
        arrays = {"digits_": np.array([4, 2]), "counts_": np.array([1]), "halves_": np.array([[0.5]])}
        return {**super()._fields(model), "answer": int(model.left["answer"]), "words": ["a"], **arrays}


@dataclass(frozen=True, kw_only=True)
class Keeper(SSI):
    """SSI that ends so, uncentered if nothing else is said."""

    name: ClassVar[str] = "keeper"
    centers: ClassVar[bool] = False
    oversample: int = 0  # Scores come from the components alone.

    def finish(self, state, model):
        from dataclasses import replace

        return replace(super().finish(state, model), product=None, left={"answer": np.array(42)})


@pytest.fixture(autouse=True)
def _listed(monkeypatch):
    for table in ("TABLE", "ALGORITHMS", "STAGES"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    registry.register(Keeper, closing=Keeping, result=KeptResult)


def spans_scores(own, shards, result):
    """Whether each client's own scores are its rows along the common components, up to their order and signs."""
    return all(
        sine(np.linalg.qr(own[i]["scores"])[0].T, np.linalg.qr((shards[i] - result.mean_) @ result.components_.T)[0].T)
        <= 1e-7
        for i in own
    )


def test_a_simulation_hands_own_results_over_but_not_those_of_private_clients():
    result = simulate("keeper", SHARDS, n_components=2)
    assert sorted(result.local) == [0, 1, 2]
    assert spans_scores(result.local, SHARDS, result)
    assert sorted(simulate("keeper", SHARDS, n_components=2, hide_local={0, 2}).local) == [1]
    assert simulate("ssi", SHARDS, n_components=2).local == {}


def test_the_default_of_center_is_the_algorithms():
    reference = pooled(SHARDS, center=False)
    plain = simulate("keeper", SHARDS, n_components=2)
    assert not plain.centered
    assert sine(plain.components_, reference.components[:2]) <= 1e-5
    assert simulate("keeper", SHARDS, n_components=2, center=True).centered
    assert simulate("ssi", SHARDS, n_components=2).centered


@pytest.mark.slow
def test_own_results_survive_an_evaluation_and_a_resumed_run(tmp_path):
    asked = {"n_components": 2, "reconstruction_error": True}
    whole = simulate("keeper", SHARDS, **asked)

    def stop(session):
        if session.history[-1].stage == "keeping":
            raise StopError

    resumed = gone_on(simulate, "keeper", SHARDS, path=tmp_path / "run.ckpt", stop=stop, **asked)
    for i in range(3):
        np.testing.assert_array_equal(whole.local[i]["scores"], resumed.local[i]["scores"])
    assert resumed.mse_ == whole.mse_


def test_the_class_of_a_result_is_saved_and_read_back(tmp_path):
    result = simulate("keeper", SHARDS, n_components=2)
    assert type(result) is KeptResult
    for reader in (PCAResult, KeptResult):
        back = reader.load(result.save(tmp_path / "r.npz"))
        assert type(back) is KeptResult
        assert (back.answer, back.local) == (42, {})
        np.testing.assert_array_equal(back.components_, result.components_)
        np.testing.assert_array_equal(back.digits_, [4, 2])
        np.testing.assert_array_equal(back.counts_, [1])
        np.testing.assert_array_equal(back.halves_, [[0.5]])
        assert (back.none_, back.words) == (None, ["a"])
    plain = simulate("ssi", SHARDS, n_components=2)
    assert type(PCAResult.load(plain.save(tmp_path / "p.npz"))) is PCAResult
    assert repr(result).startswith("KeptResult(2 components of 90 rows x 5 columns by keeper")


def test_a_result_whose_annotations_cannot_be_read_is_refused_by_name(tmp_path):
    @dataclass(frozen=True, kw_only=True, eq=False, repr=False)
    class Unreadable(PCAResult):
        more_: "Unheard | None" = None  # noqa: F821

    result = simulate("ssi", SHARDS, n_components=2)
    there = {field.name: getattr(result, field.name) for field in fields(result)}
    with pytest.raises(ConfigError, match=r"The fields of .*Unreadable cannot be saved, .*'Unheard' is not defined"):
        Unreadable(**there).save(tmp_path / "r.npz")


FRESH = """
import sys, numpy as np
from flower_pca.results.pca import PCAResult
result = PCAResult.load(sys.argv[1])
np.save(sys.argv[2], result.transform(np.load(sys.argv[3])))
print(type(result).__name__)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is:UserWarning")
@pytest.mark.parametrize("algorithm", ["krylov", "consensus_rpca", "exact_per_pca(local_components=1)"])
def test_a_process_that_has_only_just_begun_reads_the_class_too_and_transforms_by_it(algorithm, tmp_path):
    result = simulate(algorithm, SHARDS, n_components=2)
    X = SHARDS[0].copy()
    X[0, 0] += 100.0  # The two parts of a robust result differ in this entry.
    np.save(tmp_path / "X.npy", X)
    places = [str(place) for place in (result.save(tmp_path / "r.npz"), tmp_path / "s.npy", tmp_path / "X.npy")]
    run = subprocess.run([sys.executable, "-c", FRESH, *places], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == type(result).__name__
    np.testing.assert_allclose(np.load(tmp_path / "s.npy"), result.transform(X), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_a_class_that_nobody_has_imported_is_named_and_not_taken_for_a_plain_one(tmp_path):
    place = simulate("keeper", SHARDS, n_components=2).save(tmp_path / "r.npz")
    words = rf"^The result in .*r.npz is a KeptResult, a class that is not imported here. Import {__name__} first\.$"
    code = "import sys\nfrom flower_pca import PCAResult\nPCAResult.load(sys.argv[1])"
    run = subprocess.run([sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=False)
    assert re.search(words, run.stderr.splitlines()[-1].split("DataError: ")[1])


@pytest.mark.slow
def test_a_node_writes_its_own_result_to_its_folder_and_nothing_of_it_is_sent(tmp_path):
    with in_a_run():
        grid = FakeGrid(app_of(SHARDS, output_dir=tmp_path / "new", allow="keeper"), 3)
        result = PCAStrategy("keeper", n_components=2).fit(grid)
        assert result.local == {}
        files = sorted((tmp_path / "new").glob("*.npz"))
        assert [file.name for file in files] == [f"flower_pca-local-{i}.npz" for i in range(3)]
        own = {}
        for i, file in enumerate(files):
            with np.load(file) as arrays:
                assert sorted(arrays.files) == ["header.json", "scores"]
                assert b'"algorithm": "keeper"' in arrays["header.json"].tobytes()
                own[i] = {"scores": arrays["scores"]}
        assert spans_scores(own, SHARDS, result)
        reference = simulate("keeper", SHARDS, n_components=2)
        assert all(np.array_equal(own[i]["scores"], reference.local[i]["scores"]) for i in own)
        silent = FakeGrid(app_of(SHARDS, allow="keeper"), 3)
        assert np.array_equal(PCAStrategy("keeper", n_components=2).fit(silent).components_, result.components_)


def test_the_closing_of_one_algorithm_is_not_served_under_the_name_of_another():
    assert registry.algorithms_of_stage("keeping") == {"keeper"}
    assert "keeper" not in registry.algorithms_of_stage("ritz")
    assert registry.algorithms_of_stage("opening") == frozenset()


@pytest.mark.slow
def test_a_run_leaves_the_own_results_of_another_algorithm_alone(tmp_path):
    def run(spec, seed):
        with in_a_run():
            grid = FakeGrid(app_of(SHARDS, allow=list(registry.ALGORITHMS), output_dir=tmp_path), len(SHARDS))
            PCAStrategy(spec, n_components=1, seed=seed).fit(grid)

    def kept(name):
        with np.load(tmp_path / name) as file:
            return {key: file[key] for key in file.files}

    run("exact_per_pca(local_components=1)", seed=0)
    first = kept("flower_pca-local-1.npz")
    assert sorted(path.name for path in tmp_path.glob("*.npz")) == [f"flower_pca-local-{i}.npz" for i in range(3)]
    run("consensus_rpca(max_rounds=3)", seed=0)
    again = kept("flower_pca-local-1.npz")
    assert first.keys() == again.keys()
    assert all(np.array_equal(a, again[name]) for name, a in first.items())
    assert {"L", "S", "V"} <= kept("flower_pca-local-1-consensus_rpca.npz").keys()
    run("exact_per_pca(local_components=1, max_rounds=2)", seed=1)  # Its local result is replaced.
    assert len(list(tmp_path.glob("*.npz"))) == 6
    (tmp_path / "flower_pca-local-1.npz").write_bytes(b"of something else")
    run("exact_per_pca(local_components=1, max_rounds=2)", seed=1)
    assert (tmp_path / "flower_pca-local-1.npz").read_bytes() == b"of something else"
    assert (tmp_path / "flower_pca-local-1-exact_per_pca.npz").exists()
