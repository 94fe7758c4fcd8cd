"""Test Flower's Ray engine: the same bits as in process, clean errors, nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import deal, mixed, pooled, sine, synthetic
from federation import wait
from genotypes import populations, write_bed
from results import assert_same_bits, assert_same_steps
from scipy import sparse
from test_categorical import TABLES

from flower_pca import ConfigError, DataError, Ray, RobustTracking, Stream, simulate, track
from flower_pca.base.cache import Cache
from flower_pca.blocks import source
from flower_pca.data import sources
from flower_pca.names.table import Table
from flower_pca.results.record import StepRecord
from flower_pca.rows.local import LocalData
from flower_pca.simulation.shards import PacksInFolder, bytes_of_client
from sims.over_air import moving

ray = pytest.importorskip("ray", reason="the extra `simulation` is not installed")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Ray and Flower warn about their own files and processes.
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
]

SIZES = (300, 120, 60, 40, 9, 70, 31, 20)


def eight() -> list[np.ndarray]:
    X = synthetic(sum(SIZES), 24, 0.8 ** np.arange(24), seed=5)
    return [part + i for i, part in enumerate(deal(X, SIZES))]


def children(apart: Collection[int] = ()) -> set[int]:
    """All processes that descend from this one and have not ended; without these, and what descends from them."""
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # The process has ended meanwhile.
            state, parent = place.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(place.parent.name)] = int(parent)
    found: set[int] = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found.union(apart)}:
        found |= more
    return found - {os.getpid()}


def test_levels_of_words_are_the_same_bits_on_ray(cluster: str) -> None:
    ask = {"n_components": 3, "categorical": "ward,sex", "scale": "std", "standard_errors": True}
    there, here = (
        simulate("krylov", TABLES, **ask, backend=backend) for backend in (Ray(address=cluster), "in_process")
    )
    assert_same_bits(there, here)
    np.testing.assert_array_equal(there.loading_errors_, here.loading_errors_)


def test_sites_without_rows_are_left_out_or_add_zeros(cluster: str) -> None:
    parts = eight()
    sites = {"a": parts[0], "empty": parts[0][:0], "b": parts[1], "c": parts[2]}
    for mask in (None, True):
        there, here = (
            simulate("krylov", sites, n_components=2, mask=mask, backend=backend)
            for backend in (Ray(address=cluster, clients_per_node=2), "in_process")
        )
        assert_same_bits(there, here)
        assert there.left_out == here.left_out == ({} if mask else {1: ("empty", "it has no rows")})
        assert there.site_names == here.site_names


def test_every_kind_of_shard_travels_and_nothing_is_left_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, environment = children(), dict(os.environ)
    X = synthetic(90, 12, 0.6 ** np.arange(12), seed=1)
    np.save(tmp_path / "rows.npy", X[:40])
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    counts = sparse.csr_array(sparse.random(30, 12, density=0.3, random_state=np.random.default_rng(0)))
    shards = [mapped[:25], mapped[25:], counts, X[40:].astype(np.float32)]
    seen: list[int] = []
    result = simulate(
        "krylov", shards, n_components=2, backend="ray", on_round=lambda session: seen.append(len(session.history))
    )
    rows = np.vstack([X[:40], counts.toarray(), X[40:].astype(np.float32)])
    assert sine(pooled([rows]).components[:2], result.components_) < 1e-5
    assert seen == list(range(1, len(result.history) + 1))
    assert "DEPRECATED" not in caplog.text
    assert not ray.is_initialized()
    ours = ("PYTHONPATH", "RAY_max_direct_call_object_size")  # Flower and Ray set others when they are imported
    assert [os.environ.get(name) for name in ours] == [environment.get(name) for name in ours]
    # A cluster that was there before starts and ends workers whenever it likes.
    wait("the end of all that Ray had started", lambda: not children(before), pause=0.5)


def test_an_error_of_the_server_reaches_the_caller_as_itself(cluster: str) -> None:
    shards = [np.ones((5, 3)), np.ones((4, 3))]
    with pytest.raises(DataError, match=r'All rows have the same value in columns 0, 1, 2, so scale="std"'):
        simulate("krylov", shards, n_components=1, scale="std", backend=Ray(address=cluster))


def test_without_ray_the_error_says_what_to_install() -> None:
    code = (
        "import importlib.util as u; find = u.find_spec;"
        "u.find_spec = lambda name, *rest: None if name == 'ray' else find(name, *rest);"
        "import numpy as np; from flower_pca import simulate;"
        "simulate('krylov', [np.eye(3)], n_components=1, backend='ray')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert (
        'Ray is needed for backend="ray", but is not installed. Run: pip install "flower-pca[simulation]"'
        in run.stderr.splitlines()[-1]
    )


def test_rows_of_a_mapped_file_are_named_not_copied(tmp_path: Path) -> None:
    X = np.arange(600.0).reshape(100, 6)
    np.save(tmp_path / "big.npy", X)
    mapped = np.load(tmp_path / "big.npy", mmap_mode="r")
    parts = [mapped, mapped[30:70], mapped[99:], mapped[::2], mapped[:, :3], mapped[::-1]]
    counts = sparse.csr_array(sparse.random(30, 6, density=0.3, random_state=np.random.default_rng(0)))
    packs = PacksInFolder(tmp_path, 2).save(
        [*parts, Table(X[:7].astype(np.float32), tuple("abcdef"), site="here"), counts]
    )
    for index, part in enumerate(parts):
        np.testing.assert_array_equal(np.vstack(list(packs.load(index).rows())), part)
    sizes = [(tmp_path / f"{number}.rows").stat().st_size for number in range(4)]
    # Rows in the reverse order of the file have no place in it.
    assert sizes[:3] == [0, 0, mapped.nbytes]
    named, same = packs.load(6), packs.load(7)
    assert (named.names, named.site, named.dtype) == (tuple("abcdef"), "here", np.float32)
    np.testing.assert_array_equal(same.stored_array().toarray(), counts.toarray())
    assert packs.load(6) is named


def stored_rows(folder: Path) -> tuple[dict[str, Any], np.ndarray]:
    """Rows of each kind of file that is read in pieces, and the same rows as an array."""
    h5py, pa = pytest.importorskip("h5py"), pytest.importorskip("pyarrow")
    X = np.rint(4.0 * np.random.default_rng(3).standard_normal((900, 7))) * (np.arange(900) % 3 > 0)[:, None]
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(100, 7))
        group = file.create_group("S")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", X.shape
        for name in ("data", "indices", "indptr"):
            group.create_dataset(name, data=getattr(sparse.csr_array(X), name))
    opened = h5py.File(folder / "x.h5")
    table = pa.table([X[:, j] for j in range(7)], names=list("abcdefg"))
    return {"h5": opened["X"], "sparse": opened["S"], "arrow": table, "some": Table.of(opened["S"]).take([2, 5, 8])}, X


def test_rows_in_files_are_copied_in_pieces_to_what_workers_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, X = stored_rows(tmp_path)
    monkeypatch.setattr(source, "all_rows", lambda rows: pytest.fail("the rows are read whole"))
    monkeypatch.setattr(source, "_PIECE", 8 * 7 * 100)
    monkeypatch.setattr(source, "_ENTRIES", 500)
    packs = PacksInFolder(tmp_path, 2).save([*found.values()])
    expected = {**dict.fromkeys(found, X), "some": X[[2, 5, 8]]}
    for number, kind in enumerate(found):
        client = packs.load(number)
        pieces = [piece.toarray() if client.sparse else piece for piece in client.measured.rows.pieces()]
        np.testing.assert_array_equal(np.vstack(pieces), expected[kind])
        assert client.dtype == np.float64


def test_genotypes_are_read_from_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, _ = populations(people=30, variants=8)
    monkeypatch.chdir(tmp_path)
    write_bed(Path("a.bed"), counts)
    table = sources.table("a.bed")
    packs = PacksInFolder(tmp_path, 1).save([table])
    monkeypatch.chdir("/")
    rows = packs.load(0).measured.rows
    assert rows.file == str(tmp_path / "a.bed")
    np.testing.assert_array_equal(np.asarray(rows), counts)


def test_rows_in_files_give_the_same_bits_on_ray(cluster: str, tmp_path: Path) -> None:
    found, X = stored_rows(tmp_path)
    counts, _ = populations(people=40, variants=7)
    shards = [found["h5"], found["sparse"], X[:50], sources.table(str(write_bed(tmp_path / "a.bed", counts))).values]
    for answers in ("rows", "fixed"):
        ask = {"n_components": 3, "answers": answers}
        there = simulate("krylov", shards, **ask, backend=Ray(address=cluster, clients_per_node=2))
        assert_same_bits(there, simulate("krylov", shards, **ask))


def test_a_process_keeps_ready_what_it_has_room_for() -> None:
    made: list[int] = []
    ready = Cache(200 * 50 * 8, bytes_of_client)

    def client(number: int) -> LocalData:
        made.append(number)
        return LocalData(np.ones((60, 50)))

    for number in (0, 1, 2, 3, 0, 1):
        assert ready.get(number, lambda number=number: client(number)).n == 60
    assert made == [0, 1, 2, 3, 0, 1]  # Each takes more than a quarter of the room.
    roomy = Cache(2**30, bytes_of_client)
    for number in (4, 5, 4, 5):
        roomy.get(number, lambda number=number: client(number))
    assert made[6:] == [4, 5]


def test_ray_follows_streams_to_the_same_bits_and_brings_back_what_they_keep(cluster: str) -> None:
    problem = moving.piecewise(n=40, r=3, d=480, change=240, rho=0.1, seed=2)
    batches, truth = problem.batches(2), problem.truth[0].T
    problem = moving.corrupted(problem, seed=2)
    later = problem.batches(2)
    start = moving.near(truth, 0.02, 2).T

    def streams() -> list[Stream]:
        first = [b if t == 0 else later[0][t] for t, b in enumerate(batches[0])]
        return [Stream(first, keep=True), Stream(lambda t: later[1][t] if t < 3 else None, keep=True)]

    here, there = streams(), streams()
    tracker = RobustTracking(smallest_outlier=15.0, refine=True)
    asked, engine = {"n_components": 3, "init": start, "steps": 4}, Ray(clients_per_node=2, address=cluster)
    told: list[StepRecord] = []
    far: list[StepRecord] = []
    a = track(tracker, here, **asked, on_step=told.append)
    b = track(tracker, there, **asked, on_step=far.append, backend=engine)
    assert_same_steps(a, b)
    assert [record.to_json() for record in far] == [record.to_json() for record in told]
    assert [len(record.clients) for record in far] == [2] * 4
    assert_same_steps(far[-1].result_so_far(), b)
    assert a.rows_.tolist() == [60, 60, 60, 30]
    for mine, theirs in zip(here, there, strict=True):
        assert set(mine.completed) == set(theirs.completed)
        for step, batch in mine.completed.items():
            assert np.array_equal(batch.rows, theirs.completed[step].rows)
            assert np.array_equal(batch.outliers, theirs.completed[step].outliers)
            assert np.array_equal(batch.imputed, theirs.completed[step].imputed)
    with pytest.raises(ConfigError, match="The worker processes of Ray cannot read a stream that is an iterator"):
        track("st_miss", [iter(batches[0])], n_components=3, backend="ray")


def test_the_command_on_ray_prints_json_alone(cluster: str, tmp_path: Path) -> None:
    X = np.vstack(mixed(0).shards)
    np.save(tmp_path / "x.npy", X)
    words = ["run", tmp_path / "x.npy", "--components", 3, "--clients", 2, "--out", tmp_path / "out", "--json"]
    command = [sys.executable, "-m", "flower_pca.cli", *map(str, words), "--backend", "ray"]
    environment = {**os.environ, "RAY_ADDRESS": cluster}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    plain = simulate("auto", np.array_split(X, 2), n_components=3)
    assert json.loads(run.stdout)["explained_variance"] == plain.explained_variance_.tolist()
