"""What a processor does next: wakeups now, those that only echo or end a write with others, or after a while."""

from datetime import UTC, datetime, timedelta

import pytest

from levelog_processors.decide.tally import EvaluationBatch
from levelog_processors.waiting import ECHO_WAIT, MOMENT, REST, Schedule
from levelog_store.fold.changes import Wake
from rigs.waiting import until

SHOP, HALL = ("webs/pods", "webs.example.com/default/shop"), ("webs/pods", "webs.example.com/default/hall")
ECHO, CHANGE, END = Wake(0, (1,), is_echo=True, is_end=True), Wake(0, (2,)), Wake(0, (1, 3), is_end=True)


def looked_at(*, is_alone: bool = True) -> Schedule:
    schedule = Schedule(is_alone=is_alone)
    schedule.close()
    schedule.resynced()
    return schedule


async def test_a_change_is_looked_at_now() -> None:
    schedule = looked_at()
    assert not schedule.is_open
    schedule.take({SHOP: CHANGE})
    assert schedule.is_open
    assert not schedule.put_off


async def test_an_echo_is_put_off_for_a_moment() -> None:
    schedule = looked_at()
    schedule.take({SHOP: ECHO})
    assert not schedule.is_open
    assert set(schedule.put_off) == {SHOP}
    assert timedelta(0) < schedule.wait <= ECHO_WAIT
    schedule.take({SHOP: ECHO})

    async def is_open() -> bool:
        return schedule.is_open

    await until(is_open, "the moment to be over")
    schedule.close()
    assert not schedule.put_off


async def test_what_else_happens_to_the_level_ends_that_and_what_happens_to_others_does_not() -> None:
    schedule = looked_at()
    schedule.take({SHOP: ECHO, HALL: CHANGE})
    assert schedule.is_open
    schedule.close()
    assert set(schedule.put_off) == {SHOP}
    schedule.take({SHOP: CHANGE})
    assert schedule.is_open
    assert not schedule.put_off


@pytest.mark.parametrize(("is_alone", "rest"), [(True, REST), (False, MOMENT)])
async def test_the_end_of_a_write_waits_a_while_unless_others_may_wait_for_it(is_alone: bool, rest: timedelta) -> None:
    schedule = looked_at(is_alone=is_alone)
    schedule.take({SHOP: ECHO})
    schedule.take({SHOP: END})
    assert schedule.is_resting
    assert timedelta(0) < schedule.wait <= rest

    async def is_open() -> bool:
        return schedule.is_open

    await until(is_open, "the while to be over")
    assert not schedule.is_resting
    schedule.close()
    assert not schedule.is_open


async def test_the_end_of_a_write_is_joined_by_what_comes_next() -> None:
    schedule = looked_at()
    schedule.take({SHOP: END})
    schedule.take({HALL: CHANGE})
    assert schedule.is_open
    assert not schedule.is_resting
    assert not schedule.put_off
    schedule.close()
    assert not schedule.is_resting


def test_a_full_batch_that_decided_on_nothing_yet_is_followed_by_another() -> None:
    assert EvaluationBatch(True, [], at=datetime.now(UTC)).has_more, "slow functions of its levels still run"


async def test_ends_of_writes_wait_but_a_moment_while_more_follows_from_them() -> None:
    schedule, now = looked_at(), datetime.now(UTC)
    schedule.note(EvaluationBatch(False, [], at=now))
    assert schedule.rest == REST
    schedule.note(EvaluationBatch(False, [], at=now, has_news=True))
    assert schedule.rest == MOMENT
