"""Openings with weights of clients: the share of each client is limited, or the frame consists of medians.

The message and the client half are those of the usual opening. The server keeps the answers of all N
clients, N d (p + 2) numbers, until every client has answered, because the weight of a client depends on
all other clients.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, cast

import numpy as np

from flower_pca.base.errors import ConfigError, DataError
from flower_pca.base.linalg import Array, weighted_median
from flower_pca.base.options import option
from flower_pca.core.model import Model, Weights
from flower_pca.core.stage import Arrays, Merge
from flower_pca.rows.frame import Frame, Moments
from flower_pca.stages.opening import COMPARED, Opening, OpeningState, frame_of

# The key of all answers. The first answer's means are stored separately, because they show the number of columns.
_ANSWERS: Final = "answers"
_STEPS: Final = 1000  # the maximum number of iterations
_CONVERGED: Final = 1e-13  # the change of the weights up to which they have converged
_AT_ONCE: Final = 2**16  # the number of entries of all clients from which medians are computed at a time
_ROUNDING: Final = 1e-9  # the relative rounding error of shares and weights


@dataclass(frozen=True, kw_only=True)
class WeightedOpening(Opening):
    """An opening that merges its answers only after all of them have arrived.

    Attributes
    ----------
    share : float or None
        The largest share of the total that a client may have, or None for no limit.
    """

    # Whether products are weighted. Otherwise, they are kept only as long as the server compares clients by column.
    weighs_products: ClassVar[bool] = True

    share: float | None = None

    def merging(self, state: OpeningState) -> Merge:
        def merge(total: dict[str, Any] | None, client: int, reply: Arrays) -> dict[str, Any]:
            known: dict[str, Any] = total or {"mean": reply["mean"], _ANSWERS: {}}
            answers = known[_ANSWERS]
            if not self.weighs_products and (len(answers) + 1) * len(known["mean"]) > COMPARED:
                for earlier in answers.values():
                    if "product" not in earlier:
                        break
                    del earlier["product"]
                reply = {name: array for name, array in reply.items() if name != "product"}
            answers[client] = dict(reply)
            return known

        return merge

    def server(self, state: OpeningState, total: dict[str, Any], answered: frozenset[int]) -> OpeningState:
        answers = {i: reply for i, reply in total[_ANSWERS].items() if i in answered}
        # The total is empty instead of None, because the stage is over. The answers are merged later by `finish`,
        # which has the model.
        return replace(state, said=answers, total={})

    def finish(self, state: OpeningState, model: Model) -> Model:
        total, counted = self._merge_answers(state, model)
        found = super().finish(replace(state, total=total), model)
        # `said` holds all answers, because weights need them. Without `judged`, the claims made from them are dropped.
        return replace(found, counted=counted, claims=found.claims if self.judged else {})

    @abstractmethod
    def _merge_answers(self, state: OpeningState, model: Model) -> tuple[Arrays, Weights]:
        """Return the merged answers and the weight of each client."""


@dataclass(frozen=True)
class _CollectedAnswers:
    """The answers from all clients: moments as arrays with one row for each client, and replies with products."""

    clients: tuple[int, ...]
    n: Array
    seen: Array  # the number of values that mean and m2 are computed from, (N, d)
    mean: Array
    m2: Array
    replies: tuple[Arrays, ...]

    @classmethod
    def from_stack(cls, answers: Mapping[int, Arrays]) -> _CollectedAnswers:
        replies = tuple(answers.values())
        stacks = (np.stack([reply[name] for reply in replies]) for name in ("n", "mean", "m2"))
        n, mean, m2 = (stack.astype(np.float64) for stack in stacks)
        counts = [reply.get("count", reply["n"]) for reply in replies]
        seen = np.stack([np.broadcast_to(count, mean.shape[1:]) for count in counts])
        return cls(tuple(answers), n, seen.astype(np.float64), mean, m2, replies)

    def squares_by_client(self, frame: Frame) -> Array:
        """Return the sum of squares t_i of each client's rows in a frame."""
        clients = zip(self.n, self.mean, self.m2, self.seen, strict=True)
        moments = (Moments(int(n), mean, m2, seen) for n, mean, m2, seen in clients)
        by_column = np.array([rows.sums_in_frame(frame)[1] for rows in moments])
        return np.asarray(by_column.sum(axis=1))

    def weighted_moments(self, weights: Array) -> Arrays:
        """Return the mean and the sums of squared deviations of all rows, with weight w_i for client i."""
        seen = weights[:, None] * self.seen
        rows = np.maximum(seen.sum(axis=0), np.finfo(float).tiny)
        mean = (seen * self.mean).sum(axis=0) / rows
        between = seen * (self.mean - mean) ** 2
        return {**_unweighted_parts(self.replies), "mean": mean, "m2": weights @ self.m2 + between.sum(axis=0)}

    def weighted_product(self, block: Array, mean: Array, weights: Array) -> Array:
        """Return C B about a mean: sum_i w_i (P_i + n_i e_i e_i'B), where e_i is the mean of client i minus `mean`."""
        off = np.where(self.seen > 0.0, self.mean - mean, 0.0)
        weighted = (weights * self.n)[:, None]
        between = off.T @ (weighted * (off @ block))
        within = sum(w * reply["product"] for w, reply in zip(weights, self.replies, strict=True))
        return np.asarray(within + between)


