"""What is expected of a machine in which a bug is planted, and the steps that are kept, by which it is found."""

import json
import os
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from rigs.machine.bugs import Bug

_KEPT: Final = Path(__file__).parents[2] / "machines/planted.jsonl"
"""A line for each bug: its name after that of its machine, and the steps."""
_KEEP_VARIABLE: Final = "LEVELOG_TEST_KEEP"


def kept_steps(machine: str, bug: Bug) -> Any:
    """The steps that find a bug, as they were given to `keep_steps`."""
    return _all_kept()[f"{machine}/{bug.__name__}"]


def keep_steps(machine: str, bug: Bug, steps: Any) -> None:
    """Keep other steps, if the environment asks for that; one run of the tests at a time may."""
    if _KEEP_VARIABLE in os.environ:
        kept = _all_kept() | {f"{machine}/{bug.__name__}": steps}
        _KEPT.write_text("".join(f"{json.dumps([name, kept[name]])}\n" for name in sorted(kept)))


def _all_kept() -> dict[str, Any]:
    return dict(map(json.loads, _KEPT.read_text().splitlines()))


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
