"""Refusals of a node by a server that asks for more than a run does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from dishonest import Node, RefusedError

from flower_pca import Stream
from flower_pca.rows.frame import Frame
from flower_pca.rows.split import ColumnPreparation
from refused import Refused

ROWS = np.random.default_rng(0).standard_normal((20, 3)) * [1.0, 2.0, 5.0] + [3.0, 0.0, -1.0]
WIDE = np.random.default_rng(1).standard_normal((60, 8))
HUGE = np.where((np.arange(60) == 3)[:, None] & (np.arange(8) == 2), 1.2345e80, WIDE)
SCORES = np.linalg.qr(np.random.default_rng(1).standard_normal((20, 6)))[0]
BASIS = np.linalg.qr(np.random.default_rng(2).standard_normal((8, 2)))[0]
ONE = np.eye(8)[:, :1]
STEP = {"step": 0, "lap": 0, "refine": False, "width": 8, "seed": 0}
TRACKERS = ("st_miss", "robust_tracking")


def of_columns(stage: str, arrays: dict[str, Any], frame: Frame, allow: Any = None) -> None:
    rules = {} if allow is None else {"allow": allow}
    Node(0, ROWS, split_columns=True, **rules).ask(stage, arrays, frame, algorithm=allow)


def of_rows(
    stage: str,
    arrays: dict[str, Any],
    frame: Frame | None = None,
    rows: Any = WIDE,
    algorithm: Any = None,
    **rules: Any,
) -> None:
    Node(0, rows, **rules).ask(stage, arrays, frame, algorithm=algorithm)


def of_steps(tracker: str, arrays: dict[str, Any]) -> None:
    Node(0, Stream(WIDE, batch=20), allow=tracker).ask(tracker, arrays)


def refused_by_node(given: dict[str, Any], sentence: str) -> Refused:
    return Refused(given, sentence, RefusedError)


OTHER_STAGE = "^A message about columns cannot ask for the stage "
FRAMED = "^The server sent a center or a scale in a run over columns, but each node uses its own."
OF_COLUMNS = [
    *[
        refused_by_node(
            {"stage": stage, "arrays": arrays, "frame": Frame(split=ColumnPreparation()), "allow": allow},
            f"{OTHER_STAGE}{stage}.",
        )
        for stage, allow, arrays in (
            ("monitor", "monitor", {"Z": SCORES, "variances": np.ones(6), "rest": np.array(1.0)}),
            ("opening", "krylov", {"peaks": False, "block": SCORES}),
            ("summed_opening", "krylov", {"peaks": False, "block": SCORES, "reference": np.zeros(20)}),
            ("evaluate", "krylov", {"Z": SCORES}),
            ("uda", "uda", {"rank": 2, "weighted": False}),
            ("dr_svd", "dr_svd", {"step": 1, "block": SCORES}),
        )
    ],
    *[
        refused_by_node({"stage": "ssi", "arrays": {"Z": SCORES}, "frame": frame}, FRAMED)
        for frame in (
            Frame(mean=np.zeros(20), split=ColumnPreparation()),
            Frame(scale=np.ones(20), split=ColumnPreparation()),
            Frame(fill=np.zeros(20), split=ColumnPreparation()),
            Frame(mean=np.zeros(3), split=ColumnPreparation()),
            Frame(own=True, split=ColumnPreparation()),
            Frame(names=("a", "b", "c"), split=ColumnPreparation()),
        )
    ],
]
OF_ROWS = [
    *[
        refused_by_node(
            {
                "stage": stage,
                "arrays": {"peaks": False, "block": ONE, **reference},
                "frame": Frame(**{part: np.full(8, 2.0)}),
                "algorithm": "krylov",
            },
            f"The opening of a run needs raw rows, but the server's message centers, scales or adjusts them: {part}",
        )
        for part in ("mean", "scale", "fill")
        for stage, reference in (("opening", {}), ("summed_opening", {"reference": np.zeros(8)}))
    ],
    *[
        refused_by_node(
            {"stage": "exact_per_pca", "arrays": {"B": BASIS, "samples": False, **message, "auto": True}},
            "The server limits this client to .* local components, but the limit must be 10. The server",
        )
        for message in (
            {"U": BASIS, "b": ONE, "steps": 0, "own": 9},
            {"U": BASIS, "b": ONE, "steps": 0, "own": 11},
            {"k": 2, "own": 0},
            {"k": 7, "own": 5},
        )
    ],
    refused_by_node(
        {"stage": "opening", "arrays": {"peaks": False, "block": ONE}, "rows": HUGE, "algorithm": "krylov"},
        "has a number that is too large in column 2: at most 1e+65 .* Scale",
    ),
    refused_by_node(
        {"stage": "ssi", "arrays": {"Z": ONE}, "min_rows": 100},
        "^This node has fewer rows than its min_rows, 100. Start the run again when it has more.",
    ),
]
OF_STEPS = [
    *[
        refused_by_node(
            {"tracker": tracker, "arrays": {**STEP, "lap": lap}}, "lap of the server's message must be from 0 to 10000"
        )
        for tracker in TRACKERS
        for lap in (-1, 10_001)
    ],
    *[
        refused_by_node(
            {"tracker": tracker, "arrays": {**STEP, "P": np.ones(shape), "block": np.eye(8)}},
            "it must have at least one column and no more columns than rows|P of the server's message must be a matrix",
        )
        for tracker in TRACKERS
        for shape in ((8, 1000), (8, 9), (8, 0), (8,))
    ],
    *[
        refused_by_node(
            {
                "tracker": tracker,
                "arrays": {**STEP, "P": np.full((8, 2), 1e60), "block": np.full((8, 1), 1e60), "outside": 1},
            },
            "The answer of this node is not finite",
        )
        for tracker in TRACKERS
    ],
]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "node, of columns": (of_columns, OF_COLUMNS),
    "node, of rows": (of_rows, OF_ROWS),
    "node, of steps": (of_steps, OF_STEPS),
}
