"""What lies between levelog and those who call its users' functions in a way of their own, such as sources.

`import levelog` does not load it.
"""

from levelog.calls.caller import LeftBehind, Threads
from levelog.calls.faults import described, tell_fault
from levelog.handlers.injection import about

__all__ = [
    "LeftBehind",
    "Threads",
    "about",
    "described",
    "tell_fault",
]
