"""Test that no message makes a node loop, run out of memory or crash, and no file or answer does so to its reader."""

import json

import numpy as np
import pytest
from builders import peak_memory, unequal
from cases import every
from dishonest import Node, RefusedError, Sums, request, signed
from fake_grid import FakeGrid, app_of, arrays_in, config_of, in_a_run, is_pca_of, metrics_of, with_arrays

from flower_pca import (
    DataError,
    NotEnoughNodes,
    PCAResult,
    TrackingResult,
    client_half,
    simulate,
    strategies,
    track,
    wire,
)
from flower_pca.base import errors, files
from flower_pca.base.errors import ProtocolError
from flower_pca.core import kinds
from flower_pca.core.stage import Broadcast
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData

RNG = np.random.default_rng(0)
D = 8
X = RNG.standard_normal((60, D))
U = np.eye(D)[:, :2]
ROBUST = {"U": U, "lam": 0.0, "rho": 0.0, "sigma": 1.0}
CONSENSUS = {
    "U": U, "lam": 0.0, "rho": 0.0, "inner_steps": 1,
    "start": 1.0, "cut": 10.0, "share": 0.02, "top": 4, "seed": 1, "tag": 0, "origin": -1,
    "proof": False, "even": False,
}  # fmt: skip


@pytest.mark.slow
@every(("lam", "sigma"), [(0.0, 1e-320), (-1.0, 1e-320), (0.0, 1e-300), (1e-323, 5e-322), (0, 1e150)])
@every("stage", ["consensus_rpca", "low_rank"])
def test_no_threshold_makes_a_node_loop(stage, lam, sigma):
    """By the number of products: the path of thresholds has an end of its own, and numbers next to 0 are refused."""
    node = Node(0, X, allow="consensus_rpca")
    size = "sigma" if stage == "low_rank" else "start"
    asked = {**(ROBUST if stage == "low_rank" else CONSENSUS), "lam": lam, size: sigma}
    if sigma < kinds.SMALLEST or lam < 0.0:
        with pytest.raises(RefusedError, match="must be 0 or at least 1e-150"):
            node.ask(stage, asked, algorithm="consensus_rpca")
    else:
        assert node.ask(stage, asked, algorithm="consensus_rpca")["G"].shape == (2, 2)
    data = LocalData(X)  # It does not loop without the check, either.
    client_half.answer(stage, {name: np.asarray(a, dtype=float) for name, a in asked.items()}, data, {})


def longer(stage="ssi"):
    """The records of a message one of whose arrays says that it is far longer than its bytes."""
    content = wire.write_request(Broadcast(stage, 0, {"Z": U}, Frame(), (1,)), 1, algorithm=stage, run="r", extra={})
    record = content.array_records["arrays"]["Z"]
    head, _, rest = record.data.partition(b"(8, 2)")
    record.data = head + b"(8, 2" + b"0" * 12 + b")" + rest[12:]
    return content


def test_an_array_that_says_it_is_longer_than_its_bytes_is_refused():
    with pytest.raises(ProtocolError, match="An array in this message could not be read"):
        wire.open_request(longer(), "train")


