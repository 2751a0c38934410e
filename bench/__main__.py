"""`python -m bench [--webs N] [--changes N] [--rate N]`: all measurements, one after the other, on the same servers."""

import argparse
import asyncio

import uvloop
from rich.console import Console

from bench import first, latency
from bench.servers import Servers


async def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--webs", type=int, default=12_000, help="objects of 3 KB")
    parser.add_argument("--changes", type=int, default=2_000, help="changes, for the latency")
    parser.add_argument("--rate", type=float, default=100.0, help="changes a second")
    arguments = parser.parse_args()
    console = Console(width=110)
    async with Servers() as servers:
        await first.run(servers, console, arguments.webs)
        await latency.run(servers, console, arguments.changes, arguments.rate)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
