"""MaskedTracking: a run of steps in which the server sees the sums over all streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.masking.group import Group
from flower_pca.masking.run import Masked
from flower_pca.tracking.session import TrackingSession


class MaskedTracking(Masked, TrackingSession):
    """A TrackingSession under masks. See `Masked`.

    A client that has no rows at the first step does not know how long they are, yet what it uploads has to be as long
    as at all others. So clients tell their columns at the set-up, and the server tells them to all.
    """

    @property
    def _columns(self) -> int:
        return self._state.d if self._state.solver is None else len(self._state.solver.block)

    def _compose(self, to: tuple[int, ...]) -> tuple[Arrays, dict[int, Arrays]]:
        common, personal = super()._compose(to)
        told = {"mask.d": np.array(self._columns)} if self._group is None and self._columns else {}
        return {**common, **told}, personal

    def _ask(self, group: Group) -> None:
        if self._state.solver is None and self._under is not None:
            self._state = replace(self._state, d=self._d)
            self._under = replace(self._under, arrays=self._tracker.broadcast(self._state))
        super()._ask(group)

    def _limits(self, group: Group) -> Mapping[str, Array | float]:
        # What is known is known of those whose rows are in the sum before; by a new set-up others come, or other rows.
        same = group.number > 0 and set(self._alive) <= set(self._state.clients)
        bounds = self._tracker.bounds(self._state, self._model)
        given = self._masks.bound
        return bounds if same and given is None else {**bounds, "S": given or 0.0}
