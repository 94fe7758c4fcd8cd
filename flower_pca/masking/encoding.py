"""A client's answer in fixed point: what it asks of the bounds that a server names, and what one too small costs."""

from __future__ import annotations

import numpy as np

from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.stage import Arrays
from flower_pca.dp import noise
from flower_pca.masking import fixed, messages
from flower_pca.masking.messages import SpentError
from flower_pca.masking.secrets import Secrets


def check(arrays: Arrays, secrets: Secrets) -> None:
    """Require of an upload's message, before the rows are looked at, a fixed point that suits the sum.

    The bounds of an answer with noise follow from the noise: with others, a server could ask where the noise ends.
    """
    clients, least = arrays["mask.clients"], len(secrets.holders) + 1
    if clients.shape or clients.dtype.kind not in "iu" or not least <= clients <= fixed.MOST_CLIENTS:
        rule = f"from {least} to {fixed.MOST_CLIENTS}"
        raise _refused("The number of clients in a sum", rule, "several" if clients.shape else f"{clients}")
    if noise.asked(arrays):
        bounds, share = messages.bounds(arrays), noise.asked_share(arrays, secrets.summed)
        own = fixed.bounds_with_noise(bounds, share, int(clients))
        if not all(np.array_equal(own[name], bound) for name, bound in bounds.items()):
            raise _refused("The bounds of a sum with noise", "those that follow from the noise", "others")


def encoded(arrays: Arrays, up: Arrays, own: Arrays, grain: noise.Bits) -> Array:
    """The answer in fixed point.

    One beyond a bound gives none, which tells something of this client alone. So that costs it the secrets of the
    set-up, and leaves `own`, what the stage keeps: a server cannot go on to ask with one bound after another.
    """
    bounds = messages.bounds(arrays)
    if set(bounds) != set(up):
        remedy = "Install the same flower_pca everywhere."
        raise ProtocolError("The bounds of a sum", must=f"those of {', '.join(up)}", got=list(bounds), then=remedy)
    try:
        return fixed.encode(up, bounds, int(arrays["mask.clients"]), grain)
    except DataError as error:
        raise SpentError(str(error), own) from error


def _refused(what: str, rule: str, got: str) -> ProtocolError:
    return ProtocolError(what, must=rule, got=got, then="Nothing was sent in return.")
