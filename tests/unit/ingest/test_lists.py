"""Lists that end before they are complete, in every way in which they can, and what the log says after them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, cast

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from levelog.absence import Absence
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.envelope import decode
from levelog_base.wire.objects import Cluster, Partition, Version
from levelog_base.wire.objects import Sequence as LogSequence
from levelog_base.wire.records import LoggedRecord, ObjectUnreadable, SyncFinished
from levelog_ingest.resume import ListFirst, ResumeAt
from levelog_ingest.status import DIFFERENCE, Backoff
from levelog_ingest.sync import Sync
from levelog_ingest.watcher import Watcher
from levelog_kube.client import Answer, KubeClient
from levelog_kube.discovery import Served
from levelog_kube.failures import ApiError, NoAnswer
from levelog_log.appender import Appender, Lane
from levelog_log.messages import MessageWriter
from levelog_log.stream import LogStream
from levelog_log.transport.wire import Message, parse_header_lines
from rigs.ingesting import CONFIG_MAPS, lists, state_of

NAMES = ("a", "b", "c")
SERVED = Served(root="/api/v1", plural="configmaps", kind="ConfigMap", namespaced=True)

Ending = Literal["end", "no answer", "error", "expired"]


class Cut(msgspec.Struct, frozen=True):
    """One attempt to list: it ends after so many lines, in this way, and then this object comes or goes."""

    lines: int
    how: Ending
    toggled: str


class Server:
    """Streams lists, or serves pages, of objects that come and go between one attempt and the next."""

    def __init__(self, cuts: Sequence[Cut]) -> None:
        self.absence = Absence("the server")
        self.version = 10
        self.objects: dict[str, int] = dict.fromkeys(NAMES, self.version)
        self.asked: list[Mapping[str, str]] = []
        self.is_watched = asyncio.Event()
        self._cuts = list(cuts)

    async def request(self, method: str, path: str, *, query: Mapping[str, str]) -> Answer:
        assert query == {"limit": "1"}
        return answer(self.version, [])

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], silence: timedelta
    ) -> AsyncGenerator[AsyncIterator[list[bytes]]]:
        self.asked.append(query)
        yield self._lines("sendInitialEvents" in query)

    async def _lines(self, is_list: bool) -> AsyncIterator[list[bytes]]:
        cut = self._cuts.pop(0) if is_list and self._cuts else None
        lines = [line("ADDED", name, version) for name, version in self.objects.items()] if is_list else []
        for one in lines if cut is None else lines[: cut.lines]:
            yield [one]
        if cut is not None:
            self.toggle(cut.toggled)
            if cut.how == "no answer":
                raise NoAnswer("the connection broke")
            if cut.how in ("error", "expired"):
                raise ApiError("WATCH", "/", 410 if cut.how == "expired" else 500)
            return
        if is_list:
            annotations = {"k8s.io/initial-events-end": "true"}
            yield [line("BOOKMARK", "", self.version, annotations=annotations)]
        self.is_watched.set()
        await asyncio.Event().wait()

    def toggle(self, name: str) -> None:
        self.version += 1
        if self.objects.pop(name, None) is None:
            self.objects[name] = self.version


def line(kind: str, name: Any, version: int, **metadata: Any) -> bytes:
    about = {"name": name, "namespace": "default", "uid": f"{name}-{version}", "resourceVersion": str(version)}
    return msgspec.json.encode({"type": kind, "object": {"kind": "ConfigMap", "metadata": {**about, **metadata}}})


def answer(version: int, items: Sequence[Any], following: str = "") -> Answer:
    metadata = {"resourceVersion": str(version), "continue": following}
    return Answer(status=200, headers={}, body=msgspec.json.encode({"metadata": metadata, "items": items}))


class Written:
    """The log: what was handed to the lane, in order."""

    def __init__(self) -> None:
        self.records: list[LoggedRecord] = []

    async def submit(self, messages: Sequence[Message]) -> None:
        for message in messages:
            sequence = LogSequence(len(self.records) + 1)
            record = decode(parse_header_lines(message.headers), message.payload)
            self.records.append(
                LoggedRecord(sequence=sequence, partition=Partition(0), record_id=str(sequence), record=record)
            )


async def ingest(server: Any) -> Sequence[LoggedRecord]:
    """What ingest writes until it watches."""
    writer = partial(MessageWriter, Cluster("c"), 1)
    written = Written()

    async def check_cluster() -> None:
        return

    watcher = Watcher(
        cast("KubeClient", server),
        cast("LogStream", SimpleNamespace(writer=writer, max_age=timedelta(0))),
        cast("Appender", SimpleNamespace()),
        Redactor(),
        CONFIG_MAPS,
        check_cluster=check_cluster,
    )
    reading = asyncio.ensure_future(
        watcher.read_on(SERVED, cast("Lane", written), ListFirst(reason="nothing is recorded yet"))
    )
    watched = asyncio.ensure_future(server.is_watched.wait())
    await asyncio.wait((reading, watched), timeout=20, return_when=asyncio.FIRST_COMPLETED)
    assert watched.done()
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading
    return written.records


cuts = st.builds(
    Cut,
    lines=st.integers(0, len(NAMES)),
    how=st.sampled_from(("end", "no answer", "error", "expired")),
    toggled=st.sampled_from(NAMES),
)


@settings(max_examples=60, derandomize=True, database=None)
@given(broken=st.lists(cuts, max_size=3))
def test_a_list_says_what_is_there_however_often_it_broke_off(
    monkeypatch: pytest.MonkeyPatch, broken: list[Cut]
) -> None:
    monkeypatch.setattr(Backoff, "failed", lambda self, at_least=None: timedelta(0))

    async def run() -> None:
        server = Server(broken)
        records = await ingest(server)
        assert state_of(records).keys() == server.objects.keys()
        assert lists(records) == 1

    asyncio.run(run())


async def test_a_server_that_ends_its_lists_at_once_is_asked_at_a_slowing_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = 0

    def failed(backoff: Backoff, at_least: timedelta | None = None) -> timedelta:
        nonlocal waits
        waits += 1
        return timedelta(0)

    monkeypatch.setattr(Backoff, "failed", failed)
    server = Server([Cut(1, "end", "a")] * 4)
    await ingest(server)
    assert (len(server.asked), waits) == (5, 4)


@pytest.mark.parametrize(
    ("name", "has_unnamed"), [("r" * 254, False), ("a/b", False), ("bell\a", False), (7, True), (None, True)]
)
async def test_an_object_whose_name_levelog_never_records_is_none_of_those_that_it_holds(
    monkeypatch: pytest.MonkeyPatch, name: Any, has_unnamed: bool
) -> None:
    monkeypatch.setattr(Backoff, "failed", lambda self, at_least=None: timedelta(0))
    server = Server([])
    server.objects = {name: 1}
    records = await ingest(server)
    assert {r.record.has_unnamed for r in records if isinstance(r.record, SyncFinished)} == {has_unnamed}
    assert [r.record.key for r in records if isinstance(r.record, ObjectUnreadable)] == [None]


@given(
    ago=st.timedeltas(timedelta(days=-100), timedelta(days=100)), age=st.timedeltas(timedelta(hours=1), timedelta(9))
)
def test_a_list_is_old_after_its_age_and_if_a_clock_that_was_ahead_says_when_it_was_made(
    ago: timedelta, age: timedelta
) -> None:
    at = ResumeAt(versions={}, listed_at=datetime.now(UTC) - ago, seen=Version(0))
    sync = Sync.resumed(cast("Any", None), cast("Any", None), cast("Any", None), at)
    assume(min(abs(ago - age), abs(ago + DIFFERENCE)) > timedelta(seconds=30))
    assert sync.is_older_than(age) is (ago > age or ago < -DIFFERENCE)
    assert not sync.is_older_than(timedelta(0))
