"""`python -m bench [WHAT ...]`: measurements, one after the other, on servers that all of them share.

WHAT is `edges` (stories of handlers, side by side with Kopf), `changes` (what a change takes, side by side with Go and
Kopf), `sizes` (what the number of objects takes, likewise), `several` (several operators on one resource, likewise),
`processors` (one, two and four that share the work, and what takes over when one is killed),
`tenants` (what a namespace that never rests costs a quiet one), `lasting` (timers and daemons), `children` (what one
parent of many children leaves in the tables), `replay` (history read and decided again), `state` (what is in memory,
without servers); by default all.
"""

import argparse
import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console

from bench import changes, children, edges, lasting, processors, replay, several, sizes, state, tenants
from bench.servers import Servers

SIZES: Final = [12_000, 100_000]


async def _state(console: Console, a: Namespace) -> None:
    state.run(console, a.records)


async def _lasting(servers: Servers, console: Console, a: Namespace) -> None:
    every, daemons = timedelta(seconds=a.every), a.timers // 5
    await lasting.run(servers, console, a.timers, daemons, every, a.peer, is_recorded=not a.unrecorded)


ALONE: Final[dict[str, Callable[[Console, Namespace], Awaitable[None]]]] = {
    "edges": lambda console, _: edges.run(console),
    "replay": lambda console, a: replay.run(console, a.records),
    "state": _state,
}
"""What needs no servers, or starts its own."""
ON_SERVERS: Final[dict[str, Callable[[Servers, Console, Namespace], Awaitable[None]]]] = {
    "changes": lambda s, console, a: changes.run(s, console, a.objects, a.rounds, a.peer, a.picture),
    "sizes": lambda s, console, a: sizes.run(s, console, sorted(a.size or SIZES), a.peer),
    "several": lambda s, console, a: several.run(s, console, min(a.objects, 1_000), a.peer),
    "processors": lambda s, console, a: processors.run(s, console, min(a.objects, 1_000), a.rounds),
    "tenants": lambda s, console, a: tenants.run(s, console, a.objects, a.rounds, a.peer),
    "lasting": _lasting,
    "children": lambda s, console, a: children.run(s, console, a.children),
}
PARTS: Final = [*ALONE, *ON_SERVERS]


async def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="WHAT", help=", ".join(PARTS))
    parser.add_argument("--records", type=int, default=100_000, help="records of 3 KB, for `replay` and `state`")
    parser.add_argument("--objects", type=int, default=2_000, help="objects of 3 KB, for `changes`")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, for `changes`")
    parser.add_argument("--size", type=int, action="append", help="objects of 3 KB, for `sizes`: 12000 and 100000")
    parser.add_argument("--timers", type=int, default=10_000, help="timers, for `lasting`, and five times the daemons")
    parser.add_argument("--every", type=float, default=600.0, help="seconds, for `lasting`")
    parser.add_argument("--unrecorded", action="store_true", help="timers without records, for `lasting`")
    parser.add_argument("--children", type=int, default=5_000, help="children of one parent, for `children`")
    parser.add_argument("--picture", type=Path, help="SVG file, for `changes`")
    parser.add_argument(
        "--peer", action="append", default=[], help="one of those that are compared side by side: Go, SQLite, …"
    )
    arguments = parser.parse_args()
    what = arguments.what or PARTS
    if unknown := set(what) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: there is {', '.join(PARTS)}")
    console = Console(width=110)
    for name in ALONE.keys() & what:
        await ALONE[name](console, arguments)
    if not ON_SERVERS.keys() & what:
        return
    async with Servers() as servers:
        for name, run in ON_SERVERS.items():
            if name in what:
                await servers.delete_webs()
                await run(servers, console, arguments)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
