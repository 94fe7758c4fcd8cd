"""A run of what is asked: its stages in their order, the terms of a privacy budget, and masks over it; and the answer
of a client to any message of such a run, masked or plain.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from flower_pca import registry
from flower_pca.base import checks
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.session import Session
from flower_pca.core.stage import Arrays, Stage
from flower_pca.dp import noise
from flower_pca.dp.plan import DP, planned
from flower_pca.masking import messages
from flower_pca.masking.fixed import Grain, system_grain
from flower_pca.masking.settings import MaskedSums
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.local import LocalData
from flower_pca.stages.evaluate import Evaluate
from flower_pca.stages.opening import Opening
from flower_pca.stages.summed_opening import SummedOpening
from flower_pca.tracking.session import TrackingSession
from flower_pca.tracking.tracker import Tracker

if TYPE_CHECKING:
    from flower_pca.masking.identity import Identity


def session(
    algorithm: Algorithm[Any],
    *,
    n_components: int | float,
    mask: bool | MaskedSums | str | None = None,
    dp: DP | str | None = None,
    evaluate: bool = False,
    **settings: Any,
) -> Session:
    """A run: opening, algorithm, its closing stage (mostly Rayleigh-Ritz), and an evaluation if asked for.

    Args:
        algorithm: The algorithm's stage.
        n_components: Number of components, or the fraction of the total variance that decides it.
        mask: Whether sums are masked, or how.
        dp: The privacy budget; the clients then clip their rows and add noise.
        evaluate: Whether to measure the reconstruction error on the clients at the end.
        **settings: Those of `Session`.
    """
    masks, dp = MaskedSums.of(mask), DP.of(dp)
    if masks is not None:
        masks.check(algorithm, scale=settings.get("scale"), dp=dp, channel=settings.get("channel"))
    if settings.get("channel") is not None:
        registry.require_over_air(algorithm)
    settings["n_components"] = n_components = checks.components(n_components)
    width = algorithm.width(n_components)
    opening: Stage[Any] = Opening(width=width) if masks is None else SummedOpening(width=width)
    if dp is not None:
        asked = {"scale": settings.get("scale"), "missing": settings.get("missing", "error"), "evaluate": evaluate}
        plan, algorithm = planned(dp, algorithm, n_components=n_components, **asked)
        opening, settings["plan"] = plan.opening(width), plan
    settings["result"] = registry.result(algorithm)
    stages = (opening, algorithm, registry.closing(algorithm)(), *([Evaluate()] if evaluate else []))
    if masks is None:
        return Session(stages, **settings)
    from flower_pca.masking.run import MaskedSession

    return MaskedSession(stages, masks=masks, **settings)


def tracking(tracker: Tracker, *, mask: bool | MaskedSums | str | None = None, **settings: Any) -> TrackingSession:
    """A run of steps, masked if `mask` says so; the other settings are those of `TrackingSession`."""
    masks = MaskedSums.of(mask)
    if settings.get("channel") is not None:
        registry.require_over_air(tracker)
    if masks is None:
        return TrackingSession(tracker, **settings)
    masks.check(tracker, channel=settings.get("channel"))
    from flower_pca.masking.tracking import MaskedTracking

    return MaskedTracking(tracker, masks=masks, **settings)


def answer(
    stage: str,
    arrays: Arrays,
    data: Any,
    memory: Arrays,
    *,
    bits: noise.Bits = noise.system_bits,
    identity: Identity | None = None,
    fixed: Callable[[LocalData], FixedData] | None = None,
    grain: Grain = system_grain,
) -> tuple[Arrays, Arrays]:
    """What a client returns to a message, and what it keeps.

    Under masks, keys are signed, and others' checked, by this identity; `grain` draws what blurs the steps of fixed
    point. With `fixed`, halves that do not compare rows get what it gives in place of rows.
    """
    plain = partial(registry.answer, bits=bits, fixed=fixed)
    if stage != messages.STAGE:
        return plain(stage, arrays, data, memory)
    from flower_pca.masking import client

    return client.answer(arrays, data, memory, plain, identity, grain)
