"""Record handlers: called for each, in order for each object, at least once; a poisoned one holds up no other."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import update

from levelog import Operator, Retry
from levelog_base.errors import LeaseLost
from levelog_base.wire.objects import Sequence
from levelog_base.wire.records import LoggedRecord
from levelog_base.wire.subjects import partition_of
from levelog_log.notifications import Topic
from levelog_processors import loop
from levelog_processors.deliver import unrecorded
from levelog_processors.deliver.delivery import Delivery
from levelog_processors.program import Program
from levelog_store.fold.checkpoints import read_points
from levelog_store.fold.levelwrites import retry_levels
from levelog_store.look.levelpages import LevelQuery, read_level_lines
from levelog_store.owners.leases import Leases
from levelog_store.tables import call_positions, leases, levels, wakeups
from rigs.kinds import web as shop
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.simulated import simulated
from rigs.typed import Web
from rigs.waiting import until
from rigs.webs import NOON, WEBS, deleted, web

MINUTE = timedelta(minutes=1)


class Told:
    """An operator whose handlers write down what they are told; those for objects in `failing` raise."""

    def __init__(self, op: Operator | None = None, **limits: Any) -> None:
        self.op = op = op or Operator("webs")
        self.records: dict[str, list[Any]] = defaultdict(list)
        self.others: list[str] = []
        self.failing: dict[str, BaseException] = {}
        self.hanging: dict[str, asyncio.Event] = {}
        self.cancelling: set[str] = set()
        """Objects whose function cancels its task."""
        self.filtering: Callable[[Web], object] = lambda _: True
        self.retries: list[int] = []

        def is_chosen(web: Web) -> object:
            return self.filtering(web)

        @op.on.event(when=is_chosen, **limits)
        async def record(web: Web, is_deleted: bool, retry: int, sequence: int) -> None:
            self.retries.append(retry)
            if (task := asyncio.current_task()) and web.metadata.name in self.cancelling:
                task.cancel()
                await asyncio.sleep(0)
            if event := self.hanging.get(web.metadata.name):
                await event.wait()
            if error := self.failing.get(web.metadata.name):
                raise error
            self.records[web.metadata.name].append("deleted" if is_deleted else web.spec.replicas)

        @op.on.event(of=Web, labels={"other": "yes"})
        def other(web: Mapping[str, Any], origin: str, recorded_at: datetime, idempotency_key: str) -> None:
            assert origin in ("list", "watch")
            self.others.append(web["metadata"]["name"])

        self.record, self.other = record, other


def expired(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said of records that have expired."""
    return [record.message for record in caplog.records if "was not called" in record.message]


async def wait_for(told: Callable[[], object], what: str) -> None:
    await until(lambda: bool(told()), what)


async def test_each_record_is_told_in_order_and_a_restart_goes_on_behind_them(processing: partial[Processing]) -> None:
    told = Told()
    async with processing([told.op]) as stack:
        first = web("a", 1, replicas=1, labels={"other": "yes"})
        await stack.listed(first, version=1, of=[WEBS])
        stack.start()
        await stack.tell(web("a", 2, replicas=3), web("a", 3, replicas=2), web("a", 4, replicas=3), deleted(first, 5))
        await wait_for(lambda: len(told.records["a"]) == 5 and len(told.others) == 2, "five records of a")
        assert told.records["a"] == [1, 3, 2, 3, "deleted"]
        assert told.others == ["a", "a"]  # the deletion shows the first body again

        async def are_stored() -> bool:
            return any(row["position"] >= 5 for row in await stack.rows(call_positions))

        await until(are_stored, "positions")
        await stack.stop()
        await stack.tell(web("b", 6, replicas=6))  # while nothing runs
        stack.start()
        await wait_for(lambda: told.records["b"], "the record of b")
        assert told.records == {"a": [1, 3, 2, 3, "deleted"], "b": [6]}


def exits(web: Web) -> object:
    if web.metadata.name == "bad":
        raise SystemExit(3)
    return True


def computes_for_ever(web: Web) -> object:
    while web.metadata.name == "bad":
        pass
    return True


