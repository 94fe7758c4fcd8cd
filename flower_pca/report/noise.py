"""What the page of a run with a privacy budget says beside the others: the budget, and bounds in place of shares."""

from __future__ import annotations

from flower_pca.base import labels
from flower_pca.core.spent import Certainty
from flower_pca.results.pca import PCAResult


def facts(result: PCAResult, known: Certainty) -> dict[str, str]:
    """The budget, and what is left to say of the variance."""
    spent = result.privacy
    assert spent is not None
    return {
        "variance explained": labels.bounds(known.together[-1]),
        "privacy: epsilon, delta": f"{spent.epsilon:.4g}, {spent.delta:g}",
        "deviation of the noise": f"{spent.noise:.4g}",
        "noise is added": "in shares" if spent.shared else "by each client",
    }
