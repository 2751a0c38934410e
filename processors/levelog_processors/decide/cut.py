"""The decisions of one cut: wakeups are read, views called, reconcile functions asked, and the outcome written."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, field
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.calls.caller import THREADS
from levelog.secrets.redaction import Redactor
from levelog.wire.objects import ObjectKey
from levelog_processors.decide.functions import MOST_BEGUN, PATIENCE, Acting, Caller
from levelog_processors.decide.intents import rows_of
from levelog_processors.decide.lookups import digest_of, sight
from levelog_processors.decide.readiness import is_watched
from levelog_processors.decide.rules import Case, conclude
from levelog_processors.decide.targets import target_key
from levelog_processors.decide.views import Evaluation, evaluate
from levelog_processors.fold.entries import WHOLE_INDEX
from levelog_processors.fold.rules import parent_inputs
from levelog_processors.program import Program
from levelog_store.connect.database import Database
from levelog_store.decide import decisionwrites
from levelog_store.decide import inputreads as stored
from levelog_store.decide.decisions import Decided, IntentRow, OpenIntent, PendingWake
from levelog_store.owners.leases import guard
from levelog_store.rows import Bucket, IndexKey, Scope, ViewParent, WholeIndex

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
        return await stored.read_buckets(self._connection, self._scope, keys)

    async def whole(self, index: str) -> WholeIndex:
        keys = [f"{WHOLE_INDEX}{partition}" for partition in range(self._scope.partitions)]
        return await stored.read_whole_index(self._connection, self._scope, index, keys)


class Decider:
    """Decides on wakeups.

    Views run while one snapshot is read, which they cannot wait in; reconcile functions, which may wait, run while no
    connection is held.
    """

    def __init__(
        self,
        database: Database,
        scope: Scope,
        program: Program,
        clock: Callable[[], datetime],
        *,
        threads: int = THREADS,
        patience: timedelta | None = PATIENCE,
        redactor: Redactor | None = None,
        caller: Caller | None = None,
    ) -> None:
        """`patience`: how long a cut waits for slow reconcile functions, which a later one concludes; None: for all.

        `redactor`: that of what is recorded. `caller`: what calls reconcile functions, if it is another than usual.
        """
        self._redactor = redactor or Redactor()
        self._acting = Acting(caller or Caller(threads=threads), patience=patience)
        self._database = database
        self._scope = scope
        self._program = program
        self._clock = clock
        self.calls = Calls()
        self.namespaces: Mapping[str, tuple[str, ...]] = {}
        """Namespace that is watched of each resource; empty or not there: all."""

    def on_return(self, told: Callable[[], None]) -> None:
        """Have `told` called when a slow reconcile function has returned, so that there is something to conclude."""
        self._acting.on_return = told

    async def close(self) -> None:
        """End what runs of users' functions, as far as it can be ended."""
        await self._acting.close()

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
        acting = self._acting
        async with self._database.reading() as connection:
            back = await self._unchanged(connection, acting.returned(epochs))
            concluded = {(case.wake.view, case.wake.parent) for case in back}
            most = BATCH + len(acting) + len(back)
            found = await stored.read_wakes(connection, self._scope, partitions, views, most, at=now)
            fresh = [w for w in found if (w.view, w.parent) not in acting and (w.view, w.parent) not in concluded]
            fresh = fresh[: max(0, min(BATCH, MOST_BEGUN - len(acting)))]
            wakes = [wake for wake in fresh if not await is_lagging(wake)]
            if not wakes and not back:
                return Cut(len(fresh), [], is_intent_pending=False, at=self._clock(), retried=0)
            cases, stray = await self._cases(connection, wakes) if wakes else ([], [])
            await self._evaluate(connection, cases)
        for case in cases:
            if case.must_act and case.view.reconcile is not None:
                self.calls.count(case.view.reconcile_name)
        cases = [*back, *await acting.act(cases, epochs)]
        rows = await self._rows(cases)
        decided_at = self._clock()
        batch = [conclude(case, rows.get((case.wake.view, case.wake.parent), []), decided_at) for case in cases]
        async with self._database.transaction(durable=False) as connection:
            await guard(
                connection,
                self._scope,
                {w.partition: epochs[w.partition] for w in wakes}
                | {case.wake.partition: epochs[case.wake.partition] for case in back},
            )
            if stray:
                await decisionwrites.drop_wakes(connection, self._scope, stray)
            held = await decisionwrites.write_decisions(connection, self._scope, batch, self._program.fingerprint)
        for decided in held:
            _tell(decided)
        is_pending = any(row.state == "pending" for decided in held for row in decided.intents)
        return Cut(len(fresh), held, is_pending, decided_at, len(batch) - len(held))

    async def _cases(
        self, connection: AsyncConnection, wakes: Sequence[PendingWake]
    ) -> tuple[list[Case], list[PendingWake]]:
        scope = self._scope
        levels_of: list[ViewParent] = [(wake.view, wake.parent) for wake in wakes]
        names = sorted({wake.parent for wake in wakes})
        parents = await stored.read_parents(connection, scope, names)
        before = await stored.read_levels(connection, scope, names)
        intents = await stored.read_open_intents(connection, scope, levels_of)
        dependencies = await self._dependencies(connection, levels_of)
        buckets = await self._fetch_known(connection, dependencies)
        folded = tuple(at for _, at in sorted((await stored.read_checkpoints(connection, scope)).items()))
        now = self._clock()
        cases: list[Case] = []
        stray: list[PendingWake] = []
        for wake in wakes:
            level = (wake.view, wake.parent)
            view = self._program.views[wake.view]
            parent = parents.get(wake.parent)
            looked_at = before[level].looked_at if level in before else None
            inputs = parent_inputs(view, parent.body, looked_at) if parent else None
            if parent is None or inputs is None:
                stray.append(wake)
                continue
            known = dependencies.get(level, set())
            held = before.get(level)
            case = Case(
                wake,
                view,
                parent,
                held,
                [self._as_watched(intent) for intent in intents.get(level, ())],
                inputs=inputs,
                reads=digest_of(
                    {place: buckets[place] for place in known}, sight(view, parent.uid, held.desired if held else None)
                ),
                dependencies=known,
                now=now,
                folded=folded,
            )
            if case.needs_evaluation:
                case.evaluation = Evaluation(
                    view,
                    parent.body,
                    now,
                    {place: buckets[place] for place in known},
                    subject=wake.parent,
                    namespaces=self.namespaces,
                    redactor=self._redactor,
                )
            else:
                self.calls.suppressed += 1
            cases.append(case)
        return cases, stray

    async def _dependencies(
        self, connection: AsyncConnection, levels_of: Sequence[ViewParent]
    ) -> dict[ViewParent, set[IndexKey]]:
        reading = [level for level in levels_of if self._program.views[level[0]].sources]
        return await stored.read_dependencies(connection, self._scope, reading) if reading else {}

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

    async def _unchanged(self, connection: AsyncConnection, cases: Sequence[Case]) -> list[Case]:
        """Those that nothing has asked for again while their reconcile functions ran; the others are decided anew."""
        if not cases:
            return []
        levels_of: list[ViewParent] = [(case.wake.view, case.wake.parent) for case in cases]
        asked = await stored.read_generations(connection, self._scope, levels_of)
        return [case for case in cases if asked.get((case.wake.view, case.wake.parent)) == case.wake.generation]

    async def _rows(self, cases: Iterable[Case]) -> dict[ViewParent, list[IntentRow]]:
        acting = [case for case in cases if case.wanted]
        if not acting:
            return {}
        names = sorted({str(target_key(c.view, c.parent, intent)) for c in acting for intent in c.wanted})
        async with self._database.reading() as connection:
            targets = await stored.read_targets(connection, self._scope, names)
            applied = await stored.read_last_applied(connection, self._scope, sorted(targets)) if targets else {}
        identity = (self._scope.cluster, self._scope.application)
        return {
            (case.wake.view, case.wake.parent): rows_of(
                case, identity, targets, applied, self._is_watched, redactor=self._redactor
            )
            for case in acting
        }

    def _as_watched(self, intent: OpenIntent) -> OpenIntent:
        """The intent as the log will show it: not at all if its target is not watched any more."""
        if intent.state != "written" or not intent.is_watched or self._is_watched(ObjectKey.parse(intent.target)):
            return intent
        return replace(intent, is_watched=False)

    def _is_watched(self, key: ObjectKey) -> bool:
        return is_watched(self._program, self.namespaces, key)


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
