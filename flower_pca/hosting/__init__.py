"""Simulations in which a virtual node hosts several clients, with one message and one answer for all of them."""

from typing import Final

# A run-config gives the number of clients that each virtual node hosts under this key.
EACH: Final = "clients-per-node"
