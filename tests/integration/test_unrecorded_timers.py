"""Timers without records: called when it is time, once for what was missed; who fails or is slow holds up no other."""

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Table, select

from levelog import Operator
from levelog.calls import caller
from levelog.handlers.timers import moment
from levelog_base.errors import Unavailable
from levelog_base.wire.objects import Application, Cluster
from levelog_base.wire.records import ObjectDeleted, ObjectSeen
from levelog_processors.deliver.timers import BATCH, Timers
from levelog_processors.engine import Engine
from levelog_processors.program import Program
from levelog_processors.tables import SqlTables
from levelog_store.connect.database import Database
from levelog_store.fold.levelwrites import retry_levels
from levelog_store.look.levelpages import LevelQuery, read_level_lines
from levelog_store.owners.leases import Leases
from levelog_store.owners.scopes import open_scope
from levelog_store.rows import Scope
from levelog_store.tables import call_positions, decisions, intents, levels, wakeups
from rigs.kinds import web as shop
from rigs.simulated import simulated
from rigs.typed import Web
from rigs.waiting import until
from rigs.webs import NOON, deleted, logged, web

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
NAME = "webs.example.com/default/bad"


class Called:
    """An operator whose timer writes down its calls; those for objects in `failing` raise, in `hanging` wait."""

    def __init__(self, every: timedelta = MINUTE, **options: Any) -> None:
        self.op = op = Operator("webs")
        self.calls: list[tuple[str, datetime]] = []
        """Name and due time of those that returned."""
        self.keys: list[str] = []
        self.retries: list[int] = []
        self.failing: dict[str, BaseException] = {}
        self.hanging: dict[str, asyncio.Event] = {}
        self.running = self.most = 0

        @op.timer(Web, every=every, recorded=False, **options)
        async def tick(web: Web, started: datetime, retry: int, idempotency_key: str) -> None:
            self.retries.append(retry)
            self.keys.append(idempotency_key)
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                if event := self.hanging.get(web.metadata.name):
                    await event.wait()
            finally:
                self.running -= 1
            if error := self.failing.get(web.metadata.name):
                raise error
            self.calls.append((web.metadata.name, started))

        self.tick = tick

    def of(self, name: str) -> list[timedelta]:
        """Due times of the calls for an object, since noon."""
        return [due - NOON for called, due in self.calls if called == name]


def made(name: str, seconds: float = 0, *, version: int = 1, **fields: Any) -> ObjectSeen:
    """A Web that was created so many seconds after noon."""
    return web(name, version, creationTimestamp=f"{NOON + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}", **fields)


class Ticking:
    """Timers in a time of their own, on real tables that are folded beside them."""

    def __init__(self, database: Database, patience: timedelta | None) -> None:
        self.database = database
        self.now = NOON
        self.scope: Scope
        self.timers: Timers
        self.epochs: Mapping[int, int] = {}
        self.engine: Engine
        self._patience = patience
        self._program: Program
        self._sequence = 0

    async def deploy(self, op: Operator) -> None:
        """Begin with this code, or go on with it."""
        self._program = program = Program([op])
        scope = await open_scope(
            self.database,
            cluster=Cluster("cluster"),
            application=Application("webs"),
            partitions=4,
            stream_created="stream",
            fingerprint=program.fingerprint,
            code=program.handlers,
        )
        self.scope = replace(scope, owner="one")
        await self.begin()

    async def begin(self) -> None:
        """Take the partitions, as a process that starts: what was in memory is gone."""
        await self.end()
        self.epochs = await Leases(self.database, self.scope, owner="one", duration=timedelta(days=1)).tend()
        self.engine = Engine(SqlTables(self.database, self.scope), self._program, patience=None)
        await self.engine.load(self.epochs)
        options = {"clock": lambda: self.now, "patience": self._patience}
        self.timers = Timers(self.database, self.scope, self._program, self.engine.whole, **options)
        await self.timers.hold(self.epochs)

    async def end(self) -> None:
        """End what runs, as a crash does."""
        if self.epochs:
            await self.timers.close()
            await self.engine.close()

    async def rows(self, table: Table) -> list[dict[str, Any]]:
        async with self.database.reading() as connection:
            return [dict(row) for row in (await connection.execute(select(table))).mappings()]

    async def tell(self, *records: ObjectSeen | ObjectDeleted) -> None:
        """Fold records."""
        told = logged(records, first=self._sequence + 1)
        self._sequence += len(records)
        self.engine.fold(told)
        await self.engine.flush()
        self.timers.see(told)

    async def pass_to(self, seconds: float) -> None:
        """Let it be so many seconds after noon, with all that is due until then."""
        end = NOON + timedelta(seconds=seconds)
        while (due := self.timers.due_at) is not None and due <= end:
            self.now = max(due, self.now)
            await self.step()
        self.now = end
        await self.step()

    async def step(self) -> None:
        """Do what is due now."""
        await self.timers.call_due()
        await self.timers.step()
        while self.timers.is_busy:
            await self.timers.step()


