"""Finds the levels that a name stands for, and the decisions to show."""

from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import GroupResource
from levelog_history.explaining import Explained, explain, newest_chain
from levelog_history.happenings import Happened, read_happened
from levelog_history.ignoring import Asking, Ignored, ignored_changes
from levelog_history.reach import Moment, refuse_beyond, unread
from levelog_history.records import LogSource, chosen
from levelog_history.selection import Selected, few, is_named
from levelog_log.stream import LogStream
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Decision, PastIntent
from levelog_store.fold.checkpoints import read_points
from levelog_store.look.levelpages import LevelQuery, read_level_lines
from levelog_store.look.queues import read_queues
from levelog_store.look.recall import (
    read_decisions,
    read_intents,
    read_intents_on,
    read_objects_read,
    read_unconsumed,
)
from levelog_store.rows import Scope, ViewParent

_MOST_READ: Final = 200
"""Objects that a level reads whose changes are looked at; of more, some."""


class Question(Struct, frozen=True, kw_only=True):
    """The object of a question, and the view if it names one."""

    name: str
    view: str = ""
    since: str = ""
    at: str = ""
    is_all: bool = False
    is_suppressed: bool = False

    @property
    def place(self) -> str:
        """The name of the object that is asked about, or a slash and how it ends. Raises ConfigurationError."""
        parts = self.name.split("/")
        return f"/{self.name}" if len(parts) < 3 and all(parts) else str(Selected.parse(self.name).key)

    def moment(self) -> Moment | None:
        """The moment that is asked about, if one is. Raises ConfigurationError."""
        if sum(map(bool, (self.since, self.at, self.is_all))) > 1:
            raise ConfigurationError("say one of --since, --at and --all")
        text = self.since or self.at
        return Moment.parse(text, datetime.now(UTC)) if text else None


class KeptLevel(Struct, frozen=True, kw_only=True):
    """A level with all decisions that are kept of it, oldest first."""

    scope: Scope
    decisions: list[Decision]
    target: str = ""
    """The object of the question, if it is not the parent."""

    @property
    def view(self) -> str:
        """Operator and view."""
        return self.decisions[0].view

    @property
    def parent(self) -> str:
        """Name of the parent."""
        return self.decisions[0].parent


