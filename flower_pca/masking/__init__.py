"""Masked sums: the server learns what clients send together, and nothing of what one of them sends.

After Bonawitz et al. 2017, with keys that are fresh for every sum; see docs/masked-sums.md. The halves do no input or
output and never see Flower. What needs cryptography is imported when a masked run begins, and only then.
"""

from typing import Any

from flower_pca.core.algorithm import Algorithm
from flower_pca.core.session import Session
from flower_pca.masking.settings import MaskedSums
from flower_pca.tracking.session import TrackingSession
from flower_pca.tracking.tracker import Tracker

__all__ = ["MaskedSums", "session", "tracking"]


def session(mask: bool | MaskedSums | str | None, algorithm: Algorithm[Any], **settings: Any) -> Session:
    """A Session of these settings, masked if `mask` says so."""
    masks = MaskedSums.of(mask)
    if masks is None:
        return Session(algorithm, **settings)
    from flower_pca.masking.run import MaskedSession

    return MaskedSession(algorithm, masks=masks, **settings)


def tracking(mask: bool | MaskedSums | str | None, tracker: Tracker, **settings: Any) -> TrackingSession:
    """A TrackingSession, likewise."""
    masks = MaskedSums.of(mask)
    if masks is None:
        return TrackingSession(tracker, **settings)
    from flower_pca.masking.streams import MaskedTracking

    return MaskedTracking(tracker, masks=masks, **settings)
