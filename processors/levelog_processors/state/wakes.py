"""Which levels are to be decided on: those that records ask for, oldest first, and those whose time has come.

Each namespace has its turn. What the tables do not know of it yet is in `unwritten`.
"""

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from levelog_store.decide.decisions import Decided, PendingWake
from levelog_store.fold.changes import Wake, added, noted
from levelog_store.fold.levelwrites import ASKED_FOR
from levelog_store.rows import LevelRow, ViewParent, namespace_of

T = TypeVar("T")


class Wakes(Struct):
    """One wake for each level that is asked for, at once or at a time."""

    pending: dict[ViewParent, PendingWake] = {}
    _fresh: dict[str, dict[ViewParent, None]] = {}
    """Wakes that records ask for, by namespace, in the order in which they were asked for."""
    _times: list[tuple[datetime, ViewParent]] = []
    """A heap of due times to come; those that no wake has any more are skipped."""
    _timed: dict[str, dict[ViewParent, datetime]] = {}
    """Wakes whose time has come, with that, by namespace, earliest first."""
    unwritten: set[ViewParent] = set()
    """Levels whose wakes are other ones than when this was emptied last."""
    seen: dict[ViewParent, int] = {}
    """Generations of the rows by which a person has asked for levels."""
    _generation: int = 0

    def ask(self, level: ViewParent, wake: Wake) -> None:
        """Note that records ask for a level; one that is scheduled is due now, what a person asked for stays so."""
        known = self.pending.get(level)
        self._generation += 1
        is_asked_for = known is not None and known.due_at == ASKED_FOR
        self._put(
            PendingWake(
                view=level[0],
                parent=level[1],
                partition=wake.partition,
                cause=max(wake.cause, known.cause if known else 0),
                causes=added(known.causes if known else "", noted(wake.causes)),
                generation=self._generation,
                due_at=ASKED_FOR if is_asked_for else None,
            )
        )

    def restore(self, wakes: Iterable[PendingWake]) -> None:
        """Take what was asked for before, oldest cause first."""
        for wake in sorted(wakes, key=lambda each: (each.cause, each.view, each.parent)):
            self._put(wake)
            self._generation = max(self._generation, wake.generation)
            if wake.due_at == ASKED_FOR:
                self.seen[wake.view, wake.parent] = wake.generation

    def mark_written(self) -> None:
        """Take the rows as what is pending."""
        for level in self.unwritten:
            if level not in self.pending:
                self.seen.pop(level, None)
        self.unwritten.clear()

    def request(self, wake: PendingWake) -> bool:
        """Let a level be due for which another process may have asked; tells whether it has."""
        level = wake.view, wake.parent
        known = self.pending.get(level)
        is_asked_for = wake.due_at == ASKED_FOR and self.seen.get(level) != wake.generation
        is_sooner = known is not None and known.due_at is not None and known.due_at > (wake.due_at or known.due_at)
        if known is not None and not is_asked_for and not is_sooner:
            return False
        if is_asked_for:
            self.seen[level] = wake.generation
        self._put(wake if known is None else replace(known, due_at=wake.due_at, generation=wake.generation))
        return True

    def stir(self, row: LevelRow, cause: int) -> None:
        """Ask for a level that no record asks for."""
        self._generation += 1
        self._put(
            PendingWake(
                view=row.view,
                parent=row.parent,
                partition=row.partition,
                cause=cause,
                generation=self._generation,
                due_at=None,
            )
        )

    def hasten(self, level: ViewParent, at: datetime) -> bool:
        """Let a level be due at a time that waits for a later one; tells whether it does."""
        wake = self.pending.get(level)
        if wake is None or wake.due_at is None or wake.due_at <= at:
            return False
        self._put(replace(wake, due_at=at))
        return True

    def forget(self, level: ViewParent) -> None:
        """Ask for a level no more."""
        wake = self.pending.pop(level, None)
        if wake is None:
            return
        self.unwritten.add(level)
        _remove(self._fresh, level)
        _remove(self._timed, level)

    def conclude(self, decided: Decided) -> None:
        """Forget the wake of a decision, or put it off until its time; one that was asked for again stays due."""
        level = decided.name
        known = self.pending.get(level)
        if known is None or known.generation != decided.wake.generation:
            return
        if decided.due_at is None:
            self.forget(level)
        else:
            left = known.causes if decided.is_put_off else ""
            self._put(replace(known, due_at=decided.due_at, causes=left))

    def due(self, at: datetime, is_meant: Callable[[PendingWake], bool], limit: int) -> list[PendingWake]:
        """Up to so many that are due and meant, of each namespace in turn: first those whose time has come."""
        self._take_timed(at)
        namespaces = self._timed | self._fresh
        queues = deque(chain(self._timed.get(each, ()), self._fresh.get(each, ())) for each in namespaces)
        found: list[PendingWake] = []
        while queues and len(found) < limit:
            queue = queues.popleft()
            wakes = map(self.pending.__getitem__, queue)
            wake = next((each for each in wakes if (each.due_at is None or each.due_at <= at) and is_meant(each)), None)
            if wake is not None:
                found.append(wake)
                queues.append(queue)
        return found

    def are_due(self, levels: Collection[ViewParent], at: datetime) -> dict[ViewParent, int]:
        """The levels that are due, with the newest record that asks for each."""
        pending = (self.pending[level] for level in levels if level in self.pending)
        return {(each.view, each.parent): each.cause for each in pending if each.due_at is None or each.due_at <= at}

    @property
    def next_due(self) -> datetime | None:
        """When the first is due that waits for its time."""
        while self._times and not self._is_current(*self._times[0]):
            heapq.heappop(self._times)
        timed = (next(iter(queue.values())) for queue in self._timed.values())
        return min(chain(timed, (due_at for due_at, _ in self._times[:1])), default=None)

    def _put(self, wake: PendingWake) -> None:
        level = wake.view, wake.parent
        before = self.pending.get(level)
        self.pending[level] = wake
        self.unwritten.add(level)
        if wake.due_at is None:
            _remove(self._timed, level)
            self._fresh.setdefault(namespace_of(wake.parent), {})[level] = None
        elif before is None or before.due_at != wake.due_at:
            _remove(self._timed, level)
            _remove(self._fresh, level)
            heapq.heappush(self._times, (wake.due_at, level))

    def _take_timed(self, at: datetime) -> None:
        """Queue those whose time has come: once each, since a batch takes few of those that are due together."""
        unsorted = set[str]()
        while self._times and self._times[0][0] <= at:
            due_at, level = heapq.heappop(self._times)
            if self._is_current(due_at, level):
                namespace = namespace_of(level[1])
                queue = self._timed.setdefault(namespace, {})
                if queue and next(reversed(queue.values())) > due_at:  # somebody has asked for it
                    unsorted.add(namespace)
                queue[level] = due_at
        for namespace in unsorted:
            self._timed[namespace] = dict(sorted(self._timed[namespace].items(), key=itemgetter(1)))

    def _is_current(self, due_at: datetime, level: ViewParent) -> bool:
        wake = self.pending.get(level)
        return wake is not None and wake.due_at == due_at


def _remove(queues: dict[str, dict[ViewParent, T]], level: ViewParent) -> None:
    namespace = namespace_of(level[1])
    queue = queues.get(namespace, {})
    queue.pop(level, None)
    if not queue:
        queues.pop(namespace, None)
