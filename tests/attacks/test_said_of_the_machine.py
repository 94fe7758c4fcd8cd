"""Test that nothing about a node's machine leaves it: no path, no cell, no text of an unexpected error."""

import numpy as np
import pytest
from dishonest import Node, RefusedError, request
from fake_grid import Context, in_a_run
from flwr.app import ConfigRecord, Message, RecordDict

from flower_pca import app, client_half, wire
from flower_pca.clients import client_app
from flower_pca.clients.policy.refusals import RefusalError
from flower_pca.core.stage import Broadcast
from flower_pca.masking.group import new_setup_id
from flower_pca.names.table import Table
from flower_pca.rows.frame import Frame
from flower_pca.rows.stream import Stream

X = np.random.default_rng(5).standard_normal((60, 4))
RUN = {"data": "synthetic", "partition": "iid", "algorithm": "krylov", "columns": ""}
OPENING = {"peaks": np.array(False), "seed": np.array(0), "width": np.array(2)}
UNREADABLE = "This node cannot read its rows or its rules, and its own log says why. Ask the node's operator."
UNABLE = "This node cannot answer because of an error ({}), which is in its own log. Ask the node's operator."


@pytest.fixture
def tell(tmp_path):
    """What the server is told by the app of a node with this node-config, of a message of some kind."""
    np.save(tmp_path / "rows.npy", X)

    def ask(node, kind, **run):
        context = Context(hash(tmp_path) % 2**60, 5, node, RecordDict(), {**RUN, **run})
        broadcast = Broadcast("opening", 7, OPENING, Frame(), (1,))
        content = wire.write_request(broadcast, 1, algorithm="krylov", run="r", extra={})
        try:
            content = app.client_app(Message(content, dst_node_id=5, message_type=kind), context).content
        except Exception as error:  # Flower sends the words of this error.
            return str(error)
        assert kind == "train"
        return str(content.config_records["config"]["refusal"])

    return ask


CASES = {
    "a file that is not there": ({"data": "{}/Geheim.npy"}, {}, UNREADABLE),
    "a cell": ({"data": "csv(path='{}/cells.csv', columns=['a', 'b'])"}, {}, UNREADABLE),
    "two paths": ({"data": "{}/rows.npy", "data-path": "{}/Geheim.npy"}, {}, UNREADABLE),
    "two paths, asked as hosts": ({"data": "{}/rows.npy", "data-path": "{}/x"}, {"shards_per_node": 9}, UNREADABLE),
    "trusted keys": ({"data": "{}/rows.npy", "trusted-keys": "{}/Geheim"}, {}, UNREADABLE),
    "a key to sign with": ({"data": "{}/rows.npy", "sign-key": "{}/Geheim"}, {}, UNREADABLE),
    "a rule": ({"data": "{}/rows.npy", "min-rows": "Geheim"}, {}, UNREADABLE),
    "a folder": ({"data": "{}/rows.npy", "memory-dir": "{}/rows.npy/Geheim", "max-columns": 3}, {}, UNREADABLE),
    "a number": ({"data": "{}/rows.npy", "batch": "Geheim"}, {}, UNABLE.format("ValueError")),
    "a key of the run": ({"partition-id": 0, "num-partitions": 3}, {"seed": "x"}, UNABLE.format("ValueError")),
}


@pytest.mark.parametrize("kind", ["train", "query"])
@pytest.mark.parametrize("case", CASES)
def test_no_path_and_no_cell_leaves_a_node(case, kind, tell, tmp_path):
    node, run, words = CASES[case]
    if kind == "query" and case == "a folder":
        pytest.skip("nothing is kept of a query")
    (tmp_path / "cells.csv").write_text("a,b\n1,2\n3,Geheim\n")
    node = {name: v.format(tmp_path) if isinstance(v, str) else v for name, v in node.items()}
    with in_a_run() as lines:
        told = tell(node, kind, **{name.replace("_", "-"): value for name, value in run.items()})
    assert told.startswith(words)
    assert "Geheim" not in told
    assert str(tmp_path) not in told
    assert any(
        "of this node cannot be used: " in line or "kept this node from answering: " in line for line in lines
    )  # The operator sees the whole message.


