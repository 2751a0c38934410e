from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from levelog_base.wire.records import ControlRecord, ObjectDeleted, ObjectSeen, Written
from levelog_history.revisions import Revision, Revisions
from levelog_history.writers import Contested, Contests, ManagerWrites, Period, Writers
from rigs.webs import NOON, deleted, logged, web


def by(manager: str, seen: ObjectSeen, seconds: float = 0, *, origin: str = "watch") -> ObjectSeen:
    return replace(seen, written=Written(manager=manager), time=NOON + timedelta(seconds=seconds), origin=origin)


def counted(records: Sequence[ObjectSeen | ObjectDeleted | ControlRecord]) -> list[ManagerWrites]:
    revisions = Revisions(lambda _: True)
    counting = Writers()
    for each in logged(records):
        for entry in revisions.take(each):
            if isinstance(entry, Revision):
                counting.take(entry)
    return counting.found()


def contested(*replicas: tuple[str, int], name: str = "a") -> list[tuple[str, str, int]]:
    """Who undoes whom, of writers one after the other; the first one creates the object."""
    found = contests_in([by(who, web(name, 1 + n, replicas=size)) for n, (who, size) in enumerate(replicas)])
    assert {(each.resource, each.field, each.objects) for each in found} <= {("webs.example.com", "spec.replicas", 1)}
    return [(each.manager, each.undoes, each.times) for each in found]


def contests_in(records: Sequence[ObjectSeen | ObjectDeleted]) -> list[Contested]:
    revisions, contests = Revisions(lambda _: True), Contests()
    for each in logged(records):
        for entry in revisions.take(each):
            if isinstance(entry, Revision):
                contests.take(entry)
    return contests.found()


def test_who_sets_a_field_back_again_and_again_undoes_the_other() -> None:
    fight = [("levelog-webs", 3), ("boss", 5)] * 4
    assert contested(*fight) == [("boss", "levelog-webs", 3), ("levelog-webs", "boss", 3)]
    assert contested(*fight[:3]) == [], "one correction is none"
    assert contested(("levelog-webs", 3), ("hpa", 4), ("hpa", 5), ("levelog-webs", 6), ("hpa", 7)) == []
    assert contested(("me", 3), ("me", 4), ("me", 3), ("me", 4)) == []


def test_who_writes_without_a_change_does_not_take_the_place_of_the_creator() -> None:
    assert contested(("maker", 3), ("idle", 3), ("boss", 5), ("maker", 3), ("boss", 5)) == [
        ("boss", "maker", 1),
        ("maker", "boss", 1),
    ]


def test_another_incarnation_has_other_writers() -> None:
    gone = deleted(web("a", 2), 3)
    first = [by("maker", web("a", 1, replicas=3)), by("boss", web("a", 2, replicas=5))]
    sizes = [("other", 3), ("boss", 5), ("maker", 3), ("boss", 5)]
    then = [by(who, web("a", 4 + n, uid="again", replicas=size)) for n, (who, size) in enumerate(sizes)]
    assert contests_in([*first, gone, *then]) == []


def test_writes_are_counted_by_manager_and_those_that_changed_nothing_beside() -> None:
    found = counted(
        [
            by("kubectl", web("a", 1)),
            by("kubectl", web("b", 2)),
            by("busy", web("a", 3)),
            by("busy", web("a", 4, replicas=2)),
            deleted(web("a", 4), 5),
        ]
    )
    assert [(each.manager, each.objects, each.writes, each.idle) for each in found] == [
        *(("busy", 1, 2, 1), ("kubectl", 2, 2, 0))
    ]
    assert found[0].fields == {"spec.replicas": 1}
    assert found[0].resource == "webs.example.com"


def test_what_a_list_found_was_written_at_another_time() -> None:
    assert counted([by("kubectl", web("a", 1), origin="list")]) == []


def test_fields_are_told_without_the_items_in_them() -> None:
    [found] = counted(
        [
            by("x", web("a", 1, annotations={"one": "1", "two.io/x": "1"})),
            by("x", web("a", 2, annotations={"one": "2", "two.io/x": "2"})),
        ]
    )
    assert found.fields == {"metadata.annotations": 1}


def test_writes_that_come_every_15_seconds_have_a_period() -> None:
    beats = [by("timer", web("a", 1 + n), 15 * n + 0.1 * (n % 3)) for n in range(8)]
    [timer] = counted(beats)
    assert timer.period is not None
    assert 14.8 <= timer.period.seconds <= 15.2
    assert timer.period.spread_seconds <= 0.2
    assert timer.idle == 7


def test_the_period_is_that_of_one_object_however_many_there_are() -> None:
    beats = [by("timer", web(name, 10 * n + m), 30 * n + 7 * m) for n in range(1, 8) for m, name in enumerate("abc")]
    [timer] = counted(beats)
    assert timer.period == Period(30.0, 0.0)


def test_few_or_irregular_writes_have_no_period() -> None:
    assert [each.period for each in counted([by("x", web("a", n), 15 * n) for n in range(1, 5)])] == [None]
    times = (0, 1, 50, 53, 200, 201, 320, 900)
    assert [each.period for each in counted([by("x", web("a", n + 1), at) for n, at in enumerate(times)])] == [None]


def test_a_burst_has_no_period() -> None:
    [burst] = counted([by("loop", web("a", 1 + n), 0.0003 * n) for n in range(8)])
    assert (burst.writes, burst.period) == (8, None)


def test_whoever_asked_for_a_deletion_is_not_said_to_have_written() -> None:
    doomed = by("kubectl", web("a", 2, deletionTimestamp="2026-01-01T12:00:00Z"))
    assert [each.writes for each in counted([by("kubectl", web("a", 1)), doomed])] == [1]
