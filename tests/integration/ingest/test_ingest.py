import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from levelog_base.errors import ConfigurationError, IdentityMismatch
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Cluster, GroupResource, Version
from levelog_base.wire.records import (
    BookmarkNoted,
    GapNoted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    SyncFinished,
    SyncStarted,
)
from levelog_ingest import ingest as ingest_
from levelog_ingest import watcher
from levelog_ingest.ingest import Ingest
from levelog_ingest.resume import holds_list
from levelog_ingest.status import FIRST, Backoff, ResourceStatus, WatchedResource
from levelog_kube.client import connect as connect_kube
from levelog_kube.discovery import Absent, absence_of, resolve
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.transport.connection import connect
from levelog_sandbox.api.urltargets import Denial
from levelog_sandbox.sandbox import Sandbox
from rigs.faults import DropWatch
from rigs.ingesting import (
    CONFIG_MAPS,
    config_map,
    gaps,
    ingesting,
    lists,
    log_of,
    state_of,
    until_recorded,
    until_watching,
)
from rigs.kinds import definition
from rigs.logs import change_settings, delete_stream, expire, limit_bytes, new_log, read_all, web_message, writer_for
from rigs.nats import NatsServer
from rigs.routes import WATCHES, Route, route_of
from rigs.waiting import until
from rigs.webs import NOON

SECRETS = WatchedResource(resource=GroupResource(group="", resource="secrets"), version="v1")
GIZMOS = WatchedResource(resource=GroupResource(group="example.com", resource="gizmos"), version="v1")
KEY = b"0123456789abcdef"


@pytest.fixture
async def world(tmp_path: Path, nats_server: NatsServer) -> AsyncGenerator[Route]:
    async with route_of(tmp_path, nats_server, partitions=4) as world:
        yield world


async def test_what_exists_is_listed_between_markers_in_every_partition(world: Route) -> None:
    for number in range(50):
        world.create(f"c-{number}", n=str(number))
    async with ingesting(world.kubeconfig, world.stream) as ingest:
        await until_watching(ingest)
        records = await until_recorded(world.stream, lists)
    for partition in range(4):
        own = [record.record for record in records if record.partition == partition]
        assert isinstance(own[0], SyncStarted)
        assert isinstance(own[-1], SyncFinished)
        assert own[0].sync_id == own[-1].sync_id
        assert all(isinstance(record, ObjectSeen) and record.origin == "list" for record in own[1:-1])
    # The markers at the end are one atomic batch: they stand side by side.
    ends = [record.sequence for record in records if isinstance(record.record, SyncFinished)]
    assert ends == list(range(ends[0], ends[0] + 4))
    assert len(state_of(records)) == 50


async def test_bodies_are_what_the_api_sent_less_what_is_cut(world: Route) -> None:
    made = world.user.create(config_map("c", text='ä \\ " 1.50'))
    async with ingesting(world.kubeconfig, world.stream):
        records = await until_recorded(world.stream, lists)
    (seen,) = [record.record for record in records if isinstance(record.record, ObjectSeen)]
    assert "managedFields" in made["metadata"]
    del made["metadata"]["managedFields"]
    assert msgspec.json.decode(seen.body) == made
    assert seen.written.manager == "user"
    assert seen.uid == made["metadata"]["uid"]
    assert str(seen.version) == made["metadata"]["resourceVersion"]


async def test_invariant_1_changes_are_recorded_in_order_with_the_deletion_last(world: Route) -> None:
    async with ingesting(world.kubeconfig, world.stream) as ingest:
        await until_watching(ingest)
        versions = [world.create("c", n="0")["metadata"]["resourceVersion"]]
        versions += [world.change("c", n=str(number))["metadata"]["resourceVersion"] for number in range(1, 30)]
        world.delete("c")

        def is_gone(records: Any) -> bool:
            return any(isinstance(record.record, ObjectDeleted) for record in records)

        records = await until_recorded(world.stream, is_gone)
    of_object = [r.record for r in records if isinstance(r.record, (ObjectSeen, ObjectDeleted))]
    assert [str(record.version) for record in of_object[:-1]] == versions
    last = of_object[-1]
    assert isinstance(last, ObjectDeleted)
    assert last.version > of_object[-2].version
    assert msgspec.json.decode(last.body)["data"] == {"n": "29"}


