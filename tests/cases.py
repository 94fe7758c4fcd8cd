"""Helpers for test cases: slow ones, cases that run as one, and triples that cover all pairs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def every(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `parametrize`, but as one case, which names all values that fail: for what takes less than a case itself."""
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    listed = list(values)

    def together(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def all_of_them(**given: Any) -> None:
            faults = []
            for value in listed:
                parts = dict(zip(wanted, value if len(wanted) > 1 else (value,), strict=True))
                try:
                    test(**given, **parts)
                except (Exception, pytest.record_failure.Exception) as error:
                    faults.append(f"{str(parts)[:300]}: {type(error).__name__}: {error}")
            assert not faults, f"{len(faults)} of {len(listed)}\n" + "\n".join(faults)

        own = inspect.signature(test)
        left = [parameter for name, parameter in own.parameters.items() if name not in wanted]
        all_of_them.__signature__ = own.replace(parameters=left)  # type: ignore[attr-defined]
        return all_of_them

    return together


def slow_if(cases, *words):
    """The cases as parameters; those that hold one of these words are slow: a tenth of a second and more."""
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


def paired(*lists):
    """Every value of each list, as few times as can be: the longest goes on, and the others come round and round.

    For what is proved of pairs elsewhere: of options and algorithms in test_pairs.py.
    """
    lists = [list(values) for values in lists]
    rounds, longest = 1, max(lists, key=len)
    columns = []
    for values in lists:
        if values is longest:
            columns.append(values)
        else:
            if rounds * (len(values) - 1) >= len(longest):
                raise ValueError("values would be missing")
            columns.append([values[i // rounds % len(values)] for i in range(len(longest))])
            rounds *= len(values)
    return list(zip(*columns, strict=True))
