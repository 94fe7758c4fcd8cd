"""Simulations in which a virtual node hosts several clients, with one message and one answer for all of them."""

from typing import Final

# Under this key, a run-config gives the number of clients that each virtual node hosts.
EACH: Final = "clients-per-node"