@asynccontextmanager
async def ticking(database_url: str, called: Called, patience: timedelta | None = None) -> AsyncGenerator[Ticking]:
    """Timers that have begun."""
    async with await Database.open(database_url) as database:
        rig = Ticking(database, patience)
        try:
            await rig.deploy(called.op)
            yield rig
        finally:
            await rig.end()


def seconds(*numbers: float) -> list[timedelta]:
    return [timedelta(seconds=each) for each in numbers]


async def test_each_object_is_called_at_multiples_after_its_creation_and_nothing_is_recorded(database_url: str) -> None:
    called = Called(initial_delay=timedelta(seconds=5))
    async with ticking(database_url, called) as rig:
        await rig.tell(made("a"), made("b", 20))
        await rig.pass_to(130)
        await rig.tell(made("c", 120))
        await rig.pass_to(200)
        assert called.of("a") == seconds(5, 65, 125, 185)
        assert called.of("b") == seconds(25, 85, 145)
        assert called.of("c") == seconds(125, 185)
        assert len(set(called.keys)) == len(called.keys)
        assert not await rig.rows(decisions)
        assert not await rig.rows(intents)
        assert {moment(row["position"]) - NOON for row in await rig.rows(call_positions)} == {185 * SECOND}


async def test_what_was_missed_is_called_once_and_a_restart_does_not_begin_anew(database_url: str) -> None:
    called = Called()
    async with ticking(database_url, called) as rig:
        await rig.tell(made("a"), made("b", 30))
        await rig.pass_to(100)
        rig.now = NOON + timedelta(seconds=110)
        await rig.begin()
        await rig.pass_to(130)
        assert called.of("a") == seconds(0, 60, 120)
        rig.now = NOON + timedelta(seconds=1000)
        await rig.begin()
        await rig.tell(made("late", 700), made("new", 990))
        await rig.pass_to(1100)
        assert called.of("a") == seconds(0, 60, 120, 960, 1020, 1080)
        assert called.of("b") == seconds(30, 90, 990, 1050)
        assert called.of("late") == seconds(1000, 1060)
        assert called.of("new") == seconds(990, 1050)


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_a_clock_that_is_set_back_holds_no_call_up(database_url: str, *, is_restarted: bool) -> None:
    called = Called()
    async with ticking(database_url, called) as rig:
        await rig.tell(made("a"), made("b"))
        rig.now = NOON + timedelta(days=30)
        called.failing["b"] = ValueError("busy")
        await rig.step()
        called.failing.clear()
        called.calls.clear()
        rig.now = NOON + timedelta(seconds=90)
        await (rig.begin() if is_restarted else rig.step())
        await rig.pass_to(200)
        assert called.of("a") == seconds(120, 180)
        assert called.of("b") == seconds(60, 120, 180)


async def test_an_object_that_was_created_by_a_clock_that_was_ahead_is_called_for_within_every(
    database_url: str,
) -> None:
    called, ahead = Called(backoff=timedelta(seconds=25)), timedelta(days=30).total_seconds() + 10
    async with ticking(database_url, called) as rig:
        await rig.tell(made("a", ahead))
        await rig.pass_to(150)
        assert called.of("a") == seconds(10, 70, 130)
        await rig.begin()
        called.failing["a"] = ValueError("busy")
        await rig.pass_to(200)
        called.failing.clear()
        await rig.pass_to(220)
        assert called.of("a") == seconds(10, 70, 130, 190), "the call that failed was made again"