HEADERS = [None, 0, -1, "x", [], {}, [1, 2], True, 1e300, [["a"]], {"outcome": 3}]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["result", "tracking result"])
def test_a_malformed_header_of_a_result_is_a_data_error(kind, tmp_path):
    if kind == "result":
        load, path = PCAResult.load, simulate("krylov", [X, X + 1.0], n_components=2).save(tmp_path / "r.npz")
    else:
        load = TrackingResult.load
        path = track("st_miss", [X, X + 1.0], n_components=2, batch=20).save(tmp_path / "r.npz")
    header, arrays = files.read(path, kind)
    refused = 0
    for name in header:
        for value in HEADERS:
            changed = {**header, name: value}
            files.write(path, changed.pop("kind") if name != "kind" else "other", changed, arrays)
            try:
                load(path)
            except DataError:
                refused += 1
        gone = {n: v for n, v in header.items() if n not in (name, "kind")}
        files.write(path, kind, gone, arrays)
        try:
            load(path)
        except DataError:
            refused += 1
    assert refused > len(header)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "times", "words"),
    [
        ("product", 1e3, "its product is larger than its squared deviations allow"),
        ("Y", 1e100, "The array Y in the answer of client"),
        ("Y", 1e6, "The array Y in the answer of client"),
    ],
)
def test_a_product_beyond_cauchy_schwarz_is_refused_and_names_the_node(name, times, words):
    """As of a node that has gone wrong, or wants to ruin the run."""
    shards = unequal()

    def spoil(message, reply):
        arrays = arrays_in(reply)
        if message.metadata.dst_node_id == grid.node(2) and name in arrays:
            with_arrays(reply, {**arrays, name: arrays[name] * times})
        return reply

    with in_a_run():
        grid = FakeGrid(app_of(shards), len(shards))
        grid.tamper = spoil
        result = strategies.SSI(n_components=2).fit(grid)
    said = [r.failures[str(grid.node(2))] for r in result.history if str(grid.node(2)) in r.failures]
    assert len(said) == 1
    assert words in said[0]
    assert is_pca_of(result, [shard for i, shard in enumerate(shards) if i != 2], angle=1e-4)


@pytest.mark.parametrize("times", [1e-6, 1e6])
def test_peaks_beyond_the_moments_beside_them_are_refused(times):
    """They are divided by: one that is far too small or too large would ruin the scale of all."""
    shards = unequal()

    def spoil(message, reply):
        arrays = arrays_in(reply)
        if message.metadata.dst_node_id == grid.node(2) and "peak" in arrays:
            with_arrays(reply, {**arrays, "peak": arrays["peak"] * times})
        return reply

    with in_a_run():
        grid = FakeGrid(app_of(shards), len(shards))
        grid.tamper = spoil
        result = strategies.Krylov(n_components=2, scale="max_abs").fit(grid)
    (said,) = [r.failures[str(grid.node(2))] for r in result.history if str(grid.node(2)) in r.failures]
    assert "its peaks do not fit its means and squared deviations" in said


def test_texts_of_nodes_are_cut_and_steer_no_terminal():
    evil = "\x1b[2J\r\n" + "x" * 5000
    said = errors.safe_for_log(evil)
    assert len(said) < 600
    assert said.isprintable()
    assert said.startswith("\\x1b[2J\\r\\n")
    content = wire.write_reply("train", [], 0, wire.refusal(evil, 0, 1))
    assert wire.read_reply(content, "train").refusal == said


def test_names_of_a_node_are_cut_and_steer_no_terminal():
    """Those of the arrays of an answer, which the server has to repeat where they are wrong."""
    shards = unequal()

    def spoil(message, reply):
        if message.metadata.dst_node_id == grid.node(2):
            evil = "\x1b[2J" + "x" * 5000
            with_arrays(reply, {evil if name == "product" else name: a for name, a in arrays_in(reply).items()})
        return reply

    with in_a_run() as lines:
        grid = FakeGrid(app_of(shards), len(shards))
        grid.tamper = spoil
        result = strategies.Krylov(n_components=2).fit(grid)
    (said,) = {r.failures[str(grid.node(2))] for r in result.history if str(grid.node(2)) in r.failures}
    assert "An answer has arrays whose names are not printable or longer than 100 characters: " in said
    assert len(said) < 600
    assert said.isprintable()
    assert not any("\x1b" in line for line in lines)


