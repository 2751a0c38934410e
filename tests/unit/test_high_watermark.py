"""How long decisions wait for history to be folded."""

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from levelog_base.errors import HistoryLost, LevelogError, Unavailable
from levelog_log.reader import Reader
from levelog_processors import waiting
from levelog_processors.waiting import LOOK_PATIENCE, MOST_HELD_UP, SEVERAL, HighWatermark

MOST_SECONDS = MOST_HELD_UP.total_seconds()


class GrowingLog:
    """A log that grows faster than it is read."""

    beginnings = 0
    position = 0

    @property
    def seen_to(self) -> int:
        return self.position

    async def find_end(self) -> int:
        return self.position + 1000

    async def confirm(self) -> int:
        return self.position

    def on_arrival(self) -> None:
        pass


async def test_a_log_that_grows_faster_than_it_is_folded_holds_decisions_up_for_a_minute() -> None:
    log, now = GrowingLog(), 0.0
    high_watermark = HighWatermark(cast("Reader", log), lambda: now)

    async def decides(folded: int) -> bool:
        await high_watermark.look(folded)
        log.position += folded
        return await high_watermark.is_reached(has_records=True)

    assert not await decides(SEVERAL)
    now += 10 * MOST_SECONDS
    assert not await decides(SEVERAL), "at the beginning there is no bound"
    log.position = 5000
    assert await high_watermark.is_reached(has_records=True)
    for what, folded in (("far behind", SEVERAL), ("begun anew", 1)):
        log.beginnings += what == "begun anew"
        assert not await decides(folded), what
        now += MOST_SECONDS - 1
        log.beginnings += 1
        assert not await decides(1), f"{what}, and anew meanwhile"
        now += 1
        assert await high_watermark.is_reached(has_records=True), what
        assert await decides(SEVERAL - 1), what


class SilentLog(GrowingLog):
    """A log whose servers answer nothing while they elect a leader."""

    def __init__(self) -> None:
        self.has_leader = asyncio.Event()
        self.has_leader.set()
        self.has_answered = asyncio.Event()
        self.failures: list[LevelogError] = []
        self.handed_out, self.questions = 5, 0
        """How far `confirm` brings it, which is where it ends unless a test says otherwise; how often it was asked."""

    async def find_end(self) -> int:
        await self.has_leader.wait()
        return 5

    async def confirm(self) -> int:
        self.questions += 1
        await self.has_leader.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.position = self.handed_out
        return self.position

    def on_arrival(self) -> None:
        self.has_answered.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks again does so at once."""
    monkeypatch.setattr(waiting, "ASK_PAUSE", timedelta(0))


async def test_decisions_wait_a_second_for_an_election_of_the_log_and_folding_not_at_all() -> None:
    log, now = SilentLog(), 0.0
    async with HighWatermark(cast("Reader", log), lambda: now) as high_watermark:
        await high_watermark.look(0)
        assert await high_watermark.is_reached(has_records=False)
        log.has_leader.clear()
        await high_watermark.look(SEVERAL)
        assert not await high_watermark.is_reached(has_records=True)
        assert high_watermark.wait == LOOK_PATIENCE
        now += LOOK_PATIENCE.total_seconds()
        assert await high_watermark.is_reached(has_records=True)


@pytest.mark.parametrize("is_first", [True, False])
async def test_who_begins_or_begins_anew_during_an_election_folds_on_and_decides_once_it_is_over(
    is_first: bool,
) -> None:
    log, now = SilentLog(), 0.0
    async with HighWatermark(cast("Reader", log), lambda: now) as high_watermark:
        if not is_first:
            await high_watermark.look(0)
            assert await high_watermark.is_reached(has_records=False)
            log.beginnings += 1
        log.has_leader.clear()
        await high_watermark.look(0)
        now += 10 * MOST_SECONDS
        assert not await high_watermark.is_reached(has_records=False)
        log.has_leader.set()
        await log.has_answered.wait()
        assert await high_watermark.is_reached(has_records=False)


@pytest.mark.parametrize("failures", [[], [Unavailable("no leader"), Unavailable("no leader")]])
async def test_what_is_left_to_read_is_asked_beside_the_loop_until_there_is_an_answer(
    failures: list[LevelogError],
) -> None:
    log = SilentLog()
    async with HighWatermark(cast("Reader", log), lambda: 0.0) as high_watermark:
        await high_watermark.look(0)
        log.has_leader.clear()
        log.failures = failures
        assert not await high_watermark.is_reached(has_records=False)
        assert not await high_watermark.is_reached(has_records=False)
        assert log.questions == 1, "asked already"
        log.has_leader.set()
        await log.has_answered.wait()
        assert await high_watermark.is_reached(has_records=False)
        assert not log.failures


async def test_a_log_that_lost_history_is_told_by_who_asks_it() -> None:
    log = SilentLog()
    log.failures = [HistoryLost("rolled back")]
    async with HighWatermark(cast("Reader", log), lambda: 0.0) as high_watermark:
        await high_watermark.look(0)
        with pytest.raises(HistoryLost, match="rolled back"):
            await high_watermark.is_reached(has_records=False)
