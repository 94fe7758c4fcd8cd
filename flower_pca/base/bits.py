"""Sources of random bits: the operating system for secrets, and a seed for tests and simulations."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import TypeAlias, cast

import numpy as np

from flower_pca.base.linalg import Array

Bits: TypeAlias = Callable[[int], Array]  # a function that returns the given number of random 64-bit numbers


def system_bits(size: int) -> Array:
    """Return `size` random 64-bit numbers from the operating system's generator, for secrets."""
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def seeded_bits(seed: int, *which: int) -> Bits:
    """Return a source of random bits for tests and simulations. It depends only on `seed` and the numbers `which`."""
    return cast(Bits, np.random.PCG64([seed, *which]).random_raw)


def random_signs(key: bytes, shape: tuple[int, int]) -> Array:
    """Return a matrix of 1 and -1, each with probability 1/2, which looks random without the key (SHAKE-256)."""
    count = shape[0] * shape[1]
    drawn = hashlib.shake_256(key).digest(-(-count // 8))
    flips = np.unpackbits(np.frombuffer(drawn, dtype=np.uint8), count=count).reshape(shape)
    return np.asarray(1.0 - 2.0 * flips)
