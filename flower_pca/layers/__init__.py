"""What a run lays over its messages and answers: precision, noise, the air, single numbers."""

from typing import Final

WIRE: Final = "wire"  # the precision of numbers as they travel
SINGLE: Final = "single"  # numbers that differ by client
NOISE: Final = "dp"  # The layer of a privacy budget.
PARTIES: Final = "parties"  # counts of those that hold columns of the same people
# Those that a message names by their arrays, in the order in which a client reads them.
NAMED: Final = (WIRE, SINGLE, NOISE)
# The end of the name of an array that lies beside one that precision has packed.
EXPONENTS: Final = ".exponents"
