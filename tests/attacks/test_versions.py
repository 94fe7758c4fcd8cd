"""Rows that change a little between two honest runs: who has both results would have the rows that have come."""

import errno
import itertools
import logging
import os
import stat
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from cases import every
from dishonest import Node, RefusedError, Sums, error_of, request, signed
from fake_grid import Context, FakeGrid, RecordDict
from scipy import sparse

from flower_pca import Stream, strategies
from flower_pca.base.files import read
from flower_pca.clients import PCAClient, client_app
from flower_pca.clients.books.versions import difference
from flower_pca.names.sites import SiteRows
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
ALL = np.eye(D)
RUNS = itertools.count()


def sums_of(nodes):
    """The honest opening of a masked run: the sums of all rows."""
    for node in nodes:
        node.start()
    return Sums(nodes).sum("summed_opening", {}, WIDTHS, dict.fromkeys(WIDTHS, 0.0))["sums"]


def with_new(rows, count=1):
    return np.vstack([rows, RNG.permutation(np.tile(NEW, (count, 1)) + RNG.standard_normal((count, D)) * (count > 1))])


def product(rows, folder, **more):
    """What a node answers that has just been started with these rows."""
    node = Node(0, rows, memory_dir=folder, **{**LOT, **more})
    return node.ask("ssi", {"Z": ALL}, run=f"run {next(RUNS)}")["Y"]


def second_moments(rows):
    return rows.T @ rows


@pytest.mark.slow
@pytest.mark.parametrize("lot", [None, 20])
def test_one_patient_more_is_not_told_by_two_honest_masked_sums(lot, tmp_path):
    """The recommended rules; without versions the patient's row is the difference, to its last digits."""
    rules = {"min_peers": 2, "min_rows": 20, "max_groups": 1, "max_lost": 0, "min_change": lot}
    nodes = signed(tmp_path, SHARDS, **rules)
    before = sums_of(nodes)
    nodes[2].X = with_new(X)
    found = sums_of(nodes) - before
    if lot is None:
        assert error_of(found, NEW) < 1e-9
    else:
        assert np.linalg.norm(found) < 1e-9
    nodes[2].X = with_new(X, 20)
    assert error_of(sums_of(nodes) - before, nodes[2].X[len(X) :].sum(axis=0)) < 1e-9


@pytest.mark.slow
def test_a_patient_a_day_is_not_told_by_other_groups(tmp_path):
    """The attack of days: with a new budget and a new group for every row more, sums over groups told a single node."""
    nodes = signed(tmp_path, SHARDS, min_peers=2, min_rows=20, max_groups=1, max_lost=0)
    Sums(nodes[:3]).product(ALL)
    for node in nodes:
        node.X = with_new(node.X)
        node.start()
    with pytest.raises(RefusedError, match="max_groups and max_lost"):
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
    made = [SiteRows(rows, NAMES), SiteRows(rows[::-1][:, ::-1], NAMES[::-1]), SiteRows(with_new(rows), NAMES)]
    said = [Node(0, of, memory_dir=tmp_path, missing="mean", **LOT).ask(**asked) for of in made]
    for name, a in said[0].items():
        assert all(np.array_equal(other[name], a, equal_nan=True) for other in said)


CHANGES = {  # what becomes of the rows; and what a node whose min_change is 20 then answers from
    "a row more": (lambda X: with_new(X), False),
    "nineteen rows more": (lambda X: with_new(X, 19), False),
    "twenty rows more": (lambda X: with_new(X, 20), True),
    "a row less": (lambda X: X[1:], False),
    "twenty rows less": (lambda X: X[20:], True),
    "nineteen exchanged": (lambda X: with_new(X[19:], 19), False),
    "twenty exchanged": (lambda X: with_new(X[20:], 20), True),
    "a value": (lambda X: np.where(np.arange(X.size).reshape(X.shape) == 7, 1e3, X), False),
    "a gap": (lambda X: np.where(np.arange(X.size).reshape(X.shape) == 7, np.nan, X), False),
    "a column in other units, and a row more": (lambda X: with_new(X) * np.r_[2.54, np.ones(D - 1)], False),
    "half a column mended, and a row more": (lambda X: mended(with_new(X)), False),
    "a column in other units": (lambda X: X * np.r_[2.54, np.ones(D - 1)], True),
    "all of them twice": (lambda X: np.vstack([X, X]), True),
    "one of them twice": (lambda X: np.vstack([X, X[:1]]), False),
}


