"""The past that the pages show: the log and the databases of applications."""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import Application, ObjectKey
from levelog_base.wire.objects import Sequence as LogSequence
from levelog_base.wire.records import LoggedRecord, ReceiptNoted
from levelog_base.wire.subjects import partition_of, receipt_subject
from levelog_history.pastlevels import levels_at
from levelog_history.reach import Moment
from levelog_history.records import LogSource, RecordSource, read_about
from levelog_history.selection import Selected, Shown
from levelog_history.timeline import DecisionEntry, decisions_on
from levelog_log.stream import LogStream
from levelog_replay.historysources import LiveHistory, open_history
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import PastIntent
from levelog_store.look.levelpages import ALL, LevelQuery, count_levels, read_level_page, read_unlevelled
from levelog_store.look.overview import LevelLine, with_waits
from levelog_store.look.recall import Woke, read_intents, read_parent, read_woke
from levelog_store.look.refusals import FailedBefore, read_refusals
from levelog_store.owners.handlers import UNRECORDED
from levelog_store.owners.promotion import read_handlers
from levelog_store.rows import Scope
from levelog_ui.bundlepast import BundlePast
from levelog_ui.places import LevelName, LevelPlace, line_of


class LivePast:
    """The past of applications that may be running."""

    def __init__(self, stream: LogStream, database: Database, scopes: Sequence[Scope]) -> None:
        self.stream = stream
        self.database = database
        self.scopes = scopes
        self.source: RecordSource = LogSource(stream)
        self._log_began = datetime.fromisoformat(stream.identity.created)

    @property
    def name(self) -> str:
        """The applications."""
        return ", ".join(each.application for each in self.scopes)

    async def decided(self, shown: Shown) -> list[DecisionEntry]:
        """Decisions on objects that are shown, and those that wrote to one, in their order."""
        return [
            entry
            for scope in self.scopes
            async for entry in decisions_on(self.database, scope, shown.selected, shown.has, log_began=self._log_began)
        ]

    async def history(self, application: Application) -> LiveHistory:
        """All of it up to now, to decide on again. Raises ConfigurationError if it has no such application."""
        for scope in self.scopes:
            if scope.application == application:
                return await open_history(self.stream, self.database, scope)
        raise ConfigurationError(f"the code is of application {application}, the pages are of {self.name}")

    async def parent_of(self, ordinal: int) -> str:
        """The parent that a decision was made on; empty: there is no such decision."""
        async with self.database.reading() as connection:
            for scope in self.scopes:
                if parent := await read_parent(connection, scope, ordinal):
                    return parent
        return ""

    def about(self, selected: Sequence[Selected], parents: Collection[ObjectKey]) -> AsyncIterator[LoggedRecord]:
        """Records about objects, and the receipts of what was written for parents, if there are any."""
        partitions = {partition_of(each, self.stream.partitions) for each in parents}
        subjects = [
            receipt_subject(self.stream.cluster, partition, scope.application)
            for partition in sorted(partitions)
            for scope in self.scopes
        ]
        return read_about(self.stream, selected, receipts=subjects)

    async def records(self, sequences: Collection[int]) -> list[LoggedRecord]:
        """Some records, as far as they are there."""
        found = [await self.stream.record_at(LogSequence(each)) for each in sorted(sequences)]
        return [each for each in found if each is not None]

    async def intents(
        self, entries: Sequence[DecisionEntry], _: dict[str, tuple[int, ReceiptNoted]]
    ) -> dict[str, PastIntent]:
        """The writes of decisions, by key, as far as SQL knows that they are."""
        found: dict[str, PastIntent] = {}
        async with self.database.reading() as connection:
            for scope in self.scopes:
                keys = [
                    key for each in entries if each.application == scope.application for key in each.decision.intents
                ]
                found |= await read_intents(PastIntent, connection, scope, keys) if keys else {}
        return found

    async def levels(self, wanted: LevelQuery, *, skip: int = 0, most: int) -> list[LevelPlace]:
        """At most so many levels, after those to skip: applications one after the other."""
        found: list[tuple[Scope, LevelLine]] = []
        async with self.database.reading() as connection:
            for scope in self.scopes:
                waiting = await read_unlevelled(connection, scope, wanted)
                lines = await read_level_page(connection, scope, wanted, most=skip + most)
                found += [(scope, each) for each in (*waiting[: most // 4], *lines)]
                if len(found) >= skip + most:
                    break
            shown = found[skip : skip + most]
            places: list[LevelPlace] = []
            for scope in self.scopes:
                lines = [each for of, each in shown if of is scope]
                told = await with_waits(connection, scope, lines, are_few=True)
                places += [LevelPlace(scope.application, each) for each in told]
        return places

    async def levels_at(self, moment: Moment) -> list[LevelPlace]:
        """All levels as they were at a moment. Raises ConfigurationError for one that is out of reach."""
        found = await levels_at(self.stream, self.database, self.scopes, ALL, moment)
        return [LevelPlace(scope.application, line_of(each, since=each.decided_at)) for scope, each in found]

    async def count_levels(self) -> dict[str, int]:
        """The number of levels with each status."""
        counts: Counter[str] = Counter()
        async with self.database.reading() as connection:
            for scope in self.scopes:
                counts.update(await count_levels(connection, scope))
        return counts

    async def refusals(self, before: Mapping[LevelName, int]) -> dict[LevelName, FailedBefore]:
        """The failures of each level in rounds before the given one, since it was last in sync."""
        found: dict[LevelName, FailedBefore] = {}
        async with self.database.reading() as connection:
            for scope in self.scopes:
                of_scope = {
                    (view, of): number for (name, view, of), number in before.items() if name == scope.application
                }
                failed = await read_refusals(connection, scope, of_scope)
                found |= {(scope.application, *level): each for level, each in failed.items()}
        return found

    async def woke(self, start: Moment) -> dict[int, Woke]:
        """Records that woke levels, by sequence: at least those that came after a moment."""
        found: dict[int, Woke] = {}
        for scope in self.scopes:
            await read_woke(found, self.database, scope, start.time)
        return found

    async def views(self) -> list[str]:
        """Names of the views, and of functions whose calls leave no records, sorted."""
        async with self.database.reading() as connection:
            found = [each for scope in self.scopes for each in await read_handlers(connection, scope)]
        return sorted({each.name for each in found if each.kind in ("view", *UNRECORDED)})


Past: TypeAlias = LivePast | BundlePast
"""History, and the decisions that were made on it."""
