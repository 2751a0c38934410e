"""How long decisions wait for history to be folded."""

from typing import cast

from levelog_log.reader import Reader
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
