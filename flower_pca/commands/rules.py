"""`flower-pca rules`: what a node with given rules can be made to tell, in plain words."""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from flower_pca.base.errors import ConfigError
from flower_pca.commands import common

_PAIR: Final = re.compile(r"""(\S+?)=('[^']*'|"[^"]*"|\S+)""")  # as a SuperNode reads its --node-config


def add(commands: Any) -> None:
    """Add the command to the parser."""
    words = "say what a node with given rules can be made to tell, and what they leave open"
    parser = common.parser(commands, "rules", words, run)
    text = "as the node's --node-config: 'min-rows=50 masked-only=true', or a .toml file (default: none set)"
    parser.add_argument("rules", nargs="*", metavar="RULE", help=text)


def run(given: argparse.Namespace) -> int:
    """Print what the rules come to."""
    from flower_pca.audit.telling import telling
    from flower_pca.clients.policy.rules import Rules

    found = telling(Rules.of_node_config(_config(given.rules)))
    if given.json:
        common.print_json(asdict(found))
        return 0
    sys.stdout.write(found.text())
    return 0


def _config(words: list[str]) -> dict[str, Any]:
    """The keys and values of a node-config."""
    if len(words) == 1 and words[0].endswith(".toml"):
        text = Path(words[0]).expanduser().read_text(encoding="utf-8")
    else:
        whole = " ".join(words)
        left = _PAIR.sub("", whole).strip()
        if left:
            remedy = "Write 'min-rows=50 masked-only=true'."
            raise ConfigError("Rules of a node", must="given as key=value", got=repr(left), then=remedy)
        text = "\n".join(f"{key} = {value}" for key, value in _PAIR.findall(whole))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        rule, remedy = "true, false, a number, or text in quotation marks", 'Write allow="krylov,ssi".'
        raise ConfigError("The value of a rule", must=rule, got=str(error), then=remedy) from error
