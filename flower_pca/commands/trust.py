"""Commands for the administrator of a site: `flower-pca rules`, `audit`, `keys`, and `forget`, which erases data."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flower_pca import registry
from flower_pca.base import checks, errors, files, labels
from flower_pca.base.errors import ConfigError
from flower_pca.base.shown import shown
from flower_pca.commands import common, output

if TYPE_CHECKING:
    from flower_pca.clients.policy.rules import Rules

# The pairs of a SuperNode's --node-config.
_PAIR: Final = re.compile(r"""(\S+?)=('[^']*'|"[^"]*"|\S+)""")


def add_rules(commands: Any) -> None:
    """Add the command to the parser."""
    parser = common.parser(
        commands,
        "rules",
        "say what a node with given rules can be made to reveal, and what the rules leave open",
        run_rules,
    )
    parser.add_argument("--profile", metavar="NAME", help="begin with the rules of this name: open, masked or private")
    parser.add_argument(
        "rules",
        nargs="*",
        metavar="RULE",
        help="rules as in the node's --node-config: 'min-rows=50 masked-only=true', or a .toml file (default: none "
        "set)",
    )


def run_rules(given: argparse.Namespace) -> int:
    """Print the page of rules."""
    from flower_pca.audit.sentences import telling
    from flower_pca.clients.policy.rules import Rules

    keys = config(given.rules)
    if given.profile is not None:
        keys["profile"] = given.profile
    if keys.get("profile") == "masked":
        # The page can be read before there are any keys.
        keys.setdefault("trusted-keys", _TO_COME)
    found = telling(Rules.of_node_config(keys))
    if given.json:
        common.print_json(asdict(found))
        return 0
    sys.stdout.write(found.text())
    return 0


def config(words: list[str]) -> dict[str, Any]:
    """Read the keys and values of a node-config."""
    if len(words) == 1 and words[0].endswith(".toml"):
        text = Path(words[0]).expanduser().read_text(encoding="utf-8")
    else:
        whole = " ".join(words)
        if left := _PAIR.sub("", whole).strip():
            raise ConfigError(
                f"A rule is written as key=value, and {shown(left)} is not. Write 'min-rows=50 masked-only=true'."
            )
        text = "\n".join(f"{key} = {value}" for key, value in _PAIR.findall(whole))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            "The value of a rule must be true, false, a number, or text in quotation marks, but this one cannot be "
            f'read: {error}. Write allow="krylov,ssi".'
        ) from error


def rules_and_partition(keys: dict[str, Any]) -> tuple[Rules, int | None]:
    """Return the rules in a node-config, and its partition-id, which names the data in the memory folder, or None."""
    from flower_pca.clients.policy.rules import Rules

    rules = {key: value for key, value in keys.items() if key != "partition-id"}
    partition = keys.get("partition-id")
    if partition is not None:
        checks.integer("partition-id", partition, remedy="Give the partition-id of the node.")
    return Rules.of_node_config(rules), partition


def add_audit(commands: Any) -> None:
    """Add the command to the parser."""
    parser = common.parser(
        commands,
        "audit",
        "measure what the server of a run learns about each client; write leaks.csv and a picture",
        run_audit,
    )
    common.arguments_of_data(parser, gaps=False)
    common.argument_of_algorithm(parser)
    parser.add_argument("--mask", action="store_true", help="the server sees only sums, as under masks")
    common.argument_of_output(parser)


def run_audit(given: argparse.Namespace) -> int:
    """Run the audit, write the files, and print the table."""
    from flower_pca.audit import audit

    place = common.folder(given.out, data=given.data)
    registry.make(given.algorithm)  # A wrong spec is an error before the data is read, which may take long.
    if given.missing != "error":
        raise ConfigError("An audit cannot handle missing values. Fill them before the audit, and leave --missing out.")
    shards = common.clients_of(given)
    common.name_sites_without_rows(common.by_site(shards))
    with common.progress("starting") as on_round:
        found = audit(
            given.algorithm,
            shards,
            n_components=given.components,
            center=given.center,
            scale=given.scale,
            seed=given.seed,
            masked=given.mask,
            tol=given.tol,
            max_rounds=given.max_rounds,
            on_round=on_round,
        )
    with common.writing(place) as draft:
        found.save(draft / "leaks.csv")
        if errors.is_installed("matplotlib"):
            found.picture(draft / "leak.svg")
    if given.json:
        worst = [asdict(leak) for leak in found.worst()]
        course = [asdict(point) for point in found.convergence]
        plain = {"algorithm": found.algorithm, "masked": found.masked, "leaks": worst}
        common.print_json({**plain, "convergence": course})
        return 0
    sys.stdout.write(f"{found.table()}\nWrote leaks.csv {output.words_of_picture('leak.svg')} to {place}\n")
    return 0


_TO_COME: Final = "the list of keys of all sites, which is still to be given"
_PORT: Final = 8000  # the default port of a SuperLink
_NEXT: Final = """\
Wrote certificates and keys for {nodes} to {folder}.
  ca.crt        to every node, and to whoever starts runs
  server.*      stay at the SuperLink
  node-0, ...   each to its own node only; its .pub is registered

At the SuperLink:
  flower-superlink --host {bind} --port {port} --enable-supernode-auth \\
    --ssl-ca-certfile {ca} --ssl-certfile {certificate} --ssl-keyfile {key} \\
    --database superlink.db

Where runs are started, in ~/.flwr/config.toml:
  [superlink.pca]
  address = "{host}:{port}"
  root-certificates = "{ca}"

There too, once:
{register}

At each node:
{join}
"""


