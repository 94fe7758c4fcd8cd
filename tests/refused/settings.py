"""Refusals of settings that do not go together, or do not fit the data."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from builders import rows, shards, two_lead
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod, message_size_mod
from questions import NAMED

from flower_pca import (
    AirChannel,
    DataError,
    ExactPerPCA,
    Krylov,
    PCAConfig,
    assembly,
    audit,
    clients,
    make,
    registry,
    simulate,
)
from flower_pca.core.layer import ClientIdentity, Work
from flower_pca.layers import noise
from flower_pca.layers import single as apart
from flower_pca.report.live import Live
from refused import Refused
from refused.nodes import made_strategy
from refused.runs import ran
from sims.common import data as sims_data

GOOD = rows(60, [5.0, 3.0, 2.0, 1.0, 0.5], seed=0)
TWO = shards((60, 25), 0.8 ** np.arange(12))
BUDGET = "dp(epsilon=1.0, delta=1e-6, clip=10.0)"
TABLE = pd.DataFrame(GOOD, columns=list("abcde"))
LISTED = f"The algorithms are {', '.join(registry.ALGORITHMS)} and auto."
MONITORED = "does not support monitor, because its components alone do not describe a row."
SPOILING = {
    "LocalDpMod": LocalDpMod(1.0, 1.0, 1.0, 1e-5),
    "fixedclipping_mod": fixedclipping_mod,
    "adaptiveclipping_mod": adaptiveclipping_mod,
}
MALFORMED = (
    "", "ssi(", "ssi)", "ssi(0.1)", "ssi(tol=1)(2)", "ssi; krylov", "ssi(tol=x)", "ssi(tol=__import__('os'))",
    "ssi(tol={[]: 1})", "ssi(**{'tol': 1})", "ssi(*[1])", "ssi(tol=1, tol=2)", "a.ssi", "1 + 1", "'ssi'", "ssi\0",
    "(" * 190, 3, None,
)  # fmt: skip
SHORTENED = {
    "(" * 500: "a text of 500 characters. Give parameters by name, as plain values.",
    "ssi\nkrylov": "a text of 10 characters. Give parameters by name, as plain values.",
    ("ssi",): "a tuple of length 1.",
    Krylov: "the class Krylov.",
}


def started(columns: Any) -> None:
    """A run that is to start from a result without one of its columns."""
    start = simulate("krylov", [TABLE], n_components=2)
    simulate("krylov", [TABLE.assign(weight=1.0)], n_components=2, init=start, columns=columns)


def opened_through(channel: AirChannel, position: int) -> None:
    channel.open_answer({"S": np.ones((3, 2)), "n": np.array(5)}, number=0, position=position)


def restored(algorithm: str, init: Any = None, **arguments: Any) -> None:
    """From a checkpoint of a run with other arguments."""
    header, arrays = assembly.run(assembly.config("krylov", n_components=2)).checkpoint()
    config = assembly.config(algorithm, **{"n_components": 2, **arguments})
    assembly.run(config, init=init).restore(json.loads(json.dumps(header)), arrays)


def live_page(name: str, **how: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Live(Path(folder) / name, title="x", **how)


def page_of_a_folder() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "taken.html").mkdir()
        with Live(Path(folder) / "taken.html", title="x"):
            pass


def app_with(mods: Any) -> None:
    clients.client_app(lambda context: GOOD, mods=mods)


def registered_with(mods: Any) -> None:
    clients.register(ClientApp(mods=mods), lambda context: GOOD)


def own_line(lines: Any, client: int) -> None:
    apart.NumberTables.read_message(
        apart.table_arrays("own", lines), Work(ExactPerPCA, {}, None, {}, ClientIdentity(client))
    )


def sims_file(content: str | dict[str, Any] | None, key: str = "") -> None:
    """A file that a simulation reads: of text, of arrays, or none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("x.npz" if isinstance(content, dict) else "x.txt")
        if isinstance(content, dict):
            np.savez(path, **content)
        elif content is not None:
            path.write_text(content)
        sims_data.read(f"{path}{key}")


def named_strategy(name: str, *given: Any, **options: Any) -> None:
    NAMED[name](*given, **options)


