"""Group commit: appends that arrive while a batch is being written go into the next batch.

`Appender` is for all tasks of a process, a `Lane` for one source of records in order. `publisher.py` writes a batch.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence as Many
from typing import Final, NoReturn, Self

from msgspec import Struct

from levelog_base.errors import LevelogError, Unavailable
from levelog_base.wire.objects import Sequence
from levelog_log.publisher import MAX_MESSAGES, BatchPublisher
from levelog_log.transport.wire import Message

log = logging.getLogger(__name__)

BATCH_MESSAGES: Final = 500  # with a sync to disk for each batch: 100 a batch 19,500 records/s, 1,000 a batch 37,000/s
BATCH_BYTES: Final = 4 * 1024 * 1024
WAITING_MESSAGES: Final = 2 * BATCH_MESSAGES
WAITING_BYTES: Final = 2 * BATCH_BYTES


class _Group(Struct, eq=False):
    """Messages of one lane, for one batch."""

    messages: Many[Message]
    size_bytes: int
    lane: "Lane"


class Appender:
    """Appends to the log for many tasks, in the order in which they came; used as `async with Appender(...)`.

    One batch is in flight at a time, nothing is delayed while idle. What waits is bounded: `append` and `Lane.submit`
    wait for room. A batch that fails takes everything that waits behind it along.
    """

    def __init__(self, publisher: BatchPublisher) -> None:
        self.publisher = publisher
        self._waiting: deque[_Group] = deque()
        self._waiting_messages = 0
        self._waiting_bytes = 0
        self._has_work = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._write_batches(), name="appender")
        return self

    async def __aexit__(self, *_: object) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._fail_waiting(_stopping())

    async def append(self, *messages: Message) -> Sequence:
        """Write messages in one atomic batch and wait until they are durable; returns the sequence of the last.

        Raises as `BatchPublisher.publish` does. When cancelled, the messages may or may not be written.
        """
        lane = Lane(self)
        await lane.submit(messages)
        return await lane.flush()

    async def wait_for_room(self) -> None:
        """Wait until there is room for more."""
        while not self._has_room.is_set():
            await self._has_room.wait()

    def submit(self, messages: Many[Message], lane: "Lane") -> None:
        """Hand in messages of a lane for one atomic batch; the lane is told its outcome exactly once.

        Raises Unavailable if the appender is closed.
        """
        if len(messages) > MAX_MESSAGES:
            raise ValueError(f"a batch holds at most {MAX_MESSAGES} messages, not {len(messages)}")
        if self._task is None:
            raise _stopping()
        group = _Group(messages, sum(len(each.payload) for each in messages), lane)
        self._waiting.append(group)
        self._count(group, 1)
        self._has_work.set()

    async def _write_batches(self) -> None:
        while True:
            await self._has_work.wait()
            batch = self._take()
            messages = [message for group in batch for message in group.messages]
            try:
                last = await self.publisher.publish(messages)
            except LevelogError as error:
                self._fail(batch, error)
            except asyncio.CancelledError:
                self._fail(batch, Unavailable("the process is stopping: the record may or may not be in the log"))
                raise
            except Exception as error:  # whoever waits has to hear of a mistake in here too
                log.exception("appending to the log failed")
                self._fail(batch, LevelogError(f"appending to the log failed: {error}"))
            else:
                ends = last - len(messages)
                for group in batch:
                    ends += len(group.messages)
                    group.lane.settle(Sequence(ends))

    def _take(self) -> list[_Group]:
        batch: list[_Group] = []
        messages = size_bytes = 0
        while self._waiting:
            group = self._waiting[0]
            messages += len(group.messages)
            size_bytes += group.size_bytes
            if batch and (messages > BATCH_MESSAGES or size_bytes > BATCH_BYTES):
                break
            batch.append(self._waiting.popleft())
            self._count(group, -1)
        if not self._waiting:
            self._has_work.clear()
        return batch

    def _count(self, group: _Group, sign: int) -> None:
        self._waiting_messages += sign * len(group.messages)
        self._waiting_bytes += sign * group.size_bytes
        if self._waiting_messages < WAITING_MESSAGES and self._waiting_bytes < WAITING_BYTES:
            self._has_room.set()
        else:
            self._has_room.clear()

    def _fail(self, batch: list[_Group], error: LevelogError) -> None:
        for group in batch:
            group.lane.settle(error)
        self._fail_waiting(error)

    def _fail_waiting(self, error: LevelogError) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._has_work.clear()
        for group in waiting:
            self._count(group, -1)
            group.lane.settle(error)


class Lane:
    """One ordered source of records: after a failure it accepts no more, so that no record overtakes a lost one.

    Its user then looks up in the log where to resume, with a new lane.
    """

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self._unsettled = 0
        self._settled = asyncio.Event()
        self._settled.set()
        self._error: LevelogError | None = None
        self._failed = asyncio.Event()
        self.last = Sequence(0)
        """Sequence of the last record that is durable; 0 before the first."""

    async def submit(self, messages: Many[Message]) -> None:
        """Hand in messages for one atomic batch, waiting only for room.

        Raises what an earlier submission failed with.
        """
        await self._appender.wait_for_room()
        self._check()
        self._appender.submit(messages, self)
        self._unsettled += 1
        self._settled.clear()

    async def until_failed(self) -> NoReturn:
        """Wait until a submission fails, and raise its error."""
        await self._failed.wait()
        self._check()
        raise AssertionError("a lane that failed has an error")

    async def flush(self) -> Sequence:
        """Wait until everything submitted is durable; returns the sequence of the last. Raises what failed."""
        await self._settled.wait()
        self._check()
        return self.last

    def settle(self, outcome: Sequence | LevelogError) -> None:
        """Take the sequence of the last record of a submission, or the error that it failed with."""
        self._unsettled -= 1
        if isinstance(outcome, LevelogError):
            self._error = self._error or outcome
            self._failed.set()
        else:
            self.last = outcome
        if self._unsettled == 0 or self._error is not None:
            self._settled.set()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


def _stopping() -> Unavailable:
    return Unavailable("the process is stopping: the record was not appended")
