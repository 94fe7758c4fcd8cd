"""Cases of tests: which are slow, and triples of which every pair is there."""

import pytest


def slow_if(cases, *words):
    """The cases as parameters; those that hold one of these words are slow: a third of a second and more."""
    listed = [(case, case if isinstance(case, tuple) else (case,)) for case in cases]
    return [
        pytest.param(*values, marks=pytest.mark.slow) if any(v in words for v in values if isinstance(v, str)) else case
        for case, values in listed
    ]


PLAIN_OR_MASKED = [False, pytest.param(True, marks=pytest.mark.slow)]


def in_turn(rows, columns, turns):
    """Every row with every column, each with the next of the turns: all pairs, of as many rows and columns as turns."""
    rows, columns, turns = list(rows), list(columns), list(turns)
    if min(len(rows), len(columns)) < len(turns):
        raise ValueError("pairs would be missing")
    return [(r, c, turns[(i + j) % len(turns)]) for i, r in enumerate(rows) for j, c in enumerate(columns)]
