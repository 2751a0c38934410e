"""A log of one's own on a running nats-server, and records to put into it."""

import secrets
from collections.abc import AsyncGenerator, Callable, Iterable
from collections.abc import Sequence as Many
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from levelog_base.wire.objects import Cluster, ObjectKey, Partition, Sequence, Uid, Version
from levelog_base.wire.records import LoggedRecord, ObjectSeen
from levelog_base.wire.subjects import lease_stream
from levelog_log.chains import ChainWriter
from levelog_log.messages import MessageWriter
from levelog_log.publisher import BatchPublisher
from levelog_log.reader import FIRST, Reader
from levelog_log.stream import LogStream, ensure_stream, open_stream
from levelog_log.transport.connection import Connection, connect
from levelog_log.transport.jetstream import StreamNames, ask
from levelog_log.transport.wire import Message
from rigs.nats import NatsServer
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MOMENT = timedelta(seconds=0.2)


@asynccontextmanager
async def new_log(server: NatsServer, *, partitions: int | None = None) -> AsyncGenerator[LogStream]:
    """The stream of a cluster that no other test has, on a connection that is closed at the end."""
    async with await connect(server.url) as connection:
        be_back_soon(connection)
        yield await ensure_stream(connection, Cluster(secrets.token_hex(8)), partitions=partitions)


@asynccontextmanager
async def proxied(server: NatsServer) -> AsyncGenerator[tuple[TcpProxy, Connection]]:
    """A proxy before a running nats-server, and a connection through it that is closed at the end."""
    async with TcpProxy(server.port) as proxy, await connect(proxy.url(server.url)) as connection:
        be_back_soon(connection)
        yield proxy, connection


def be_back_soon(connection: Connection) -> None:
    """Have a connection that broke try again sooner than after a second."""
    connection.client.options["reconnect_time_wait"] = 0.05


def writer_for(stream: LogStream) -> MessageWriter:
    """A writer of records of that log."""
    return stream.writer("test")


def web_message(writer: MessageWriter, name: str, version: int, *, body: bytes = b"{}") -> Message:
    """The message of a Web that was seen."""
    key = ObjectKey(group="example.com", resource="webs", namespace="default", name=name)
    seen = ObjectSeen(key=key, uid=Uid(f"uid-{name}"), version=Version(version), origin="watch", time=NOON, body=body)
    return writer.message(seen)


def linked(writer: ChainWriter, messages: Iterable[Message]) -> list[Message]:
    """The messages with their links, as they are published."""
    messages = list(messages)
    lines = writer.link(messages)
    return [each._replace(headers=each.headers + line) for each, line in zip(messages, lines, strict=True)]


async def publish_webs(
    stream: LogStream, count: int, version: int = 1, *, batch: int = 500, body: bytes = b"{}"
) -> None:
    """Publish so many Webs that were seen at a version, w-0 and so on, in batches, by a publisher of their own."""
    writer, publisher = writer_for(stream), BatchPublisher(stream)
    for start in range(0, count, batch):
        names = [f"w-{number}" for number in range(start, min(start + batch, count))]
        await publisher.publish([web_message(writer, name, version, body=body) for name in names])


async def restart(server: NatsServer, stream: LogStream, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Kill the server, do something to its files, start it again, and wait for the log's connection."""
    server.kill()
    meanwhile()
    await server.start()
    await stream.connection.wait_connected()


async def read_all(
    stream: LogStream, partitions: Many[Partition] | None = None, *, start: Sequence = FIRST
) -> list[LoggedRecord]:
    """Every record there is now, read with a reader of its own."""
    records: list[LoggedRecord] = []
    last = await stream.last_sequence()
    if not last:
        return records
    async with Reader(stream, start=start, partitions=partitions) as reader:

        async def is_read() -> bool:
            records.extend(await reader.next_batch(timeout=MOMENT))
            return await reader.confirm() >= last

        await until(is_read, f"the end of the log, {last}")
    return records


def names_and_versions(records: Iterable[LoggedRecord]) -> list[tuple[str, int]]:
    """What was seen, without control records."""
    return [
        (record.record.key.name, record.record.version) for record in records if isinstance(record.record, ObjectSeen)
    ]


async def delete_stream(connection: Connection, stream: LogStream) -> None:
    """Remove the stream with all that it holds."""
    await connection.request(f"$JS.API.STREAM.DELETE.{stream.name}")


async def deletable(stream: LogStream) -> LogStream:
    """The stream made anew without `deny_delete`, which cannot be taken back."""
    config = {**await settings_of(stream), "deny_delete": False}
    await delete_stream(stream.connection, stream)
    await stream.connection.request(f"$JS.API.STREAM.CREATE.{stream.name}", msgspec.json.encode(config))
    return await open_stream(stream.connection, stream.cluster)


async def delete_records(stream: LogStream, *sequences: int) -> None:
    """Remove records in the middle, as a fault of NATS does; the stream has to be a `deletable` one."""
    for sequence in sequences:
        step = f"$JS.API.STREAM.MSG.DELETE.{stream.name}"
        answer = await stream.connection.request(step, b'{"seq":%d}' % sequence)
        if "error" in msgspec.json.decode(answer.data):
            raise AssertionError(f"record {sequence} was not deleted: {answer.data!r}")


async def forget_leases(server: NatsServer) -> None:
    """Let all leases on NATS end now, as those of killed processes do later; who is there takes its own anew."""
    async with await connect(server.url) as connection:
        names = await ask(connection, "STREAM.NAMES", None, StreamNames)
        for name in names.streams or ():
            if name.startswith(lease_stream(Cluster(""))):
                await connection.request(f"$JS.API.STREAM.PURGE.{name}")


async def expire(stream: LogStream, *, keep: int) -> None:
    """Let NATS remove all records but the newest, in the way in which it removes what is too old or too much.

    Expiry by age takes as long as the age; a limit removes the oldest in the same way.
    """
    for limit in (keep, -1):
        await change_settings(stream, max_msgs=limit)


async def limit_bytes(stream: LogStream, most: int) -> None:
    """Let the log keep so many bytes from now on."""
    await change_settings(stream, max_bytes=most)


async def settings_of(stream: LogStream) -> dict[str, Any]:
    """The stream's settings, as NATS tells them."""
    info = await stream.connection.request(f"$JS.API.STREAM.INFO.{stream.name}")
    config: dict[str, Any] = msgspec.json.decode(info.data)["config"]
    return config


async def change_settings(stream: LogStream, **settings: Any) -> None:
    """Edit the stream, as `nats stream edit` does."""
    config = {**await settings_of(stream), **settings}
    answer = await stream.connection.request(f"$JS.API.STREAM.UPDATE.{stream.name}", msgspec.json.encode(config))
    if "error" in msgspec.json.decode(answer.data):
        raise AssertionError(f"the settings {settings} are refused: {answer.data!r}")
