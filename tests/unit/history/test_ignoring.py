"""Which changes led to nothing, and how they are told together."""

from msgspec.structs import replace

from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import ObjectDeleted, ObjectSeen, Written
from levelog_base.wire.subjects import partition_of
from levelog_history.happenings import Entry, Happened
from levelog_history.ignoring import Asking, Ignored, ignored_changes
from levelog_history.revisions import Revisions
from levelog_store.decide.decisions import Basis
from rigs.pastdecisions import NONE, decision
from rigs.webs import deleted, logged, pod, web

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
