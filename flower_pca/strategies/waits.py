"""Waits: how nodes are waited for, and asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError

SUMMED: Final = "summed"
HOSTED: Final = (None, "stacked", SUMMED)


@dataclass(frozen=True, kw_only=True)
class Waits:
    """How nodes are waited for, and under which name they are asked.

    Args:
        min_nodes: Nodes to wait for.
        node_timeout: Seconds to wait for them.
        round_timeout: Seconds to wait for their answers.
        interval: Seconds from the start of a tracker's step to that of the next, at least.
        action: Flower's name of the nodes' functions, where they have one.
        hosted: How virtual nodes that host many clients answer for them; None where each node is a client.
    """

    min_nodes: int
    node_timeout: float
    round_timeout: float
    interval: float = 0.0
    action: str | None = None
    hosted: str | None = None

    def __post_init__(self) -> None:
        checks.number("node_timeout", self.node_timeout, least=0.0, remedy="Give seconds.")
        checks.number("round_timeout", self.round_timeout, least=0.1, remedy="Give seconds.")
        checks.number("interval", self.interval, least=0.0, remedy="Give seconds.")
        if self.action is not None and not self.action.isidentifier():
            raise ConfigError("action", must="a Python identifier", got=repr(self.action), then='Use "pca".')
        checks.choice("hosted", self.hosted, HOSTED)

    def message_type(self, kind: str) -> str:
        """Flower's type of a message of this kind."""
        return kind if self.action is None else f"{kind}.{self.action}"