def add_keys(commands: Any) -> None:
    """Add the command to the parser."""
    words = "write TLS certificates and SuperNode keys for a federation, and say what to do with them"
    description = f"{words[0].upper()}{words[1:]}."
    keys = commands.add_parser("keys", help=words, description=description)
    keys.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")
    keys.add_argument("--nodes", type=int, required=True, metavar="N", help="how many SuperNodes")
    keys.add_argument(
        "--host",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="a name or address by which nodes reach the SuperLink, in addition to localhost; may be repeated",
    )
    keys.set_defaults(run=run_keys)


def run_keys(given: argparse.Namespace) -> int:
    """Write the keys, and print the commands that come next."""
    from flower_pca import keys

    folder, nodes, hosts = given.folder, given.nodes, given.host
    wrote = keys.write(folder.expanduser().absolute(), nodes=nodes, hosts=hosts)
    written = (wrote.ca, wrote.certificate, wrote.key)
    ca, certificate, key = (shlex.quote(str(path)) for path in written)
    host = (hosts or keys.LOCAL)[0]
    if ":" in host:
        host = f"[{host}]"
    register = [f"  flwr supernode register {shlex.quote(str(public))} pca" for public in wrote.publics]
    # Nodes on one machine, for example in a trial, need different ports.
    join = [
        f"  flower-supernode --superlink {host}:{_PORT} --port {_PORT + 1 + i} --root-certificates {ca} \\\n"
        f"    --auth-supernode-private-key {shlex.quote(str(node))} "
        f"--node-config 'partition-id={i} data=\"/path/to/rows.npy\"'"
        for i, node in enumerate(wrote.nodes)
    ]
    sys.stdout.write(
        _NEXT.format(
            nodes=labels.count(nodes, "node"),
            folder=folder,
            port=_PORT,
            host=host,
            bind="0.0.0.0" if hosts else "127.0.0.1",
            ca=ca,
            certificate=certificate,
            key=key,
            register="\n".join(register),
            join="\n".join(join),
        )
    )
    return 0


_SENT: Final = "What was sent cannot be taken back: whoever received results keeps them, and can compare them."
_LOGS: Final = "Not erased: rows, logs, backups, Flower's own state of current runs, and what other machines keep."
_COUNTS: Final = "The ledger keeps its counts, so that no budget starts again. --what ledger erases it."
_ANEW: Final = (
    "Without its ledger every budget of the node starts again, and the node may be summed with other nodes than "
    "before: the difference of two sums is then the covariance matrix of the node that is missing from one. A node "
    "refuses to run with released rows but no ledger: erase these rows too."
)
_VERSION: Final = (
    "The node releases its next rows as they are: whoever has answers from before and after can work out what has "
    "changed, even a single row."
)


def add_forget(commands: Any) -> None:
    """Add the command to the parser."""
    parser = common.parser(commands, "forget", "erase what a node keeps between runs, or a checkpoint", run_forget)
    parser.add_argument(
        "rules",
        nargs="*",
        metavar="RULE",
        help="the node's --node-config, or a .toml file: memory-dir, output-dir, data-name and partition-id count",
    )
    parser.add_argument(
        "--what",
        action="append",
        metavar="WHAT",
        help="what to erase: runs, statistics, local, rows, ledger or record (default: all but the last two)",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="erase the checkpoint of a run, on the machine that started it, and nothing of a node",
    )
    parser.add_argument("--yes", action="store_true", help="erase it, instead of saying what would be erased")


def run_forget(given: argparse.Namespace) -> int:
    """Say what can be erased, and erase it if that is confirmed."""
    from flower_pca.clients.storage.erasure import HOLDS, USUAL, Shelf

    if given.checkpoint is not None:
        return _checkpoint(given)
    rules, partition = rules_and_partition(config(given.rules))
    shelf = Shelf(rules, partition)
    kinds = tuple(given.what or USUAL)
    for kind in kinds:
        checks.choice("--what", kind, tuple(HOLDS))
    items = shelf.items(kinds)
    found = [{"kind": item.kind, "path": str(item.path), "bytes": item.size} for item in items]
    lines = [str(item) for item in items]
    if given.yes:
        shelf.erase(kinds)
    remarks = [_ANEW if "ledger" in kinds else _COUNTS, *([_VERSION] if "rows" in kinds else [])]
    _tell(given, found, lines, [*remarks, _SENT, _LOGS])
    return 0


def _checkpoint(given: argparse.Namespace) -> int:
    """Erase a checkpoint, with its newest message, its columns and the steps of a tracker beside it."""
    path = given.checkpoint.expanduser()
    beside = (path.with_name(f"{path.name}.{what}") for what in ("newest", "columns", "steps"))
    there = [one for one in (path, *beside) if one.is_file()]
    if path in there and not files.kind(path).endswith("checkpoint"):
        raise ConfigError(
            f"{path} is not the state of a run, or is damaged. Name another file, or delete a damaged file by hand."
        )
    found = [{"kind": "checkpoint", "path": str(one), "bytes": one.stat().st_size} for one in there]
    lines = [f"{one['path']}: the state of a run, {one['bytes']:,} bytes" for one in found]
    if given.yes and there:
        with files.lock(path, wait=False):
            for one in there:
                one.unlink()
    _tell(given, found, lines, [_SENT])
    return 0


def _tell(given: argparse.Namespace, found: list[dict[str, Any]], lines: list[str], remarks: list[str]) -> None:
    if given.json:
        common.print_json({"erased": bool(given.yes and found), "files": found, "remarks": remarks})
        return
    if not found:
        sys.stdout.write("There is nothing to erase.\n")
        return
    listed = [f"  {line}" for line in lines]
    if given.yes:
        said = ["Erased:", *listed, *remarks]
    else:
        said = ["To be erased:", *listed, *remarks, "Nothing has been erased yet. Run the command again with --yes."]
    sys.stdout.write("\n".join(said) + "\n")
