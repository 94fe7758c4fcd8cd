"""Test Roll: every line of its tables, and the invariants of its sets, whatever happens."""

import json

import pytest
from cases import every
from hypothesis import given
from hypothesis import strategies as st

from flower_pca.base.errors import NotEnoughNodes
from flower_pca.core.roll import Attendance, Audience, Roll

COMPLETE, AGAIN, LOST = Attendance.COMPLETE, Attendance.AGAIN, Attendance.LOST
OPENINGS = [Audience.OPENING, Audience.OPENED]
OTHERS = [Audience.ANYONE, Audience.SAMPLE]


def some(*clients):
    return frozenset(clients)


def opened_roll(**rules):
    """A roll with members 0, 1, 2; client 3 is unfit, and 4 banned."""
    roll = Roll(**rules).with_banned(some(4), "client 4 sent nonsense.")
    roll, _ = roll.after_answers(Audience.OPENING, some(0, 1, 2), addressees=range(5))
    roll, verdict = (
        (roll, COMPLETE) if roll.members else roll.after_answers(Audience.OPENING, some(0, 1, 2), addressees=[3])
    )
    assert verdict is COMPLETE
    assert (roll.members, roll.unfit, roll.banned) == (some(0, 1, 2), some(3), some(4))
    return roll


AUDIENCES = {
    Audience.OPENING: (0, 1, 2, 3, 5),
    Audience.OPENED: (0, 1, 2),
    Audience.MEMBERS: (0, 1, 2),
    Audience.COUNTED: (0, 1, 2),
    Audience.ANYONE: (0, 1, 2, 5),
}


@every("call", AUDIENCES)
def test_whom_a_message_is_for(call):
    roll = opened_roll()
    assert roll.addressees_of(call, roll.present_clients(range(6)), number=7) == AUDIENCES[call]


def test_a_sample_is_drawn_anew_for_every_message_and_the_same_for_the_same():
    roll = opened_roll(fraction=0.5, seed=3)
    here = roll.present_clients(range(5, 25))
    drawn = [roll.addressees_of(Audience.SAMPLE, here, number=number) for number in range(20)]
    assert {len(to) for to in drawn} == {10}
    assert all(list(to) == sorted(to) for to in drawn)
    assert len(set(drawn)) > 1
    assert drawn == [roll.addressees_of(Audience.SAMPLE, here, number=number) for number in range(20)]
    assert len(roll.addressees_of(Audience.SAMPLE, (0,), number=0)) == 1
    assert roll.addressees_of(Audience.SAMPLE, (3,), number=0) == ()


def test_too_few_clients_are_an_error_that_says_who_is_left_out_and_why():
    roll = opened_roll(min_nodes=3)
    assert roll.present_clients([4, 2, 0, 1]) == (2, 0, 1)
    with pytest.raises(
        NotEnoughNodes,
        match=r"needs 3 clients, but 2 are present, and the run has excluded 1, the first because: client 4",
    ):
        roll.present_clients([0, 1, 4])
    with pytest.raises(NotEnoughNodes, match=r"needs 2 clients, but 1 is present\. Start more"):
        Roll(min_nodes=2).present_clients([7])


@pytest.mark.parametrize("call", OPENINGS)
def test_an_opening_asks_once_more_and_then_counts_those_that_answered(call):
    roll = Roll() if call is Audience.OPENING else Roll(addressees=some(0, 1, 2))
    roll, verdict = roll.after_answers(call, some(0), addressees=[0, 1, 2])
    assert verdict is AGAIN
    assert roll.awaited == some(1, 2)
    assert roll.addressees_of(call, (0, 1, 2, 3), number=1) == (1, 2)
    roll, verdict = roll.after_answers(call, some(0, 2), addressees=[1, 2])
    assert verdict is COMPLETE
    assert (roll.members, roll.unfit, roll.awaited) == (some(0, 2), some(1), some())


@every("call", OPENINGS)
@every("spare", [False, True])
def test_an_opening_by_sums_counts_at_once_and_may_spare_the_others(call, spare):
    roll = Roll(summed=True, addressees=some(0, 1, 2))
    roll, verdict = roll.after_answers(call, some(0, 2), addressees=[0, 1, 2], may_miss=spare)
    assert verdict is COMPLETE
    assert (roll.members, roll.unfit) == (some(0, 2), some() if spare else some(1))


def test_members_are_asked_once_more_and_a_second_miss_loses_them():
    roll, verdict = opened_roll().after_answers(Audience.MEMBERS, some(0), addressees=[0, 1, 2])
    assert (verdict, roll.awaited, roll.came) == (AGAIN, some(1, 2), some(0))
    whole, verdict = roll.after_answers(Audience.MEMBERS, some(0, 1, 2), addressees=[1, 2])
    assert (verdict, whole.whole, whole.awaited) == (COMPLETE, True, some())
    lost, verdict = roll.after_answers(Audience.MEMBERS, some(0, 1), addressees=[1, 2])
    assert (verdict, lost.loss, lost.awaited) == (LOST, True, some())
    assert not lost.before_opening().loss


