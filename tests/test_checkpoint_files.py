"""The files of a checkpoint: few syncs, and what is left of a run if the process or the machine stops."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import StopError, evenly, falling
from cases import every

from flower_pca import PCAResult, simulate
from flower_pca.base import checkpoint as module
from flower_pca.core.run import Run

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


def test_the_newest_message_of_another_run_is_none_of_it(tmp_path: Path) -> None:
    stopped_at(tmp_path / "other", stop=9)
    stopped_at(tmp_path / "run", stop=3)
    (tmp_path / "other.newest").replace(tmp_path / "run.newest")
    np.testing.assert_array_equal(run_at(tmp_path / "run").components_, run_at(None).components_)


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    stopped_at(tmp_path / "run", stop=5)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {
        "run": 0o600,
        "run.newest": 0o600,
    }