async def test_after_a_restart_it_goes_on_where_the_log_ends(world: Route) -> None:
    for name in ("stays", "changes", "goes"):
        world.create(name, n="1")
    async with ingesting(world.kubeconfig, world.stream) as ingest:
        await until_watching(ingest)
        world.change("stays", n="2")
        await until_recorded(world.stream, lambda records: state_of(records).get("stays", {}).get("data") == {"n": "2"})
    world.change("changes", n="2")
    world.delete("goes")
    world.create("comes", n="1")
    asked = world.sandbox.requests.last
    async with ingesting(world.kubeconfig, world.stream):
        records = await until_recorded(world.stream, lambda records: "comes" in state_of(records))
    assert lists(records) == 1
    assert {name: body["data"]["n"] for name, body in state_of(records).items()} == {
        "stays": "2",
        "changes": "2",
        "comes": "1",
    }
    # Its version is asked for, with one object, and nothing is listed.
    assert len([request for request in world.sandbox.requests.since(asked) if request.verb == "list"]) == 1
    # Nothing that was in the log before was written again.
    seen = [(r.record.key.name, r.record.version) for r in records if isinstance(r.record, ObjectSeen)]
    assert len(seen) == len(set(seen))


def bookmarks(records: Sequence[LoggedRecord]) -> list[BookmarkNoted]:
    """Those that the first partition holds."""
    return [each.record for each in records if isinstance(each.record, BookmarkNoted) and each.partition == 0]


async def test_a_bookmark_is_recorded_where_nothing_changes_too(tmp_path: Path, nats_server: NatsServer) -> None:
    async with route_of(tmp_path, nats_server, partitions=4, bookmark_seconds=0.05) as world:
        both = WatchedResource(
            resource=GroupResource(group="", resource="configmaps"), version="v1", namespaces=("default", "kube-public")
        )
        for number, watched in enumerate((CONFIG_MAPS, both)):

            def are_enough(records: Sequence[LoggedRecord], least: int = 3 * (number + 1)) -> bool:
                return len(bookmarks(records)) >= least

            async with ingesting(world.kubeconfig, world.stream, watched):
                records = await until_recorded(world.stream, are_enough)
            marks = bookmarks(records)[-3:]
            assert len({mark.version for mark in marks}) == 1
            assert len({mark.time for mark in marks}) == 3


async def test_a_watch_that_is_taken_up_says_at_once_that_it_is_there(world: Route) -> None:
    async with ingesting(world.kubeconfig, world.stream) as ingest:
        await until_watching(ingest)
        await until_recorded(world.stream, lists)
    assert bookmarks(await read_all(world.stream)) == []
    async with ingesting(world.kubeconfig, world.stream):
        records = await until_recorded(world.stream, bookmarks)
    assert not any(isinstance(each.record, GapNoted) for each in records)
    assert len(bookmarks(records)) == 1


