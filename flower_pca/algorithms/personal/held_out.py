"""How many own components a client takes by itself: local_components="auto", from rows that are held out.

A client's rows are in five parts, by a lot that never changes (`rows.folds`), and of each part it has statistics that
were fixed before the first message. Each part in turn is held out: directions are found from the other four, largest
first, and the mean square of the held-out rows along each is set beside the mean of what is left of these rows in a
direction that is not taken, and beside the noise of the columns that it lies in (`noise`). The last one that holds more
than twice of both, by a standard error over the five parts, ends the count. Of the shared ones a client sees those that
hold more than twice of what is left then, likewise. It takes as many own components as directions count beyond the
shared ones that it sees. What counts is found once in a run, what is seen anew when U has moved: both hardly hang on
how good a U is yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from flower_pca.algorithms.personal import noise
from flower_pca.base import labels, linalg
from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.asks import FLAG, OWN_WIDTH, Ask
from flower_pca.core.kinds import Kind, Part
from flower_pca.core.stage import Arrays
from flower_pca.rows import fixed, folds
from flower_pca.rows.local import LocalData

AUTO: Final = "auto"
ASKS: Final[Mapping[str, Ask]] = {"own": OWN_WIDTH.by_client, AUTO: FLAG}
CHOSEN: Final = "chosen"  # in a client's memory, and in its last answer
SHARED: Final = "shared_block"  # in the model: where a count of the shared ones lets the algorithm begin
MOST: Final = 10  # own components that a client takes by itself
FEW: Final = 1  # what one with too few rows to hold some out takes
# sine of the angle from the U that a number was chosen beside, at which it is chosen anew
_MOVED: Final = 0.01
_TIMES: Final = 20  # that it is, at most, so that a run comes to its end


def number(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[int, Arrays]:
    """How many own components a client takes beside the message's U, and what it remembers of having chosen them."""
    asked = int(arrays["own"])
    if AUTO not in arrays:
        return asked, {}
    require_room(asked)
    if data.n < folds.FEWEST:
        return min(FEW, asked), {CHOSEN: np.array(-1)}
    U, kept = arrays["U"], {name: memory[name] for name in _KEPT if name in memory}
    if len(kept) < len(_KEPT) or kept["beside"].shape != U.shape:
        counted, known = count(data, min(U.shape[1] + asked, data.d))
        kept = {"counted": np.array(counted), **known, "times": np.array(0)}
    if "beside" not in kept or (kept["times"] < _TIMES and linalg.sin_theta(kept["beside"], U) > _MOVED):
        own = int(kept["counted"]) - seen(data, U, kept)
        kept |= {CHOSEN: np.array(min(max(own, 0), asked)), "beside": U, "times": np.array(kept["times"] + 1)}
    return int(kept[CHOSEN]), kept


def require_room(own: int, *, full: bool = False) -> None:
    """Refuse to choose from fewer numbers than there are: two sums would tell of those that have chosen larger ones.

    `full` says that there are no more columns.
    """
    if own != MOST and not (full and 0 <= own < MOST):
        raise ProtocolError("The own components that a client chooses", must=f"up to {MOST}", got=own, then=_SENDER)


def leading(arrays: Arrays, data: LocalData) -> int:
    """How many directions of its own rows a client starts from: those that count, and no fewer than are shared."""
    most = int(arrays["k"])
    if AUTO not in arrays:
        return most
    shared = most - int(arrays["own"])
    require_room(int(arrays["own"]), full=most >= data.d)
    if data.n < folds.FEWEST:
        return min(shared + FEW, most)
    return max(count(data, most)[0], shared)


def count(data: LocalData, most: int) -> tuple[int, dict[str, Array]]:
    """The directions that count, so many at most; and the noise beside them, of each part and of each column."""
    parts = fixed.parts(data)
    columns = noise.by_column(parts, most)
    found = noise.directions(parts, most)
    along, left = noise.residuals(found)
    if r := noise.last(noise.clear(along, np.maximum(left, noise.below(found, columns)))):
        return r, {"noise": left[:, r - 1], "columns": columns}
    whole = [part.squares().sum() / part.n / part.d for part in parts]
    return 0, {"noise": np.array(whole), "columns": columns}


def seen(data: LocalData, U: Array, beside: Mapping[str, Array]) -> int:
    """How many directions of U the held-out rows hold more of than of the noise that `count` found."""
    along, below = [], []
    for held, rest in folds.splits(fixed.parts(data)):
        Z = U @ linalg.eigh_descending(U.T @ rest.matmat(U))[1]
        along.append(np.sum(Z * held.matmat(Z), axis=0) / held.n)
        below.append(beside["columns"] @ Z**2)
    return int(np.sum(noise.clear(np.array(along), np.maximum(beside["noise"][:, None], below))))


TOLD: Final = Part((MOST + 2,), Kind.COUNT, own=True)  # what `answer` is


def answer(chosen: Arrays) -> Array:
    """A one at the number chosen, the last place for too few rows: sums of these count clients by their numbers."""
    places = np.zeros(MOST + 2)
    places[int(chosen[CHOSEN])] = 1.0
    return places


def words(counts: Array) -> str:
    """What the sum of all answers says."""
    said = "Own components: chosen by each client from held-out parts of its rows"
    found = [f"{r} at {labels.count(int(n), 'client')}" for r, n in enumerate(np.rint(counts[:-1])) if n >= 1]
    if few := int(np.rint(counts[-1])):
        lacking = f"{labels.count(few, 'client')} that {'has' if few == 1 else 'have'} fewer than {folds.FEWEST} rows"
        found.append(f"{FEW} at {lacking}, too few to hold some out")
    if found:
        return f"{said}: {', '.join(found)}"
    return f"{said}; {_UNTOLD}"


def largest(counts: Array) -> int:
    """The largest number that is known to have been chosen; what was allowed where none is."""
    chosen = np.flatnonzero(np.rint(counts[:-1]) >= 1).tolist()
    if np.rint(counts[-1]) >= 1:
        few = [FEW]
    else:
        few = []
    return max([*chosen, *few], default=len(counts) - 2)


_SENDER: Final = "Check the sender."
_KEPT: Final[tuple[str, ...]] = (CHOSEN, "counted", "noise", "columns", "beside", "times")
_UNTOLD: Final = "how many is told by nodes that agree by share_own, or under masks"
