"""Test rows that change between two honest runs: the difference of their results must not reveal new rows."""

import itertools
import logging
import multiprocessing
import os
import shutil
import stat

import numpy as np
import pandas as pd
import pytest
from builders import write_to_full_disk
from dishonest import Node, RefusedError, Sums, error_of, request, signed
from fake_grid import Context, FakeGrid, RecordDict
from scipy import sparse

from flower_pca import Stream, strategies
from flower_pca.base.files import read
from flower_pca.clients import PCAClient, client_app
from flower_pca.data import sources
from flower_pca.names.table import Table
from flower_pca.rows.frame import Frame

pytestmark = pytest.mark.usefixtures("home")

D = 12
RNG = np.random.default_rng(0)
SHARDS = [RNG.standard_normal((200 + 20 * i, D)) * (0.8 + 0.3 * i) ** np.arange(D) + i for i in range(4)]
X = SHARDS[2]
NEW = RNG.standard_normal(D) * 3
NAMES = tuple("abcdefghijkl")
WIDTHS = {"n": (), "single": (), "rows": (), "sums": (D,), "squares": (D,)}
LOT = {"min_change": 20}
IDS = {**LOT, "id_column": "patient"}
ALL = np.eye(D)
RUNS = itertools.count()


def sums_of(nodes):
    """The honest opening of a masked run: the sums of all rows."""
    for node in nodes:
        node.start()
    return Sums(nodes).sum("summed_opening", {}, WIDTHS, dict.fromkeys(WIDTHS, 0.0))["sums"]


def with_new(rows, count=1):
    return np.vstack([rows, RNG.permutation(np.tile(NEW, (count, 1)) + RNG.standard_normal((count, D)) * (count > 1))])


def people(rows, first=0):
    """A table whose column patient says whose row each is."""
    return pd.DataFrame(rows, columns=list(NAMES)).assign(patient=np.arange(first, first + len(rows)))


def product(rows, folder, frame=None, **more):
    """What a node answers that has just been started with these rows."""
    node = Node(0, rows, memory_dir=folder, **{**LOT, **more})
    return node.ask("ssi", {"Z": ALL}, frame, run=f"run {next(RUNS)}")["Y"]


def second_moments(rows):
    return rows.T @ rows


@pytest.mark.slow
@pytest.mark.parametrize("lot", [None, 20])
def test_one_patient_more_is_not_told_by_two_honest_masked_sums(lot, tmp_path):
    """The recommended rules; without versions the patient's row is the difference, to its last digits."""
    rules = {"min_peers": 2, "min_rows": 20, "max_groups": 1, "max_dropouts": 0, "min_change": lot}
    nodes = signed(tmp_path, SHARDS, **rules)
    before = sums_of(nodes)
    nodes[2].X = with_new(X)
    found = sums_of(nodes) - before
    if lot is None:
        assert error_of(found, NEW) < 1e-9
    else:
        assert np.linalg.norm(found) < 1e-9


@pytest.mark.slow
def test_a_patient_a_day_is_not_told_by_other_groups(tmp_path):
    """The attack of days: with a new budget and a new group for every row more, sums over groups told a single node."""
    nodes = signed(tmp_path, SHARDS, min_peers=2, min_rows=20, max_groups=1, max_dropouts=0)
    Sums(nodes[:3]).product(ALL)
    for node in nodes:
        node.X = with_new(node.X)
        node.start()
    with pytest.raises(RefusedError, match="max-groups and max-dropouts"):
        Sums([nodes[0], nodes[1], nodes[3]]).product(ALL)


SAME = {
    "the same": lambda X: X.copy(),
    "another order": lambda X: X[::-1],
    "single precision": lambda X: X.astype(np.float32),
    "sparse": sparse.csr_array,
    "in another order of memory": np.asfortranarray,
    "half of them last": lambda X: np.roll(X, 50, axis=0),
}


