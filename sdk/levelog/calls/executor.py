"""Makes the calls of handlers and effects, within their limits, and says what follows from an error.

It stores nothing durable. Whoever asks says what the call is for, keeps its result, and asks again after a failure.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct

from levelog.calls.caller import FunctionCaller
from levelog.calls.faults import HandlerFault, StillRuns, described, tell_fault
from levelog.calls.runningtasks import RunningTasks
from levelog.effects import MOST_DELAY, EffectHandler, GiveUp, Retry
from levelog.handlers.forobjects import CalledHandler
from levelog.handlers.injection import Given

T = TypeVar("T")

AT_ONCE: Final = 10
"""Attempts after which a delay that a function asks for, or its `backoff`, is a second at least."""
PATIENCE: Final = timedelta(seconds=5)
"""Least delay while a function outlasts its time. Attempts meanwhile do not count, so the schedule stays short."""


Called: TypeAlias = EffectHandler | CalledHandler
CallOutcome: TypeAlias = Literal["returned", "failed", "given_up"]
"""The result of an attempt; another one follows on one that failed."""


class Attempt(Struct, frozen=True):
    """One attempt at a call."""

    key: Hashable
    """Key of what is called for: one attempt for it runs at a time."""
    of: Called
    subject: str
    """The object that it is for."""
    number: int
    """From 1; the next attempt has the same number if this one does not count."""
    since: datetime
    """From when on `give_up_after` counts: when the call was decided or due, or its record was made."""
    longest: timedelta
    """The longest delay that the schedule puts before the next one."""

    def given(self, key: str) -> dict[Given, Any]:
        """What a function may ask to be given of it; `key` is its idempotency key."""
        return {Given.KEY: key, Given.RETRY: self.number - 1, Given.STARTED: self.since}


class Failure(Struct, frozen=True, kw_only=True):
    """Why an attempt did not return."""

    error: str
    delay: timedelta = timedelta(0)
    """Until the next attempt."""
    is_final: bool = False
    """There is no next one: the call is given up."""
    is_counted: bool = True
    """It used up an attempt."""
    did_nothing: bool = False
    """The function says that nothing was done."""


class Executor:
    """Makes the calls of an actuator, or of a processor's timers, or of its record handlers."""

    def __init__(
        self,
        *,
        subject: str,
        clock: Callable[[], datetime],
        schedule: Callable[[int, timedelta], timedelta],
        at_once: int = AT_ONCE,
        clean: Callable[[str], str] = str,
        on_late_return: Callable[[Hashable], None] = lambda _: None,
    ) -> None:
        """`subject` is what messages call a key: "this object". `at_once` is as `AT_ONCE`.

        `schedule` gives the delay where neither the attempt nor `backoff` does, from the number of the attempt and the
        longest delay. `clean` takes secrets out of a text. `on_late_return` hears of a key whose function has returned
        although its time was over.
        """
        self._clock = clock
        self._schedule = schedule
        self._at_once = at_once
        self._clean = clean
        self.functions = FunctionCaller(subject=subject, on_late_return=self._returned_late)
        self._on_late_return = on_late_return
        self._places: dict[Called, asyncio.Semaphore] = {}
        """Semaphores of functions with a limit of calls at a time."""
        self._outlasting: dict[Hashable, Called] = {}
        """Functions with such a limit that outlast their time, and keep their places, by key."""
        self.tasks = RunningTasks()
        """Those in which callers run `make`: they begin them here, `close` drains them. Whoever asked asks again."""

    async def close(self, within: timedelta = timedelta(0)) -> None:
        """Drain the calls, then end what still runs of their functions, as far as it can be ended."""
        await self.tasks.drain(within)
        await self.functions.close()

    def time_left(self, attempt: Attempt) -> timedelta | None:
        """How long a call may still be tried; None: for ever."""
        limit = attempt.of.limits.give_up_after
        return None if limit is None else attempt.since + limit - self._clock()

    async def make(self, attempt: Attempt, call: Callable[[], Awaitable[T]]) -> T | Failure:
        """Make an attempt by `call`, which has `run` call the function; what it raises is a failure."""
        try:
            return await call()
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything; only this call is concerned
            return self.failure(attempt, error)

    async def run(self, attempt: Attempt, function: Callable[[], Any]) -> Any:
        """Call the function, once a place is free: its time begins then; one that outlasts it keeps its place.

        Raises GiveUp where no time is left for another attempt; the first is made however late it is.
        """
        of, key, most = attempt.of, attempt.key, attempt.of.limits.max_concurrency
        if most is None or self.functions.still_runs(key):  # which is refused, and needs no place
            return await self._run_now(attempt, function)
        place = self._places.setdefault(of, asyncio.Semaphore(most))
        await place.acquire()
        try:
            return await self._run_now(attempt, function)
        finally:
            if self.functions.still_runs(key):
                self._outlasting[key] = of
            else:
                place.release()

    async def _run_now(self, attempt: Attempt, function: Callable[[], Any]) -> Any:
        limits, left = attempt.of.limits, self.time_left(attempt)
        limit = limits.timeout
        if left is not None and attempt.number > 1:
            if left <= timedelta(0):
                raise GiveUp(limits.out_of_time)
            limit = min(limit, left)
        return await self.functions.run(attempt.key, function, limit, is_async=attempt.of.is_async)

    def outlasting(self, of: Called) -> set[Hashable]:
        """Keys for which a function with a limit of calls at a time still runs although its time is over."""
        return {key for key, each in self._outlasting.items() if each is of}

    def _returned_late(self, key: Hashable) -> None:
        if (of := self._outlasting.pop(key, None)) is not None:
            self._places[of].release()
        self._on_late_return(key)

    def failure(self, attempt: Attempt, error: Exception) -> Failure:
        """What follows from an error of an attempt; logs one that is neither raised on purpose nor a HandlerFault."""
        of, limits = attempt.of, attempt.of.limits
        text, delay = words_for(of.title, error), limits.backoff
        is_limited, is_counted, did_nothing = True, True, False
        match error:
            case GiveUp():
                return Failure(error=text, is_final=True)
            case StillRuns():
                delay = max(self._schedule(attempt.number, attempt.longest), PATIENCE)
                is_limited, is_counted = False, False
            case Retry():
                delay = limits.backoff if error.asked is None else error.asked
                is_limited, did_nothing = error.is_limited, True
            case _:
                if not isinstance(error, HandlerFault):
                    kind, _, name = of.title.rpartition(" ")
                    tell_fault(kind, name, of.origin, error, subject=attempt.subject, clean=self._clean)
        if is_limited and limits.retries is not None and attempt.number > limits.retries:  # the first is no retry
            return Failure(error=text, is_final=True)
        if delay is None:
            delay = self._schedule(attempt.number, attempt.longest)
        else:  # for ever, but not in a hot loop
            least = timedelta(seconds=1 if attempt.number >= self._at_once else 0)
            delay = min(max(delay, least), MOST_DELAY)
        left = self.time_left(attempt)
        if left is not None and delay >= left:
            return Failure(error=f"{text} ({limits.out_of_time})", is_final=True)
        return Failure(error=text, delay=delay, is_counted=is_counted, did_nothing=did_nothing)


def words_for(title: str, error: Exception) -> str:
    """The text of an error, live and in a replay: `handler greet: ConnectionError: no mail server`."""
    words = described(error)
    if isinstance(error, GiveUp | Retry):
        instead = "gave up" if isinstance(error, GiveUp) else "asks to be called again"
        words = words.removeprefix(type(error).__name__).removeprefix(": ") or instead
    return f"{title}: {words}"
