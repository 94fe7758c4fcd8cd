"""What the figures of a run of steps say against it: a column that is a component, too small a rank, a deaf watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array

_ALONE: Final = 0.98  # of the squares of a component: what one column has of it that is by itself
_OUTWEIGHS: Final = 10.0  # times the next component: how much more that one is
_NEWEST: Final = 20  # steps that are looked at
_LEAST: Final = 3
_UNSTEADY: Final = 100.0  # times the usual statistic: a level above that hides all but leaps
_STANDS_OUT: Final = 3.0  # times the most that noise alone leaves in one direction


def advice(left: Mapping[str, Array], names: Sequence[str]) -> list[str]:
    """Sentences about the newest steps: none where all is well."""
    return [*_stuck(left, names), *_narrow(left), *_watched(left)]


def _stuck(left: Mapping[str, Array], names: Sequence[str]) -> list[str]:
    """A wild column takes a component for itself: the rows leave nothing of it, and everything else is next to it."""
    basis, values = left["bases"][-1], left["values"][-1]
    following = np.append(values[1:], 0.0)
    said = []
    for j, weights in enumerate(basis.T):
        column = int(np.argmax(np.abs(weights)))
        if weights[column] ** 2 > _ALONE and values[j] > _OUTWEIGHS * following[j] and len(values) > 1:
            said.append(
                f"component {j + 1} is {names[column]} alone, {values[j] / max(following[j], 1e-300):.2g} times the "
                "next: a sensor that is stuck, or has another unit? robust_tracking takes wrong entries out"
            )
    return said


def _narrow(left: Mapping[str, Array]) -> list[str]:
    """One direction of what is left over that has more than noise would have in its largest."""
    (d, r), newest = left["bases"][-1].shape, slice(-_NEWEST, None)
    rows, misfit, beyond = (left[name][newest].astype(float) for name in ("rows", "misfit", "beyond"))
    known = np.isfinite(misfit) & np.isfinite(beyond) & (rows > r)
    if d <= r + 1 or known.sum() < _LEAST:
        return []
    rest = np.maximum(misfit[known] - beyond[known], 0.0) / (d - r - 1)  # of noise, in each of the other directions
    most = rest * (1.0 + np.sqrt((d - r) / rows[known])) ** 2
    over = float(np.median(beyond[known] / np.maximum(most, 1e-300)))
    tiny = float(np.median(beyond[known])) <= 1e-10 * float(left["values"][-1].sum() / max(rows[-1], 1.0))
    if over <= _STANDS_OUT or tiny:
        return []
    few = f"{labels.count(r, 'component')} may be too few"
    return [f"{few}: one direction of what is left has {over:.2g} times what noise would"]


def _watched(left: Mapping[str, Array]) -> list[str]:
    """Which steps were judged, where changes were looked for in some, and whether anything but a leap could be seen."""
    judged = np.flatnonzero(np.isfinite(left["level"]))
    if not len(judged):
        return []
    said = [f"{labels.count(len(judged), 'step')} judged for a change, from {int(left['gone']) + judged[0]} on"]
    level, usual = left["level"][judged[-1]], float(np.nanmedian(left["statistic"]))
    if level > _UNSTEADY * usual > 0.0:
        said.append(f"too unsteady to watch: an alarm takes {level / usual:.2g} times the usual statistic")
    return said