@pytest.mark.parametrize("how", SAME)
@pytest.mark.parametrize("first", SAME)
def test_order_precision_and_storage_are_no_version(first, how, tmp_path):
    before = product(SAME[first](X), tmp_path)
    assert np.array_equal(product(SAME[how](X), tmp_path), before)
    assert ledger(tmp_path)["versions"] == 1


def ledger(folder):
    (file,) = folder.glob("*ledger*.npz")
    return read(file, "ledger of a node", private=True)[0]


def test_a_version_with_names_and_gaps_is_answered_from_as_it_was(tmp_path):
    rows = np.where(RNG.random(X.shape) < 0.05, np.nan, X)
    asked = {"stage": "opening", "arrays": {"peaks": False, "seed": 1, "width": 2, "gaps": True}, "algorithm": "krylov"}
    made = [Table(rows, NAMES), Table(rows[::-1][:, ::-1], NAMES[::-1]), Table(with_new(rows), NAMES)]
    said = [Node(0, of, memory_dir=tmp_path, missing="mean", **LOT).ask(**asked) for of in made]
    for name, a in said[0].items():
        assert all(np.array_equal(other[name], a, equal_nan=True) for other in said)


CHANGES = {  # changes of the rows of a node without ids
    "a row more": lambda X: with_new(X),
    "nineteen rows more": lambda X: with_new(X, 19),
    "twenty rows more": lambda X: with_new(X, 20),
    "a row less": lambda X: X[1:],
    "twenty rows less": lambda X: X[20:],
    "nineteen exchanged": lambda X: with_new(X[19:], 19),
    "twenty exchanged": lambda X: with_new(X[20:], 20),
    "a value": lambda X: np.where(np.arange(X.size).reshape(X.shape) == 7, 1e3, X),
    "a gap": lambda X: np.where(np.arange(X.size).reshape(X.shape) == 7, np.nan, X),
    "a column in other units, and a row more": lambda X: with_new(X) * np.r_[2.54, np.ones(D - 1)],
    "half a column mended, and a row more": lambda X: mended(with_new(X)),
    "a column in other units": lambda X: X * np.r_[2.54, np.ones(D - 1)],
    "all columns in another order, and a row more": lambda X: with_new(X)[:, ::-1],
    "two decimals, and a row more": lambda X: with_new(X).round(2),
    "all of them twice": lambda X: np.vstack([X, X]),
    "one of them twice": lambda X: np.vstack([X, X[:1]]),
}


