"""Test numbers with fewer bits: the same rounding over every transport, and lossless packing."""

import numpy as np
import pytest
from builders import gone_on, pooled, rotation, shards
from cases import every
from fake_grid import FakeGrid, arrays_in, config_of, grid_of
from hypothesis import given
from hypothesis import strategies as st
from results import assert_same_bits

from flower_pca import PCAResult, assembly, simulate
from flower_pca.algorithms.krylov import Krylov
from flower_pca.clients import client_app
from flower_pca.layers import precision
from flower_pca.rows.frame import Frame
from flower_pca.strategies import PCAStrategy

ROWS = [X @ rotation(60, 0) for X in shards([90, 50, 70], 0.8 ** np.arange(60), shift=0.1)]
FEW = pytest.mark.parametrize("bits", [32, 16])
WIRES = ("float64", "auto")
LEAST = {32: 2.0**-24, 16: 2.0**-11}


def columns_of_all_sizes(seed):
    """Columns of all sizes, whose entries are of all sizes too; some are 0, some lie next to a power of two."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((30, 6)) * 10.0 ** rng.uniform(-12, 3, (30, 6)) * 10.0 ** rng.integers(-120, 120, 6)
    a[rng.random((30, 6)) < 0.1] = 0.0
    a[:, seed % 6] *= seed % 2
    a[0] = 2.0 ** np.ceil(np.log2(np.abs(a).max(axis=0) + 1e-300)) * (1.0 - 1e-6 * (seed % 3))
    return np.asfortranarray(a) if seed % 2 else a


@pytest.mark.slow
@FEW
@given(seed=st.integers(0, 10_000))
def test_packing_loses_nothing_of_what_is_rounded(bits, seed):
    a = columns_of_all_sizes(seed)
    small = precision.round_to(a, bits)
    np.testing.assert_array_equal(precision.round_to(small, bits), small)
    packed = precision.pack({"a": small}, bits)
    assert packed["a"].dtype.itemsize * 8 == bits
    again = precision.unpack(packed)["a"]
    np.testing.assert_array_equal(again, small)
    assert (again.flags.c_contiguous, small.flags.c_contiguous) == (a.flags.c_contiguous,) * 2
    assert precision.nbytes({"a": small}, bits) == 180 * bits // 8 + 12
    large = np.abs(a) > 1e-8 * np.abs(a).max(axis=0)
    assert (np.abs(small - a)[large] <= LEAST[bits] * np.abs(a)[large]).all()


def test_what_is_not_rounded_travels_as_it_is():
    a = np.random.default_rng(0).standard_normal((20, 3))
    packed = precision.pack({"a": a, "n": np.array(3), "few": np.ones(3)}, 32)
    assert packed["a"] is a
    assert set(packed) == {"a", "n", "few"}
    assert precision.nbytes({"a": a}, 64) == a.nbytes


def test_a_mean_is_rounded_only_where_that_is_nothing():
    mean = np.random.default_rng(0).standard_normal(40)
    for size, kept in ((1.0, False), (1e9, True)):
        sent = precision._rounded_frame(Frame(size * mean), 32, most=1e-8 * 1000.0, n=1000)
        assert np.array_equal(sent.mean, size * mean) == kept


SPEC = "dp(epsilon=1.0, delta=1e-6, clip=10.0)"


NONE = "because without a tolerance fewer bits cannot be justified"
FEWER = ", and still fewer in messages with more room for rounding"
TAKEN = [
    ("krylov", {}, 64, f"wire uses float64, the fewest bits that allow tol=1e-08{FEWER}"),
    ("krylov", {"tol": 1e-6}, 32, f"wire uses float32, the fewest bits that allow tol=1e-06{FEWER}"),
    ("ssi", {"tol": 1e-3}, 16, "wire uses float16, the fewest bits that allow tol=0.001"),
    ("covariance", {}, 64, f"wire uses float64, {NONE}"),
    ("faps(tol=0.001)", {}, 64, f"wire uses float64, {NONE}"),
    ("ssi(max_rounds=3)", {"dp": SPEC}, 64, f"wire uses float64, {NONE}"),
]


@pytest.mark.slow
@every(("algorithm", "asked", "bits", "words"), TAKEN)
def test_auto_takes_the_fewest_bits_that_go_with_the_tolerance(algorithm, asked, bits, words):
    sent = []
    found = simulate(algorithm, ROWS, n_components=2, wire="auto", on_round=lambda run: sent.append(run), **asked)
    assert found.decisions == (words,)
    assert {layer.bits for layer in sent[0].layers if layer.name == "wire"} <= {bits}
    assert found.config["wire"] == "auto"


TOLS = pytest.mark.parametrize(("tol", "share"), [(1e-6, 0.56), (1e-3, 0.34)])


@TOLS
@pytest.mark.parametrize("algorithm", ["krylov", "ssi"])
def test_half_or_a_quarter_of_the_bytes_for_the_same_messages_and_angle(algorithm, tol, share):
    whole, few = (simulate(algorithm, ROWS, n_components=3, tol=tol, wire=w) for w in ("float64", "auto"))
    assert few.status.ok == whole.status.ok
    assert abs(len(few.history) - len(whole.history)) <= max(1, len(whole.history) // 20)
    assert few.history.bytes_up / len(few.history) < share * whole.history.bytes_up / len(whole.history) * 1.2
    truth = pooled(ROWS).components[:3]
    assert few.angle_to(truth) <= 1.2 * whole.angle_to(truth) + tol


@pytest.mark.parametrize(("algorithm", "tol", "share"), [("krylov", 1e-8, 0.85), ("ssi", 1e-6, 0.47)])
@pytest.mark.parametrize("mask", [False, True])
def test_messages_have_fewer_bits_where_their_rounding_does_not_show(algorithm, tol, share, mask):
    whole, few = (simulate(algorithm, ROWS, n_components=3, tol=tol, wire=w, mask=mask) for w in ("float64", "auto"))
    assert few.status.ok
    assert len(few.history) == len(whole.history)
    down = few.history.bytes_down / whole.history.bytes_down
    assert down < share + 0.2 * mask  # Set-ups of masks have no numbers to round.
    truth = pooled(ROWS).components[:3]
    assert few.angle_to(truth) <= whole.angle_to(truth) + tol


@every(("d", "k", "tol", "mask"), [(150, 3, 1e-6, False), (300, 4, 1e-8, False), (300, 3, 1e-8, True)])
def test_columns_behind_the_components_that_have_not_converged_do_not_turn_them(d, k, tol, mask):
    """The last products have few bits, and such columns consist of them where all other eigenvalues are alike."""
    n = 6 * d
    X = np.random.default_rng(d).standard_normal((n, d))
    X[:, :k] *= np.linspace(5.0, 3.0, k)
    data = np.split(X @ rotation(d, 0), [n // 4, n // 2])
    whole, few = (simulate("krylov", data, n_components=k, tol=tol, wire=wire, mask=mask) for wire in WIRES)
    assert few.history.bytes_down < whole.history.bytes_down
    assert few.status.ok
    C = np.cov(np.vstack(data), rowvar=False)
    off = few.components_ @ C - few.explained_variance_[:, None] * few.components_
    sizes = np.linalg.norm(off, axis=1) / np.linalg.norm(C, 2)
    assert sizes.max() <= 1.05 * tol
    assert (sizes <= 1.05 * few.residuals_ + 1e-14).all()


def test_products_of_columns_behind_the_components_are_those_of_the_rows(monkeypatch):
    found, finish = [], Krylov.finish
    monkeypatch.setattr(Krylov, "finish", lambda *given: found.append(finish(*given)) or found[-1])
    simulate("krylov", ROWS, n_components=3, wire="auto")
    basis, product = found[-1].basis, found[-1].product
    C = np.cov(np.vstack(ROWS), rowvar=False, bias=True) * sum(map(len, ROWS))
    assert found[-1].coarse > 0.0
    assert basis.shape[1] > 3
    np.testing.assert_allclose(np.diag(basis.T @ product), np.diag(basis.T @ C @ basis), rtol=1e-3)


@pytest.mark.parametrize("settings", [{"n_components": 0.9}, {"n_components": 3, "init": "rows"}])
def test_blocks_that_look_for_hidden_directions_keep_their_bits(settings):
    if "init" in settings:
        settings["init"] = simulate("krylov", [X[:, ::-1] for X in ROWS], n_components=3, center=False)
    whole, few = (simulate("krylov", ROWS, center=False, wire=w, **settings) for w in ("float64", "auto"))
    assert_same_bits(few, whole)


def test_bytes_of_krylov_halve_and_more():
    sizes = {}
    for tol, wire in ((1e-6, "float64"), (1e-6, "auto"), (1e-3, "float64"), (1e-3, "auto")):
        history = simulate("krylov", ROWS, n_components=3, tol=tol, wire=wire).history
        sizes[tol, wire] = history.bytes_up + history.bytes_down
    assert sizes[1e-6, "auto"] < 0.56 * sizes[1e-6, "float64"]
    assert sizes[1e-3, "auto"] < 0.29 * sizes[1e-3, "float64"]


@pytest.mark.parametrize("algorithm", ["auto", "krylov", "covariance", "ssi"])
@pytest.mark.parametrize("wire", ["float32", "float16"])
@pytest.mark.usefixtures("lines")
def test_a_grid_gives_the_bits_of_the_run_in_process(algorithm, wire):
    algorithm = algorithm if algorithm == "covariance" else f"{algorithm}(tol=0.001, max_rounds=6)"
    grid, carried = grid_of(ROWS), {}

    def weigh(message, reply):
        up, down = carried.setdefault(config_of(message)["number"], [0, 0])
        sizes = [sum(a.nbytes for a in arrays_in(content).values()) for content in (reply, message)]
        carried[config_of(message)["number"]] = [up + sizes[0], down + sizes[1]]
        return reply

    grid.tamper = weigh
    there = PCAStrategy(algorithm, n_components=3, wire=wire).fit(grid)
    here = simulate(algorithm, ROWS, n_components=3, wire=wire)
    assert_same_bits(there, here)
    assert list(carried.values()) == [[r.bytes_up, r.bytes_down] for r in here.history]
    # a network carries their names, and what else a message says, beside the arrays
    pairs = zip(there.history, carried.values(), strict=True)
    assert all(r.bytes_up > up and r.bytes_down > down for r, (up, down) in pairs)


@pytest.mark.parametrize("algorithm", ["krylov", "ssi"])
@pytest.mark.usefixtures("lines")
def test_a_grid_and_a_run_in_process_take_the_same_bits_for_each_message(algorithm):
    there = PCAStrategy(algorithm, n_components=3, wire="auto").fit(grid_of(ROWS))
    assert_same_bits(there, simulate(algorithm, ROWS, n_components=3, wire="auto"))


def test_a_resumed_run_takes_the_same_bits_for_each_message(tmp_path):
    asked = {"n_components": 3, "wire": "auto"}
    resumed = gone_on(simulate, "krylov", ROWS, path=tmp_path / "run", stop=[3], **asked)
    assert_same_bits(resumed, simulate("krylov", ROWS, **asked))


@pytest.mark.slow
@pytest.mark.usefixtures("lines")
def test_nodes_that_answer_from_fixed_statistics_and_count_their_columns_serve_it(tmp_path):
    app = client_app(
        lambda context: ROWS[context.node_config["partition-id"]], max_columns=59, memory_dir=tmp_path, allow=["ssi"]
    )
    found = PCAStrategy("ssi(tol=1e-3, max_rounds=5)", n_components=3, wire="auto").fit(FakeGrid(app, 3))
    assert not any(record.failures for record in found.history)
    assert found.answers == "fixed"


@pytest.mark.parametrize("scale", [1e-140, 1e60])
def test_the_smallest_and_the_largest_data_stay_in_range(scale):
    found = simulate("krylov", [scale * X for X in ROWS], n_components=3, tol=1e-3, wire="float16")
    assert found.angle_to(pooled(ROWS).components[:3]) < 1e-2


def test_rows_far_from_zero_lose_nothing_by_their_mean():
    far = [X + 1e7 * np.arange(60) for X in ROWS]
    found = simulate("krylov", far, n_components=3, tol=1e-6, wire="float32")
    assert found.angle_to(simulate("krylov", far, n_components=3, tol=1e-6)) < 1e-5


def test_single_precision_rows_are_sent_in_half_of_that():
    rows = [X.astype(np.float32) for X in ROWS]
    whole, few = (simulate("krylov", rows, n_components=3, tol=1e-3, wire=w).history for w in ("float64", "auto"))
    assert few.bytes_up < 0.65 * whole.bytes_up


@pytest.mark.slow
def test_under_masks_blocks_are_rounded_and_the_answer_is_right():
    whole, few = (simulate("krylov", ROWS, n_components=3, tol=1e-6, mask=True, wire=w) for w in ("float64", "auto"))
    assert few.angle_to(whole) < 1e-5
    assert few.history.bytes_down < whole.history.bytes_down


def test_the_question_is_saved_with_its_wire(tmp_path):
    found = simulate("ssi", ROWS, n_components=2, wire="float32")
    kept = PCAResult.load(found.save(tmp_path / "r.npz"))
    assert assembly.config(**kept.config).wire == "float32"
