"""When the loop takes its next turn, and how much that does.

`Schedule` says when levels are due, `Pace` rests between turns, `Portion` bounds a batch, and `HighWatermark` says
how far to fold before anything is decided, which it asks the log. None of them reads or writes a table.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime, timedelta
from math import inf
from time import thread_time
from typing import Final, Self

from levelog.absence import level_of
from levelog_base.errors import Unavailable
from levelog_log.reader import Reader
from levelog_processors.decide.tally import BATCH, EvaluationBatch
from levelog_store.fold.changes import Wake
from levelog_store.rows import ViewParent

log = logging.getLogger(__name__)

RESYNC: Final = timedelta(seconds=10)
"""How long a wakeup can wait whose notification was lost; the tables are read then, no handler is called for it."""

ECHO_WAIT: Final = timedelta(seconds=0.2)
"""How long a level that only a write of its own has changed waits for the receipt, to be decided once for both."""

REST: Final = timedelta(seconds=0.1)
"""How long the ends of writes wait for other changes, to be decided and written with them."""

MOMENT: Final = timedelta(milliseconds=5)
"""The same while others wait for them, or may: so a receipt and what it tells of are decided on once."""

HURRY: Final = timedelta(seconds=2)
"""How long after an end from which more than that has followed the next ends wait but a `MOMENT`."""


class Schedule:
    """Whether wakeups are due, and the time of the next one that is scheduled.

    Notifications announce what other processes ask for; a resync finds that whose notification was lost. No wakeup
    waits for longer than `RESYNC` and `ECHO_WAIT`, whatever else does not come.
    """

    def __init__(self, clock: Callable[[], float], *, is_alone: bool = True) -> None:
        """`clock` counts seconds.

        `is_alone`: nobody else waits for the ends of writes; this process decides on all levels, and writes.
        """
        self._now = clock
        self._is_alone = is_alone
        self._is_open = True
        self._resync_at = self._now()
        self._due_at: float | None = None
        self._put_off: dict[ViewParent, float] = {}
        self._ended = set[ViewParent]()
        """Levels that are to be decided on since their writes ended."""
        self._rests_until: float | None = None
        """When their time has come; None: there are none."""
        self._hurries_until = 0.0

    @property
    def rest(self) -> timedelta:
        """How long the end of a write waits now."""
        return REST if self._is_alone and self._now() >= self._hurries_until else MOMENT

    @property
    def is_resting(self) -> bool:
        """Tell whether writes have ended that wait."""
        return self._rests_until is not None and not self.is_open

    @property
    def put_off(self) -> Collection[ViewParent]:
        """Levels that are left alone for a moment although a wakeup asks for them."""
        return self._put_off.keys()

    @property
    def is_open(self) -> bool:
        """Tell whether there may be wakeups to decide on now."""
        return self._is_open or self.wait == timedelta(0)

    @property
    def is_overdue(self) -> bool:
        """Tell whether to look what other processes ask for: a notification came, or may have been lost."""
        return self._now() >= self._resync_at

    @property
    def wait(self) -> timedelta:
        """Time until wakeups may be due without a notification."""
        put_off = next(iter(self._put_off.values()), None)  # they were put off in order
        times = (self._resync_at, put_off, self._due_at, self._rests_until)
        return timedelta(seconds=max(0.0, min(each for each in times if each is not None) - self._now()))

    def open(self) -> None:
        """Note that wakeups are or may be due."""
        self._is_open = True

    def take(self, wakes: Mapping[ViewParent, Wake]) -> None:
        """Note wakeups that a fold has written; those that only echo or end an own write wait."""
        now = self._now()
        for level, wake in wakes.items():
            if wake.is_echo:
                self._put_off.setdefault(level, now + ECHO_WAIT.total_seconds())
                continue
            self._put_off.pop(level, None)
            if not wake.is_end:
                self._is_open = True
                continue
            self._ended.add(level)
            if self._rests_until is None:
                self._rests_until = now + self.rest.total_seconds()

    def note(self, batch: EvaluationBatch) -> None:
        """Note what was decided; for a while the ends of writes wait but a moment if more than that follows from them.

        That is another write, an intent that waits for a target to be free, or a level that daemons wait for.
        """
        follows = any(decided.intents and decided.name in self._ended for decided in batch.decided)
        if follows or batch.is_intent_pending or batch.has_news:
            self._hurries_until = self._now() + HURRY.total_seconds()
        self._ended.clear()

    def close(self) -> None:
        """Note that the due wakeups are being decided."""
        self._is_open, self._rests_until, now = False, None, self._now()
        self._put_off = {level: until for level, until in self._put_off.items() if until > now}

    def plan(self, due_at: datetime | None, now: datetime) -> None:
        """Note when the first level is due that waits for its time; None: none does."""
        self._due_at = None if due_at is None else self._now() + (due_at - now).total_seconds()

    def notified(self) -> None:
        """Have the next resync now: other processes ask for something."""
        self._resync_at = self._now()

    def resynced(self) -> None:
        """Begin the wait for the next resync, and let whatever is due be decided on now, whoever asked for it."""
        self._is_open, self._resync_at = True, self._now() + RESYNC.total_seconds()


FOLD_BATCH: Final = 1000
SEVERAL: Final = 10
"""So many records at once are worth asking for the end of the log, which takes about as long as folding one."""
MOST_HELD_UP: Final = timedelta(minutes=1)
"""How long decisions wait for unread history to be folded: at 5,000 records a second, 300,000 records."""

LOOK_PATIENCE: Final = timedelta(seconds=1)
"""How long decisions wait to be told where the log ends; that takes a millisecond, unless servers elect a leader."""

AT_ONCE: Final = timedelta(milliseconds=20)
"""How long the loop waits for what it asks the log, before it goes on without the answer."""

ASK_PAUSE: Final = timedelta(seconds=1)
"""Before the log is asked again that gave no answer."""

SPRINT: Final = timedelta(seconds=0.2)
"""So much rest counts in advance: the first passes after a quiet while do not wait."""

MOST_REST: Final = timedelta(milliseconds=40)
"""How long it rests at most between two passes."""


class Pace:
    """Keeps passes to a third of the time, so that under load many changes share one; a few in a row do not wait."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` counts seconds."""
        self._clock = clock
        self._began = clock()
        self._rested_at = -inf

    def begin(self) -> None:
        """Note that a pass begins."""
        self._began = self._clock()

    def end(self) -> None:
        """Note that it has ended."""
        now = self._clock()
        rested_at = max(self._rested_at, self._began - SPRINT.total_seconds()) + 3 * (now - self._began)
        self._rested_at = min(rested_at, now + MOST_REST.total_seconds())

    @property
    def left(self) -> float:
        """Seconds until the next pass may begin; 0 or less: now."""
        return self._rested_at - self._clock()


