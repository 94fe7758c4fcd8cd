"""Test nodes: their policy, their memory, their rows, and their imports."""

import re

import numpy as np
import pytest
from builders import unequal
from cases import every
from fake_grid import FakeGrid, app_of, context, grid_of, is_pca_of
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from scipy import sparse

from flower_pca import registry, simulate, strategies, wire
from flower_pca.base.errors import NotEnoughNodes
from flower_pca.clients import FAPSClient, KrylovClient, PCAClient, client_app
from flower_pca.core.stage import Broadcast
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.strategies import PCAStrategy

pytestmark = pytest.mark.usefixtures("lines")

SHARDS = unequal()
BAD = 2
OTHERS = [shard for i, shard in enumerate(SHARDS) if i != BAD]
FAPS = {"max_rounds": 6, "inner_steps": 2}


def faps_request(number=3, run="r"):
    Z = np.linalg.qr(np.random.default_rng(number).standard_normal((10, 2)))[0]
    arrays = {"Z": Z, "inner_steps": np.array(2), "inner_tol": np.array(0.0)}
    given = Broadcast("faps", number, arrays, Frame(), (1,))
    return wire.open_request(wire.write_request(given, 1, algorithm="faps", run=run, extra={}), "train")


def memory_of(state):
    return {n: a.numpy() for n, a in state.array_records.get("flower_pca.memory", {}).items()}


def app_with_special(special, others=None):
    """A ClientApp whose node BAD is served by `special`."""
    others = PCAClient if others is None else others

    def client_fn(context):
        i = context.node_config["partition-id"]
        return (special if i == BAD else others)(SHARDS[i], context=context).to_client()

    return ClientApp(client_fn=client_fn)


REFUSING = {
    "allow": (
        lambda X, context: PCAClient(X, context=context, allow={"ssi", "faps"}),
        r"does not serve krylov. It serves faps, ssi",
    ),
    "allow_one": (
        lambda X, context: PCAClient(X, context=context, allow="ssi"),
        r"does not serve krylov. It serves ssi",
    ),
    "named": (FAPSClient, r"does not serve krylov. It serves faps"),
    "both": (
        lambda X, context: FAPSClient(X, context=context, allow={"krylov"}),
        r"does not serve krylov. It serves none",
    ),
    "min_rows": (lambda X, context: PCAClient(X, context=context, min_rows=1000), "fewer rows than its min_rows, 1000"),
}


@pytest.mark.parametrize("how", REFUSING)
def test_a_refusal_is_named_at_the_server_and_the_others_go_on(how, lines):
    special, words = REFUSING[how]
    grid = FakeGrid(app_with_special(special), 5)
    result = strategies.Krylov(n_components=2).fit(grid)
    node = str(grid.node(BAD))
    (reason,) = [r.failures[node] for r in result.history if node in r.failures]
    assert re.search(words, reason)
    assert any(f"node {node} (partition-id {BAD}) was left out: {reason}" in line for line in lines)
    assert is_pca_of(result, OTHERS)
    assert grid.counts[int(node)] == 1  # The node is not asked again.


def test_policies_of_client_app():
    grid = grid_of(SHARDS, min_rows=min(map(len, SHARDS)) + 1, allow=["krylov"])
    small = min(range(5), key=lambda i: len(SHARDS[i]))
    assert is_pca_of(strategies.Krylov(n_components=2).fit(grid), [s for i, s in enumerate(SHARDS) if i != small])
    with pytest.raises(NotEnoughNodes, match="needs 2 clients"):
        strategies.SSI(n_components=2).fit(grid)


def test_a_node_that_allows_an_algorithm_answers_its_other_stages_too():
    """Opening, Ritz and evaluation belong to every algorithm; another algorithm's stage under its name does not."""
    client = FAPSClient(SHARDS[0])
    for algorithm, stage, refused in [("faps", "ritz", 0), ("krylov", "ritz", 1), ("faps", "krylov", 1)]:
        given = Broadcast(stage, 1, {"Z" if stage == "ritz" else "B": np.eye(10)[:, :2]}, Frame(), (1,))
        sent = wire.write_request(given, 1, algorithm=algorithm, run="r", extra={})
        assert ("refusal" in client.fit(*wire.open_request(sent, "train"))[2]) == refused


