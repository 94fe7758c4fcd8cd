"""Layout: of which numbers an upload is made, and how large they can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.core.parts import Kind, closed
from flower_pca.core.run import Run
from flower_pca.core.settings import MaskedSums
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.masking import fixed, messages


@dataclass(frozen=True)
class Layout:
    """The arrays of one client's answer by name, and among how many clients at most they are summed.

    Attributes:
        shapes: Their shapes.
        bounds: The largest size of their entries; 0 where that is not known.
        clients: The clients that the sum has begun with.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    bounds: Mapping[str, Array] = field(default_factory=dict)
    clients: int = 0

    @classmethod
    def of(cls, run: Run, masks: MaskedSums, message: Broadcast, columns: int, clients: int, *, heard: bool) -> Layout:
        """That of the answers of so many clients to the run's message, where rows have so many columns.

        With noise the bounds follow from that; else from what the run knows, unless the caller has named one. `heard`:
        whether all clients have answered the message before, by the same set-up.
        """
        standing = run.standing
        parts = standing.stage.parts(message.arrays, columns)
        shapes = closed(parts)
        bounds = standing.bounds(heard=heard)
        if share := run.terms.share(opening=standing.opening):
            bounds = fixed.bounds_with_noise(shapes, share, clients)
        elif masks.bound is not None and not standing.opening:
            # A caller can judge the entries of products; of counts, and of the figures of a batch, nobody can.
            judged = {n for n, p in parts.items() if p.kind is not Kind.ROWS and (standing.opens or p.shape)}
            bounds = {name: masks.bound if name in judged else bound for name, bound in bounds.items()}
        return cls(shapes, {name: np.array(bounds[name], dtype=np.float64) for name in shapes}, clients)

    @property
    def size(self) -> int:
        """The numbers mod 2^64 that an upload takes."""
        return fixed.size(self.shapes, self.bounds)

    def limits(self) -> Arrays:
        """The bounds as a message has them."""
        return {f"{messages.BOUND}{name}": bound for name, bound in self.bounds.items()}

    def sums(self, total: Array) -> Arrays:
        """The sums of the answers in the total of the uploads, once its masks are off."""
        return fixed.decode(total, self.shapes, self.bounds, self.clients)


def require_sum(run: Run, message: Broadcast) -> None:
    """Refuse a message that no sum can answer, or of more clients than fixed point has room for."""
    if not run.standing.sums_suffice or message.personal:
        remedy = "Choose settings of it that need sums only, or leave the masks out."
        rule = "a sum, at every message" + (", and the same of all clients" if message.personal else "")
        got = "one of its own for each" if message.personal else "one that the server must have from each client"
        raise ConfigError(f"What {run.algorithm.spec} asks for", must=rule, got=got, then=remedy)
    if len(message.to) > fixed.MOST_CLIENTS:
        rule = f"at most {fixed.MOST_CLIENTS}"
        raise ConfigError("The clients under masks", must=rule, got=len(message.to), then="Ask fewer.")