def mended(rows):
    rows = rows.copy()
    rows[: len(rows) // 2, 3] += 1.0
    return rows


@pytest.mark.parametrize("how", CHANGES)
def test_rows_are_released_in_lots(how, tmp_path, caplog):
    change, released = CHANGES[how]
    before, rows = product(X, tmp_path), change(X)
    after = product(rows, tmp_path)
    assert ledger(tmp_path)["versions"] == 1 + released
    if released:
        assert error_of(after, second_moments(rows)) < 1e-9
        return
    assert np.array_equal(after, before)
    assert "answers from these" in caplog.text
    words = r"The rows of this node must be those that it has answered from, or at least 20 apart.* Got others"
    with pytest.raises(RefusedError, match=words):
        product(rows, tmp_path, pending="refuse")
    assert np.array_equal(product(X, tmp_path, pending="refuse"), before)


@every("seed", range(20))
def test_what_has_come_and_gone_is_counted_as_often_as_it_is_there(seed):
    """Against a count of each value by itself, in collections of other lengths, orders and numbers of values."""
    rng = np.random.default_rng(seed)
    kind, values = [np.uint32, np.uint64][seed % 2], rng.integers(2, 60)
    a, b = (rng.integers(0, values, rng.integers(0, 80)).astype(kind) for _ in "12")
    if seed % 4 == 0:  # what most have in common, and where
        b = np.concatenate([a, b[:5]])
    mine, theirs = Counter(a.tolist()), Counter(b.tolist())
    assert difference(a, b) == max((mine - theirs).total(), (theirs - mine).total())
    assert difference(a, a[::-1]) == difference(a[:0], b[:0]) == 0
    assert difference(a, a[:0]) == len(a)


def test_a_column_more_hides_no_row_more(tmp_path):
    """All rows differ then; what counts is by how many they do in the columns that both have."""
    beside = RNG.standard_normal((len(X) + 1, 1))
    before = product(SiteRows(X, NAMES), tmp_path)
    more = np.hstack([with_new(X), beside])
    with pytest.raises(RefusedError, match="Z of this message"):  # it still has twelve columns
        Node(0, SiteRows(more, (*NAMES, "m")), memory_dir=tmp_path, **LOT).ask("ssi", {"Z": np.eye(D + 1)})
    assert np.array_equal(product(SiteRows(more, (*NAMES, "m")), tmp_path), before)
    wider = SiteRows(np.hstack([X, beside[:-1]]), (*NAMES, "m"))
    found = Node(0, wider, memory_dir=tmp_path, **LOT).ask("ssi", {"Z": np.eye(D + 1)}, run="wide")["Y"]
    assert error_of(found, second_moments(wider.values)) < 1e-9


def test_every_version_before_is_compared_with(tmp_path):
    """Twenty come, and are taken back with one more: no lot from the last version, but one row from the first."""
    first = product(X, tmp_path)
    lot = with_new(X, 20)
    second = product(lot, tmp_path)
    assert not np.array_equal(first, second)
    assert np.array_equal(product(with_new(X), tmp_path), second)
    assert error_of(product(X, tmp_path), first) < 1e-12  # what has been told may be told again


def test_fewer_rows_than_a_lot_are_not_answered_from_at_all(tmp_path):
    with pytest.raises(RefusedError, match="must be at least 20, its min_change, before they are first answered from"):
        product(X[:19], tmp_path)
    assert error_of(product(X[:20], tmp_path), second_moments(X[:20])) < 1e-9


def test_what_is_released_is_its_owners_and_no_digest_of_it_can_be_guessed(tmp_path):
    for folder in ("a", "b"):
        product(X, tmp_path / folder)
    files = [tmp_path / folder / "flower_pca-rows-0.npz" for folder in "ab"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    mine, others = (read(file, "released rows of a node", private=True)[1]["before.0"] for file in files)
    assert not set(mine) & set(others)


@pytest.mark.parametrize("what", ["cut", "empty", "gone", "an older one"])
def test_a_damaged_version_is_no_permission(what, tmp_path):
    product(X, tmp_path)
    file = tmp_path / "flower_pca-rows-0.npz"
    whole = file.read_bytes()
    product(with_new(X, 20), tmp_path)
    kept = {"cut": file.read_bytes()[:1000], "empty": b"", "an older one": whole}
    file.unlink()
    if what in kept:
        file.write_bytes(kept[what])
        file.chmod(0o600)
    for rows in (X, with_new(X)):
        with pytest.raises(RefusedError, match=r"rows-0\.npz of this node must be the one that this node has written"):
            product(rows, tmp_path)


def test_a_full_disk_releases_nothing(tmp_path, monkeypatch):
    before = product(X, tmp_path)

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(RefusedError, match=r"This node must be able to answer\. Got an error \(OSError"):
            product(with_new(X, 20), tmp_path)
    assert np.array_equal(product(X, tmp_path), before)
    assert ledger(tmp_path)["versions"] == 1


def test_a_run_that_goes_on_over_a_change_of_version_is_refused(tmp_path):
    """Else its messages would be of two versions; a run that is under way in a process keeps the rows that it has."""
    under_way = Node(0, X, memory_dir=tmp_path, **LOT)
    before = under_way.ask("ssi", {"Z": ALL}, run="first")["Y"]
    later = Node(0, with_new(X, 20), memory_dir=tmp_path, **LOT)
    assert not np.array_equal(later.ask("ssi", {"Z": ALL}, run="second")["Y"], before)
    assert np.array_equal(under_way.ask("ssi", {"Z": ALL}, run="first")["Y"], before)
    with pytest.raises(
        RefusedError, match=r"must be the version that the run began with\. Got another\. Start the run"
    ):
        later.ask("ssi", {"Z": ALL}, run="first")
    with pytest.raises(RefusedError, match="must be the version that the run began with"):
        under_way.ask("ssi", {"Z": ALL}, run="second")


@pytest.mark.slow
@pytest.mark.parametrize("hosted", [None, "stacked"])
def test_versions_hold_over_flowers_transports(hosted, lines, tmp_path):
    """On a fake grid, on a node that hosts clients, and in process, where there is no context."""
    rows = {0: X, 1: SHARDS[1]}
    more = {} if hosted is None else {"hosted": hosted}

    def fit():
        hosts = None if hosted is None else (lambda context: [0, 1])
        load = lambda context: rows[context.node_config["partition-id"]]  # noqa: E731
        app = client_app(load, hosts=hosts, memory_dir=tmp_path, **LOT)
        grid = FakeGrid(app, 2 if hosted is None else 1)
        return strategies.Covariance(n_components=2, **more).fit(grid)

    before = fit()
    rows[0] = with_new(X)
    after = fit()
    assert after.n_samples_ == before.n_samples_
    assert np.array_equal(after.mean_, before.mean_)
    rows[0] = with_new(X, 20)
    assert fit().n_samples_ == before.n_samples_ + 20
    asked = request("ssi", {"Z": ALL}, algorithm="ssi")
    answers = [PCAClient(of, min_change=20).fit(*asked)[0][0] for of in (X, with_new(X))]
    assert np.array_equal(*answers)


def test_batches_of_a_stream_are_no_versions_and_the_node_says_so(tmp_path, caplog):
    context = Context(1, 7, {"partition-id": 0}, RecordDict(), {})
    with caplog.at_level(logging.WARNING, "flwr"):
        client = PCAClient(Stream(X, batch=50), context=context, memory_dir=tmp_path, allow=["st_miss"], **LOT)
        client.get_properties({})
    assert "min_change does not hold for a Stream" in caplog.text


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
    node = Node(0, table_of_wards(0), min_rows=20, min_change=20, levels="ward", memory_dir=tmp_path)
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
    with pytest.raises(RefusedError, match="The levels of column ward"):  # burns is one of them now
        told()
