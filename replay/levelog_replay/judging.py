"""Repeats recorded decisions: same parent, reads, time and previous level, by the code that decides live."""

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from levelog_base.secrets.redaction import Redactor
from levelog_processors.bound import BoundView
from levelog_processors.decide.decisionrules import conclude
from levelog_processors.decide.facts import Facts, Outlook, Round
from levelog_processors.decide.functions import Acting, Caller
from levelog_processors.decide.intents import RowInputs, target_names, with_rows
from levelog_processors.decide.levelstatuses import encoded
from levelog_processors.decide.lookups import contents_of
from levelog_processors.decide.viewcalls import Evaluation
from levelog_processors.guard import parent_inputs
from levelog_processors.program import Program
from levelog_replay.comparing import FILTERED, NO_VIEW, Conclusion, Judged
from levelog_replay.stops.stopping import Scene, Stops
from levelog_replay.tape import Rebuilt
from levelog_store.decide.decisions import Decision, IntentRow, PendingWake
from levelog_store.fold.levelwrites import ASKED_FOR
from levelog_store.rows import Bucket, IndexKey, LevelRow, StoredObject, WholeIndex, levels_place


class _Shown(Struct, frozen=True):
    """Buckets of State, in the versions that the decisions of one moment read.

    The contents are the same as then; the versions may not be, since they tell how records were folded together.
    """

    rebuilt: Rebuilt
    versions: Mapping[IndexKey, int]
    looked_up: Mapping[IndexKey, Bucket]
    """The status of levels, which no record has."""

    def bucket(self, place: IndexKey) -> Bucket:
        if (told := self.looked_up.get(place)) is not None:
            return told
        found = self.rebuilt.state.buckets.get(place)
        return replace(found, version=self.versions.get(place, found.version))

    def whole(self, index: str) -> WholeIndex:
        found = self.rebuilt.state.buckets.whole(index, self.rebuilt.origin.partitions)
        versions = {key: self.versions.get((index, key), version) for key, version in found.versions.items()}
        return replace(found, versions=versions)


class Judge:
    """Makes decisions of one moment again, on State that was folded up to it."""

    def __init__(
        self,
        rebuilt: Rebuilt,
        caller: Caller,
        *,
        redactor: Redactor | None = None,
        stops: Stops | None = None,
        name: str = "",
    ) -> None:
        """`name`: of this version of the code, where there are several."""
        self.rebuilt = rebuilt
        self._identity = rebuilt.origin.cluster, rebuilt.origin.application
        self._epochs = dict.fromkeys(range(rebuilt.origin.partitions), 1)
        self._stops = stops
        self._name = name
        self._redactor = redactor or Redactor()
        self._acting = Acting(caller, patience=None, redactor=self._redactor, identity=self._identity)

    async def close(self) -> None:
        """End what runs of users' functions."""
        await self._acting.close()

    async def judge(self, past: Sequence[Decision]) -> list[Judged]:
        """Make decisions again that saw the same snapshot, at most one of each level; in the order given."""
        looks = self._looks(past)
        acted = await self._acting.act([look for look in looks if isinstance(look, Outlook)], self._epochs)
        rounds = {look.facts.name: round_ for look, round_ in acted}
        objects = self.rebuilt.state.objects
        inputs = RowInputs(
            identity=self._identity,
            targets={name: objects[name] for name in target_names(acted) if name in objects},
            is_watched=self.rebuilt.is_watched,
            redactor=self._redactor,
        )
        return [
            Judged(past=each, conclusion=None, obstacle=look)
            if isinstance(look, str)
            else self._judged(each, look, rounds[look.facts.name], inputs)
            for each, look in zip(past, looks, strict=True)
        ]

    def _looks(self, past: Sequence[Decision]) -> list[Outlook | str]:
        """The levels as their views see them; a text says why a decision cannot be made again."""
        versions = {place: version for each in past for place, version in each.versions.items()}
        looks: list[Outlook | str] = []
        for each in past:
            facts = self._facts(each, self.rebuilt.state.objects.get(each.parent))
            if isinstance(facts, Facts):
                shown = _Shown(self.rebuilt, versions, _looked_up(self.rebuilt.program, facts.view, each))
                looks.append(Outlook(facts, self._evaluation(each, facts, shown).call()))
            else:
                looks.append(facts)
        return looks

    def _facts(self, past: Decision, parent: StoredObject | None) -> Facts | str:
        view = self.rebuilt.program.views.get(past.view)
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
            reads_digest="",
            level_statuses=basis.level_statuses,
            now=past.decided_at,
            folded=basis.folded,
            progressed=basis.progressed,
        )

    def _evaluation(self, past: Decision, facts: Facts, shown: _Shown) -> Evaluation:
        evaluation = Evaluation(
            facts, namespaces=self.rebuilt.readiness.namespaces, redactor=self._redactor, memory=shown
        )
        if self._stops is not None:
            places = {*past.versions, *shown.looked_up}
            known = {place: contents_of(*place, shown.bucket(place)) for place in places}
            evaluation.around = partial(self._stops.at, "view", facts.name, facts.view.handler.function)
            self._stops.begin(
                Scene(past=past, parent=facts.parent, known=known, evaluation=evaluation, program=self._name)
            )
        return evaluation

    def _judged(self, past: Decision, look: Outlook, round_: Round | None, inputs: RowInputs) -> Judged:
        if round_ is not None:
            round_ = with_rows(look, round_, inputs, past.basis.called)
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


def _looked_up(program: Program, view: BoundView, past: Decision) -> dict[IndexKey, Bucket]:
    """The status of levels that a decision looked up, which no record of the log has."""
    found: dict[IndexKey, Bucket] = {}
    for parent, level_statuses in past.basis.others.items():
        resource = parent.partition("/")[0]
        for shelf in view.shelves.get(resource, ()):
            names = {each.name for each in program.levels_on(shelf, resource)}
            told = {name: level_status for name, level_status in level_statuses.items() if name in names}
            found[levels_place(shelf, parent)] = Bucket(0, encoded(told))
    return found


def _as_then(row: IntentRow, past: Decision) -> IntentRow:
    """An intent of then in the state of then: its target was looked up after the round, in a later snapshot."""
    if row.key not in past.intents:
        return row
    return replace(row, state="satisfied" if row.key in past.basis.satisfied else "pending")