@pytest.mark.parametrize(
    ("way", "status", "said"),
    [
        ("raises", "failed", "event handler record: ValueError: poison"),
        ("hangs", "settling", "is being called"),
        ("cancels its task", "failed", "event handler record: cancelled itself"),
        (exits, "failed", "event handler record: called sys.exit(3)"),
        (computes_for_ever, "failed", "event handler record: took longer than 0.1 s and was ended"),
    ],
    ids=["raises", "hangs", "cancels its task", "filter exits", "filter hangs"],
)
async def test_invariant_14_a_poisoned_object_is_shown_and_holds_up_no_other_one(
    processing: partial[Processing],
    monkeypatch: pytest.MonkeyPatch,
    way: str | Callable[[Web], object],
    status: str,
    said: str,
) -> None:
    told = Told(backoff=timedelta(milliseconds=100))
    release = asyncio.Event()
    match way:
        case "raises":
            told.failing["bad"] = ValueError("poison")
        case "hangs":
            told.hanging["bad"] = release
        case str():
            told.cancelling.add("bad")
        case _:
            monkeypatch.setattr(unrecorded, "VIEW_TIME", timedelta(milliseconds=100))
            told.filtering = way
    async with processing([told.op]) as stack:
        await stack.listed(web("bad", 1, replicas=1), web("good", 2, replicas=1), version=2, of=[WEBS])
        stack.start()
        await wait_for(lambda: told.records["good"], "the other object")
        await stack.tell(web("bad", 3, replicas=2), web("good", 4, replicas=2), web("bad", 5, replicas=3))
        await wait_for(lambda: len(told.records["good"]) == 2, "the other object again")

        async def is_shown() -> bool:
            async with stack.database.reading() as connection:
                lines = await read_level_lines(connection, stack.scope, LevelQuery(view="record", name="bad"))
            return [(line.status, said in line.reason) for line in lines] == [(status, True)]

        await until(is_shown, "the object that is held")
        assert told.records["bad"] == []
        told.failing.clear()
        told.cancelling.clear()
        told.filtering = lambda _: True
        release.set()
        await wait_for(lambda: len(told.records["bad"]) == 3, "its records")
        assert told.records["bad"] == [1, 2, 3]
        await until(lambda: stack.rows(levels), "nothing held", accept=lambda found: not found)
        await stack.tell(web("bad", 6, replicas=4))
        await wait_for(lambda: told.records["bad"] == [1, 2, 3, 4], "the next one at once")


async def test_who_takes_a_partition_over_goes_on_and_who_lost_it_stores_nothing(
    nats_server: NatsServer, postgres_url: str
) -> None:
    told = Told(backoff=timedelta(milliseconds=100))
    told.failing["shop-0"] = ValueError("poison")
    async with Processing(nats_server.url, postgres_url, [told.op]) as stack:
        await stack.listed(*(web(f"shop-{n}", 1 + n) for n in range(20)), version=20, of=[WEBS])
        stack.start("one")
        await wait_for(lambda: len(told.records) >= 19, "all but one")
        await stack.start_more("two")
        await stack.tell(*(web(f"shop-{n}", 30 + n, replicas=2) for n in range(20)))
        await wait_for(lambda: sum(2 in each for each in told.records.values()) == 19, "both processors")
        await stack.stop("one")
        told.failing.clear()
        await stack.tell(*(web(f"shop-{n}", 60 + n, replicas=3) for n in range(20)))
        await wait_for(lambda: sum(3 in each for each in told.records.values()) == 20, "all of them")
        for seen in told.records.values():
            assert list(dict.fromkeys(seen)) == [1, 2, 3]  # at least once, in order


async def test_invariant_10_who_lost_its_partitions_moves_no_position(processing: partial[Processing]) -> None:
    told = Told()
    async with processing([told.op]) as stack:
        owned = replace(stack.scope, owner="one")
        epochs = await Leases(stack.database, owned, owner="one").tend()

        async def nothing(*_: object) -> tuple[list[LoggedRecord], None]:
            return [], None

        delivery = Delivery(stack.database, owned, stack.program, nothing)
        await delivery.hold(epochs)
        async with stack.database.transaction() as connection:
            await connection.execute(update(leases).values(epoch=leases.c.epoch + 1, owner="two"))
        record = web("a", 1)
        partition = partition_of(record.key, stack.scope.partitions)
        logged = LoggedRecord(sequence=Sequence(9), partition=partition, record_id="9", record=record)
        with pytest.raises(LeaseLost):
            await delivery.deliver([logged], 9)
        await delivery.close()
        assert {row["position"] for row in await stack.rows(call_positions)} == {0}


