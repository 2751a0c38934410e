"""Notifies those who wait for what the tables hold, after the transaction that wrote it, whichever step made that.

It reads and writes no table: it is told what is folded and decided, and sees in State what is written since.
"""

from collections.abc import Callable, Collection

from levelog_log.notifications import Listener, Notifier, Topic
from levelog_processors.decide.tally import EvaluationBatch
from levelog_processors.engine import Engine
from levelog_processors.fold.batches import Folded
from levelog_processors.program import Program
from levelog_store.rows import IndexKey


async def announce_anew(notifier: Notifier) -> None:
    """Notify all who wait for what the tables hold, as somebody takes partitions.

    Who had these, or took them away, may have changed levels, keys or intents, or freed targets, and told nobody: it
    was killed, promoted other code or emptied the tables; that code may have had daemons that wait for views.
    """
    for topic in (Topic.LEVELS, Topic.INTENT, Topic.WAKE):
        await notifier.publish(topic)


class Announcements:
    """What one processor owes to those who wait; its loop notes each step, and calls `publish` after it."""

    def __init__(
        self,
        engine: Engine,
        program: Program,
        notifier: Notifier,
        listener: Listener,
        on_keys: Callable[[Collection[IndexKey]], None] | None,
    ) -> None:
        """`listener` is the loop's own, which is not notified; `on_keys` is called with keys that have changed."""
        self._engine = engine
        self._program = program
        self._notifier = notifier
        self._listener = listener
        self._on_keys = on_keys
        self._due = set[Topic]()
        """Those who wait for these can find it in the tables."""
        self._ended = set[Topic]()
        """Those who wait for these find it once what records have ended is in the tables."""
        self._keys = set[IndexKey]()
        """Keys that have changed and that nobody was told of."""
        self._backfills = 0
        """How many had not ended when those who read levels were told last."""

    def begin(self) -> None:
        """Begin with the partitions that the engine has loaded."""
        self._backfills = self._engine.tables.backfills

    def fold(self, folded: Folded) -> None:
        """Note what was folded, and is not in the tables yet."""
        self._keys |= folded.keys
        if folded.has_news:
            self._ended.add(Topic.LEVELS)
        # with other processors, one may have committed an intent meanwhile that waits for such a target
        if folded.frees_targets or (folded.has_receipts and self._engine.is_shared):
            self._ended.add(Topic.INTENT)

    def decide(self, batch: EvaluationBatch) -> None:
        """Note what was committed."""
        # another intent may wait for the target of one that is withdrawn
        if batch.is_intent_pending or any(each.withdrawn or each.withdraws for each in batch.decided):
            self._due.add(Topic.INTENT)
        if batch.has_news:
            self._due.add(Topic.LEVELS)
        if batch.has_looked_up and self._engine.is_shared:  # others may own those that look the levels up
            self._due.add(Topic.WAKE)

    async def publish(self) -> None:
        """Notify those who wait for what is in the tables now."""
        state = self._engine.state
        before, self._backfills = self._backfills, self._engine.tables.backfills
        if self._backfills < before:  # daemons, and views of others, knew nothing of these levels
            self._due |= {Topic.LEVELS, Topic.WAKE}
        if not state.ends:
            self._due |= self._ended
            self._ended.clear()
        if self._keys and not state.unwritten:
            keys, self._keys = self._keys, set()
            if self._on_keys is not None:
                self._on_keys(keys)
            if self._program.follows(keys):  # who follows an index may be anywhere
                self._due.add(Topic.WAKE)
        for topic in sorted(self._due):
            await self._notifier.publish(topic, but_not=self._listener)
            self._due.discard(topic)
