"""The numbers of a message in fewer bits, if a run asks for that."""

from __future__ import annotations

from collections.abc import Mapping

from flower_pca.core.stage import Arrays
from flower_pca.layers import EXPONENTS, WIRE


def pack(arrays: Arrays, layers: Mapping[str, Arrays]) -> Arrays:
    """Arrays as they travel under these layers."""
    wanted = bits(layers)
    if wanted == 64:
        return arrays
    from flower_pca.layers import precision

    return precision.pack(arrays, wanted)


def unpack(arrays: Arrays) -> Arrays:
    """The same arrays in double precision again."""
    if EXPONENTS not in ",".join(arrays):  # No other name has this text within it.
        return arrays
    from flower_pca.layers import precision

    return precision.unpack(arrays)


def bits(layers: Mapping[str, Arrays]) -> int:
    """With how many bits numbers travel."""
    if WIRE not in layers:
        return 64
    from flower_pca.layers import precision

    return precision.bits_in(layers[WIRE])