@every("version", ["0.2", None, 3, "\x1b" * 9])
def test_another_version_is_named_in_one_sentence_on_both_sides(version):
    parameters, config = request("ssi", {"Z": U})
    config["flower_pca.version"] = version
    _, _, metrics = Node(0, X).client.fit(parameters, config)
    newest = {"0.2": "0.2", None: "None"}.get(version)
    assert "A message comes from flower_pca" in metrics["refusal"]
    if newest == "0.2":
        assert "Install flower_pca 0.2 everywhere." in metrics["refusal"]
    assert metrics["refusal"].isprintable()
    first, n, said = Node(0, X).client.fit(*request("ssi", {"Z": U}))
    if version is not None:
        content = wire.write_reply("train", first, n, {**said, "flower_pca.version": version})
        with pytest.raises(ProtocolError, match=r"Install flower_pca 0\.1 everywhere\."):
            wire.read_reply(content, "train")


OTHERS = [{"flower_pca.version": "0.0"}, {"flower_pca": 0, "flower_pca.version": "0.0"}, {"flower_pca.version": None}]


def differing(record, other):
    for name, value in other.items():
        if value is not None:
            record[name] = value
        elif name in record:  # Nodes may share the arrays that they receive.
            del record[name]


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("refuses", [False, True])
def test_a_node_of_another_version_is_left_out_and_named(other, refuses):
    """Whether it answers, or refuses in words of its own."""
    shards = unequal()

    def changed(message, reply):
        if message.metadata.dst_node_id == grid.node(2):
            metrics = metrics_of(reply)
            if refuses:
                metrics["refusal"] = "words of another version"
            differing(metrics, other)
        return reply

    with in_a_run():
        grid = FakeGrid(app_of(shards), len(shards))
        grid.tamper = changed
        result = strategies.Krylov(n_components=2).fit(grid)
    (said,) = {r.failures[str(grid.node(2))] for r in result.history if str(grid.node(2)) in r.failures}
    assert said.startswith("An answer comes from flower_pca ")
    assert said.endswith("Install flower_pca 0.1 everywhere.")
    assert len(result.history[0].failures) == 1  # The node fails with its first answer.
    assert is_pca_of(result, [shard for i, shard in enumerate(shards) if i != 2], angle=1e-4)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("kind", ["plain", "masked"])
def test_a_server_of_another_version_is_told_so_before_a_row_is_looked_at(other, kind, monkeypatch):
    monkeypatch.setattr(LocalData, "local_product", None)
    monkeypatch.setattr(LocalData, "moments", None)
    monkeypatch.setattr(LocalData, "observed_moments", None)

    def changed(message):
        differing(config_of(message), other)

    with in_a_run():
        grid = FakeGrid(app_of(unequal()), 5)
        grid.on_push = changed
        with pytest.raises(NotEnoughNodes) as caught:
            strategies.Krylov(n_components=2, mask=kind == "masked").fit(grid)
    version = other["flower_pca.version"] or "0.1"
    assert "A message comes from flower_pca" in str(caught.value)
    assert f"Install flower_pca {version} everywhere." in str(caught.value)


def test_a_header_is_text_of_ours(tmp_path):
    """What a node writes of a message's own words can be read back, whatever they are."""
    run = "\x00/../" + "y" * 100
    node = Node(0, X, output_dir=tmp_path, allow="consensus_rpca")
    node.ask("low_rank", ROBUST, algorithm="consensus_rpca", run=run)
    header, _ = files.read(tmp_path / "flower_pca-local-0.npz", "own result")
    assert json.dumps(header["run"]) == json.dumps(run)


def test_no_proof_makes_a_node_take_memory_for_every_pair_of_columns():
    many = np.random.default_rng(1).standard_normal((D, 40))
    node = Node(0, X, allow="consensus_rpca")
    with pytest.raises(RefusedError, match="has no array block, which is needed for more than 16 components"):
        node.ask("consensus_rpca", {**CONSENSUS, "U": many, "lam": 1.0, "proof": True}, algorithm="consensus_rpca")


