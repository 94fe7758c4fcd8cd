"""Test that the ledger counts noise, messages and directions over all runs, whatever a server calls them."""

import multiprocessing
import os
import stat
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from builders import write_to_full_disk
from dishonest import Node, RefusedError, Sums, request, signed
from fake_grid import Context, FakeGrid, RecordDict
from scipy import sparse

from flower_pca import strategies
from flower_pca.base import files as base_files
from flower_pca.clients import PCAClient, client_app
from flower_pca.clients.policy.refusals import RefusalError
from flower_pca.clients.storage import ledger
from flower_pca.dp.gaussian import epsilon_of, noise_of
from flower_pca.names.table import Table

pytestmark = pytest.mark.usefixtures("home")

D = 12
RNG = np.random.default_rng(3)
SHARDS = [RNG.standard_normal((80 + 5 * i, D)) * 0.8 ** np.arange(D) + 0.3 * RNG.standard_normal(D) for i in range(5)]
X = SHARDS[0]
ONE = np.eye(D)[:, :1]
CLIP, NOISE = 5.0, 3.0
NOISED = {"Z": ONE, "dp.clip": CLIP, "dp.noise": NOISE * CLIP**2, "dp.budget": 1e-3}


def answered_first(ask, most):
    """How many of so many messages are answered before the first refusal, and what that says."""
    for number in range(most):
        try:
            ask(number)
        except RefusedError as error:
            return number, str(error)
    return most, ""


def ask_once(node, number):
    node.ask("ssi", {"Z": ONE}, number=number)


@pytest.mark.parametrize("folder", [True, False])
def test_noise_is_not_averaged_away_under_changing_names_of_runs(folder, tmp_path, home):
    """The deviation of a mean over T answers is that of one over sqrt(T): epsilon follows from all of them together."""
    rules = {"max_epsilon": 2.0, "max_delta": 1e-6, "max_clip": CLIP}
    rules |= {"memory_dir": tmp_path / "own"} if folder else {}
    node = Node(0, X, **rules)

    def ask(number):
        if number % 3 == 0:
            node.start()  # Start a new run of Flower.
        node.ask("ssi", {**NOISED, "dp.budget": noise_of(2.0, 1e-6) ** 2}, run=f"r{number % 7}", number=number)

    count, words = answered_first(ask, 100)
    fits = [t for t in range(1, 101) if epsilon_of(np.sqrt(t) / NOISE, 1e-6) <= 2.0]
    assert count == max(fits) < 100
    assert "the node would spend more privacy budget than its max_epsilon allows: 2 at delta 1e-06." in words
    (file,) = ((tmp_path / "own") if folder else home / ".flower_pca").glob("*ledger*.npz")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_budget_can_be_spent_to_the_end():
    """A third of it with each message is all of it with three."""
    node, noise = Node(0, X, max_epsilon=2.0, max_delta=1e-6), np.sqrt(3.0) / noise_of(2.0, 1e-6)
    message = {**NOISED, "dp.noise": noise * CLIP**2, "dp.budget": noise_of(2.0, 1e-6) ** 2}
    assert answered_first(lambda number: node.ask("ssi", message, number=number), 5)[0] == 3


def test_another_single_peer_is_another_group():
    book = ledger.Ledger()
    book.admit(frozenset([b"x"]), most=(1, 0))
    with pytest.raises(RefusalError, match="but this sum has another group"):
        book.admit(frozenset([b"y"]), most=(1, 0))


def test_a_run_cannot_name_a_budget_beyond_that_of_the_node():
    node = Node(0, X, max_epsilon=2.0, max_delta=1e-6)
    with pytest.raises(RefusedError, match="privacy budget is larger than this node allows: max_epsilon=2 at"):
        node.ask("ssi", {**NOISED, "dp.budget": 1e9})
    with pytest.raises(RefusedError, match=r"answers only with noise, but the message does not ask for noise"):
        node.ask("ssi", {"Z": ONE})


