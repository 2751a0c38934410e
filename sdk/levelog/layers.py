"""For layers above levelog: other ways to write an operator, each with decorators and arguments of its own.

A layer makes an Operator, and an Adapter for each function of its users, which says how that is called. It registers
them by `op.adopt(name, adapter, trigger)`. What a call asks to have written of its object, and what the next attempt
goes on from, is in the CallResult that the adapter returns. levelog does the rest as for its own handlers: it decides,
retries, limits, records, replays. A handler for kinds that only a cluster tells is an entry of `op.open_selectors`.

Limits: adapters get plain objects, yield no intents, and have no `recorded=False`. `import levelog` does not load this.
"""

from levelog.calls.caller import FunctionCaller, Threads
from levelog.calls.faults import containing, described, tell_fault
from levelog.edges import Unfinished
from levelog.handlers.adapters import Adapter, Edges, Entries, Lifetimes, Living, Records, Times, Trigger
from levelog.handlers.hooks import When
from levelog.handlers.injection import about
from levelog.handlers.outcomes import CallResult, next_call
from levelog.handlers.timers import Tick

__all__ = [
    "Adapter",
    "CallResult",
    "Edges",
    "Entries",
    "FunctionCaller",
    "Lifetimes",
    "Living",
    "Records",
    "Threads",
    "Tick",
    "Times",
    "Trigger",
    "Unfinished",
    "When",
    "about",
    "containing",
    "described",
    "next_call",
    "tell_fault",
]
