"""What the loop of a processor tells of itself, by a clock of the test's own."""

from datetime import UTC, datetime, timedelta

from levelog_base.wire.objects import GroupResource, Partition, Sequence, Version
from levelog_base.wire.records import BookmarkNoted, LoggedRecord
from levelog_processors.fold.batches import Folded
from levelog_processors.health import STALLED_SECONDS, LoopHealth

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


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
