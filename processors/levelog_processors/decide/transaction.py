"""What follows the commit of decisions: claims are handed over, and it is logged what became of levels."""

import logging
import math
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from levelog.handlers.callnames import shown_write
from levelog_store.actuate.claims import Claimant, ClaimedIntent
from levelog_store.actuate.elapsed import elapsed
from levelog_store.decide.decisions import Decided, IntentRow, Sendable
from levelog_store.decide.decisionwrites import WrittenDecisions

log = logging.getLogger(__name__)


@contextmanager
def handing_over(claimant: Claimant | None) -> Generator[list[ClaimedIntent]]:
    """Hand over what is in the list once the context ends, or have it looked up if it is unknown whether that holds."""
    claimed: list[ClaimedIntent] = []
    began = elapsed()
    try:
        yield claimed
    except BaseException:  # cut off or cancelled while it committed
        began = -math.inf
        raise
    finally:
        if claimant is not None and claimed:
            claimant.begin(claimed, began)


def claimed_intents(written: WrittenDecisions, number: int) -> list[ClaimedIntent]:
    """The intents that are claimed, by the number of the claim."""
    rows = [(each, row) for each in written.valid for row in each.intents if row.key in written.claimed]
    return [_claimed(each, row, number) for each, row in rows]


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


def tell(valid: Sequence[Decided]) -> None:
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
