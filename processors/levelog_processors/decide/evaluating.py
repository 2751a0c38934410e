"""Gathers what decisions are made from: out of SQL and State, and by having views called.

It reads tables, and writes none. It changes State: bodies come back there, and levels of other processes, which wake
those that look them up. What follows from all that, `decisionrules.py` says.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from levelog_base.errors import CommitsLost
from levelog_base.secrets.redaction import Redactor
from levelog_processors.decide.facts import Outlook, Round
from levelog_processors.decide.functions import Acted
from levelog_processors.decide.intents import RowInputs, last_called, target_names, with_rows
from levelog_processors.decide.readiness import is_watched
from levelog_processors.decide.statereader import StateReader
from levelog_processors.decide.tally import CallCounts
from levelog_processors.decide.viewcalls import Evaluation, Suspects
from levelog_processors.program import Program
from levelog_processors.state.state import State
from levelog_processors.tables import Tables
from levelog_store.decide.decisions import PendingWake
from levelog_store.decide.inputreads import SqlIntent
from levelog_store.fold.changes import Wake
from levelog_store.rows import IndexKey, StoredObject, ViewParent, is_of_levels, parent_at


class Evaluator:
    """Calls the views of levels, and reads in SQL what decisions on them need. Raises Unavailable, CommitsLost."""

    def __init__(self, tables: Tables, program: Program, redactor: Redactor) -> None:
        self._tables = tables
        self._program = program
        self._redactor = redactor
        self.calls = CallCounts()
        self.suspects = Suspects()
        """Views that took too long."""

    async def look(
        self, state_reader: StateReader, wakes: Sequence[PendingWake], now: datetime
    ) -> tuple[list[Outlook], list[ViewParent]]:
        """Look at the levels, and call the views that may see something else.

        Returns the looks, and the levels left for the next batch: a view that took too long is not called again in
        this one. Levels that the view does not have any more are in neither.
        """
        state, named = state_reader.state, [(wake.view, wake.parent) for wake in wakes]
        await self.refill(state, {wake.parent for wake in wakes})
        asked = [level for level in named if level not in state.at_rest]
        intents, rounds = await self._intents_of(state, asked)
        looks: list[Outlook] = []
        left: list[ViewParent] = []
        slow = set[str]()
        for wake in wakes:
            facts = state_reader.facts(wake, intents.get((wake.view, wake.parent), ()), rounds, now)
            if facts is None:
                continue
            if not facts.needs_evaluation:
                looks.append(Outlook(facts))
                continue
            if wake.view in slow:
                left.append(facts.name)
                continue
            evaluation = Evaluation(
                facts, namespaces=state_reader.namespaces, redactor=self._redactor, memory=state_reader
            )
            looks.append(Outlook(facts, evaluation.call()))
            if evaluation.took_too_long:
                self.suspects.note(facts)
                slow.add(wake.view)
        for look in looks:
            self.calls.take(look)
        undone = [look.facts.name for look in looks if look.facts.name in state.at_rest and look.is_undone]
        again, _ = await self._intents_of(state, undone)  # not read above: their targets tell who has undone them
        return [state_reader.with_intents(each, again.get(each.facts.name, ())) for each in looks], left

    async def _intents_of(
        self, state: State, levels: Sequence[ViewParent]
    ) -> tuple[Mapping[ViewParent, Sequence[SqlIntent]], Mapping[tuple[str, str, str], int]]:
        """What SQL has of the writes of levels, and the last round of each view, parent and uid that State lacks."""
        if not levels:
            return {}, {}
        return await self._tables.intents_of(levels, [level for level in levels if level not in state.levels])

    async def complete(self, state_reader: StateReader, acted: Sequence[Acted]) -> list[Acted]:
        """The rounds with the rows of their intents, compared with what is held of the targets."""
        targets = await self.whole(state_reader.state, target_names(acted))
        with_applied = [name for name in target_names(acted, verb="apply") if name in targets]
        inputs = RowInputs(
            identity=(self._tables.scope.cluster, self._tables.scope.application),
            targets=targets,
            last_applied=await self._tables.last_applied(with_applied) if with_applied else {},
            is_watched=partial(is_watched, self._program, state_reader.namespaces),
            redactor=self._redactor,
        )

        def completed(look: Outlook, round_: Round) -> Round:
            return with_rows(look, round_, inputs, last_called(look, round_, state_reader.bucket))

        return [(look, completed(look, round_) if round_ else None) for look, round_ in acted]

    async def whole(self, state: State, names: Iterable[str]) -> dict[str, StoredObject]:
        """The objects of these names that there are; reads bodies that memory has let go, and puts them back in State.

        What another process writes to the tables may be a little older or newer than what is held of it here.
        """
        found = {name: state.objects[name] for name in names if name in state.objects}
        lacking = state.lacking(found)
        if not lacking:
            return found
        rows = await self._tables.objects(lacking)
        for name in lacking:
            held, row = found.pop(name), rows.get(name)
            if row is None:
                continue
            found[name] = replace(held, body=row.body)
            is_read_whole = held.partition in state.leased or (row.uid, row.version) == (held.uid, held.version)
            if is_read_whole and state.objects.get(name) is held:  # no fold came between, as one may beside a timer
                state.put_back(found[name])
        return found

    async def refill(self, state: State, parents: Collection[str]) -> None:
        """Have the bodies of parents in memory. Raises CommitsLost if the tables do not have them."""
        lacking = state.lacking(sorted(parents))
        if lacking and (gone := set(lacking) - (await self.whole(state, lacking)).keys()):
            raise CommitsLost(f"the database does not have {min(gone)}, which it was given")

    async def look_around(self, state_reader: StateReader) -> None:
        """Read anew the levels of other processes that views here look up; wake the levels here that see a change."""
        state = state_reader.state
        places = {place: parent_at(place) for place in state.readers if _is_of_others(state, place)}
        if not places:
            return
        levels = await self._tables.levels_of(sorted({*places.values()}))
        before = {place: state_reader.bucket(place).values for place in places}
        causes: dict[str, int] = {}
        for parent in {*places.values()}:  # which may be looked up under several keys
            for view in self._program.views:
                state.levels.pop((view, parent), None)
            fresh = {(view, parent): row for view in self._program.views if (row := levels.get((view, parent)))}
            state.levels |= fresh
            causes[parent] = max((row.cause for row in fresh.values()), default=0)
        shown = ((at, parent) for at, parent in places.items() if state_reader.bucket(at).values != before[at])
        asked: dict[ViewParent, Wake] = {}
        state.wake_lookups({place: (causes[parent],) for place, parent in shown}, asked)
        state.ask(asked)


def are_of_others(state: State, places: Iterable[IndexKey]) -> bool:
    """Tell whether levels under one of the keys are decided on by a process that holds other partitions."""
    return any(_is_of_others(state, place) for place in places)


def _is_of_others(state: State, place: IndexKey) -> bool:
    row = state.objects.get(parent_at(place)) if is_of_levels(place) else None
    return row is not None and row.partition not in state.leased