def test_a_message_without_masks_cannot_pass_for_one_of_another_stage():
    """The stage that masks carry is named among the arrays; there a message without masks may say what it likes."""
    arrays = {"k": np.array(2), "mask.stage": np.frombuffer(b"ritz", dtype=np.uint8)}
    sent = wire.write_request(Broadcast("uda", 1, arrays, Frame(), (1,)), 1, algorithm="ssi", run="r", extra={})
    refused, n, said = PCAClient(SHARDS[0], allow={"ssi"}).fit(*wire.open_request(sent, "train"))
    assert (refused, n) == ([], 0)
    assert "This node does not serve uda. It serves ssi." in said["refusal"]


def test_properties_of_a_client():
    safe = sorted(name for name, algorithm in registry.ALGORITHMS.items() if not algorithm.by_row)
    everything = {"n_features": 10, "algorithms": ",".join(safe), **wire.SPOKEN}
    assert PCAClient(SHARDS[0]).get_properties({}) == everything
    assert {"dcf_pca", "consensus_rpca", "triple_pca"} == set(registry.ALGORITHMS) - set(safe)
    assert KrylovClient(SHARDS[0]).get_properties({})["algorithms"] == "krylov"
    grid = FakeGrid(app_of(SHARDS, allow={"ssi", "faps"}), 1)
    (reply,) = grid.send_and_receive([Message(RecordDict(), grid.node(0), "query")])
    assert dict(reply.content["getpropertiesres.properties"]) == {**everything, "algorithms": "faps,ssi"}


def test_a_client_without_context_serves_what_needs_no_memory():
    """Flower makes a new client for every message: one without context would begin anew in every round."""
    answer = PCAClient(SHARDS[0]).fit(*faps_request())
    assert "faps keeps a state between messages" in answer[2]["refusal"]
    assert "Write PCAClient(data, context=context)" in answer[2]["refusal"]
    app = ClientApp(client_fn=lambda ctx: PCAClient(SHARDS[ctx.node_config["partition-id"]]).to_client())
    assert is_pca_of(strategies.Krylov(n_components=2).fit(FakeGrid(app, len(SHARDS))), SHARDS)


def test_the_memory_is_what_makes_the_next_answer():
    first, second = faps_request(3), faps_request(4)
    kept = PCAClient(SHARDS[0], context=(place := context()))
    kept.fit(*first)
    fresh = PCAClient(SHARDS[0], context=context()).fit(*second)[0][0]
    (answer,) = PCAClient(SHARDS[0], context=place).fit(*second)[0]
    assert not np.array_equal(answer, fresh)
    assert np.array_equal(answer, kept.fit(*second)[0][0])


D = SHARDS[0].shape[1]
ONES = np.ones(D)
REFUSED = [
    (
        Frame(np.zeros((len(SHARDS[0]), D))),
        {},
        "The array mean of the server's message must have 10 floating-point numbers, but has shape",
    ),
    (
        Frame(np.zeros((D, 1))),
        {},
        "The array mean of the server's message must have 10 floating-point numbers, but has shape",
    ),
    (
        Frame(np.zeros(1)),
        {},
        "The array mean of the server's message must have 10 floating-point numbers, but has shape",
    ),
    (
        Frame(None, np.ones((len(SHARDS[0]), 1))),
        {},
        "scale of the server's message must have 10 floating-point numbers, but has shape",
    ),
    (Frame(None, np.r_[0.0, ONES[1:]]), {}, "The array scale of the server's message has entries of 0 or below."),
    (Frame(None, -ONES), {}, "The array scale of the server's message has entries of 0 or below."),
    (
        Frame(None, np.ones(D, dtype=int)),
        {},
        "array scale of the server's message must have 10 floating-point numbers, but has shape (10,) and dtype int",
    ),
    (Frame(np.r_[np.inf, ONES[1:]]), {}, "mean of the server's message has NaN or infinite entries"),
    (Frame(None, np.r_[np.nan, ONES[1:]]), {}, "scale of the server's message has NaN or infinite entries"),
    (Frame(ONES * 1j), {}, "mean of the server's message has dtype complex128, but must have real, finite numbers."),
    (Frame(), {"Z": np.full((D, 2), np.nan)}, "Z of the server's message has NaN or infinite entries"),
]


