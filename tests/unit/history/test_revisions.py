"""What records tell of an object: its revisions, and which of them gave a field its value."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import Version
from levelog_base.wire.records import ControlRecord, GapNoted, HistoryReverted, ObjectDeleted, ObjectSeen, Written
from levelog_history.blame import Blame
from levelog_history.revisions import Missing, Revision, Revisions
from rigs.webs import NOON, PODS, WEBS, deleted, lists_done, logged, pod, web


def told(records: Sequence[ObjectSeen | ObjectDeleted | ControlRecord]) -> list[Revision | Missing]:
    revisions = Revisions(lambda key: key.group_resource == WEBS)
    return [entry for each in logged(records, partitions=1) for entry in revisions.take(each)]


def happened(records: Sequence[ObjectSeen | ObjectDeleted | ControlRecord]) -> list[tuple[int, str]]:
    return [
        (entry.sequence, entry.happened if isinstance(entry, Revision) else entry.reason) for entry in told(records)
    ]


def listed(record: ObjectSeen) -> ObjectSeen:
    return replace(record, origin="list")


def test_each_record_of_an_object_is_a_revision_with_what_changed() -> None:
    [created, changed, gone] = told(
        [web("shop", 1, replicas=3), web("shop", 2, replicas=2), deleted(web("shop", 2, replicas=2), 3)]
    )
    assert isinstance(changed, Revision)
    assert [str(difference) for difference in changed.differences] == ["spec.replicas: 3 -> 2"]
    assert [entry.happened for entry in (created, changed, gone) if isinstance(entry, Revision)] == [
        *("created", "changed", "deleted")
    ]


def test_a_write_that_changed_no_field_is_told_as_such() -> None:
    written = replace(web("shop", 2), written=Written(manager="busy", at="2026-01-01T12:00:00Z"))
    [_, again] = told([web("shop", 1), written])
    assert isinstance(again, Revision)
    assert (again.happened, again.written.manager) == ("rewritten", "busy")


def test_repeated_and_late_records_are_no_revisions() -> None:
    assert happened([web("shop", 2), web("shop", 2), web("shop", 1), listed(web("shop", 2))]) == [(1, "created")]


def test_what_a_list_shows_first_was_found_and_not_seen_being_made() -> None:
    start, end = lists_done(WEBS, 5)
    assert happened([start, listed(web("shop", 3)), end]) == [(2, "found")]


def test_an_object_that_a_list_leaves_out_was_deleted_while_nobody_watched() -> None:
    start, end = lists_done(WEBS, 9)
    entries = told([web("gone", 1), web("kept", 2), start, listed(web("kept", 2)), end])
    assert happened([web("gone", 1), web("kept", 2), start, listed(web("kept", 2)), end]) == [
        *((1, "created"), (2, "created"), (5, "swept"))
    ]
    last = entries[-1]
    assert isinstance(last, Revision)
    assert last.manifest()["metadata"]["name"] == "gone"
    assert last.is_gone


def test_a_list_counts_by_itself_though_another_one_began_after_it() -> None:
    first, end = lists_done(WEBS, 9)
    second = replace(first, sync_id="other")
    assert happened([web("shop", 1), first, second, end]) == [(1, "created"), (4, "swept")]
    assert happened([web("shop", 1), second, end]) == [(1, "created")]


def test_after_history_went_back_lower_versions_are_news_and_what_the_list_leaves_out_is_gone() -> None:
    start, end = lists_done(WEBS, 5)
    reverted = HistoryReverted(resource=WEBS, since=Version(30), version=Version(5), time=NOON)
    older = listed(web("kept", 3, replicas=2))
    assert happened([web("kept", 20), web("lost", 30), reverted, start, older, end, web("lost", 6)]) == [
        *((1, "created"), (2, "created"), (3, "history went back from version 30 to 5")),
        *((5, "changed"), (6, "swept"), (7, "created")),
    ]


def test_another_uid_is_another_object_under_the_same_name() -> None:
    assert happened([web("shop", 1), web("shop", 2, uid="other"), deleted(web("shop", 2, uid="other"), 3)]) == [
        *((1, "created"), (2, "recreated"), (3, "deleted"))
    ]


def test_an_object_that_comes_back_is_created_and_late_records_of_the_one_before_are_none() -> None:
    assert happened([web("shop", 1), deleted(web("shop", 1), 4), web("shop", 3), web("shop", 5, uid="new")]) == [
        *((1, "created"), (2, "deleted"), (4, "created"))
    ]


def test_a_gap_is_told_once_though_it_is_noted_in_every_partition() -> None:
    gap = GapNoted(resource=WEBS, reason="too old", since=Version(1), time=NOON)
    other = replace(gap, resource=PODS)
    assert happened([gap, gap, other]) == [(1, "too old"), (3, "too old")]


def test_a_record_that_is_no_json_is_told_and_changes_nothing() -> None:
    broken = replace(web("shop", 2), body=b"{")
    assert happened([web("shop", 1), broken, web("shop", 3, replicas=2)]) == [
        *((1, "created"), (2, "unreadable"), (3, "changed"))
    ]


def test_objects_that_are_not_wanted_are_not_told() -> None:
    assert happened([pod("shop-0", 1)]) == []


def blamed(*records: Any, field: str = "spec") -> list[tuple[str, Any, int]]:
    revisions, blame = Revisions(lambda _: True), Blame()
    for each in logged(records):
        for revision in revisions.take(each):
            assert isinstance(revision, Revision)
            blame.take(revision)
    return [(path, value, revision.sequence) for path, value, revision in blame.of(field)]


def test_a_field_keeps_its_record_until_its_value_changes() -> None:
    webs = [web("shop", n, replicas=r, image=i) for n, (r, i) in enumerate([(1, "a"), (2, "a"), (2, "b"), (2, "b")], 1)]
    assert blamed(*webs) == [("spec.image", "b", 3), ("spec.replicas", 2, 2)]


def test_a_value_that_came_back_is_of_the_record_that_brought_it_back() -> None:
    webs = [web("shop", n, replicas=r) for n, r in enumerate((1, 2, 1), 1)]
    assert blamed(*webs, field="spec.replicas") == [("spec.replicas", 1, 3)]


def test_an_object_that_was_made_anew_has_nothing_of_the_one_before() -> None:
    first, again = web("shop", 1), web("shop", 3, uid="other")
    assert {number for _, _, number in blamed(first, deleted(first, 2), again)} == {3}
    assert {number for _, _, number in blamed(first, again)} == {2}


def test_the_parts_of_a_field_are_meant_and_none_of_a_longer_name() -> None:
    shop = web("shop", 1, labels={"app": "a", "app2": "b"})
    assert blamed(shop, field="metadata.labels.app") == [("metadata.labels.app", "a", 1)]
    assert len(blamed(shop, field="metadata.labels")) == 2
    with pytest.raises(ConfigurationError, match=r"default/shop has no field metadata.label: it has metadata.labels"):
        blamed(shop, field="metadata.label")