def test_an_error_that_nobody_foresaw_is_told_by_its_class(monkeypatch):
    node = Node(0, X)
    monkeypatch.setattr(node.client._account, "count_answer", lambda *given: (_ for _ in ()).throw(OSError("/Geheim")))
    _, _, metrics = node.client.fit(*request("ssi", {"Z": np.eye(4)[:, :1]}))
    assert metrics["refusal"] == UNABLE.format("OSError")


@pytest.mark.parametrize("error", [ValueError, KeyError, TypeError, AttributeError])
def test_an_error_while_rows_are_computed_reveals_none_of_its_words(error, monkeypatch):
    """A cell in them, say: could not convert string to float: '...'."""
    node = Node(0, X)
    monkeypatch.setattr(client_half, "answer", lambda *given, **more: (_ for _ in ()).throw(error("Geheim")))
    with in_a_run() as lines:
        _, _, metrics = node.client.fit(*request("ssi", {"Z": np.eye(4)[:, :1]}))
    assert metrics["refusal"] == (
        f"This node could not process a message for ssi ({error.__name__}). The sender may have another version. "
        "Install the same flower_pca everywhere."
    )
    assert any("Geheim" in line for line in lines)  # The operator sees the whole message.


def test_a_host_of_many_clients_tells_no_words_either():
    """Not even those of the message."""
    app_of_hosts = client_app(lambda context: X, hosts=lambda context: range(3))
    content = wire.write_request(Broadcast("opening", 7, OPENING, Frame(), (1,)), 1, algorithm="ssi", run="r", extra={})
    content.config_records["hosted"] = ConfigRecord({"clients": [0], "names": "Geheim"})
    with in_a_run(), pytest.raises(RefusalError) as error:
        app_of_hosts(Message(content, dst_node_id=5, message_type="train"), Context(1, 5, {}, RecordDict(), {}))
    rule = 'A message for the clients of a virtual node has no "names" that can be read as JSON.'
    assert str(error.value) == f"{rule} {wire.records.SENDER}"


@pytest.mark.parametrize("bits", [7, 0, -32, np.inf, np.nan, "32", [32, 32]])
@pytest.mark.parametrize("masked", [False, True])
def test_bits_that_no_answer_can_have_are_refused_before_anything_is_kept(bits, masked, monkeypatch):
    node = Node(0, X)
    arrays = {"Z": np.eye(4)[:, :2]}
    if masked:
        arrays = {"mask.step": np.array(0), "mask.single": np.array(False), "mask.setup": new_setup_id()}
    parameters, config = request("masked" if masked else "ssi", arrays, None, "r", 1, "ssi")
    monkeypatch.setattr(type(node.client._store), "save", lambda *given: pytest.fail("something was kept"))
    config["names"] = f"{config['names']},wire.bits"
    said, n, metrics = node.client.fit([*parameters, np.array(bits)], config)
    assert (said, n) == ([], 0)
    assert "A message asks for numbers of" in metrics["refusal"]


@pytest.mark.parametrize("guess", ["b", "Geheim"])
def test_a_stream_that_keeps_names_to_itself_confirms_no_guess(guess):
    batches = [Table(X[:40], ("a", "b", "c", "d"))]
    node = Node(0, Stream(batches), share_names=False, allow=["st_miss"])
    P = np.ones((1, 1))
    step = {"P": P, "block": P, "step": np.array(0), "lap": np.array(0), "refine": np.array(0)}
    with pytest.raises(RefusedError) as error:
        node.ask("st_miss", step, Frame(names=(guess,)))
    assert (
        "the client at step 0 does not share its column names, so a run can use either all of its columns by name or "
        "none. This run names 1, but the client at step 0 has 4." in str(error.value)
    )
    assert guess not in str(error.value).split()


@pytest.mark.parametrize("strange", [{"Z": np.array(b"x")}, {}, {"Z": np.eye(4)[:, :0], "other": np.eye(2)}])
def test_a_message_that_is_refused_takes_two_lines_of_a_log(strange, caplog):
    """A server may send as many as it likes: no traceback, and nothing that begins a line of its own."""
    _, config = request("ssi", {"Z": np.eye(4)[:, :1]})
    names = ",".join(strange)
    said = Node(0, X).client.fit(list(strange.values()), {**config, "names": names})[2]
    assert "refusal" in said
    lines = [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")]
    assert len(lines) <= 2
    assert all("\n" not in record.getMessage() and record.exc_info is None for record in lines)