@every(("frame", "arrays", "reason"), REFUSED)
def test_a_message_that_no_strategy_sends_is_refused(frame, arrays, reason):
    """Such a frame could single out rows: a mean of shape (n, d) that is huge in all rows but one, say."""
    given = Broadcast("ssi", 1, {"Z": np.eye(D)[:, :2], **arrays}, frame, (1,))
    content = wire.write_request(given, 1, algorithm="ssi", run="r", extra={})
    parameters, n, metrics = PCAClient(SHARDS[0]).fit(*wire.open_request(content, "train"))
    assert (parameters, n) == ([], 0)
    assert reason in metrics["refusal"]


def said(node, stage, arrays, *, algorithm="ssi", kind="train", frame=None, number=0, **config):
    """What a node says to a message: its refusal, or its arrays by name."""
    arrays = {name: np.asarray(a) for name, a in arrays.items()}
    given = Broadcast(stage, number, arrays, frame or Frame(), (1,))
    sent = wire.write_request(given, 1, algorithm=algorithm, run="r", extra=config)
    parameters, config = wire.open_request(sent, "evaluate" if stage == "evaluate" else "train")
    first, n, metrics = (node.evaluate if kind == "evaluate" else node.fit)(parameters, config)
    if "refusal" not in metrics:
        return dict(zip(metrics["names"].split(","), first, strict=True)) if kind == "train" else first
    assert (first, n) == ((0.0, 0) if kind == "evaluate" else ([], 0))
    return metrics["refusal"]


ONE = np.eye(D)[:, :1]
NOISED = {"Z": ONE, "dp.clip": 1.0, "dp.noise": 50.0, "dp.budget": 1.0}
BYTES = np.frombuffer(b"\xff\xfe", dtype=np.uint8)
FLOOR, COUNTED = {"min_noise": 1.0}, {"max_columns": 9}
ROBUST = {"allow": ["ssi", "consensus_rpca", "dcf_pca"]}
MALFORMED = {
    "a stack": (
        "ssi",
        {"Z": np.eye(D)[None]},
        {},
        "Z of the server's message must be a matrix, but has shape (1, 10, 10)",
    ),
    "a masked stack": (
        "masked",
        {"mask.step": 2, "mask.stage": np.frombuffer(b"ssi", dtype=np.uint8), "Z": np.eye(D)[None]},
        {},
        "Z of the server's message must be a matrix, but has shape (1, 10, 10)",
    ),
    "no text": ("masked", {"mask.step": 2, "mask.stage": BYTES}, {}, "no stage named '\ufffd"),
    "two clips": ("ssi", {**NOISED, "dp.clip": [1.0, 1.0]}, FLOOR, "has several numbers in clip instead of one."),
    "a clip in words": ("ssi", {**NOISED, "dp.clip": "x"}, FLOOR, "dp.clip of the server's message has dtype"),
    "a clip beyond all": (
        "ssi",
        {**NOISED, "dp.clip": 1e300},
        FLOOR,
        "dp.clip of the server's message has entries above 1e+150",
    ),
    "a seed below 0": (
        "opening",
        {"peaks": 0, "seed": -1, "width": 1},
        COUNTED,
        "seed of the server's message must be from 0 to",
    ),
    "a width below 0": (
        "opening",
        {"peaks": 0, "seed": 1, "width": -2},
        COUNTED,
        "width of the server's message must be at least 0, but is -2",
    ),
    "too wide": (
        "opening",
        {"peaks": 0, "seed": 1, "width": 2**31},
        {},
        "width of the server's message asks for 2,147,483,648 columns",
    ),
    "an own part too wide": ("personal", {"own": 2**31}, {}, "own of the server's message asks for 2,147,483,648"),
    "a block too wide": ("ssi", {"Z": np.ones((D, 1001))}, {}, "Z of the server's message asks for 1,001 columns"),
    "a number next to 0": (
        "low_rank",
        {"sigma": 1e-320},
        ROBUST,
        "sigma of the server's message must be 0 or at least 1e-150, but is",
    ),
    "a number below 0": (
        "low_rank",
        {"lam": -1.0},
        ROBUST,
        "lam of the server's message must be 0 or at least 1e-150, but is -1.0",
    ),
}