@dataclass(frozen=True, kw_only=True)
class CappedOpening(WeightedOpening):
    """An opening in which no client counts for more than a share s of all squares or rows.

    Client i with n_i rows has weight w_i. Let t_i be the sum of squares of its rows in the common frame.
    First, w_i n_i is limited to s times the sum of all w_j n_j. Then w_i t_i is limited in the same way.
    t_i depends on the mean and the scale of the weighted rows, so the second step is repeated until the
    weights converge, which takes a few repetitions. Finally, the weights are scaled so that the weighted
    number of rows equals the number of rows.
    """

    share: float = 1.0

    def _merge_answers(self, state: OpeningState, model: Model) -> tuple[Arrays, Weights]:
        answers = _CollectedAnswers.from_stack(state.said)
        by_rows = cap_factors(answers.n, self.share)
        weights = by_rows
        for _ in range(_STEPS):
            total = answers.weighted_moments(weights)
            squares = by_rows * answers.squares_by_client(frame_of(total, model))
            before, weights = weights, by_rows * cap_factors(squares, self.share)
            if np.abs(weights - before).max() <= _CONVERGED:
                break
        weights = weights * (answers.n.sum() / float(weights @ answers.n))
        total = answers.weighted_moments(weights)
        total["product"] = answers.weighted_product(state.block_for(len(total["mean"])), total["mean"], weights)
        squares = weights * answers.squares_by_client(frame_of(total, model))
        rows = weights * answers.n / answers.n.sum()
        # If a client is left out, the mean of the other clients changes, too. This increases the client's share of
        # the squares by at most the factor 1 / (1 - r), where r is its share of the rows.
        left = np.maximum(1.0 - rows, np.finfo(float).tiny)
        most = squares / squares.sum() / left
        by_client = dict(zip(answers.clients, weights.tolist(), strict=True))
        # If all clients have the same weight, no answer is scaled, and the sums equal those of a run without weights.
        less = (weights < (1.0 - _ROUNDING) * weights.max()).any()
        return total, Weights(by_client if less else {}, float(most.max()))


@dataclass(frozen=True, kw_only=True)
class MedianOpening(WeightedOpening):
    """An opening whose frame consists of medians over clients: of means, deviations and largest absolute values.

    Without a share, all clients have the same weight. With a share, the weight of a client is its number of
    rows, limited to this share of the total. Medians are computed for a few columns at a time.
    """

    weighs_products: ClassVar[bool] = False

    def _merge_answers(self, state: OpeningState, model: Model) -> tuple[Arrays, Weights]:
        replies = tuple(state.said.values())
        weights = self._weights(replies)
        total = _unweighted_parts(replies)
        total["mean"] = _medians(replies, weights, lambda columns, seen: _lines(replies, "mean", columns))
        variances = _medians(
            replies, weights, lambda columns, seen: _lines(replies, "m2", columns) / np.maximum(seen, 1.0)
        )
        if model.center and not variances.any() and _clients_vary(replies):
            raise DataError(
                "At least half of the clients have a single row, or the same row many times, so the median of their "
                "variances is 0. Combine clients with few rows, or use krylov."
            )
        total["m2"] = variances * total.get("count", total["n"])
        if state.peaks:
            total["peak"] = _medians(replies, weights, lambda columns, seen: _lines(replies, "peak", columns))
        # The product would be a sum over clients and not a median, so it is not used.
        total["product"] = np.zeros(state.block_for(len(total["mean"])).shape)
        by_client = dict(zip(state.said, weights.tolist(), strict=True))
        return total, Weights({} if self.share is None else by_client)

    def finish(self, state: OpeningState, model: Model) -> Model:
        found = super().finish(state, model)
        # The total variance is a sum of medians of mean squares about the common center, because the variances along
        # components are such medians, too.
        replies = tuple(state.said.values())
        n = np.array([[float(reply["n"])] for reply in replies])

        def mean_squares(columns: slice, seen: Array) -> Array:
            mean, m2 = (_lines(replies, name, columns) for name in ("mean", "m2"))
            # n has one line for each client, like all other arrays.
            part: Any = Moments(cast(int, n), mean, m2, seen)
            return np.asarray(part.sums_in_frame(_frame_of_columns(found.frame, columns))[1] / n)

        squares = _medians(replies, self._weights(replies), mean_squares)
        return replace(found, product=None, opening_errors=None, trace=float(found.n * squares.sum()))

    def _weights(self, replies: Sequence[Arrays]) -> Array:
        if self.share is None:
            return np.ones(len(replies))
        n = np.array([float(reply["n"]) for reply in replies])
        return np.asarray(n * cap_factors(n, self.share))


