"""What the loop of a processor tells of itself, by a clock of the test's own."""

from datetime import UTC, datetime, timedelta

from levelog.wire.objects import GroupResource, Partition, Sequence, Version
from levelog.wire.records import BookmarkNoted, LoggedRecord
from levelog_processors.fold.batches import Folded
from levelog_processors.pulse import STALLED_SECONDS, Pulse

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def record(age: timedelta) -> LoggedRecord:
    bookmark = BookmarkNoted(resource=GroupResource("", "pods"), version=Version(1), time=NOON - age)
    return LoggedRecord(sequence=Sequence(1), partition=Partition(0), record_id="one", record=bookmark)


def test_a_turn_that_takes_long_is_told_and_a_rest_never() -> None:
    now = 0.0
    pulse = Pulse(lambda: now)
    assert pulse.trouble() == "folds what it has not read of the log yet"
    pulse.is_behind = False
    pulse.turn([])
    now = STALLED_SECONDS
    assert pulse.trouble() == ""
    now += 1
    assert pulse.trouble() == f"its loop has been at one turn for {STALLED_SECONDS + 1:.0f} s"
    pulse.rest()
    assert pulse.trouble() == ""


def test_the_log_lags_by_the_age_of_the_oldest_record_until_its_turn_ends() -> None:
    pulse = Pulse()
    assert pulse.lag_seconds(NOON) == 0
    pulse.turn([record(timedelta(seconds=90)), record(timedelta(seconds=30))])
    assert pulse.lag_seconds(NOON) == 90
    pulse.note(pulse.clock(), folded=Folded(2, {}, has_finished_sync=False, has_list=False, keys=set()))
    assert pulse.lag_seconds(NOON) == 90  # what it leads to is still to be decided on
    pulse.rest()
    assert pulse.lag_seconds(NOON) == 0


def test_the_log_lags_as_long_as_partitions_are_taken_up() -> None:
    now = 5.0
    pulse = Pulse(lambda: now)
    pulse.take_up()
    now += 30
    assert pulse.lag_seconds(NOON) == 30
    assert pulse.trouble() == "folds what it has not read of the log yet"
