"""Test that a node's answer depends only on the message and earlier statistics, to the last bit."""

import os
import stat

import numpy as np
import pytest
from builders import mixed
from cases import paired
from dishonest import Node, RefusedError, Sums
from fake_grid import FakeGrid, in_a_run
from flwr.app import Context, RecordDict
from scipy import sparse
from twins import PLAIN, D, questions, twins

from flower_pca import client_half, make, registry, simulate
from flower_pca.clients import ConsensusRPCAClient, Rules, client_app
from flower_pca.core.stage import Stage
from flower_pca.rows import fixed, statistics
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.rows.measured import Measured
from flower_pca.strategies import PCAStrategy

SAFE = sorted(name for name in registry.ALGORITHMS if not registry.STAGES[name].by_row)


def test_twins_share_statistics_but_not_rows():
    X, Y = twins()
    assert not np.array_equal(np.sort(X, axis=0)[:-4], np.sort(Y, axis=0)[:-4])
    a, b = (statistics.measure_statistics(LocalData(rows).measured) for rows in (X, Y))
    for name, value in vars(a).items():
        np.testing.assert_array_equal(value, getattr(b, name), err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), paired([np.asarray, sparse.csr_array], SAFE))
def test_two_tables_with_the_same_statistics_give_the_same_run(name, kind):
    others = [X + 1.0 for X in mixed(0).shards[1:]]
    others = [X[:, :D] for X in others]
    results = []
    for rows in twins(kind=kind):
        settings = {"n_components": 2, "reconstruction_error": True, "answers": "fixed", "scale": "std", "center": True}
        limits = {"max_rounds": 12} if "max_rounds" in make(name).__dataclass_fields__ else {}
        results.append(simulate(make(name, **limits), [rows, *others], **settings))
    one, other = results
    for field in ("components_", "explained_variance_", "residuals_", "mean_", "scale_"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field), strict=True)
    assert (one.mse_, one.total_variance_, one.status) == (other.mse_, other.total_variance_, other.status)
    assert one.answers == "fixed"
    for i in one.local:
        for field in one.local[i]:
            np.testing.assert_array_equal(one.local[i][field], other.local[i][field])


def strangely_asked(rng):
    """Frames and blocks as no strategy sends them: of all sizes, short of rank, with columns far apart."""
    size = 10.0 ** rng.integers(-300, 300) if rng.random() < 0.5 else 10.0 ** rng.integers(-8, 30)
    mean = rng.standard_normal(D) * 10.0 ** rng.integers(-20, 60, D)
    scale = np.exp(rng.standard_normal(D)) * 10.0 ** rng.integers(-30, 30, D)
    Z = rng.standard_normal((D, 3)) * size
    if rng.random() < 0.5:
        Z = np.outer(Z[:, 0], rng.standard_normal(3))
    if rng.random() < 0.5:
        Z, _ = np.linalg.qr(rng.standard_normal((D, 3)))
    return Frame(mean if rng.random() < 0.8 else None, scale if rng.random() < 0.5 else None), Z


def told_or_refused(node, stage, arrays, frame, number):
    algorithm = next(iter(sorted(registry.algorithms_of_stage(stage))), "krylov")
    try:
        return node.ask(stage, arrays, frame, number=number, algorithm=algorithm)
    except RefusedError as refusal:
        return {"refused": np.array(str(refusal))}


def test_the_sample_has_a_message_for_every_stage():
    assert set(questions(np.random.default_rng(0), np.eye(D)[:, :3])) == set(PLAIN)


@pytest.mark.slow
@pytest.mark.parametrize("stage", PLAIN)
def test_whatever_is_asked_the_same_statistics_give_the_same_answer(stage):
    rng = np.random.default_rng(PLAIN.index(stage))
    X, Y = twins(seed=1)
    one, other = (Node(0, rows, share_local=True) for rows in (X, Y))
    answered = 0
    for number in range(60):
        frame, Z = strangely_asked(rng)
        if "opening" in stage and number % 2:  # Such a message is about raw rows, or is refused.
            frame = Frame()
        arrays = questions(rng, Z)[stage] | ({"wire.bits": np.array([64, 32, 16][number % 3])} if number % 4 else {})
        a, b = (told_or_refused(node, stage, arrays, frame, number) for node in (one, other))
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=f"{stage} {number} {name}")
        assert all(np.all(np.isfinite(v)) for v in a.values() if np.asarray(v).dtype.kind == "f")
        answered += "refused" not in a
    assert answered >= 5


class Sealed:
    """Rows that must not be read."""

    dtype, shape, size, ndim = np.dtype(np.float64), (64, D), 64 * D, 2

    def __getattr__(self, name):
        raise AssertionError(f"the rows were read: {name}")

    def __getitem__(self, place):
        raise AssertionError("the rows were read")

    def __array__(self, *args, **kwargs):
        raise AssertionError("the rows were read")


@pytest.mark.parametrize("n", [64, D - 2], ids=["C", "R"])
def test_answers_from_measured_statistics_read_no_rows(n):
    rng = np.random.default_rng(4)
    data = LocalData(rng.standard_normal((n, D)))
    FixedData.of_rows(data)
    fixed.fixed_parts(data)
    data.measured.rows = Sealed()
    for number in range(3):
        Z = np.linalg.qr(rng.standard_normal((D, 3)))[0]
        for stage, arrays in questions(rng, Z).items():
            frame = Frame(rng.standard_normal(D), np.exp(rng.standard_normal(D)))
            up, _ = client_half.answer(stage, arrays, data.in_frame(frame), {}, fixed=FixedData.of_rows)
            assert up, number