CHANGED = {
    "the same": lambda X: X,
    "a row less": lambda X: X[:-1],
    "a row more": lambda X: np.vstack([X, X[0] + 1.0]),
    "other values": lambda X: X + 1.0,
    "other rows": lambda X: RNG.standard_normal((300, D)),
    "another order": lambda X: X[::-1],
    "single precision": lambda X: X.astype(np.float32),
    "sparse": lambda X: sparse.csr_array(X),
    "in another order of memory": np.asfortranarray,
    "with a gap": lambda X: np.where(np.arange(X.size).reshape(X.shape) == 5, np.nan, X),
    "named": lambda X: Table(X, tuple("abcdefghijkl")),
}


@pytest.mark.parametrize("how", CHANGED)
@pytest.mark.parametrize("folder", [True, False])
def test_rows_that_change_are_no_new_budget(how, folder, tmp_path, monkeypatch):
    """Nor is another place for Flower's own state."""
    rules = {"max_messages_ever": 2, "memory_dir": tmp_path / "own"} if folder else {"max_messages_ever": 2}
    assert answered_first(partial(ask_once, Node(0, X, **rules)), 5)[0] == 2
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "another"))
    assert answered_first(partial(ask_once, Node(0, CHANGED[how](X), **rules)), 5)[0] == 0


def test_a_ledger_is_written_when_it_has_changed_and_only_then(tmp_path):
    """A write is one to the card of a small board, and waits for it."""
    path = tmp_path / "ledger.npz"
    change = [
        lambda book: None,  # a new ledger exists after the first look
        lambda book: None,
        lambda book: setattr(book, "columns", 3),
        lambda book: book.runs.update(a=1),
        lambda book: book.runs.update(a=2),
        lambda book: book.admit(frozenset([b"x", b"y"]), most=(1, 1)),
        lambda book: book.admit(frozenset([b"x", b"y"]), most=(1, 1)),
        lambda book: book.admit(frozenset([b"x"]), most=(1, 1)),
    ]
    seen = []
    for act in change:
        with ledger.open_ledger(path) as book:
            act(book)
        seen.append((path.stat().st_ino, path.stat().st_mtime_ns))
        with ledger.open_ledger(path) as book:
            kept = book.to_json()
    written = [later != now for now, later in pairwise(seen)]
    assert written == [False, True, True, True, True, False, True]
    assert kept["groups"] == [[["78", "79"], ["79"], 0]]
    assert (kept["columns"], kept["runs"]) == (3, {"a": 2})


@pytest.mark.slow
def test_neither_a_new_node_id_nor_another_transport_is_a_new_budget(lines, tmp_path):
    """A server chooses the ids of nodes: no name of a ledger is made of one."""
    rules = {"max_messages_ever": 2, "memory_dir": tmp_path}
    asked = request("ssi", {"Z": ONE}, algorithm="ssi")
    context = partial(Context, 1, node_config={}, state=RecordDict(), run_config={})
    clients = [PCAClient(X, context=context(node_id=i), **rules) for i in (7, 8, 9)]
    assert ["refusal" in client.fit(*asked)[2] for client in clients] == [False, False, True]
    alone = PCAClient(X, max_messages_ever=2)  # a client in this process, without a context
    assert ["refusal" in alone.fit(*asked)[2] for _ in range(3)] == [False, False, True]
    spent = []
    for _ in range(2):
        hosted = client_app(lambda context: X, hosts=lambda context: [0, 1], max_columns=1000, memory_dir=tmp_path)
        strategies.SSI(n_components=1, oversample=0, max_rounds=1, hosted="stacked").fit(FakeGrid(hosted, 1))
        (file,) = tmp_path.glob("*ledger-0.npz")
        spent.append(base_files.read(file, "ledger of a node", private=True)[0]["columns"])
    assert spent[1] == 2 * spent[0] > 0
    assert {file.name for file in tmp_path.glob("*ledger*.npz")} == {
        f"flower_pca-ledger-{name}.npz" for name in ("node", "0", "1")
    }


