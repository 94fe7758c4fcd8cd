"""From past steps of a fixed-point iteration on subspaces to a bolder one. All on the server, no message more."""

from __future__ import annotations

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.linalg import Array


def anderson(points: tuple[Array, ...], images: tuple[Array, ...]) -> Array:
    """Anderson 1965: of all affine combinations of the pairs (point, image), the one whose residual is least.

    The pairs are turned to the newest point first, as a basis and its rotations are the same subspace.
    """
    turns = [linalg.procrustes(X, points[-1]) for X in points]
    G = np.stack([image @ O for image, O in zip(images, turns, strict=True)])
    R = G - np.stack([X @ O for X, O in zip(points, turns, strict=True)])
    if len(G) == 1:
        return images[-1]
    differences = (R[:-1] - R[-1]).reshape(len(R) - 1, -1).T
    gamma = np.linalg.lstsq(differences, -R[-1].ravel(), rcond=1e-12)[0]
    return linalg.polar(G[-1] + np.tensordot(gamma, G[:-1] - G[-1], axes=1))


def nesterov(before: Array, image: Array, step: int) -> Array:
    """The newest image and (step - 1) / (step + 2) of the way that led to it from the image before, once more."""
    turned = before @ linalg.procrustes(before, image)
    return linalg.polar(image + (step - 1.0) / (step + 2.0) * (image - turned))