@every("how", ["by sums", "banned", "nobody twice"])
def test_members_that_cannot_be_asked_again_are_lost(how):
    roll = opened_roll(summed=how == "by sums")
    came = some(0, 1)
    if how == "banned":
        roll = roll.with_banned(some(2), "wrong")
    if how == "nobody twice":
        roll, verdict = roll.after_answers(Audience.MEMBERS, some(), addressees=[0, 1, 2])
        assert verdict is AGAIN
        came = some()
    assert roll.after_answers(Audience.MEMBERS, came, addressees=[0, 1, 2])[1] is LOST


@pytest.mark.parametrize("call", OTHERS)
def test_one_answer_completes_a_message_for_anyone(call):
    roll, verdict = opened_roll().after_answers(call, some(1, 5), addressees=[0, 1, 2, 5])
    assert (verdict, roll.whole, roll.members) == (COMPLETE, False, some(0, 1, 2))
    assert roll.after_answers(call, some(0, 1, 2), addressees=[0, 1, 2])[0].whole


@every("call", [*OPENINGS, *OTHERS])
def test_the_third_silence_in_a_row_is_an_error_with_the_first_failure(call):
    roll = Roll(addressees=some(0, 1)).with_banned([], "client 0: no answer.").with_banned([], "another")
    for _ in range(2):
        roll, verdict = roll.after_answers(call, some(), addressees=[0, 1])
        assert verdict is AGAIN
    heard = roll.after_complete_round(call, some(0))
    assert heard.after_answers(call, some(), addressees=[0, 1])[1] is AGAIN
    with pytest.raises(NotEnoughNodes, match=r"none in 3 successive rounds, the first because: client 0: no"):
        roll.after_answers(call, some(), addressees=[0, 1])


CHANGES = {  # who is present, whether the last round was complete, whether missing clients counted: has the set changed
    "the same": ((0, 1, 2), True, False, False),
    "a member is away, after its answer": ((0, 1), True, False, False),
    "a newcomer": ((0, 1, 2, 5), True, False, True),
    "an unfit or a banned one": ((0, 1, 2, 3), True, False, False),
    "a member has missed the round": ((0, 1, 2), False, False, True),
    "it has missed the round, but counted": ((0, 1, 2), False, True, False),
    "it is gone, and had counted": ((0, 1), False, True, True),
}


@every("case", CHANGES)
def test_when_the_newest_round_was_of_another_set(case):
    here, whole, counted, changed = CHANGES[case]
    came = some(0, 1, 2) if whole else some(0, 1)
    roll, _ = opened_roll().after_answers(Audience.ANYONE, came, addressees=[0, 1, 2])
    assert roll.has_changed(here, counted=counted) is changed


def test_where_rounds_are_sampled_a_member_may_miss_one():
    roll, _ = opened_roll(fraction=0.5).after_answers(Audience.SAMPLE, some(1), addressees=[1])
    assert not roll.has_changed((0, 1, 2), counted=False)
    assert roll.has_changed((0, 1), counted=False)


@every("summed", [False, True])
def test_a_figure_of_the_members_asks_once_more_unless_answers_are_sums_and_then_does_without(summed):
    roll, verdict = opened_roll(summed=summed).after_answers(Audience.COUNTED, some(0, 1), addressees=[0, 1, 2])
    if not summed:
        assert verdict is AGAIN
        assert roll.awaited == some(2)
        assert roll.after_answers(Audience.COUNTED, some(0, 1, 2), addressees=[2])[0].whole
        roll, verdict = roll.after_answers(Audience.COUNTED, some(0, 1), addressees=[2])
    assert verdict is COMPLETE
    assert not roll.whole
    assert roll.members == some(0, 1, 2)


@pytest.mark.parametrize("call", [*OPENINGS, Audience.MEMBERS, Audience.ANYONE])
def test_clients_that_were_not_asked_are_waited_for_as_long_as_some_of_them_are_asked(call):
    roll = Roll(addressees=some(0, 1, 2, 3)) if call in OPENINGS else opened_roll()
    everybody = frozenset(range(4)) if call in OPENINGS else roll.members
    came = some(0)
    roll, verdict = roll.after_answers(call, came, addressees=everybody, unasked=everybody - came)
    assert (verdict, roll.awaited) == (AGAIN, everybody - came)
    for _ in range(2):  # No client is asked.
        roll, verdict = roll.after_answers(call, came, addressees=roll.awaited, unasked=roll.awaited)
        assert (verdict, roll.awaited, roll.banned & everybody) == (AGAIN, everybody - came, some())
    later, verdict = roll.after_answers(call, came | some(1), addressees=roll.awaited, unasked=everybody - some(0, 1))
    assert (verdict, later.awaited, later.silent) == (AGAIN, everybody - some(0, 1), 0)
    whole, verdict = later.after_answers(call, everybody, addressees=later.awaited)
    assert (verdict, whole.awaited, whole.silent) == (COMPLETE, some(), 0)
    assert whole.members == everybody
    without, verdict = roll.after_answers(call, came, addressees=roll.awaited, unasked=roll.awaited)
    assert verdict is (LOST if call is Audience.MEMBERS else COMPLETE)
    assert without.unfit == (everybody - came if call in OPENINGS else roll.unfit)