@pytest.mark.parametrize("how", MALFORMED)
def test_a_malformed_message_is_refused_by_name(how, tmp_path):
    stage, arrays, rules, words = MALFORMED[how]
    node = PCAClient(SHARDS[0], context=context(), memory_dir=tmp_path, **rules)
    assert words in said(node, stage, arrays)


def test_a_place_below_0_in_a_masked_sum_is_refused_by_name():
    node, setup = PCAClient(SHARDS[0], context=context()), np.zeros(16, dtype=np.uint8)
    keys = said(node, "masked", {"mask.step": 0, "mask.setup": setup})
    other = said(PCAClient(SHARDS[1], context=context(8)), "masked", {"mask.step": 0, "mask.setup": setup})
    asked = {
        "mask.step": 1,
        "mask.setup": setup,
        "mask.position": -1,
        "mask.peers": [1],
        "mask.needed": 2,
        "mask.course": np.zeros(32, dtype=np.uint8),
    }
    assert "mask.key" in keys
    answer = said(node, "masked", {**asked, "mask.exchanges": other["mask.exchange"][None]}, number=1)
    assert "mask.position of the server's message must be from 0 to 9007199254740992, but is -1." in answer


@pytest.mark.parametrize(("name", "value"), [("steps", -1), ("lam", -1e300)])
def test_numbers_that_the_robust_algorithms_cannot_use_are_refused_by_name(name, value):
    asked = {"U": np.eye(D)[:, :2], "lam": 1.0, "rho": 1.0, "rho_row": 1.0, "eta": 0.1, "scaled": True, "seed": 1}
    asked |= {"steps": 1, "inner_steps": 1, name: value}
    with np.errstate(all="ignore"):
        node = PCAClient(SHARDS[0], context=context(), allow=["dcf_pca"])
        answer = said(node, "dcf_pca", asked, algorithm="dcf_pca")
    assert isinstance(answer, str)
    assert answer.startswith(f"The array {name} of the server's message ")


@every(
    ("stage", "asked", "words"),
    [
        (
            "local_power",
            {"Z": np.eye(D)[:, :2], "steps": 2**62, "aligned": True},
            "steps in one message, but a node takes at most",
        ),
        ("dcf_pca", {"steps": 101, "inner_steps": 100}, "steps times inner_steps is"),
        ("faps", {"Z": np.eye(D)[:, :2], "inner_steps": 1e100}, "inner_steps is 1e+"),
        (
            "masked",
            {"mask.step": 2, "mask.stage": np.frombuffer(b"faps", np.uint8), "Z": ONE, "inner_steps": 10_001},
            "inner_steps is 10001 steps in one message",
        ),
    ],
)
def test_a_message_that_would_keep_a_node_busy_for_good_is_refused(stage, asked, words):
    node = PCAClient(SHARDS[0], context=context(), allow=["faps", "local_power", "dcf_pca"])
    assert words in said(node, stage, asked, algorithm="faps" if stage == "masked" else stage)


@every("stage", ["ssi", "masked", "opening"])
def test_an_evaluation_is_of_its_own_stage(stage):
    answer = said(PCAClient(SHARDS[0], context=context()), stage, {"Z": np.eye(D)[:, :2]}, kind="evaluate")
    assert (
        f"An evaluate message can ask only for the stage evaluate, but this one asks for {stage}. Send it as a train "
        "message."
    ) in answer


