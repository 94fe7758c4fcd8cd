"""Convert the numbers of messages to fewer bits and back, if the run asks for this."""

from __future__ import annotations

from collections.abc import Mapping

from flower_pca.core.stage import Arrays
from flower_pca.layers import EXPONENTS, WIRE


def pack(arrays: Arrays, layers: Mapping[str, Arrays]) -> Arrays:
    """Return the arrays as they are sent, which is in fewer bits if the layers ask for this."""
    wanted = bits_of_layers(layers)
    if wanted == 64:
        return arrays
    from flower_pca.layers import precision

    return precision.pack(arrays, wanted)


def unpack(arrays: Arrays) -> Arrays:
    """Return the arrays of a message, with packed arrays converted back to double precision."""
    if EXPONENTS not in ",".join(arrays):  # Only the names of packed arrays contain this text.
        return arrays
    from flower_pca.layers import precision

    return precision.unpack(arrays)


def bits_of_layers(layers: Mapping[str, Arrays]) -> int:
    """Return the number of bits with which numbers are sent."""
    if WIRE not in layers:
        return 64
    from flower_pca.layers import precision

    return precision.bits_of_message(layers[WIRE])
