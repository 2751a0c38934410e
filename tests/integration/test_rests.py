"""Records that only end writes wait for others, to share a pass, unless more than the end follows from such."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from levelog import Intent, Level, Operator, patch_status
from levelog.wire.objects import Application
from levelog.wire.objects import Sequence as LogSequence
from levelog.wire.records import LoggedRecord, ObjectSeen, ReceiptNoted
from levelog_log.notifications import Listener
from levelog_log.publisher import BatchPublisher
from levelog_log.reader import Reader
from levelog_processors import waiting
from levelog_processors.decide.tally import EvaluationBatch
from levelog_processors.engine import Engine
from levelog_processors.fold.batches import Folded
from levelog_processors.program import Program
from levelog_processors.waiting import REST, RESYNC, Arrivals, Schedule
from levelog_sandbox import Sandbox
from levelog_store.tables import levels
from rigs.intents import intent
from rigs.levelog import define_webs
from rigs.logs import new_log, web_message, writer_for
from rigs.nats import NatsServer
from rigs.shown import Web, shown_webs
from rigs.together import together
from rigs.waiting import until
from rigs.webs import receipt

MINUTE: Final = timedelta(minutes=1)
"""What waits for its end is cut off long before."""
STEPS: Final = 6


async def test_the_end_of_a_write_is_joined_by_what_comes_next(nats_server: NatsServer) -> None:
    async with new_log(nats_server) as stream:
        publisher, writer = BatchPublisher(stream), writer_for(stream)
        noted = writer.message(receipt(intent("webs.example.com/default/shop", attempts=1), version=7))
        await publisher.publish([web_message(writer, "shop", 7), noted])
        async with Reader(stream, start=LogSequence(1)) as reader, asyncio.timeout(30):
            listener = Listener()
            arrivals = Arrivals(reader, listener)
            ended: list[LoggedRecord] = []
            while len(ended) < 2:
                await arrivals.wait(MINUTE)
                ended += await arrivals.records()
            joining = asyncio.create_task(arrivals.joined(ended, MINUTE))
            await publisher.publish([web_message(writer, "hall", 8)])
            joined = await joining
            assert [each.sequence for each in joined] == [1, 2, 3]
            assert arrivals.seen_to == 3
            assert await arrivals.joined(joined, MINUTE) == joined  # there is more than ends
            assert await arrivals.joined(ended[:1], MINUTE) == ended[:1]  # of a write without its receipt
            assert await arrivals.joined(ended, timedelta(0)) == ended
            resting = asyncio.create_task(arrivals.joined(ended, MINUTE))
            listener.notify()
            assert await resting == ended
            assert await listener.wait(MINUTE), "the notification is still there for the next one"


async def test_ends_of_writes_wait_for_nothing_while_more_may_follow_from_them() -> None:
    schedule = Schedule()
    assert schedule.rest == timedelta(0), "there may be wakeups to decide on"
    schedule.close()
    schedule.resynced()
    assert schedule.rest == REST
    now = datetime.now(UTC)
    schedule.plan(now + REST / 2, now)
    assert schedule.rest < REST, "a level is due before that"
    schedule.plan(None, now)
    schedule.note(EvaluationBatch(False, [], at=now))
    assert schedule.rest == REST
    schedule.note(EvaluationBatch(False, [], at=now, has_news=True))
    assert schedule.rest == timedelta(0)


@pytest.mark.parametrize("has_conditions", [False, True], ids=["a write for each step", "a condition"])
async def test_writes_that_lead_to_others_rest_once(
    nats_server: NatsServer, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, has_conditions: bool
) -> None:
    rests: list[timedelta] = []
    joined = Arrivals.joined

    async def noting(arrivals: Arrivals, records: list[LoggedRecord], rest: timedelta) -> list[LoggedRecord]:
        found = await joined(arrivals, records, rest)
        if {type(each.record) for each in records} == {ObjectSeen, ReceiptNoted}:
            rests.append(rest)
        return found

    monkeypatch.setattr(Arrivals, "joined", noting)
    # however busy the machine is, a write and its receipt are read together, and the next step comes soon
    monkeypatch.setattr(waiting, "MOMENT", MINUTE)
    monkeypatch.setattr(waiting, "HURRY", MINUTE)
    op = Operator("steps")

    @op.view
    def step(web: Web) -> Level[int]:
        return Level(min(web.spec.replicas, web.status.replicas + 1), web.status.replicas)

    @op.reconcile(step)
    def show(web: Web, level: Level[int]) -> Iterator[Intent]:
        yield patch_status(web, {"replicas": level.desired})

    if has_conditions:
        op.conditions(Web)
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        kubeconfig, program = sandbox.kubeconfig(tmp_path / "kubeconfig"), Program([op])
        async with together(kubeconfig, nats_server.url, database_url, Application("steps"), program, [Web]) as running:
            sandbox.user.create(_web(STEPS))

            async def is_done() -> bool:
                running.check()
                async with running.database.reading() as connection:
                    rows = (await connection.execute(levels.select().where(levels.c.view == "steps/step"))).all()
                return [(row.status, msgspec.json.decode(row.desired)) for row in rows] == [("in_sync", STEPS)]

            await until(is_done, "the last step")
    assert len(rests) >= STEPS - 1
    assert len([rest for rest in rests if rest]) <= 1, rests


async def test_a_change_that_comes_soon_is_folded_with_the_end_of_the_write_before(
    nats_server: NatsServer, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded: list[list[LoggedRecord]] = []
    fold = Engine.fold

    def noting(engine: Engine, records: list[LoggedRecord]) -> Folded:
        folded.append(records)
        return fold(engine, records)

    monkeypatch.setattr(Engine, "fold", noting)
    monkeypatch.setattr(waiting, "MOMENT", MINUTE)
    monkeypatch.setattr(waiting, "REST", RESYNC)
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        kubeconfig, program = sandbox.kubeconfig(tmp_path / "kubeconfig"), Program([shown_webs("soon")])
        async with together(kubeconfig, nats_server.url, database_url, Application("soon"), program, [Web]) as running:
            for replicas in range(1, STEPS + 1):
                sandbox.user.apply(_web(replicas))

                async def is_shown(wanted: int = replicas) -> bool:
                    running.check()
                    return (_status(sandbox) or {}).get("replicas") == wanted

                await until(is_shown, "the status of the change")
    shared = [each for each in folded if {ObjectSeen, ReceiptNoted} == {type(logged.record) for logged in each}]
    assert any(len(each) > 2 for each in shared), "a change shares its pass with the end of the write before"


def _web(replicas: int) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "default"}
    return {
        "apiVersion": "example.com/v1",
        "kind": "Web",
        "metadata": metadata,
        "spec": {"image": "a", "replicas": replicas},
    }


def _status(sandbox: Sandbox) -> dict[str, Any] | None:
    found: dict[str, Any] | None = sandbox.user.get("webs.example.com", "a").get("status")
    return found
