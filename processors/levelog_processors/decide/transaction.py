"""The transaction of a batch: its claims, and what follows its commit."""

import logging
import math
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct, field
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.handlers.callnames import shown_write
from levelog_store.actuate import claims
from levelog_store.actuate.claims import Claimant, ClaimedIntent, Claiming
from levelog_store.actuate.elapsed import elapsed
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Decided, IntentRow, Sendable
from levelog_store.decide.decisionwrites import WrittenDecisions

log = logging.getLogger(__name__)


@asynccontextmanager
async def deciding(database: Database, claimant: Claimant | None) -> AsyncGenerator["Deciding"]:
    """A transaction for decisions; the `claimant` may get decided intents, and then the commit waits for the disk."""
    found: Deciding | None = None
    try:
        async with database.transaction(durable=claimant is not None) as connection:
            found = Deciding(connection, claimant)
            yield found
    except BaseException:  # cut off or cancelled while it committed
        if found is not None:
            found.hand_over(is_certain=False)
        raise
    found.hand_over(is_certain=True)


class Deciding(Struct, eq=False):
    """A transaction for decisions; logs, and hand-overs to a claimant, follow once it has committed."""

    connection: AsyncConnection
    claimant: Claimant | None
    """May get decided intents."""
    valid: Sequence[Decided] = ()
    claimed: Sequence[ClaimedIntent] = ()
    began: float = field(default_factory=elapsed)

    def claiming(self, chosen: Collection[str]) -> Claiming | None:
        """How to claim the chosen intents as they are written."""
        if self.claimant is None or not chosen:
            return None
        return Claiming(chosen, self.claimant.owner, self.claimant.lease, claims.new_claim())

    def note(self, written: WrittenDecisions, claiming: Claiming | None) -> None:
        """Keep what is to be told, and handed over, once it has committed."""
        self.valid = written.valid
        if claiming is not None:
            rows = [(each, row) for each in written.valid for row in each.intents if row.key in written.claimed]
            self.claimed = [_claimed(each, row, claiming.number) for each, row in rows]

    def hand_over(self, *, is_certain: bool) -> None:
        """Hand over the committed claims, or have them looked up if it is unknown whether they committed."""
        if is_certain:
            _tell(self.valid)
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


def _tell(valid: Sequence[Decided]) -> None:
    """Log one line for all that is news, and each level at debug; a single one is news by its name.

    A handler, timer or daemon is news only if no call can be made for it: the actuator tells how its calls end.
    """
    news = [
        each
        for each in valid
        if (each.level.status != each.basis.status or each.intents)
        and (not each.is_made or each.level.status in ("failed", "blocked"))
    ]
    single = news if len(news) == 1 else []
    for decided in valid if log.isEnabledFor(logging.DEBUG) else single:
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
