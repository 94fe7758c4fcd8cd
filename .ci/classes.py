"""Write a Strategy and a client for each algorithm and tracker as classes in source, from the registry.

Run: python .ci/classes.py

They stand in `strategies/named.py` and `clients/named.py`, so that an editor completes their parameters and shows what
these mean. A parameter's name, kind and default are those of the algorithm's field; its words are those of the
algorithm's docstring.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import textwrap
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from flower_pca import registry
from flower_pca.core.stage import Stage

ROOT = Path(__file__).parents[1]
_OF = '''

class {name}({base}):
    """{what}

    {prefer}

    Args:
{parameters}
        **keywords: Of nodes and question: see `{base}`.
    """

    name = "{stage}"

    @spelt_out({kind}Keywords, {defaults}_DEFAULTS)
    def __init__(self, *, {signature}, **keywords: Unpack[{kind}Keywords]) -> None:
        super().__init__(registry.{make}(
{values}
        ), **keywords)  # fmt: skip
'''
_CLIENT = '''

class {name}Client(PCAClient):
    """Serves {stage} only{stream}.

    {what}
    """

    algorithms = ("{stage}",)
'''
_HEADS = {
    "strategies": '''"""One Strategy for each algorithm and tracker. Written from the registry by .ci/classes.py.

An algorithm that was registered elsewhere gets one when it is first asked for: see
`flower_pca.strategies`.
"""

from __future__ import annotations

from typing import Any, Unpack

from flower_pca import registry
from flower_pca.base.spec import spelt_out
from flower_pca.strategies.pca import (
    PCA_DEFAULTS,
    STEP_DEFAULTS,
    PCAKeywords,
    PCAStrategy,
    StepKeywords,
    TrackingStrategy,
)
''',
    "clients": '''"""One client for each algorithm and tracker: a node's operator decides what the node serves.

Written from the registry by .ci/classes.py.
"""

from __future__ import annotations

from flower_pca.clients.base import PCAClient
''',
}


def strategy(name: str, stage: type[Stage[Any]]) -> str:
    """The class statement of an algorithm's Strategy."""
    tracks, text = stage.name in registry.TRACKERS, inspect.getdoc(stage) or ""
    prefer = re.search(r"^Prefer it:.*?(?=^\s*$|^\S[\w ]*:|\Z)", text, re.DOTALL | re.MULTILINE)
    parameters = text.partition("\nArgs:\n")[2].rstrip().splitlines()
    names = [field.name for field in fields(stage)]
    return _OF.format(
        name=name,
        base="TrackingStrategy" if tracks else "PCAStrategy",
        what=_first(text),
        prefer=prefer.group().strip().replace("\n", "\n    ") if prefer else "",
        parameters="\n".join(f"    {line}".rstrip() for line in parameters),
        stage=stage.name,
        kind="Step" if tracks else "PCA",
        defaults="STEP" if tracks else "PCA",
        signature=", ".join(map(_parameter, fields(stage))),
        make="tracker" if tracks else "make",
        values=textwrap.indent(textwrap.fill(", ".join(["self.name", *(f"{n}={n}" for n in names)]), 88), " " * 12),
    )


def client(name: str, stage: type[Stage[Any]]) -> str:
    """The class statement of an algorithm's client."""
    stream = ", from a `Stream`" if stage.name in registry.TRACKERS else ""
    return _CLIENT.format(name=name, stage=stage.name, stream=stream, what=_first(inspect.getdoc(stage) or ""))


def _parameter(field: Field[Any]) -> str:
    """As it stands in a signature; kinds of the algorithm's own room are not to be known here."""
    kind = re.sub(r"\b[a-z_]+\.[A-Z]\w*", "Any", str(field.type))
    return f"{field.name}: {kind} = {field.default!r}"


def _first(text: str) -> str:
    return text.splitlines()[0]


def written() -> dict[str, str]:
    """What stands in the two files, as the registry has them."""
    listed = {name: stage for name, stage in registry.public().items() if stage.__module__.startswith("flower_pca.")}
    texts = {
        "strategies": "".join(strategy(name, stage) for name, stage in listed.items()),
        "clients": "".join(client(name, stage) for name, stage in listed.items()),
    }
    return {f"flower_pca/{room}/named.py": _formatted(_HEADS[room] + text) for room, text in texts.items()}


def _formatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "flower_pca/named.py", "-"]
    done = subprocess.run(command, input=source, text=True, capture_output=True, check=True, cwd=ROOT)
    return done.stdout


if __name__ == "__main__":
    for path, text in written().items():
        (ROOT / path).write_text(text, encoding="utf-8")
