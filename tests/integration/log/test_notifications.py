import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from levelog_base.wire.objects import Application, Cluster
from levelog_log.notifications import Notifier, Topic
from levelog_log.transport.connection import connect
from rigs.logs import MOMENT, new_log, proxied
from rigs.nats import NatsServer
from rigs.tcpconnection import TcpConnection

APPLICATION = Application("shop")
LONG = timedelta(seconds=20)


@pytest.fixture
async def notifier(nats_server: NatsServer) -> AsyncIterator[Notifier]:
    async with new_log(nats_server) as stream, Notifier(stream.connection, stream.cluster, APPLICATION) as opened:
        yield opened


async def test_a_notification_wakes_every_listener_of_its_topic_in_every_process(nats_server: NatsServer) -> None:
    async with (
        new_log(nats_server) as stream,
        await connect(nats_server.url) as elsewhere,
        Notifier(stream.connection, stream.cluster, APPLICATION) as here,
        Notifier(elsewhere, stream.cluster, APPLICATION) as there,
    ):
        listeners = [here.listen(Topic.WAKE), here.listen(Topic.WAKE), there.listen(Topic.WAKE)]
        other = there.listen(Topic.INTENT)
        await here.publish(Topic.WAKE)
        assert await asyncio.gather(*(listener.wait(LONG) for listener in listeners)) == [True, True, True]
        assert not await other.wait(MOMENT)


async def test_a_notification_that_came_before_the_wait_is_not_lost_and_counts_once(notifier: Notifier) -> None:
    listener, marker = notifier.listen(Topic.WAKE), notifier.listen(Topic.INTENT)
    for _ in range(3):
        await notifier.publish(Topic.WAKE)
    await notifier.publish(Topic.INTENT)
    assert await marker.wait(LONG)
    assert await listener.wait(MOMENT)
    assert not await listener.wait(MOMENT)


async def test_who_notifies_the_others_is_not_woken_by_it(notifier: Notifier) -> None:
    own, other = notifier.listen(Topic.WAKE), notifier.listen(Topic.WAKE)
    await notifier.publish(Topic.WAKE, but_not=own)
    assert await other.wait(LONG)
    assert not await own.wait(MOMENT)
    await notifier.publish(Topic.WAKE, but_not=other)
    assert await own.wait(LONG)


async def test_who_loses_the_connection_while_beginning_to_listen_hears_what_comes_later(
    nats_server: NatsServer,
) -> None:
    async with proxied(nats_server) as (proxy, connection):
        proxy.on(b"SUB ", "client", TcpConnection.cut)
        async with Notifier(connection, Cluster("cluster"), APPLICATION) as notifier:
            listener, marker = notifier.listen(Topic.WAKE), notifier.listen(Topic.INTENT)
            await connection.wait_connected()
            assert await marker.wait(LONG)  # somebody may have notified while it was away
            assert await listener.wait(LONG)
            await notifier.publish(Topic.WAKE)
            assert await listener.wait(LONG)


async def test_applications_do_not_hear_each_other(nats_server: NatsServer) -> None:
    async with (
        new_log(nats_server) as stream,
        Notifier(stream.connection, stream.cluster, APPLICATION) as mine,
        Notifier(stream.connection, stream.cluster, Application("a.b c")) as others,
    ):
        listener = mine.listen(Topic.WAKE)
        theirs = others.listen(Topic.WAKE)
        await others.publish(Topic.WAKE)
        assert await theirs.wait(LONG)
        assert not await listener.wait(MOMENT)


async def test_everybody_looks_once_after_a_lost_connection(nats_server: NatsServer) -> None:
    async with (
        new_log(nats_server) as stream,
        Notifier(stream.connection, stream.cluster, APPLICATION) as notifier,
    ):
        listener = notifier.listen(Topic.WAKE)
        nats_server.kill()
        await listener.wait(LONG)  # for the loss
        await notifier.publish(Topic.WAKE)  # to nobody, and no error
        await nats_server.start()
        assert await listener.wait(LONG)
        await stream.connection.wait_connected()
        while await listener.wait(MOMENT):
            pass
        await notifier.publish(Topic.WAKE)
        assert await listener.wait(LONG)
