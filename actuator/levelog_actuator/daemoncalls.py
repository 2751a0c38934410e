"""Daemons: long calls, each kept alive by its claim, and ended with its object, its claim or the process.

While one runs, its intent's row keeps its state. What came of a run is stored and published as of any call.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Collection
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from levelog.calls.caller import FunctionCaller
from levelog.calls.faults import HandlerFault, described
from levelog.daemons import Daemon, LiveLevel, Run, RunEnd, StopReason
from levelog.effects import MOST_BYTES
from levelog.handlers.injection import Given
from levelog.handlers.runs import DaemonHandler
from levelog.indices import GiveIndex
from levelog.levels import LevelStatus
from levelog_actuator.awaited import AwaitedLevels
from levelog_actuator.outbox import Outbox
from levelog_actuator.results import Later, about
from levelog_base.errors import DaemonLost, OperatorError, Unavailable
from levelog_base.wire.canonical import canonical
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.daemonstates import keep_progress
from levelog_store.rows import ViewParent

log = logging.getLogger(__name__)

STEADY: Final = timedelta(minutes=10)
"""A run that lasted so long has made up for the failures before it."""


class Interrupted(Exception):
    """A run that has to go on elsewhere, or later."""


class Pauses:
    """How time passes for daemons."""

    async def pause(self, event: asyncio.Event, delay: timedelta | None = None) -> None:
        """Wait for the event, at most for so long."""
        await asyncio.sleep(0)  # else who goes on to wait although it has to end would hold up the process
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if delay is None else delay.total_seconds()):
                await event.wait()

    async def until_ended(self, ended: asyncio.Event, grace: timedelta) -> None:
        """Wait for a function to end that was told to, at most for so long."""
        await self.pause(ended, grace)


is_following: Final[ContextVar[bool]] = ContextVar("levelog_following", default=False)
"""Whether what runs follows the object of a daemon, and is not the daemon itself."""


class Daemons(Struct, eq=False):
    """The daemon runs of one process."""

    outbox: Outbox
    index: GiveIndex
    """Gives their live indices."""
    levels: AwaitedLevels
    pauses: Pauses = field(default_factory=Pauses)
    running: "dict[str, _Daemon]" = {}
    """Running daemons by the keys of their claims."""
    is_ending: bool = False

    @property
    def grace(self) -> timedelta:
        """How long those that run may take to end."""
        return max((each.handler.grace for each in self.running.values()), default=timedelta(0))

    def lose(self, keys: Collection[str]) -> None:
        """End those whose claims others may have, at once."""
        for key in keys:
            if (daemon := self.running.get(key)) is not None:
                daemon.end("lost")

    def end(self) -> None:
        """Tell all that the process ends."""
        self.is_ending = True
        for daemon in self.running.values():
            daemon.end("shutdown")

    async def run(
        self,
        intent: ClaimedIntent,
        handler: DaemonHandler,
        request: Run,
        given: dict[Given, Any],
        functions: FunctionCaller,
    ) -> RunEnd:
        """Run a daemon until it returns or has to end. Raises what it raises, and Interrupted if it has to go on."""
        if intent.progress is not None:
            request = replace(request, state=msgspec.json.decode(intent.progress))
        daemon = _Daemon(self, handler, intent, request.state)
        self.running[intent.key] = daemon
        if self.is_ending:
            daemon.end("shutdown")
        following: asyncio.Task[None] | None = None
        try:
            if request.state is None:
                daemon.kept = await self._last_state(intent, handler)
            wanted = self.index(f"{handler.operator}/{handler.wanted_name}", Any).changes(intent.parent_uid)
            found = await anext(wanted)
            daemon.show(found)
            following = asyncio.create_task(_follow(daemon, wanted), name=f"object of {intent.target}")
            if daemon.reason is None:
                log.info("daemon %s runs for %s", handler.name, intent.parent, extra=about(intent))
                await self._call(intent, daemon, given, functions)
        finally:
            if following is not None:
                following.cancel()
                await asyncio.wait((following,))
            self.running.pop(intent.key, None)
        if daemon.reason in ("shutdown", "lost"):
            raise Interrupted("the process ends" if daemon.reason == "shutdown" else "its claim was lost")
        return RunEnd(is_finished=daemon.reason is None, state=daemon.kept)

    async def _call(
        self, intent: ClaimedIntent, daemon: "_Daemon", given: dict[Given, Any], functions: FunctionCaller
    ) -> None:
        """Raises what the function raises on its own; errors after it was told to end are logged."""
        handler = daemon.handler
        arguments = {handler.parameter: daemon.object, **handler.given.arguments(given)}
        arguments |= {name: self.index(f"{handler.operator}/{name}", kind) for name, kind in handler.indices.items()}
        if handler.itself is not None:
            arguments[handler.itself] = daemon

        async def wait(task: asyncio.Task[None]) -> None:
            ended, ending = asyncio.Event(), asyncio.create_task(daemon.ending.wait())
            task.add_done_callback(lambda _: ended.set())
            try:
                await asyncio.wait({task, ending}, return_when=asyncio.FIRST_COMPLETED)
                if not task.done() and handler.itself is not None and daemon.reason != "lost":
                    await self.pauses.until_ended(ended, handler.grace)
            finally:
                ending.cancel()

        key = intent.effect, intent.parent_uid
        task, was_cancelled = await functions.run_until(key, lambda: handler.function(**arguments), wait)
        if not task.done():
            log.error("%s goes on although it was cancelled", intent.target, extra=about(intent))
            return
        if task.cancelled():
            if not was_cancelled:
                raise HandlerFault("cancelled itself")
            return
        error = task.exception()
        if error is None:
            return
        if daemon.reason is None:
            raise error
        if not isinstance(error, DaemonLost):
            text = described(error)
            log.warning("daemon %s failed while it ended: %s", handler.name, text, extra=about(intent))

    async def _last_state(self, intent: ClaimedIntent, handler: DaemonHandler) -> Any:
        """The state with which the last run for the object ended. Raises Interrupted while the database is away."""
        runs = self.index(f"{handler.operator}/{handler.calls_name}", _Ended)
        try:
            found = await runs.get(intent.parent_uid)
        except Unavailable as error:
            raise Interrupted(f"its state cannot be read: {error}") from error
        for ended in found:
            if ended.result is not None:
                return ended.result.state
        return None

    async def keep(self, intent: ClaimedIntent, state: Any) -> None:
        """Store the state of a run. Raises DaemonLost if its claim has ended."""
        if not await self.outbox.write_durably(keep_progress, self.outbox.owner, intent, canonical(state)):
            self.lose([intent.key])
            raise DaemonLost(f"{intent.target}: its state is not kept, since another process may run it now")


class _Ended(Struct):
    """The part of a run in the index that the next one begins with."""

    result: RunEnd | None


class _Daemon(Daemon[Any, Any]):
    def __init__(self, daemons: Daemons, handler: DaemonHandler, intent: ClaimedIntent, kept: Any) -> None:
        self._daemons = daemons
        self.handler = handler
        self._intent = intent
        self.kept = kept
        """The state as JSON."""
        self._object: Any = None
        self._version = 0
        self._moved = asyncio.Event()
        self._reason: StopReason | None = None
        self.ending = asyncio.Event()
        """It has to end."""

    @property
    def object(self) -> Any:
        return self._object

    @property
    def state(self) -> Any:
        return None if self.kept is None else msgspec.convert(self.kept, self.handler.state_type)

    @property
    def reason(self) -> StopReason | None:
        return self._reason

    async def save(self, state: Any) -> None:
        if self._reason == "lost":
            raise DaemonLost(f"daemon {self.handler.name}: another process may run it now")
        content = canonical(state)
        if len(content) > MOST_BYTES:
            raise OperatorError(f"daemon {self.handler.name}: a state of {len(content)} bytes; {MOST_BYTES} are kept")
        kept = msgspec.json.decode(content)
        msgspec.convert(kept, self.handler.state_type)
        await self._daemons.keep(self._intent, kept)
        self.kept = kept

    async def stopped(self) -> StopReason:
        await self._daemons.pauses.pause(self.ending)
        assert self._reason is not None  # noqa: S101 - it is set first
        return self._reason

    async def sleep(self, delay: timedelta) -> bool:
        await self._daemons.pauses.pause(self.ending, delay)
        return self._reason is None

    def changes(self) -> AsyncGenerator[Any]:
        return self.following(lambda: (self._version, self._object))

    async def following(self, look: Callable[[], tuple[int, Any]]) -> AsyncGenerator[Any]:
        """What is seen, each time that its version has changed, until it has to end."""
        seen = 0
        while self._reason is None:
            version, found = look()
            if version != seen:
                seen = version
                yield found
            else:
                await self._daemons.pauses.pause(self._moved)

    async def until(self, condition: Callable[[Any], bool]) -> bool:
        async with contextlib.aclosing(self.changes()) as changes:
            async for found in changes:
                if condition(found):
                    return True
        return False

    def level(self, view: Callable[..., Any]) -> LiveLevel:
        place = f"{self.handler.operator}/{self.handler.view_of(view)}", self._intent.parent
        return _Level(self, self._daemons.levels, place, self._intent.parent_uid)

    def show(self, values: Collection[Any]) -> None:
        """Take note of the object, or of its end. Raises msgspec.ValidationError."""
        if not values:
            self.end("unwanted")
            return
        self._object = self.handler.taken(next(iter(values)))
        self._version += 1
        self.wake()

    def end(self, reason: StopReason) -> None:
        """Tell the function why it has to end; after that only a lost claim replaces the reason."""
        if self._reason is None or reason == "lost":
            self._reason = reason
        self.ending.set()
        self.wake()

    def wake(self) -> None:
        """Wake the function where it waits."""
        self._moved.set()
        self._moved = asyncio.Event()


class _Level(LiveLevel):
    def __init__(self, daemon: _Daemon, levels: AwaitedLevels, place: ViewParent, uid: str) -> None:
        self._daemon = daemon
        self._levels = levels
        self._place = place
        self._uid = uid

    async def get(self) -> LevelStatus | None:
        return await self._levels.read(self._place, self._uid)

    async def changes(self) -> AsyncGenerator[LevelStatus | None]:
        with self._levels.awaiting(self._place, self._uid, self._daemon.wake) as awaited:
            async for found in self._daemon.following(lambda: (awaited.version, awaited.level_status)):
                yield found

    async def until(self, condition: Callable[[LevelStatus], bool]) -> LevelStatus | None:
        async with contextlib.aclosing(self.changes()) as changes:
            async for level_status in changes:
                if level_status is not None and condition(level_status):
                    return level_status
        return None


async def _follow(daemon: _Daemon, wanted: Any) -> None:
    is_following.set(True)
    async for values in wanted:
        try:
            daemon.show(values)
        except msgspec.ValidationError as error:
            log.warning("daemon %s goes on with an older state of its object: %s", daemon.handler.name, error)


def put_off(intent: ClaimedIntent, why: str) -> Later:
    """The run goes on with the next claim, at once; it counts as no attempt."""
    return Later(intent=intent, delay=timedelta(0), error=f"runs again: {why}", is_doubtful=True, is_counted=False)