async def test_watches_that_end_at_once_are_opened_less_and_less_often(
    world: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[timedelta]()
    failed = Backoff.failed

    def noting(self: Backoff, at_least: timedelta | None = None) -> timedelta:
        waits.append(failed(self, at_least))
        return waits[-1]

    async with ingesting(world.kubeconfig, world.stream) as ingest:
        await until_watching(ingest)
        await until_recorded(world.stream, lists)
    world.proxy.add(DropWatch(), WATCHES, times=None)
    monkeypatch.setattr(Backoff, "failed", noting)
    async with ingesting(world.kubeconfig, world.stream):
        await until(lambda: any(wait > FIRST for wait in waits), "a wait that is longer than the first")


async def test_a_list_older_than_half_the_retention_is_made_again_without_a_gap(world: Route) -> None:
    world.create("c")
    writer = world.stream.writer("ingest")
    resource, long_ago = CONFIG_MAPS.resource, datetime.now(UTC) - world.stream.max_age / 2
    markers: list[SyncStarted | SyncFinished] = [
        SyncStarted(resource=resource, sync_id="old", time=long_ago),
        SyncFinished(resource=resource, sync_id="old", version=Version(1), time=long_ago),
    ]
    for marker in markers:
        await BatchPublisher(world.stream).publish(writer.to_all_partitions(marker))
    async with ingesting(world.kubeconfig, world.stream):
        records = await until_recorded(world.stream, lambda records: lists(records) == 2)
    assert state_of(records).keys() == {"c"}
    assert gaps(records) == []


@pytest.mark.parametrize("is_running", [True, False])
async def test_invariant_13_a_list_that_the_log_has_lost_is_made_again_without_a_gap(
    world: Route, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_running: bool
) -> None:
    """Long before it is time to list again: pushed out by max_bytes, or all but its end."""

    def is_whole(records: Sequence[LoggedRecord]) -> bool:
        begun = {each.record.sync_id for each in records if isinstance(each.record, SyncStarted)}
        ended = {each.record.sync_id for each in records if isinstance(each.record, SyncFinished)}
        return bool(begun & ended) and {"quiet", "busy"} <= state_of(records).keys()

    for name in ("LOOK_EVERY", "LIST_APART"):
        monkeypatch.setattr(watcher, name, timedelta(milliseconds=100))
    world.create("quiet")
    after: Sequence[LoggedRecord] = ()
    async with ingesting(world.kubeconfig, world.stream):
        before = await until_recorded(world.stream, lists)
        if is_running:
            await push_out(world.stream)
            world.create("busy")
            after = await until_recorded(world.stream, is_whole)
    if not is_running:
        ends = next(each.sequence for each in before if isinstance(each.record, SyncFinished))
        await expire(world.stream, keep=await world.stream.last_sequence() - ends + 1)
        world.create("busy")
        async with ingesting(world.kubeconfig, world.stream):
            after = await until_recorded(world.stream, is_whole)
    assert gaps(after) == []
    assert "the log does not hold the last list of configmaps any more" in caplog.text


async def test_of_lists_side_by_side_the_log_holds_one_whose_beginning_it_has(nats_server: NatsServer) -> None:
    configmaps = CONFIG_MAPS.resource
    async with new_log(nats_server) as stream:
        for sync_id, is_end, holds in (("b", True, False), ("a", True, False), ("c", False, False), ("c", True, True)):
            record: SyncStarted | SyncFinished = SyncStarted(resource=configmaps, sync_id=sync_id, time=NOON)
            if is_end:
                record = SyncFinished(resource=configmaps, sync_id=sync_id, version=Version(1), time=NOON)
            await BatchPublisher(stream).publish(writer_for(stream).to_all_partitions(record))
            assert await holds_list(stream, configmaps) is holds


async def push_out(stream: LogStream) -> None:
    """Have more recorded than the log, which is small for a while, can keep."""
    await limit_bytes(stream, 50_000)
    publisher, writer = BatchPublisher(stream), writer_for(stream)
    for number in range(100):
        await publisher.publish([web_message(writer, "w", number, body=b'"%s"' % (b"x" * 1000))])
    await limit_bytes(stream, -1)


@pytest.mark.parametrize(
    "setting", [{"retention": "interest"}, {"max_msgs": 1000}], ids=lambda given: next(iter(given))
)
async def test_invariant_1_ingest_ends_once_the_log_would_drop_what_it_acknowledges(
    world: Route, monkeypatch: pytest.MonkeyPatch, setting: dict[str, Any]
) -> None:
    monkeypatch.setattr(ingest_, "VERIFY_EVERY", timedelta(milliseconds=100))
    async with await connect_kube(world.kubeconfig) as client:
        running = asyncio.create_task(Ingest(client, world.stream, [CONFIG_MAPS], Redactor()).run())
        await until_recorded(world.stream, lists)
        await change_settings(world.stream, **setting)
        with pytest.raises(ExceptionGroup) as raised:
            await asyncio.wait_for(running, timeout=60)
    assert raised.group_contains(ConfigurationError, match="is not as levelog needs it")


async def test_a_resource_that_is_not_served_is_waited_for_and_told_once(
    world: Route, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "levelog_ingest"):
        async with ingesting(world.kubeconfig, world.stream, CONFIG_MAPS, GIZMOS) as ingest:
            await until(
                lambda: [status.phase for status in ingest.snapshot()] == ["watching", "absent"],
                "gizmos to be found absent",
            )
            assert "waits for" in ingest.snapshot()[1].detail
            world.user.create(definition("Gizmo"))
            await until(
                lambda: [status.phase for status in ingest.snapshot()] == ["watching", "watching"],
                "gizmos to be watched",
            )
            assert ingest.snapshot()[1].detail == ""
    told = [record.getMessage() for record in caplog.records if "does not serve" in record.getMessage()]
    absent = "waits for gizmos.example.com: the cluster does not serve gizmos.example.com in version v1"
    assert told == [f"{absent}; install its CustomResourceDefinition"]


async def test_what_is_served_by_the_time_it_is_told_of_is_not_proposed_in_its_own_place(world: Route) -> None:
    world.user.create(definition("Gizmo"))
    async with await connect_kube(world.kubeconfig) as client:
        await until(lambda: resolve(client, "example.com", "v1", "gizmos"), "gizmos to be served")
        absent = await absence_of(client, "example.com", "v1", "gizmos", "Gizmo")
    assert absent == Absent(text="the cluster does not serve gizmos.example.com in version v1")


async def test_a_definition_that_is_deleted_is_told_once(world: Route, caplog: pytest.LogCaptureFixture) -> None:
    world.user.create(definition("Gizmo"))
    async with ingesting(world.kubeconfig, world.stream, GIZMOS) as ingest:
        await until_watching(ingest)
        caplog.clear()
        world.user.delete("customresourcedefinitions.apiextensions.k8s.io", "gizmos.example.com")
        await until(lambda: ingest.snapshot()[0].phase == "absent", "gizmos to be found absent")
    [told] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "waits for gizmos.example.com: " in told


async def test_a_missing_permission_names_verb_and_resource_and_is_tried_again(
    world: Route, caplog: pytest.LogCaptureFixture
) -> None:
    world.sandbox.access.denials += [Denial("watch", "configmaps"), Denial("list", "configmaps")]
    async with ingesting(world.kubeconfig, world.stream) as ingest:
        await until(lambda: ingest.snapshot()[0].phase == "forbidden", "the refusal to be noted")
        assert 'cannot watch resource "configmaps"' in ingest.snapshot()[0].detail
        assert any(record.levelno == logging.ERROR and "configmaps" in record.getMessage() for record in caplog.records)
        world.sandbox.access.denials.clear()
        await until_watching(ingest)
        await until_recorded(world.stream, lists)
    assert lists(await read_all(world.stream)) == 1


async def test_values_of_secrets_never_reach_the_log(world: Route) -> None:
    def secret(value: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "namespace": "default"},
            "stringData": {"password": value},
        }

    world.user.create(secret("hunter2-first"))
    redactor = Redactor(KEY)
    async with ingesting(world.kubeconfig, world.stream, SECRETS, redactor=redactor) as ingest:
        await until_watching(ingest)
        world.user.patch("secrets", "s", {"stringData": {"password": "hunter2-second"}})
        world.user.delete("secrets", "s")
        records = await until_recorded(
            world.stream, lambda records: any(isinstance(record.record, ObjectDeleted) for record in records)
        )
    bodies = [r.record.body for r in records if isinstance(r.record, (ObjectSeen, ObjectDeleted))]
    first, second, last = (msgspec.json.decode(body)["data"]["password"] for body in bodies)
    assert first != second == last
    for body in bodies:
        assert b"hunter2" not in body
        assert b"aHVudGVyMi" not in body  # in base64
    wanted = redactor.redact_manifest(SECRETS.resource, secret("hunter2-second"))
    assert wanted["stringData"]["password"] == second


