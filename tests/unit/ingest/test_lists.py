"""Lists that end before they are complete, in every way in which they can, and what the log says after them."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from levelog_base.wire.objects import GroupResource, Version
from levelog_base.wire.records import LoggedRecord, ObjectUnreadable, SyncFinished
from levelog_ingest.resume import ResumeAt
from levelog_ingest.status import DIFFERENCE, Backoff, ResourceStatus, WatchedResource
from levelog_ingest.sync import Sync
from levelog_kube.requestfailures import ApiError, NoAnswer
from rigs.ingesting import state_of
from rigs.machine.cluster import WEBS, key_of
from rigs.machine.ingesters import Ingester, Server
from rigs.machine.log import Log

NAMES: Final = ("a", "b", "c")
ENDINGS: Final = (True, NoAnswer("the connection broke"), ApiError("WATCH", "/", 500), ApiError("WATCH", "/", 410))
"""In good order, without an answer, by an error, and by one that says that history is gone."""


def server_of(*names: str) -> Server:
    server = Server()
    for name in names:
        server.create(WEBS, name, {})
    return server


def toggle(server: Server, name: str) -> None:
    if key_of(WEBS, name) in server.objects:
        server.delete(WEBS, name)
    else:
        server.create(WEBS, name, {})


def names_at(server: Server, version: Version) -> set[str]:
    """The names of what was there at a version."""
    last = {each.key.name: each for each in server.happenings if each.revision <= version}
    return {name for name, each in last.items() if not each.is_deletion}


async def ingest(server: Server, *cuts: tuple[int, bool | Exception, str]) -> Sequence[LoggedRecord]:
    """What an ingester writes until there is nothing to tell.

    A cut: after so many answers the connection ends in this way, and then this object comes or goes.
    """
    log = Log()
    ingester = Ingester(server, log)
    try:
        for answers, ending, toggled in cuts:
            for _ in range(answers):
                await ingester.step()
            await ingester.step(ends=ending)
            toggle(server, toggled)
        await ingester.step()
        while not ingester.is_idle:
            await ingester.step()
    finally:
        await ingester.kill()
    return log.records


cuts = st.tuples(st.integers(1, 4 + len(NAMES)), st.sampled_from(ENDINGS), st.sampled_from(NAMES))


@settings(max_examples=60, derandomize=True, database=None)
@given(broken=st.lists(cuts, max_size=3))
def test_a_list_says_what_is_there_however_often_it_broke_off(broken: list[tuple[int, bool | Exception, str]]) -> None:
    server = server_of(*NAMES)
    records = asyncio.run(ingest(server, *broken))
    assert state_of(records).keys() == {key.name for key in server.objects}
    finished = [number for number, each in enumerate(records) if isinstance(each.record, SyncFinished)]
    assert finished
    for number in finished:  # what a broken one has left out would be swept, and come back with the next
        there = names_at(server, cast("SyncFinished", records[number].record).version)
        assert state_of(records[: number + 1]).keys() == there


async def test_a_server_that_ends_its_lists_at_once_is_asked_at_a_slowing_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = 0

    def failed(backoff: Backoff, at_least: timedelta | None = None) -> timedelta:
        nonlocal waits
        waits += 1
        return timedelta(0)

    monkeypatch.setattr(Backoff, "failed", failed)
    await ingest(server_of("a"), *[(1, True, "b")] * 4)
    assert waits == 4


@pytest.mark.parametrize(
    ("name", "has_unnamed"), [("r" * 254, False), ("a/b", False), ("bell\a", False), (7, True), (None, True)]
)
async def test_an_object_whose_name_levelog_never_records_is_none_of_those_that_it_holds(
    name: Any, has_unnamed: bool
) -> None:
    server = server_of("a")
    server.objects[key_of(WEBS, "a")]["metadata"]["name"] = name
    records = await ingest(server)
    assert {r.record.has_unnamed for r in records if isinstance(r.record, SyncFinished)} == {has_unnamed}
    assert {r.record.key for r in records if isinstance(r.record, ObjectUnreadable)} == {None}


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


def test_the_objects_of_a_part_count_once_however_often_it_is_begun() -> None:
    status = ResourceStatus(watched=WatchedResource(resource=GroupResource("", "pods"), version="v1"))
    sync = Sync(cast("Any", None), cast("Any", None), status)
    for part, objects, total in (("a", 3, 3), ("a", 3, 3), ("b", 2, 5), ("a", 4, 6), ("b", None, None), ("a", 3, None)):
        sync.expect(part, objects)
        assert status.total == total
