"""How it came to a level: fields that put an object under a key, what led to nothing, and what pages tell of it."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from levelog.levels import LevelStatus
from levelog_base.wire.objects import Application, ObjectKey
from levelog_base.wire.records import ObjectDeleted, ObjectSeen, Written
from levelog_base.wire.subjects import partition_of
from levelog_history.differences import Difference
from levelog_history.explaining import LevelStatusChange, explain
from levelog_history.happenings import Entry, Happened
from levelog_history.ignoring import Asking, Ignored, ignored_changes
from levelog_history.keys import key_fields, wake_text
from levelog_history.revisions import Happened as Word
from levelog_history.revisions import Revision, Revisions
from levelog_store.decide.decisions import Basis, Decision, Read
from levelog_store.look.levelpages import LevelQuery
from levelog_store.look.overview import LevelLine
from levelog_ui.marks import Mark, why_marks
from levelog_ui.places import LevelPlace, page_of
from levelog_ui.stories import Story
from rigs.pastdecisions import NONE, decision
from rigs.webs import NOON, deleted, logged, pod, web

WEB = "webs.example.com/default/one"


def made(ordinal: int, own: LevelStatus, others: dict[str, LevelStatus], *, is_called: bool = True) -> Decision:
    basis = Basis(level_statuses={"shops/webs": own}, others={WEB: others})
    told = {"ordinal": ordinal, "causes": NONE, "is_called": is_called, "basis": basis}
    return decision("shops/conditions", "shops.example.com/default/shop", ordinal, **told)


def test_a_decision_says_which_levels_stood_otherwise_than_at_the_one_before() -> None:
    rests = LevelStatus(status="in_sync")
    refused = LevelStatus(status="failed", reason="403 Forbidden", since=datetime(2026, 1, 1, tzinfo=UTC))
    past = [
        made(1, rests, {"shops/pods": rests}),
        made(2, rests, {}, is_called=False),
        made(3, rests, {"shops/pods": refused}),
        made(4, rests, {}),
    ]
    found = [each.level_statuses for each in explain(past, {}, Happened(entries={}, receipts={}, others={}))]
    name = f"shops/pods of {WEB}"
    assert found == [
        [
            LevelStatusChange(level=name, before="", after="in_sync"),
            LevelStatusChange(level="shops/webs", before="", after="in_sync"),
        ],
        [],
        [LevelStatusChange(level=name, before="in_sync", after="failed (403 Forbidden)")],
        [LevelStatusChange(level=name, before="failed (403 Forbidden)", after="")],
    ]


POD_BODY: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "namespace": "default",
        "labels": {"app": "shop", "tier": "a"},
        "ownerReferences": [{"kind": "Web", "name": "shop", "uid": "u1"}],
    },
    "spec": {"nodeName": "n1", "volumes": [{"claim": "c1"}], "ready": True},
}


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        ('"shop"', '"shop", its label app'),
        ('"a"', '"a", its label tier or name'),
        ('"c1"', '"c1", its spec.volumes[0].claim'),
        ('["default","shop"]', '["default","shop"], its namespace and label app'),
        ('["example.com","Web","default","u1"]', "its owner, Web shop"),
        ("[]", ""),
        ('["default","blog"]', ""),
        ('["example.com","Web","default","u2"]', ""),
        ('"blog"', ""),
        ("true", ""),
        ("null", ""),
        ("1", ""),
    ],
)
def test_a_key_is_told_by_the_fields_that_read_so(key: str, fields: str) -> None:
    assert key_fields(key, POD_BODY) == fields


def woken(happened: Word, body: dict[str, Any], *differences: Difference) -> str:
    """What is said of a record that made another value of the key "shop"."""
    revision = Revision(
        sequence=7,
        time=NOON,
        object="pods/default/a",
        happened=happened,
        uid="u",
        version=1,
        differences=[*differences],
        body=msgspec.json.encode(body),
    )
    read = Read(index="webs/images", key='"shop"', version=7, content=b'["a"]')
    made = decision("webs/pods", "webs.example.com/default/shop", 7, reads=[read])
    [explained] = explain([made], {}, Happened(entries={7: [revision]}, receipts={}, others={}))
    return wake_text(explained, explained.causes[0])


def test_a_record_is_told_by_where_its_object_stands_or_stood() -> None:
    assert woken("created", POD_BODY) == 'pods/default/a is in images under "shop", its label app'
    assert woken("deleted", POD_BODY) == 'pods/default/a was in images under "shop", its label app'
    other = {"metadata": {"name": "a", "labels": {"app": "blog"}}}
    left = Difference(path="metadata.labels.app", before="shop", after="blog")
    assert (
        woken("changed", other, left) == 'pods/default/a was in images under "shop", its metadata.labels.app until then'
    )
    assert woken("changed", other) == ""


PARTITIONS = 4
SHOP = "webs.example.com/default/shop"


def ignored(*records: ObjectSeen | ObjectDeleted) -> list[Ignored]:
    """What is told of records of which the first led to the only decision; all are folded."""
    revisions = Revisions(lambda _: True)
    entries: dict[int, list[Entry]] = {}
    for each in logged(records, partitions=PARTITIONS):
        entries[each.sequence] = list(revisions.take(each))
    basis = Basis(folded=tuple(int(n == partition_of(ObjectKey.parse(SHOP), PARTITIONS)) for n in range(PARTITIONS)))
    made = decision("webs/pods", SHOP, parent_uid="uid-shop", round=1, basis=basis)
    folded = dict.fromkeys(range(PARTITIONS), len(records))
    asking = Asking(decisions=[made], looked=NONE, waiting=NONE, intents={}, folded=folded)
    return ignored_changes(asking, Happened(entries=entries, receipts={}, others={}), None, PARTITIONS)


def by(manager: str, record: ObjectSeen) -> ObjectSeen:
    return replace(record, written=Written(manager=manager))


def test_changes_of_several_objects_in_turn_are_told_once_for_each() -> None:
    beats = [pod(name, version, annotations={"n": str(version)}) for version in (3, 4, 5) for name in ("a", "b")]
    found = ignored(web("shop", 1), pod("a", 2, annotations={"n": ""}), pod("b", 2, annotations={"n": ""}), *beats)
    changed = [each for each in found if each.happened == "changed"]
    assert [(each.object, each.first, each.last, each.count) for each in changed] == [
        ("pods/default/a", 4, 8, 3),
        ("pods/default/b", 5, 9, 3),
    ]


def test_another_change_of_an_object_begins_anew() -> None:
    found = ignored(
        web("shop", 1, annotations={"n": "0"}),
        web("shop", 2, annotations={"n": "1"}),
        web("shop", 3, annotations={"n": "1"}, image="b"),
        web("shop", 4, annotations={"n": "2"}, image="b"),
    )
    assert [(each.fields, each.count) for each in found] == [
        (["metadata.annotations.n"], 1),
        (["spec.image"], 1),
        (["metadata.annotations.n"], 1),
    ]


def test_nobody_is_said_to_have_deleted() -> None:
    shop, child = by("kubectl", web("shop", 1)), by("levelog-webs", pod("a", 2))
    doomed = by("levelog-webs", pod("a", 3, deletionTimestamp="2026-01-01T12:00:00Z"))
    gone = replace(deleted(child, 4), written=Written(manager="levelog-webs"))
    assert [(each.happened, each.writer) for each in ignored(shop, child, doomed, gone)] == [
        ("created", "levelog-webs"),
        ("changed", ""),
        ("deleted", ""),
    ]


def test_what_happens_while_the_parent_is_gone_has_no_level_to_change() -> None:
    shop = web("shop", 1)
    again = web("shop", 5, uid="uid-new")
    found = ignored(shop, deleted(shop, 2), pod("a", 3), again, pod("b", 6))
    assert [(each.object, each.why) for each in found] == [
        (SHOP, "no_level"),
        ("pods/default/a", "no_level"),
        (SHOP, "not_read"),
        ("pods/default/b", "not_read"),
    ]


POD = "pods/default/shop-1"


def mark(name: str, kind: str, *because: str, fields: tuple[str, ...] = ()) -> Mark:
    number = int(name[1:])
    return Mark(id=name, number=number, time=NOON, lane=POD, kind=kind, text="", fields=[*fields], because=[*because])


def told(*marks: Mark) -> list[str]:
    last = Revision(sequence=marks[-1].number, time=NOON, object=POD, happened="changed", uid="u", version=1)
    entries = [(last.sequence, last)]
    story = Story(object=POD, is_parent=False, objects=[POD], left_out=0, entries=[*entries], levels={}, bodies={})
    return [each.id for each in why_marks(story, marks)]


def test_a_report_of_a_kubelet_does_not_hide_who_made_the_object() -> None:
    made = mark("r1", "deleted"), mark("d2", "settling", "r1"), mark("r3", "created", "d2")
    report = mark("r4", "changed", fields=("+ status.startTime: 1", 'status.phase: "Pending" -> "Running"'))
    assert told(*made, report) == ["r1", "d2", "r3"]
    assert told(*made, report, mark("r5", "changed", fields=('spec.image: "a" -> "b"',))) == ["r5"]
    assert told(report) == ["r4"]


def test_pages_hold_each_level_once_in_the_order_that_was_asked_for() -> None:
    of = Application("shops")
    lines = [
        LevelLine(view=f"shops/{'ab'[n % 2]}", parent=f"webs/x/{n:02}", status="failed", round=n) for n in range(20)
    ]
    wanted = LevelQuery(view="a", order="round")
    pages = [page_of([LevelPlace(of, each) for each in lines], wanted, skip=skip, most=4) for skip in range(0, 12, 4)]
    assert [[each.line.round for each in page] for page in pages] == [[18, 16, 14, 12], [10, 8, 6, 4], [2, 0]]
