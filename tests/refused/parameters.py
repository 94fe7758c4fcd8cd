"""Refusals of parameters, budgets, masks, rules of nodes and streams."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
from builders import rows
from flwr.client import NumPyClient

from flower_pca import DP, AirChannel, DataError, LocalPower, MaskedSums, Ray, STMiss, Stream, cli, make
from flower_pca.analysis.likelihood import minka
from flower_pca.clients import PCAClient, WithPCA, client_app
from flower_pca.clients.policy.rules import Rules
from flower_pca.rows.stream import NO_CURSOR
from refused import Refused
from sims import __main__ as papers
from sims import faps

GOOD = rows(60, [5.0, 3.0, 2.0, 1.0, 0.5], seed=0)
OWN = "local_components of exact_per_pca "
TOLERANCE = "ssi has no parameter 'tolerance'. Its parameters are oversample, tol, min_rounds, max_rounds and patience."
TEN = np.arange(30.0).reshape(10, 3)


def client(**rules: Any) -> None:
    PCAClient(GOOD, **rules)


def with_clip(**options: Any) -> None:
    DP(**{"epsilon": 2.0, "delta": 1e-6, "clip": 3.0, **options})


def app(**rules: Any) -> None:
    client_app(lambda context: GOOD, **rules)


def profile(**rules: Any) -> None:
    Rules.with_changes(None, rules)


def node_config(**config: Any) -> None:
    Rules.of_node_config(config)


def streaming_client(**rules: Any) -> None:
    PCAClient(Stream(GOOD, batch=10), **rules)


def first_of_stream(batches: Any, **how: Any) -> None:
    Stream(batches, **how).rows_for_step(0, NO_CURSOR)


def ranges(given: Any) -> None:
    DP(epsilon=1.0, delta=1e-6, ranges=given)


def program_run(main: Callable[[list[str]], Any], argv: list[str]) -> None:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            main(argv)
        except SystemExit as error:
            raise SystemExit(said.getvalue()) from error


def command(words: list[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        cli.main(words)


ALGORITHM = [
    Refused(
        {"algorithm": LocalPower(), "local_step": 3}, "local_power has no parameter .* Did you mean 'local_steps'?"
    ),
    Refused({"algorithm": "uda(tol=1e-3)"}, "uda has no parameter 'tol'. Its parameters are oversample."),
    Refused(
        {"algorithm": "dr_svd", "patience": 2},
        "dr_svd has no parameter 'patience'. Its parameters are oversample and rank.",
    ),
    Refused({"algorithm": "faps", "penalty": "mine"}, "penalty of faps must be .*paper.*measured.*, not 'mine'"),
    Refused(
        {"algorithm": "exact_per_pca", "gain_tol": 1e-5, "acceleration": "none"},
        '^gain_tol=1e-05 of exact_per_pca has no effect with acceleration="none". Leave gain_tol out, or use '
        'acceleration="lbfgs".$',
    ),
    Refused(
        {"algorithm": "triple_pca", "local_components": "auto"},
        "local_components of triple_pca cannot be 'auto', because outlying entries would be held out with the rows. "
        "Give a whole number, or a mapping from clients to such numbers.",
    ),
    Refused(
        {"algorithm": "triple_pca", "threshold": 0.5},
        "threshold of triple_pca must be a number from 1 to 1e+06, not 0.5. Try 4.",
    ),
    Refused(
        {"algorithm": "triple_pca", "inner_steps": 0}, "inner_steps of triple_pca must be a whole number of at least 1"
    ),
    *[
        Refused({"algorithm": "exact_per_pca", "local_components": value}, sentence)
        for value, sentence in (
            (-1, f"{OWN}must be a whole number of at least 0, not -1."),
            (1.5, "must be a whole number of at least 0, or a mapping from clients to such numbers, not 1.5. For "),
            (
                "three",
                "^local_components of exact_per_pca cannot be 'three'. Give a whole number of at least 0, 'auto', or a "
                "mapping from clients to such numbers.$",
            ),
            ({}, "must be a whole number of at least 0, or a mapping .*, not {}."),
            ({0: -1}, f"{OWN}for client 0 must be a whole number of at least 0, not -1."),
            ({"Bonn": 2.5}, "for client 'Bonn' must be a whole number of at least 0, not 2.5."),
            ({-1: 2}, f"Every client in {OWN}must be a whole number .*, not -1. Name clients by"),
            ({"": 2}, "Every client in local_components of exact_per_pca must be a whole number of at least 0, not"),
        )
    ],
    *[
        Refused(
            {"algorithm": name, "local_components": "Auto"},
            f"local_components of {name} cannot be 'Auto'. Give a whole number of at least 0, 'auto', or a mapping",
        )
        for name in ("exact_per_pca", "per_pca")
    ],
    *[
        Refused(
            {"algorithm": name, "local_components": "auto", "init": "random"},
            f"local_components of {name} cannot be 'auto' with init=\"random\", because a random first block "
            'does not depend on the rows. Use init="projection".$',
        )
        for name in ("exact_per_pca", "per_pca")
    ],
    *[
        Refused({"algorithm": "per_pca", **given}, sentence)
        for given, sentence in (
            ({"weights": "rows"}, "weights of per_pca must be 'equal' or 'samples'"),
            ({"init": "pca"}, "init of per_pca must be 'projection', 'upload', 'qu' or 'random', not 'pca'."),
            ({"local_init": "none"}, "local_init of per_pca must be 'best' or 'random', not 'none'."),
            ({"choice": 3}, "choice of per_pca must be a whole number from 1 to 2"),
            (
                {"choice": 2, "retraction": "qr"},
                'choice=2 of per_pca needs retraction="polar", because the first columns of a QR do not depend '
                'on the later columns. Use retraction="polar".',
            ),
            ({"step": 0.0}, "step of per_pca must be a finite number"),
            ({"local_components": -1}, "local_components of per_pca must be a whole number of at least 0"),
        )
    ],
    *[
        Refused({"algorithm": "faps", **given}, sentence)
        for given, sentence in (
            ({"beta_0": 0.0}, "^beta_0 of faps must be a number from 1e-06 to 100, not 0.0. Try 0.15."),
            ({"theta": 1.5}, "^theta of faps must be a number from 0 to 1, not 1.5. Try 0.1."),
            ({"mu": -1}, "^mu of faps must be a number from 0 to 1, not -1. Try 0.01."),
            (
                {"beta_0": 0.3, "theta": 0.2},
                "^faps with penalty='measured' does not use beta_0, theta, because only the paper's "
                'rule has these parameters. Leave them out, or use penalty="paper".',
            ),
        )
    ],
    *[
        Refused({"algorithm": "ssi", **given}, sentence)
        for given, sentence in (
            ({"tol": -1.0}, "^tol of ssi must be a finite number of at least 0, not -1.0. Try 1e-6."),
            ({"tol": float("nan")}, "^tol of ssi must be a finite number of at least 0, not nan. Try 1e-6."),
            ({"min_rounds": -1}, "^min_rounds of ssi must be a whole number of at least 0, not -1."),
            ({"max_rounds": 0}, "^max_rounds of ssi must be a whole number of at least 1, not 0."),
            ({"min_rounds": 5, "max_rounds": 4}, "^max_rounds of ssi must be a whole number of at least 5, not 4."),
            ({"patience": 0}, "^patience of ssi must be a whole number of at least 1, not 0."),
            ({"oversample": 1.5}, "^oversample of ssi must be a whole number of at least 0, not 1.5."),
        )
    ],
    *[
        Refused({"algorithm": algorithm, **given}, f"^{TOLERANCE}")
        for algorithm, given in (("ssi(tolerance=1)", {}), ("ssi", {"tolerance": 1}))
    ],
    Refused({"algorithm": "ssi(tol=-1)"}, "^tol of ssi must be a finite number of at least 0, not -1. Try 1e-6."),
    Refused(
        {"algorithm": "krylov(max_basis=3)"},
        "^max_basis of krylov must be a whole number of at least 4, not 3. Use 40.",
    ),
    Refused({"algorithm": "krylov", "oversample": "auto", "max_basis": 2}, "max_basis of krylov must be"),
    Refused(
        {"algorithm": "krylov", "oversample": "wide"},
        "^oversample of krylov is 'wide', but it must be a whole number or \"auto\". Use 2.",
    ),
    Refused(
        {"algorithm": "local_power(align='signs')"},
        "^align of local_power must be 'procrustes', 'sign' or 'none', not 'signs'. Did you mean 'sign'?",
    ),
    Refused({"algorithm": "faps(inner_steps=0)"}, "^inner_steps of faps must be a whole number of at least 1, not 0."),
    Refused({"algorithm": "uda(oversample=-1)"}, "^oversample of uda must be a whole number of at least 0, not -1."),
    Refused(
        {"algorithm": "consensus_rpca", "noise": "much"},
        "noise of consensus_rpca is 'much', but it must be \"auto\" or a number of at least 0. Leave the "
        "parameter out to estimate the noise.",
    ),
]
TRACKER = [
    *[
        Refused({"detect": True, "alarm_rate": rate}, "alarm_rate of st_miss must be a number from 1e-09 to 0.1, not")
        for rate in (0.0, 0.5, "often")
    ],
    *[
        Refused(
            {"monitor": True, **given},
            "monitor of st_miss works only with detect=True and without threshold, but the tracker is",
        )
        for given in ({}, {"detect": True, "threshold": 1.0})
    ],
]
MASKS = [
    Refused({"threshold": 0.4}, "threshold of the masks must be a number from 0.5 to 0.99, not 0.4. Use 0.5."),
    Refused({"threshold": 1.0}, "threshold of the masks must be a number from 0.5 to 0.99, not 1.0. Use 0.5."),
    Refused({"bound": 0.0}, "bound of the masks must be"),
    Refused({"bound": np.inf}, "bound of the masks must be a finite number"),
    Refused({"neighbors": 1}, "neighbors of the masks must be a whole number of at least 2"),
    Refused({"neighbors": 7}, "neighbors of the masks must be even, not 7. Use 8."),
    Refused({"self_masks": "no"}, "self_masks of the masks must be True or False, not 'no'"),
]
BUDGETS = [
    Refused({"colluding": -1}, "colluding of dp must be a whole number of at least 0"),
    Refused({"delta": 1e-31}, "delta of dp must be a finite number of at least 1e-30"),
]
CLIENT = [
    Refused({"allow": ["krilov"]}, "is no such algorithm. .* Did you mean 'krylov'"),
    *[Refused({"min_rows": least}, "min_rows must be a whole number of at least 1, not") for least in (0, 1.5)],
    *[Refused({name: -1.0}, "The node's own bound on") for name in ("min_noise", "max_clip")],
    Refused({"memory_dir": "anywhere"}, "memory_dir needs the node's context"),
    Refused({"output_dir": "anywhere"}, "output_dir needs the node's context"),
    Refused({"min_row": 5}, "A node has no parameter 'min_row'. Did you mean 'min_rows'?"),
    Refused({"max_messages": 0}, "max_messages must be a whole number of at least 1, not 0."),
    Refused({"max_messages": 3}, "max_messages needs the node's context."),
    Refused({"max_columns": 0}, "max_columns must be a whole number of at least 1, not 0."),
    Refused({"masked_only": "yes"}, "masked_only must be True or False, not 'yes'."),
    Refused({"share_local": "false"}, "share_local must be True or False, not 'false'. Write it without"),
    *[
        Refused(
            {name: given},
            f"{name} needs the path of a file, but {given!r} is not a path. Name a file, or leave {name} out.",
        )
        for name in ("sign_key", "trusted_keys")
        for given in (5, "", True)
    ],
]
STREAMING_CLIENT = [
    Refused(
        {"max_epsilon": 1.0, "max_delta": 1e-6},
        "max_epsilon needs rows that do not change, but this client serves a Stream",
    )
]
RULES = [
    Refused({"max_epsilon": 1.0}, "only one of them is given: max_epsilon=1.0, max_delta=None."),
    Refused({"max_delta": 1e-6}, "only one of them is given"),
    Refused({"max_epsilon": 0.0, "max_delta": 1e-6}, "max_epsilon must be a finite number of at least 1e-09"),
    Refused({"max_epsilon": 1.0, "max_delta": 0.0}, "max_delta must be a number from 1e-30 to 0.5, not 0.0."),
    Refused({"max_colluders": -1}, "max_colluders must be a whole number of at least 0"),
    Refused({"max_messages_ever": 0}, "max_messages_ever must be a whole number of at least 1"),
    *[Refused({"min_peers": few}, "min_peers must be a whole number of at least 1") for few in (0, None)],
    *[
        Refused(given, "max_groups and max_dropouts need trusted_keys.")
        for given in ({"max_groups": 1}, {"max_dropouts": 0})
    ],
    Refused({"max_dropouts": -1}, "max_dropouts must be a whole number of at least 0"),
    Refused({"split_columns": "all"}, "split_columns"),
    *[
        Refused(
            {"data_name": name}, "data_name must have at most 64 letters, digits, hyphens and underscores, for example"
        )
        for name in ("", "../up", "a b", "x" * 65)
    ],
    Refused({"min_change": 20, "min_rows": 50}, "min_change must be a whole number of at least 50, not 20"),
    Refused({"min_change": 20, "split_columns": True}, "min_change cannot be used together with split_columns"),
    Refused({"min_change": 20, "on_small_change": "wait"}, "on_small_change must be 'answer' or 'refuse', not 'wait'."),
    Refused({"categorical": "ward", "share_names": False}, "reveals names of columns, but share_names is false"),
    Refused({"id_column": "patient"}, "id_column='patient' has no effect without min_change"),
    *[
        Refused({"max_epsilon": 1.0, "max_delta": 1e-6, **beside}, sentence)
        for beside, sentence in (
            (
                {"categorical": "ward"},
                "categorical='ward' cannot be used together with max_epsilon, because single rows decide which levels",
            ),
            ({"min_change": 20}, "min_change=20 has no effect together with max_epsilon, which already keeps the rows"),
            (
                {"split_columns": "std"},
                "split_columns=std cannot be used together with max_epsilon, because runs over columns reveal",
            ),
        )
    ],
]
APP = [Refused({"max_rnak": 5}, "A node has no parameter 'max_rnak'. Its parameters are allow, min_rows,")]
PROFILE = [
    Refused(
        {"profile": "masked", "trusted_keys": "/k", "split_columns": "std"},
        "min_change cannot be used together with split_columns=.*, because runs over",
    ),
    *[
        Refused(
            {"profile": "masked", "trusted_keys": "/k", rule: value},
            f"{rule} in the profile masked must be a whole number of at least 20",
        )
        for rule, value in (("min_rows", 19), ("min_change", None))
    ],
    Refused({"profile": "masked"}, "trusted_keys"),
    Refused({"profile": "secret"}, "profile must be 'open', 'masked' or 'private', not 'secret'."),
]
NODE_CONFIG = [
    Refused(config, "which is not a rule. Did you mean")
    for config in ({"min_rows": 5}, {"min-row": 5}, {"Masked-Only": True}, {"allowed": "ssi"}, {"node.min-rows": 5})
]
RAY = [
    *[
        Refused({"clients_per_node": many}, "clients_per_node must be a whole number of at least 1, not")
        for many in (0, -1, True, 2.5, "many")
    ],
    *[
        Refused({"num_cpus_per_client": cpus}, "num_cpus_per_client must be a finite number of at least 0.01, not")
        for cpus in (0.0, -1, True, float("nan"), "2")
    ],
    Refused({"entry": "start_simulation"}, "entry must be 'auto', 'run_simulation' or 'flwr_run'"),
    Refused({"entry": "flwr_run", "num_cpus_per_client": 0.5}, "`flwr run` takes whole cores only"),
]
CHANNEL = [
    Refused({"noise_std": -1.0}, "^noise_std of the channel must be a finite number of at least 0"),
    Refused({"noise_std": 1.0, "seed": -1}, "^seed of the channel must be a whole number"),
    Refused({"noise_std": 1.0, "gain": 0.0}, "^Every gain of the channel must be a finite number"),
    Refused({"noise_std": 1.0, "gain": ()}, "^The list of gains of the channel is empty."),
    Refused({"noise_std": 1.0, "gain_error": -0.1}, "^gain_error of the channel must be a finite number"),
]
RANGES = [
    Refused({"given": given}, sentence)
    for given, sentence in (
        ("age=80", "The range of column age must be two numbers, the lower first"),
        ({"age": (80, 20)}, "The range of column age must be two numbers"),
        ("age=a..b", "The range of column age must be two numbers"),
        ({"age": (0, np.inf)}, "The range of column age must be two numbers"),
        ("age=1..2,age=1..3", "A column has two ranges."),
        ({}, "No column has a range."),
        ("nowhere.csv", "The ranges cannot be read from nowhere.csv"),
    )
]
STREAM = [
    *[
        Refused({"batches": [batch]}, "^The data of the client at step 0 must be a two-dimensional", DataError)
        for batch in (np.ones(3), np.array([["a"]]))
    ],
    Refused({"batches": [TEN], "batch": 4}, "this source already has batches. Leave batch=4 out."),
    Refused({"batches": TEN, "batch": 0}, "^batch must be a whole number of at least 1"),
    Refused({"batches": TEN, "batch": 4, "min_rows": 0}, "^min_rows must be a whole number of at least 1"),
]
PROGRAM = [
    *[
        Refused({"main": faps.main, "argv": argv}, f"Got {argv[1]}", SystemExit)
        for argv in (["--only", "table9"], ["--seeds", "0"])
    ],
    Refused({"main": papers.main, "argv": ["--paper", "local_power/table99"]}, "Got local_power/table99", SystemExit),
]
BOTH = [
    Refused(
        {"training": PCAClient(GOOD).to_client(), "pca": PCAClient(GOOD)}, "training must be a NumPyClient, not a "
    ),
    Refused(
        {"training": PCAClient(GOOD), "pca": NumPyClient()},
        "pca must be a PCAClient, not a NumPyClient. Pass the client itself",
    ),
]
DIMENSION = [
    Refused(
        {"variances": np.ones(4), "n": 3},
        "The number of components can be estimated only from at least as many rows as columns, but there are 3 rows "
        "and 4 columns. Give a number of components.",
        DataError,
    )
]
COMMAND = [
    Refused({"words": words}, "^2", SystemExit)
    for words in (
        [],
        ["run"],
        ["run", "a.csv", "b.csv", "--nosuch"],
        ["run", "x.npz", "--components", "many"],
        ["walk"],
        ["list", "more"],
    )
]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "algorithm": (make, ALGORITHM),
    "tracker": (STMiss, TRACKER),
    "masks": (MaskedSums, MASKS),
    "budget": (with_clip, BUDGETS),
    "ranges": (ranges, RANGES),
    "channel": (AirChannel, CHANNEL),
    "client": (client, CLIENT),
    "client of a stream": (streaming_client, STREAMING_CLIENT),
    "rules": (Rules, RULES),
    "app": (app, APP),
    "profile": (profile, PROFILE),
    "node-config": (node_config, NODE_CONFIG),
    "ray": (Ray, RAY),
    "stream": (first_of_stream, STREAM),
    "number of components": (minka, DIMENSION),
    "command": (command, COMMAND),
    "program of a paper": (program_run, PROGRAM),
    "client that trains": (WithPCA, BOTH),
}
