"""Test the shared promises for every algorithm of the registry."""

from __future__ import annotations

from pathlib import Path

import checks
import protocol_checks
import pytest
from cases import every

from flower_pca import make
from flower_pca.core.algorithm import Iterative
from flower_pca.registry import ALGORITHMS

EXACT = [name for name in checks.PLAIN if not checks.averages(name)]
AVERAGES = [name for name in checks.PLAIN if checks.averages(name)]
CASES = [
    *((name, check) for name in ALGORITHMS for check in protocol_checks.FOR_ALL),
    *((name, check) for name in checks.PLAIN for check in checks.FOR_ALL),
    *((name, check) for name in ALGORITHMS if name not in checks.PLAIN for check in checks.FOR_OTHERS),
    *((name, check) for name in EXACT for check in checks.FOR_EXACT),
    *((name, check) for name in AVERAGES for check in checks.FOR_AVERAGES),
]


def seed(name: str) -> int:
    """Algorithms take it in turn which draw they are checked on, so that each check is made on both."""
    return list(ALGORITHMS).index(name) % 2


TWICE = (protocol_checks.resumes_exactly, protocol_checks.storage_does_not_matter)
AT_ONCE = (protocol_checks.spec_round_trips, checks.zero_data)


def long(name: str, check: checks.Check) -> tuple[pytest.MarkDecorator, ...]:
    """Algorithms of many rounds, and runs that are begun again and again."""
    many = name in (*checks.SLOW, *checks.ROBUST) and check not in AT_ONCE
    return (pytest.mark.slow,) if many or (name != "krylov" and check in TWICE) else ()


@pytest.mark.parametrize(
    ("name", "check"), [pytest.param(n, c, id=f"{n}-{c.__name__}", marks=long(n, c)) for n, c in CASES]
)
def test_shared_promises(name: str, check: checks.Check, tmp_path: Path) -> None:
    check(name, seed(name), tmp_path)


def test_public_and_internal_algorithms_are_listed() -> None:
    assert AVERAGES
    assert any(issubclass(ALGORITHMS[name], Iterative) for name in EXACT)


@every("name", ALGORITHMS)
def test_registered_under_its_own_name(name: str) -> None:
    assert make(name).name == name
    assert type(make(name)) is ALGORITHMS[name]


def test_spec_with_a_word() -> None:
    algorithm = make("local_power(align='sign', decay=False)")
    assert algorithm.spec == "local_power(align='sign', decay=False)"
    assert make(algorithm.spec, local_steps=2) == make("local_power", align="sign", decay=False, local_steps=2)
