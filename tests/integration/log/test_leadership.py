import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from nats.aio.msg import Msg

from levelog_base.errors import Unavailable
from levelog_base.wire.objects import Application
from levelog_log.leadership import Leadership
from levelog_log.leases import LEASE, LeaderRecord, Lease, holder_of
from levelog_log.stream import LogStream, open_stream
from levelog_log.transport.wire import Message
from rigs.assembled import cancel
from rigs.logs import new_log, proxied, restart
from rigs.nats import NatsServer
from rigs.waiting import until

APPLICATION = Application("shop")
SHORT = timedelta(seconds=1.5)


class Candidate:
    """A process that wants to lead, as a task."""

    def __init__(self, stream: LogStream, name: str, *, task: str = "ingest", lasts: timedelta = LEASE) -> None:
        self.begun = 0
        self.works = False
        self.leadership = Leadership(stream, APPLICATION, task, holder=name, lasts=lasts)
        self.running = asyncio.create_task(self.leadership.lead(self._work))

    async def _work(self) -> None:
        self.begun += 1
        self.works = True
        try:
            await asyncio.Event().wait()
        finally:
            self.works = False

    async def until_working(self, *, times: int = 1) -> None:
        await until(lambda: self.works and self.begun >= times, f"{self.leadership} to lead")

    async def until_idle(self) -> None:
        await until(lambda: not self.works, "the lead to be lost")

    async def stop(self) -> None:
        await cancel(self.running)


@asynccontextmanager
async def candidates(*of: tuple[LogStream, str], lasts: timedelta = LEASE) -> AsyncGenerator[list[Candidate]]:
    """Processes that want to lead, each of which had the time to do so before the next came."""
    made: list[Candidate] = []
    try:
        for stream, name in of:
            made.append(Candidate(stream, name, lasts=lasts))
            if len(made) == 1:
                await made[0].until_working()
        yield made
    finally:
        for candidate in made:
            await candidate.stop()


async def test_leases_get_their_stream_though_the_first_request_for_it_gets_lost(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_log(nats_server) as stream:
        lost: list[asyncio.Future[Msg]] = []
        send = stream.connection.client.ask

        async def ask(messages: Sequence[Message]) -> asyncio.Future[Msg]:
            if "STREAM.CREATE" not in messages[-1].subject or lost:
                return await send(messages)
            lost.append(asyncio.get_running_loop().create_future())
            return lost[0]

        monkeypatch.setattr(stream.connection.client, "ask", ask)
        assert await Lease(stream, APPLICATION, "ingest", holder="me").take() is None
        assert lost


async def test_one_leads_and_hands_over_at_once_when_it_ends(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "levelog_log"):
        async with new_log(nats_server) as stream, candidates((stream, "a"), (stream, "b")) as (first, second):
            await until(lambda: "stands by: a does ingest" in caplog.messages, "b to stand by")
            held = await holder_of(stream, APPLICATION, "ingest")
            assert held is not None
            assert held.holder == "a"
            assert not second.works
            await first.stop()
            await second.until_working()
            held = await holder_of(stream, APPLICATION, "ingest")
            assert held is not None
            assert held.holder == "b"
    assert caplog.messages.count("stands by: a does ingest") == 1


async def test_other_tasks_and_what_ends_by_itself_are_nobodys_business(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream, candidates((stream, "a")) as (first,):
        other = Candidate(stream, "b", task="source of prices")
        await other.until_working()
        assert first.works
        await other.stop()

        async def fails() -> None:
            raise ArithmeticError

        with pytest.raises(ArithmeticError):
            await Leadership(stream, APPLICATION, "third", holder="c").lead(fails)
        assert await holder_of(stream, APPLICATION, "third") is None


async def test_one_that_is_cut_off_stops_and_is_followed_and_comes_back_as_the_second(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream, proxied(nats_server) as (proxy, connection):
        behind = await open_stream(connection, stream.cluster)
        async with candidates((behind, "a"), (stream, "b"), lasts=SHORT) as (first, second):
            proxy.pause()
            await first.until_idle()
            await second.until_working()
            proxy.resume()
            await second.stop()
            await first.until_working(times=2)


async def test_one_leads_again_when_nats_began_anew(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream, candidates((stream, "a"), (stream, "b"), lasts=SHORT) as both:
        await restart(nats_server, stream)
        await until(
            lambda: holder_of(stream, APPLICATION, "ingest"), "somebody to lead", accept=lambda held: held is not None
        )
        await until(lambda: [each.works for each in both].count(True) == 1, "one of the two to work")


async def test_a_renewal_whose_answer_was_lost_is_found_to_be_ones_own(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream, proxied(nats_server) as (proxy, connection):
        lease = Lease(await open_stream(connection, stream.cluster), APPLICATION, "ingest", holder="a")
        assert await lease.take() is None
        proxy.on(b"PUB levelog-lease", "client", lambda lost: lost.lose_answer())
        with pytest.raises(Unavailable):
            await lease.renew()
        await connection.wait_connected()
        assert await lease.renew()
        held = await Lease(stream, APPLICATION, "ingest", holder="b").take()
        assert held is not None
        assert held.holder == "a"


async def test_a_lease_that_another_took_and_let_go_meanwhile_is_taken(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_log(nats_server) as stream:
        lease, other = (Lease(stream, APPLICATION, "ingest", holder=name) for name in "ab")
        read, turns = lease.message.read, [other.take, other.release]

        async def late() -> tuple[LeaderRecord | None, int]:
            found = await read()
            while turns:
                await turns.pop(0)()
            return found

        monkeypatch.setattr(lease.message, "read", late)
        assert await lease.take() is None
        held = await holder_of(stream, APPLICATION, "ingest")
        assert held is not None
        assert held.holder == "a"


async def test_one_that_died_while_the_clock_of_nats_was_ahead_is_followed(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        dead = Lease(stream, APPLICATION, "ingest", holder="dead", lasts=timedelta(days=30))  # as NATS counts it then
        assert await dead.take() is None
        follower = Candidate(stream, "b", lasts=SHORT)
        await follower.until_working()
        assert not await dead.renew()
        await follower.stop()
