"""Calls views, in the event loop's thread, and says what each saw and gave: the one place where a view runs.

A view is an ordinary function and reads an index like a mapping. Every read is recorded: of absent keys too, and before
an exception too.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from levelog.calls import fieldreads
from levelog.calls.faults import HandlerFault, Interruption, fault_reason, tell_fault
from levelog.handlers.children import REDACTOR, ChildrenView
from levelog.handlers.injection import Given, about
from levelog.levels import Level
from levelog_base.mappings import Notes, RecordedMapping, plain
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.canonical import canonical
from levelog_processors.decide.facts import Facts, Seen, digest_with
from levelog_processors.decide.lookups import (
    IndexMemory,
    IndexReader,
    LevelLookups,
    ObjectLookups,
    Reads,
    sight,
)
from levelog_processors.decide.omissions import Omissions, omissions
from levelog_processors.guard import FunctionGuard, TookTooLong, filtered
from levelog_store.rows import ERRORS

log = logging.getLogger(__name__)

MOST_LEVEL_BYTES: Final = 8 * 2**20
"""JSON of a level's desired value, and of its actual one."""


class Evaluation:
    """One call of a view: its arguments and its result."""

    def __init__(
        self,
        facts: Facts,
        *,
        namespaces: Mapping[str, tuple[str, ...]],
        redactor: Redactor,
        memory: IndexMemory,
    ) -> None:
        """`memory` has what is looked up. `redactor` is that of what is recorded."""
        self.facts = facts
        self._redactor = redactor
        self._namespaces = namespaces
        self.reads = Reads(memory)
        self._lookups = LevelLookups(facts.view, facts.parent.body, self.reads.bucket)
        self.result = Seen(inputs=facts.inputs)
        """What the call has come to so far, but for what was read."""
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext
        """Around the call of the function."""
        self.took_too_long = False
        self._guards = facts.view.guards
        self._left_out: dict[str, Sequence[bytes]] = {}
        """Errors of objects whose keys nobody knows, by index."""

    def call(self) -> Seen:
        """Call the view, unless an index blocks it; returns what it saw and gave, or the error that it raised."""
        for index in self._guards:
            self._left_out[index] = self.reads.bucket(index, ERRORS)  # its end wakes the level, too
        if not self._omissions.blocked:
            self._take_parent()
        return self._seen()

    def _take_parent(self) -> None:
        reader = self.facts.view.handler.reader
        try:
            parent = filtered(self.facts.view, lambda: reader.take(self.facts.parent.body))
        except Interruption:
            raise
        except BaseException as error:  # noqa: BLE001 - a filter is the user's; that it raises is what the view sees
            self._fail(error)
            return
        if not reader.is_plain:
            self._evaluate(parent)
            return
        notes = Notes()
        self._evaluate(RecordedMapping(parent, notes))
        fields_read = fieldreads.encode(notes.reads)
        inputs = fieldreads.digest_of(parent, fieldreads.decode(fields_read))
        self.result = replace(self.result, fields_read=fields_read, inputs=inputs)

    def _seen(self) -> Seen:
        """What the call came to; nothing, if an index fails for a key that it read, or it read an outdated level."""
        facts, result, omitted = self.facts, self.result, self._omissions
        if blocked := omitted.blocked or self._lookups.outdated:
            result = Seen(inputs=result.inputs, fields_read=result.fields_read, blocked=blocked)
        desired = result.desired if result.level is not None else facts.before.desired
        reads = self.reads.digest(sight(facts.view, facts.parent.uid, desired))
        return replace(
            result,
            reads_digest=digest_with(reads, facts.level_statuses),
            versions=self.reads.versions,
            contents=self.reads.contents,
            looked_up=self._lookups.found,
            lacks=omitted.lacks,
        )

    @property
    def _omissions(self) -> Omissions:
        reads = self.reads
        return omissions(self._guards, lambda index: self._left_out.get(index, ()), reads.errors, reads.errors_of_whole)

    def _evaluate(self, parent: Any) -> None:
        facts, view, handler = self.facts, self.facts.view, self.facts.view.handler
        try:
            arguments: dict[str, Any] = {handler.parent_parameter: parent}
            for parameter in handler.indices:
                name = view.indices[parameter.name]
                arguments[parameter.name] = IndexReader(
                    name,
                    (parameter.key_type, parameter.value_type),
                    self.reads,
                    str(parameter.index.resource.group_resource),
                )
            arguments |= handler.given.arguments(self._given() if handler.given.given else {})
            if isinstance(handler, ChildrenView):
                arguments[REDACTOR] = self._redactor
            about(object=facts.parent.object, view=view.name)
            with self.around():
                guard = FunctionGuard(f"view {view.name}", handler.timeout)
                level = _level(guard.run(lambda: handler.function(**arguments)))
            desired, actual = _encoded("desired", level.desired), _encoded("actual", level.actual)
            if handler.reader.is_plain:  # all that is in the level was read, and is now compared as plain values
                level.desired, level.actual = plain(level.desired), plain(level.actual)
            drift, recheck_at = _drift(level), _moment(level.recheck_at)
            self.result = replace(
                self.result, level=level, desired=desired, actual=actual, drift=drift, recheck_at=recheck_at
            )
        except Interruption:
            raise
        except BaseException as error:  # noqa: BLE001 - a user's function may raise anything; only this level is concerned
            self._fail(error)

    def _given(self) -> dict[Given, Any]:
        """What the function may ask for."""
        facts, view = self.facts, self.facts.view
        lookups = ObjectLookups(view, facts.parent.body, self.reads.bucket, self._namespaces)
        levels = self._lookups.given(facts.level_statuses)
        given: dict[Given, Any] = {Given.NOW: facts.now, Given.OBJECTS: lookups, Given.LEVELS: levels}
        if Given.CHANCE in view.handler.given.given.values():  # the same at each call, so that it is no drift
            given[Given.CHANCE] = self._redactor.chance((view.name, facts.parent.uid))
        return given

    def _fail(self, error: BaseException) -> None:
        """Take an exception as what the call came to."""
        view = self.facts.view
        self.took_too_long = isinstance(error, TookTooLong)
        self.result = replace(self.result, error=fault_reason("view", view.name, error))
        tell_fault("view", view.name, view.handler.function, error, subject=self.facts.parent.object)


