"""How long decisions wait for history to be folded."""

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from levelog_log.reader import Reader
from levelog_processors import waiting
from levelog_processors.waiting import MOST_HELD_UP, SEVERAL, Horizon

MOST_SECONDS = MOST_HELD_UP.total_seconds()


class GrowingLog:
    """A log that grows faster than it is read."""

    beginnings = 0
    position = 0

    @property
    def seen_to(self) -> int:
        return self.position

    async def end(self) -> int:
        return self.position + 1000

    async def confirm(self) -> int:
        return self.position


async def test_a_log_that_grows_faster_than_it_is_folded_holds_decisions_up_for_a_minute() -> None:
    log, now = GrowingLog(), 0.0
    horizon = Horizon(cast("Reader", log), lambda: now)

    async def decides(folded: int) -> bool:
        await horizon.look(folded)
        log.position += folded
        return await horizon.is_reached(has_records=True)

    assert not await decides(SEVERAL)
    now += 10 * MOST_SECONDS
    assert not await decides(SEVERAL), "at the beginning there is no bound"
    log.position = 5000
    assert await horizon.is_reached(has_records=True)
    for what in ("far behind", "begun anew"):
        log.beginnings += what == "begun anew"
        assert not await decides(SEVERAL), what
        now += MOST_SECONDS - 1
        assert not await decides(SEVERAL), what
        now += 1
        assert await horizon.is_reached(has_records=True), what
        assert await decides(0), what


class SilentLog(GrowingLog):
    """A log whose servers answer nothing once they have begun to elect a leader."""

    is_electing = False

    async def end(self) -> int:
        if self.is_electing:
            await asyncio.get_running_loop().create_future()
        return self.position


async def test_decisions_do_not_wait_for_an_election_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_PATIENCE", timedelta(milliseconds=10))
    log = SilentLog()
    horizon = Horizon(cast("Reader", log), lambda: 0.0)
    await horizon.look(0)
    assert await horizon.is_reached(has_records=False)
    log.is_electing = True
    async with asyncio.timeout(10):
        await horizon.look(SEVERAL)
    assert await horizon.is_reached(has_records=True)
