"""What a run lays over its messages and answers: precision, noise, the air, single numbers."""

from typing import Final

WIRE: Final = "wire"  # the precision of numbers as they travel
SINGLE: Final = "single"  # numbers that differ by client
NOISE: Final = "dp"  # of a privacy budget
PARTIES: Final = "parties"  # counts of those that hold columns of the same people
# Those that a message names by their arrays, in the order in which a client reads them.
NAMED: Final = (WIRE, SINGLE, NOISE)
# beside an array that precision has packed, after its name
EXPONENTS: Final = ".exponents"
