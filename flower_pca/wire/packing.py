"""The numbers of a message in fewer bits, if a run asks for that."""

from __future__ import annotations

from collections.abc import Mapping

from flower_pca.core.stage import Arrays
from flower_pca.layers import EXPONENTS, WIRE


def pack(arrays: Arrays, layers: Mapping[str, Arrays]) -> Arrays:
    """Return the arrays in the form in which they travel under these layers."""
    wanted = bits(layers)
    if wanted == 64:
        return arrays
    from flower_pca.layers import precision

    return precision.pack(arrays, wanted)


def unpack(arrays: Arrays) -> Arrays:
    """Return packed arrays in double precision again."""
    if EXPONENTS not in ",".join(arrays):  # no other name contains this text
        return arrays
    from flower_pca.layers import precision

    return precision.unpack(arrays)


def bits(layers: Mapping[str, Arrays]) -> int:
    """Return the number of bits with which numbers travel."""
    if WIRE not in layers:
        return 64
    from flower_pca.layers import precision

    return precision.bits_in(layers[WIRE])
