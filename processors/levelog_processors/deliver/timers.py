"""Timers without records: calls the functions for the objects of some partitions when they are due.

The schedule is in memory, loaded from the tables and kept up by what is folded. After each pass one time is stored for
all partitions: the calls up to it are made or held.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final

from levelog.handlers.timers import EPOCH, MICROSECOND, TimerHandler, created_of, microseconds, moment
from levelog_base.wire.records import LoggedRecord, ObjectSeen
from levelog_processors.deliver.unrecorded import Chain, UnrecordedCalls
from levelog_processors.program import Program
from levelog_processors.waiting import RESYNC
from levelog_store.connect.database import Database
from levelog_store.deliver.positions import Existing, Place, read_existing
from levelog_store.rows import Scope, StoredObject, ViewParent

log = logging.getLogger(__name__)

BATCH: Final = 256
"""Objects that are read and called for at one time."""
SECOND: Final = timedelta(seconds=1) // MICROSECOND
LATENESS: Final = timedelta(minutes=1) // MICROSECOND
"""How long before the calls of a partition stopped an object may have been created that nobody has seen by then."""


class Timers(UnrecordedCalls[TimerHandler]):
    """Calls the functions, a pass at a time. Passes and steps raise LeaseLost."""

    def __init__(
        self,
        database: Database,
        scope: Scope,
        program: Program,
        read: Callable[[Collection[str]], Awaitable[Mapping[str, StoredObject]]],
        **options: Any,
    ) -> None:
        """`read` gives those of some objects that are there, with bodies; `options` are those of `UnrecordedCalls`."""
        super().__init__(database, scope, program.timers, **options)
        self._read = read
        self._of: defaultdict[str, list[TimerHandler]] = defaultdict(list)
        """Timers by the resource of their objects."""
        for handler in program.timers.values():
            self._of[str(handler.reader.resource.group_resource)].append(handler)
        self._schedule: list[tuple[int, str, str, str]] = []
        """A heap of the next call of each timer and object: due time, timer, object and its uid."""
        self._known: dict[str, Existing] = {}
        """The objects that are there, or were when their last call was due."""
        self._since: dict[Place, int] = {}
        """Objects that nobody has seen before are new to a timer if their first call is due after this."""
        self._late: set[ViewParent] = set()
        """Timers and objects whose first call was due before what is stored: held before it is made."""
        self._is_open = asyncio.Event()

    @property
    def due_at(self) -> datetime | None:
        """When there is something to do; what is due within a second is due at its end."""
        held = super().due_at
        if not self._schedule:
            return held
        due = moment(-(-self._schedule[0][0] // SECOND) * SECOND)
        return due if held is None else min(held, due)

    async def hold(self, epochs: Mapping[int, int], known: Mapping[str, Existing] | None = None) -> None:
        """Work under these leases from now on, from where the timers are; new ones begin now.

        To be called before anything is folded under these leases; `known` are the objects where that was done before.
        Raises LeaseLost.
        """
        await self.release()
        now = microseconds(self._clock()) - SECOND  # times of creation are whole seconds
        async with self._database.transaction() as connection:
            found = await self._take_over(connection, epochs, start=now)
            existing = () if known else await read_existing(connection, self._scope, self._of, epochs)
        positions = {place: min(at, now + SECOND) for place, at in found.items()}  # the clock may have been set back
        self._called_to = self._stored_to = now
        self._since = {place: at if at == now else at - LATENESS for place, at in positions.items()}
        self._known = {**(known or {}), **{each.object: each for each in existing}}
        self._schedule = []
        self._late.clear()
        for each in self._known.values():
            created = each.created_at or EPOCH
            for handler in self._of[each.resource]:
                due, position = handler.first(created, now), positions[handler.source, each.partition]
                if due <= position:
                    due = handler.newest(due, position) + handler.period
                self._schedule.append((due, handler.source, each.object, each.uid))
        heapify(self._schedule)

    def open(self) -> None:
        """Let the calls begin: the tables are where the log is."""
        self._is_open.set()

    def see(self, records: Sequence[LoggedRecord]) -> None:
        """Take note of objects that are new among what was folded."""
        for logged in records:
            record = logged.record
            if not isinstance(record, ObjectSeen) or logged.partition not in self._epochs:
                continue
            resource, name = str(record.key.group_resource), str(record.key)
            before = self._known.get(name)
            if resource not in self._of or (before is not None and before.uid == record.uid):
                continue
            now, created = microseconds(self._clock()), created_of(record.body)
            self._known[name] = Existing(
                object=name, resource=resource, partition=logged.partition, uid=record.uid, created_at=created
            )
            for handler in self._of[resource]:
                due = handler.first(created, now)
                if due <= self._since[handler.source, logged.partition] and due <= now:
                    due = handler.newest(due, now) + handler.period
                if due <= self._stored_to:
                    self._late.add((handler.source, name))
                heappush(self._schedule, (due, handler.source, name, record.uid))
            self.listener.notify()

    async def run(self) -> None:
        """Make the calls, until cancelled. Raises LeaseLost."""
        try:
            await self._is_open.wait()
            while True:
                await self.call_due()
                await self.step()
                due, now = self.due_at, self._clock()
                await self.listener.wait(RESYNC if due is None else min(RESYNC, max(due - now, timedelta(0))))
        finally:
            self._is_open.clear()

    async def call_due(self) -> None:
        """Make all calls that are due now, and store that they are made; those that are left are held."""
        now = microseconds(self._clock())
        if now < self._called_to - LATENESS:
            log.warning("the clock was set back by %s: timers go on from there", moment(self._called_to) - moment(now))
            await self.hold(self._epochs, self._known)
        new: list[Chain[TimerHandler]] = []
        is_called = False
        while self._schedule and self._schedule[0][0] <= now:
            new += await self._make(self._take_due(now))
            is_called = True
        if is_called:
            self._called_to = now
        if self._called_to != self._stored_to:
            await self._store(new)

    def _take_due(self, now: int) -> dict[ViewParent, tuple[int, str]]:
        """Due time and uid of calls that are to be made, at most a batch; the next ones are planned."""
        found: dict[ViewParent, tuple[int, str]] = {}
        schedule = self._schedule
        while schedule and schedule[0][0] <= now and len(found) < BATCH:
            due, source, name, uid = schedule[0]
            if name not in self._known or self._known[name].uid != uid or (source, name) in found:
                heappop(schedule)
                continue
            handler = self._handlers[source]
            due = handler.newest(due, now)
            heapreplace(schedule, (due + handler.period, source, name, uid))
            if (held := self._held.get((source, name))) is not None:
                held.next = held.next or due
            else:
                found[source, name] = due, uid
        return found

    async def _make(self, calls: Mapping[ViewParent, tuple[int, str]]) -> list[Chain[TimerHandler]]:
        """Make calls, and return those that are held now."""
        chains: list[tuple[Chain[TimerHandler], StoredObject]] = []
        rows = await self._read({name for _, name in calls}) if calls else {}
        since = self._clock()
        for (source, name), (due, uid) in calls.items():
            row = rows.get(name)
            if row is None:
                self._known.pop(name, None)  # seen again, it is new
            elif row.uid == uid and not row.is_deleting:
                chains.append((Chain(self._handlers[source], name, row.partition, since, since, due), row))
        late = [chain for chain, _ in chains if chain.name in self._late]
        if late:
            await self._store(late)
            self._held |= {chain.name: chain for chain in late}
        self._late.difference_update(calls)
        for chain, row in chains:
            self._begin(chain, self._run(chain, row))
        return await self._wait([chain for chain, _ in chains])

    async def _go_on(self, chain: Chain[TimerHandler]) -> None:
        row = (await self._read({chain.object})).get(chain.object)
        handler, now = chain.handler, microseconds(self._clock())
        to = max(self._called_to, min(chain.position, now))  # what is due later, a pass takes
        if row is None or row.is_deleting or (first := handler.first(created_of(row.body), now)) > to:
            return
        if (due := handler.newest(first, to)) != chain.position:
            chain.position, chain.attempts = due, 0
        await self._run(chain, row)

    async def _run(self, chain: Chain[TimerHandler], row: StoredObject) -> None:
        key, arguments_of = (row.uid, str(chain.position)), partial(chain.handler.called_with, row.body, {})
        await self._call(chain, moment(chain.position), key, arguments_of)
