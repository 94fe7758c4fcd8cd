"""Test the records of both layouts: every message survives the round trip, and bad ones are refused."""

import re

import numpy as np
import pytest
from builders import unequal
from cases import every
from fake_grid import FakeGrid, app_of, grid_of
from flwr.app import Context, Message, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.compat.common import recorddict_compat as compat

from flower_pca import registry, wire
from flower_pca.base.errors import ProtocolError
from flower_pca.clients import PCAClient, register
from flower_pca.core.stage import Broadcast
from flower_pca.rows.frame import Frame
from flower_pca.strategies import PCAStrategy

SHORT = {
    "faps": {"max_rounds": 3},
    "ssi": {"max_rounds": 3},
    "local_power": {"max_rounds": 4},
    "krylov": {},
    "dcf_pca": {"max_rounds": 2, "step": "scaled"},
    "consensus_rpca": {"max_rounds": 2},
    "exact_per_pca": {"max_rounds": 2},
    "per_pca": {"max_rounds": 2},
    "triple_pca": {"max_rounds": 2},
}
ARRAYS = {
    "empty": np.empty(0),
    "wide": np.empty((3, 0)),
    "double": np.linspace(0, 1, 6).reshape(2, 3),
    "single": np.float32([[1.5, -0.0]]),
    "int": np.arange(4),
    "bool": np.array([True, False]),
    "number": np.array(2.5),
    "switch": np.array(True),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "extremes": np.array([np.nan, np.inf, 5e-324, -0.0]),
    "view": np.arange(12.0).reshape(3, 4)[::2, ::-1],
}
SENTENCE = re.compile(r"^[A-Za-z][^\n]*\. [A-Z][^\n]*\.$")


pytestmark = pytest.mark.usefixtures("lines")


def same(a, b):
    return list(a) == list(b) and all(
        a[n].dtype == b[n].dtype and a[n].shape == b[n].shape and a[n].tobytes() == b[n].tobytes() for n in a
    )


def broadcast(arrays, stage="krylov", **keywords):
    return Broadcast(stage, 7, arrays, keywords.pop("frame", Frame()), (3, 4), keywords.pop("personal", {}))


def written(arrays=None, stage="krylov"):
    given = broadcast(ARRAYS if arrays is None else arrays, stage)
    return wire.write_request(given, 3, algorithm="krylov", run="r", extra={}, layouts=wire.BOTH)


def written_reply(arrays=None, number=7, key=2, layout=wire.MESSAGE_API):
    first, n, metrics = wire.write_fit(ARRAYS if arrays is None else arrays, 11, number, key)
    return wire.write_reply("train", first, n, metrics, layout=layout)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scale"), [("krylov", None), *((name, "std") for name in registry.ALGORITHMS)])
def test_real_messages_come_back_bit_for_bit(name, scale, monkeypatch):
    seen, write, fit, evaluate = set(), wire.write_request, wire.write_fit, wire.write_evaluate

    def request(given, client, *, algorithm, run, extra, asks_names, alternative, layouts):
        said = {"asks_names": asks_names, "alternative": alternative, "layouts": layouts}
        content = write(given, client, algorithm=algorithm, run=run, extra=extra, **said)
        got = wire.read_request(*wire.open_request(content, wire.message_kind(given.stage)))
        assert same(got.arrays, given.arrays_for(client))
        assert got.frame.same(given.frame)
        assert (got.algorithm, got.stage, got.run, got.number) == (name, given.stage, run, given.number)
        assert (got.asks_names, got.alternative) == (asks_names, alternative)
        seen.add(given.stage)
        return content

    def answer(kind, writer):
        def check(arrays, n, number, key, *about, **bits):
            made = writer(arrays, n, number, key, *about, **bits)
            got = wire.read_reply(wire.write_reply(kind, *made), kind)
            assert same(got.arrays, {a: np.asarray(v) for a, v in arrays.items()})
            assert (got.number, got.key, got.num_examples, got.refusal) == (number, key, n, None)
            seen.add(kind)
            return made

        return check

    fakes = {
        "write_request": request,
        "write_fit": answer("train", fit),
        "write_evaluate": answer("evaluate", evaluate),
    }
    for function, fake in fakes.items():
        monkeypatch.setattr(wire, function, fake)
    algorithm = registry.make(name, **SHORT.get(name, {}))
    PCAStrategy(algorithm, n_components=2, scale=scale, reconstruction_error=True).fit(grid_of(unequal(3)))
    assert {"opening", name, "evaluate", "train"} <= seen


