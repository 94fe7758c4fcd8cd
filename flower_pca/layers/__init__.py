"""The layers of a run: precision of numbers, privacy noise, the air channel, numbers by client, and maximum shares."""

from typing import Final

WIRE: Final = "wire"  # the precision of numbers on the network
SINGLE: Final = "single"  # numbers that differ by client
NOISE: Final = "dp"  # the noise of a privacy budget
PARTIES: Final = "parties"  # the layer that replaces a party's number of columns by 1
# A message may contain arrays of these layers. A client applies the layers in this order.
NAMED: Final = (WIRE, SINGLE, NOISE)
# An array that is sent in fewer bits has an array of exponents, whose name has this suffix: see `layers.precision`.
EXPONENTS: Final = ".exponents"
