"""Compares two outcomes of each call: counts per function, and the first difference."""

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from levelog_replay.comparing import Comparison, Tally
from levelog_replay.effects.receipts import Came
from levelog_store.decide.decisions import Decision

NO_RECEIPT: Final = "the log has no receipt: it is under way, was given up for a newer one, or is from before the log"

_OUT_OF_TIME: Final = re.compile(r" \(it is given up .+ after it was decided\)$")
"""What the actuator adds where no time was left for another attempt."""


class CallDifference(Struct, frozen=True, kw_only=True):
    """A call that came out otherwise."""

    name: str
    """`operator/function`."""
    kind: str
    """Handler, timer or effect."""
    past: Decision
    """That asked for it."""
    request: Any
    """The argument of the function, decoded JSON."""
    retry: int
    before: Came
    after: Came


class Refused(Struct, kw_only=True):
    """I/O of one kind that calls were refused."""

    calls: int = 0
    """The number of calls that did it."""
    name: str
    """Function that did it first, `operator/function`."""
    what: str
    """The I/O that it did."""


class CallComparison(Comparison[CallDifference]):
    """Takes calls one by one, in the order of the decisions that asked for them.

    A decision that asks for other calls differs itself.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        """`names`: the functions, by effect; each has its row, if it was called or not."""
        super().__init__()
        self.tallies = {name: Tally() for name in sorted(set(names.values()))}
        self.refusals: dict[str, Refused] = {}
        """Refusals by kind of I/O."""

    def take(self, found: CallDifference) -> None:
        """Count a call that was made on both sides, or was recorded on the first."""
        tally = self.tally(found.name)
        refused = next((came for came in (found.before, found.after) if came.refused), None)
        if refused is not None:
            tally.refused += 1
            first = Refused(name=found.name, what=refused.what)
            self.refusals.setdefault(refused.refused, first).calls += 1
        elif is_same(found.before, found.after):
            tally.same += 1
        else:
            tally.changed += 1
            self.first = self.first or found


def is_same(one: Came, other: Came) -> bool:
    """Tell whether two calls came to the same."""
    return one.result == other.result and _error(one) == _error(other)


def _error(came: Came) -> str:
    return _OUT_OF_TIME.sub("", came.error)