def test_a_caller_that_leaves_members_out_samples_once_each_has_answered():
    roll = opened_roll()
    for i in range(4):
        roll, verdict = roll.after_answers(
            Audience.ANYONE, some(0, 1), addressees=[0, 1, 2], unasked=some(2), sampling=True
        )
        assert (verdict, roll.takes_turns, roll.has_settled) == (COMPLETE, False, i == 3)
    assert roll.has_changed((0, 1, 2), counted=False)
    roll, _ = roll.after_answers(Audience.ANYONE, some(1, 2), addressees=[0, 1, 2], unasked=some(0), sampling=True)
    assert roll.takes_turns
    assert not roll.has_changed((0, 1, 2), counted=False)
    assert roll.has_changed((0, 1), counted=False)  # A member has left.
    failed, _ = roll.after_answers(Audience.ANYONE, some(1), addressees=[0, 1, 2], unasked=some(0), sampling=True)
    assert failed.has_changed((0, 1, 2), counted=False)  # Client 2 was asked, and has not answered.
    again, _ = roll.before_opening().after_answers(Audience.OPENING, some(0, 1, 2), addressees=[0, 1, 2])
    assert (again.takes_turns, again.heard) == (False, some())
    none, verdict = roll.after_answers(
        Audience.ANYONE, some(), addressees=[0, 1, 2], unasked=some(0, 1, 2), sampling=True
    )
    assert (verdict, none.silent) == (AGAIN, 1)
    fewer, verdict = opened_roll(min_nodes=2).after_answers(
        Audience.ANYONE, some(1), addressees=[0, 1, 2], unasked=some(0, 2), sampling=True
    )
    # It is enough that the clients that were asked have answered.
    assert (verdict, fewer.members) == (COMPLETE, some(0, 1, 2))


def test_without_an_opening_everybody_is_asked_every_time_and_every_round_is_whole():
    roll = Roll(opens=False).with_banned(some(2), "wrong")
    assert roll.addressees_of(Audience.ANYONE, roll.present_clients(range(4)), number=0) == (0, 1, 3)
    roll, verdict = roll.after_answers(Audience.ANYONE, some(3), addressees=[0, 1, 3])
    assert (verdict, roll.whole, roll.members, roll.unfit) == (COMPLETE, True, some(), some())


EVENTS = st.lists(
    st.tuples(st.sampled_from(Audience), st.frozensets(st.integers(0, 5)), st.frozensets(st.integers(0, 5)))
)


@pytest.mark.slow
@given(EVENTS, st.booleans())
def test_whatever_happens_the_states_stay_apart_and_a_kept_roll_is_the_same(events, summed):
    roll = Roll(summed=summed)
    for call, answers, banned in events:
        asked = roll.addressees_of(call, tuple(c for c in range(6) if c not in roll.banned), number=0)
        if not asked:
            roll = roll.before_opening()
            continue
        came = (answers & frozenset(asked)) - banned
        try:
            roll, verdict = roll.with_banned(banned & frozenset(asked), "why").after_answers(
                call, came | roll.came, addressees=asked
            )
        except NotEnoughNodes:
            return
        assert roll.loss is (verdict is LOST)
        assert bool(roll.awaited) <= (verdict is AGAIN)
        assert not roll.awaited & roll.came
        assert not roll.members & roll.unfit
        if verdict is COMPLETE and call in OPENINGS:
            assert not roll.members & roll.banned
        roll = roll.before_opening() if roll.loss else roll
        kept = json.loads(json.dumps(roll.to_json()))
        again = Roll(summed=summed).restore(kept)
        assert again.to_json() == roll.to_json()
        assert (again.came, again.awaited) == (some(), some())  # An incomplete answer is requested again as a whole.


def test_after_a_message_that_no_member_answered_a_later_miss_is_asked_for_once_more():
    roll, verdict = opened_roll().after_answers(Audience.MEMBERS, some(), addressees=range(3))
    assert verdict is AGAIN
    roll, verdict = roll.after_answers(Audience.MEMBERS, some(0, 1, 2), addressees=range(3))
    assert (verdict, roll.awaited) == (COMPLETE, some())
    roll, verdict = roll.after_answers(Audience.MEMBERS, some(0, 1), addressees=range(3))
    assert (verdict, roll.awaited) == (AGAIN, some(2))