def test_data_that_its_operator_names_has_one_ledger_whichever_node_serves_it(tmp_path):
    rules = {"max_messages_ever": 2, "memory_dir": tmp_path, "data_name": "cohort-2024"}
    assert answered_first(partial(ask_once, Node(0, X, **rules)), 5)[0] == 2
    assert answered_first(partial(ask_once, Node(1, X[:-1], **rules)), 5)[0] == 0
    rules["data_name"] = "another"
    assert answered_first(partial(ask_once, Node(1, X[:-1], **rules)), 5)[0] == 2


def test_a_full_disk_is_no_permission(tmp_path, monkeypatch):
    rules = {"max_columns": 2, "memory_dir": tmp_path}
    node = Node(0, X, **rules)
    ask_once(node, 0)

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", write_to_full_disk)
        with pytest.raises(RefusedError, match=r"This node cannot answer because of an error \(OSError"):
            ask_once(node, 1)
    assert answered_first(partial(ask_once, node), 5)[0] == 1


@pytest.mark.parametrize("most", [None, D - 1])
def test_half_of_c_plainly_and_half_under_masks_are_counted_together(most, tmp_path):
    """One peer that the server invents, rows of zeros, unmasks the second half: that of a rule per way was all of C."""
    node, halves = Node(0, X, max_columns=most, memory_dir=tmp_path), np.hsplit(np.eye(D), 2)
    told = [node.ask("ssi", {"Z": halves[0]})["Y"]]
    node.start()
    sums = Sums([node, Node(1, np.zeros((2, D)))])
    if most is None:
        found = np.hstack([*told, sums.product(halves[1])])
        assert np.linalg.norm(found - X.T @ X) < 1e-9 * np.linalg.norm(X.T @ X)
        return
    with pytest.raises(RefusedError, match="but its max_columns is"):
        sums.product(halves[1])


def test_messages_are_counted_over_all_runs():
    node = Node(0, X, max_messages_ever=3)

    def ask(number):
        node.start()
        node.ask("ssi", {"Z": ONE}, run=f"r{number}", number=number)

    count, words = answered_first(ask, 10)
    assert count == 3
    assert "This node has answered 3 messages, which is its max_messages_ever" in words