def leak(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        audit.audit("covariance", two_lead(3), n_components=2).picture(Path(folder) / name)


TOGETHER = [
    *[
        Refused({"algorithm": name, "monitor": True}, MONITORED)
        for name in ("consensus_rpca", "per_pca(local_components=1, eta=0.1)")
    ],
    Refused(
        {"algorithm": "ssi", "max_rounds": 3, "monitor": True, "dp": BUDGET},
        "monitor cannot be combined with dp: exact counts would reveal information about single rows.",
    ),
    Refused(
        {"algorithm": "fed_oapm", "monitor": True, "channel": "air(noise_std=0.1)"},
        "monitor cannot be combined with channel: the channel adds noise to every sum, and counts must",
    ),
    *[
        Refused({"n_components": "signal", **given}, 'n_components="signal" cannot be combined with')
        for given in ({"dp": BUDGET}, {"channel": "air(noise_std=0.1)"})
    ],
    *[
        Refused(
            {"algorithm": name, "n_components": "signal"},
            f'does not support n_components="signal", because its components {why}',
        )
        for name, why in (
            ("sparse_pca", "are not orthonormal. Use krylov, ssi or faps."),
            ("median_pca", "are not the components of all rows"),
            ("per_pca", "alone do not describe a row"),
        )
    ],
    *[
        Refused(
            {"algorithm": name, "n_components": "shared"},
            'does not support n_components="shared", because it does not choose between shared and',
        )
        for name in ("krylov", "triple_pca", "consensus_rpca")
    ],
    *[
        Refused({"hide_local": [wrong]}, "Every client in hide_local must be a whole number from 0 to 4, not")
        for wrong in (5, -1)
    ],
    *[
        Refused(
            {"algorithm": ExactPerPCA(given=given), "data": TWO},
            "`given` has .*, but exact_per_pca needs a 12 x 2 array of finite numbers. Pass",
        )
        for given in (np.eye(12), np.full((12, 2), np.nan))
    ],
    Refused(
        {"algorithm": make("triple_pca", local_components={0: 1, "others": 2}), "mask": True},
        "triple_pca(local_components={0: 1, 'others': 2}) does not support mask, because its answers",
    ),
]
AS_IT_STANDS = [
    Refused(
        {"algorithm": PCAConfig(make("krylov"), n_components=2), "shards": TWO, "seed": 1, "tol": 1e-3},
        "already has its settings, so seed, tol cannot be given as well. Use dataclasses",
    ),
    Refused(
        {"algorithm": "krylov", "shards": TWO, "n_component": 2},
        "simulate() has no parameter 'n_component'. Did you mean 'n_components'?",
    ),
    Refused(
        {"algorithm": TWO, "shards": "auto", "n_components": 2},
        '^The algorithm comes first, then the data: simulate("krylov", shards, n_components=2).$',
    ),
]
STARTED = [
    Refused(
        {"columns": ["weight", *"abcde"]},
        "^The result to start from has no column weight. Start from a result with this column, or leave init out.$",
    )
]
MADE = [
    *[
        Refused({"algorithm": spec}, f"^There is no algorithm named {word!r}. {remedy}$")
        for word, remedy in (
            ("krilov", "Did you mean 'krylov'?"),
            ("Krylov", "Did you mean 'krylov'?"),
            ("SSI", "Did you mean 'ssi'?"),
            ("DRSVD", "Did you mean 'dr_svd'?"),
            ("localpower", "Did you mean 'local_power'?"),
            ("xyzzy", LISTED),
            ("opening", LISTED),
        )
        for spec in (word, f"{word}(tol=1)")
    ],
    *[
        Refused(
            {"algorithm": spec},
            f'^The algorithm must be a name, an instance, or a spec such as "faps(inner_steps=5)", not {spec!r}.'
            f"{' Give parameters by name, as plain values.' if isinstance(spec, str) else ''}$",
        )
        for spec in MALFORMED
    ],
    *[
        Refused(
            {"algorithm": spec},
            f'^The algorithm must be a name, an instance, or a spec such as "faps(inner_steps=5)", not {text}$',
        )
        for spec, text in SHORTENED.items()
    ],
]
OPENED_THROUGH = [
    Refused(
        {"channel": AirChannel(noise_std=0.0, gain=(0.1, 3.0)), "position": 2},
        "The channel has 2 gains, but the run has at least 3 clients",
    )
]
SHARES = [Refused({"std": 1.0, "survivors": 0}, "survivors must be")]
RESTORED = [
    Refused(
        {"algorithm": algorithm, **arguments},
        f"^The checkpoint belongs to another run, with .*{got}.*. Repeat that run's arguments, or choose "
        "another checkpoint.$",
    )
    for algorithm, arguments, got in (
        ("krylov(max_basis=30)", {}, 'algorithm="krylov"'),
        ("krylov", {"n_components": 3}, "n_components=2"),
        ("krylov", {"center": False}, "center=None"),
        ("krylov", {"scale": "std"}, "scale=None"),
        ("krylov", {"seed": 1}, "seed=0"),
        ("krylov", {"reconstruction_error": True}, "reconstruction_error=False"),
        ("ssi", {"fraction": 0.5}, "fraction=1.0"),
        ("krylov", {"init": np.eye(4)[:2]}, "init=False"),
    )
]
LIVE_PAGE = [
    Refused({"name": "rows.npy"}, "its name must end in .html, but .*rows.npy does not."),
    Refused({"name": "no/live.html"}, "The folder of the live page, .*no, does not exist."),
    Refused({"name": "live.html", "every": 0.0}, "every must be a finite number of at least 0.1"),
]
TAKEN_PAGE = [Refused({}, "The live page .*taken.html cannot be written: ")]
MODS = [
    Refused({"mods": [*beside, mod]}, f"{name} changes answers, .* Run with dp=")
    for name, mod in SPOILING.items()
    for beside in ([], [message_size_mod])
]
OWN_LINE = [Refused({"lines": {0: 5}, "client": 1}, "The run has no number for this client", DataError)]
SIMS_FILE = [
    Refused({"content": content, "key": key}, sentence, DataError)
    for content, key, sentence in (
        ({"X": np.ones((3, 2)), "y": np.ones(4)}, ":z", "must be one of X, y. Got 'z'."),
        ({"X": np.ones((3, 2)), "y": np.ones(4)}, ":y", "a row per sample"),
        ("1 2:3\n1 x:1\n", "", 'Line 2 of .* must be "label index:value'),
        ("1\n", "", "must count from 0 or 1"),
        (None, "", "must be a file"),
    )
]
NAMED_STRATEGIES = [
    *[
        Refused(
            {"name": name, "n_component": 2},
            f"^{strategy.__name__} has no parameter 'n_component'. Did you mean 'n_components'",
        )
        for name, strategy in NAMED.items()
    ],
    *[
        Refused({"name": name, "oversampel": 2}, "'oversampel'.*Did you mean 'oversample'")
        for name in registry.ALGORITHMS
    ],
]
BESIDE = [
    Refused(
        {"algorithm": "ssi", "fraction": 0.5, "fraction_train": 0.5},
        "fraction and fraction_train are two names for one setting, but both are given. Keep one",
    ),
    Refused(
        {"algorithm": "ssi", "min_nodes": 2, "min_train_nodes": 3},
        "min_nodes is given together with another name of the same setting (min_available_nodes, min_train_nodes or "
        "min_evaluate_nodes). Keep one",
    ),
]
LEAK = [Refused({"name": "leak.pdf"}, "A picture is saved as .svg or .png, not as")]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "simulate, with settings": (ran, TOGETHER),
    "simulate, as it stands": (simulate, AS_IT_STANDS),
    "simulate, from a start": (started, STARTED),
    "algorithm by name": (make, MADE),
    "answer through the channel": (opened_through, OPENED_THROUGH),
    "shares of noise": (noise.noise_share, SHARES),
    "run from a checkpoint": (restored, RESTORED),
    "live page": (live_page, LIVE_PAGE),
    "live page, where a folder is": (page_of_a_folder, TAKEN_PAGE),
    "app with mods": (app_with, MODS),
    "app with mods around all": (registered_with, MODS),
    "own line": (own_line, OWN_LINE),
    "file of a simulation": (sims_file, SIMS_FILE),
    "strategies by all names": (named_strategy, NAMED_STRATEGIES),
    "strategy with Flower's names": (made_strategy, BESIDE),
    "picture of an audit": (leak, LEAK),
}
