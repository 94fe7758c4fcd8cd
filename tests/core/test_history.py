"""Test History: rounds in order, their bytes, and their JSON."""

import dataclasses
import json

import pytest

from flower_pca.base import labels
from flower_pca.base.history import History, Round

FIRST = Round(number=0, stage="opening", asked=3, answered=3, bytes_down=51, bytes_up=900, seconds=0.5)
SECOND = Round(
    number=1,
    stage="ssi",
    asked=3,
    answered=2,
    failures={"2": "gone"},
    bytes_down=1_200_000,
    bytes_up=800_000,
    metrics={"error": 1.5e-3},
)
HISTORY = History().add(FIRST).add(SECOND)


def test_rounds_are_kept_in_order_and_by_stage():
    assert len(HISTORY) == 2
    assert list(HISTORY) == [FIRST, SECOND]
    assert HISTORY[-1] is SECOND
    assert HISTORY.of("ssi") == (SECOND,)
    assert HISTORY.of("ritz") == ()


def test_adding_leaves_the_history_as_it_was():
    before = History((FIRST,))
    before.add(SECOND)
    assert before.rounds == (FIRST,)
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.rounds = ()


def test_bytes_and_seconds_of_all_rounds_add_up():
    assert (HISTORY.bytes_down, HISTORY.bytes_up) == (1_200_051, 800_900)
    assert HISTORY.add(dataclasses.replace(FIRST, number=2)).seconds == 1.0
    assert (History().bytes_down, History().bytes_up) == (0, 0)


def test_json_there_and_back_is_the_same_history():
    assert History.from_json(json.loads(json.dumps(HISTORY.to_json()))) == HISTORY


def test_a_round_reads_as_one_line():
    assert str(FIRST) == "round 0 (opening): 3/3 clients, 51 B down, 900 B up"
    assert str(SECOND) == "round 1 (ssi): 2/3 clients, 1 failed, error 1.50e-03, 1.2 MB down, 800 kB up"


def test_bytes_are_printed_in_a_suitable_unit():
    assert [labels.bytes_in_words(n) for n in (0, 1, 999, 1000, 35_208, 999_999, 12_345_678)] == [
        "0 B", "1 B", "999 B", "1 kB", "35.2 kB", "1 MB", "12.3 MB"
    ]  # fmt: skip