LEAST: Final = 32
"""Fewer levels at once would take half as much again: what a transaction costs by itself is worth some 15 levels."""
LONG_SECONDS: Final = 0.04
"""Processor time of the event loop; what comes meanwhile waits, whatever namespace it is of."""


class Portion:
    """So many levels that a batch takes no more than a moment, but at least `LEAST`."""

    def __init__(self, clock: Callable[[], float] = thread_time) -> None:
        """`clock` counts seconds."""
        self._clock = clock
        self._began = 0.0
        self._most = LEAST

    def begin(self) -> int:
        """Note that a batch begins; it is to take at most so many levels."""
        self._began = self._clock()
        return self._most

    def end(self, batch: EvaluationBatch) -> None:
        """Note that it has ended: after a long one the next has half as many levels, after a short full one twice."""
        seconds = self._clock() - self._began
        if seconds > LONG_SECONDS:
            self._most = max(LEAST, min(self._most, len(batch.decided) // 2))
        elif len(batch.decided) >= self._most and seconds < LONG_SECONDS / 2:
            self._most = min(BATCH, 2 * self._most)


class HighWatermark:
    """The end of the log when reading began or began again, or when it was far behind: fold up to there first.

    So old history is folded but not acted on. Except at the beginning, this delays decisions by at most `MOST_HELD_UP`,
    so that a log that grows faster than it is folded does not delay them for ever. The log is asked beside the loop,
    which goes on folding if the answer takes longer than `AT_ONCE`; `async with HighWatermark(...)`.
    """

    def __init__(self, reader: Reader, clock: Callable[[], float]) -> None:
        """`clock` counts seconds."""
        self._reader = reader
        self._clock = clock
        self._beginnings: int | None = None
        """None: it has not begun to read."""
        self.end = 0
        """First it is folded up to here."""
        self._gives_up_at: float | None = None
        """None: nothing is held up."""
        self._asked: asyncio.Task[int] | None = None
        """What the log is asked now."""
        self._blind_until: float | None = None
        """How long nothing is decided unless it is known where the log ends; None: it is known."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._asked is not None:
            self._asked.cancel()
            await asyncio.gather(self._asked, return_exceptions=True)

    async def look(self, folded: int) -> None:
        """Ask where the log ends now, if that matters; `folded` records were in the last batch."""
        reader = self._reader
        is_first, is_anew = self._beginnings is None, self._beginnings != reader.beginnings
        # Several records at once may be the first of many that came while this process stood still. How many more there
        # are is asked then: what the server said when it sent them is as old as they are.
        is_far = self._gives_up_at is None and folded >= SEVERAL
        if not is_first and not is_anew and not is_far:
            return
        self._beginnings = reader.beginnings
        if self._gives_up_at is None:
            self._gives_up_at = inf if is_first else self._clock() + MOST_HELD_UP.total_seconds()
        # At the beginning nothing is known; later, only decisions on old history could be spared, so that they do not
        # wait for an election of NATS.
        patience = inf if is_first or is_anew else LOOK_PATIENCE.total_seconds()
        self._blind_until = self._clock() + patience
        await self._ask(reader.find_end)

    @property
    def wait(self) -> timedelta:
        """Time until more may be decided than now, if neither records nor an answer come."""
        until = self._gives_up_at if self._blind_until is None else self._blind_until
        left = inf if until is None else until - self._clock()
        return timedelta(seconds=max(0.0, min(left, RESYNC.total_seconds())))

    async def is_reached(self, *, has_records: bool) -> bool:
        """Tell whether it may be decided; `has_records`: there may be more of them right now.

        Raises what the log answered, IdentityMismatch or HistoryLost.
        """
        if self._gives_up_at is None:
            return True
        has_heard = self._take_answer()
        if self._blind_until is not None:
            if self._clock() < self._blind_until:
                return False
        elif self._clock() < self._gives_up_at:
            if not (self._is_folded(has_records=has_records) or has_records or has_heard or self._asked is not None):
                await self._ask(self._reader.confirm)
                self._take_answer()
            if not self._is_folded(has_records=has_records):
                return False
        self._gives_up_at = None
        return True

    def _is_folded(self, *, has_records: bool) -> bool:
        return (self._reader.position if has_records else self._reader.seen_to) >= self.end

    async def _ask(self, question: Callable[[], Awaitable[int]]) -> None:
        """Ask the log, and nothing else any more; an answer that does not come at once ends the loop's wait."""
        if self._asked is not None:
            self._asked.cancel()
        self._asked = asked = asyncio.create_task(_answered(question), name="high watermark")
        await asyncio.wait([asked], timeout=AT_ONCE.total_seconds())
        if not asked.done():
            asked.add_done_callback(lambda _: self._reader.on_arrival())

    def _take_answer(self) -> bool:
        """Take what the log answered, if it has; tells whether it has said what is left to read."""
        asked = self._asked
        if asked is None or not asked.done():
            return False
        self._asked = None
        answer = asked.result()
        if self._blind_until is None:
            return True
        self.end, self._blind_until = max(self.end, answer), None
        return False


async def _answered(question: Callable[[], Awaitable[int]]) -> int:
    while True:
        try:
            return await question()
        except Unavailable as error:
            log.log(level_of(error), "the end of the log is asked for again: %s", error)
            await asyncio.sleep(ASK_PAUSE.total_seconds())
