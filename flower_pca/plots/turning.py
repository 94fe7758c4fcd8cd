"""How far the components of a result would turn without each of its clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flower_pca.analysis.influence import influence
from flower_pca.plots import clients, style
from flower_pca.results.pca import PCAResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def angles(drawn: Figure, result: PCAResult) -> None:
    """A bar for each client, in degrees, the largest first; of another colour where a client is far off."""
    found = influence(result)
    named = len(found) <= clients.NAMED or bool(result.site_names)
    degrees = np.rad2deg([one.angle for one in found])
    names = [one.name for one in found] if named else []
    ax = clients.bars(drawn, degrees, names, title="Components without one client", words="turn by, degrees")
    for bar, one in zip(ax.patches, found, strict=True):
        if one.far:
            bar.set_facecolor(style.MINUS)
