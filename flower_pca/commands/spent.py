"""`flower-pca spent`: print what a node's ledgers have counted, and how much its rules allow."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any, Final

from flower_pca.base.errors import ConfigError
from flower_pca.commands import common
from flower_pca.commands.trust import node_config, require_memory_folder, rules_and_partition

# This maps the name of each count to the rule that limits it.
_COUNTS: Final = {
    "epsilon": "max_epsilon",
    "columns": "max_columns",
    "messages": "max_messages_ever",
    "groups": "max_groups",
    "lost members": "max_dropouts",
}


def add_spent(commands: Any) -> None:
    """Add the command `flower-pca spent` to the parser."""
    parser = common.add_command(
        commands, "spent", "print how much of its limits over all runs a node has spent, from its ledgers", run_spent
    )
    parser.add_argument(
        "rules",
        nargs="*",
        metavar="RULE",
        help="the node's --node-config, or a .toml file; only memory-dir and limits such as max-epsilon matter",
    )


def run_spent(args: argparse.Namespace) -> int:
    """Print what each ledger in the node's folder has counted, next to the node's limits."""
    from flower_pca.clients.storage import folders, ledger
    from flower_pca.dp.gaussian import epsilon_of

    rules, partition = rules_and_partition(node_config(args.rules))
    groups, losses = rules.group_limits or (None, None)
    limits = {name: getattr(rules, rule) for name, rule in _COUNTS.items()} | {"groups": groups, "lost members": losses}
    limits = {name: most for name, most in limits.items() if most is not None}
    if not limits:
        raise ConfigError(
            "These rules limit nothing over all runs, so nothing is spent. Give the node's --node-config, for example "
            "\"memory-dir='/var/lib/pca' max-epsilon=1.0 max-delta=1e-6\"."
        )
    own = folders.ledger_file(rules.memory_dir, folders.data_name_of(rules.data_name, partition))
    require_memory_folder(rules, own, "how much is spent")
    found = {}
    for path in folders.ledgers_beside(own):
        counts = ledger.read(path)
        counted: dict[str, float] = {
            "columns": counts.columns,
            "messages": counts.answered,
            "groups": len(counts.groups),
            "lost members": counts.beyond + sum(len(group.missing) for group in counts.groups),
        }
        if rules.max_delta is not None:
            counted["epsilon"] = epsilon_of(math.sqrt(counts.spent), rules.max_delta)
        found[path.name] = {name: {"spent": counted[name], "limit": most} for name, most in limits.items()}
    if args.json:
        common.print_json({"folder": str(own.parent), "ledgers": found})
        return 0
    if not found:
        sys.stdout.write(f"There is no ledger in {own.parent}, so nothing is spent.\n")
    for name, numbers in found.items():
        sys.stdout.write(f"{name}\n")
        for what, said in numbers.items():
            at = f" at delta {rules.max_delta:g}" if what == "epsilon" else ""
            sys.stdout.write(f"  {what}: {said['spent']:.4g} of {said['limit']:g}{at}\n")
    return 0