REFUSED = {
    "too few rows": ({"min_rows": 1000}, {"Z": ONE}, "fewer rows than its min_rows, 1000"),
    "a block that is none": ({}, {"Z": np.full((D, 1), 1e80)}, "entries above 1e"),
    "of other columns": (
        {},
        {"Z": np.eye(D + 1)[:, :1]},
        "This node has 12 columns, but the array Z of the server's message is for 13",
    ),
    "beyond the columns": ({"max_columns": 1}, {"Z": np.eye(D)[:, :2]}, "max_columns"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_refused_messages_are_counted(how):
    """Else a refusal that hangs on the rows could be asked for without end."""
    rules, asked, words = REFUSED[how]
    node = Node(0, X, max_messages_ever=3, **rules)
    for _ in range(3):
        node.start()
        with pytest.raises(RefusedError, match=words):
            node.ask("ssi", asked)
    with pytest.raises(RefusedError, match="which is its max_messages_ever"):
        node.ask("ssi", asked)


@pytest.mark.slow
def test_colluders_that_the_server_does_not_name_weaken_no_noise(tmp_path):
    """Of five clients three are needed; two may collude: the noise is to be whole with the one that is left."""
    bounds = {"Y": 1.0, "n": 1.0}
    asked = {**NOISED, "dp.budget": 10.0}
    for among, colluders, words in (
        (3, 2, "may see a sum of only 1 answer"),
        (3, 3, "3 may collude with the server according to this node's max_colluders"),
        (4, 0, "may see a sum of only 3 answers"),
    ):
        nodes = signed(tmp_path / f"{among}-{colluders}", SHARDS, max_colluders=colluders)
        with pytest.raises(RefusedError, match=words):
            Sums(nodes).sum("ssi", asked, {"Y": (D, 1), "n": ()}, bounds, beside={"dp.among": among})


def work(place, rules, asked, barrier, out):
    client = PCAClient(X, context=Node(0, X).context, **rules)
    parameters, config = asked
    barrier.wait()
    out.put((place, client.fit(parameters, config)[2].get("refusal")))


def race(rules, asked):
    """What a node says to two messages at once, in processes of their own."""
    make = multiprocessing.get_context("fork")
    barrier, out = make.Barrier(2), make.Queue()
    both = [make.Process(target=work, args=(i, rules, asked[i], barrier, out)) for i in range(2)]
    for process in both:
        process.start()
    said = dict(out.get(timeout=300) for _ in both)
    for process in both:
        process.join(300)
    return [said[i] for i in range(2)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("trial", range(4))
def test_two_processes_cannot_spend_the_same_budget(trial, tmp_path):
    rules = {"max_columns": 2, "memory_dir": tmp_path}
    Q = np.linalg.qr(np.random.default_rng(trial).standard_normal((D, 4)))[0]
    said = race(rules, [request("ssi", {"Z": Q[:, 2 * i : 2 * i + 2]}, run=str(i)) for i in range(2)])
    assert sum(words is None for words in said) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("trial", range(3))
def test_two_processes_cannot_give_both_shares_of_a_peer(trial, tmp_path):
    rules = {"masked_only": True, "memory_dir": tmp_path}
    nodes = [Node(i, S, masked_only=True, memory_dir=tmp_path) for i, S in enumerate(SHARDS[:3])]
    sums = Sums(nodes)
    sums.group.begin_sum(range(3))
    about = {"mask.stage": np.frombuffer(b"ssi", np.uint8), "mask.clients": 3, "mask.number": 0}
    bounds = {"mask.bound.Y": 1e6, "mask.bound.n": 1e6}
    for i in range(3):
        sums.send(i, {"mask.step": 2, "Z": ONE, **about, **bounds, **sums.group.upload_message(i)})
    lie = {"mask.step": 3, "mask.setup": sums.setup, "mask.number": 0}
    lies = [{"mask.survived": [1, 2], "mask.dropped": []}, {"mask.survived": [2], "mask.dropped": [1]}]
    lies = [{name: np.array(a, dtype=np.int64) for name, a in each.items()} for each in lies]
    said = race(rules, [request("masked", {**lie, **each}, run=sums.run, number=9, algorithm="ssi") for each in lies])
    assert sum(words is None for words in said) == 1


def test_what_a_node_keeps_is_its_own(tmp_path):
    before = os.umask(0o022)
    try:
        folders = {"output_dir": tmp_path / "own", "memory_dir": tmp_path / "memory"}
        node = Node(0, X, **folders, max_columns=12, allow="consensus_rpca")
        low = {"U": np.eye(D)[:, :2], "lam": 0.5, "rho": 0.0, "sigma": 1.0}
        node.ask("low_rank", low, algorithm="consensus_rpca")
    finally:
        os.umask(before)
    files = [*(tmp_path / "own").iterdir(), *(tmp_path / "memory").iterdir()]
    # 5 files: they include the key of marks and the files of runs
    assert len([file for file in files if file.suffix == ".npz"]) == 5
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("own", "memory")} == {0o700}


def test_a_ledger_that_cannot_be_read_is_no_permission(tmp_path):
    rules = {"max_messages_ever": 5, "memory_dir": tmp_path}
    Node(0, X, **rules).ask("ssi", {"Z": ONE})
    (file,) = tmp_path.glob("*ledger*.npz")
    whole = file.read_bytes()
    base_files.write(file, "ledger of a node", {"answered": 0}, {})
    for content in (whole[: len(whole) // 2], b"", file.read_bytes()):
        file.write_bytes(content)
        with pytest.raises(RefusedError, match=r"ledger-.*\.npz of this node is damaged, or another program wrote it"):
            Node(0, X, **rules).ask("ssi", {"Z": ONE})


def test_a_system_that_cannot_lock_files_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(base_files, "fcntl", None)
    with pytest.raises(RefusedError, match=r"This system \(\w+\) cannot lock files"):
        Node(0, X, memory_dir=tmp_path).ask("ssi", {"Z": ONE})
    assert Node(0, X).ask("ssi", {"Z": ONE})["Y"].shape == (D, 1)
    with base_files.lock(tmp_path / "file", wait=False):  # The lock file is created and deleted, as for a checkpoint.
        assert list(tmp_path.iterdir()) == []
