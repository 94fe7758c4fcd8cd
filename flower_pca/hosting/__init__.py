"""Many clients on one virtual node of a simulation: their messages and answers in one."""

from typing import Final

EACH: Final = "shards-per-node"  # of a run-config: how many clients a virtual node hosts
