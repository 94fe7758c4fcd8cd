"""Simulation of a whole federation on one machine."""

from flower_pca.simulation.backend import Ray
from flower_pca.simulation.here import simulate, track
from flower_pca.simulation.sites import from_frame

__all__ = ["Ray", "from_frame", "simulate", "track"]
