"""Bodies from levelog's own log, for an audit log without them: which record shows what a write left."""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from itertools import count
from math import inf
from typing import Final

from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen
from levelog_wakes.audit import AuditCall, Place, Remarks
from levelog_wakes.bursts import Bursts

_LATE_SECONDS: Final = 5.0
"""So long after a write its record may come, by the clocks of the API server and of levelog."""
_EARLY_SECONDS: Final = 0.5
"""So long before a write is said to have ended: a watch may be faster, and clocks differ."""
_TURN: Final = 1000
"""Calls, after which the connection to NATS has its turn, to answer pings."""
_MOST_OBJECTS: Final = 10_000
_MOST_BYTES: Final = 64 << 20


_Shown = tuple[str, bytes]
"""Version and body of the last record of an object."""


class WrittenBodies:
    """Holds calls back until the records of their time are known, then gives them to `bursts` with their bodies.

    Calls and records are given in the order of time. A write that names the resourceVersion before that of a record
    made it; if none does, that which ended closest to it. A record that no call made tells what somebody wrote whom the
    audit log leaves out. A write without a record changed nothing, if its object is in the log.
    """

    def __init__(self, bursts: Bursts, remarks: Remarks) -> None:
        self._bursts, self._remarks = bursts, remarks
        self._held: list[tuple[float, int, AuditCall, bool]] = []
        self._numbers = count()
        self._writes: dict[Place, list[AuditCall]] = {}
        self._shown: OrderedDict[Place, _Shown] = OrderedDict()
        self._bytes = 0

    def take(self, call: AuditCall) -> None:
        """Hold a call."""
        if call.is_write and not call.body and call.subresource in ("", "status"):
            self._writes.setdefault(call.place, []).append(call)
        self._hold(call, is_audited=True)
        self._release(call.ended - _LATE_SECONDS)

    def see(self, record: ObjectSeen | ObjectDeleted) -> None:
        """Find the write that made a record."""
        at, key = record.time.timestamp(), record.key
        self._release(at - _LATE_SECONDS)
        place = (str(key.group_resource), key.namespace, key.name)
        before, shown = self._shown.get(place), (str(record.version), record.body)
        if before is not None and before[0] == shown[0]:
            return
        unnamed = self._writes.get((*place[:2], ""), ()) if before is None else ()  # the server made up the name
        writes = [each for each in self._writes.get(place, unnamed) if each.ended <= at + _EARLY_SECONDS]
        if isinstance(record, ObjectDeleted):
            writes = [each for each in writes if each.verb == "delete"] or writes
        named = [each for each in writes if before is not None and each.sent_version == before[0]]
        if made := min(named or writes, key=lambda each: abs(each.ended - at), default=None):
            for each in writes:
                if each is made or (each.ended < made.ended and each.place == place):
                    self._settle(each, shown if each is made else before)
            made.place = place
        elif before is not None or record.origin == "watch":
            self._remarks.note("records are of writes that the audit log does not have")
            self._hold(_call(place, record, at, "update"), is_audited=False)
        else:
            self._hold(_call(place, record, at, "get"), is_audited=False)
        self._keep(place, shown)

    def finish(self) -> None:
        """Give away what is held."""
        self._release(inf)

    def _hold(self, call: AuditCall, *, is_audited: bool) -> None:
        heapq.heappush(self._held, (call.ended, next(self._numbers), call, is_audited))

    def _release(self, moment: float) -> None:
        while self._held and self._held[0][0] <= moment:
            _, _, call, is_audited = heapq.heappop(self._held)
            if call in self._writes.get(call.place, ()):
                self._settle(call, self._shown.get(call.place))
            if is_audited:
                self._bursts.take(call)
            elif call.is_write:
                self._bursts.versions.write(call)
            else:
                self._bursts.versions.see(call)

    def _settle(self, call: AuditCall, left: _Shown | None) -> None:
        writes = self._writes[call.place]
        writes.remove(call)
        if not writes:
            del self._writes[call.place]
        if left is not None:
            call.body = left[1]

    def _keep(self, place: Place, shown: _Shown) -> None:
        if (before := self._shown.pop(place, None)) is not None:
            self._bytes -= len(before[1])
        self._shown[place] = shown
        self._bytes += len(shown[1])
        while len(self._shown) > _MOST_OBJECTS or (self._bytes > _MOST_BYTES and len(self._shown) > 1):
            self._bytes -= len(self._shown.popitem(last=False)[1][1])


def _call(place: Place, record: ObjectSeen | ObjectDeleted, at: float, verb: str) -> AuditCall:
    """A record as a call, of whose client only the field manager is known."""
    is_write = verb != "get"
    verb = "delete" if isinstance(record, ObjectDeleted) else verb
    client = f"{record.written.manager or 'somebody'} (not audited)"
    return AuditCall(client, verb, place, "", "", "", is_write, False, at, at, 0, record.body)


async def take_with_records(
    calls: Iterator[AuditCall], records: AsyncIterator[LoggedRecord], bursts: Bursts, remarks: Remarks
) -> None:
    """Take all calls, with the bodies that records show of their time. Raises as the records do."""
    written, ahead = WrittenBodies(bursts, remarks), next(calls, None)

    async def take_up_to(moment: float) -> None:
        nonlocal ahead
        for number in count(1):
            if ahead is None or ahead.ended > moment:
                return
            written.take(ahead)
            ahead = next(calls, None)
            if number % _TURN == 0:
                await asyncio.sleep(0)

    async for logged in records:
        if isinstance(record := logged.record, ObjectSeen | ObjectDeleted):
            await take_up_to(record.time.timestamp() + _EARLY_SECONDS)
            written.see(record)
    await take_up_to(inf)
    written.finish()
