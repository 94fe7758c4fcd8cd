"""Test the files of a checkpoint: few syncs, and what survives if the process or the machine stops."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import StopError, evenly, falling
from cases import every

from flower_pca import DataError, PCAResult, simulate
from flower_pca.base import checkpoint as module
from flower_pca.core.run import Run

EVERY = module._EVERY  # before a test changes it
PARTS = evenly(falling(90, 30, seed=2, ratio=1.05), 3)


def run_at(path: Path | None, *, stop: int | None = None, name: str = "ssi", mask: bool = False) -> PCAResult:
    def on_round(run: Any) -> None:
        if stop is not None and len(run.history) >= stop:
            raise StopError

    return simulate(name, PARTS, n_components=2, checkpoint=path, on_round=on_round, mask=mask, max_rounds=30, seed=1)


def stopped_at(path: Path, **given: Any) -> None:
    with pytest.raises(StopError):
        run_at(path, **given)


def syncs_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found, sync = list[int](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (found.append(handle), sync(handle)))
    return found


def test_few_messages_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "_EVERY", EVERY)
    syncs = syncs_of(monkeypatch)
    result = run_at(tmp_path / "run", name="ssi")
    assert len(result.history) > 20
    assert len(syncs) == 1
    assert list(tmp_path.iterdir()) == []
    syncs.clear()

    def on_round(run: Run) -> None:
        now[0] += 1.0

    simulate("ssi", PARTS, n_components=2, checkpoint=tmp_path / "run", on_round=on_round, max_rounds=30, seed=1)
    assert len(syncs) == (len(result.history) + 1) // 2


@pytest.mark.slow
@every(
    ("name", "mask"),
    [(name, mask) for name in ("krylov", "ssi", "dcf_pca", "exact_per_pca") for mask in (False, True)]
    + [("faps", False)],
)
def test_a_run_goes_on_from_its_newest_message_to_the_same_bits(
    name: str, mask: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    whole = run_at(None, name=name, mask=mask)
    for stop in (4, 9, 13):
        if stop < len(whole.history):
            stopped_at(folder / "run", stop=stop, name=name, mask=mask)
    assert (folder / "run.newest").exists()
    result = run_at(folder / "run", name=name, mask=mask)
    np.testing.assert_allclose(result.components_, whole.components_, rtol=0.0, atol=1e-6 if mask else 0.0)
    assert list(folder.iterdir()) == []


@every("left", [b"", b"half a file", None])
def test_if_the_machine_has_stopped_it_goes_on_from_what_is_on_the_disk_for_certain(
    left: bytes | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    stopped_at(folder / "run", stop=9)
    newest = folder / "run.newest"
    if left is None:
        newest.unlink()
    else:
        whole = newest.read_bytes()
        newest.write_bytes(left or whole[: len(whole) // 2])
    result = run_at(folder / "run")
    np.testing.assert_array_equal(result.components_, run_at(None).components_)


def test_the_newest_message_of_another_run_is_not_used(tmp_path: Path) -> None:
    stopped_at(tmp_path / "other", stop=9)
    stopped_at(tmp_path / "run", stop=3)
    (tmp_path / "other.newest").replace(tmp_path / "run.newest")
    np.testing.assert_array_equal(run_at(tmp_path / "run").components_, run_at(None).components_)


def test_only_the_owner_may_read_a_checkpoint(tmp_path: Path) -> None:
    stopped_at(tmp_path / "run", stop=5)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {
        "run": 0o600,
        "run.newest": 0o600,
    }


# Blocks of four columns and a basis of 16 at most: it is cut again and again, so that all of it is another one.
SMALL = "krylov(max_basis=4, tol=1e-12)"


def small_at(path: Path | None, *, on_round: Any = None, mask: bool = False) -> PCAResult:
    parts = evenly(falling(90, 40, seed=5, ratio=1.02), 3)
    return simulate(SMALL, parts, n_components=2, checkpoint=path, on_round=on_round, mask=mask, max_rounds=30, seed=1)


def small_folders(folder: Path) -> list[dict[str, bytes]]:
    """Return what is in the folder after each message."""
    found: list[dict[str, bytes]] = []

    def on_round(run: Any) -> None:
        found.append({file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith(".lock")})

    small_at(folder / "run", on_round=on_round)
    return found


def test_a_kill_at_any_byte_leaves_a_checkpoint_of_the_same_run(tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    whole, seen = small_at(None), small_folders(tmp_path / "seen")
    rng = np.random.default_rng(3)
    columns = [now.get("run.columns", b"") for now in seen]
    assert len(set(columns)) > 5
    for i in range(1, len(seen)):
        # The message has written some of its columns when the process is killed, and the files are those of before.
        written = int(rng.integers(len(columns[i]) + 1))
        torn = columns[i][:written] + columns[i - 1][written:]
        folder = tmp_path / str(i)
        folder.mkdir()
        for name, there in {**seen[i - 1], "run.columns": torn}.items():
            (folder / name).write_bytes(there)
        result = small_at(folder / "run")
        np.testing.assert_array_equal(result.components_, whole.components_)
        assert result.history.count == whole.history.count
        assert list(folder.iterdir()) == []


def test_if_the_machine_has_stopped_columns_that_are_not_on_the_disk_are_not_gone_on_from(tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    whole, seen = small_at(None), small_folders(tmp_path / "seen")
    # Zeros in place of columns that were added since the checkpoint on the disk.
    certain = next(
        i
        for i in range(1, len(seen) - 1)
        if seen[i]["run"] == seen[i + 1]["run"] and len(seen[i]["run.columns"]) < len(seen[i + 1]["run.columns"])
    )
    last = certain + 1
    known, now = len(seen[certain]["run.columns"]), seen[last]["run.columns"]
    for name, there in {**seen[last], "run.columns": now[:known] + bytes(len(now) - known)}.items():
        (tmp_path / name).write_bytes(there)
    seen_again: list[int] = []
    result = small_at(tmp_path / "run", on_round=lambda run: seen_again.append(run.history.count))
    np.testing.assert_array_equal(result.components_, whole.components_)
    assert seen_again[0] == certain + 2


@every("left", [None, b"short"])
def test_without_its_columns_a_checkpoint_is_refused(
    left: bytes | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    stopped_at(folder / "run", stop=4, name="krylov")
    columns = folder / "run.columns"
    columns.unlink()
    if left is not None:
        columns.write_bytes(left)
    with pytest.raises(DataError, match=r"run\.columns is missing or incomplete, or does not belong to the checkpoint"):
        run_at(folder / "run", name="krylov")


def test_a_message_writes_only_the_new_columns_of_a_basis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    d, width = 400, 7
    written: list[int] = []
    write = module._AppendedColumns.write

    def counted(self: Any, Q: Any, *, sync: bool) -> Any:
        begun, before = self.has_begun(Q), self._array.nbytes
        written.append(Q.nbytes - (before if begun else 0))
        return write(self, Q, sync=sync)

    monkeypatch.setattr(module._AppendedColumns, "write", counted)
    parts = evenly(falling(900, d, seed=2, ratio=1.01), 3)
    simulate("krylov", parts, n_components=5, checkpoint=tmp_path / "run", seed=1)
    assert len(written) > 8
    assert set(written[1:-1]) == {8 * d * width}


@pytest.mark.slow
def test_a_masked_run_goes_on_with_its_columns(tmp_path: Path) -> None:
    whole = small_at(None, mask=True)
    for stop in (4, 9, 13):

        def on_round(run: Any, stop: int = stop) -> None:
            if run.history.count >= stop:
                raise StopError

        with pytest.raises(StopError):
            small_at(tmp_path / "run", on_round=on_round, mask=True)
    result = small_at(tmp_path / "run", mask=True)
    np.testing.assert_allclose(result.components_, whole.components_, rtol=0.0, atol=1e-6)


@pytest.mark.slow
@every("stop", [8, 9, 11])
def test_a_masked_run_whose_nodes_remember_goes_on_to_the_same_components(
    stop: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("run") / "run"
    parts = evenly(falling(90, 12, seed=2, ratio=1.3), 3)

    def run(stop: int | None, path: Path | None) -> PCAResult:
        def on_round(run: Any) -> None:
            if run.history.count == stop:
                raise StopError

        return simulate("faps", parts, n_components=2, checkpoint=path, on_round=on_round, mask=True, seed=1)

    with pytest.raises(StopError):
        run(stop, path)
    whole, result = run(None, None), run(None, path)
    assert whole.status.ok
    assert result.status.ok
    np.testing.assert_allclose(result.components_, whole.components_, rtol=0.0, atol=2e-6)
