"""`PYTHONPATH=tests python -m rigs.nemesis --minutes 30 --seed 1 [--kind KIND …] [--table FILE]`.

Prints each fault and what came of it, writes the table as Markdown, and ends with status 1 if anything was wrong. The
same seed draws the same faults and edits; when exactly they meet is up to the machine.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from rigs.nemesis.faults import KINDS, Fault, drawn
from rigs.nemesis.verdicts import Verdict, judged


def until_over(faults: Iterator[Fault], seconds: float) -> Iterator[Fault]:
    """Faults, until the time is over, which begins with the first one."""
    ends_at = time.monotonic() + seconds
    yield from takewhile(lambda _: time.monotonic() < ends_at, faults)


def table(found: list[Verdict]) -> str:
    """A line for each fault, with how often it was made and the longest time that anything took."""
    lines = ["| fault | times | children right, s | all settled, s | wrong |", "|---|--:|--:|--:|---|"]
    for name in sorted({each.fault for each in found}):
        same = [each for each in found if each.fault == name]
        right, settled = (max(times) for times in zip(*(each[1:3] for each in same), strict=True))
        wrong = "; ".join(what for each in same for what in each.wrong) or "nothing"
        lines.append(f"| {name} | {len(same)} | {right:.1f} | {settled:.1f} | {wrong} |")
    return "\n".join(lines) + "\n"


async def main() -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="rigs.nemesis", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="only faults of this kind")
    parser.add_argument("--folder", type=Path, help="for the processes' logs; it is kept")
    parser.add_argument("--table", type=Path, help="file to write the table to")
    arguments = parser.parse_args()
    found: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="levelog-nemesis-") as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        faults = until_over(drawn(random.Random(arguments.seed), arguments.kind), 60 * arguments.minutes)
        async for each in judged(folder, arguments.seed, faults):
            found.append(each)
            print(f"{each.fault}: children {each.children_seconds:.1f} s, all {each.settled_seconds:.1f} s", flush=True)
            for said, what in (*(("wrong", one) for one in each.wrong), *(("noted", one) for one in each.noted)):
                print(f"  {said}: {what}", flush=True)
            if arguments.table:
                arguments.table.write_text(table(found))
    print(f"\n{table(found)}")
    return int(any(each.wrong for each in found))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
