"""`flower-pca leave`: remove a site from masked sums, so that the other sites can continue without it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from flower_pca.base import files, labels
from flower_pca.base.errors import ConfigError
from flower_pca.commands import common
from flower_pca.commands.trust import node_config, rules_and_partition

_REVEALED: Final = (
    "What this reveals: anybody who has the sums of the other sites both with {whose} rows and without {whose} rows "
    "can subtract one from the other. If no other rows have changed, the difference gives exactly the number of rows, "
    "the means and the covariance matrix of {which}. The server has both sums, and so does everybody who gets both "
    "results. People whom the other sites have added in between change the difference only a little. This cannot be "
    "undone."
)
_ALTERNATIVE: Final = (
    "To reveal nothing, ask the other sites to stop their sums, or to start again with rows that are mostly new, with "
    "this command at each of them: flower-pca forget --what rows --what ledger"
)
_OTHERS: Final = (
    "Run the same command at every other site that continues. Then remove the key from trusted-keys at all sites."
)


def add_leave(commands: Any) -> None:
    """Add the command `flower-pca leave` to the parser."""
    parser = common.add_command(
        commands,
        "leave",
        "let a site leave the masked sums of other sites, and say what this reveals about it",
        run_leave,
    )
    parser.add_argument(
        "rules",
        nargs="*",
        metavar="RULE",
        help="the node's --node-config, or a .toml file, with trusted-keys; the site that leaves also needs sign-key, "
        "and the other sites memory-dir, data-name and partition-id",
    )
    parser.add_argument(
        "--consent",
        type=Path,
        required=True,
        metavar="FILE",
        help="the file that the leaving site signs and gives to the other sites",
    )
    parser.add_argument("--go", action="store_true", help="for the site that leaves: sign, and write the file")
    parser.add_argument("--yes", action="store_true", help="carry it out, instead of only saying what it reveals")


def run_leave(args: argparse.Namespace) -> int:
    """Print what the departure reveals. With --yes, sign it at the leaving site, or accept it at another site."""
    keys = node_config(args.rules)
    if args.go:
        return _sign_departure(args, keys)
    return _accept_departure(args, keys)


def _sign_departure(args: argparse.Namespace, keys: dict[str, Any]) -> int:
    """Sign the departure of this site, and write it to the consent file."""
    from flower_pca.masking import identity

    for key, example in (("sign-key", "/etc/pca/node-3"), ("trusted-keys", "/etc/pca/trusted-keys")):
        if key not in keys:
            raise ConfigError(f"The node-config has no {key}. Add {key}='{example}', with the path at this node.")
    line = identity.signed_consent(keys["sign-key"], keys["trusted-keys"])
    if args.yes:
        with files.replacing_file(args.consent.expanduser()) as file:
            file.write(f"{line}\n".encode())
    done = f"Wrote {args.consent}. Give it to every other site, and stop this node."
    _print_outcome(args, _REVEALED.format(whose="your", which="your rows"), done, key=line[:64])
    return 0


def _accept_departure(args: argparse.Namespace, keys: dict[str, Any]) -> int:
    """Accept the departure of the site that signed the consent file."""
    from flower_pca.clients.storage import folders, ledger
    from flower_pca.masking import identity

    rules, partition = rules_and_partition(keys)
    if rules.trusted_keys is None:
        raise ConfigError(
            "The node-config has no trusted-keys. Add trusted-keys='/etc/pca/trusted-keys', with the path at this node."
        )
    try:
        line = args.consent.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{args.consent} cannot be read. Name the file that the leaving site has written.") from error
    name = identity.signer_of_consent(line, rules.trusted_keys)
    own = folders.ledger_file(rules.memory_dir, folders.data_name_of(rules.data_name, partition))
    shared = [path for path in folders.ledgers_beside(own) if ledger.has_summed_with(path, name.hex())]
    key = identity.printable_fingerprint(name)
    if not shared:
        raise ConfigError(
            f"No ledger of this node records a sum with the node whose key is {key}, so nothing has to change. Check "
            "memory-dir, data-name and partition-id."
        )
    if args.yes:
        for path in shared:
            ledger.record_departure(path, name.hex())
    done = f"This node continues without the node of the key {key}, in {labels.count(len(shared), 'ledger')}. {_OTHERS}"
    _print_outcome(args, _REVEALED.format(whose="its", which="its rows"), done, key=name.hex())
    return 0


def _print_outcome(args: argparse.Namespace, reveals: str, done: str, *, key: str) -> None:
    if args.json:
        common.print_json({"key": key, "tells": reveals, "done": bool(args.yes)})
        return
    if args.yes:
        lines = [reveals, done]
    else:
        lines = [reveals, _ALTERNATIVE, "Nothing has been changed yet. Run the command again with --yes."]
    sys.stdout.write("\n".join(lines) + "\n")
