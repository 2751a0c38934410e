"""Records that cannot be read: nothing raises, none is passed over in silence, and no other object notices."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelog_base.wire.envelope import encode
from levelog_base.wire.objects import MAX_VERSION, GroupResource, ObjectKey, Partition, Sequence, Uid, Version
from levelog_base.wire.records import (
    BookmarkNoted,
    ContactLost,
    ControlRecord,
    GapNoted,
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    ObjectUnreadable,
    Record,
    SyncFinished,
    TargetObserved,
    Unreadable,
)
from levelog_base.wire.subjects import Control, control_subject, object_in, object_subject, partition_in, partition_of
from levelog_cli.loading import load_operators
from levelog_log.messages import logged_record
from levelog_log.transport.wire import parse_header_lines
from levelog_processors.fold.foldedobjects import stored
from levelog_processors.fold.foldrules import Fold
from levelog_processors.program import Program
from levelog_store.fold.changes import Changes, PriorState
from rigs.garbling import garbled
from rigs.intents import intent
from rigs.run.examples import examples
from rigs.webs import NOON, WEBS, deleted, lists_done, receipt, web
from rigs.webs import logged as in_log

WEBS_FILE = Path(__file__).parents[2] / "examples/webs/webs.py"
KEY = ObjectKey(group="example.com", resource="webs", namespace="default", name="w")
SEEN = web("w", 7, replicas=2)
HELD = stored(str(KEY), SEEN, in_log([SEEN])[0])
RECEIPT = receipt(intent("pods/default/w-0", verb="apply", parent=str(KEY)), version=9)
RECORDS: Final[tuple[ObjectSeen | ObjectDeleted | ControlRecord, ...]] = (
    SEEN,
    deleted(SEEN, 8),
    *lists_done(WEBS, 9),
    GapNoted(resource=WEBS, reason="gone", since=Version(3), time=NOON),
    BookmarkNoted(resource=WEBS, version=Version(9), time=NOON),
    ContactLost(resource=WEBS, error="gone", time=NOON),
    RECEIPT,
    TargetObserved(
        application="webs",
        key="key",
        view="webs/pods",
        parent=KEY,
        parent_uid=Uid("uid-w"),
        target=RECEIPT.target,
        target_version=9,
        time=NOON,
    ),
    ObjectUnreadable(resource=WEBS, key=KEY, error="odd", time=NOON),
)
SUBJECT = object_subject("cluster", KEY, partition_of(KEY, 4))  # type: ignore[arg-type]
HEADER_VALUES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12),
    st.sampled_from(
        ["", "\0", "a/b", "a/b/c", "2", "-1", str(MAX_VERSION), str(MAX_VERSION + 1), "9" * 5000, "\u0665"]
    ),
    st.sampled_from(["2026-01-01", "2026-01-01T00:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]),
)


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(load_operators([WEBS_FILE]))


@st.composite
def messages(draw: st.DrawFn) -> tuple[dict[str, str], bytes]:
    """Headers and payload, both or one of them garbled."""
    headers, payload = encode(draw(st.sampled_from(RECORDS)), record_id="id", source="test")
    for name in draw(st.lists(st.sampled_from(sorted(headers)), max_size=2, unique=True)):
        if draw(st.booleans()):
            del headers[name]
        else:
            headers[name] = draw(HEADER_VALUES)
    return headers, draw(garbled(payload))


def place(headers: Mapping[str, str], payload: bytes, sequence: int) -> LoggedRecord:
    """As a reader does, of a message that came over the wire, whoever wrote it."""
    headers = parse_header_lines("".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode())
    partition = partition_in(SUBJECT)
    assert partition is not None
    return logged_record(SUBJECT, partition, Sequence(sequence), 10**18, headers, payload)


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(messages(), min_size=1, max_size=3))
def test_invariant_14_whatever_stands_in_the_log_other_records_are_folded_and_it_is_told(
    program: Program, some: list[tuple[dict[str, str], bytes]]
) -> None:
    other = in_log([web("other", 5)], first=100)
    records = [place(*message, sequence) for sequence, message in enumerate(some, 1)]
    records = [each for each in records if not isinstance(each.record, SyncFinished)]
    changes = Fold(program, "webs", PriorState()).records([*records, *other])
    assert changes.objects["webs.example.com/default/other"].version == 5
    newest: dict[ObjectKey, int] = {}
    for each in records:
        record = each.record
        is_news = isinstance(record, ObjectSeen) and record.version > newest.get(record.key, -1)
        if isinstance(record, Unreadable):
            assert record.key == KEY
            assert changes.unreadable[each.partition, str(KEY)].sequence >= each.sequence
        elif isinstance(record, ObjectSeen) and is_news and not is_an_object(record.body):
            assert changes.unreadable[each.partition, str(record.key)].sequence >= each.sequence
        elif isinstance(record, ObjectSeen | ObjectDeleted):
            newest[record.key] = max(record.version, newest.get(record.key, -1))
    check_that_it_can_be_stored(changes)


def is_an_object(body: bytes) -> bool:
    try:
        body.decode()
        metadata = msgspec.json.decode(body, type=dict[str, msgspec.Raw])["metadata"]
        msgspec.json.decode(metadata, type=dict[str, msgspec.Raw])  # a number too large for a float may be in there
    except (msgspec.DecodeError, ValueError, TypeError, KeyError, RecursionError):
        return False
    return True


def check_that_it_can_be_stored(changes: Changes) -> None:
    """Columns take no NUL, no number of more than 64 bits, and no time without a zone."""
    rows: list[Any] = [*changes.objects.values(), *changes.tombstones.values(), *changes.syncs.values()]
    rows += [*changes.unreadable.values(), *changes.receipts, *changes.checkpoints.values()]
    for row in rows:
        for name in row.__struct_fields__:
            value = getattr(row, name)
            assert not isinstance(value, str) or "\0" not in value, (name, row)
            assert not isinstance(value, int) or abs(value) <= MAX_VERSION, (name, row)
            assert getattr(value, "tzinfo", NOON.tzinfo) is not None, (name, row)


def unreadable(sequence: int, key: ObjectKey | None = KEY) -> LoggedRecord:
    return in_log([ObjectUnreadable(resource=WEBS, key=key, error="odd", time=NOON)], first=sequence)[0]


@pytest.mark.parametrize("is_in_one_batch", [True, False])
def test_an_object_that_cannot_be_read_any_more_stays_as_it_was_and_no_list_takes_it_for_gone(
    program: Program, is_in_one_batch: bool
) -> None:
    prior = PriorState() if is_in_one_batch else PriorState(objects={str(KEY): HELD})
    before = in_log([SEEN], first=1) if is_in_one_batch else []
    changes = Fold(program, "webs", prior).records([*before, unreadable(5)])
    told = {name: row.sequence for name, row in changes.objects.items()} | changes.seen_again
    assert told == {str(KEY): 5}
    assert [(row.place, row.sequence, row.error) for row in changes.unreadable.values()] == [(str(KEY), 5, "odd")]


def test_what_is_gone_is_gone_whatever_its_last_body_is(program: Program) -> None:
    gone = msgspec.structs.replace(deleted(SEEN, 8), body=b"\xff")
    changes = Fold(program, "webs", PriorState(objects={str(KEY): HELD})).records(in_log([gone]))
    assert changes.tombstones.keys() == {str(KEY)}
    assert not changes.unreadable


def test_a_record_that_is_late_is_not_asked_whether_it_can_be_read(program: Program) -> None:
    late = msgspec.structs.replace(SEEN, body=b"\xff")
    buried = PriorState(tombstones=Fold(program, "webs", PriorState()).records(in_log([deleted(SEEN, 8)])).tombstones)
    assert not Fold(program, "webs", buried).records(in_log([late])).unreadable


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(names, names, st.one_of(st.just(""), names), names)
def test_a_subject_tells_which_object_it_is_about(group: str, resource: str, namespace: str, name: str) -> None:
    key = ObjectKey(group=group, resource=resource, namespace=namespace, name=name)
    if namespace != "_" and group != "core" and group not in tuple(Control):
        assert object_in(object_subject("c", key, Partition(3))) == (key if key.is_sound else None)  # type: ignore[arg-type]
        assert not key.is_sound or ObjectKey.parse(str(key)) == key


def test_subjects_that_are_not_of_objects_or_not_of_levelog_are_told_apart() -> None:
    sync = control_subject("c", Partition(3), Control.SYNC, GroupResource(group="apps", resource="x"))  # type: ignore[arg-type]
    assert (object_in(sync), partition_in(sync)) == (None, 3)
    for odd in (
        "levelog.c.x.y",
        "levelog.c.3",
        "levelog.c.-1.a",
        "levelog.c.\u0665.a",
        f"levelog.c.{10**9}.a",
        "a",
        "",
    ):
        assert partition_in(odd) is None


def test_the_records_are_all_kinds_that_there_are() -> None:
    """But for the one after which older versions are news."""
    assert {type(record) for record in RECORDS} == {*get_args(Record)} - {Unreadable, HistoryReverted}


@pytest.mark.parametrize("field", ["sync_id", "namespaces", "api_version"])
def test_invariant_14_a_record_with_a_nul_in_any_field_cannot_be_read(field: str) -> None:
    headers, payload = encode(lists_done(WEBS, 9)[0], record_id="id", source="test")
    content = msgspec.json.decode(payload)
    for text, is_readable in (("a\0", False), ("a\\u0000", True)):
        content[field] = [text] if field == "namespaces" else text
        record = place(headers, msgspec.json.encode(content), 1).record
        assert isinstance(record, Unreadable) is not is_readable
