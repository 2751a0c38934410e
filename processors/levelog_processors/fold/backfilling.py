"""Recomputes after code changes: entries of indices, then wakeups of the parents of views.

The owner of a partition does it in the task that folds, so that the two never run at the same time. Each page commits
with its position: if a processor is killed, the next owner of the partition does the rest.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from levelog.counting import counted
from levelog_processors.fold.rules import Fold
from levelog_processors.headway import TELL_EVERY, Headway
from levelog_processors.program import Program
from levelog_store.connect.database import Database
from levelog_store.decide.inputreads import read_checkpoints
from levelog_store.fold.changes import Changes
from levelog_store.fold.changewrites import write_changes
from levelog_store.fold.heldreads import read_held, read_times
from levelog_store.owners.backfills import (
    Backfill,
    BackfillPage,
    count_objects,
    read_page,
    read_unfinished,
    write_progress,
)
from levelog_store.owners.leases import guard
from levelog_store.rows import IndexKey, Scope

log = logging.getLogger(__name__)

NEVER: Final = timedelta.max
PAGE: Final = 100
"""Most that is done at once: small enough that a live change waits a few hundredths of a second for it at most."""

PAGES_A_SECOND: Final = 5
"""At low rates a page is the work of a fifth of a second, so that progress is steady."""


class Pace:
    """A token bucket that holds one page, full at the beginning; `rate` is by the second, of whatever is counted."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        if rate <= 0:
            raise ValueError(f"a rate of {rate} a second would never end")
        self._rate = rate
        self._clock = clock
        self.page: Final = max(1, min(PAGE, int(rate / PAGES_A_SECOND)))
        """How much may be done at once."""
        self._held = float(self.page)
        self._at = clock()

    @property
    def wait(self) -> timedelta:
        """Time until a page may be done."""
        self._fill()
        return timedelta(seconds=max(0.0, (self.page - self._held) / self._rate))

    def take(self, done: int) -> None:
        """Count work that was done."""
        self._fill()
        self._held -= done

    def _fill(self) -> None:
        now = self._clock()
        self._held = min(float(self.page), self._held + (now - self._at) * self._rate)
        self._at = now


class Job(Struct, frozen=True):
    """An index or a view to recompute, in this processor's partitions that are not done."""

    name: str
    kind: str
    resource: str
    positions: dict[int, str]
    objects: int
    """That are done in them already."""


class BackfillStep(Struct, frozen=True):
    """What a page has changed."""

    objects: int
    """That it has."""
    keys: Collection[IndexKey]
    """Keys of indices."""
    has_woken: bool
    has_finished: bool
    """The job is done in the partitions of this processor; elsewhere somebody may wait for that."""


