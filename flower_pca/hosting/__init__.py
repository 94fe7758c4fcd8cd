"""Simulations in which one virtual node hosts several clients. Their messages and answers are combined into one."""

from typing import Final

# The key in a run-config for the number of clients that each virtual node hosts
EACH: Final = "clients-per-node"