class Looking:
    """Answers questions from a log, and the applications on it."""

    def __init__(self, stream: LogStream, database: Database, scopes: list[Scope]) -> None:
        self._stream = stream
        self._database = database
        self._scopes = scopes

    async def levels(self, question: Question) -> list[KeptLevel]:
        """Levels of the object, else those that wrote it.

        Raises ConfigurationError for an object or view without a decision, and a moment that the log does not reach.
        """
        moment = question.moment()
        if moment is not None and (question.at or moment.time is None):
            await refuse_beyond(LogSource(self._stream), moment)
        found = await self._found(question.place)
        name = question.name
        if not found and name.count("/") == 1 and all(name.split("/")):  # as kubectl takes names
            full = [str(each.key) for each in await chosen(LogSource(self._stream), [name]) if each.key is not None]
            if len(full) > 1:
                raise ConfigurationError(f"{name} may be {few(set(full))}: write one of them")
            name = full[0] if full else name
            found = await self._found(name) if full else []
        wanted = [each for each in found if not question.view or is_named(question.view, each.view)]
        if not wanted and found:
            if said := await self._held(found[0].parent, question.view):
                raise ConfigurationError(said)
            views = few({each.view for each in found})
            raise ConfigurationError(
                f"no view {question.view!r} decided on {question.name}; there are decisions of {views}"
            )
        if not wanted:
            resource, *rest = name.split("/")
            unwatched = await unread(LogSource(self._stream), GroupResource.parse(resource)) if len(rest) == 2 else ""
            shown = f"`levelog levels` shows what is decided on, `levelog history {name}` who changed it"
            why = await self._held(name) or unwatched or shown
            raise ConfigurationError(f"nothing was decided on {name} or written to it: {why}")
        return wanted

    async def _held(self, name: str, view: str = "") -> str:
        """How a call that leaves no records has failed for an object; empty: none has."""
        async with self._database.reading() as connection:
            for scope in self._scopes:
                for line in await read_level_lines(connection, scope, LevelQuery(view=view, name=name)):
                    if line.is_held:
                        last = f"the last one is {line.status}: {line.told_reason}"
                        return f"calls of {line.view} leave no decisions; {last}"
        return ""

    async def _found(self, place: str) -> list[KeptLevel]:
        """Levels of the objects whose name is, or ends so; else those that wrote them."""
        found: list[KeptLevel] = []
        async with self._database.reading() as connection:
            for scope in self._scopes:
                decisions = await read_decisions(connection, scope, [place])
                found += [KeptLevel(scope=scope, decisions=each) for each in _by_level(decisions)]
                intents = [] if decisions else await read_intents_on(connection, scope, place)
                for target in dict.fromkeys(intent.target for intent in intents):
                    writes = [intent for intent in intents if intent.target == target]
                    decisions = await read_decisions(connection, scope, [intent.parent for intent in writes])
                    written = _by_level(_writing({intent.key for intent in writes}, decisions))
                    found += [KeptLevel(scope=scope, decisions=each, target=target) for each in written]
        return found

    async def decisions(self, level: KeptLevel, question: Question) -> list[Explained]:
        """The decisions that are asked about: since the level was last at rest, of a target up to its last write."""
        intents = await self._intents(level)
        happened = await self._happened(level, _watched(intents))
        async with self._database.reading() as connection:
            queues = await read_queues(connection, level.scope, list(intents))
        explained = explain(level.decisions, intents, happened, queues)
        every = explained
        if level.target:
            explained = [each for each in explained if any(w.intent.target == level.target for w in each.writes)]
        moment = question.moment()
        if moment is not None:
            before = [each for each in explained if moment.has_seen(each.decision)]
            if question.since:
                return explained[len(before) :]
            _refuse_undecided(level, explained, moment)
            explained = before
        if question.is_all:
            return explained
        if level.target and explained:
            explained = every[: every.index(explained[-1]) + 1]
        return newest_chain(explained)

    async def ignored(self, level: KeptLevel, since: Moment | None) -> list[Ignored]:
        """The changes that led to no decision."""
        async with self._database.reading() as connection:
            looked, waiting = await read_unconsumed(connection, level.scope, level.view, level.parent)
            read = await read_objects_read(connection, level.scope, level.view, level.parent, _MOST_READ)
            folded = {point.partition: point.sequence for point in await read_points(connection, level.scope)}
        intents = await self._intents(level)
        objects = _watched(intents) | {name for name in read if not name.startswith("@")}
        happened = await self._happened(level, objects)
        asking = Asking(decisions=level.decisions, looked=looked, waiting=waiting, intents=intents, folded=folded)
        return ignored_changes(asking, happened, since, self._stream.partitions)

    async def _intents(self, level: KeptLevel) -> dict[str, PastIntent]:
        keys = [key for each in level.decisions for key in each.intents]
        async with self._database.reading() as connection:
            return await read_intents(PastIntent, connection, level.scope, keys) if keys else {}

    async def _happened(self, level: KeptLevel, objects: set[str]) -> Happened:
        sequences = {sequence for each in level.decisions for sequence in each.causes.sequences}
        application = level.scope.application
        return await read_happened(
            self._stream, sequences, {level.parent, *objects}, parent=level.parent, application=application
        )


def _by_level(decisions: list[Decision]) -> list[list[Decision]]:
    levels: dict[ViewParent, list[Decision]] = {}
    for each in decisions:
        levels.setdefault((each.view, each.parent), []).append(each)
    return list(levels.values())


def _writing(keys: set[str], decisions: list[Decision]) -> list[Decision]:
    """The decisions on those levels that one of some intents comes from."""
    levels = {(each.view, each.parent) for each in decisions if keys & set(each.intents)}
    return [each for each in decisions if (each.view, each.parent) in levels]


def _watched(intents: dict[str, PastIntent]) -> set[str]:
    return {intent.target for intent in intents.values() if intent.is_watched}


def _refuse_undecided(level: KeptLevel, explained: list[Explained], moment: Moment) -> None:
    first = explained[0].decision if explained else level.decisions[0]
    if not moment.has_seen(first):
        what = f"did not write {level.target}" if level.target else f"decided nothing on {level.parent}"
        raise ConfigurationError(
            f"{level.view} {what} by {moment}: the first such decision that is kept is of "
            f"sequence {first.sequence}, {first.decided_at:%Y-%m-%d %H:%M:%S} UTC"
        )
