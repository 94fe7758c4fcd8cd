"""`flower-pca forget`: erase what a node keeps, or the checkpoint of a run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from flower_pca.base import files
from flower_pca.commands import common, trust

_NOTHING: Final = "There is nothing to erase."
_FIRST: Final = "Nothing is erased yet. Run it again with --yes."
_SENT: Final = "What was sent cannot be taken back: results, and the differences between them, stay with who has them."
_LOGS: Final = "Left alone: rows, logs, backups, Flower's own state of runs under way, and what others keep."
_COUNTS: Final = "The ledger keeps its counts, so that no budget begins anew. --what ledger erases it."
_ANEW: Final = "Without its ledger every budget of the node begins anew."
_VERSION: Final = "The rows given next are released at once, however few have changed: that tells of those."


def add(commands: Any) -> None:
    """Add the command to the parser."""
    from flower_pca.clients.books.erasure import HOLDS

    parser = common.parser(commands, "forget", "erase what a node keeps between runs, or a checkpoint", run)
    parser.add_argument(
        "rules",
        nargs="*",
        metavar="RULE",
        help="the node's --node-config, or a .toml file: memory-dir, output-dir, data-name and partition-id count",
    )
    parser.add_argument(
        "--what",
        choices=tuple(HOLDS),
        action="append",
        help="what to erase (default: all but the ledger)",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="erase the checkpoint of a run, at whoever started it, and nothing of a node",
    )
    parser.add_argument("--yes", action="store_true", help="erase it, instead of saying what would be erased")


def run(given: argparse.Namespace) -> int:
    """Say what there is to erase; erase it, if that is confirmed."""
    from flower_pca.clients.books.erasure import USUAL, Shelf
    from flower_pca.clients.policy.rules import Rules

    if given.checkpoint is not None:
        return _checkpoint(given)
    config = trust.config(given.rules)
    partition = config.pop("partition-id", None)
    shelf = Shelf(Rules.of_node_config(config), None if partition is None else int(partition))
    kinds = tuple(given.what or USUAL)
    items = shelf.items(kinds)
    found = [{"kind": item.kind, "path": str(item.path), "bytes": item.size} for item in items]
    lines = [str(item) for item in items]
    if given.yes:
        shelf.erase(kinds)
    remarks = [_ANEW if "ledger" in kinds else _COUNTS, *([_VERSION] if "rows" in kinds else [])]
    _tell(given, found, lines, [*remarks, _SENT, _LOGS])
    return 0


def _checkpoint(given: argparse.Namespace) -> int:
    """The same of a checkpoint, with the steps of a tracker beside it."""
    path = given.checkpoint.expanduser()
    both = [one for one in (path, path.with_name(f"{path.name}.steps")) if one.is_file()]
    found = [{"kind": "checkpoint", "path": str(one), "bytes": one.stat().st_size} for one in both]
    lines = [f"{one['path']}: the state of a run, {one['bytes']:,} bytes" for one in found]
    if given.yes and both:
        with files.lock(path, wait=False):
            for one in both:
                one.unlink()
    _tell(given, found, lines, [_SENT])
    return 0


def _tell(given: argparse.Namespace, found: list[dict[str, Any]], lines: list[str], remarks: list[str]) -> None:
    if given.json:
        common.print_json({"erased": bool(given.yes and found), "files": found, "remarks": remarks})
        return
    if not found:
        sys.stdout.write(f"{_NOTHING}\n")
        return
    listed = [f"  {line}" for line in lines]
    if given.yes:
        said = ["Erased:", *listed, *remarks]
    else:
        said = ["To be erased:", *listed, *remarks, _FIRST]
    sys.stdout.write("\n".join(said) + "\n")