@pytest.mark.parametrize("how", ["noise", "masks"])
def test_refusals_under_noise_and_masks_count_nothing(how):
    """Neither rows nor missing or infinite entries, nor what numpy says, which names shapes."""
    asked = dict(NOISED) if how == "noise" else {"mask.step": 0, "mask.setup": np.zeros(16, np.uint8)}
    stage, rules = ("ssi", {"min_noise": 50.0}) if how == "noise" else ("masked", {})
    few = said(PCAClient(SHARDS[0], context=context(), min_rows=10_000, **rules), stage, asked)
    assert few == "This node has fewer rows than its min_rows, 10000. Start the run again when it has more."
    infinite = said(PCAClient(np.full((3, D), np.inf), context=context(), **rules), stage, asked)
    assert infinite == "This node cannot answer from its rows, and its own log says why. Ask the node's operator."
    if how == "noise":
        gaps = said(PCAClient(nan_rows(SHARDS[0]), context=context(), **rules), stage, asked)
        rule = "because its gap_values has no constant for at least one of their columns"
        words = f"A run with noise cannot fill the missing values of this node, {rule}. Ask the node's operator."
        assert gaps == words
        wrong = said(PCAClient(SHARDS[0], context=context(), **rules), stage, {**asked, "Z": np.eye(D + 1)[:, :1]})
        assert f"This node has {D} columns, but the array Z of the server's message is for {D + 1} columns." in wrong


def test_a_node_has_its_refusals_in_its_own_log(caplog):
    """With what was found in its rows, also where the server is not told."""
    for rules in ({}, {"masked_only": True}):
        with caplog.at_level("WARNING", logger="flwr"):
            said(PCAClient(nan_rows(SHARDS[0]), context=context(), **rules), "ssi", {"Z": np.eye(D)[:, :2]})
        assert "This node does not answer: " in caplog.messages[-1]
    few = PCAClient(SHARDS[0], context=context(), min_rows=10_000)
    with caplog.at_level("WARNING", logger="flwr"):
        said(few, "ssi", {"Z": np.eye(D)[:, :2]})
    assert caplog.messages[-1].startswith(
        "This node does not answer: This node has fewer rows than its min_rows, 10000."
    )


@pytest.mark.parametrize("rules", [{"min_noise": 1.0}, {"max_clip": 1.0}, {"masked_only": True}], ids=str)
def test_a_client_app_with_rules_of_privacy_counts_nothing_either(rules):
    shards = [np.full((3, D), np.inf) if i == BAD else X for i, X in enumerate(SHARDS)]
    plain, strict = (client_app(lambda c: shards[c.node_config["partition-id"]], **own) for own in ({}, rules))
    chosen = lambda message, c: (strict if c.node_config["partition-id"] == BAD else plain)(message, c)  # noqa: E731
    grid = FakeGrid(chosen, 5)
    result = strategies.Krylov(n_components=2).fit(grid)
    reason = result.history[0].failures[str(grid.node(BAD))]
    assert "This node cannot answer from its rows, and its own log says why." in reason