async def test_a_new_handler_begins_where_the_tables_are_or_in_the_past(processing: partial[Processing]) -> None:
    told = Told()
    before = Operator("webs")

    @before.index
    def names(web: Web) -> dict[str, int]:
        return {web.metadata.name: 1}

    async with processing([before]) as stack:
        await stack.begin(web("a", 1), version=1, of=[WEBS])
        await stack.stop()
        stack.program = Program([told.op])
        await stack.open()
        stack.start()
        await stack.tell(web("a", 2, replicas=2))
        await wait_for(lambda: told.records["a"], "what is new")
        assert told.records["a"] == [2]
        await stack.tell(web("b", 3, labels={"other": "yes"}))
        await wait_for(lambda: told.others, "a record of the other handler")
        await stack.stop()
        stack.start(events_from=0)
        await stack.tell(web("a", 4, replicas=4))
        await wait_for(lambda: 4 in told.records["a"], "what is newer")
        assert list(dict.fromkeys(told.records["a"])) == [2, 4], "it goes on from the position that it has"
        assert await stack.stream.position_before(NOON) == 0
        assert await stack.stream.position_before(NOON + MINUTE) == await stack.stream.last_sequence()


async def test_records_that_expired_are_an_error_that_names_the_handler_and_the_next_ones_are_told(
    processing: partial[Processing], caplog: pytest.LogCaptureFixture
) -> None:
    told, before, lost = Told(), Operator("webs"), list[str]()

    @before.index
    def names(web: Web) -> dict[str, int]:
        return {web.metadata.name: 1}

    async with processing([before]) as stack:
        last = await stack.listed(web("a", 1), web("a", 2, replicas=2), version=2, of=[WEBS])
        stack.start()
        await stack.folded(last)
        await stack.stop()
        await stack.expire(last)
        stack.program = Program([told.op])
        await stack.open()
        with caplog.at_level(logging.ERROR):
            stack.start(events_from=1).count_by(lambda *_: None, lost.append)
            await stack.tell(web("a", 3, replicas=3), web("b", 4, replicas=4))
            await wait_for(lambda: told.records["b"], "what did not expire")
        assert told.records == {"a": [3], "b": [4]}
        assert [each.partition(":")[0] for each in expired(caplog)] == [
            f"webs/{name} was not called for records 2 to {last}, which have expired" for name in ("other", "record")
        ]
        assert lost == ["webs/other", "webs/record"]

        async def are_passed() -> bool:
            return all(row["position"] > last for row in await stack.rows(call_positions))

        await until(are_passed, "positions behind what expired")


async def test_records_of_a_held_object_that_expired_are_an_error_that_names_it(
    processing: partial[Processing], caplog: pytest.LogCaptureFixture
) -> None:
    told = Told(backoff=timedelta(hours=1))
    told.failing["bad"] = ValueError("poison")
    async with processing([told.op]) as stack:
        last = await stack.listed(web("bad", 1), web("bad", 2, replicas=2), version=2, of=[WEBS])
        stack.start()
        held: list[dict[str, Any]] = []

        async def is_held() -> bool:
            held[:] = await stack.rows(levels)
            return [row["status"] for row in held] == ["failed"]

        await until(is_held, "the object held")
        await stack.folded(last)
        await stack.expire(last)
        last = await stack.listed(web("bad", 3, replicas=3), web("good", 4, replicas=4), version=4, of=[WEBS])
        await wait_for(lambda: told.records["good"], "the other object")
        await stack.folded(last)
        await stack.stop()
        told.failing.clear()
        with caplog.at_level(logging.ERROR):
            stack.start()
            await wait_for(lambda: told.records["bad"], "what did not expire")
        assert told.records["bad"] == [3]
        assert set(told.records["good"]) == {4}  # twice, if it was stopped before that was stored
        name, sequence = "webs.example.com/default/bad", held[0]["position"]
        assert expired(caplog) == [
            f"webs/record was not called for records of {name} from {sequence} on, which have expired"
        ]


async def test_records_that_expire_while_a_call_for_their_object_hangs_are_an_error_that_names_it(
    processing: partial[Processing], caplog: pytest.LogCaptureFixture
) -> None:
    told, release, lost = Told(), asyncio.Event(), list[str]()
    told.hanging["bad"] = release
    async with processing([told.op]) as stack:
        await stack.listed(web("bad", 1), version=1, of=[WEBS])
        stack.start().count_by(lambda *_: None, lost.append)
        await wait_for(lambda: told.retries, "the first call")
        passed = await stack.tell(web("bad", 2, replicas=2))
        last = await stack.tell(web("bad", 3, replicas=3), web("good", 4, replicas=4))
        await wait_for(lambda: told.records["good"], "the other object")
        await stack.folded(last)
        await stack.expire(last)
        await stack.tell(web("bad", 5, replicas=5), web("good", 6, replicas=6))
        await wait_for(lambda: len(told.records["good"]) == 2, "the other object again")
        with caplog.at_level(logging.ERROR):
            release.set()
            await wait_for(lambda: len(told.records["bad"]) == 2, "what did not expire")
        assert told.records["bad"] == [1, 5]
        name = "webs.example.com/default/bad"
        assert expired(caplog) == [
            f"webs/record was not called for records of {name} from {passed} on, which have expired"
        ]
        assert lost == ["webs/record"]


