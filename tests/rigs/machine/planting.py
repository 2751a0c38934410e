"""What is expected of a machine in which a bug is planted."""

from typing import Literal

from msgspec import Struct

from rigs.machine.bugs import Bug


class Planted(Struct, frozen=True):
    """A bug and what is expected of the machine."""

    bug: Bug
    invariants: tuple[int, ...]
    """The one that the bug is about, and others that may be found broken first."""
    examples: int
    """It is found by one of so many; 0: by the steps that are kept alone."""
    seed: int = 0
    """Of the first examples, one of which finds it; from another one on, it may take them all."""
    machine: Literal["laboratory", "edges", "daemons"] = "laboratory"
    """The one that it is for: of levels, of edge handlers, of daemons."""
