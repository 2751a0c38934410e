"""Repeats recorded decisions: same parent, reads, time and previous level, by the code that decides live."""

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.secrets.redaction import Redactor
from levelog_processors.decide.facts import Facts, Outlook, Round
from levelog_processors.decide.functions import Acted, Acting, Caller
from levelog_processors.decide.intents import target_names, with_rows
from levelog_processors.decide.rules import conclude
from levelog_processors.decide.standings import encoded
from levelog_processors.decide.views import Evaluation, evaluate
from levelog_processors.fold.rules import parent_inputs
from levelog_replay.comparing import FILTERED, NO_VIEW, Conclusion, Judged
from levelog_replay.scratch import Scratch
from levelog_replay.stops.stopping import Scene, Stops
from levelog_store.decide import inputreads as stored
from levelog_store.decide.decisions import Decision, IntentRow, PendingWake
from levelog_store.fold.levelwrites import ASKED_FOR
from levelog_store.rows import Bucket, IndexKey, LevelRow, StoredObject, WholeIndex, levels_place


class _RecordedFetch:
    """Reads buckets from the scratch tables, in the versions that the decisions of one moment read.

    The contents are the same as then, since the tables are; the versions may not be, since they tell how records were
    folded together.
    """

    def __init__(self, connection: AsyncConnection, scratch: Scratch, versions: Mapping[IndexKey, int]) -> None:
        self._connection = connection
        self._scope = scratch.scope
        self._versions = versions

    async def buckets(self, keys: Sequence[IndexKey]) -> Mapping[IndexKey, Bucket]:
        found = await stored.read_buckets(self._connection, self._scope, keys)
        return {place: Bucket(self._versions.get(place, each.version), each.values) for place, each in found.items()}

    async def whole(self, index: str) -> WholeIndex:
        found = await stored.read_whole_index(self._connection, self._scope, index)
        versions = {key: self._versions.get((index, key), version) for key, version in found.versions.items()}
        return WholeIndex(versions=versions, buckets=found.buckets)