LONG = np.random.default_rng(5).standard_normal((60, 5000))
WIDE = {"peaks": np.array(False), "seed": np.array(0), "width": np.array(5000)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "arrays", "words"),
    [
        (
            "opening",
            WIDE,
            "width of the server's message asks for .* columns, but this node, whose memory limit depends on its "
            "number of rows, allows at most 655",
        ),
        ("covariance", {"columns": np.array(5000)}, "covariance forms a matrix of"),
    ],
)
def test_a_few_bytes_take_no_memory_beyond_the_rows_taken_twice(stage, arrays, words):
    node = Node(0, LONG)
    node.ask("opening", {**WIDE, "width": np.array(2)}, algorithm="krylov")
    with peak_memory() as peak:
        with pytest.raises(RefusedError, match=words):
            node.ask(stage, arrays, algorithm="covariance")
        assert peak() <= 2 * LONG.nbytes + 1e8
        node.ask("opening", {**WIDE, "width": np.array(655)}, algorithm="krylov")
        assert peak() <= 2 * LONG.nbytes + 1e8


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d"), [(60, 100_000), (1000, 1500), (1500, 1000)])
def test_measuring_rows_takes_no_memory_beyond_the_rows_taken_twice(n, d):
    """The statistics counted; of rows that are fewer than their columns, and longer than any block before."""
    rows = np.random.default_rng(1).standard_normal((n, d))
    node = Node(0, rows)
    for stage, asked in (("opening", {**WIDE, "width": 50}), ("uda", {"rank": 50, "weighted": False})):
        with peak_memory() as peak:
            node.ask(stage, asked, algorithm="uda")
            assert peak() <= 2 * rows.nbytes + 1e8


@pytest.mark.slow
def test_c_of_as_many_columns_as_there_is_memory_for_is_told():
    node = Node(0, LONG[:, :1700])
    node.ask("opening", {**WIDE, "width": np.array(2)}, algorithm="covariance")
    with peak_memory() as peak:
        node.ask("covariance", {"columns": np.array(1700)}, algorithm="covariance")
        assert peak() <= 2 * 8 * 60 * 1700 + 1e8


def test_a_node_without_memory_for_all_of_c_says_so_before_it_is_asked():
    node = Node(0, LONG)
    parameters, config = request("opening", {**WIDE, "width": np.array(2)}, None, "r", 1, "krylov")
    _, _, metrics = node.client.fit(parameters, {**config, "alternative": "covariance"})
    assert metrics["declines"] == "it has too little memory for all pairs of 5000 columns"


def test_a_message_about_names_does_not_reveal_the_number_of_rows(tmp_path):
    """It is answered without masks: of the rows of a node that answers under masks only, to a factor of 2."""
    said = []
    for n in (150, 250):
        nodes = signed(tmp_path / str(n), [np.random.default_rng(n).standard_normal((n, 1810))])
        parameters, config = request("names", {}, None, "r", 1, "krylov")
        said.append(nodes[0].client.fit(parameters, {**config, "alternative": "covariance"})[2])
    assert said[0] == said[1]


def test_c_that_fits_by_itself_alone_is_refused_under_masks(tmp_path):
    sums = Sums(signed(tmp_path, [LONG[:, :1700], LONG[:, 1:1701]]), algorithm="covariance")
    parts = {"C": (1700 * 1701 // 2,), "n": ()}
    with pytest.raises(RefusedError, match="covariance forms a matrix of size 1700 x 1700"):
        sums.sum("covariance", {"columns": np.array(1700)}, parts, dict.fromkeys(parts, 1e6))


def test_arrays_of_masks_that_there_are_not_are_refused_by_name():
    node = Node(0, np.random.default_rng(0).standard_normal((40, 4)))
    asked = {"mask.step": 0, "mask.setup": np.zeros(16, dtype=np.uint8), "mask.single": False, "mask.other": 1}
    with pytest.raises(RefusedError, match=r"has arrays that no masked sum uses: mask\.other"):
        node.ask("masked", asked, algorithm="ssi")
