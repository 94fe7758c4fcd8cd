"""Commands for administrators: `flower-pca rules`, `audit`, `keys`, and `forget`, which erases data of a node."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
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

# This matches a key=value pair of a SuperNode's --node-config.
_PAIR: Final = re.compile(r"""(\S+?)=('[^']*'|"[^"]*"|\S+)""")


def add_rules(commands: Any) -> None:
    """Add the command `flower-pca rules` to the parser."""
    parser = common.add_command(
        commands,
        "rules",
        "describe what a node with these rules can be made to reveal, and what the rules leave open",
        run_rules,
    )
    parser.add_argument("--profile", metavar="NAME", help="start from a named set of rules: open, masked or private")
    parser.add_argument(
        "rules",
        nargs="*",
        metavar="RULE",
        help="rules as in the node's --node-config: 'min-rows=50 masked-only=true', or a .toml file (default: no "
        "rules)",
    )


def run_rules(args: argparse.Namespace) -> int:
    """Print what a node with these rules can be made to reveal."""
    from flower_pca.audit.sentences import disclosures_of
    from flower_pca.clients.policy.rules import Rules

    keys = node_config(args.rules)
    if args.profile is not None:
        keys["profile"] = args.profile
    if keys.get("profile") == "masked":
        # The description can be printed before there are any keys.
        keys.setdefault("trusted-keys", _KEYS_NOT_SET)
    found = disclosures_of(Rules.of_node_config(keys))
    if args.json:
        common.print_json(asdict(found))
        return 0
    sys.stdout.write(found.text())
    return 0


def node_config(words: list[str]) -> dict[str, Any]:
    """Return the keys and values of a node-config, from words of the command line or from a .toml file."""
    if len(words) == 1 and words[0].endswith(".toml"):
        text = Path(words[0]).expanduser().read_text(encoding="utf-8")
    else:
        whole = " ".join(words)
        if left := _PAIR.sub("", whole).strip():
            raise ConfigError(
                f"A rule is written as key=value, unlike {shown(left)}. For example: 'min-rows=50 masked-only=true'."
            )
        text = "\n".join(f"{key} = {value}" for key, value in _PAIR.findall(whole))
    try:
        return _flat(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            "The value of a rule must be true, false, a number, or text in quotation marks, but this one cannot be "
            f'read: {error}. For example, write allow="krylov,ssi".'
        ) from error


