"""audit(): a run in process, as an honest but curious server sees it, and what follows.

`_record` runs the algorithm and keeps every message with the answers; `_leaks` reads them as pairs
(`view`), feeds them to the attack (`attack`) message by message, and measures what it finds against
the clients' true moments; `_course` does the same for the components. Where sums are masked, the
pairs of all clients are added up first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from flower_pca import assembly
from flower_pca.audit.attack import CONDITIONS, Attack, minimum_norm, numbers, symmetric
from flower_pca.audit.found import Audit
from flower_pca.audit.view import Convergence, Leak, Pair, ServerView, together
from flower_pca.base import checks, linalg
from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.config import COMPONENTS, PCAConfig
from flower_pca.core.drive import Driven, OnRound, drive
from flower_pca.core.stage import Arrays, Broadcast, Reply
from flower_pca.results.pca import PCAResult
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.simulation.backend import Shards
from flower_pca.simulation.sites import clients_of

# Each of these matrices then takes 200 MB.
_WIDEST: Final = 5000  # columns, of which square matrices are formed


@dataclass(frozen=True)
class _Answered:
    """A message, the answers of those under attack (all, if masked), and the basis after it."""

    message: Broadcast
    replies: dict[int, Arrays]
    Z: Array | None


def audit(
    algorithm: str | Algorithm[Any],
    shards: Sequence[Any],
    *,
    n_components: int = COMPONENTS,
    center: bool | None = None,
    scale: str | None = None,
    seed: int = 0,
    clients: Sequence[int] | None = None,
    masked: bool = False,
    tol: float | None = None,
    max_rounds: int | None = None,
    on_round: Callable[[Driven], None] | None = None,
) -> Audit:
    """Measure how much of every client's second moments C_i = X_i'X_i the server can work out, message by message.

    It solves for C_i from all blocks that it has sent and all answers that it has seen, as if every
    answer were C_i times its block; where an algorithm answers something else, the attack is
    measured all the same.

    Parameters
    ----------
    algorithm : str or Algorithm
        A name, a spec string or an instance.
    shards : sequence
        One two-dimensional array per client; rows are samples.
    n_components : int, default=2
        How many components.
    center : bool or None, default=None
        Whether to subtract the mean of all rows; the algorithm's own default if left out.
    scale : {"std", "max_abs", "genotype"} or None, default=None
        None, "std", "max_abs" or "genotype".
    seed : int, default=0
        Seed of everything random.
    clients : sequence of int or None, default=None
        Positions in `shards` of the clients to attack; all of them if left out.
    masked : bool, default=False
        Whether the server sees only the sums over all clients, as under masks.
    tol : float or None, default=None
        The error at which an iterative algorithm has converged; its own value if left out.
    max_rounds : int or None, default=None
        Rounds it takes at most.
    on_round : callable or None, default=None
        Called with the run after every round.

    Returns
    -------
    Audit
        Errors of the reconstruction after every message (every tenth part more of them, beyond twenty), with the
        convergence of the components beside it.

    Raises
    ------
    ConfigError
        If a parameter is not valid, or if `masked` is asked of an algorithm that does not only sum.
    DataError
        If a shard cannot be used, or has more than 5000 columns.
    """
    checks.integer("n_components of an audit", n_components, least=1)
    checks.choice("masked", masked, (True, False))
    config = assembly.config(
        algorithm, n_components=n_components, center=center, scale=scale, seed=seed, tol=tol, max_rounds=max_rounds
    )
    if masked and not config.algorithm.additive:
        raise ConfigError(
            "masked is for algorithms whose server needs only sums of its clients' answers, and "
            f"{config.algorithm.spec} needs each answer. Use krylov, ssi or faps.",
            setting="masked",
            value=masked,
        )
    data = clients_of(shards, missing=False)
    return _measure(config, data, _attack(clients, data), masked=masked, on_round=on_round)


def _measure(
    config: PCAConfig,
    data: Sequence[LocalData],
    attacked: Sequence[int],
    *,
    masked: bool,
    on_round: Callable[[Driven], None] | None,
) -> Audit:
    """What a run of these clients tells, at most, of those under attack."""
    k, d = int(config.n_components), data[0].d
    here = [i for i, client in enumerate(data) if client.n]
    if d > _WIDEST:
        raise DataError(f"An audit takes at most {_WIDEST:,} columns, and these rows have {d:,}. Take fewer columns.")
    checks.at_most(k, sum(c.n for c in data), d)
    there = _Observer(data, here if masked else attacked, present=lambda _: here)
    result = cast(PCAResult, drive(assembly.run(config), there, watchers=[OnRound(there.after(on_round))]))
    grams = {i: data[i].in_frame(result.frame).gram().astype(np.float64) for i in attacked}
    matrices = (grams[i] if i in grams else data[i].in_frame(result.frame).gram() for i in here)
    C = sum(matrices, np.zeros(1))
    leaks = _leaks(there.records, result.frame, grams, np.asarray(C) / len(here), k, masked)
    course = _course(there.records, np.asarray(C), k)
    return Audit(config.algorithm.spec, d, len(here), k, masked, leaks, course, result)


def _attack(clients: Sequence[int] | None, data: Sequence[LocalData]) -> list[int]:
    chosen = [i for i, client in enumerate(data) if client.n] if clients is None else clients
    for client in chosen:
        checks.integer("Every client to attack", client, most=len(data) - 1, remedy="Name positions in shards.")
        if not data[client].n:
            raise ConfigError(f"Client {client} has no rows to attack. Leave it out of clients.", setting="clients")
    if not len(chosen):
        raise ConfigError(
            "clients is empty, so there is nobody to attack. Name positions in shards, or leave clients out.",
            setting="clients",
        )
    return [int(client) for client in chosen]


class _Observer(Shards):
    """Clients in this process, whose answers are recorded for those that are `targets`."""

    def __init__(self, clients: Sequence[LocalData], targets: Sequence[int], **settings: Any) -> None:
        super().__init__(clients, **settings)
        self.records: list[_Answered] = []
        self._targets = frozenset(targets)
        self._replies = dict[int, Arrays]()

    def ask(self, message: Broadcast) -> Iterator[Reply]:
        """Their answers, one at a time."""
        self._message, self._replies = message, {}
        for reply in super().ask(message):
            if reply.client in self._targets:
                self._replies[reply.client] = reply.arrays
            yield reply

    def after(self, on_round: Callable[[Driven], None] | None) -> Callable[[Driven], None]:
        """What to do after a message: record it, and what the caller wants done."""

        def look(run: Driven) -> None:
            if on_round is not None:
                on_round(run)
            self.records.append(_Answered(self._message, self._replies, run.estimate()))

        return look


def _leaks(
    records: list[_Answered], frame: Frame, grams: dict[int, Array], guess: Array, k: int, masked: bool
) -> tuple[Leak, ...]:
    d, looked = len(guess), _looked_at(len(records))
    views = {i: ServerView(frame, d) for i in records[0].replies}
    seen: dict[int, list[Pair | None]] = {i: [] for i in views}
    for record in records:
        for i, view in views.items():
            reply = record.replies[i]
            seen[i].append(view.read(record.message, i, reply))
    if masked:  # the server takes the sums for any single client's: nothing tells one from another
        sums = (together(list(pairs)) for pairs in zip(*seen.values(), strict=True))
        shared = [pair and Pair(pair.Z, pair.Y / len(views), pair.exact) for pair in sums]
        seen = dict.fromkeys(views, shared)
    leaks: list[Leak] = []
    for client, C in grams.items():
        everything, exact = Attack(d), Attack(d)
        for position, pair in enumerate(seen[client]):
            if pair is not None:
                everything.learn(pair.Z, pair.Y)
                if pair.exact:
                    exact.learn(pair.Z, pair.Y)
            if position in looked:
                message, newest = records[position].message, None if masked else pair
                leaks.append(_leak(message, client, C, everything, exact, newest, guess, k))
    return tuple(sorted(leaks, key=lambda leak: (leak.message, leak.client)))


def _leak(
    message: Broadcast,
    client: int,
    C: Array,
    everything: Attack,
    exact: Attack,
    newest: Pair | None,
    guess: Array,
    k: int,
) -> Leak:
    d, (sure,) = len(C), exact.solve()
    # Answers that are no products contradict each other; how many faint directions to trust is then
    # a matter of luck, and the attacker is given the best.
    trust: tuple[float, ...] = CONDITIONS[:1]
    if everything.size > exact.size:
        trust = CONDITIONS
    found = min(everything.solve(trust), key=lambda solution: _apart(symmetric(*solution), C))
    best = symmetric(*found)
    return Leak(
        message=message.number + 1,
        stage=message.stage,
        client=client,
        # The diagonal counts too, because the opening has told it beside the products.
        numbers=min(numbers(d, sure[0].shape[1]) + d, d * (d + 1) // 2),
        unknowns=d * (d + 1) // 2,
        minimum_norm=_apart(minimum_norm(*found), C),
        symmetric=_apart(best, C),
        exact=_apart(symmetric(*sure), C),
        angle=float(linalg.principal_angles(_top(best, k), _top(C, k))[-1]),
        outside=None if newest is None else _outside(newest, C),
        guess=_apart(guess, C),
    )


def _apart(Phi: Array, C: Array) -> float:
    size = float(np.linalg.norm(C)) or 1.0
    return float(np.linalg.norm(Phi - C)) / size


def _top(H: Array, k: int) -> Array:
    from scipy.linalg import eigh

    d = len(H)
    subset_by_index = (d - k, d - 1)
    return np.asarray(eigh((H + H.T) / 2.0, subset_by_index=subset_by_index)[1])


def _outside(pair: Pair, C: Array) -> float | None:
    """How far the answer outside span(Z) is from C Z's; None where that has none to speak of."""
    Z = linalg.orth(pair.Z)
    Y = linalg.complement(C @ pair.Z, Z)
    size = float(np.linalg.norm(Y))
    if size > 1e-9 * float(np.linalg.norm(C @ pair.Z)):
        return float(np.linalg.norm(linalg.complement(pair.Y, Z) - Y)) / size
    return None


def _looked_at(messages: int) -> set[int]:
    """Every message of the first twenty, then one after every tenth part more of them, and the last one."""
    chosen, position = {messages - 1}, 0
    while position < messages:
        chosen.add(position)
        position += max(1, (position + 1) // 10)
    return chosen


def _course(records: list[_Answered], C: Array, k: int) -> tuple[Convergence, ...]:
    true, size = _top(C, k), float(np.linalg.norm(C))
    course = []
    for record in records:
        if record.Z is not None:
            Z = linalg.orth(record.Z)
            kkt = float(np.linalg.norm(linalg.complement(C @ Z, Z)))
            wide = np.pi / 2.0
            if Z.shape[1] >= k:
                wide = linalg.principal_angles(Z, true)[-1]
            relative = kkt / (float(np.linalg.norm(C @ Z)) or size or 1.0)
            course.append(Convergence(record.message.number + 1, float(np.sin(wide)), relative))
    return tuple(course)
