"""The function `audit`, which measures what an honest but curious server can learn from a run in this process.

`_measure` runs the algorithm, and an `_Observer` keeps every message with the answers. `_leaks_of_run` reads them as
pairs (`view`), feeds these pairs to the attack (`attack`) message by message, and compares the reconstruction with the
clients' true moments. `_convergence_of` measures the convergence of the components. Under masks, the pairs of all
clients are summed first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from flower_pca import assembly
from flower_pca.audit.attack import CONDITIONS, Attack, independent_numbers, minimum_norm, symmetric_minimum_norm
from flower_pca.audit.found import Audit
from flower_pca.audit.view import Convergence, Leak, Pair, ServerView, pair_of_sums
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

# The maximum number of columns of an audit. A square matrix of this size takes 200 MB.
_WIDEST: Final = 5000


@dataclass(frozen=True)
class _MessageWithAnswers:
    """A message with the answers of the attacked clients (under masks, of all clients).

    `Z` is the run's estimate of the components after the message, or None if there is no estimate yet.
    """

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
    """Measure how much of each client's scatter matrix C_i = X_i'X_i the server can work out, message by message.

    The server solves for C_i from all blocks that it has sent and all answers that it has seen, as if every answer
    were C_i times its block. The same attack is measured for algorithms whose answers are something else.

    Parameters
    ----------
    algorithm : str or Algorithm
        A name, a spec string or an instance.
    shards : sequence
        One two-dimensional array per client. Rows are samples.
    n_components : int, default=2
        The number of components.
    center : bool or None, default=None
        Whether to subtract the mean of all rows. None stands for the algorithm's own default.
    scale : None or {"std", "max_abs", "genotype"}, default=None
        How the columns are scaled, or None to leave them unscaled.
    seed : int, default=0
        The seed of everything random.
    clients : sequence of int or None, default=None
        The positions in `shards` of the clients to attack, or None to attack all clients.
    masked : bool, default=False
        Whether the server sees only the sums over all clients, as under masks.
    tol : float or None, default=None
        The error at which an iterative algorithm has converged, or None for the algorithm's own default.
    max_rounds : int or None, default=None
        The maximum number of rounds, or None for the algorithm's own default.
    on_round : callable or None, default=None
        A function that is called with the run after every round.

    Returns
    -------
    Audit
        The errors of the reconstruction and the convergence of the components. The errors are measured after each of
        the first messages, and later each time the number of messages has grown by a tenth.

    Raises
    ------
    ConfigError
        If a parameter is invalid, or if `masked` is set for an algorithm that needs the answers of single clients.
    DataError
        If a shard cannot be used, or has more than 5000 columns.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.audit import audit
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> found = audit("covariance", sites, n_components=2)
    >>> last = found.leaks[-3:]  # after the last message
    >>> [leak.numbers == leak.unknowns for leak in last]  # each client has sent its whole C_i
    [True, True, True]
    """
    checks.integer("n_components of an audit", n_components, least=1)
    checks.choice("masked", masked, (True, False))
    config = assembly.config(
        algorithm, n_components=n_components, center=center, scale=scale, seed=seed, tol=tol, max_rounds=max_rounds
    )
    if masked and not config.algorithm.additive:
        raise ConfigError(
            "masked=True works only for algorithms whose server needs only sums of its clients' answers, but "
            f"{config.algorithm.spec} needs each answer. Use krylov, ssi or faps.",
            setting="masked",
            value=masked,
        )
    data = clients_of(shards, missing=False)
    return _measure(config, data, _clients_to_attack(clients, data), masked=masked, on_round=on_round)


def _measure(
    config: PCAConfig,
    data: Sequence[LocalData],
    attacked: Sequence[int],
    *,
    masked: bool,
    on_round: Callable[[Driven], None] | None,
) -> Audit:
    """Return the audit of a run of these clients, with the leaks of the attacked ones."""
    k, d = int(config.n_components), data[0].d
    here = [i for i, client in enumerate(data) if client.n]
    if d > _WIDEST:
        raise DataError(f"An audit supports at most {_WIDEST:,} columns, but these rows have {d:,}. Use fewer columns.")
    checks.components_available(k, sum(c.n for c in data), d)
    there = _Observer(data, here if masked else attacked, present=lambda _: here)
    result = cast(PCAResult, drive(assembly.run(config), there, watchers=[OnRound(there.recorder(on_round))]))
    grams = {i: data[i].in_frame(result.frame).gram().astype(np.float64) for i in attacked}
    matrices = (grams[i] if i in grams else data[i].in_frame(result.frame).gram() for i in here)
    C = sum(matrices, np.zeros(1))
    leaks = _leaks_of_run(there.records, result.frame, grams, np.asarray(C) / len(here), k, masked)
    course = _convergence_of(there.records, np.asarray(C), k)
    return Audit(config.algorithm.spec, d, len(here), k, masked, leaks, course, result)


def _clients_to_attack(clients: Sequence[int] | None, data: Sequence[LocalData]) -> list[int]:
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
    """A backend of clients in this process. It records the answers of the clients in `targets`."""

    def __init__(self, clients: Sequence[LocalData], targets: Sequence[int], **settings: Any) -> None:
        super().__init__(clients, **settings)
        self.records: list[_MessageWithAnswers] = []
        self._targets = frozenset(targets)
        self._replies = dict[int, Arrays]()

    def ask(self, message: Broadcast) -> Iterator[Reply]:
        """Yield the clients' answers one at a time, and record the answers of the targets."""
        self._message, self._replies = message, {}
        for reply in super().ask(message):
            if reply.client in self._targets:
                self._replies[reply.client] = reply.arrays
            yield reply

    def recorder(self, on_round: Callable[[Driven], None] | None) -> Callable[[Driven], None]:
        """Return a function to call after each message. It calls `on_round` and records the message."""

        def look(run: Driven) -> None:
            if on_round is not None:
                on_round(run)
            self.records.append(_MessageWithAnswers(self._message, self._replies, run.estimate()))

        return look