def test_the_stages_that_read_rows():
    listed = {name for name, stage in registry.STAGES.items() if stage.by_row}
    assert listed == {
        "consensus_rpca",
        "dcf_pca",
        "gene_sums",
        "hardy_weinberg",
        "standard_errors",
        "low_rank",
        "monitor",
        "private_opening",
        "robust_tracking",
        "signal",
        "st_miss",
        "triple",
        "triple_pca",
    }
    assert not Stage.by_row
    for name in ("rows", "dense", "blocks", "stored_array", "scores", "adjoint"):
        assert hasattr(LocalData, name)
        assert not hasattr(FixedData, name)


@pytest.mark.parametrize("name", ["consensus_rpca", "dcf_pca"])
def test_stages_that_read_rows_are_served_only_if_named(name):
    X, _ = twins()
    message = {"top": np.array(3)}
    with pytest.raises(RefusedError) as refusal:
        Node(0, X).ask(name, message)
    assert str(refusal.value) == (
        f"Answers for {name} compare single rows, so this node sends them only if its rule allow names {name}. "
        "Ask the node's operator."
    )
    assert "counts" in Node(0, X, allow=[name]).ask(name, message)
    with pytest.raises(RefusedError, match="compare single rows"):
        Node(0, X).ask("low_rank", {}, algorithm="krylov")
    assert Rules(allow=[name]).served_algorithms == {name}
    served = ConsensusRPCAClient(X, context=Context(1, 1, {"partition-id": 0}, RecordDict(), {}))
    assert served.get_properties({})["algorithms"] == "consensus_rpca"


def test_an_answer_that_is_not_finite_is_refused():
    with pytest.raises(RefusedError) as refusal:
        Node(0, twins()[0]).ask("ssi", {"Z": np.full((D, 1), 1e60)}, Frame(mean=np.full(D, 1e140)))
    wanted = "The answer of this node is not finite, so it is not sent. Run flower-pca check on the node's rows."
    assert str(refusal.value) == wanted


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is")
@pytest.mark.parametrize("name", SAFE)
def test_a_node_gives_the_bits_of_a_simulation_that_answers_alike(name):
    shards = [X[:, :D] for X in mixed(1).shards]
    algorithm = make(name, max_rounds=6) if "max_rounds" in make(name).__dataclass_fields__ else make(name)
    wanted = simulate(algorithm, shards, n_components=2, answers="fixed")
    with in_a_run():
        app = client_app(lambda context: shards[context.node_config["partition-id"]], share_local=True)
        result = PCAStrategy(algorithm, n_components=2).fit(FakeGrid(app, 3))
    assert result.components_.tobytes() == wanted.components_.tobytes()
    assert (result.answers, wanted.answers) == ("fixed", "fixed")
    assert simulate(algorithm, shards, n_components=2).answers == "rows"


def test_statistics_outlive_a_restart_and_are_the_owners_alone(tmp_path, monkeypatch):
    X, _ = twins()
    rng = np.random.default_rng(0)
    Z, frame = rng.standard_normal((D, 2)), Frame(rng.standard_normal(D))
    first = Node(3, X, memory_dir=tmp_path).ask("ssi", {"Z": Z}, frame)
    path = tmp_path / "flower_pca-fixed-3.npz"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    monkeypatch.setattr(statistics, "measure_statistics", None)
    again = Node(3, X, memory_dir=tmp_path).ask("ssi", {"Z": Z}, frame)
    np.testing.assert_array_equal(again["Y"], first["Y"], strict=True)
    monkeypatch.undo()
    # In a run of their own, as a run that began with the rows before would be refused.
    other = Node(3, X + np.eye(64, D), memory_dir=tmp_path).ask("ssi", {"Z": Z}, frame, run="another")
    assert not np.array_equal(other["Y"], first["Y"])
    path.write_bytes(b"damaged")
    mended = Node(3, X, memory_dir=tmp_path).ask("ssi", {"Z": Z}, frame)
    np.testing.assert_array_equal(mended["Y"], first["Y"])


def test_clients_with_the_same_rows_measure_them_once(monkeypatch):
    """As a `client_fn` makes them, one for each message."""
    X, _ = twins()
    rows, Z = LocalData(X), np.eye(D)[:, :2]
    first = Node(3, rows).ask("ssi", {"Z": Z})
    np.testing.assert_allclose(first["Y"], X.T @ X[:, :2], rtol=1e-9)
    monkeypatch.setattr(statistics, "measure_statistics", None)
    again = Node(3, rows).ask("ssi", {"Z": Z})
    np.testing.assert_array_equal(again["Y"], first["Y"], strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
def test_what_is_counted_of_a_node_is_read_off_the_statistics_too(masked, tmp_path, monkeypatch):
    """A restarted node with max_columns looks at no row beyond those of the fingerprint."""
    tables = [twins(seed=seed)[0] / 100.0 for seed in range(3)]

    def asked():
        nodes = [Node(i, X, memory_dir=tmp_path / str(i), max_columns=6) for i, X in enumerate(tables)]
        Z = np.eye(D)[:, :2]
        return Sums(nodes).product(Z) if masked else nodes[0].ask("ssi", {"Z": Z}, Frame(np.ones(D)))["Y"]

    before = asked()
    for name in ("moments", "dense", "matmat", "local_product"):
        monkeypatch.setattr(LocalData, name, Sealed.__array__)
    if not masked:  # A masked node looks once whether its columns have values, for the letters to its peers.
        for name in ("moments", "observed_moments", "blocks", "deviations"):
            monkeypatch.setattr(Measured, name, Sealed.__array__)
    assert asked().shape == before.shape
