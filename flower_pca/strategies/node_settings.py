"""NodeSettings: how long a strategy waits for nodes and how it addresses them. All strategies share these keywords."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypedDict, cast

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.base.shown import shown
from flower_pca.base.signatures import defaults

_FLOWER_NAMES: Final = ("min_available_nodes", "min_train_nodes", "min_evaluate_nodes")  # Flower's names for min_nodes
# Parameters of Flower's strategies that can have only these values for PCA, and the error for any other value
_FIXED: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "fraction_evaluate": (
        (1.0, None),
        "The closing evaluation adds up the errors of all nodes, so fraction_evaluate can only be 1.0. To skip the "
        "evaluation, leave out reconstruction_error=True.",
    ),
    "weighted_by_key": (
        ("num-examples", None),
        'PCA gives all rows the same weight, so weighted_by_key can only be "num-examples". Leave it out.',
    ),
    "arrayrecord_key": (
        ("arrays", None),
        'Nodes of flower_pca read the arrays of a message in its record "arrays", so arrayrecord_key can have no other '
        "value. Leave it out.",
    ),
    "configrecord_key": (
        ("config", None),
        'Nodes of flower_pca read the settings of a message in its record "config", so configrecord_key can have no '
        "other value. Leave it out.",
    ),
    "train_metrics_aggr_fn": (
        (None,),
        "The strategy itself adds up the answers of the nodes, so train_metrics_aggr_fn cannot be used. Read the "
        "metrics of each round in train_metrics_clientapp of the Result, or override aggregate_train.",
    ),
    "evaluate_metrics_aggr_fn": (
        (None,),
        "The strategy itself adds up the errors of all nodes, so evaluate_metrics_aggr_fn cannot be used. Read the "
        "error in evaluate_metrics_clientapp of the Result, or override aggregate_evaluate.",
    ),
}


class NodeKeywords(TypedDict, total=False):
    """The keywords of `NodeSettings` and the checkpoint, which `PCAStrategy` documents."""

    min_nodes: int | None
    node_timeout: float
    round_timeout: float
    action: str | None
    hosted: str | None
    max_rows: int | None
    checkpoint: str | os.PathLike[str] | None
    min_available_nodes: int | None
    min_train_nodes: int | None
    min_evaluate_nodes: int | None


def take_fixed_parameters(keywords: Any) -> None:
    """Remove the parameters of Flower's strategies that have no effect on PCA from the keywords.

    Raises
    ------
    ConfigError
        If one of these parameters has a value that PCA does not support.
    """
    if not keywords.get("reconstruction_error") and keywords.get("fraction_evaluate") == 0.0:
        keywords.pop("fraction_evaluate")  # The run has no evaluation.
    for name, (values, sentence) in _FIXED.items():
        if name in keywords and keywords.pop(name) not in values:
            raise ConfigError(sentence)


def take_node_keywords(keywords: Any) -> NodeKeywords:
    """Remove the keywords about nodes from a strategy's keywords, and return them."""
    taken = {name: keywords.pop(name) for name in NodeKeywords.__annotations__ if name in keywords}
    return cast(NodeKeywords, taken)


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """Settings for waiting for nodes and sending them messages.

    Parameters
    ----------
    min_nodes : int, default=2
        The minimum number of nodes.
    node_timeout : float, default=60.0
        The number of seconds to wait for nodes to connect.
    round_timeout : float, default=600.0
        The number of seconds to wait for the answers to a message.
    interval : float, default=0.0
        The minimum number of seconds from the start of a tracker's step to the start of the next step.
    action : str or None, default=None
        Flower's name of the action under which the nodes' functions are registered, or None for no action.
    hosted : str or None, default=None
        "stacked" if virtual nodes host many clients each and send the answers of their clients together, or None if
        each node is a client.
    max_rows : int or None, default=None
        The maximum number of rows that a node may report, or None for no limit.
    """

    min_nodes: int = 2
    node_timeout: float = 60.0
    round_timeout: float = 600.0
    interval: float = 0.0
    action: str | None = None
    hosted: str | None = None
    max_rows: int | None = None

    def __post_init__(self) -> None:
        checks.number("node_timeout", self.node_timeout, least=0.0, remedy="Give seconds.")
        checks.number("round_timeout", self.round_timeout, least=0.1, remedy="Give seconds.")
        checks.number("interval", self.interval, least=0.0, remedy="Give seconds.")
        # Flower does not accept numpy's numbers as the time to live of a message.
        object.__setattr__(self, "round_timeout", float(self.round_timeout))
        if self.action is not None and not self.action.isidentifier():
            raise ConfigError(
                f'action is {shown(self.action)}, which is not a Python identifier. Use "pca".',
                setting="action",
                value=self.action,
            )
        checks.choice("hosted", self.hosted, (None, "stacked"))
        if self.max_rows is not None:
            checks.integer("max_rows", self.max_rows, least=1)

    @classmethod
    def of(cls, keywords: Mapping[str, Any], *, min_nodes: int = 2, interval: float = 0.0) -> NodeSettings:
        """Return the settings from the keywords of a strategy. `min_nodes` applies if the keywords have no minimum."""
        # A Flower user sets min_evaluate_nodes to 0 for a run without an evaluation.
        said = {name: keywords[name] for name in _FLOWER_NAMES if keywords.get(name) is not None}
        if said.get("min_evaluate_nodes") == 0:
            del said["min_evaluate_nodes"]
        for name, value in said.items():
            checks.integer(name, value, least=1)
        least = list(said.values())
        given = keywords.get("min_nodes")
        if least and given is not None:
            raise ConfigError(
                "min_nodes is given together with another name of the same setting (min_available_nodes, "
                "min_train_nodes or min_evaluate_nodes). Keep one of them."
            )
        if given is not None:
            least = [given]
        names = ("node_timeout", "round_timeout", "action", "hosted", "max_rows")
        rest = {name: keywords[name] for name in names if name in keywords}
        return cls(min_nodes=max(least, default=min_nodes), interval=interval, **rest)

    def message_type(self, kind: str) -> str:
        """Return Flower's message type for a kind of message: the kind, followed by the action if there is one."""
        if self.action is None:
            return kind
        return f"{kind}.{self.action}"


# The default of `min_nodes` is None, because a strategy then waits for as many nodes as its run needs.
NODE_DEFAULTS: Final = {**dict.fromkeys(NodeKeywords.__annotations__), **defaults(NodeSettings), "min_nodes": None}