async def test_secrets_without_a_key_are_refused(world: Route) -> None:
    async with await connect_kube(world.kubeconfig) as client:
        with pytest.raises(ConfigurationError, match="LEVELOG_REDACTION_KEY"):
            Ingest(client, world.stream, [SECRETS], Redactor())


async def test_a_resource_that_is_given_twice_is_refused(world: Route) -> None:
    once = WatchedResource(resource=CONFIG_MAPS.resource, version="v1", namespaces=("a",))
    async with await connect_kube(world.kubeconfig) as client:
        with pytest.raises(ConfigurationError, match="configmaps is to be watched twice"):
            Ingest(client, world.stream, [once, CONFIG_MAPS], Redactor())


async def test_several_namespaces_are_watched_side_by_side_and_resumed_each_where_it_was(world: Route) -> None:
    for name in ("east", "west"):
        world.user.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def put(name: str, namespace: str) -> None:
        manifest = config_map(name)
        manifest["metadata"]["namespace"] = namespace
        world.user.create(manifest)

    put("e", "east")
    put("w", "west")
    put("d", "default")
    both = WatchedResource(resource=CONFIG_MAPS.resource, version="v1", namespaces=("east", "west"))
    async with ingesting(world.kubeconfig, world.stream, both) as ingest:
        await until_watching(ingest)
        put("w-2", "west")
        put("d-2", "default")
        records = await until_recorded(world.stream, lambda records: "w-2" in state_of(records))
        assert state_of(records).keys() == {"e", "w", "w-2"}
    put("e-2", "east")
    world.user.delete("configmaps", "w", namespace="west")
    async with ingesting(world.kubeconfig, world.stream, both) as ingest:
        await until_recorded(world.stream, lambda records: state_of(records).keys() == {"e", "e-2", "w-2"})
        world.sandbox.end_watches()
        put("e-3", "east")
        put("w-3", "west")
        records = await until_recorded(world.stream, lambda records: {"e-3", "w-3"} <= state_of(records).keys())
    assert (lists(records), gaps(records)) == (1, [])
    # History that is missing in one of them is missing: both are listed again, in one list.
    world.user.delete("configmaps", "e", namespace="east")
    world.sandbox.compact()
    async with ingesting(world.kubeconfig, world.stream, both):
        records = await until_recorded(world.stream, lambda records: lists(records) == 2)
    assert state_of(records).keys() == {"e-2", "e-3", "w-2", "w-3"}
    fewer = WatchedResource(resource=CONFIG_MAPS.resource, version="v1", namespaces=("east",))
    async with ingesting(world.kubeconfig, world.stream, fewer):
        records = await until_recorded(world.stream, lambda records: lists(records) == 3)
    finished = [record.record for record in records if isinstance(record.record, SyncFinished)]
    assert finished[-1].namespaces == ("east",)


