"""How the loop of a processor rests, waits for history, takes levels in portions, and says how it is."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_base.errors import HistoryLost, LevelogError, Unavailable
from levelog_base.wire.objects import GroupResource, Partition, Sequence, Version
from levelog_base.wire.records import BookmarkNoted, LoggedRecord
from levelog_log.reader import Reader
from levelog_processors import waiting
from levelog_processors.decide.tally import BATCH, EvaluationBatch
from levelog_processors.fold.batches import Folded
from levelog_processors.health import STALLED_SECONDS, CatchingUp, LoopHealth, WorkProgress
from levelog_processors.waiting import (
    LEAST,
    LONG_SECONDS,
    LOOK_PATIENCE,
    MOST_HELD_UP,
    MOST_REST,
    SEVERAL,
    SPRINT,
    HighWatermark,
    Pace,
    Portion,
)
from rigs.clocks import Clock
from rigs.webs import NOON


def _passes(lengths: list[float], idle: float) -> list[float]:
    """Time at which each of some passes begins, that each rest and then are idle for as long."""
    clock, begins = Clock(), list[float]()
    pace = Pace(clock)
    for seconds in lengths:
        pace.begin()
        begins.append(clock.now)
        clock.now += seconds
        pace.end()
        clock.now += max(pace.left, 0.0) + idle
    return begins


def test_passes_without_a_break_take_a_third_of_the_time() -> None:
    begins = _passes([0.01] * 300, idle=0.0)
    assert begins[-1] == pytest.approx(300 * 0.03 - SPRINT.total_seconds(), abs=0.05)


def test_lone_passes_never_wait() -> None:
    assert _passes([0.008] * 100, idle=0.042)[-1] == pytest.approx(99 * 0.05)


def test_the_first_passes_after_a_quiet_while_do_not_wait() -> None:
    lengths = [0.01] * 9
    assert _passes(lengths, idle=0.0)[-1] == pytest.approx(sum(lengths[:-1]))


@given(st.lists(st.floats(0.0, 30.0), max_size=50), st.floats(0.0, 1.0))
def test_a_rest_is_short_however_long_the_passes_were(lengths: list[float], idle: float) -> None:
    begins = _passes([*lengths, 0.0], idle)
    rests = [after - before - took - idle for before, after, took in zip(begins, begins[1:], lengths, strict=False)]
    assert all(rest <= MOST_REST.total_seconds() + 1e-6 for rest in rests)


LEVEL: Any = object()


class Timed:
    """A portion, and a clock that goes on by what levels take."""

    def __init__(self) -> None:
        self._now = 0.0
        self._portion = Portion(lambda: self._now)

    def decided(self, of_one: float, batches: int, *, due: int = BATCH) -> list[int]:
        """How many levels are decided on in each of so many batches, if one takes so many seconds."""
        found: list[int] = []
        for _ in range(batches):
            most = self._portion.begin()
            found.append(min(most, due))
            self._now += found[-1] * of_one
            self._portion.end(EvaluationBatch([LEVEL] * found[-1], NOON))
        return found


def test_levels_that_take_no_time_are_decided_in_batches_that_grow_to_the_largest() -> None:
    assert Timed().decided(0, 5) == [LEAST, 2 * LEAST, 4 * LEAST, BATCH, BATCH]


def test_levels_that_take_long_are_decided_few_at_a_time() -> None:
    assert set(Timed().decided(LONG_SECONDS, 5)) == {LEAST}


def test_a_batch_that_took_too_long_is_followed_by_half_of_it() -> None:
    timed = Timed()
    timed.decided(0, 5)
    assert timed.decided(LONG_SECONDS / 100, 4) == [BATCH, BATCH // 2, BATCH // 4, BATCH // 4]


def test_batches_that_are_not_full_say_nothing_about_larger_ones() -> None:
    timed = Timed()
    timed.decided(0, 5, due=LEAST - 1)
    assert timed.decided(0, 1) == [LEAST]


def record(age: timedelta) -> LoggedRecord:
    bookmark = BookmarkNoted(resource=GroupResource("", "pods"), version=Version(1), time=NOON - age)
    return LoggedRecord(sequence=Sequence(1), partition=Partition(0), record_id="one", record=bookmark)


def test_a_turn_that_takes_long_is_told_and_a_rest_never() -> None:
    now = 0.0
    health = LoopHealth(lambda: now)
    assert health.trouble() == "folds what it has not read of the log yet"
    health.is_behind = False
    health.turn([])
    now = STALLED_SECONDS
    assert health.trouble() == ""
    now += 1
    assert health.trouble() == f"its loop has been at one turn for {STALLED_SECONDS + 1:.0f} s"
    health.rest()
    assert health.trouble() == ""


def test_the_log_lags_by_the_age_of_the_oldest_record_until_its_turn_ends() -> None:
    health = LoopHealth()
    assert health.lag_seconds(NOON) == 0
    health.turn([record(timedelta(seconds=90)), record(timedelta(seconds=30))])
    assert health.lag_seconds(NOON) == 90
    health.note(health.clock(), folded=Folded(2, {}, has_finished_sync=False, has_list=False, keys=set()))
    assert health.lag_seconds(NOON) == 90  # what it leads to is still to be decided on
    health.rest()
    assert health.lag_seconds(NOON) == 0


def test_the_log_lags_as_long_as_partitions_are_taken_up() -> None:
    now = 5.0
    health = LoopHealth(lambda: now)
    health.take_up()
    now += 30
    assert health.lag_seconds(NOON) == 30
    assert health.trouble() == "folds what it has not read of the log yet"


def test_it_counts_from_where_it_began_until_it_has_caught_up() -> None:
    catching_up = CatchingUp(Clock())
    assert catching_up.progress is None
    catching_up.go_on(200, 500, 1200)
    catching_up.go_on(500, 700, 1200)
    assert catching_up.progress == WorkProgress(what="the log", done=500, total=1000, unit="records")
    catching_up.reach()
    assert catching_up.progress is None
    catching_up.go_on(1200, 1300, 1400)
    assert catching_up.progress == WorkProgress(what="the log", done=100, total=200, unit="records")
    catching_up.reach()
    catching_up.go_on(1400, 1400, 1400)  # its end is asked for again
    assert catching_up.progress is None


def test_the_log_of_the_process_tells_of_it_once_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    catching_up = CatchingUp(clock)
    with caplog.at_level("INFO"):
        for seconds in range(25):
            clock.now = float(seconds)
            catching_up.go_on(0, seconds * 100, 10_000)
    assert [record.getMessage() for record in caplog.records] == [
        "folds the log before it decides: 1000 of 10000 records",
        "folds the log before it decides: 2000 of 10000 records",
    ]


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
