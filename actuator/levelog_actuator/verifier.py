"""Looks after writes that the log has not shown for a while: reads their targets, and records what it saw in the log.

It settles nothing, and writes to no object.
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from levelog.absence import level_of
from levelog_actuator.answers import names_object
from levelog_actuator.observations import UNREADABLE, Observation
from levelog_actuator.outbox import Outbox
from levelog_actuator.sending import Sender
from levelog_base.errors import Unavailable
from levelog_base.wire.canonical import storable
from levelog_base.wire.objects import ObjectKey, Uid
from levelog_base.wire.records import TargetObserved
from levelog_log.messages import MessageWriter
from levelog_log.publisher import BatchPublisher
from levelog_store.actuate import outcomes
from levelog_store.actuate.outcomes import UnseenWrite

log = logging.getLogger(__name__)

BATCH: Final = 100
"""Targets that are read one after the other before their observations are published."""


class WriteVerifier(Struct, eq=False):
    """Reads the targets of unsettled writes, and publishes observations to the partition of the parent.

    It settles nothing: the processor that folds the observation does, and only if the target is gone.
    """

    outbox: Outbox
    sender: Sender
    publisher: BatchPublisher
    writer: MessageWriter

    async def run(self) -> None:
        """Look until cancelled. Raises IdentityMismatch if the log is another one now."""
        every = min(self.outbox.settings.resync, self.outbox.settings.look_after).total_seconds()
        while True:
            try:
                while await self.look() == BATCH:
                    pass
            except Unavailable as error:
                log.log(level_of(error), "targets of writes that the log does not show are not looked at: %s", error)
            await asyncio.sleep(every)

    async def look(self) -> int:
        """Read the targets that are due, publish what is new, and return how many were due."""
        after, most = self.outbox.settings.look_after, self.outbox.settings.most_look
        writes = await self.outbox.write(outcomes.take_unseen, limit=BATCH, after=after, most=most)
        observations = await self._read(writes)
        if observations:
            await self.publisher.publish([self.writer.message(record) for record in observations])
        return len(writes)

    async def _read(self, writes: Sequence[UnseenWrite]) -> list[TargetObserved]:
        found: list[TargetObserved] = []
        for write in writes:
            target = ObjectKey.parse(write.target)
            reply = await self.sender.read(target, write.api_version)
            if not reply.status:
                log.warning("targets of writes that the log does not show are not looked at: %s", reply.message)
                break  # the others come again, as this one does
            uid, version = "", 0
            if reply.status == 200:
                try:
                    seen = Observation.read(reply.body)
                except UNREADABLE as error:
                    log.warning("%s cannot be read: %s", write.target, error)
                    continue
                uid, version = seen.uid, seen.version
            elif not names_object(target, reply):
                log.warning("%s is not looked at: %d %s", write.target, reply.status, reply.message)
                continue
            self._tell(write, version)
            if version != write.observed_version:
                found.append(self._record(write, target, uid, version))
        return found

    def _record(self, write: UnseenWrite, target: ObjectKey, uid: str, version: int) -> TargetObserved:
        return TargetObserved(
            application=self.outbox.scope.application,
            key=write.key,
            view=write.view,
            parent=ObjectKey.parse(write.parent),
            parent_uid=Uid(write.parent_uid),
            target=target,
            target_uid=storable(uid),
            target_version=version,
            process=self.outbox.owner,
            time=datetime.now(UTC),
        )

    def _tell(self, write: UnseenWrite, version: int) -> None:
        log.warning(
            "the log has not shown version %d of %s for %d s or more; the API %s",
            write.result_version,
            write.target,
            math.floor(min(write.age, timedelta(days=999)).total_seconds()),
            f"has version {version}: is ingest behind?" if version else "has it no more",
            extra={"object": write.target, "intent": write.key, "view": write.view, "parent": write.parent},
        )