class Backfiller:
    """Works off the backfills of the partitions leased under `epochs`, a page at a time, at a limited rate."""

    def __init__(
        self, database: Database, scope: Scope, program: Program, epochs: Mapping[int, int], pace: Pace
    ) -> None:
        self._database = database
        self._scope = scope
        self._program = program
        self._epochs = epochs
        self._pace = pace
        self._unfinished: list[Backfill] = []
        self._is_over = False
        self._told: dict[str, _Told] = {}

    @property
    def wait(self) -> timedelta:
        """Time until `step` has something to do, so far as is known."""
        return self._pace.wait if self._jobs() else NEVER

    @property
    def headway(self) -> list[Headway]:
        """Progress of the jobs that it has begun, over the objects of all processors."""
        return [told.headway for told in self._told.values() if not told.is_over]

    async def look(self) -> Collection[str]:
        """Read what is left to do, here and elsewhere; returns the views that wait for it."""
        if not self._is_over:
            async with self._database.reading() as connection:
                self._unfinished = await read_unfinished(connection, self._scope)
            self._is_over = not self._unfinished  # other code would take the leases away first
        return self._blocked()

    async def step(self, *, wakes: bool) -> BackfillStep | None:
        """Do the next page if there is one and the rate allows it; parents are woken only if `wakes`.

        Raises LeaseLost, with nothing of the page committed.
        """
        jobs = [job for job in self._jobs() if wakes or job.kind == "index"]
        if not jobs or self._pace.wait:
            return None
        job = jobs[0]
        scope = self._scope
        async with self._database.reading() as connection:
            if job.name not in self._told:
                counted = await count_objects(connection, scope, [job.resource])
                self._told[job.name] = _Told(job, counted[job.resource])
            page = await read_page(connection, scope, job.resource, job.positions, self._pace.page)
            names = [row.object for row in page.objects]
            held = await read_held(
                connection, scope, names, indexed=names if job.kind == "index" else (), has_parents=job.kind == "view"
            )
            if self._program.expires:
                held.times = await read_times(connection, scope)
            folded_to = await read_checkpoints(connection, scope)
        sequence = max(folded_to[partition] for partition in job.positions)
        held.entries = {name: [e for e in found if e.index == job.name] for name, found in held.entries.items()}
        fold = Fold(self._program, self._scope.application, held)
        if job.kind == "index":
            changes = fold.index_anew(self._program.indices[job.name], page.objects, sequence)
        else:
            changes = fold.wake_anew(self._program.views[job.name], page.objects, sequence)
        await self._write(job, page, changes)
        self._pace.take(max(1, len(names)))
        self._told[job.name].tell(len(names), is_last=page.is_last)
        return BackfillStep(len(names), keys=changes.keys, has_woken=bool(changes.wakes), has_finished=page.is_last)

    async def _write(self, job: Job, page: BackfillPage, changes: Changes) -> None:
        async with self._database.transaction(durable=False) as connection:
            await guard(connection, self._scope, {partition: self._epochs[partition] for partition in job.positions})
            await write_changes(connection, self._scope, changes)
            await write_progress(connection, self._scope, job.name, job.positions, page)
            unfinished = await read_unfinished(connection, self._scope)
        self._unfinished = unfinished

    def _jobs(self) -> list[Job]:
        """What can be done now: indices, then views that wait for none."""
        blocked = self._blocked()
        jobs: dict[str, Job] = {}
        for row in self._unfinished:
            if row.partition in self._epochs and row.name not in blocked:
                job = jobs.get(row.name) or Job(row.name, row.kind, row.resource, {}, 0)
                positions = {**job.positions, row.partition: row.position}
                jobs[row.name] = replace(job, positions=positions, objects=job.objects + row.objects)
        return sorted(jobs.values(), key=lambda job: (job.kind, job.name))

    def _blocked(self) -> Collection[str]:
        """Views that may not decide yet, since an index that they read is not complete."""
        unfinished = {row.name for row in self._unfinished}
        views = (each for each in self._program.handlers if each.kind == "view")
        return {each.name for each in views if not unfinished.isdisjoint(each.reads)} if unfinished else ()


class _Told:
    """What the log says of one job."""

    def __init__(self, job: Job, objects: int) -> None:
        self._name = f"{job.kind} {job.name}"
        self._objects = objects
        self._before = job.objects
        self._done = 0
        self.is_over = False
        self._clock = asyncio.get_running_loop().time
        self._at = self._clock()
        log.info(
            "recomputes %s, since its code changed: %s of %s", self._name, counted(objects, "object"), job.resource
        )

    @property
    def headway(self) -> Headway:
        """How far it is."""
        done = min(self._before + self._done, self._objects)
        return Headway(what=self._name, done=done, total=self._objects, unit="objects")

    def tell(self, done: int, *, is_last: bool) -> None:
        """Count objects, and say so once in a while."""
        self._done += done
        self.is_over = is_last
        if is_last:
            log.info("has recomputed %s: %s by this processor", self._name, counted(self._done, "object"))
        elif self._clock() - self._at >= TELL_EVERY.total_seconds():
            self._at = self._clock()
            total = counted(self._objects, "object")
            log.info("recomputes %s: %d of %s by this processor", self._name, self._done, total)