def _flat(keys: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the keys of a .toml file as Flower gives them to a node: those below a heading begin with the heading."""
    found: dict[str, Any] = {}
    for key, value in keys.items():
        found |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return found


def require_memory_folder(rules: Rules, ledger: Path, unknown: str) -> None:
    """Raise ConfigError if the folder of a node's ledger is not there, because its memory-dir may be misspelled."""
    if rules.memory_dir is not None and not ledger.parent.is_dir():
        raise ConfigError(
            f"There is no folder {ledger.parent}, so it is unknown {unknown}. Give the memory-dir of the node."
        )


def rules_and_partition(keys: dict[str, Any]) -> tuple[Rules, int | None]:
    """Return the rules in a node-config, and its partition-id, or None if the node-config has no partition-id.

    The partition-id names the data in the memory folder.
    """
    from flower_pca.clients.policy.rules import Rules

    rules = {key: value for key, value in keys.items() if key != "partition-id"}
    partition = keys.get("partition-id")
    if partition is not None:
        checks.integer("partition-id", partition, remedy="Give the partition-id of the node.")
    return Rules.of_node_config(rules), partition


def add_audit(commands: Any) -> None:
    """Add the command `flower-pca audit` to the parser."""
    parser = common.add_command(
        commands,
        "audit",
        "measure what the server of a run learns about each client; write leaks.csv and a picture",
        run_audit,
    )
    common.add_data_options(parser, gaps=False)
    common.add_algorithm_option(parser)
    parser.add_argument("--mask", action="store_true", help="the server sees only sums, as under masks")
    common.add_out_option(parser)


def run_audit(args: argparse.Namespace) -> int:
    """Run the audit, write the files, and print the table."""
    from flower_pca.audit import audit

    place = common.writable_folder(args.out, data=args.data)
    registry.make(args.algorithm)  # A wrong spec is reported before data are read, because reading may take long.
    if args.missing != "error":
        raise ConfigError("An audit cannot handle missing values. Fill them before the audit, and leave --missing out.")
    shards = common.clients_of(args)
    common.name_sites_without_rows(common.by_site(shards))
    with common.showing_progress() as on_round:
        found = audit(
            args.algorithm,
            shards,
            n_components=args.components,
            center=args.center,
            scale=args.scale,
            seed=args.seed,
            masked=args.mask,
            tol=args.tol,
            max_rounds=args.max_rounds,
            on_round=on_round,
        )
    with common.writing_folder(place) as draft:
        found.save(draft / "leaks.csv")
        if errors.is_installed("matplotlib"):
            found.picture(draft / "leak.svg")
    if args.json:
        worst = [asdict(leak) for leak in found.worst()]
        course = [asdict(point) for point in found.convergence]
        plain = {"algorithm": found.algorithm, "masked": found.masked, "leaks": worst}
        common.print_json({**plain, "convergence": course})
        return 0
    sys.stdout.write(f"{found.table()}\nWrote leaks.csv {output.picture_in_list('leak.svg')} to {place}\n")
    return 0


_KEYS_NOT_SET: Final = "the list of keys of all sites, which you have not set yet"
_PORT: Final = 8000  # the default port of a SuperLink
_NEXT_COMMANDS: Final = """\
Wrote certificates and keys for {nodes} to {folder}.
  ca.crt        for every node, and for every machine that starts runs
  server.*      only for the SuperLink
  node-0, ...   each only for its own node; register its .pub

At the SuperLink:
  flower-superlink --host {bind} --port {port} --enable-supernode-auth \\
    --ssl-ca-certfile {ca} --ssl-certfile {certificate} --ssl-keyfile {key} \\
    --database superlink.db

On the machine that starts runs, in ~/.flwr/config.toml:
  [superlink.pca]
  address = "{host}:{port}"
  root-certificates = "{ca}"

Once, on the same machine:
{register}

At each node:
{join}
"""


def add_keys(commands: Any) -> None:
    """Add the command `flower-pca keys` to the parser."""
    words = "write TLS certificates and SuperNode keys for a federation, and print the commands that use them"
    description = f"{labels.capitalize(words)}."
    keys = commands.add_parser("keys", help=words, description=description)
    keys.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")
    keys.add_argument("--nodes", type=int, required=True, metavar="N", help="number of SuperNodes")
    keys.add_argument(
        "--host",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="a name or address by which nodes reach the SuperLink, in addition to localhost; may be repeated",
    )
    keys.set_defaults(run=run_keys)


def run_keys(args: argparse.Namespace) -> int:
    """Write certificates and keys, and print the commands to run next."""
    from flower_pca import keys

    folder, nodes, hosts = args.folder, args.nodes, args.host
    wrote = keys.write_keys(folder.expanduser().absolute(), nodes=nodes, hosts=hosts)
    written = (wrote.ca, wrote.certificate, wrote.key)
    ca, certificate, key = (shlex.quote(str(path)) for path in written)
    host = (hosts or keys.LOCAL)[0]
    if ":" in host:
        host = f"[{host}]"
    register = [f"  flwr supernode register {shlex.quote(str(public))} pca" for public in wrote.publics]
    # The ports differ, because several nodes may run on the same machine, for example in a trial.
    join = [
        f"  flower-supernode --superlink {host}:{_PORT} --port {_PORT + 1 + i} --root-certificates {ca} \\\n"
        f"    --auth-supernode-private-key {shlex.quote(str(node))} "
        f"--node-config 'partition-id={i} data=\"/path/to/rows.npy\"'"
        for i, node in enumerate(wrote.nodes)
    ]
    sys.stdout.write(
        _NEXT_COMMANDS.format(
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


_RESULTS_REMAIN: Final = (
    "Results that were sent cannot be taken back: everybody who received them can keep and compare them."
)
_NOT_ERASED: Final = "Not erased: rows, logs, backups, Flower's own state of current runs, and data on other machines."
_LEDGER_KEPT: Final = "The ledger keeps its counts, so that no budget starts again. To erase it, add --what ledger."
_LEDGER_ERASED: Final = (
    "Without its ledger, every budget of the node starts again, and the node may take part in sums with other nodes "
    "than before: the difference of two sums is then the covariance matrix of the node that is missing from one of "
    "them. A node refuses to run with released rows but no ledger, so erase the rows, too: --what rows."
)
_ROWS_ERASED: Final = (
    "The node releases its next rows unchanged: anybody who has answers from before and after can work out what has "
    "changed, even for a single row."
)


def add_forget(commands: Any) -> None:
    """Add the command `flower-pca forget` to the parser."""
    parser = common.add_command(commands, "forget", "erase what a node keeps between runs, or a checkpoint", run_forget)
    parser.add_argument(
        "rules",
        nargs="*",
        metavar="RULE",
        help="the node's --node-config, or a .toml file; memory-dir, output-dir, data-name and partition-id matter",
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
        help="erase only the checkpoint of a run, on the machine that started the run",
    )
    parser.add_argument("--yes", action="store_true", help="erase, instead of only listing what would be erased")


def run_forget(args: argparse.Namespace) -> int:
    """Print what can be erased, and erase it if --yes is given."""
    from flower_pca.clients.storage.erasure import HOLDS, USUAL, NodeFiles

    if args.checkpoint is not None:
        return _erase_checkpoint(args)
    rules, partition = rules_and_partition(node_config(args.rules))
    shelf = NodeFiles(rules, partition)
    kinds = tuple(args.what or USUAL)
    for kind in kinds:
        checks.choice("--what", kind, tuple(HOLDS))
    if {*kinds} != {"local"}:  # The node's own results are in output-dir.
        require_memory_folder(rules, shelf.ledger, "what the node has kept")
    items = shelf.items(kinds)
    found = [{"kind": item.kind, "path": str(item.path), "bytes": item.size} for item in items]
    lines = [str(item) for item in items]
    if args.yes:
        shelf.erase(kinds)
    remarks = [_LEDGER_ERASED if "ledger" in kinds else _LEDGER_KEPT, *([_ROWS_ERASED] if "rows" in kinds else [])]
    _print_erased(args, found, lines, [*remarks, _RESULTS_REMAIN, _NOT_ERASED])
    return 0


def _erase_checkpoint(args: argparse.Namespace) -> int:
    """Erase a checkpoint, and the files that a run keeps next to it: newest message, columns, and a tracker's steps."""
    path = args.checkpoint.expanduser()
    beside = (path.with_name(f"{path.name}.{what}") for what in ("newest", "columns", "steps"))
    existing = [file for file in (path, *beside) if file.is_file()]
    if path in existing and not files.kind_of(path).endswith("checkpoint"):
        raise ConfigError(
            f"{path} is damaged or is not a checkpoint. Name another file, or delete a damaged file by hand."
        )
    found = [{"kind": "checkpoint", "path": str(file), "bytes": file.stat().st_size} for file in existing]
    lines = [f"{file['path']}: the state of a run, {file['bytes']:,} bytes" for file in found]
    if args.yes and existing:
        with files.lock(path, wait=False):
            for file in existing:
                file.unlink()
    _print_erased(args, found, lines, [_RESULTS_REMAIN])
    return 0


def _print_erased(args: argparse.Namespace, files: list[dict[str, Any]], lines: list[str], remarks: list[str]) -> None:
    if args.json:
        common.print_json({"erased": bool(args.yes and files), "files": files, "remarks": remarks})
        return
    if not files:
        sys.stdout.write("There is nothing to erase.\n")
        return
    listed = [f"  {line}" for line in lines]
    if args.yes:
        said = ["Erased:", *listed, *remarks]
    else:
        said = ["To be erased:", *listed, *remarks, "Nothing has been erased yet. Run the command again with --yes."]
    sys.stdout.write("\n".join(said) + "\n")
