"""A write comes back as two records, what it changed and its receipt: one waits a moment for the other."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest

from levelog.wire.objects import Application
from levelog.wire.objects import Sequence as LogSequence
from levelog.wire.records import LoggedRecord, ObjectSeen, ReceiptNoted
from levelog_actuator.relay import Relay
from levelog_log.messages import MessageWriter
from levelog_log.notifications import Listener
from levelog_log.publisher import BatchPublisher
from levelog_log.reader import Reader
from levelog_processors import waiting
from levelog_processors.engine import Engine
from levelog_processors.fold.batches import Folded
from levelog_processors.program import Program
from levelog_processors.waiting import Arrivals
from levelog_sandbox import Sandbox
from levelog_store.actuate.claims import Claimant
from levelog_store.tables import levels
from rigs.intents import intent
from rigs.levelog import define_webs
from rigs.logs import new_log, web_message, writer_for
from rigs.nats import NatsServer
from rigs.shown import Web, shown_webs
from rigs.together import together
from rigs.waiting import until
from rigs.webs import receipt

LONG: Final = timedelta(minutes=1)
"""A moment for the tests: what waits for it to pass is cut off long before."""
CHANGES: Final = 5


class Writing:
    """An actuator, as far as who waits for its records asks it."""

    def __init__(self, *, is_writing: bool) -> None:
        self.is_writing = is_writing


def receipt_message(writer: MessageWriter) -> Any:
    return writer.message(receipt(intent("pods/default/a", attempts=1)))


def kinds(records: Sequence[LoggedRecord]) -> list[type]:
    return [type(each.record) for each in records]


@pytest.mark.parametrize("is_receipt_first", [False, True], ids=["the change first", "the receipt first"])
async def test_the_one_that_comes_first_waits_for_the_other(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, is_receipt_first: bool
) -> None:
    monkeypatch.setattr(waiting, "MOMENT", LONG)
    async with new_log(nats_server) as stream:
        publisher, writer = BatchPublisher(stream), writer_for(stream)
        first, second = web_message(writer, "shop", 1), receipt_message(writer)
        if is_receipt_first:
            first, second = second, first
        claimant = cast("Claimant", Writing(is_writing=True))
        async with Reader(stream, start=LogSequence(1)) as reader, asyncio.timeout(30):
            arrivals = Arrivals(reader, Listener())
            await publisher.publish([first])
            await arrivals.wait(LONG)
            alone = await arrivals.records()
            completing = asyncio.create_task(arrivals.completed(alone, claimant))
            await publisher.publish([second])
            both = await completing
    assert (len(alone), arrivals.seen_to) == (1, 2)
    assert set(kinds(both)) == {ObjectSeen, ReceiptNoted}


async def test_a_change_waits_for_nothing_while_nobody_writes_nor_once_both_are_there(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOMENT", LONG)
    async with new_log(nats_server) as stream:
        publisher, writer = BatchPublisher(stream), writer_for(stream)
        await publisher.publish([web_message(writer, "shop", 1), receipt_message(writer)])
        async with Reader(stream, start=LogSequence(1)) as reader, asyncio.timeout(30):
            arrivals = Arrivals(reader, Listener())
            both: list[LoggedRecord] = []
            while len(both) < 2:
                await arrivals.wait(LONG)
                both += await arrivals.records()
            assert await arrivals.completed(both, cast("Claimant", Writing(is_writing=True))) == both
            changed = [each for each in both if isinstance(each.record, ObjectSeen)]
            assert await arrivals.completed(changed, cast("Claimant", Writing(is_writing=False))) == changed


async def test_the_other_one_is_waited_for_no_longer_than_a_moment(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        await BatchPublisher(stream).publish([web_message(writer_for(stream), "shop", 1)])
        async with Reader(stream, start=LogSequence(1)) as reader, asyncio.timeout(30):
            arrivals = Arrivals(reader, Listener())
            await arrivals.wait(LONG)
            alone = await arrivals.records()
            assert await arrivals.completed(alone, cast("Claimant", Writing(is_writing=True))) == alone


async def test_a_processor_folds_a_receipt_together_with_what_the_write_changed(
    nats_server: NatsServer, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOMENT", LONG)
    folded: list[list[type]] = []

    fold = Engine.fold

    def noted(engine: Engine, records: list[LoggedRecord]) -> Folded:
        folded.append(kinds(records))
        return fold(engine, records)

    seen, echo_at = 0, 0
    records, flush = Arrivals.records, Relay.flush

    async def counted(arrivals: Arrivals) -> list[LoggedRecord]:
        nonlocal seen
        found = await records(arrivals)
        seen += kinds(found).count(ObjectSeen)
        return found

    async def is_echo_read() -> bool:
        return seen >= echo_at

    async def late(relay: Relay) -> None:
        if relay.is_publishing:
            await until(is_echo_read, "the echo of a write read before its receipt is sent")
        await flush(relay)

    monkeypatch.setattr(Arrivals, "records", counted)
    monkeypatch.setattr(Relay, "flush", late)
    monkeypatch.setattr(Engine, "fold", noted)
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        kubeconfig, halves = sandbox.kubeconfig(tmp_path / "kubeconfig"), Application("halves")
        program = Program([shown_webs("halves")])
        async with together(kubeconfig, nats_server.url, database_url, halves, program, [Web]) as running:
            for replicas in range(1, CHANGES + 1):
                echo_at = seen + 2  # the change, and what was written for it
                spec = {"replicas": replicas, "image": "a"}
                metadata = {"name": "a", "namespace": "default"}
                sandbox.user.apply({"apiVersion": "example.com/v1", "kind": "Web", "metadata": metadata, "spec": spec})

                async def is_shown(wanted: int = replicas) -> bool:
                    running.check()
                    async with running.database.reading() as connection:
                        rows = (await connection.execute(levels.select())).all()
                    return [(row.status, msgspec.json.decode(row.desired)) for row in rows] == [("in_sync", wanted)]

                await until(is_shown, "a level in sync with the change")
    told = [each for each in folded if ReceiptNoted in each]
    assert len(told) == CHANGES
    assert all(ObjectSeen in each for each in told), told
