"""Test CachedSums: every client counts once, with its last answer."""

import numpy as np
import pytest

from flower_pca.algorithms.cached import CachedSums
from flower_pca.base import files
from flower_pca.core.stage import add_answer, stack_answer

ROWS = (5, 3, 2)


def answers(seed):
    """One answer of each of three clients."""
    rng = np.random.default_rng(seed)
    return {i: {"n": np.array(n), "B": rng.standard_normal((4, 2))} for i, n in enumerate(ROWS)}


def plain_sum(replies):
    """What a stage hands over for a plain sum."""
    return {name: np.array(sum(reply[name] for reply in replies), dtype=float) for name in ("n", "B")}


def test_nothing_is_held_while_everybody_answers():
    cache = CachedSums(sum(ROWS))
    for seed in range(4):
        assert cache.merging is add_answer
        total = plain_sum(answers(seed).values())
        after, sums, share = cache.add(total)
        assert after is cache
        assert share == 1.0
        np.testing.assert_array_equal(sums["B"], total["B"])


def test_from_the_first_gap_on_the_last_answer_of_every_client_counts():
    rounds = [answers(seed) for seed in range(5)]
    present = [(0, 2), (1,), (0, 1), (2, 0), (1,)]
    cache, last = CachedSums(sum(ROWS)), {}
    for number, (replies, here) in enumerate(zip(rounds, present, strict=True)):
        came = {i: replies[i] for i in here}
        cache, sums, share = cache.add(came if cache.merging is stack_answer else plain_sum(came.values()))
        assert share == sum(ROWS[i] for i in here) / sum(ROWS)
        last = came if number == 0 else {**(last if number > 1 else {}), **came}  # the first gap is summed plainly
        np.testing.assert_allclose(sums["B"], sum(a["B"] for a in last.values()), rtol=1e-14)
        assert float(sums["n"]) == sum(ROWS[i] for i in last)
    assert list(cache.last) == [1, 0, 2]


def test_an_answer_that_comes_again_changes_nothing():
    cache, *_ = CachedSums(10).add(plain_sum([answers(0)[1]]))
    once, sums, _ = cache.add(answers(1))
    again, same, _ = once.add({2: answers(1)[2]})
    np.testing.assert_array_equal(sums["B"], same["B"])
    assert list(again.last) == list(once.last)


@pytest.mark.parametrize("held", [False, True])
def test_cached_sums_survive_a_checkpoint_to_the_bit(held):
    cache = CachedSums(10)
    if held:
        for came in (plain_sum([answers(0)[1]]), {2: answers(1)[2]}, {0: answers(2)[0]}):
            cache = cache.add(came)[0]
    arrays = {}
    back = files.unpack_value(CachedSums, files.pack_value(cache, arrays, "cache"), arrays)
    assert back.n == cache.n
    assert (back.last is None) == (cache.last is None)
    if held:
        assert list(back.last) == list(cache.last) == [2, 0]
        for client, answer in cache.last.items():
            assert all(np.array_equal(answer[name], back.last[client][name]) for name in answer)


def test_where_single_answers_cannot_be_had_those_that_came_stand_for_all():
    cache, came = CachedSums(sum(ROWS), summed=True), answers(3)
    total = plain_sum([came[0], came[2]])
    after, sums, share = cache.add(total)
    assert after is cache
    assert (after.merging, share) == (add_answer, 0.7)
    np.testing.assert_allclose(sums["B"], total["B"] / 0.7, rtol=1e-14)
    assert float(sums["n"]) == pytest.approx(10.0)
    after, sums, share = after.add(plain_sum(came.values()))
    assert share == 1.0
    np.testing.assert_array_equal(sums["B"], plain_sum(came.values())["B"])
