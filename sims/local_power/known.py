"""Figures known before: of the paper's Table 6 and of decay (Li, Wang, Chen, Zhang, ICML 2021), and this project's own.

What is not here is not known here; nothing is filled in.
"""

from __future__ import annotations

from typing import Final

SETS: Final = ("a9a", "abalone", "connect4", "covtype")
TARGETS: Final = (1e-1, 5e-2, 2e-2, 1e-3, 1e-6)

_METHODS: Final = ("OPT", "sign", "vanilla", "UDA", "WDA", "DR-SVD")
_PAPER: Final = {
    "a9a": (4.1e-3, 5.8e-3, 8.1e-2, 2.6e-2, 2.4e-2, 4.6e-2),
    "abalone": (3.2e-3, 3.9e-3, 3.0e-2, 1.0e-1),
    "covtype": (7.4e-3, 6.2e-3, 1.3e-2, 6.1e-2),
    "connect4": (1.3e-2, 1.8e-2, 1.7e-2, 1.7e-1),
}
_EXPECTED: Final = {
    "a9a": (6.3e-3, 1.0e-2, 6.1e-2, 1.7e-2),
    "abalone": (1.0e-2, 1.5e-2, 1.5e-2, 2.7e-2),
    "connect4": (1.2e-2, 1.3e-2, 1.2e-1, 4.9e-2),
    "covtype": (2.4e-3, 2.9e-3, 2.9e-3, 1.7e-2),
}
PAPER: Final = {(s, m): value for s, row in _PAPER.items() for m, value in zip(_METHODS, row, strict=False)}
EXPECTED: Final = {(s, m): value for s, row in _EXPECTED.items() for m, value in zip(_METHODS, row, strict=False)}

PAPER_DECAY: Final = {"a9a": 4.8e-3, "abalone": 3.5e-10, "covtype": 5.6e-4}
EXPECTED_DECAY: Final = {"a9a": 1.6e-6, "abalone": 1e-14, "connect4": 6.1e-3, "covtype": 1.4e-3}

_ROUNDS: Final = {
    "a9a": (
        "8/10/14/31/81 .. 34/39/45/67/116",
        "2/3/4/-/- .. 9/10/11/-/-",
        "2/2/2/13/61 .. 6/8/13/35/84",
        "5/5/6/7/10 .. 6/6/7/8/11",
    ),
    "covtype": (
        "36/45/57/98/190 .. 58/66/78/118/-",
        "9/12/15/-/- .. 15/17/20/-/-",
        "6/12/25/65/157 .. 24/32/44/84/176",
        "5/5/5/7/9 .. 6/6/6/7/9",
    ),
    "connect4": (
        "22/35/52/107/- .. 66/79/96/152/-",
        "6/9/14/-/- .. 18/22/32/-/-",
        "3/7/21/76/- .. 35/48/65/120/-",
        "5/6/6/7/10",
    ),
    "abalone": (
        "2/2/4/10/29 .. 7/8/11/19/38",
        "1/1/1/-/- .. 2/3/5/-/-",
        "1/1/1/13/32 .. 1/2/5/16/34",
        "2/2/2/2/2",
    ),
}
_ROUNDS_OF: Final = ("SSI", "LocalPower q=4", "LocalPower q=8, decay", "Krylov")
EXPECTED_ROUNDS: Final = {
    (s, method): text for s, row in _ROUNDS.items() for method, text in zip(_ROUNDS_OF, row, strict=True)
}