def test_the_first_message_is_in_both_layouts_and_the_others_in_that_of_the_node():
    """A ClientApp with a client_fn knows nothing of the message API, and no other needs its names."""
    with_client_fn = ClientApp(client_fn=lambda c: PCAClient(unequal(3)[c.node_config["partition-id"]]).to_client())
    seen = {}
    for name, app in (("client_fn", with_client_fn), ("message API", app_of(unequal(3)))):
        grid = FakeGrid(app, 3)
        PCAStrategy("krylov", n_components=2, reconstruction_error=True).fit(grid)
        seen[name] = [sorted(message.content) for message in grid.sent[::3]]
    both = ["arrays", "config", "fitins.config", "fitins.parameters"]
    rounds = len(seen["client_fn"]) - 2
    ends = {"client_fn": ["evaluateins.config", "evaluateins.parameters"], "message API": ["arrays", "config"]}
    middle = {"client_fn": ["fitins.config", "fitins.parameters"], "message API": ["arrays", "config"]}
    for name, layouts in seen.items():
        assert layouts == [both, *[middle[name]] * rounds, ends[name]]


def test_with_an_action_no_message_needs_the_names_of_a_client_fn():
    app = ClientApp()
    register(app, lambda c: unequal(3)[c.node_config["partition-id"]])
    grid = FakeGrid(app, 3)
    PCAStrategy("krylov", n_components=2, action="pca").fit(grid)
    assert {tuple(sorted(message.content)) for message in grid.sent} == {("arrays", "config")}


def test_a_size_is_what_flowers_own_mod_counts():
    for content in (written(), written_reply(), written_reply(layout=wire.CLIENT_FN)):
        assert wire.records.size_of(content) == sum(record.count_bytes() for record in content.values())


@every("arrays", [ARRAYS, {}, {"only": np.array(1)}])
def test_every_kind_of_array_there_and_back(arrays):
    frame = Frame(np.arange(3.0), None)
    given = broadcast(arrays, frame=frame, personal={3: {"part": np.eye(2)}, 4: {"part": np.zeros(5)}})
    content = wire.write_request(given, 3, algorithm="a", run="r", extra={"lr": 0.1})
    parameters, config = wire.open_request(content, "train")
    got = wire.read_request(parameters, config)
    assert same(got.arrays, {**arrays, "part": np.eye(2)})
    assert got.frame.same(frame)
    assert config["lr"] == 0.1
    back = wire.read_reply(written_reply(arrays), "train")
    assert same(back.arrays, arrays)
    assert (back.number, back.key, back.num_examples) == (7, 2, 11)


def test_an_own_configuration_cannot_replace_ours():
    content = wire.write_request(
        broadcast({}), 3, algorithm="a", run="r", extra={"run": "x", "number": 0, "names": "y"}
    )
    got = wire.read_request(*wire.open_request(content, "train"))
    assert (got.run, got.number, got.arrays) == ("r", 7, {})


class Recorder(NumPyClient):
    """Keeps what Flower hands to it, and answers with what the test wants."""

    def __init__(self, log, returns):
        self.log, self.returns = log, returns

    def fit(self, parameters, config):
        self.log.append((parameters, config))
        return self.returns

    evaluate = fit


def through_flower(content, kind, returns):
    """The reply and the arguments of Flower's own NumPyClient path."""
    log = []
    context = Context(run_id=1, node_id=5, node_config={}, state=RecordDict(), run_config={})
    sent = Message(content, 5, kind)
    reply = ClientApp(client_fn=lambda context: Recorder(log, returns).to_client())(sent, context)
    return log[0], reply.content


