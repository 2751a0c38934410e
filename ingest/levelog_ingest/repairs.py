"""Has resources listed again of which the log lost or reordered records inside, once a processor reports that.

It notes a gap in the log, and tells the watchers; the list is theirs. It neither reads nor repairs records.
"""

import asyncio
import logging
from collections.abc import Collection
from datetime import timedelta
from typing import Final, NoReturn

import msgspec
from nats.aio.msg import Msg

from levelog.absence import level_of
from levelog_base.errors import IdentityMismatch, LevelogError
from levelog_base.wire.objects import Application
from levelog_base.wire.subjects import Control, control_subject, notification_subject
from levelog_ingest.watcher import Watcher
from levelog_log.appender import Appender
from levelog_log.chains import ChainBreak
from levelog_log.notifications import LOST
from levelog_log.publisher import MAX_MESSAGES
from levelog_log.stream import LogStream

log = logging.getLogger(__name__)

APART: Final = timedelta(minutes=1)
"""Between two lists, however often records are lost."""
_MOST_HEARD: Final = 256


class Repairs:
    """Notes a gap of each resource in the log, once for all reports before it, and has the resource listed.

    Who reads tells again until it has read of a gap, so what fails here is done later.
    """

    def __init__(
        self, stream: LogStream, appender: Appender, watchers: Collection[Watcher], application: Application
    ) -> None:
        self._stream = stream
        self._appender = appender
        self._watchers = watchers
        self._application = application
        self._heard: set[ChainBreak] = set()
        self._has_heard = asyncio.Event()

    async def run(self) -> NoReturn:
        """Listen until cancelled. Raises IdentityMismatch."""
        subject = notification_subject(self._stream.cluster, self._application, LOST)
        stop = await self._stream.connection.subscribe(subject, self._hear)
        try:
            while True:
                await self._has_heard.wait()
                self._has_heard.clear()
                heard, self._heard = self._heard, set()
                try:
                    is_new = await self._note(heard)
                except IdentityMismatch:
                    raise
                except LevelogError as error:
                    log.log(level_of(error), "lost history could not be noted: %s", error)
                    continue
                if is_new:
                    await asyncio.sleep(APART.total_seconds())
        finally:
            await stop()

    async def _hear(self, message: Msg) -> None:
        try:
            found = msgspec.json.decode(message.data, type=ChainBreak)
        except msgspec.DecodeError:  # whoever may send notifications has sent something else
            return
        if len(self._heard) < _MOST_HEARD:
            self._heard.add(found)
            self._has_heard.set()

    async def _note(self, heard: Collection[ChainBreak]) -> bool:
        missing = {watcher: new for watcher in self._watchers if (new := await self._unnoted(watcher, heard))}
        gaps = [gap for watcher, new in missing.items() for gap in watcher.gap("; ".join(sorted(map(str, new))))]
        for start in range(0, len(gaps), MAX_MESSAGES):
            await self._appender.append(*gaps[start : start + MAX_MESSAGES])
        for watcher in missing:
            watcher.has_gap.set()
        return bool(missing)

    async def _unnoted(self, watcher: Watcher, heard: Collection[ChainBreak]) -> list[ChainBreak]:
        """Reported breaks after which no gap of the resource is noted."""
        noted: dict[int, int] = {}
        for partition in {each.partition for each in heard if each.partition < self._stream.partitions}:
            subject = control_subject(self._stream.cluster, partition, Control.GAP, watcher.status.watched.resource)
            gap = await self._stream.last_record(subject)
            noted[partition] = gap.sequence if gap is not None else 0
        return [each for each in heard if noted.get(each.partition, each.before) < each.before]
