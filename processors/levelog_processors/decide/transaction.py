"""The transaction of a cut: the wakeups that it carries, its claims, and what follows its commit."""

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.handlers.callnames import shown_write
from levelog_store.actuate import claims
from levelog_store.actuate.claims import Claimant, ClaimedIntent, Claiming
from levelog_store.actuate.elapsed import elapsed
from levelog_store.decide.decisions import Decided, IntentRow, PendingWake, Sendable
from levelog_store.decide.decisionwrites import WrittenDecisions
from levelog_store.decide.inputreads import wakes_in_turn
from levelog_store.fold.changes import Wake, added, noted
from levelog_store.fold.levelwrites import ASKED_FOR, new_generation, write_wakes
from levelog_store.rows import Scope, StoredObject, ViewParent

log = logging.getLogger(__name__)


class Carried:
    """Wakes of a fold whose levels are decided on in the same transaction, so that most never become rows.

    Guarantees that what was not decided on is a row when the transaction commits, and that nobody sees a difference:
    the causes are merged as `write_wakes` merges them.
    """

    def __init__(self, wakes: Mapping[ViewParent, Wake]) -> None:
        self._wakes = dict(wakes)
        self._generation = new_generation()

    @property
    def levels(self) -> Sequence[ViewParent]:
        """Those that no row asks for, in order."""
        return sorted(self._wakes)

    @property
    def causes(self) -> Mapping[ViewParent, int]:
        """The newest record that asks for each of them."""
        return {level: wake.cause for level, wake in self._wakes.items()}

    async def added_to(
        self, connection: AsyncConnection, scope: Scope, rows: Sequence[PendingWake], views: Collection[str]
    ) -> list[PendingWake]:
        """The wakeups of the `views` with those that are carried, in the order of `read_wakes`.

        `rows` are the wakeups that are due, and all those of the levels that are carried; the latter are written.
        """
        found = {(row.view, row.parent): row for row in rows}
        asked = {level: wake for level, wake in self._wakes.items() if level in found}
        await self._write(connection, scope, asked, {level: found[level].generation for level in asked})
        for (view, parent), wake in (asked | self._wakes).items():
            if view not in views:
                continue
            known = found.get((view, parent))
            found[view, parent] = PendingWake(
                view=view,
                parent=parent,
                partition=known.partition if known else wake.partition,
                cause=max(wake.cause, known.cause if known else 0),
                causes=added(known.causes if known else "", noted(wake.causes)),
                generation=self._generation,
                due_at=ASKED_FOR if known and known.due_at == ASKED_FOR else None,
            )
        return wakes_in_turn(found.values())

    async def leave(self, connection: AsyncConnection, scope: Scope, *, but: Collection[ViewParent] = ()) -> None:
        """Write the carried wakeups, except those that were decided on."""
        await self._write(connection, scope, {level: wake for level, wake in self._wakes.items() if level not in but})
        self._wakes.clear()

    async def _write(
        self,
        connection: AsyncConnection,
        scope: Scope,
        wakes: Mapping[ViewParent, Wake],
        seen: Mapping[ViewParent, int] | None = None,
    ) -> None:
        await write_wakes(connection, scope, wakes, generation=self._generation, seen=seen)
        for level in wakes:
            del self._wakes[level]


NOTHING_CARRIED: Final = Carried({})


class Deciding(Struct, eq=False):
    """A transaction for decisions; hints and hand-overs follow once it has committed."""

    connection: AsyncConnection
    claimant: Claimant | None
    """May get decided intents."""
    guarded: Collection[int] = ()
    """Partitions that `guard` checked."""
    objects: Mapping[str, StoredObject] = {}
    """Those that it has written, as they are now."""
    carried: Carried = NOTHING_CARRIED
    held: Sequence[Decided] = ()
    claimed: Sequence[ClaimedIntent] = ()
    began: float = field(default_factory=elapsed)

    def claiming(self, chosen: Collection[str]) -> Claiming | None:
        """How to claim the chosen intents as they are written."""
        if self.claimant is None or not chosen:
            return None
        return Claiming(chosen, self.claimant.owner, self.claimant.lease, claims.new_claim())

    def note(self, written: WrittenDecisions, claiming: Claiming | None) -> None:
        """Keep what is to be told, and handed over, once it has committed."""
        self.held = written.held
        if claiming is not None:
            rows = [(each, row) for each in written.held for row in each.intents if row.key in written.claimed]
            self.claimed = [_claimed(each, row, claiming.number) for each, row in rows]

    def hand_over(self, *, is_certain: bool) -> None:
        """Hand over the committed claims, or have them looked up if it is unknown whether they committed."""
        if is_certain:
            _tell(self.held)
        if self.claimant is not None and self.claimed:
            self.claimant.begin(self.claimed, self.began if is_certain else -math.inf)


def _claimed(decided: Decided, row: IntentRow, number: int) -> ClaimedIntent:
    wake, at = decided.wake, decided.level.evaluated_at
    if at is None:
        raise TypeError(f"{row.target} is decided by a view that was not called")
    return ClaimedIntent(
        **{name: getattr(row, name) for name in Sendable.__struct_fields__},
        view=wake.view,
        parent=wake.parent,
        parent_uid=decided.level.parent_uid,
        partition=wake.partition,
        decided_at=at,
        attempts=1,
        claim=number,
        is_doubtful=False,
    )


def _tell(held: Sequence[Decided]) -> None:
    """Log one line for all that is news, and each level at debug; a single one is news by its name.

    Of handlers, timers and daemons it is news what came of a call, which the actuator tells, and that none can be made.
    """
    news = [
        each
        for each in held
        if (each.level.status != each.basis.status or each.intents)
        and (not each.is_made or each.level.status in ("failed", "blocked"))
    ]
    single = news if len(news) == 1 else []
    for decided in held if log.isEnabledFor(logging.DEBUG) else single:
        level = decided.level
        log.log(
            logging.INFO if decided in single else logging.DEBUG,
            "%s of %s is %s%s",
            level.view,
            level.parent,
            level.status,
            f" ({level.reason})" if level.reason else "",
            extra={
                "object": level.parent,
                "view": level.view,
                "sequence": level.cause,
                "round": level.round,
                "intents": [shown_write(level.view, row.verb, row.target) for row in decided.intents],
            },
        )
    if len(news) > 1:
        counts = Counter(each.level.status for each in news)
        intents = sum(len(each.intents) for each in news)
        by_status = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        log.info("%d levels: %s", len(news), by_status, extra={"intents": intents})
