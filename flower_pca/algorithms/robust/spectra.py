"""VU' as the server knows it, by U and G = V'V: its singular values, how far it has moved, and its leading part."""

from __future__ import annotations

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array


def moments(U: Array, G: Array) -> tuple[Array, Array]:
    """An orthonormal basis Z of span(U), and L'L Z for L'L = U G U'."""
    Z, R = linalg.qr(U)
    return Z, Z @ (R @ ((G + G.T) / 2) @ R.T)


def change(old: Array, new: Array, G: Array) -> float:
    """|A - ZZ'A| / |A| for A = U_new G^(1/2), Z = orth(U_old): free of gauge, weak components weigh little."""
    E = linalg.complement(new, linalg.orth(old))
    whole = float(np.sum((new @ G) * new))
    return float(np.sqrt(max(float(np.sum((E @ G) * E)), 0.0) / whole)) if whole > 0.0 else 0.0


def spectrum(U: Array, G: Array) -> Array:
    """The singular values of VU', largest first, for G = V'V."""
    values = linalg.rayleigh_ritz(*moments(U, G))[0]
    return np.asarray(np.sqrt(np.maximum(values, 0.0)))


def gap(s: Array, least: float) -> int | None:
    """How many singular values come before the widest gap, if that is a ratio of `least` at least."""
    s = np.maximum(s, np.finfo(np.float64).tiny)
    ratios = s[:-1] / s[1:]
    return int(np.argmax(ratios)) + 1 if len(ratios) and ratios.max() >= least else None


def apart(U: Array, G: Array, other: Array, others: Array) -> float:
    """How far two low-rank parts are apart: the second's share off the first's columns, or of the singular values."""
    s, t = spectrum(U, G), spectrum(other, others)
    width = max(len(s), len(t))
    s, t = (np.pad(values, (0, width - len(values))) for values in (s, t))
    return max(change(U, other, others), float(np.linalg.norm(s - t) / (np.linalg.norm(s) or 1.0)))


def narrow(U: Array, G: Array, r: int) -> tuple[Array, Array, Array]:
    """U and G of the r leading components, balanced, and T, by which V becomes VT: U = QR <- QW sqrt(s)."""
    Q, R = linalg.qr(U)
    values, W = linalg.eigh_descending(R @ G @ R.T)
    root = np.sqrt(np.sqrt(np.maximum(values[:r], np.finfo(np.float64).tiny)))
    return Q @ W[:, :r] * root, np.diag(root**2), R.T @ W[:, :r] / root
