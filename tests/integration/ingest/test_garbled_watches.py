"""Lines of a watch that cannot be read: nothing raises, each is in the log, and other objects do not notice."""

import base64
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings

from levelog_base.errors import RecordError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import GroupResource, Partition
from levelog_base.wire.objects import Sequence as LogSequence
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen, ObjectUnreadable, SyncFinished
from levelog_base.wire.subjects import partition_in
from levelog_ingest.feed import read_bookmark, read_event
from levelog_ingest.recorder import Recorder
from levelog_ingest.status import ResourceStatus, WatchedResource
from levelog_kube.requestfailures import ApiError, NoAnswer
from levelog_log.messages import logged_record
from levelog_log.transport.wire import Message, parse_header_lines
from rigs.faults import InjectLines
from rigs.garbling import DEEP, garbled
from rigs.ingesting import gaps, ingesting, lists, state_of, until_recorded, until_watching
from rigs.logs import new_log
from rigs.nats import NatsServer
from rigs.routes import WATCHES, Route, route_of
from rigs.run.examples import examples

CANARY: Final = "cAnArY-in-a-secret"
SECRETS: Final = WatchedResource(resource=GroupResource(group="", resource="secrets"), version="v1")
SECRET: Final = {
    "kind": "Secret",
    "apiVersion": "v1",
    "metadata": {
        "name": "s",
        "namespace": "default",
        "uid": "uid-s",
        "resourceVersion": "7",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": CANARY, "a": "b"},
        "managedFields": [{"manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:00Z"}],
    },
    "data": {"password": base64.b64encode(CANARY.encode()).decode()},
}
CONFIG_MAP: Final = {"metadata": {"name": "x", "namespace": "default", "uid": "uid-x", "resourceVersion": "7"}}
BOOKMARK: Final = {"metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}}
STATUS: Final = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old", "details": {"causes": []}}


def line(kind: str, told: Any) -> bytes:
    return msgspec.json.encode({"type": kind, "object": told})


LINES: Final = (
    *(line(kind, SECRET) for kind in ("ADDED", "MODIFIED", "DELETED")),
    line("BOOKMARK", BOOKMARK),
    line("ERROR", STATUS),
)


@pytest.fixture
async def recorder(nats_server: NatsServer) -> AsyncGenerator[Recorder]:
    async with new_log(nats_server) as stream:
        yield Recorder(stream.writer("test"), Redactor(b"k" * 16), ResourceStatus(watched=SECRETS))


@settings(max_examples=examples(1000), deadline=None)
@given(garbled(*LINES))
def test_invariant_14_each_line_is_an_object_in_the_log_or_said_to_be_none(recorder: Recorder, given: bytes) -> None:
    try:
        event = read_event(given)
    except RecordError as error:
        check_unreadable(recorder.unreadable(b"", str(error)))
        return
    if event.type == "BOOKMARK":
        with suppress(NoAnswer):  # the connection is made anew
            read_bookmark(event)
    elif event.type == "ERROR":
        assert ApiError.from_answer("WATCH", "/", 0, bytes(event.object))
    else:
        version, message = recorder.object_message(
            bytes(event.object), origin="watch", is_deleted=event.type == "DELETED"
        )
        record = read(message).record
        if isinstance(record, ObjectSeen | ObjectDeleted):
            assert (version, record.key.resource) == (record.version, "secrets")
            assert isinstance(record, ObjectDeleted) == (event.type == "DELETED")
        else:
            check_unreadable(message)


def read(message: Message) -> LoggedRecord:
    headers = parse_header_lines(message.headers)
    return logged_record(message.subject, Partition(0), LogSequence(1), 10**18, headers, message.payload)


def check_unreadable(message: Message) -> None:
    assert isinstance(read(message).record, ObjectUnreadable)
    assert partition_in(message.subject) is not None
    assert len(message.subject) < 1000  # a longer line ends the connection to NATS
    assert b"cAnArY" not in message.payload
    assert base64.b64encode(b"cAnArY") not in message.payload


@pytest.fixture
async def route(tmp_path: Path, nats_server: NatsServer) -> AsyncGenerator[Route]:
    async with route_of(tmp_path, nats_server) as opened:
        yield opened


def unreadable(records: Sequence[LoggedRecord]) -> list[ObjectUnreadable]:
    return [each.record for each in records if isinstance(each.record, ObjectUnreadable)]


def holds(*names: str, skipped: int) -> Callable[[Any], bool]:
    return lambda records: state_of(records).keys() == set(names) and len(unreadable(records)) >= skipped


DEEP_SPEC: Final = b'{"a":' * DEEP + b"1" + b"}" * DEEP
NAMED: Final = {
    "no uid": line("ADDED", {"metadata": {"name": "x", "namespace": "default", "resourceVersion": "7"}}),
    "no number": line("MODIFIED", {"metadata": {**CONFIG_MAP["metadata"], "resourceVersion": "seven"}}),
    "a number too large": line("ADDED", {"metadata": {**CONFIG_MAP["metadata"], "resourceVersion": "9" * 30}}),
    "annotations": line(
        "ADDED",
        {"metadata": {**CONFIG_MAP["metadata"], "annotations": ["kubectl.kubernetes.io/last-applied-configuration"]}},
    ),
    "a line break in a header": line("ADDED", {"metadata": {**CONFIG_MAP["metadata"], "uid": "a\nb"}}),
}
NO_EVENT: Final = {
    "no JSON": b"}{",
    "cut": line("ADDED", CONFIG_MAP)[:-20],
    "no text": b"\xff\xfe",
    "an unknown type": line("MOVED", CONFIG_MAP),
    "deep": b'{"type":"ADDED","object":%b}' % DEEP_SPEC,
}
NO_NAME: Final = {
    "an empty name": line("ADDED", {"metadata": {"name": "", "uid": "u", "resourceVersion": "7"}}),
    "no metadata": line("ADDED", {}),
}


async def test_invariant_14_an_object_that_cannot_be_recorded_is_named_in_the_log(route: Route) -> None:
    route.proxy.add(InjectLines(after_lines=2, lines=tuple(NAMED.values())), WATCHES)
    route.create("a", "b", "c")
    async with ingesting(route.kubeconfig, route.stream) as ingest:
        await until_watching(ingest)
        records = await until_recorded(route.stream, holds("a", "b", "c", skipped=len(NAMED)))
        assert [status.skipped for status in ingest.snapshot()] == [len(NAMED)]
    assert {str(each.key) for each in unreadable(records)} == {"configmaps/default/x"}
    assert (lists(records), gaps(records)) == (1, [])
    (ended,) = {r.record.has_unnamed for r in records if isinstance(r.record, SyncFinished)}
    assert not ended


@pytest.mark.parametrize("given", [*NO_EVENT.values(), *NO_NAME.values()], ids=[*NO_EVENT, *NO_NAME])
async def test_a_list_with_an_object_without_a_name_is_finished_and_says_so(route: Route, given: bytes) -> None:
    """Otherwise what it seems to leave out would be taken for deleted."""
    route.proxy.add(InjectLines(after_lines=1, lines=(given,)), WATCHES)
    route.create("a", "b")
    async with ingesting(route.kubeconfig, route.stream) as ingest:
        await until_watching(ingest)
        records = await until_recorded(route.stream, holds("a", "b", skipped=1))
    assert [each.key for each in unreadable(records)] == [None]
    assert {r.record.has_unnamed for r in records if isinstance(r.record, SyncFinished)} == {True}
    assert lists(records) == 1


@pytest.mark.parametrize("given", NO_EVENT.values(), ids=NO_EVENT)
async def test_a_line_that_is_no_event_is_a_gap_and_a_list_tells_what_it_would_have(route: Route, given: bytes) -> None:
    # The list, with its bookmark, is 2 lines; the third is what happens next.
    route.proxy.add(InjectLines(after_lines=3, lines=(given,)), WATCHES)
    route.create("a")
    async with ingesting(route.kubeconfig, route.stream) as ingest:
        await until_watching(ingest)
        await until_recorded(route.stream, holds("a", skipped=0))
        route.create("b", "c")
        records = await until_recorded(
            route.stream, lambda told: lists(told) == 2 and holds("a", "b", "c", skipped=1)(told)
        )
    assert [each.key for each in unreadable(records)] == [None]
    assert len(gaps(records)) == 1