def _level(result: object) -> Level[Any]:
    if isinstance(result, Level):
        return result
    raise HandlerFault(f"returned {'nothing' if result is None else type(result).__name__}, not a Level")


def _encoded(side: str, value: object) -> bytes:
    try:
        encoded = canonical(value)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise HandlerFault(
            f"{side} has no JSON form ({error}): "
            "levels are made of Structs, mappings, sets, lists, texts, numbers and times"
        ) from error
    if len(encoded) > MOST_LEVEL_BYTES:
        raise HandlerFault(f"{side} has {len(encoded):,} bytes as JSON; {MOST_LEVEL_BYTES:,} are allowed")
    return encoded


def _drift(level: Level[Any]) -> bytes | None:
    """How the two sides differ, as JSON; None: not at all."""
    drift = level.drift
    return canonical({name: sorted(map(_shown, keys)) for name, keys in drift.parts() if keys}) if drift else None


def _shown(key: Any) -> str:
    return key if isinstance(key, str) else msgspec.json.encode(key).decode()


def _moment(asked: object) -> datetime | None:
    """A time that a level asks for, in UTC. Raises HandlerFault if it is no time, or has no zone."""
    if asked is None:
        return None
    if not isinstance(asked, datetime):
        raise HandlerFault(f"recheck_at is of type {type(asked).__name__}, not a datetime")
    if asked.utcoffset() is None:
        raise HandlerFault(f"recheck_at={asked.isoformat()} has no time zone: datetime(…, tzinfo=UTC)")
    try:
        at = asked.astimezone(UTC)
    except (OverflowError, ValueError) as error:
        raise HandlerFault(f"recheck_at={asked.isoformat()} is before year 1 or after year 9999 in UTC") from error
    return datetime.combine(at.date(), at.time(), UTC)  # of a class of the user's, only the time is kept


class Suspects:
    """Views that took too long lately, in this process: one of their levels is decided in each batch."""

    def __init__(self) -> None:
        self._until: dict[str, datetime] = {}

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, view: str) -> bool:
        return view in self._until

    def forget(self, now: datetime) -> None:
        """Forget those whose time is over."""
        self._until = {view: until for view, until in self._until.items() if until > now}

    def note(self, facts: Facts) -> None:
        """Suspect a view that took too long, until well after it is called again for the same object."""
        if facts.view.name not in self._until:
            log.warning("view %s is called for one object at a time, since it took too long", facts.view.name)
        self._until[facts.view.name] = facts.now + 2 * facts.longest