class Judge:
    """Makes decisions of one moment again, on scratch tables that were folded up to it."""

    def __init__(
        self,
        scratch: Scratch,
        caller: Caller,
        *,
        redactor: Redactor | None = None,
        stops: Stops | None = None,
        name: str = "",
    ) -> None:
        """`name`: of this version of the code, where there are several."""
        self._scratch = scratch
        self._stops = stops
        self._name = name
        self._redactor = redactor or Redactor()
        self._acting = Acting(
            caller,
            patience=None,
            redactor=self._redactor,
            identity=(scratch.scope.cluster, scratch.scope.application),
        )

    async def close(self) -> None:
        """End what runs of users' functions."""
        await self._acting.close()

    async def judge(self, past: Sequence[Decision]) -> list[Judged]:
        """Make decisions again that saw the same snapshot, at most one of each level; in the order given."""
        looks = await self._looks(past)
        acted = await self._acting.act([look for look in looks if isinstance(look, Outlook)], self._scratch.epochs)
        rounds = {look.facts.name: round_ for look, round_ in acted}
        targets = await self._targets(acted)
        return [
            Judged(past=each, conclusion=None, obstacle=look)
            if isinstance(look, str)
            else self._judged(each, look, rounds[look.facts.name], targets)
            for each, look in zip(past, looks, strict=True)
        ]

    async def _looks(self, past: Sequence[Decision]) -> list[Outlook | str]:
        """The levels as their views see them; a text says why a decision cannot be made again."""
        scope = self._scratch.scope
        versions = {place: version for each in past for place, version in each.versions.items()}
        async with self._scratch.database.reading() as connection:
            fetch = _RecordedFetch(connection, self._scratch, versions)
            parents = await stored.read_parents(connection, scope, sorted({each.parent for each in past}))
            buckets = await fetch.buckets(sorted(versions))
            tried = [self._facts(each, parents.get(each.parent)) for each in past]
            evaluations = {
                facts.name: self._evaluation(each, facts, buckets)
                for each, facts in zip(past, tried, strict=True)
                if isinstance(facts, Facts)
            }
            is_one_by_one = self._stops is not None and self._stops.is_on
            for some in [[each] for each in evaluations.values()] if is_one_by_one else [list(evaluations.values())]:
                for left in (await evaluate(some, fetch)).left:
                    name = left.facts.name
                    again = next(each for each in past if (each.view, each.parent) == name)
                    evaluations[name] = self._evaluation(again, left.facts, buckets)
                    await evaluate([evaluations[name]], fetch)
        return [f if isinstance(f, str) else Outlook(f, evaluations[f.name].seen) for f in tried]

    def _facts(self, past: Decision, parent: StoredObject | None) -> Facts | str:
        view = self._scratch.program.views.get(past.view)
        if view is None:
            return NO_VIEW
        if parent is None or (parent.uid, parent.sequence) != (past.parent_uid, past.parent_sequence):
            return f"the parent as record {past.parent_sequence} showed it cannot be rebuilt from the log"
        inputs = parent_inputs(view, parent.body, None)
        if inputs is None:
            return FILTERED
        basis = past.basis
        wake = PendingWake(
            view=past.view,
            parent=past.parent,
            partition=parent.partition,
            cause=past.cause,
            generation=0,
            due_at=ASKED_FOR if basis.is_asked_for else past.decided_at if basis.is_due else None,
        )
        before = LevelRow(
            view=past.view,
            parent=past.parent,
            partition=parent.partition,
            parent_uid=past.parent_uid,
            status=basis.status,
            desired=past.desired,  # what a view leaves as it was that raises
            actual=past.actual,
            drift=past.drift,
            round=basis.round,
            attempts=basis.attempts,
            decided_inputs=basis.decided_inputs,
            repeats=basis.repeats,
        )
        return Facts(
            wake=wake,
            view=view,
            parent=parent,
            before=before,
            intents=basis.intents,
            inputs=inputs,
            reads="",
            standings=basis.standings,
            now=past.decided_at,
            folded=basis.folded,
            progressed=basis.progressed,
        )

    def _evaluation(self, past: Decision, facts: Facts, buckets: Mapping[IndexKey, Bucket]) -> Evaluation:
        evaluation = Evaluation(
            facts,
            {place: buckets[place] for place in past.versions} | _looked_up(facts.view.operator, past),
            namespaces=self._scratch.readiness.namespaces,
            redactor=self._redactor,
        )
        if self._stops is not None:
            self._attend(self._stops, past, facts, evaluation)
        return evaluation

    def _attend(self, stops: Stops, past: Decision, facts: Facts, evaluation: Evaluation) -> None:
        """Let the functions of a decision be stopped in."""
        evaluation.around = partial(stops.at, "view", facts.name, facts.view.handler.function)
        stops.begin(
            Scene(
                past=past,
                parent=facts.parent,
                known=evaluation.reads.known,
                evaluation=evaluation,
                program=self._name,
            )
        )

    async def _targets(self, acted: Sequence[Acted]) -> Mapping[str, StoredObject]:
        names = target_names(acted)
        if not names:
            return {}
        async with self._scratch.database.reading() as connection:
            return await stored.read_parents(connection, self._scratch.scope, names)

    def _judged(
        self, past: Decision, look: Outlook, round_: Round | None, targets: Mapping[str, StoredObject]
    ) -> Judged:
        scope = self._scratch.scope
        identity = (scope.cluster, scope.application)
        if round_ is not None:
            called, is_watched, redactor = past.basis.called, self._scratch.is_watched, self._redactor
            round_ = with_rows(look, round_, identity, targets, {}, is_watched, called=called, redactor=redactor)
            round_ = replace(round_, rows=[_as_then(row, past) for row in round_.rows])
        decided = conclude(look, round_, past.decided_at)
        reads = look.seen.contents if look.seen is not None else {}
        return Judged(
            past=past,
            conclusion=Conclusion.of(decided),
            parent=look.facts.parent,
            reads=reads,
            rows=decided.intents,
        )


def _looked_up(operator: str, past: Decision) -> dict[IndexKey, Bucket]:
    """How levels stood that a decision looked up: no record of the log tells."""
    return {
        levels_place(operator, parent): Bucket(0, encoded(standings)) for parent, standings in past.basis.others.items()
    }


def _as_then(row: IntentRow, past: Decision) -> IntentRow:
    """An intent of then in the state of then: its target was looked up after the round, in a later snapshot."""
    if row.key not in past.intents:
        return row
    return replace(row, state="satisfied" if row.key in past.basis.satisfied else "pending")
