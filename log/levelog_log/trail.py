"""How far a reader has read, compared with the log as it is now: records may have expired, or it is another log.

It reads the stream's state and single records. What a log lost in its middle, `chains.py` finds.
"""

import logging

from levelog_base.errors import HistoryLost
from levelog_base.wire.objects import Sequence
from levelog_log.stream import LogStream
from levelog_log.transport.jetstream import StreamState

log = logging.getLogger(__name__)


class Trail:
    """How far a log was read, and the newest record known of it.

    Checks raise HistoryLost, and HistoryInDoubt while the log may be another one.

    A log restored from a backup can have grown past everything that was read: only the id of the newest record shows
    that it is another one. Records that expire before they are read leave a hole. Without a filter each jump of the
    sequence is checked before anything beyond it is returned. With a filter jumps are normal; there a hole is a log
    that begins after what had been read at the check before. So it has to keep more than is written between two checks.
    """

    def __init__(
        self, stream: LogStream, read_to: Sequence, *, newest: tuple[Sequence, str], is_filtered: bool = False
    ) -> None:
        self.read_to = read_to
        """Sequence of the last record that came, or the one before the start."""
        self.newest, self._newest_id = newest
        self.is_filtered = is_filtered
        self._stream, self._name = stream, stream.name
        self._known = newest[0]
        self._checked_to = read_to
        self._jump: tuple[Sequence, Sequence] | None = None

    def take(self, sequence: Sequence, record_id: str) -> bool:
        """Go on to a record; False after a jump: check the log, and read it again from `read_to`."""
        is_next = sequence == self.read_to + 1 or self.is_filtered or self._begins_at(self.read_to)
        if not is_next and not self._is_deletion(sequence):
            return False
        self.read_to = sequence
        if sequence > self.newest:
            self.newest, self._newest_id = sequence, record_id
        return True

    def _begins_at(self, position: Sequence) -> bool:
        """Whether nothing was ever read up to a position, so that the log may begin anywhere."""
        return position == 0 and self._known == 0

    def _is_deletion(self, sequence: Sequence) -> bool:
        """Whether a jump was met before: the check in between has shown that the log does not begin after it."""
        jump = self.read_to, sequence
        if jump != self._jump:
            self._jump = jump
            return False
        log.error(
            "stream %s has no records %d to %d, although older ones are there: NATS lost them, or somebody deleted "
            "them. What they said is missing until the next list",
            self._name,
            self.read_to + 1,
            sequence - 1,
        )
        return True

    def check(self, first: int, last: int, *, read_to: Sequence, is_reading: bool) -> None:
        """Compare with where the log begins and ends; `read_to` is how far was read before that was asked.

        `is_reading`: more may have come meanwhile.
        """
        known = max(read_to, self._known)
        self._stream.doubts.check_end(self._name, last, known, "read")
        if is_reading and not self.is_filtered:
            return  # each jump is looked at
        since = self._checked_to if self.is_filtered else self.read_to
        if since < first - 1 and not self._begins_at(since):
            raise HistoryLost(
                f"stream {self._name} begins at {first}, after {since}, up to which it was read: records in between "
                "have expired. Let it keep more (max_age, max_bytes)"
            )
        self._checked_to = max(self._checked_to, read_to)

    async def check_whole(self, read_to: Sequence) -> StreamState:
        """Compare with the log as it is now, the id of the newest record included, while no record arrives."""
        state = await self._stream.state()
        self.check(state.first_seq, state.last_seq, read_to=read_to, is_reading=False)
        if self.newest > 0 and self.newest >= state.first_seq:  # else it has expired
            found = await self._stream.record_at(self.newest)
            self._stream.doubts.check_record(self._name, self.newest, found, self._newest_id, "read")
        return state
