"""The decisions of one cut: wakeups are read, views called, reconcile functions asked, and the outcome written."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, field
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.errors import OperatorError
from levelog.handlers import ReconcileHandler
from levelog.injection import Given
from levelog.intents import Intent
from levelog.levels import Level
from levelog.objects import ObjectKey
from levelog_processors.deciding import Case, conclude
from levelog_processors.evaluation import Evaluation, digest_of, evaluate
from levelog_processors.fold import WHOLE_INDEX, parent_inputs
from levelog_processors.outcomes import intent_rows, target_key
from levelog_processors.program import Program
from levelog_store import decisions
from levelog_store import inputs as stored
from levelog_store.database import Database
from levelog_store.leases import guard
from levelog_store.rows import (
    Bucket,
    Decided,
    IndexKey,
    IntentRow,
    PendingWake,
    ViewParent,
    WholeIndex,
)
from levelog_store.scopes import Scope

log = logging.getLogger(__name__)

BATCH = 256
"""Wakeups decided in one transaction: large enough to share a commit, small enough to keep the fold waiting briefly."""


class Calls(Struct):
    """How often user functions were called, and how often in vain."""

    functions: dict[str, int] = field(default_factory=dict[str, int])
    suppressed: int = 0
    """Wakeups that ended without a call, since nothing that the view reads had changed."""
    spurious: int = 0
    """Calls of a view that saw just what it had seen the last time, without its time having come."""

    def count(self, name: str) -> None:
        """Count one call."""
        self.functions[name] = self.functions.get(name, 0) + 1


class Cut(Struct, frozen=True):
    """What one cut came to."""

    wakes: int
    """Wakeups looked at; as many as the batch allows: there are more."""
    decided: list[Decided]
    is_intent_pending: bool
    at: datetime
    """When it was decided."""
    retried: int
    """Decisions given up because a read had changed meanwhile; their wakeups stay."""


class _TableFetch:
    """Reads buckets for views from the tables."""

    def __init__(self, connection: AsyncConnection, scope: Scope) -> None:
        self._connection = connection
        self._scope = scope

    async def buckets(self, keys: Sequence[IndexKey]) -> Mapping[IndexKey, Bucket]:
        return await stored.read_buckets(self._connection, self._scope.number, keys)

    async def whole(self, index: str) -> WholeIndex:
        keys = [f"{WHOLE_INDEX}{partition}" for partition in range(self._scope.partitions)]
        return await stored.read_whole_index(self._connection, self._scope.number, index, keys)


class Decider:
    """Decides on wakeups; user code runs between two transactions, never inside one that writes."""

    def __init__(self, database: Database, scope: Scope, program: Program, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._scope = scope
        self._program = program
        self._clock = clock
        self.calls = Calls()
        self.namespaces: Mapping[str, str] = {}
        """Namespace that is watched of each resource; empty or not there: all."""

    async def cut(
        self,
        epochs: Mapping[int, int],
        partitions: Collection[int],
        views: Collection[str],
        is_lagging: Callable[[PendingWake], Awaitable[bool]],
        *,
        now: datetime | None = None,
    ) -> Cut:
        """Decide on the wakeups that are due in `partitions`, of the `views` whose inputs are listed.

        `epochs` are the leases held, by partition; `is_lagging` tells that a wakeup has to wait until other partitions
        are folded up to its cause. What is due is so by the database's clock, or at `now`.
        """
        async with self._database.reading() as connection:
            found = await stored.read_wakes(connection, self._scope.number, partitions, views, BATCH, at=now)
            wakes = [wake for wake in found if not await is_lagging(wake)]
            if not wakes:
                return Cut(len(found), [], is_intent_pending=False, at=self._clock(), retried=0)
            cases, stray = await self._cases(connection, wakes)
            await self._evaluate(connection, cases)
            for case in cases:
                if case.must_act:
                    await self._reconcile(case)
            rows = await self._rows(connection, cases)
        decided_at = self._clock()
        batch = [conclude(case, rows.get((case.wake.view, case.wake.parent), []), decided_at) for case in cases]
        async with self._database.transaction(durable=False) as connection:
            await guard(connection, self._scope, {w.partition: epochs[w.partition] for w in wakes})
            if stray:
                await decisions.drop_wakes(connection, self._scope.number, stray)
            held = await decisions.write_decisions(connection, self._scope.number, batch, self._program.fingerprint)
        for decided in held:
            _tell(decided)
        is_pending = any(row.state == "pending" for decided in held for row in decided.intents)
        return Cut(len(found), held, is_pending, decided_at, len(batch) - len(held))

    async def _cases(
        self, connection: AsyncConnection, wakes: Sequence[PendingWake]
    ) -> tuple[list[Case], list[PendingWake]]:
        scope = self._scope.number
        levels_of: list[ViewParent] = [(wake.view, wake.parent) for wake in wakes]
        names = sorted({wake.parent for wake in wakes})
        parents = await stored.read_parents(connection, scope, names)
        before = await stored.read_levels(connection, scope, names)
        intents = await stored.read_open_intents(connection, scope, levels_of)
        dependencies = await self._dependencies(connection, levels_of)
        buckets = await self._fetch_known(connection, dependencies)
        cases: list[Case] = []
        stray: list[PendingWake] = []
        for wake in wakes:
            level = (wake.view, wake.parent)
            view = self._program.views[wake.view]
            parent = parents.get(wake.parent)
            inputs = parent_inputs(view, parent.body) if parent else None
            if parent is None or inputs is None:
                stray.append(wake)
                continue
            known = dependencies.get(level, set())
            case = Case(
                wake,
                view,
                parent,
                before.get(level),
                intents.get(level, ()),
                inputs=inputs,
                reads=digest_of({place: buckets[place] for place in known}),
                dependencies=known,
            )
            if case.needs_evaluation:
                case.evaluation = Evaluation(
                    view, parent.body, self._clock(), {place: buckets[place] for place in known}
                )
            else:
                self.calls.suppressed += 1
            cases.append(case)
        return cases, stray

    async def _dependencies(
        self, connection: AsyncConnection, levels_of: Sequence[ViewParent]
    ) -> dict[ViewParent, set[IndexKey]]:
        reading = [level for level in levels_of if self._program.views[level[0]].sources]
        return await stored.read_dependencies(connection, self._scope.number, reading) if reading else {}

    async def _fetch_known(
        self, connection: AsyncConnection, dependencies: Mapping[ViewParent, set[IndexKey]]
    ) -> Mapping[IndexKey, Bucket]:
        keys = sorted({place for known in dependencies.values() for place in known})
        return await _TableFetch(connection, self._scope).buckets(keys) if keys else {}

    async def _evaluate(self, connection: AsyncConnection, cases: Sequence[Case]) -> None:
        called = [case.evaluation for case in cases if case.evaluation]
        if called:
            await evaluate(called, _TableFetch(connection, self._scope))
        for case in cases:
            if case.evaluation is not None and not case.evaluation.blocked:
                self.calls.count(case.view.name)
                self.calls.spurious += not case.is_changed and not case.is_due and not case.has_stored_drift

    async def _reconcile(self, case: Case) -> None:
        handler = case.view.reconcile
        level = case.level
        if handler is None or level is None:
            raise TypeError(f"level {case.view.name} {case.wake.parent} cannot be acted on")  # must_act says otherwise
        self.calls.count(f"{case.view.operator}/{handler.name}")
        try:
            case.wanted = await _call(handler, case.parent.body, level, self._clock())
            for intent in case.wanted:
                target_key(case.view, case.parent, intent)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything; only this level is concerned
            case.wanted = []
            case.error = f"reconcile function {handler.name}: {type(error).__name__}: {error}"

    async def _rows(self, connection: AsyncConnection, cases: Iterable[Case]) -> dict[ViewParent, list[IntentRow]]:
        acting = [case for case in cases if case.wanted]
        if not acting:
            return {}
        names = sorted({str(target_key(c.view, c.parent, intent)) for c in acting for intent in c.wanted})
        targets = await stored.read_targets(connection, self._scope.number, names)
        applied = await stored.read_last_applied(connection, self._scope.number, sorted(targets)) if targets else {}
        identity = (self._scope.cluster, self._scope.application)
        rows: dict[ViewParent, list[IntentRow]] = {}
        for case in acting:
            number = case.before.round + 1
            try:
                rows[case.wake.view, case.wake.parent] = intent_rows(
                    identity, case.view, case.parent, number, case.wanted, targets, applied, self._is_watched
                )
            except (OperatorError, TypeError, ValueError, msgspec.MsgspecError) as error:
                case.error = f"intents of {case.view.name}: {type(error).__name__}: {error}"
        return rows

    def _is_watched(self, key: ObjectKey) -> bool:
        """Tell whether the log will show what becomes of an object."""
        resource = str(key.group_resource)
        return resource in self._program.watched and self.namespaces.get(resource, "") in ("", key.namespace)


async def _call(handler: ReconcileHandler, body: bytes, level: Level[Any], now: datetime) -> list[Intent]:
    arguments: dict[str, Any] = {handler.parent_parameter: handler.reader.read(body)}
    arguments |= handler.given.arguments({Given.LEVEL: level, Given.NOW: now})
    result = handler.function(**arguments)
    wanted: list[Any]
    if hasattr(result, "__aiter__"):
        wanted = [intent async for intent in result]
    else:
        if isinstance(result, Awaitable):
            result = await result
        wanted = list(result or ())
    for intent in wanted:
        if not isinstance(intent, Intent):
            raise TypeError(f"yielded {intent!r}, which is not an intent")
    return wanted


def _tell(decided: Decided) -> None:
    level = decided.level
    has_news = level.status != decided.status_before or decided.intents
    log.log(
        logging.INFO if has_news else logging.DEBUG,
        "%s of %s is %s%s",
        level.view,
        level.parent,
        level.status,
        f" ({level.reason})" if level.reason else "",
        extra={
            "object": level.parent,
            "view": level.view,
            "sequence": level.cause,
            "round": level.round,
            "intents": [f"{row.verb} {row.target}" for row in decided.intents],
        },
    )