def test_a_repeated_message_gets_the_same_answer_and_a_new_run_starts_again():
    client = PCAClient(SHARDS[0], context=context())
    answers = [client.fit(*faps_request(n))[0][0] for n in (3, 4, 4, 4, 5)]
    assert np.array_equal(answers[1], answers[2])
    assert np.array_equal(answers[1], answers[3])
    other = PCAClient(SHARDS[0], context=context()).fit(*faps_request(4, run="s"))[0][0]
    assert np.array_equal(client.fit(*faps_request(4, run="s"))[0][0], other)


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.ALGORITHMS)
def test_the_memory_in_the_state_is_small(name):
    """Two generations of the arrays of the stage, and none where the algorithm is memoryless or done with them."""
    grid = grid_of(SHARDS)
    rounds = {"ssi": 4, "local_power": 4, "dcf_pca": 4, "consensus_rpca": 4, "per_pca": 12}
    given = FAPS if name == "faps" else {"max_rounds": rounds[name]} if name in rounds else {}
    PCAStrategy(registry.make(name, **given), n_components=2).fit(grid)
    for node in grid.nodes.values():
        kept = memory_of(node.state)
        if name == "faps":
            parts = {f"{part}.{n}" for part in ("before", "after") for n in ("X", "W", "v")}
            assert set(kept) == parts
            assert sum(a.nbytes for a in kept.values()) <= 2 * 8 * (2 * 10 * 2 + 10 * 4)
        elif name in ("dcf_pca", "consensus_rpca"):
            parts = {"before.V", "after.V", "after.U", "after.lam"}  # what the closing message leaves
            more = {"before.tag", "before.lam", "after.cut"} if name == "consensus_rpca" else set()
            assert set(kept) == parts | more
            assert sum(a.nbytes for a in kept.values()) <= 8 * (2 * 60 * 2 + 10 * 2 + 4)
        elif name == "triple_pca":
            steps = {f"{part}.{n}" for part in ("before", "after") for n in ("W", "T", "far")}
            assert set(kept) == {*steps, "after.V", "after.variances"}
            far = sum(a.nbytes for key, a in kept.items() if key.endswith("far"))
            assert sum(a.nbytes for a in kept.values()) <= far + 8 * (2 * (60 + 10) * 3 + 10 + 1)
        elif name in ("per_pca", "exact_per_pca"):
            before = {"before.V", "before.narrow"} if name == "per_pca" else set()
            assert set(kept) == {*before, "after.V", "after.variances"}
            own = sum(key.endswith(".V") for key in kept)  # and one variance; the rows span all columns
            assert sum(a.nbytes for a in kept.values()) == 8 * (10 * own + 1)
        else:
            assert sum(a.nbytes for a in kept.values()) == 0


def test_memory_in_a_file_outlives_the_context(tmp_path):
    first, second = faps_request(3), faps_request(4)
    kept = PCAClient(SHARDS[0], context=context())
    expected = [kept.fit(*request)[0][0] for request in (first, second)]
    for request, answer in zip((first, second), expected, strict=True):
        place = context(**{"partition-id": 4})
        client = PCAClient(SHARDS[0], context=place, memory_dir=tmp_path / "new")
        assert np.array_equal(client.fit(*request)[0][0], answer)
        assert not place.state.array_records  # Only a mark of the rows is left with which the run began.
    kept = sorted(path.name for path in (tmp_path / "new").glob("*.npz"))
    (run,) = [name for name in kept if name.startswith("flower_pca-4-run-")]
    # Three of a node, none left over.
    assert sorted(kept) == sorted([run, "flower_pca-began-4.npz", "flower_pca-fixed-4.npz"])


def spoil_file(path, how):
    data = path.read_bytes()
    with np.load(path) as file:
        arrays = dict(file)
    header = arrays.pop("header.json")
    match how:
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "text":
            path.write_text("not a memory")
        case "flipped":
            path.write_bytes(data[:300] + bytes(b ^ 255 for b in data[300:340]) + data[340:])
        case "no_header":
            np.savez(path, **arrays)
        case "other_names":
            np.savez(path, **{"header.json": header, "x": np.eye(2)})
        case "no_run":
            np.savez(path, **{"header.json": np.frombuffer(b'{"kind": "memory"}', np.uint8)}, **arrays)
        case "a_list":
            np.savez(path, **{"header.json": np.frombuffer(b"[1]", np.uint8)}, **arrays)
        case "other_shapes":
            np.savez(path, **{"header.json": header}, **{n: np.zeros(3) for n in arrays})


SPOILED = ["empty", "cut", "text", "flipped", "no_header", "other_names", "no_run", "a_list", "other_shapes"]


