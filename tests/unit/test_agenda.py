"""What a processor does next: wakeups now, those of echoes when the receipt is there or after a moment."""

from datetime import timedelta

from levelog_processors.waiting import ECHO_WAIT, Agenda
from levelog_store.fold.changes import Wake
from rigs.waiting import until

SHOP, HALL = ("webs/pods", "webs.example.com/default/shop"), ("webs/pods", "webs.example.com/default/hall")
ECHO, CHANGE = Wake(0, (1,), is_echo=True), Wake(0, (2,))


def looked_at() -> Agenda:
    agenda = Agenda()
    agenda.close()
    agenda.swept()
    return agenda


async def test_a_change_is_looked_at_now() -> None:
    agenda = looked_at()
    assert not agenda.is_open
    agenda.take({SHOP: CHANGE})
    assert agenda.is_open
    assert not agenda.put_off


async def test_an_echo_is_put_off_for_a_moment() -> None:
    agenda = looked_at()
    agenda.take({SHOP: ECHO})
    assert not agenda.is_open
    assert set(agenda.put_off) == {SHOP}
    assert timedelta(0) < agenda.wait <= ECHO_WAIT
    agenda.take({SHOP: ECHO})

    async def is_open() -> bool:
        return agenda.is_open

    await until(is_open, "the moment to be over")
    agenda.close()
    assert not agenda.put_off


async def test_what_else_happens_to_the_level_ends_that_and_what_happens_to_others_does_not() -> None:
    agenda = looked_at()
    agenda.take({SHOP: ECHO, HALL: CHANGE})
    assert agenda.is_open
    agenda.close()
    assert set(agenda.put_off) == {SHOP}
    agenda.take({SHOP: CHANGE})
    assert agenda.is_open
    assert not agenda.put_off