async def test_a_held_call_that_is_tried_again_just_as_the_next_one_is_due_is_not_made_twice(database_url: str) -> None:
    called = Called(backoff=MINUTE)
    async with ticking(database_url, called) as rig:
        await rig.tell(made("a"))
        called.failing["a"] = ValueError("busy")
        await rig.step()
        called.failing.clear()
        rig.now = NOON + 59 * SECOND
        await rig.timers.call_due()
        rig.now = NOON + MINUTE  # as it may be by the time of the next line
        await rig.timers.step()
        await rig.pass_to(120)
        assert called.of("a") == seconds(0, 60, 120)


@pytest.mark.parametrize("is_async", [False, True])
async def test_invariant_17_a_function_that_goes_on_while_leases_change_is_not_called_beside_itself(
    database_url: str, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    monkeypatch.setattr(caller, "CANCELLATION_TIME", timedelta(milliseconds=20))
    called, release, released = Called(), threading.Event(), asyncio.Event()
    called.op = op = Operator("webs")
    timer = op.timer(Web, every=MINUTE, recorded=False, timeout=timedelta(minutes=5), max_concurrency=1)

    def begin() -> None:
        called.running += 1
        called.most = max(called.most, called.running)

    def end(web: Web) -> None:
        called.running -= 1
        called.calls.append((web.metadata.name, NOON))

    def tick(web: Web) -> None:
        begin()
        release.wait()
        end(web)

    async def tick_async(web: Web) -> None:
        begin()
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()
        end(web)

    timer(tick_async if is_async else tick)
    async with ticking(database_url, called, patience=timedelta(milliseconds=20)) as rig:
        await rig.tell(made("a"))
        rig.now = NOON + SECOND
        try:
            await rig.step()
            for _ in range(3):
                await rig.timers.hold(rig.epochs)
                await rig.step()
        finally:
            release.set()
            released.set()

        async def is_called_again() -> bool:
            rig.now += SECOND
            await rig.step()
            return len(called.calls) == 2

        await until(is_called_again, "the call of the last owner")
        assert called.most == 1


async def test_a_new_timer_begins_with_the_next_multiple_of_each_object_that_was_there(database_url: str) -> None:
    called = Called()
    async with ticking(database_url, called) as rig:
        await rig.tell(made("old", -1000), made("new", 3))  # listed first once it runs
        await rig.pass_to(70)
        assert (called.of("old"), called.of("new")) == (seconds(20), seconds(3, 63))
        other = Called(every=timedelta(seconds=100))
        other.failing["bad"] = ValueError("poison")
        bad = made("bad")
        await rig.tell(bad)
        await rig.deploy(other.op)
        await rig.pass_to(210)
        assert other.of("old") == seconds(100, 200)  # the name is the same: it goes on from its position
        assert [row["parent"] for row in await rig.rows(levels)] == [NAME]
        await rig.tell(deleted(bad, 3))
        third = Operator("webs")
        names: list[str] = []

        @third.timer(Web, every=timedelta(seconds=100), recorded=False)
        def renamed(web: Web) -> None:
            names.append(f"{web.metadata.name} {(rig.now - NOON).seconds}")

        rig.now = NOON + timedelta(seconds=290)
        await rig.deploy(third)
        assert not await rig.rows(levels)
        await rig.pass_to(310)
        assert names == ["old 300", "new 303"]
        assert {row["handler"] for row in await rig.rows(call_positions)} == {"webs/renamed"}


async def test_a_crash_repeats_the_calls_since_the_last_round_that_was_stored_with_the_same_key(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = Called()
    async with ticking(database_url, called) as rig:
        await rig.tell(made("a"), made("b", 10))
        await rig.pass_to(30)

        async def fails(*_: object, **__: object) -> None:
            raise Unavailable("the process is killed")

        monkeypatch.setattr(rig.timers, "_store", fails)
        with pytest.raises(Unavailable):
            await rig.pass_to(60)
        await rig.begin()
        await rig.pass_to(65)
        assert called.of("a") == seconds(0, 60, 60)
        assert called.of("b") == seconds(10)
        assert called.keys[2] == called.keys[3] != called.keys[0]


async def test_a_crash_repeats_the_first_call_of_an_object_that_was_seen_after_its_time_was_stored(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = Called()
    async with ticking(database_url, called) as rig:
        await rig.tell(made("a", 10))
        await rig.pass_to(10.4)
        await rig.tell(made("late", 10))  # times of creation are whole seconds
        called.hanging["late"] = asyncio.Event()

        async def fails(*_: object, **__: object) -> None:
            await until(lambda: called.running == 1, "the call")
            raise Unavailable("the process is killed")

        monkeypatch.setattr(rig.timers, "_wait", fails)
        with pytest.raises(Unavailable):
            await rig.step()
        called.hanging.clear()
        await rig.begin()
        await rig.pass_to(75)
        assert called.of("late") == called.of("a") == seconds(10, 70)
        assert not await rig.rows(levels)


async def test_a_call_that_fails_is_shown_and_tried_again_until_the_next_one_is_due(database_url: str) -> None:
    called = Called(backoff=timedelta(seconds=25))
    called.failing["bad"] = ValueError("poison")
    async with ticking(database_url, called) as rig:
        await rig.tell(made("bad"), made("good"))
        await rig.pass_to(40)
        assert called.of("good") == seconds(0)
        async with rig.database.reading() as connection:
            [line] = await read_level_lines(connection, rig.scope, LevelQuery(view="tick"))
        assert (line.parent, line.status) == (NAME, "failed")
        reason, _, tried = line.reason.partition("; ")
        assert reason == "timer tick: ValueError: poison (the call that was due at 2026-01-01 12:00:00 UTC)"
        assert re.fullmatch(r"tried 2 times since .* UTC, the next time at .* UTC", tried)
        await rig.begin()  # who starts tries it at once
        await rig.pass_to(80)
        assert called.of("good") == seconds(0, 60)
        assert called.retries == [0, 0, 1, 2, 0, 0]  # of good, too; at 65 s it is called for what was due at 60
        called.failing.clear()
        await rig.pass_to(110)
        assert called.of("bad") == seconds(60)
        assert not await rig.rows(levels)
        await rig.pass_to(130)
        assert called.of("bad") == seconds(60, 120)


async def test_filters_are_asked_at_the_call_and_what_is_deleted_is_not_called(database_url: str) -> None:
    called = Called(labels={"on": "yes"}, when=lambda web: web.spec.replicas > 1)
    async with ticking(database_url, called) as rig:
        on, off = {"on": "yes"}, {"on": "no"}
        await rig.tell(made("a", replicas=2, labels=off), made("b", replicas=1, labels=on))
        gone = made("gone", replicas=2, labels=on)
        await rig.tell(gone, made("going", replicas=2, labels=on))
        await rig.pass_to(30)
        assert sorted(called.calls) == [("going", NOON), ("gone", NOON)]
        await rig.tell(made("a", version=2, replicas=2, labels=on), made("b", version=2, replicas=2, labels=on))
        await rig.tell(deleted(gone, 3))
        await rig.tell(
            made("going", version=4, replicas=2, labels=on, deletionTimestamp="2026-01-01T12:00:30Z", finalizers=["x"])
        )
        await rig.pass_to(90)
        assert sorted(called.calls[2:]) == [("a", NOON + MINUTE), ("b", NOON + MINUTE)]
        await rig.tell(made("gone", 95, version=5, uid="other", replicas=2, labels=on))
        await rig.pass_to(160)
        assert called.of("gone") == seconds(0, 95, 155)


async def test_a_slow_function_holds_up_no_other_object_and_is_called_once_for_what_it_missed(
    database_url: str,
) -> None:
    called = Called()
    called.hanging["bad"] = asyncio.Event()
    async with ticking(database_url, called, timedelta(milliseconds=10)) as rig:
        await rig.tell(made("bad"), made("good"))
        for now in (0, 60, 120, 130):
            await rig.pass_to(now)
        assert called.of("good") == seconds(0, 60, 120)
        assert (called.running, called.most) == (1, 2)
        async with rig.database.reading() as connection:
            [line] = await read_level_lines(connection, rig.scope)
        assert line.status == "settling"
        assert line.reason == "is being called (the call that was due at 2026-01-01 12:00:00 UTC)"
        called.hanging.pop("bad").set()
        await rig.timers.step()

        async def is_over() -> bool:
            await rig.step()
            return not await rig.rows(levels)

        await until(is_over, "its calls")
        assert called.of("bad") == seconds(0, 120)
        assert called.most == 2
        assert not await rig.rows(levels)


async def test_no_more_calls_run_at_a_time_than_its_limit(database_url: str) -> None:
    called = Called(max_concurrency=2)
    release = asyncio.Event()
    async with ticking(database_url, called, timedelta(milliseconds=10)) as rig:
        called.hanging = {f"web-{number}": release for number in range(5)}
        await rig.tell(*(made(name) for name in called.hanging))
        await rig.step()
        assert called.running == 2
        release.set()

        async def is_over() -> bool:
            await rig.step()
            return not await rig.rows(levels)

        await until(is_over, "all calls")
        assert len(called.calls) == 5
        assert called.most == 2


async def test_after_a_while_without_it_all_objects_are_called_in_one_round(database_url: str) -> None:
    called = Called()
    count = 2 * BATCH + 10
    async with ticking(database_url, called) as rig:
        await rig.tell(*(made(f"web-{number}", number % 60) for number in range(count)))
        rig.now = NOON + timedelta(seconds=1000)
        await rig.step()
        assert len(called.calls) == len(dict(called.calls)) == count
        assert min(due for _, due in called.calls) > rig.now - MINUTE


async def test_a_call_that_is_asked_for_is_told_of_once_and_made_after_the_one_that_runs(database_url: str) -> None:
    called = Called(backoff=timedelta(hours=1))
    called.failing["bad"] = ValueError("poison")
    async with ticking(database_url, called, timedelta(milliseconds=10)) as rig:
        await rig.tell(made("bad"))
        await rig.step()
        asked = [("webs/tick", NAME)]
        await retry_levels(rig.database, rig.scope, asked)
        await rig.engine.load(rig.epochs)  # as if the calls were taken up before it was asked for
        assert set(await rig.engine.notice()) == set(asked)
        assert not await rig.engine.notice()
        await rig.engine.flush()
        assert not await rig.rows(wakeups)
        await retry_levels(rig.database, rig.scope, asked)
        await rig.engine.load(rig.epochs)
        assert set(await rig.engine.notice()) == set(asked), "it was asked for while the tables were read"
        assert not rig.engine.state.levels
        called.hanging["bad"] = asyncio.Event()
        for _ in range(2):
            rig.timers.hasten([*asked, ("webs/tick", "webs.example.com/default/good")])
            await rig.timers.step()
        called.hanging.pop("bad").set()

        async def has_failed() -> bool:
            await rig.timers.step()
            return [row["attempts"] for row in await rig.rows(levels)] == [3]

        await until(has_failed, "the one that was asked for while another ran")
        await rig.timers.step()
        assert called.retries == [0, 1, 2]


def test_a_plain_function_of_a_plain_object_is_called_too_and_none_unless_it_is_called_through() -> None:
    op = Operator("webs")
    names: list[str] = []

    @op.timer(Web, every=MINUTE, recorded=False)
    def tick(web: Mapping[str, Any]) -> None:
        names.append(web["metadata"]["name"])

    with simulated(op, shop("a")) as simulation:
        simulation.advance(timedelta(seconds=90))
        assert (names, simulation.calls["tick"]) == ([], 2)
        simulation.call_through(tick)
        simulation.advance(MINUTE)
        assert names == ["a"]