@pytest.mark.parametrize("how", SPOILED)
def test_a_corrupted_memory_file_counts_as_none(how, tmp_path):
    first, second = faps_request(3), faps_request(4)
    PCAClient(SHARDS[0], context=context(), memory_dir=tmp_path).fit(*first)
    (path,) = (path for path in tmp_path.glob("*.npz") if "-run-" in path.name)
    spoil_file(path, how)
    answer = PCAClient(SHARDS[0], context=context(), memory_dir=tmp_path).fit(*second)
    assert "refusal" not in answer[2]
    assert np.array_equal(answer[0][0], PCAClient(SHARDS[0], context=context()).fit(*second)[0][0])


@pytest.mark.parametrize("n_nodes", [5, 8])
def test_rows_are_loaded_once_per_node(n_nodes):
    loaded, shards = [], unequal(n_nodes)

    def load(context):
        loaded.append(context.node_id)
        return shards[context.node_config["partition-id"]]

    grid = FakeGrid(client_app(load), n_nodes)
    strategies.Krylov(n_components=2, reconstruction_error=True).fit(grid)
    assert sorted(loaded) == sorted(grid.nodes)


@pytest.mark.parametrize("kind", ["sparse", "local", "single", "ints", "lists"])
def test_kinds_of_rows(kind):
    make = {
        "sparse": sparse.csr_array,
        "local": LocalData,
        "single": lambda X: X.astype(np.float32),
        "ints": lambda X: np.round(10 * X).astype(int),
        "lists": lambda X: X.tolist(),
    }[kind]
    shards = [make(X) for X in SHARDS]
    result = strategies.Krylov(n_components=2).fit(grid_of(shards))
    reference = simulate("krylov", SHARDS if kind == "local" else shards, n_components=2)
    assert np.array_equal(result.components_, reference.components_)


def nan_rows(X):
    return np.where(np.arange(len(X))[:, None] == 3, np.nan, X)


BAD_ROWS = {
    "nan": (nan_rows, "The data of this node has 10 missing values (NaN)."),
    "strings": (lambda X: X.astype(str), "The data of this node must be"),
    "vector": (lambda X: X[0], "The data of this node must be"),
    "empty": (lambda X: X[:0], "The data of this node has no rows"),
    "none": (lambda X: None, "The rows of this node cannot be read from a NoneType."),
    "objects": (lambda X: np.array([[{}]], dtype=object), "The data of this node must be"),
    "columns": (lambda X: X[:, :-1], "do not fit: there are 9 instead of the 10 of the run."),
}


@pytest.mark.slow
@pytest.mark.parametrize("serve", ["client_app", "client_fn"])
@pytest.mark.parametrize("bad", BAD_ROWS)
def test_bad_rows_at_a_node_are_named_at_the_server_and_left_out(bad, serve):
    make, words = BAD_ROWS[bad]
    shards = [make(X) if i == BAD else X for i, X in enumerate(SHARDS)]
    app = ClientApp(client_fn=lambda c: PCAClient(shards[c.node_config["partition-id"]], context=c).to_client())
    grid = FakeGrid(app, 5) if serve == "client_fn" else grid_of(shards)
    result = strategies.Krylov(n_components=2).fit(grid)
    node = str(grid.node(BAD))
    assert words in result.history[0].failures[node]
    assert is_pca_of(result, OTHERS)


def test_rows_that_cannot_be_loaded_are_a_refusal_without_a_path():
    def load(context):
        if context.node_config["partition-id"] == BAD:
            raise FileNotFoundError("rows.npy")
        return SHARDS[context.node_config["partition-id"]]

    grid = FakeGrid(client_app(load), 5)
    result = strategies.Krylov(n_components=2).fit(grid)
    assert "an error (FileNotFoundError), which is in its own log." in result.history[0].failures[str(grid.node(BAD))]
    assert is_pca_of(result, OTHERS)


def test_a_client_whose_rows_have_gaps_tells_how_many_columns_it_has():
    assert PCAClient(nan_rows(SHARDS[0])).get_properties({})["n_features"] == SHARDS[0].shape[1]  # a run may allow NaN