async def test_nothing_is_written_into_the_log_of_another_cluster(world: Route) -> None:
    other = await ensure_stream(world.stream.connection, Cluster("another"))
    async with await connect_kube(world.kubeconfig) as client:
        ingest = Ingest(client, other, [CONFIG_MAPS], Redactor())
        with pytest.raises(IdentityMismatch, match=f"is cluster {world.stream.cluster}, the log is of another"):
            await ingest.run()
    assert await other.last_sequence() == 0


async def test_invariant_1_nothing_is_missing_when_nats_is_killed_meanwhile(
    world: Route, nats_server: NatsServer
) -> None:
    async with ingesting(world.kubeconfig, world.stream) as ingest:
        await until_watching(ingest)
        for round_ in range(3):
            for number in range(100):
                world.create(f"c-{round_}-{number}")
                if number == 50:
                    nats_server.kill()
            world.delete(f"c-{round_}-7")
            await nats_server.start()
            await world.stream.connection.wait_connected()
        records = await until_recorded(world.stream, lambda records: len(state_of(records)) == 297)
    assert lists(records) == 1


async def test_invariant_13_an_empty_nats_is_noticed_and_filled_again(world: Route) -> None:
    for number in range(10):
        world.create(f"c-{number}")
    async with await connect_kube(world.kubeconfig) as client:
        ingest = Ingest(client, world.stream, [CONFIG_MAPS], Redactor())
        running = asyncio.create_task(ingest.run())
        await until_watching(ingest)
        await delete_stream(world.stream.connection, world.stream)
        world.create("late")
        with pytest.raises(BaseExceptionGroup) as raised:
            await asyncio.wait_for(running, timeout=60)
    assert raised.group_contains(IdentityMismatch, match="is gone")
    again = await ensure_stream(world.stream.connection, world.stream.cluster, partitions=4)
    async with ingesting(world.kubeconfig, again):
        records = await until_recorded(again, lists)
    assert len(state_of(records)) == 11


async def test_invariant_14_an_object_larger_than_nats_takes_is_recorded_by_its_metadata(tmp_path: Path) -> None:
    async with (
        NatsServer(settings="max_payload: 65536") as server,
        Sandbox() as sandbox,
        await connect(server.url) as connection,
    ):
        kubeconfig = sandbox.kubeconfig(tmp_path / "config")
        stream = await log_of(kubeconfig, connection)
        sandbox.user.create(config_map("large", value="x" * 70_000))
        sandbox.user.create(config_map("small", value="x"))
        async with ingesting(kubeconfig, stream):
            state = state_of(await until_recorded(stream, lists))
    assert state["small"]["data"] == {"value": "x"}
    assert "data" not in state["large"]
    assert "max_payload" in state["large"]["levelog/left-out"]["reason"]
    assert state["large"]["metadata"]["uid"]


async def test_progress_of_a_list_is_told_with_its_total(world: Route) -> None:
    for number in range(30):
        world.create(f"c-{number}")
    seen: list[tuple[str, int, int | None]] = []

    def note(status: ResourceStatus) -> None:
        seen.append((status.phase, status.objects, status.total))

    async with ingesting(world.kubeconfig, world.stream, on_change=note) as ingest:
        await until_watching(ingest)
    assert seen[0] == ("listing", 0, 30)
    assert ("watching", 30, 30) in seen
