"""Rows in steps from a subspace that changes, for trackers under masks."""

import numpy as np

from sims.over_air import moving

R, STEPS = 3, 4


def changing_problem(n_clients, rows=12, seed=0):
    """Rows of a subspace that changes after two steps, a tenth of their entries missing."""
    length = n_clients * rows
    return moving.piecewise(n=24, r=R, d=STEPS * length, change=2 * length, rho=0.1, seed=seed)


def problem_batches(n_clients, rows=12, seed=0):
    """Equally many rows for every client and step."""
    Y = changing_problem(n_clients, rows, seed).Y
    return [[part[k::n_clients] for part in np.split(Y, STEPS)] for k in range(n_clients)]
