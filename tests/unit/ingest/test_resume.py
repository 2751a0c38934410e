from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import Partition, Sequence, Version
from levelog_base.wire.records import (
    BookmarkNoted,
    GapNoted,
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    Origin,
    Record,
    SyncFinished,
    SyncStarted,
)
from levelog_ingest.resume import Decision, ListFirst, ResumeAt, decide
from levelog_ingest.sources.known import KnownRecords
from rigs.webs import NOON, WEBS, web


def at(sequence: int, record: Record) -> LoggedRecord:
    return LoggedRecord(sequence=Sequence(sequence), partition=Partition(0), record_id=str(sequence), record=record)


def finished(version: int, *namespaces: str) -> SyncFinished:
    return SyncFinished(resource=WEBS, sync_id="a", namespaces=namespaces, version=Version(version), time=NOON)


def seen(version: int, origin: Origin = "watch") -> ObjectSeen:
    found = web("w", version)
    return ObjectSeen(key=found.key, uid=found.uid, version=Version(version), origin=origin, time=NOON, body=found.body)


def deleted(version: int) -> ObjectDeleted:
    last = seen(version)
    return ObjectDeleted(
        key=last.key, uid=last.uid, version=last.version, origin="watch", time=last.time, body=last.body
    )


def bookmark(version: int) -> BookmarkNoted:
    return BookmarkNoted(resource=WEBS, version=Version(version), time=NOON)


def decided(namespace: str = "", **records: Any) -> Decision:
    namespaces = (namespace,) if namespace else ()
    given: dict[str, Any] = {"sync": None, "gap": None, "bookmark": None, **records}
    given["seen"] = {namespace: records.get("seen")}
    return decide(namespaces, **given)


def of(api_version: str, record: Record) -> Record:
    """The record as one in a version of the API."""
    if isinstance(record, ObjectSeen):
        return replace(
            record, body=msgspec.json.encode({"apiVersion": api_version, **msgspec.json.decode(record.body)})
        )
    assert isinstance(record, SyncFinished | BookmarkNoted)
    return replace(record, api_version=api_version)


def resumed(**records: Any) -> int:
    decision = decided(**records)
    assert isinstance(decision, ResumeAt), decision
    return decision.versions[""]


def reason(namespace: str = "", **records: Any) -> str:
    decision = decided(namespace, **records)
    assert isinstance(decision, ListFirst), decision
    return decision.reason


def test_an_empty_log_begins_with_a_list() -> None:
    assert reason() == "nothing is recorded yet"


def test_an_unfinished_list_is_listed_again() -> None:
    started = SyncStarted(resource=WEBS, sync_id="b", time=NOON)
    assert reason(sync=at(9, started), seen=at(12, seen(70))) == "the last list was not finished"


def test_a_gap_after_the_list_is_listed_again_and_one_before_it_is_closed() -> None:
    gap = GapNoted(resource=WEBS, reason="410", since=Version(3), time=NOON)
    assert reason(sync=at(9, finished(50)), gap=at(10, gap)) == "there was a gap after the last list"
    assert resumed(sync=at(9, finished(50)), gap=at(8, gap)) == 50


def test_a_list_of_another_namespace_does_not_count() -> None:
    assert "namespace a, now it is all namespaces" in reason(sync=at(9, finished(50, "a")))
    assert "all namespaces, now it is namespace a" in reason("a", sync=at(9, finished(50)))


def test_the_highest_version_that_a_watch_told_after_the_list_counts() -> None:
    list_end = at(9, finished(50))
    assert resumed(sync=list_end) == 50
    assert resumed(sync=list_end, seen=at(10, seen(60))) == 60
    assert resumed(sync=list_end, seen=at(10, seen(60)), bookmark=at(11, bookmark(70))) == 70
    assert resumed(sync=list_end, seen=at(12, seen(80)), bookmark=at(11, bookmark(70))) == 80
    assert resumed(sync=list_end, seen=at(10, deleted(61))) == 61
    assert resumed(sync=list_end, seen=at(8, seen(90)), bookmark=at(7, bookmark(95))) == 50, "from before its end"
    assert resumed(sync=list_end, seen=at(10, seen(90, origin="list"))) == 50, "it says nothing about others"


def test_several_namespaces_go_on_each_where_it_was() -> None:
    listed = finished(50, "a", "b")
    last = {"a": at(10, seen(60)), "b": None}
    decision = decide(("a", "b"), sync=at(9, listed), gap=None, seen=last, bookmark=at(11, bookmark(55)))
    assert isinstance(decision, ResumeAt)
    assert decision.versions == {"a": 60, "b": 55}
    other = decide(("a",), sync=at(9, listed), gap=None, seen=last, bookmark=None)
    reason = "the last list was of namespace a, b, now it is namespace a"
    assert other == ListFirst(reason=reason, seen=Version(60))


def test_what_was_seen_of_a_history_that_went_back_counts_no_more() -> None:
    reverted = HistoryReverted(resource=WEBS, since=Version(90), version=Version(30), time=NOON)
    old: dict[str, Any] = {"sync": at(5, finished(80)), "seen": at(8, seen(90)), "bookmark": at(9, bookmark(89))}
    assert decided(**old).seen == 90
    assert decided(**old, gap=at(10, reverted)) == ListFirst(
        reason="there was a gap after the last list", seen=Version(30)
    )
    old["sync"] = at(12, finished(31))
    listed = decided(**old, gap=at(10, reverted))
    assert isinstance(listed, ResumeAt)
    assert (listed.seen, listed.versions) == (31, {"": 31})


OLD, NEW = "example.com/v1alpha1", "example.com/v1beta1"


def test_a_newer_version_of_the_api_is_listed_first() -> None:
    old = at(9, of(OLD, finished(50)))
    assert reason(sync=old, api_version=NEW) == f"records are of version {OLD}, now it is {NEW}"
    assert resumed(sync=old, api_version=OLD) == 50
    assert resumed(sync=at(9, finished(50)), api_version=NEW) == 50  # nobody said which version that was


@pytest.mark.parametrize("said", [{"seen": at(10, of(OLD, seen(60)))}, {"bookmark": at(10, of(OLD, bookmark(60)))}])
def test_what_an_older_process_recorded_after_the_list_is_no_place_to_go_on(said: Any) -> None:
    """It watched further than the one that takes over: between the two, nothing was recorded in the newer version."""
    assert reason(sync=at(9, of(NEW, finished(50))), api_version=NEW, **said) == (
        f"records are of version {OLD}, now it is {NEW}"
    )


def test_an_older_version_of_the_api_than_is_recorded_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=f"is recorded in version {NEW}, this process"):
        decided(sync=at(9, of(NEW, finished(50))), api_version=OLD)


def test_invariant_2_a_source_is_taken_up_as_processors_fold_it() -> None:
    known = KnownRecords()
    records: tuple[Record, ...] = (seen(4), deleted(5), seen(5), seen(3))
    for number, record in enumerate(records, 1):
        known.fold(at(number, record))
    assert not known.records
    known.fold(at(5, seen(6)))
    assert [each.version for each in known.records.values()] == [6]
