"""Noise that hides the rounding to fixed point, from a client's own stream or a simulation's seed.

It only has to hide the rounding, so single precision suffices. The sum of all clients' noise is normal up to
six standard deviations, and no whole step reveals what was rounded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from flower_pca.base.bits import Bits, seeded_bits
from flower_pca.base.linalg import Array

# a function from the digest of a request to random bits for the noise of its answer
DitherSource: TypeAlias = Callable[[bytes], Bits]

_UNIT: Final = np.float32(2.0**-32)  # The unit of a random number of 32 bits.
_TURN: Final = np.float32(2.0 * np.pi * 2.0**-32)


def own_bits(size: int) -> Array:
    """Return a stream of bits that nobody else knows: its key is new, from the system's generator for secrets."""
    # Imported here, because every run imports this module, but only masks need cryptography.
    from flower_pca.masking import primitives

    return primitives.stream(os.urandom(primitives.KEY), size)


def system_dither(digest: bytes) -> Bits:
    """Return bits of the client's own, independent of the message."""
    return own_bits


def seeded_dither(seed: int, client: int, digest: bytes) -> Bits:
    """Return bits that are the same for the same message, for simulations that continue."""
    return seeded_bits(seed, client, int.from_bytes(digest[:8]))


def normals(count: int, bits: Bits) -> Array:
    """Return this many N(0, 1) numbers of single precision (Box and Muller), two from each 64 random bits."""
    half = -(-count // 2)
    words = ~bits(half).view(np.uint32)
    radius = words[:half].astype(np.float32)
    np.log((radius + np.float32(1.0)) * _UNIT, out=radius)
    np.sqrt(np.float32(-2.0) * radius, out=radius)
    angle = words[half:].astype(np.float32) * _TURN
    pair = [radius * np.cos(angle), radius * np.sin(angle)]
    return np.concatenate(pair)[:count]
