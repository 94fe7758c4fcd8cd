"""Several clients on one virtual node of a simulation: their messages and answers are combined into one."""

from typing import Final

# The key of a run-config that says how many clients a virtual node hosts.
EACH: Final = "clients-per-node"
