"""Test that the work of a run grows linearly with its clients, in calls and comparisons."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flower_pca import assembly, client_half
from flower_pca.core.drive import drive
from flower_pca.core.stage import Broadcast, Failure, Reply
from flower_pca.rows.local import LocalData


class Counted(int):
    """A client's number that counts how often it is compared with another, or looked up."""

    looked = 0

    def __eq__(self, other: object) -> bool:
        Counted.looked += 1
        return int(self) == other

    def __hash__(self) -> int:
        Counted.looked += 1
        return int.__hash__(self)


class Here:
    """A transport of clients with few rows, of whom one in ten refuses for good in the second message."""

    kind = "checkpoint"

    def __init__(self, n: int, *, refusing: bool) -> None:
        rng = np.random.default_rng(0)
        self.ids = [Counted(i) for i in range(n)]
        self.data = [LocalData(rng.standard_normal((4, 6)) * np.arange(6, 0, -1)) for _ in range(n)]
        self.memory: list[Any] = [{} for _ in range(n)]
        self.refusing = refusing

    def present(self) -> list[Counted]:
        return self.ids

    def ask(self, message: Any) -> Any:
        for client in message.to:
            i = int(client)
            if self.refusing and message.number == 1 and i % 10 == 0:
                yield Failure(client, "no", lasting=True)
                continue
            data = self.data[i].in_frame(message.frame)
            up, self.memory[i] = client_half.answer(
                message.stage, message.arrays_for(client), data, self.memory[i], layers=message.layers
            )
            yield Reply(client, message.number, up)

    def checkpoint_state(self) -> Any:
        return {}, {}

    def resume(self, header: Any, arrays: Any) -> None:
        pass


def counted(run: Callable[[], Any]) -> tuple[int, int]:
    """Calls of functions, and looks at clients' numbers."""
    calls = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    Counted.looked = 0
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls, Counted.looked


def growth(how: str, algorithm: str, folder: Any) -> float:
    """The work for many clients over that for few, for each client: of calls or of looks, whichever grows more."""
    masked = how == "masked"
    mask = "masks(neighbors=4)" if masked else None

    def once(n: int) -> tuple[int, int]:
        config = assembly.config(algorithm, n_components=2, max_rounds=2, tol=1e-300, mask=mask)
        there = Here(n, refusing=how == "refusing")
        checkpoint = folder / f"{n}.npz" if how == "checkpoint" else None
        run = assembly.run(config, judged=not masked)
        return counted(lambda: drive(run, there, checkpoint=checkpoint))

    small, large = (10, 30) if masked else (20, 100)
    once(small)  # Load what is imported on first use.
    return max(many / few for few, many in zip(once(small), once(large), strict=True)) * small / large


@pytest.mark.slow
@pytest.mark.parametrize("how", ["plain", "refusing", "checkpoint", "masked"])
def test_work_grows_in_proportion_to_the_clients(how: str, tmp_path: Any) -> None:
    assert growth(how, "ssi", tmp_path) <= 1.1


@pytest.mark.slow
def test_work_beyond_proportion_would_be_seen(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Broadcast, "addressees", property(lambda message: message.to)
    )  # a tuple, which is searched each time
    assert growth("plain", "ssi", tmp_path) > 1.1
