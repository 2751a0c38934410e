"""What a processor does next: wakeups now, those of echoes when the receipt is there or after a moment."""

from datetime import timedelta

from levelog_processors.waiting import ECHO_WAIT, Schedule
from levelog_store.fold.changes import Wake
from rigs.waiting import until

SHOP, HALL = ("webs/pods", "webs.example.com/default/shop"), ("webs/pods", "webs.example.com/default/hall")
ECHO, CHANGE = Wake(0, (1,), is_echo=True), Wake(0, (2,))


def looked_at() -> Schedule:
    schedule = Schedule()
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
