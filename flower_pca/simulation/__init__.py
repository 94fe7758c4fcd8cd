"""Simulations of a whole federation on one machine."""

from flower_pca.simulation.backend import Ray
from flower_pca.simulation.frames import from_frame
from flower_pca.simulation.in_process import simulate, track

__all__ = ["Ray", "from_frame", "simulate", "track"]
