"""Random bits of the noise that blurs the steps of fixed point: the operating system's, or of a simulation's seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flower_pca.dp import draw

Grain: TypeAlias = Callable[[bytes], draw.Bits]  # from a digest of what is asked to bits of the answer's noise


def system_grain(asked: bytes) -> draw.Bits:
    """The operating system's own bits, whatever is asked."""
    return draw.system_bits


def seeded_grain(seed: int, client: int) -> Grain:
    """Bits that are the same whenever the same is asked, for simulations: a run that goes on has them again."""
    return lambda asked: draw.seeded_bits(seed, client, int.from_bytes(asked[:8]))