async def test_a_record_that_expires_between_a_call_that_hung_and_a_restart_is_an_error_that_names_it(
    processing: partial[Processing], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # partitions without records are noted as read, too: else the log that begins later is one that has lost history
    monkeypatch.setattr(loop, "CONFIRM_EVERY", 1)
    told = Told()
    told.hanging["bad"] = asyncio.Event()
    async with processing([told.op]) as stack:
        await stack.listed(web("bad", 1), version=1, of=[WEBS])
        stack.start()
        held: list[dict[str, Any]] = []

        async def is_held() -> bool:
            held[:] = await stack.rows(levels)
            return bool(held)

        await until(is_held, "the object held")
        last = await stack.tell(web("good", 2))
        await wait_for(lambda: told.records["good"], "the other object")

        async def is_read() -> bool:
            async with stack.database.reading() as connection:
                folded = [point.sequence for point in await read_points(connection, stack.scope)]
            return min(folded) >= last and all(row["position"] >= last for row in await stack.rows(call_positions))

        await until(is_read, "all partitions read")
        await stack.stop()
        await stack.expire(last)
        await stack.tell(web("bad", 3, replicas=3))
        told.hanging.clear()
        with caplog.at_level(logging.ERROR):
            stack.start()
            await wait_for(lambda: told.records["bad"], "what did not expire")
        assert told.records["bad"] == [3]
        name, sequence = "webs.example.com/default/bad", held[0]["position"]
        assert expired(caplog) == [
            f"webs/record was not called for records of {name} from {sequence} on, which have expired"
        ]


async def test_an_object_that_is_asked_for_while_its_call_runs_is_tried_at_once_though_that_call_fails(
    processing: partial[Processing],
) -> None:
    told = Told(backoff=timedelta(hours=1))
    told.failing["bad"] = ValueError("poison")
    async with processing([told.op]) as stack:
        await stack.listed(web("bad", 1), version=1, of=[WEBS])
        stack.start()

        async def ask() -> None:
            await retry_levels(stack.database, stack.scope, [("webs/record", "webs.example.com/default/bad")])
            await stack.notifier.publish(Topic.WAKE)

        async def has_failed(times: int) -> bool:
            return [row["attempts"] for row in await stack.rows(levels)] == [times]

        await until(partial(has_failed, 1), "the first failure")
        told.hanging["bad"] = asyncio.Event()
        await ask()
        await wait_for(lambda: len(told.retries) == 2, "the call that was asked for")
        assert [row["status"] for row in await stack.rows(levels)] == ["failed"]  # however long the call lasts
        await ask()
        told.hanging.pop("bad").set()
        await until(partial(has_failed, 3), "the one that was asked for meanwhile")
        assert told.retries == [0, 1, 2]
        [row] = await stack.rows(levels)
        assert row["recheck_at"] - row["since"] > timedelta(minutes=59)  # and then as its backoff says
        await stack.stop()
        await ask()
        stack.start()
        await until(
            lambda: stack.rows(wakeups), "what was asked for while no process ran", accept=lambda found: not found
        )
        await wait_for(lambda: len(told.retries) > 3, "another call")


@pytest.mark.parametrize(("delay", "calls"), [(5, 4), (timedelta.max, 1), (-MINUTE, 20), (timedelta(0), 20)])
def test_whatever_delay_is_asked_for_the_record_is_tried_again_and_nothing_ends(delay: Any, calls: int) -> None:
    told = Told()
    told.failing["a"] = Retry("busy", delay=delay)
    with simulated(told.op, shop("a", replicas=1), through=[told.record]) as simulation:
        simulation.advance(timedelta(seconds=10))
        assert told.retries == list(range(calls))  # at once ten times, then each second
        told.failing.clear()
        simulation.advance(timedelta(days=366))
        assert told.records["a"] == [1]
