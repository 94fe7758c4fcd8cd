"""A client's half of a message: what it returns of its rows, masked or plain, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flower_pca import registry
from flower_pca.base.errors import ProtocolError
from flower_pca.core.kinds import require_finite
from flower_pca.core.stage import Arrays
from flower_pca.dp import draw
from flower_pca.layers import noise, precision
from flower_pca.layers import single as apart
from flower_pca.masking import messages
from flower_pca.masking.demands import Demands
from flower_pca.masking.grain import Grain, system_grain
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.stages.opening import Opening
from flower_pca.vertical.rows import count_party

_NOBODY = apart.Who()


def answer(
    stage: str,
    arrays: Arrays,
    data: Any,
    memory: Arrays,
    *,
    bits: draw.Bits = draw.system_bits,
    demands: Demands | None = None,
    fixed: Callable[[LocalData], FixedData] | None = None,
    grain: Grain = system_grain,
    who: apart.Who = _NOBODY,
) -> tuple[Arrays, Arrays]:
    """What a client returns to a message, and what it keeps.

    Under masks, `demands` are what it asks of those that it is summed with, and `grain` draws what blurs the steps of
    fixed point. With `fixed`, halves that do not compare rows get what it gives in place of rows. `who` the client is,
    where a message has numbers for each.
    """

    def plain(stage: str, arrays: Arrays, data: Any, memory: Arrays, /, *, summed: int = 1) -> tuple[Arrays, Arrays]:
        arrays = apart.mine(precision.plain(arrays), who)
        up, after = unmasked(stage, arrays, data, memory, bits=bits, summed=summed, fixed=fixed)
        return count_party(up, data), after

    if stage != messages.STAGE:
        up, after = plain(stage, arrays, data, messages.plain(memory))  # what it keeps of this binds no masks
        return (up if (few := precision.asked(arrays)) == 64 else _rounded(stage, arrays, data, up, few)), after
    from flower_pca.masking import client

    return client.answer(arrays, data, memory, plain, demands or Demands(), grain)


def _rounded(stage: str, arrays: Arrays, data: Any, up: Arrays, bits: int) -> Arrays:
    """An answer whose products have so few bits."""
    parts = registry.STAGES[stage].parts(arrays, data.d)
    up = precision.moments(up, bits) if stage == Opening.name else up
    return {name: precision.rounded(a, bits) if parts[name].kind.rounded else a for name, a in up.items()}


def unmasked(
    stage: str,
    arrays: Arrays,
    data: Any,
    memory: Arrays,
    *,
    bits: draw.Bits = draw.system_bits,
    summed: int = 1,
    fixed: Callable[[LocalData], FixedData] | None = None,
) -> tuple[Arrays, Arrays]:
    """A client's half of the stage with this name: what it returns, and what it keeps.

    Where the message asks for noise, rows are clipped and noise is added here, from these random bits. Under masks
    nobody sees the answer but in a sum of at least `summed`. With `fixed`, halves that do not compare rows get what it
    gives in place of rows.
    """
    if stage not in registry.STAGES:
        remedy = "Install the same flower_pca everywhere."
        raise ProtocolError("The stage", must=f"one of {', '.join(registry.STAGES)}", got=repr(stage), then=remedy)
    if isinstance(data, Stream) != (stage in registry.TRACKERS):
        rule, got = ("a Stream", "rows at rest") if stage in registry.TRACKERS else ("rows at rest", "a Stream")
        remedy = "Serve Stream(rows, batch=60) to trackers, and rows to the others."
        raise ProtocolError(f"The data for {stage}", must=rule, got=got, then=remedy)
    if not noise.NAMES.isdisjoint(arrays):
        return noise.answer(registry.STAGES[stage], arrays, data, memory, bits, summed=summed)
    if fixed is None:
        return registry.STAGES[stage].client(arrays, data, memory)
    with np.errstate(all="ignore"):
        rows = data if registry.STAGES[stage].by_row else fixed(data)
        up, after = registry.STAGES[stage].client(arrays, rows, memory)
    require_finite(up)
    return up, after


def own(stage: str, memory: Arrays, data: Any) -> Arrays:
    """What a client's memory after the stage with this name amounts to as its own result; mostly nothing."""
    return registry.STAGES[stage].own(memory, data)
