"""The layers of a run: number precision, privacy noise, the air channel, numbers by client, and shares of clients."""

from typing import Final

WIRE: Final = "wire"  # the precision of numbers on the network
SINGLE: Final = "single"  # numbers that differ by client
NOISE: Final = "dp"  # the noise of a privacy budget
PARTIES: Final = "parties"  # replaces the number of columns in an answer by the number of parties
# The layers whose arrays a message may contain, in the order in which a client applies them
NAMED: Final = (WIRE, SINGLE, NOISE)
# The suffix of the array of exponents that belongs to an array with fewer bits: see `layers.precision`
EXPONENTS: Final = ".exponents"