def _medians(replies: Sequence[Arrays], weights: Array, values: Callable[[slice, Array], Array]) -> Array:
    """Return the weighted median over clients in each column. A client without values in a column does not count.

    `values` is a function that returns some columns of the values, with one line for each client. It is called with
    these columns and with the number of values behind each entry.
    """
    d = len(replies[0]["mean"])
    width = max(_AT_ONCE // len(replies), 1)
    found = []
    for columns in (slice(i, i + width) for i in range(0, d, width)):
        if "count" in replies[0]:
            seen = _lines(replies, "count", columns)
            there = weights[:, None] * (seen > 0.0)
        else:
            seen, there = np.array([[float(reply["n"])] for reply in replies]), weights
        found.append(weighted_median(values(columns, seen), there))
    return np.concatenate(found)


def _lines(replies: Sequence[Arrays], name: str, columns: slice) -> Array:
    """Return these columns of an array of all clients, with one line for each client."""
    return np.array([reply[name][columns] for reply in replies], dtype=np.float64)


def _frame_of_columns(frame: Frame, columns: slice) -> Frame:
    mean, scale, fill = (None if a is None else a[columns] for a in (frame.mean, frame.scale, frame.fill))
    return Frame(mean, scale, fill)


def _clients_vary(replies: Sequence[Arrays]) -> bool:
    """Return whether the rows of a client vary, or the means of clients differ."""
    first = replies[0]["mean"]
    return any(reply["m2"].any() or (reply["mean"] != first).any() for reply in replies)


def _unweighted_parts(replies: Sequence[Arrays]) -> Arrays:
    """Return the parts that are not weighted: the number of rows of all clients, their lowest precision, and counts."""
    coarsest, by_rows = (np.max([reply[name] for reply in replies]) for name in ("eps", "rows"))
    n = np.array(sum(int(reply["n"]) for reply in replies))
    found = {"n": n, "eps": np.asarray(coarsest), "rows": np.asarray(by_rows)}
    if "count" in replies[0]:
        found["count"] = sum((reply["count"] for reply in replies), np.zeros(len(replies[0]["count"])))
    return found


def cap_factors(sizes: Array, share: float) -> Array:
    """Return factors of at most 1 that limit each of the sizes to this share of the reduced total.

    Raises
    ------
    ConfigError
        If the share is below 1/N.
    DataError
        If so many sizes are 0 that nothing would be left.
    """
    count = len(sizes)
    if share * count < 1.0 - _ROUNDING:
        raise ConfigError(
            f"{option('max_share')} is {share:g}, but {count} clients need at least 1/{count}, because their shares "
            "add up to 1. Raise max_share.",
            setting="max_share",
        )
    size = np.sort(sizes)[::-1]
    # rest[m] is the sum of all sizes except the m largest.
    rest = np.append(np.cumsum(size[::-1])[::-1], 0.0)
    most = size[0]
    for m in range(count):
        # If the m largest sizes are reduced to c, then c is the share s of m c + rest, and the next size is below c.
        if size[m] * (1.0 - share * m) <= share * rest[m] * (1.0 + _ROUNDING):
            break
        others = 1.0 - share * (m + 1)
        most = share * rest[m + 1] / others
    if most <= 0.0:
        raise DataError(
            "Too few clients have rows that vary, so max_share is too small. Raise max_share, or leave it out."
        )
    positive = np.maximum(sizes, np.finfo(float).tiny)
    return np.asarray(np.minimum(1.0, most / positive))
