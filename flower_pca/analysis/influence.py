"""Influence: what a result would be without each of its clients, of a run that was asked for it.

`simulate(..., influence=True)` ends with two or three more messages, from which the server works out the components of
all rows but one client's, see `stages.influence`. A client whose rows are like those of the others hardly turns them.
One that is far off is named, with the column in which its rows differ most: often one that is in other units there, or
a file of something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.errors import ConfigError
from flower_pca.results.pca import PCAResult

TURN: Final = np.deg2rad(10.0)  # below which no client is far off for the components that it turns,
_APART: Final = 3.0  # nor where the others turn them by more than a third of that
TIMES: Final = 5.0  # of how far out a column's values lie: beyond, or below a fifth, it may be in other units


@dataclass(frozen=True)
class Influence:
    """What one client does to a result.

    Attributes:
        client: Its key, as in `site_names`.
        name: What it is called.
        rows: How many rows it has.
        angle: The largest angle, in radians, that the components would turn by without it.
        doubt: How far off, in radians, that angle may be; infinite where no single answer is the right one.
        explained: The share of the variance that as many components would explain without it.
        total_variance: The total variance without it.
        column: The column whose values lie furthest out, or least far, by those of most clients.
        times: How many times as far.
        far: Whether it is far off.
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
    far: bool

    @property
    def off(self) -> bool:
        """Whether one of its columns looks as if it were in other units."""
        return not 1.0 / TIMES <= self.times <= TIMES

    def __str__(self) -> str:
        turned = f"without {self.name} ({labels.count(self.rows, 'row')}) the components turn by {self.degrees}"
        if not self.off:
            return turned
        lie = f"the values of {self.column} lie {self.times:.3g} times as far out there as at most clients"
        return f"{turned}; {lie}, as in other units"

    @property
    def degrees(self) -> str:
        """The angle in words."""
        sure = "" if self.doubt <= max(self.angle, 0.01) else ", or more: no one answer is clearly the right one"
        return f"{np.rad2deg(self.angle):.3g} degrees{sure}"


def measured(result: PCAResult) -> bool:
    """Whether the run has measured the influence of several clients."""
    return result.influence_ is not None and len(result.influence_) > 1


def influence(result: PCAResult) -> list[Influence]:
    """What each client does to this result, the one that turns its components most first.

    Raises:
        ConfigError: If the run was not asked for it, or there was only one client.
    """
    if result.influence_ is None or result.influence_keys_ is None:
        remedy = "Run with influence=True."
        raise ConfigError("The result", must="of a run that measured the clients' influence", got="none", then=remedy)
    if len(result.influence_) < 2:
        raise ConfigError("The clients of the run", must="at least 2", got=1, then="Leave influence out.")
    names = labels.column_names(result.feature_names_in_, result.n_features_in_)
    angles = result.influence_[:, 1]
    found = []
    for i, (key, line) in enumerate(zip(result.influence_keys_.tolist(), result.influence_, strict=True)):
        rows, angle, doubt, explained, variance, column, times = line.tolist()
        usual = float(np.median(np.delete(angles, i)))
        turns = angle > max(TURN, _APART * usual)
        off = not 1.0 / TIMES <= times <= TIMES
        name = labels.client_name(result.site_names, key)
        at = names[int(column)]
        given = Influence(key, name, int(rows), angle, doubt, explained, variance, at, times, bool(turns) or off)
        found.append(given)
    return sorted(found, key=lambda one: -one.angle)


def warnings(result: PCAResult) -> list[str]:
    """A sentence on every client that is far off; [] where none is, or nobody has asked."""
    if not measured(result):
        return []
    return [f"{one.name} is far off: {one}." for one in influence(result) if one.far]
