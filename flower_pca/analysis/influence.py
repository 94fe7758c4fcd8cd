"""Influence: what a result would be without each of its clients, of a result that knows it.

`simulate(..., influence=True)` ends with up to three more messages, from which the server works out
the components of all rows but one client's, see `stages.influence`; `of_rows` does it without a
message where the rows are at hand. A client is named only where its rows differ, and turn the
components, by more than chance explains of so few rows; with the column in which they differ most:
often one that is in other units there, or a file of something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import ConfigError, Setting, Words
from flower_pca.core.model import Model
from flower_pca.results.facts import names_of
from flower_pca.results.matching import match
from flower_pca.results.pca import PCAResult
from flower_pca.stages.influence import COLUMNS, KEYS, LEFT, MESSAGES, WIDER, chances, is_far
from flower_pca.stages.influence import Influence as Stage

# of how far out a column's values lie: beyond, or below a fifth, it may be in other units
TIMES: Final = 5.0
# numbers that all answers may be for it to be worked out unasked, 256 MB
_ROOM: Final = 2**25
_SQUARE: Final = 1e-6  # of what rounding may leave between orthonormal components
SAID: Final = 3  # clients of which there is a sentence each; a table has the rest


@dataclass(frozen=True)
class Influence:
    """What one client does to a result.

    Attributes:
        client: Its key, as in `site_names`.
        name: What it is called.
        rows: How many rows it has.
        angle: The largest angle, in radians, that the components would turn by without it.
        doubt: How far off, in radians, that angle may be; infinite where no single answer is the
            right one.
        explained: The share of the variance that as many components would explain without it.
        total_variance: The total variance without it.
        column: The column in which it differs most from the others.
        times: How many times as far from their mean its values of it lie as theirs; infinite where
            theirs are all one.
        beyond: How many times the most that chance explains, for so few rows, it differs in that
            column.
        chance: The angle up to which chance explains its turn, by how far the others of their sizes
            turn the result; of one that may be far off, at most that by which they turn what is
            left without it.
    """

    client: int
    name: str
    rows: int
    angle: float
    doubt: float
    explained: float
    total_variance: float
    column: str
    times: float
    beyond: float
    chance: float

    @property
    def far(self) -> bool:
        """Whether it is far off: turns the components, and differs, by more than by chance."""
        return bool(is_far(self.angle, self.beyond, self.chance))

    @property
    def off(self) -> bool:
        """Whether one of its columns looks as if it were in other units."""
        return self.beyond > 1.0 and not 1.0 / TIMES <= self.times <= TIMES

    def __str__(self) -> str:
        turned = f"without {self.name} ({labels.count(self.rows, 'row')}) the components turn by {self.degrees}"
        if self.beyond <= 1.0:
            return turned
        if np.isinf(self.times):
            return f"{turned}; {self.column} is one and the same number at all others"
        distance = f"{self.times:.3g} times as far out"
        if 0.0 < self.times < 1.0:
            distance = f"{1.0 / self.times:.3g} times as near to the mean"
        said = f"{turned}; the values of {self.column} lie {distance} there as at the other clients"
        return f"{said}, as in other units" if self.off else said

    @property
    def degrees(self) -> str:
        """The angle in words."""
        degrees = f"{np.rad2deg(self.angle):.3g} degrees"
        if self.doubt <= max(self.angle, 0.01):
            return degrees
        return f"{degrees}, or more: no one answer is clearly the right one"


def has_influence(result: PCAResult) -> bool:
    """Whether the run has measured the influence of several clients."""
    return result.influence_ is not None and len(result.influence_) > 1


def cheap(result: PCAResult, clients: int) -> bool:
    """Whether it may be worked out unasked: there are few numbers, no noise, and nothing that masks have hidden."""
    question = result.asked
    hidden = result.privacy is not None or any(map(question.get, ("mask", "channel")))
    # rows that count for less would be compared with components of rows that count in full
    hidden = hidden or question.get("max_share") is not None
    width = (1 + WIDER * (MESSAGES - 1)) * (result.n_components_ + 2)
    room = clients * result.n_features_in_ * width <= _ROOM
    apart = question.get("split") == "columns" or not _orthonormal(result)
    return result.is_pooled and not hidden and not apart and clients > 1 and room


def of_rows(result: PCAResult, shards: Iterable[Any]) -> PCAResult:
    """The result with the influence of its clients, worked out from their rows, which are in the order of their keys.

    It is what the messages of a run would say, but for columns that the algorithm has beside its
    components.

    Raises:
        ConfigError: If its components are not orthonormal: those without a client, which are, are
            other ones anyway.
    """
    if not _orthonormal(result):
        raise ConfigError(
            "The result",
            must="of a run whose components are orthonormal",
            got=f"one of {result.algorithm}",
            then="Use krylov.",
        )
    frame = replace(result.frame, own=result.asked.get("missing") == "own_mean")
    clients = [match(X, frame, result.n_features_in_, digest=result.feature_digest) for X in shards]
    stage = Stage()
    model = Model(
        n_components=result.n_components_,
        center=result.centered,
        scale=None,
        seed=result.seed,
        frame=frame,
        basis=np.ascontiguousarray(result.components_.T),
    )
    state = stage.start(model)
    while stage.status(state) is None:
        message = stage.broadcast(state)
        numbered = enumerate(clients)
        answers = {key: stage.client(message, data, {})[0] for key, data in numbered}
        state = stage.server(state, answers, frozenset(answers))
    left = stage.finish(state, model).left
    return replace(result, influence_=left[LEFT], influence_keys_=left[KEYS])


def influence(result: PCAResult) -> list[Influence]:
    """What each client does to this result, the one that turns its components most first.

    Raises:
        ConfigError: If the run was not asked for it, or there was only one client.
    """
    if result.influence_ is None or result.influence_keys_ is None:
        raise ConfigError(
            "The result",
            must="of a run that measured the clients' influence",
            got="none",
            then=Words("Run with ", Setting("influence", True), "."),
        )
    if len(result.influence_) < 2:
        raise ConfigError("The clients of the run", must="at least 2", got=1, then="Leave influence out.")
    names, figures = names_of(result), result.influence_
    if figures.shape[1] < len(COLUMNS):  # of a file that holds no chance
        figures = np.column_stack([figures, chances(*figures.T[:2])])
    lines = (dict(zip(COLUMNS, line, strict=True)) for line in figures.tolist())
    found = [
        Influence(
            client=key,
            name=labels.client_name(result.site_names, key),
            rows=int(of["rows"]),
            angle=of["angle"],
            doubt=of["doubt"],
            explained=of["explained"],
            total_variance=of["variance"],
            column=names[int(of["column"])],
            times=of["times"],
            beyond=of["beyond"],
            chance=of["chance"],
        )
        for key, of in zip(result.influence_keys_.tolist(), lines, strict=True)
    ]
    return sorted(found, key=lambda one: -one.angle)


def warnings(result: PCAResult) -> list[str]:
    """Sentences on the clients that are far off, the furthest first; [] where there are none."""
    if not has_influence(result):
        return []
    far = [one for one in influence(result) if one.far]
    said = [f"{one.name} is far off: {one}." for one in far[:SAID]]
    if len(far) > SAID:
        said[-1] += f" So are {labels.count(len(far) - SAID, 'more client')}."
    return said


def _orthonormal(result: PCAResult) -> bool:
    Z = result.components_
    return bool(np.abs(Z @ Z.T - np.eye(len(Z))).max(initial=0.0) <= _SQUARE)
