"""One cut: reads wakeups, calls views and reconcile functions, writes the decisions, counts the calls."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.secrets.redaction import Redactor
from levelog_processors.decide.facts import Outlook, Round
from levelog_processors.decide.functions import MOST_BEGUN, PATIENCE, Acted, Acting, Caller, Slowness
from levelog_processors.decide.intents import last_called, places_of_calls, target_names, with_rows
from levelog_processors.decide.lookups import NeededKey
from levelog_processors.decide.readiness import is_watched
from levelog_processors.decide.rules import conclude, must_act
from levelog_processors.decide.snapshot import Namespaces, TableFetch, read_facts
from levelog_processors.decide.standings import deciding_views, read_early, told, woken
from levelog_processors.decide.transaction import NOTHING_CARRIED, Deciding
from levelog_processors.decide.views import MOST_HERE, Evaluation, Suspects, evaluate, evaluate_aside
from levelog_processors.fold.rules import parent_inputs
from levelog_processors.program import Program
from levelog_store.actuate.claims import Claimant
from levelog_store.connect.database import Database
from levelog_store.decide import decisionwrites
from levelog_store.decide import inputreads as stored
from levelog_store.decide.decisions import Decided, PendingWake
from levelog_store.decide.decisionwrites import WrittenDecisions
from levelog_store.decide.inputreads import Inputs
from levelog_store.fold.changewrites import tell_readers
from levelog_store.fold.levelwrites import lock_wakes, write_wakes
from levelog_store.owners.leases import guard
from levelog_store.rows import Bucket, IndexKey, Scope, StoredObject, ViewParent

BATCH = 256
"""Most wakeups decided in one transaction: enough to share a commit; a processor takes fewer where they take long."""


class CallCounts(Struct):
    """How often user functions were called, and how often in vain."""

    functions: dict[str, int] = {}
    suppressed: int = 0
    """Wakeups that ended without a call, since nothing that the view reads had changed, or it is called later."""
    spurious: int = 0
    """Calls of a view whose inputs were all as in its last call, and whose time had not come."""

    def count(self, name: str) -> None:
        """Count one call."""
        self.functions[name] = self.functions.get(name, 0) + 1

    def take(self, look: Outlook) -> None:
        """Count what a look at a level has called, and is about to call."""
        facts = look.facts
        if look.seen is None:
            self.suppressed += 1
        elif not look.seen.blocked:
            self.count(facts.view.name)
            self.spurious += not facts.is_changed and not facts.is_due and not facts.has_stored_drift
        if must_act(look):
            self.count(facts.view.reconcile_name)


class Cut(Struct, frozen=True):
    """What one cut came to."""

    is_full: bool
    """The batch took as many wakeups as it may, so there may be more."""
    decided: Sequence[Decided]
    at: datetime
    """When it was decided."""
    claimed: Collection[str] = ()
    """Intents that are being carried out already."""
    retried: int = 0
    """Decisions given up because a read had changed meanwhile; their wakeups stay."""
    has_left: bool = False
    """Levels of suspected views may wait for their turn, which has come."""
    has_woken: bool = False
    """Some of these decisions made other levels due, whose views read them."""
    has_told: bool = False
    """So may levels of other parents."""
    has_news: bool = False
    """A level stands otherwise that daemons may wait for."""

    @property
    def has_more(self) -> bool:
        """Tell whether there may be more to decide right now."""
        return bool((self.is_full or self.has_woken) and self.decided) or self.retried > 0 or self.has_left

    @property
    def is_intent_pending(self) -> bool:
        """Tell whether there is something for an actuator."""
        rows = (row for decided in self.decided for row in decided.intents)
        return any(row.state == "pending" and row.key not in self.claimed for row in rows)


class Asker(Struct, frozen=True):
    """What asks for a level: the wakeup and the parent, as the tables hold them at some moment."""

    generation: int
    parent: StoredObject


class _Looked(Struct, frozen=True):
    """What the first look at the levels of some wakeups came to."""

    looks: Sequence[Outlook] = ()
    stray: Sequence[PendingWake] = ()
    """Wakeups without a level."""
    aside: Evaluation | None = None
    """Still to be called, aside of the others."""
    left: Sequence[Evaluation] = ()
    """As `evaluate` has them."""


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
        *,
        patience: timedelta | None = PATIENCE,
        redactor: Redactor | None = None,
        caller: Caller | None = None,
        claimant: Claimant | None = None,
    ) -> None:
        """`patience`: how long a cut waits for slow reconcile functions, which a later one concludes; None: for all.

        `redactor`: that of what is recorded. `caller`: what calls reconcile functions, if it is another than usual.
        `claimant` gets what is decided without asking for it, as far as it has room.
        """
        self._redactor = redactor or Redactor()
        self.acting = Acting(
            caller or Caller(),
            patience=patience,
            redactor=self._redactor,
            identity=(scope.cluster, scope.application),
        )
        self._database = database
        self._scope = scope
        self._program = program
        self._reads_keys = any(map(program.reads_elsewhere, program.views.values()))
        self.claimant = claimant
        self.calls = CallCounts()
        self.namespaces: Namespaces = {}
        """Namespaces that alone are watched, by resource."""
        self.slowness = Slowness()
        """Of functions: while they are quick, other transactions may wait for a cut."""
        self.suspects = Suspects()
        self._turn: ViewParent = "", ""
        """The level of a suspected view whose turn it was last."""

    @asynccontextmanager
    async def deciding(self, *, durable: bool, guarded: Collection[int] = ()) -> AsyncGenerator[Deciding]:
        """A transaction to decide in; if it is durable, its decisions may be claimed in it."""
        found: Deciding | None = None
        try:
            async with self._database.transaction(durable=durable) as connection:
                found = Deciding(connection, self.claimant if durable else None, guarded=guarded)
                yield found
        except BaseException:  # cut off or cancelled while it committed
            if found is not None:
                found.hand_over(is_certain=False)
            raise
        found.hand_over(is_certain=True)

    async def cut(
        self,
        epochs: Mapping[int, int],
        views: Collection[str],
        is_lagging: Callable[[PendingWake], Awaitable[bool]],
        *,
        folded_to: Mapping[int, int] | None = None,
        leaving: Collection[ViewParent] = (),
        now: datetime | None = None,
        most: int = BATCH,
        within: Deciding | None = None,
    ) -> Cut:
        """Decide on `most` wakeups that are due, of the `views` whose inputs are listed, but for the levels `leaving`.

        `epochs` are the leases held, by partition, and `folded_to` the checkpoints to begin at, as `guard` takes them;
        `is_lagging` tells that a wakeup has to wait until other partitions are folded up to its cause. What is due is
        so by the database's clock, or at `now`, and new due times are made by the same. `within` a transaction, it is
        read and written in that.
        """
        acting = self.acting
        async with self._reading(within) as connection:
            back, late = await self._still_asked(connection, acting.returned(epochs))
            concluded = late.keys()
            limit = most + (len(acting) + len(back) + len(leaving)) * (2 if self._program.readers else 1)
            views = deciding_views(self._program, views)
            # one clock for what is due and for what becomes due, however those of the processors differ
            carried = NOTHING_CARRIED if within is None else within.carried
            inputs = Inputs(has_dependencies=self._reads_keys, parents={**within.objects} if within is not None else {})
            ahead = inputs if len(carried.levels) <= BATCH else None
            calm = [view for view in views if view not in self.suspects]
            rows, at = await stored.read_wakes(
                connection, self._scope, list(epochs), calm, limit, at=now, of=carried.levels, into=ahead
            )
            found = (await carried.added_to(connection, self._scope, rows, calm))[:limit]
            suspected = await self._read_suspected(connection, epochs, views, limit, at)
            turn: ViewParent | None = None
            early = await read_early(connection, self._scope, self._program, [*found, *suspected], at, carried.causes)
            left = (acting, concluded, leaving, early)
            fresh = [w for w in found if not any((w.view, w.parent) in levels for levels in left)]
            fresh = fresh[: max(0, min(most, MOST_BEGUN - len(acting)))]
            wakes = [wake for wake in fresh if not await is_lagging(wake)]
            for wake in suspected:
                level = wake.view, wake.parent
                if not any(level in levels for levels in left) and not await is_lagging(wake):
                    self._turn = turn = level
                    wakes.append(wake)
                    break
            if not wakes and not back:
                return Cut(len(fresh) == most, [], at=at)
            is_alone = folded_to is not None and len(folded_to) == self._scope.partitions
            folded = folded_to if is_alone else None  # which the commit compares with the tables
            looked = await self._look(connection, wakes, at, folded, inputs) if wakes else _Looked()
        looks, stray = looked.looks, looked.stray
        aside = None if looked.aside is None else (looked.aside.facts.wake, self._looked_aside(looked.aside))
        acted = [*back, *await acting.act(looks, epochs, aside=aside)]
        has_left = bool(looked.left) or (turn is not None and turn not in acting)
        if any(look.facts.name in acting for look in looks):
            self.slowness.note(timedelta.max)
        acted = await self._with_rows(acted, {look.facts.parent.object: look.facts.parent for look in looks}, within)
        batch = [conclude(look, round_, at) for look, round_ in acted]
        held, claimed = await self._commit(epochs, batch, stray, late, folded_to, within)
        has_told = any(each.wake.view in self._program.looked_up for each in held)
        has_news = any(each.is_news and each.wake.view in self._program.awaited for each in held)
        has_woken = bool(early) or has_told or any(each.wake.view in self._program.readers for each in held)
        retried = len(batch) - len(held)
        return Cut(
            len(fresh) == most,
            held,
            at,
            claimed,
            retried=retried,
            has_left=has_left,
            has_woken=has_woken,
            has_told=has_told,
            has_news=has_news,
        )

    async def _read_suspected(
        self, connection: AsyncConnection, epochs: Mapping[int, int], views: Collection[str], most: int, at: datetime
    ) -> list[PendingWake]:
        """Due wakeups of suspected views, one of which is to be decided on; none while one is being decided on."""
        suspected = [view for view in views if view in self.suspects]
        self.suspects.forget(at)
        if not suspected or self._turn in self.acting:
            return []
        return (await stored.read_wakes(connection, self._scope, list(epochs), suspected, most, at=at))[0]

    def _reading(self, within: Deciding | None) -> AbstractAsyncContextManager[AsyncConnection]:
        return self._database.reading() if within is None else nullcontext(within.connection)

    async def _look(
        self,
        connection: AsyncConnection,
        wakes: Sequence[PendingWake],
        now: datetime,
        folded_to: Mapping[int, int] | None,
        inputs: Inputs,
    ) -> _Looked:
        """Look at the levels, and call the views that may see something else, but for those that are suspected."""
        scope, program = self._scope, self._program
        known = await read_facts(connection, scope, program, self.namespaces, wakes, now, folded_to, inputs)
        evaluations = {
            facts.name: Evaluation(
                facts,
                buckets,
                namespaces=self.namespaces,
                redactor=self._redactor,
                most=None if facts.name[0] in self.suspects else MOST_HERE,
            )
            for facts, buckets in known
            if facts.needs_evaluation
        }
        aside = next((each for (view, _), each in evaluations.items() if view in self.suspects), None)
        here = [each for each in evaluations.values() if each is not aside]
        evaluated = await evaluate(here, TableFetch(connection, scope, program))
        if here:
            self.slowness.note(evaluated.longest)
        for each in here:
            self.suspects.note(each)
        later = {each.facts.name for each in (aside, *evaluated.left) if each is not None}
        looks: list[Outlook] = []
        for facts, _ in known:
            if facts.name not in later:
                evaluation = evaluations.get(facts.name)
                looks.append(Outlook(facts, evaluation.seen if evaluation else None))
                self.calls.take(looks[-1])
        there = {facts.name for facts, _ in known}
        stray = [wake for wake in wakes if (wake.view, wake.parent) not in there]
        return _Looked(looks, stray, aside, evaluated.left)

    async def _looked_aside(self, evaluation: Evaluation) -> Outlook:
        """Call a suspected view; its commit compares what it read with what is there then."""
        await evaluate_aside(evaluation, self._fetched, self.acting.caller)
        self.suspects.note(evaluation)
        look = Outlook(evaluation.facts, evaluation.seen)
        self.calls.take(look)
        return look

    async def _fetched(self, need: NeededKey) -> Any:
        async with self._database.reading() as connection:
            fetch = TableFetch(connection, self._scope, self._program)
            if need.key is None:
                return await fetch.whole(need.index)
            place = need.index, need.key
            return (await fetch.buckets([place]))[place]

    async def _still_asked(
        self, connection: AsyncConnection, returned: Sequence[Acted]
    ) -> tuple[list[Acted], Mapping[ViewParent, Asker]]:
        """Those whose levels are as their views saw them, with the causes; the others are decided again.

        Wakeups alone do not show this: a parent that changed back to what the stored level saw has none.
        """
        askers = await self._askers(connection, [look.facts.name for look, _ in returned])
        kept = [each for each in returned if is_as_seen(each[0], askers.get(each[0].facts.name))]
        return kept, {look.facts.name: askers[look.facts.name] for look, _ in kept}

    async def _askers(self, connection: AsyncConnection, names: Collection[ViewParent]) -> dict[ViewParent, Asker]:
        """What asks for levels now; those that nothing asks for, or whose parents are gone, are left out."""
        if not names:
            return {}
        generations = await stored.read_generations(connection, self._scope, list(names))
        parents = await stored.read_parents(connection, self._scope, sorted({parent for _, parent in names}))
        return {
            name: Asker(generations[name], parents[name[1]])
            for name in names
            if name in generations and name[1] in parents
        }

    async def _with_rows(
        self, acted: Sequence[Acted], parents: Mapping[str, StoredObject], within: Deciding | None
    ) -> list[Acted]:
        """The rounds with the rows of their intents, compared with what is held of the targets.

        `parents` are those that were just read.
        """
        names = target_names(acted)
        targets = {name: parents[name] for name in names if name in parents}
        applied: Mapping[str, bytes] = {}
        buckets: Mapping[IndexKey, Bucket] = {}
        others, calls = [name for name in names if name not in targets], sorted(places_of_calls(acted))
        with_applied = target_names(acted, verb="apply")
        if others or calls or with_applied:
            async with self._reading(within) as connection:
                if others:
                    targets |= await stored.read_parents(connection, self._scope, others)
                if with_applied := [name for name in with_applied if name in targets]:
                    applied = await stored.read_last_applied(connection, self._scope, with_applied)
                buckets = await stored.read_buckets(connection, self._scope, calls)
        identity = (self._scope.cluster, self._scope.application)
        is_shown = partial(is_watched, self._program, self.namespaces)

        def completed(look: Outlook, round_: Round) -> Round:
            called = last_called(look, round_, buckets)
            redactor = self._redactor
            return with_rows(look, round_, identity, targets, applied, is_shown, called=called, redactor=redactor)

        return [(look, round_ and completed(look, round_)) for look, round_ in acted]

    async def _commit(
        self,
        epochs: Mapping[int, int],
        batch: Sequence[Decided],
        stray: Sequence[PendingWake],
        late: Mapping[ViewParent, Asker],
        folded_to: Mapping[int, int] | None,
        within: Deciding | None,
    ) -> WrittenDecisions:
        """Write the decisions that still hold, and forget the wakeups of parents that are gone.

        `late` are levels whose functions
        outlasted their cuts, with what asked for them when the cut began.
        """
        if not batch and not stray:  # all that was begun is slow
            return WrittenDecisions([], set())
        claimant = self.claimant if within is None else within.claimant
        chosen = claimant.choose([row for each in batch for row in each.intents]) if claimant is not None else ()
        raising = told(self._program, batch).keys()
        is_alone = len(epochs) == self._scope.partitions
        if not is_alone and (places := decisionwrites.absent_keys(batch) | raising):
            # by themselves, so that nobody waits for them who holds what is locked next
            async with self._database.transaction(durable=False) as connection:
                await decisionwrites.make_keys(connection, self._scope, places)
        async with AsyncExitStack() as stack:
            if within is None:
                within = await stack.enter_async_context(self.deciding(durable=bool(chosen)))
            connection = within.connection
            partitions = {wake.partition for wake in (*stray, *(decided.wake for decided in batch))}
            if unguarded := partitions.difference(within.guarded):
                await guard(connection, self._scope, {p: epochs[p] for p in unguarded}, folded_to=folded_to)
            if late:
                now = await self._askers(connection, late)
                batch = [each for each in batch if each.name not in late or now.get(each.name) == late[each.name]]
            carried, fingerprint = within.carried, self._program.fingerprint
            claiming = within.claiming(frozenset(chosen))
            written = await decisionwrites.write_decisions(
                connection, self._scope, batch, fingerprint, raising=raising, claiming=claiming
            )
            within.note(written, claiming)
            held = written.held
            asked = woken(self._program, held)
            await tell_readers(connection, self._scope, told(self._program, held), asked)
            over = {(each.view, each.parent) for each in (*stray, *(d.wake for d in held))}
            if not is_alone:
                await lock_wakes(connection, self._scope, over.union(asked))
            await decisionwrites.consume_wakes(connection, self._scope, held, stray, without_rows=carried.levels)
            await carried.leave(connection, self._scope, but=over)
            await write_wakes(connection, self._scope, asked)
            return written


def is_as_seen(look: Outlook, asker: Asker | None) -> bool:
    """Tell whether no wakeup came since, and the view would see the same in the parent."""
    facts, seen = look.facts, look.seen
    if asker is None or seen is None or asker.generation != facts.wake.generation:
        return False
    if asker.parent.uid != facts.parent.uid:
        return False
    return parent_inputs(facts.view, asker.parent.body, seen.looked_at or facts.before.looked_at) == seen.inputs
