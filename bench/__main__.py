"""`python -m bench [WHAT ...]`: measurements, one after the other, on servers that all of them share.

WHAT is `edges` (stories of handlers, side by side with Kopf), `changes` (what a change takes, side by side with Go and
Kopf), `sizes` (what the number of objects takes, likewise), `several` (several operators on one resource, likewise),
`processors` (one, two and four that share the work, and what takes over when one is killed),
`tenants` (what a namespace that never rests costs a quiet one), `lasting` (timers and daemons), `noise` (calls for
changes that nothing reads), `children` (what one parent of many children leaves in the tables), `replay` (history read
and decided again), `state` (what is in memory, without servers); by default all.
"""

import argparse
import asyncio
from datetime import timedelta
from pathlib import Path

import uvloop
from rich.console import Console

from bench import (
    changes,
    children,
    edges,
    lasting,
    noise,
    processors,
    replay,
    several,
    sizes,
    state,
    tenants,
)
from bench.servers import Servers

SIZES = (12_000, 100_000)
PARTS = [
    "edges",
    "changes",
    "sizes",
    "several",
    "processors",
    "tenants",
    "lasting",
    "noise",
    "children",
    "replay",
    "state",
]


async def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="WHAT", help=", ".join(PARTS))
    parser.add_argument("--noise", type=int, default=10_000, help="changes that nothing reads")
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
    if "edges" in what:
        await edges.run(console)
    if "replay" in what:
        await replay.run(console, arguments.records)
    if "state" in what:
        state.run(console, arguments.records)
    if set(what) <= {"edges", "replay", "state"}:
        return
    async with Servers() as servers:
        if "changes" in what:
            await changes.run(servers, console, arguments.objects, arguments.rounds, arguments.peer, arguments.picture)
        if "sizes" in what:
            await servers.delete_webs()
            await sizes.run(servers, console, sorted(arguments.size or SIZES), arguments.peer)
        if "several" in what:
            await servers.delete_webs()
            await several.run(servers, console, min(arguments.objects, 1_000), arguments.peer)
        if "processors" in what:
            await servers.delete_webs()
            await processors.run(servers, console, min(arguments.objects, 1_000), arguments.rounds)
        if "tenants" in what:
            await servers.delete_webs()
            await tenants.run(servers, console, arguments.objects, arguments.rounds, arguments.peer)
        if "lasting" in what:
            await servers.delete_webs()
            every = timedelta(seconds=arguments.every)
            timers, daemons = arguments.timers, arguments.timers // 5
            is_recorded = not arguments.unrecorded
            await lasting.run(servers, console, timers, daemons, every, arguments.peer, is_recorded=is_recorded)
        if "noise" in what:
            await servers.delete_webs()
            await noise.run(servers, console, 1000, arguments.noise)
        if "children" in what:
            await servers.delete_webs()
            await children.run(servers, console, arguments.children)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
