"""`flower-pca keys`: certificates and keys of a federation, and what to do with them."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any, Final

from flower_pca.base import labels

_PORT: Final = 8000  # a SuperLink's default
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


def add(commands: Any) -> None:
    """Add the command to the parser."""
    words = "write TLS certificates and SuperNode keys for a federation, and say what to do with them"
    keys = commands.add_parser("keys", help=words, description=f"{words[0].upper()}{words[1:]}.")
    keys.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")
    keys.add_argument("--nodes", type=int, required=True, metavar="N", help="how many SuperNodes")
    text = "a name or address by which nodes reach the SuperLink, beside localhost; may be repeated"
    keys.add_argument("--host", nargs="+", action="extend", default=[], metavar="NAME", help=text)
    keys.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Write the keys, and print the commands that come next."""
    from flower_pca import keys

    folder, nodes, hosts = given.folder, given.nodes, given.host
    wrote = keys.write(folder.expanduser().absolute(), nodes=nodes, hosts=hosts)
    ca, certificate, key = (shlex.quote(str(path)) for path in (wrote.ca, wrote.certificate, wrote.key))
    host = hosts[0] if hosts else keys.LOCAL[0]
    host = f"[{host}]" if ":" in host else host
    register = [f"  flwr supernode register {shlex.quote(str(public))} pca" for public in wrote.publics]
    join = [
        f"  flower-supernode --superlink {host}:{_PORT} --port {_PORT + 1 + i} --root-certificates {ca} \\\n"
        f"    --auth-supernode-private-key {shlex.quote(str(node))} "
        f"--node-config 'partition-id={i} data=\"/path/to/rows.npy\"'"
        for i, node in enumerate(wrote.nodes)
    ]
    words = _NEXT.format(
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
    sys.stdout.write(words)
    return 0
