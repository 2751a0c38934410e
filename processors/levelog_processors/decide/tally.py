"""What batches come to: how many levels, how often users' functions were called."""

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec import Struct

from levelog_processors.decide.decisionrules import must_act
from levelog_processors.decide.facts import Outlook
from levelog_store.decide.decisions import Decided

BATCH = 256
"""Most wakeups decided in one transaction: enough to share a commit; a processor takes fewer where they take long."""


class CallCounts(Struct):
    """How often user functions were called, and how often in vain."""

    functions: dict[str, int] = {}
    suppressed: int = 0
    """Wakeups that ended without a call, since nothing that the view reads had changed, or it is called later."""
    spurious: int = 0
    """Calls of a view whose inputs were all as in its last call, and whose time had not come."""

    def count(self, name: str) -> None:
        """Count one call."""
        self.functions[name] = self.functions.get(name, 0) + 1

    def take(self, look: Outlook) -> None:
        """Count what a look at a level has called, and is about to call."""
        facts = look.facts
        if look.seen is None:
            self.suppressed += 1
        elif not look.seen.blocked:
            self.count(facts.view.name)
            self.spurious += not facts.is_changed and not facts.is_woken_by_time and not facts.has_stored_drift
        if must_act(look):
            self.count(facts.view.reconcile_name)


class EvaluationBatch(Struct, frozen=True):
    """What one batch came to."""

    decided: Sequence[Decided]
    at: datetime
    """When it was decided."""
    claimed: Collection[str] = ()
    """Intents that are being carried out already."""
    has_more: bool = False
    """There is more to decide right now."""
    has_looked_up: bool = False
    """It decided on levels that others look up, which may be due now."""
    has_news: bool = False
    """A level stands otherwise that daemons may wait for."""

    @property
    def is_intent_pending(self) -> bool:
        """Tell whether there is something for an actuator."""
        rows = (row for decided in self.decided for row in decided.intents)
        return any(row.state == "pending" and row.key not in self.claimed for row in rows)
