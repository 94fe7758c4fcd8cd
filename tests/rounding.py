"""Messages by which a server turns rounding into comparisons, and a frozen copy of the product that they work on."""

import numpy as np
from dishonest import RefusedError

from flower_pca.rows.frame import Frame

D, K, A, L, COUNT = 24, 0, 5, 10, 3  # columns: the two that cancel lie around the one that is compared
STEP = 2.0**40  # that sums are rounded to
HUGE = 1.5 * 2.0**52 * STEP
FAR = 1.5 * 2.0**62  # large enough for an entry to vanish beside it
OUT = [c for c in range(D) if c not in (K, A, L, COUNT)]


def drawn_rows(n, seed):
    return np.random.default_rng([seed, n]).standard_normal((n, D)) * 3.0 + 1.0


def shifted(X, frame):
    """Rows in a frame, as nodes once had them."""
    X = X if frame.fill is None else np.where(np.isnan(X), frame.fill, X)
    X = X if frame.mean is None else X - frame.mean
    return X if frame.scale is None else X / frame.scale


def old_product(X, frame, Z):
    """X'(XZ) from rows, every dot product summed from the first column to the last."""
    B = shifted(X, frame)
    return B.T @ np.stack([np.add.accumulate(B * z, axis=1)[:, -1] for z in Z.T], axis=1)


def old(parts, frame, Z):
    return sum(old_product(X, frame, Z) for X in parts)


def by_frame(tau):
    """Two means so large that what a row has beside them counts as a step, or as nothing."""
    mean, Z = np.zeros(D), np.zeros((D, 1))
    mean[[K, L]], mean[A], mean[COUNT] = HUGE, tau - 30.0, -1e7
    Z[[K, A, L], 0] = 1.0, STEP / 60.0, -1.0
    return Frame(mean=mean), Z, STEP


def by_scale(tau):
    """The same with smaller means divided by small scales; the block has entries 1 and -1."""
    frame, Z, step = by_frame(tau)
    mean, scale = frame.mean.copy(), np.ones(D)
    mean[[K, L]], scale[[K, L]], scale[A] = FAR, FAR / HUGE, 60.0 / STEP
    return Frame(mean=mean, scale=scale), np.sign(Z), step


def by_block(tau):
    """The same with smaller means, which the block blows up."""
    frame, Z, step = by_frame(tau)
    mean = frame.mean.copy()
    mean[[K, L]], Z[[K, L]] = FAR, Z[[K, L]] * HUGE / FAR
    return Frame(mean=mean), Z, step


def nearest(ask, X, query, *, messages=24):
    """Bisect for a threshold above which a single row lies; how far the best guess of it is from any row."""
    found, low, high = np.inf, 0.0, 40.0
    lengths = np.linalg.norm(X[:, OUT], axis=1)
    for _ in range(messages):
        tau = (low + high) / 2.0
        frame, Z, step = query(tau)
        try:
            y = ask(frame, Z)[:, 0].astype(np.float64)
        except RefusedError:
            high = tau
            continue
        guess = (y / step)[OUT]
        found = min(found, float((np.linalg.norm(guess - X[:, OUT], axis=1) / lengths).min()))
        above = y[COUNT] / (step * 1e7)
        low, high = (tau, high) if above > 1.5 else (low, tau)
    return found


QUERIES = [by_frame, by_scale, by_block]
