"""State alone, without servers: CPU of folds, of a change that nothing reads and of changed code; memory by bodies."""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from bench.programs import OPERATORS
from levelog_base.wire.records import ObjectSeen
from levelog_cli.loading import load_operators
from levelog_processors.fold.batches import parts
from levelog_processors.program import Program
from levelog_processors.restoring import index_anew, left_behind, wake_outdated
from levelog_processors.state.contents import MOST_BYTES
from levelog_processors.state.state import State
from levelog_store.owners.handlers import Backfill, Kind
from rigs.webs import WEBS, logged, web

APPLICATION: Final = "state"
PARTITIONS: Final = 16
BATCH: Final = 64
WRITTEN_EVERY: Final = 10_000
"""Objects after which a processor has written what it folded."""
PADDING: Final = 2_800
"""Bytes, so that objects have 3 KB."""


def run(console: Console, count: int) -> None:
    """Measure and print."""
    table = Table(title=f"State of {count} objects of 3 KB, one index and one view", title_justify="left")
    for name in ("", "all bodies in memory", "32 MiB of them"):
        table.add_column(name, justify="right")
    rows: dict[str, list[str]] = {}
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        for found in processes.map(_measured, (count, count), (None, MOST_BYTES)):
            for what, value in found.items():
                rows.setdefault(what, []).append(value)
    for what, values in rows.items():
        table.add_row(what, *values)
    console.print(table)


def _measured(count: int, most: int | None) -> dict[str, str]:
    program = Program(load_operators([OPERATORS / "indexed.py"]))
    before = _megabytes()
    state = State(program, APPLICATION, PARTITIONS, most_bodies=most)
    first, noise = _fold(state, count, 0), _fold(state, count, count, "noise")
    memory = _megabytes() - before
    return {
        "fold of a new object, µs": f"{first / count * 1e6:.0f}",
        "fold of a change that nothing reads, µs": f"{noise / count * 1e6:.0f}",
        "memory, MB": f"{memory:.0f}",
        "changed code, until views are called, s": f"{_computed_anew(program, state):.1f}",
    }


def _computed_anew(program: Program, state: State) -> float:
    """CPU seconds."""
    began = time.process_time()
    changed: dict[Kind, list[str]] = {"index": list(program.indices), "view": list(program.views)}
    jobs = [
        Backfill(kind=kind, name=name, resource=str(WEBS), partition=partition)
        for kind, names in changed.items()
        for name in names
        for partition in range(PARTITIONS)
    ]
    for job, names in left_behind(state, jobs):
        rows = [state.objects[name] for name in names]
        whole = [row if row.body else replace(row, body=_web(row.name, row.version).body) for row in rows]
        state.apply(index_anew(state, job, whole))
    wake_outdated(state, jobs)
    return time.process_time() - began


def _web(name: str, version: int, noise: str = "") -> ObjectSeen:
    image = f"image-{hash(name) % 1000}"
    return web(name, version, image=image, annotations={"noise": noise, "padding": PADDING * "x"})


def _fold(state: State, count: int, first: int, noise: str = "") -> float:
    """CPU seconds of folding a record of each object."""
    spent, unwritten = 0.0, 0
    for number in range(0, count, BATCH):
        numbers = range(number, min(number + BATCH, count))
        records = [_web(f"web-{each:06}", first + each + 1, noise) for each in numbers]
        batch = logged(records, first=first + number + 1, partitions=PARTITIONS)
        began = time.process_time()
        for part in parts(batch):
            state.apply(state.fold(part))
        spent += time.process_time() - began
        unwritten += len(batch)
        if unwritten >= WRITTEN_EVERY:
            state.mark_written()
            unwritten = 0
    state.mark_written()
    return spent


def _megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
