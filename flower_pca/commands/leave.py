"""`flower-pca leave`: remove a site from masked sums, so that the other sites can continue without it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from flower_pca.base import files, labels
from flower_pca.base.errors import ConfigError
from flower_pca.commands import common
from flower_pca.commands.trust import config, rules_and_partition

_TELLS: Final = (
    "What this reveals: whoever has the sums of the other sites with {whose} rows and without them can subtract one "
    "from the other. If no other rows have changed, the difference is exactly the number of rows, the means and the "
    "covariance matrix of {which}. The server has both sums, and so does everybody who gets both results. People "
    "whom the other sites have added in between blur the difference only a little. This cannot be undone."
)
_INSTEAD: Final = (
    "To reveal nothing, let the other sites stop their sums, or start again with rows that are mostly new: "
    "flower-pca forget --what rows --what ledger at each of them."
)
_ALL: Final = "Every other site that goes on needs the same command. Then take the key out of trusted-keys everywhere."


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = common.parser(
        commands, "leave", "let a site leave the masked sums of other sites, and say what this reveals about it", run
    )
    parser.add_argument(
        "rules",
        nargs="*",
        metavar="RULE",
        help="the node's --node-config, or a .toml file: trusted-keys counts, sign-key at the site that leaves, and "
        "memory-dir, data-name and partition-id at the others",
    )
    parser.add_argument(
        "--consent",
        type=Path,
        required=True,
        metavar="FILE",
        help="what the site that leaves signs, and gives to the others",
    )
    parser.add_argument("--go", action="store_true", help="this is the site that leaves: sign, and write the file")
    parser.add_argument("--yes", action="store_true", help="do it, instead of saying what it reveals")


def run(given: argparse.Namespace) -> int:
    """Say what the other sites learn. Sign the departure at the leaving site, or accept it at another site."""
    keys = config(given.rules)
    if given.go:
        return _go(given, keys)
    return _let_go(given, keys)


def _go(given: argparse.Namespace, keys: dict[str, Any]) -> int:
    """Sign that the owner of this key leaves."""
    from flower_pca.masking import identity

    for key, example in (("sign-key", "/etc/pca/node-3"), ("trusted-keys", "/etc/pca/trusted-keys")):
        if key not in keys:
            raise ConfigError(f"The node-config has no {key}. Add {key}='{example}', as at the node.")
    line = identity.consent(keys["sign-key"], keys["trusted-keys"])
    if given.yes:
        with files.replacing(given.consent.expanduser()) as file:
            file.write(f"{line}\n".encode())
    done = f"Wrote {given.consent}. Give it to every other site, and stop this node."
    _say(given, _TELLS.format(whose="your", which="your rows"), done, key=line[:64])
    return 0


def _let_go(given: argparse.Namespace, keys: dict[str, Any]) -> int:
    """Accept the departure of the site that has signed."""
    from flower_pca.clients.storage import folders, ledger
    from flower_pca.masking import identity

    rules, partition = rules_and_partition(keys)
    if rules.trusted_keys is None:
        raise ConfigError(
            "The node-config has no trusted-keys. Add trusted-keys='/etc/pca/trusted-keys', as at the node."
        )
    try:
        line = given.consent.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{given.consent} cannot be read. Name the file that the site which leaves has written."
        ) from error
    name = identity.who_leaves(line, rules.trusted_keys)
    own = folders.ledger_file(rules.memory_dir, folders.data_of(rules.data_name, partition))
    there = [path for path in folders.ledgers_beside(own) if ledger.summed_with(path, name.hex())]
    key = identity.printable(name)
    if not there:
        raise ConfigError(
            f"This node has not been summed with the node of the key {key}, so there is nothing to leave."
        )
    if given.yes:
        for path in there:
            ledger.leave(path, name.hex())
    done = f"This node continues without the node of the key {key}, in {labels.count(len(there), 'ledger')}. {_ALL}"
    _say(given, _TELLS.format(whose="its", which="its rows"), done, key=name.hex())
    return 0


def _say(given: argparse.Namespace, tells: str, done: str, *, key: str) -> None:
    if given.json:
        common.print_json({"key": key, "tells": tells, "done": bool(given.yes)})
        return
    if given.yes:
        lines = [tells, done]
    else:
        lines = [tells, _INSTEAD, "Nothing has been changed yet. Run the command again with --yes."]
    sys.stdout.write("\n".join(lines) + "\n")
