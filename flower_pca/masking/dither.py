"""The noise that hides rounding to fixed point, drawn from a client's own random bits or from a simulation's seed.

The noise has to hide only the rounding, so single precision suffices. The sum of all clients' noise is normally
distributed up to six standard deviations, and the rounded numbers do not reveal what was rounded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from flower_pca.base.bits import Bits, seeded_bits
from flower_pca.base.linalg import Array

# A function that takes the digest of a request and returns a source of random bits for the noise of the answer
DitherSource: TypeAlias = Callable[[bytes], Bits]

_UNIT: Final = np.float32(2.0**-32)  # the factor that scales a random number of 32 bits to the interval from 0 to 1
_TURN: Final = np.float32(2.0 * np.pi * 2.0**-32)  # the factor that scales a random number of 32 bits to an angle


def private_random_bits(size: int) -> Array:
    """Return random bits that only this process knows, from a stream with a fresh key of the operating system."""
    # The import is here because every run imports this module, but only masks need the package cryptography.
    from flower_pca.masking import primitives

    return primitives.mask_of_key(os.urandom(primitives.KEY), size)


def system_dither(digest: bytes) -> Bits:
    """Return `private_random_bits`, the client's own source of random bits. The digest of the message is not used."""
    return private_random_bits


def seeded_dither(seed: int, client: int, digest: bytes) -> Bits:
    """Return a source of bits that depends only on the seed, the client and the digest of the message.

    A simulation that continues from a checkpoint therefore gives the same result as without the interruption.
    """
    return seeded_bits(seed, client, int.from_bytes(digest[:8]))


def draw_normals(count: int, bits: Bits) -> Array:
    """Return `count` numbers from N(0, 1) in single precision, by the method of Box and Muller."""
    half = -(-count // 2)
    words = ~bits(half).view(np.uint32)
    radius = words[:half].astype(np.float32)
    np.log((radius + np.float32(1.0)) * _UNIT, out=radius)
    np.sqrt(np.float32(-2.0) * radius, out=radius)
    angle = words[half:].astype(np.float32) * _TURN
    pair = [radius * np.cos(angle), radius * np.sin(angle)]
    return np.concatenate(pair)[:count]