def _leaks_of_run(
    records: list[_MessageWithAnswers], frame: Frame, grams: dict[int, Array], guess: Array, k: int, masked: bool
) -> tuple[Leak, ...]:
    d, looked = len(guess), _examined(len(records))
    views = {i: ServerView(frame, d) for i in records[0].replies}
    seen: dict[int, list[Pair | None]] = {i: [] for i in views}
    for record in records:
        for i, view in views.items():
            reply = record.replies[i]
            seen[i].append(view.read(record.message, i, reply))
    if masked:  # The server cannot tell clients apart, so it uses the mean over all clients for each of them.
        sums = (pair_of_sums(list(pairs)) for pairs in zip(*seen.values(), strict=True))
        shared = [pair and Pair(pair.Z, pair.Y / len(views), pair.exact) for pair in sums]
        seen = dict.fromkeys(views, shared)
    leaks: list[Leak] = []
    for client, C in grams.items():
        true = _leading_space(C, k)
        # As long as all answers are exact, both are one attack.
        everything = exact = Attack(d)
        for position, pair in enumerate(seen[client]):
            if pair is not None:
                if everything is exact and not pair.exact:
                    everything = copy(exact)
                everything.learn(pair.Z, pair.Y)
                if pair.exact and everything is not exact:
                    exact.learn(pair.Z, pair.Y)
            if position in looked:
                message, newest = records[position].message, None if masked else pair
                leaks.append(_leak_of_client(message, client, C, true, everything, exact, newest, guess))
    return tuple(sorted(leaks, key=lambda leak: (leak.message, leak.client)))


def _leak_of_client(
    message: Broadcast,
    client: int,
    C: Array,
    true: Array,
    everything: Attack,
    exact: Attack,
    newest: Pair | None,
    guess: Array,
) -> Leak:
    """Return what is known of a client with matrix C, whose leading components are `true`."""
    d, (sure,) = len(C), exact.solve()
    found, best = sure, symmetric_minimum_norm(*sure)
    error = error_of_exact = _relative_error(best, C)
    if everything is not exact:
        # Answers that are not products contradict each other. The best number of weak directions to use is then a
        # matter of luck, so the audit assumes that the attacker finds it.
        trust = CONDITIONS if everything.size > exact.size else CONDITIONS[:1]
        error = np.inf
        for solution in everything.solve(trust):
            Phi = symmetric_minimum_norm(*solution)
            if (other := _relative_error(Phi, C)) < error:
                found, best, error = solution, Phi, other
    return Leak(
        message=message.number + 1,
        stage=message.stage,
        client=client,
        # The diagonal counts, too, because the opening has revealed it in addition to the products.
        numbers=min(independent_numbers(d, sure[0].shape[1]) + d, d * (d + 1) // 2),
        unknowns=d * (d + 1) // 2,
        minimum_norm=_relative_error(minimum_norm(*found), C),
        symmetric=error,
        exact=error_of_exact,
        angle=float(linalg.principal_angles(_leading_space(best, true.shape[1]), true)[-1]),
        outside=None if newest is None else _error_outside_block(newest, C),
        guess=_relative_error(guess, C),
    )


def _relative_error(Phi: Array, C: Array) -> float:
    size = float(np.linalg.norm(C)) or 1.0
    return float(np.linalg.norm(Phi - C)) / size


def _leading_space(H: Array, k: int) -> Array:
    from scipy.linalg import eigh

    d = len(H)
    subset_by_index = (d - k, d - 1)
    return np.asarray(eigh((H + H.T) / 2.0, subset_by_index=subset_by_index)[1])


def _error_outside_block(pair: Pair, C: Array) -> float | None:
    """Return the relative error of the answer outside span(Z), compared with C Z there.

    The result is None if the part of C Z outside span(Z) is only rounding error.
    """
    Z = linalg.orth(pair.Z)
    Y = linalg.complement(C @ pair.Z, Z)
    size = float(np.linalg.norm(Y))
    if size > 1e-9 * float(np.linalg.norm(C @ pair.Z)):
        return float(np.linalg.norm(linalg.complement(pair.Y, Z) - Y)) / size
    return None


def _examined(messages: int) -> set[int]:
    """Return the positions of the messages to examine: the first 20, some of the later ones, and the last.

    After the first 20, a message is examined each time that the number of messages has grown by a tenth.
    """
    chosen, position = {messages - 1}, 0
    while position < messages:
        chosen.add(position)
        position += max(1, (position + 1) // 10)
    return chosen


def _convergence_of(records: list[_MessageWithAnswers], C: Array, k: int) -> tuple[Convergence, ...]:
    true, size = _leading_space(C, k), float(np.linalg.norm(C))
    course = []
    for record in records:
        if record.Z is not None:
            Z = linalg.orth(record.Z)
            kkt = float(np.linalg.norm(linalg.complement(C @ Z, Z)))
            wide = linalg.principal_angles(Z, true)[-1] if Z.shape[1] >= k else np.pi / 2.0
            relative = kkt / (float(np.linalg.norm(C @ Z)) or size or 1.0)
            course.append(Convergence(record.message.number + 1, float(np.sin(wide)), relative))
    return tuple(course)
