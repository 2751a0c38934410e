import asyncio
from datetime import timedelta

from levelog.wire.objects import Application, Cluster
from levelog_log.hints import Hints, Topic
from levelog_log.transport.connection import connect
from rigs.logs import MOMENT, new_log, proxied
from rigs.nats import NatsServer
from rigs.tcpconnection import TcpConnection

APPLICATION = Application("shop")
LONG = timedelta(seconds=20)


async def test_a_hint_wakes_every_listener_of_its_topic_in_every_process(nats_server: NatsServer) -> None:
    async with (
        new_log(nats_server) as stream,
        await connect(nats_server.url) as elsewhere,
        Hints(stream.connection, stream.cluster, APPLICATION) as here,
        Hints(elsewhere, stream.cluster, APPLICATION) as there,
    ):
        listeners = [here.listen(Topic.WAKE), here.listen(Topic.WAKE), there.listen(Topic.WAKE)]
        other = there.listen(Topic.INTENT)
        await here.publish(Topic.WAKE)
        assert await asyncio.gather(*(listener.wait(LONG) for listener in listeners)) == [True, True, True]
        assert not await other.wait(MOMENT)


async def test_a_hint_that_came_before_the_wait_is_not_lost_and_counts_once(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream, Hints(stream.connection, stream.cluster, APPLICATION) as hints:
        hint, marker = hints.listen(Topic.WAKE), hints.listen(Topic.INTENT)
        for _ in range(3):
            await hints.publish(Topic.WAKE)
        await hints.publish(Topic.INTENT)
        assert await marker.wait(LONG)
        assert await hint.wait(MOMENT)
        assert not await hint.wait(MOMENT)


async def test_who_hints_the_others_is_not_woken_by_it(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream, Hints(stream.connection, stream.cluster, APPLICATION) as hints:
        own, other = hints.listen(Topic.WAKE), hints.listen(Topic.WAKE)
        await hints.publish(Topic.WAKE, but_not=own)
        assert await other.wait(LONG)
        assert not await own.wait(MOMENT)
        await hints.publish(Topic.WAKE, but_not=other)
        assert await own.wait(LONG)


async def test_who_loses_the_connection_while_beginning_to_listen_hears_what_comes_later(
    nats_server: NatsServer,
) -> None:
    async with proxied(nats_server) as (proxy, connection):
        proxy.on(b"SUB ", "client", TcpConnection.cut)
        async with Hints(connection, Cluster("cluster"), APPLICATION) as hints:
            hint, marker = hints.listen(Topic.WAKE), hints.listen(Topic.INTENT)
            await connection.wait_connected()
            assert await marker.wait(LONG)  # somebody may have hinted while it was away
            assert await hint.wait(LONG)
            await hints.publish(Topic.WAKE)
            assert await hint.wait(LONG)


async def test_applications_do_not_hear_each_other(nats_server: NatsServer) -> None:
    async with (
        new_log(nats_server) as stream,
        Hints(stream.connection, stream.cluster, APPLICATION) as mine,
        Hints(stream.connection, stream.cluster, Application("a.b c")) as others,
    ):
        hint = mine.listen(Topic.WAKE)
        theirs = others.listen(Topic.WAKE)
        await others.publish(Topic.WAKE)
        assert await theirs.wait(LONG)
        assert not await hint.wait(MOMENT)


async def test_everybody_looks_once_after_a_lost_connection(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream, Hints(stream.connection, stream.cluster, APPLICATION) as hints:
        hint = hints.listen(Topic.WAKE)
        nats_server.kill()
        await hint.wait(LONG)  # for the loss
        await hints.publish(Topic.WAKE)  # to nobody, and no error
        await nats_server.start()
        assert await hint.wait(LONG)
        await stream.connection.wait_connected()
        while await hint.wait(MOMENT):
            pass
        await hints.publish(Topic.WAKE)
        assert await hint.wait(LONG)