def mended(rows):
    rows = rows.copy()
    rows[: len(rows) // 2, 3] += 1.0
    return rows


@pytest.mark.parametrize("how", CHANGES)
def test_the_rows_of_a_node_stay_as_they_were_first_answered_from(how, tmp_path, caplog):
    before, rows = product(X, tmp_path), CHANGES[how](X)
    after = product(rows, tmp_path)
    assert ledger(tmp_path)["versions"] == 1
    assert np.array_equal(after, before)
    assert "differ from the copy of the rows from which it has answered. It answers from the copy" in caplog.text
    words = r"The rows of this node have changed since its earlier answers, and its on_small_change is 'refuse'\."
    with pytest.raises(RefusedError, match=words):
        product(rows, tmp_path, on_small_change="refuse")
    assert np.array_equal(product(X, tmp_path, on_small_change="refuse"), before)


def test_a_column_more_hides_no_row_more(tmp_path):
    beside = RNG.standard_normal((len(X) + 1, 1))
    before = product(Table(X, NAMES), tmp_path)
    more = np.hstack([with_new(X), beside])
    with pytest.raises(RefusedError, match="Z of the server's message"):  # The node still has twelve columns.
        Node(0, Table(more, (*NAMES, "m")), memory_dir=tmp_path, **LOT).ask("ssi", {"Z": np.eye(D + 1)})
    assert np.array_equal(product(Table(more, (*NAMES, "m")), tmp_path), before)


ADDED = {  # changes of a table with ids, and whether the last twenty people are added
    "nineteen people": (lambda X: people(with_new(X, 19)), False),
    "twenty people": (lambda X: people(with_new(X, 20)), True),
    "twenty people, and a birthday": (lambda X: people(with_new(X + (np.arange(len(X)) == 3)[:, None], 20)), True),
    "twenty people come, and one goes": (lambda X: people(with_new(X, 20)).iloc[1:], False),
    "twenty-one people come, and one goes": (lambda X: people(with_new(X, 21)).iloc[1:], True),
    "all are known by other numbers, and one comes": (lambda X: people(with_new(X), first=1000), False),
    "all come again by other numbers": (
        lambda X: pd.concat([people(X), people(with_new(X), first=1000)], ignore_index=True),
        False,
    ),
    "one person with twenty rows": (lambda X: people(with_new(X, 20)).assign(patient=cut), False),
    "twenty people, and a column less": (lambda X: people(with_new(X, 20)).drop(columns="d"), False),
    "twenty people, and capital letters": (lambda X: people(with_new(X, 20)).rename(columns=capital), False),
}


def cut(table):
    return np.minimum(table["patient"], len(X))


def capital(name):
    return name if name == "patient" else name.upper()


@pytest.mark.parametrize("how", ADDED)
def test_people_are_added_in_lots_and_nobody_who_is_there_changes(how, tmp_path):
    change, released = ADDED[how]
    before, table = product(people(X), tmp_path, **IDS), change(X)
    after = product(table, tmp_path, **IDS)
    assert ledger(tmp_path)["versions"] == 1 + released
    if released:
        new = table[list(NAMES)].to_numpy()[np.array(table["patient"]) >= len(X)]
        assert error_of(after - before, second_moments(new)) < 1e-9
    else:
        assert np.array_equal(after, before)
    assert np.array_equal(product(table, tmp_path, **IDS), after)


def test_a_lot_has_to_be_what_a_table_has_to_be(tmp_path):
    """Of twenty who come one has another code than the others: the difference would be that person's row."""
    coded = np.where(np.arange(D) == 4, np.arange(len(X))[:, None] % 2, X)
    rules = {**IDS, "min_rows": 20, "min_change": 20}
    before = product(people(coded), tmp_path, **rules)
    lot = RNG.standard_normal((20, D))
    lot[:, 4] = np.arange(20) == 0
    assert np.array_equal(product(people(np.vstack([coded, lot])), tmp_path, **rules), before)
    lot[:, 4] = 0.0
    assert error_of(product(people(np.vstack([coded, lot])), tmp_path, **rules) - before, second_moments(lot)) < 1e-9


GAPS = {  # a column of the present people and of forty newcomers, one of whom has a missing value
    "of the same code one who comes has none": (np.arange(len(X)) % 2 * 1.0, np.where(np.arange(40) == 7, np.nan, 0.0)),
    "of the same code one who is there has none": (np.where(np.arange(len(X)) == 7, np.nan, 0.0), np.ones(40)),
    "of a few codes some who come have none": (
        np.arange(len(X)) % 2 * 1.0,
        np.where(np.arange(40) < 20, np.nan, np.arange(40) % 3),
    ),
}


@pytest.mark.parametrize("how", GAPS)
def test_the_mean_that_fills_a_gap_and_moves_with_a_lot_tells_nobody(how, tmp_path):
    """The products of the column were the sums of a lot, whose codes are known, and the row with the gap."""
    there, more = GAPS[how]
    rows, lot = X.copy(), RNG.standard_normal((40, D))
    rows[:, 4], lot[:, 4] = there, more
    frame = Frame(mean=np.zeros(D), own=True)
    before = product(people(rows), tmp_path, frame, **IDS)
    assert np.array_equal(product(people(np.vstack([rows, lot])), tmp_path, frame, **IDS), before)


def test_gaps_in_a_column_of_many_values_keep_nobody_out(tmp_path):
    rows, lot = X.copy(), RNG.standard_normal((40, D))
    rows[3, 4], lot[7, 4] = np.nan, np.nan
    for table in (rows, np.vstack([rows, lot])):
        product(people(table), tmp_path, Frame(own=True), **IDS)
    assert ledger(tmp_path)["versions"] == 2


@pytest.mark.parametrize("few", [1, 19])
def test_a_column_that_told_of_few_people_is_in_no_run_after_a_lot(few, tmp_path):
    """Of those who come the code f is known by another one, g: the sum over f less that was one over the few before."""
    table = people(X).assign(f=(np.arange(len(X)) < few) * 1.0, g=np.arange(len(X)) % 2 * 1.0)
    lot = people(RNG.standard_normal((40, D)), len(X)).assign(f=np.arange(40) % 2 * 1.0, g=np.arange(40) % 2 * 1.0)
    rules = {**IDS, "min_rows": 20, "memory_dir": tmp_path}
    names = tuple(name for name in "abcdefghijkl" if name not in "fg")

    def sums(node, name):
        frame = Frame(names=(*names, name))
        return node.ask("ssi", {"Z": np.eye(len(names) + 1)[:, -1:]}, frame, run=f"run {next(RUNS)}")["Y"][:-1, 0]

    before = sums(Node(0, table, **rules), "g")
    later = Node(0, pd.concat([table, lot], ignore_index=True), **rules)
    new = lot[[*names]].to_numpy()
    assert error_of(sums(later, "g") - before, new.T @ lot["g"].to_numpy()) < 1e-9
    for node in (later, Node(0, table, **rules)):
        with pytest.raises(RefusedError, match="A column of this node reveals fewer rows"):
            sums(node, "f")
    allowed = Node(0, table, **rules, allow_sparse_columns="f")
    carriers = X[:few][:, ["abcdefghijkl".index(name) for name in names]]
    assert error_of(sums(allowed, "f") - (sums(allowed, "g") - before), carriers.sum(axis=0)) < 1e-9


def test_people_who_are_there_under_second_ids_and_in_other_units_are_a_lot_with_whoever_is_new(tmp_path):
    """What the page says of second ids: the node cannot see that the person who is new came alone."""
    before = product(people(X), tmp_path, **IDS)
    again = people(np.vstack([10.0 * X, NEW[None]]), first=1000)
    after = product(pd.concat([people(X), again]), tmp_path, **IDS)
    assert error_of(after - before - 100.0 * second_moments(X), second_moments(NEW[None])) < 1e-6


def test_a_lot_in_which_one_has_a_gap_is_not_added_if_the_server_chooses_what_fills_gaps(tmp_path):
    """Two fills tell the sum of the rows with a gap: of the people in both versions, and so of those who came."""
    rules = {**IDS, "min_rows": 20, "min_change": 20}
    gaps = X.copy()
    gaps[:30, 4] = np.nan
    for missing, gap, added in (("mean", 1, False), ("mean", 20, True), ("local_mean", 1, True)):
        folder = tmp_path / f"{missing} {gap}"
        lot = RNG.standard_normal((40, D))
        lot[:gap, 4] = np.nan
        for rows in (gaps, np.vstack([gaps, lot])):
            product(people(rows), folder, Frame(own=True), missing=missing, **rules)
        assert ledger(folder)["versions"] == 1 + added


def test_ids_are_those_of_the_column_that_the_operator_names(tmp_path):
    with pytest.raises(RefusedError, match="cannot read its rows or its rules"):
        product(pd.DataFrame(X, columns=list(NAMES)), tmp_path, **IDS)
    np.savetxt(
        tmp_path / "x.csv", people(X).to_numpy(), delimiter=",", header=",".join([*NAMES, "patient"]), comments=""
    )
    read = sources.make(str(tmp_path / "x.csv"), ids="patient")
    assert error_of(product(read, tmp_path / "memory", **IDS), second_moments(X)) < 1e-9


def test_a_node_with_a_copied_folder_answers_from_the_copied_rows_if_it_has_the_partition_id_too(tmp_path):
    """What the page on backups says of a second node: another partition-id has other files in the folder."""
    before = product(X, tmp_path / "mine")
    shutil.copytree(tmp_path / "mine", tmp_path / "copied")
    other = Node(1, SHARDS[1], memory_dir=tmp_path / "copied", **LOT).ask("ssi", {"Z": ALL}, run="of another")["Y"]
    assert error_of(other, second_moments(SHARDS[1])) < 1e-9
    assert np.array_equal(product(SHARDS[1], tmp_path / "copied"), before)


def test_fewer_rows_than_a_lot_are_not_answered_from_at_all(tmp_path):
    with pytest.raises(
        RefusedError, match=r"needs at least 20 rows for its first answer \(its min_change\), but has fewer"
    ):
        product(X[:19], tmp_path)
    assert error_of(product(X[:20], tmp_path), second_moments(X[:20])) < 1e-9


def test_what_is_released_is_its_owners(tmp_path):
    product(X, tmp_path)
    assert stat.S_IMODE((tmp_path / "flower_pca-rows-0.npz").stat().st_mode) == 0o600


def test_no_mark_of_a_table_can_be_guessed(tmp_path):
    """Marks are digests with a key of the folder."""
    for folder in ("a", "b"):
        product(X, tmp_path / folder)
    mine, others = (ledger(tmp_path / folder)["marks"][0][1:] for folder in "ab")
    assert len(mine) > 9
    assert not set(mine) & set(others)


@pytest.mark.parametrize("what", ["cut", "empty", "gone", "an older one"])
def test_a_damaged_version_is_no_permission(what, tmp_path):
    product(people(X), tmp_path, **IDS)
    file = tmp_path / "flower_pca-rows-0.npz"
    whole = file.read_bytes()
    product(people(with_new(X, 20)), tmp_path, **IDS)
    kept = {"cut": file.read_bytes()[:1000], "empty": b"", "an older one": whole}
    file.unlink()
    if what in kept:
        file.write_bytes(kept[what])
        file.chmod(0o600)
    for rows in (X, with_new(X)):
        with pytest.raises(RefusedError, match=r"rows-0\.npz of this node (is gone|is older than|is damaged)"):
            product(people(rows), tmp_path, **IDS)


def test_a_full_disk_releases_nothing(tmp_path, monkeypatch):
    before = product(people(X), tmp_path, **IDS)

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", write_to_full_disk)
        with pytest.raises(RefusedError, match=r"This node cannot answer because of an error \(OSError"):
            product(people(with_new(X, 20)), tmp_path, **IDS)
    assert np.array_equal(product(people(X), tmp_path, **IDS), before)
    assert ledger(tmp_path)["versions"] == 1


def test_a_run_that_goes_on_over_a_change_of_version_is_refused(tmp_path):
    """Else its messages would be of two versions; a run that is under way in a process keeps the rows that it has."""
    under_way = Node(0, people(X), memory_dir=tmp_path, **IDS)
    before = under_way.ask("ssi", {"Z": ALL}, run="first")["Y"]
    later = Node(0, people(with_new(X, 20)), memory_dir=tmp_path, **IDS)
    assert not np.array_equal(later.ask("ssi", {"Z": ALL}, run="second")["Y"], before)
    assert np.array_equal(under_way.ask("ssi", {"Z": ALL}, run="first")["Y"], before)
    with pytest.raises(RefusedError, match=r"The rows of this node have changed since the run began\. Start the run"):
        later.ask("ssi", {"Z": ALL}, run="first")
    with pytest.raises(RefusedError, match="have changed since the run began"):
        under_way.ask("ssi", {"Z": ALL}, run="second")


@pytest.mark.slow
@pytest.mark.parametrize("hosted", [None, "stacked"])
def test_versions_hold_over_flowers_transports(hosted, lines, tmp_path):
    """On a fake grid, on a node that hosts clients, and in process, where there is no context."""
    rows = {0: people(X), 1: people(SHARDS[1])}
    more = {} if hosted is None else {"hosted": hosted}

    def fit():
        hosts = None if hosted is None else (lambda context: [0, 1])
        load = lambda context: rows[context.node_config["partition-id"]]  # noqa: E731
        app = client_app(load, hosts=hosts, memory_dir=tmp_path, **IDS)
        grid = FakeGrid(app, 2 if hosted is None else 1)
        return strategies.Covariance(n_components=2, **more).fit(grid)

    before = fit()
    rows[0] = people(with_new(X))
    after = fit()
    assert after.n_samples_ == before.n_samples_
    assert np.array_equal(after.mean_, before.mean_)
    rows[0] = people(with_new(X, 20))
    assert fit().n_samples_ == before.n_samples_ + 20
    asked = request("ssi", {"Z": ALL}, algorithm="ssi")
    answers = [PCAClient(of, min_change=20).fit(*asked)[0][0] for of in (X, with_new(X))]
    assert np.array_equal(*answers)


def test_batches_of_a_stream_are_no_versions_and_the_node_says_so(tmp_path, caplog):
    context = Context(1, 7, {"partition-id": 0}, RecordDict(), {})
    with caplog.at_level(logging.WARNING, "flwr"):
        client = PCAClient(Stream(X, batch=50), context=context, memory_dir=tmp_path, allow=["st_miss"], **LOT)
        client.get_properties({})
    assert "min_change does not protect a Stream" in caplog.text


def table_of_wards(more):
    """19 patients of burns, whose level is too rare to be told, and so many more."""
    rng = np.random.default_rng(5)
    wards = ["eye"] * 50 + ["icu"] * 51 + ["burns"] * 19
    rows = {name: rng.standard_normal(120) for name in ("age", "weight")}
    more_rows = {name: np.append(column, np.full(more, 50.0)) for name, column in rows.items()}
    return pd.DataFrame({**more_rows, "ward": wards + ["burns"] * more})


@pytest.mark.parametrize("change", ["comes", "moves"])
def test_a_level_that_one_patient_makes_known_releases_no_version(change, tmp_path):
    """All of its patients are coded anew then: twenty rows of which one has changed, and the difference is that one."""
    node = Node(0, table_of_wards(0), min_rows=20, min_change=20, categorical="ward", memory_dir=tmp_path)
    names = ("age", "weight", "ward=eye", "ward=icu")

    def told():
        node.start()
        return node.ask(
            "covariance", {"columns": 4}, Frame(names=names), run=f"run {next(RUNS)}", algorithm="covariance"
        )["C"]

    before = told()
    node.X = table_of_wards(1 if change == "comes" else 0)
    if change == "moves":
        node.X.loc[0, "ward"] = "burns"
    np.testing.assert_array_equal(told(), before)
    node.X = table_of_wards(20)
    np.testing.assert_array_equal(told(), before)


def answered_at_once(tables, folder):
    """How many rows the answers are of that processes give at once, each with another of these files."""
    make = multiprocessing.get_context("fork")
    barrier, out = make.Barrier(len(tables)), make.Queue()

    def work(place, rows):
        node = Node(0, rows, memory_dir=folder, **IDS)
        barrier.wait()
        _, n, metrics = node.client.fit(*request("ssi", {"Z": np.eye(D)[:, :1]}, run=f"{len(tables)} {place}"))
        out.put(None if "refusal" in metrics else n)

    processes = [make.Process(target=work, args=each) for each in enumerate(tables)]
    for process in processes:
        process.start()
    found = [out.get(timeout=300) for _ in processes]
    for process in processes:
        process.join(300)
    return [n for n in found if n is not None]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("trial", range(3))
def test_processes_with_other_files_at_once_answer_from_one_version(trial, tmp_path):
    """Or from two, one after the other: of 25 who come, and of 24 of these, only one lot is added."""
    rows = (
        pd.DataFrame(np.random.default_rng(trial).standard_normal((85, D)))
        .add_prefix("c")
        .assign(patient=np.arange(85))
    )
    first = {*answered_at_once([rows[:60], rows[:59]], tmp_path)}
    assert first in ({60}, {59})
    added = {*answered_at_once([rows, rows[:84], rows.drop(index=60)], tmp_path)} - first
    assert len(added) == 1
    assert min(added) - min(first) >= 20