@pytest.mark.parametrize("arrays", [ARRAYS, {}])
def test_fit_is_what_flower_makes_of_it(arrays):
    returns = wire.write_fit(arrays, 11, 7, 2)
    content = written(arrays)
    (parameters, config), reply = through_flower(content, "train", returns)
    ours, our_config = wire.open_request(content, "train")
    assert same(dict(enumerate(parameters)), dict(enumerate(ours)))
    assert config == our_config
    for layout in wire.BOTH:
        made = wire.write_reply("train", *returns, layout=layout)
        flowers, own = wire.read_reply(reply, "train"), wire.read_reply(made, "train")
        assert same(flowers.arrays, own.arrays)
    assert (flowers.number, flowers.key, flowers.num_examples) == (own.number, own.key, own.num_examples) == (7, 2, 11)
    assert sorted(reply) == sorted(wire.write_reply("train", *returns, layout=wire.CLIENT_FN))


def test_evaluate_is_what_flower_makes_of_it():
    returns = wire.write_evaluate({"squares": np.array(22.0), "n": np.array(11)}, 11, 7, 2)
    assert returns[0] == 2.0
    _, reply = through_flower(written({"Z": np.eye(2)}, "evaluate"), "evaluate", returns)
    own = wire.write_reply("evaluate", *returns, layout=wire.CLIENT_FN)
    assert sorted(reply) == sorted(own)
    for content in (reply, own, wire.write_reply("evaluate", *returns)):
        got = wire.read_reply(content, "evaluate")
        assert same(got.arrays, {"squares": np.array(22.0), "n": np.array(11)})


@pytest.mark.parametrize("lasting", [False, True])
def test_a_refusal_is_what_flower_makes_of_it(lasting):
    returns = [], 0, wire.refusal("No.", 7, 2, lasting=lasting)
    _, reply = through_flower(written(), "train", returns)
    for content in (reply, *(wire.write_reply("train", *returns, layout=layout) for layout in wire.BOTH)):
        assert wire.read_reply(content, "train") == wire.ClientAnswer(7, 2, {}, 0, "No.", lasting)


def test_flower_reads_our_records_as_ins_and_res():
    ins = compat.recorddict_to_fitins(written(), keep_input=True)
    assert len(ins.parameters.tensors) == len(ARRAYS)
    assert ins.config["stage"] == "krylov"
    res = compat.recorddict_to_fitres(written_reply(layout=wire.CLIENT_FN), keep_input=True)
    assert (res.num_examples, res.status.code.value, len(res.parameters.tensors)) == (11, 0, len(ARRAYS))
    again = compat.fitins_to_recorddict(ins, keep_input=True)
    assert same(wire.read_request(*wire.open_request(again, "train")).arrays, ARRAYS)


def test_duplicate_names_are_said_to_be_the_fault():
    content = wire.write_request(
        broadcast({"a": np.eye(2), "b": np.eye(2)}), 3, algorithm="krylov", run="r", extra={}, layouts=(wire.CLIENT_FN,)
    )
    content["fitins.config"]["names"] = "a,a"
    with pytest.raises(ProtocolError, match=SENTENCE) as caught:
        wire.read_request(*wire.open_request(content, "train"))
    assert "2 arrays for the names a,a" in str(caught.value)


@pytest.mark.parametrize("frame", [Frame(), Frame(np.zeros(3))], ids=["no_frame", "frame"])
@pytest.mark.parametrize("stage", registry.STAGES)
def test_a_node_refuses_arrays_that_the_stage_cannot_use(stage, frame):
    """They are the sender's fault: the node says so, and does not break down."""
    client = PCAClient(unequal(1)[0])
    for arrays in (
        {"other": np.eye(2)},
        {n: np.zeros((3, 3, 3)) for n in ("B", "Z", "block", "rank", "width", "seed")},
    ):
        given = broadcast(arrays, stage, frame=frame)
        content = wire.write_request(given, 3, algorithm="krylov", run="r", extra={})
        _, n, metrics = client.fit(*wire.open_request(content, wire.message_kind(stage)))
        assert n == 0
        assert SENTENCE.match(metrics["refusal"])


@pytest.mark.slow
def test_a_node_refuses_messages_of_others():
    grid = FakeGrid(app_of(unequal(2)), 2)
    (identity,) = grid.push_messages([Message(RecordDict(), grid.node(0), "train")])
    (reply,) = grid.pull_messages([identity])
    assert "lacks the records arrays and config" in wire.read_reply(reply.content, "train").refusal
