"""The tables of a replay, in memory: nobody else reads its decisions, and nobody sends its writes."""

from bisect import insort
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from levelog_processors.state.state import State
from levelog_processors.tables import Rounds, Tables
from levelog_store.actuate.claims import Claimant
from levelog_store.decide.decisions import Asked, Decided, IntentRow, OpenIntent, WithWrites, request_of
from levelog_store.decide.decisionwrites import WrittenDecisions, history_of
from levelog_store.decide.inputreads import KeptIntent, SqlIntent
from levelog_store.fold.ends import Ends
from levelog_store.fold.statereads import StoredState
from levelog_store.look.recall import decision_of
from levelog_store.rows import ENDED, UNSETTLED, LevelRow, Scope, ViewParent

_WAITING: Final = frozenset({"pending", "claimed"})


class MemoryTables(Tables):
    """Levels' rounds, intents and decisions; they change as the rows of `SqlTables` do."""

    hold_state = False

    def __init__(self, scope: Scope, stored: StoredState | None = None, intents: Sequence[KeptIntent] = ()) -> None:
        """They begin with what is `stored`, and with these intents, in the order in which they were decided."""
        self.scope = scope
        self._stored = stored
        self.epochs: Mapping[int, int] = {}
        self.decided: list[WithWrites] = []
        """Those for which a view was called, in their order; the caller takes them away."""
        self.intents: dict[str, KeptIntent] = {}
        """By key."""
        self._ordinal = 0
        self._rounds: dict[ViewParent, int] = {}
        self._last_rounds: dict[ViewParent, dict[str, int]] = {}
        """Of which there are intents, by the uid of the parent."""
        self._of: dict[ViewParent, set[str]] = {}
        """Keys of each level's intents, but for those of earlier rounds that have ended for good."""
        self._on: dict[str, list[KeptIntent]] = {}
        """All intents on each target, as they were decided, in that order."""
        for row in stored.levels if stored is not None else ():
            self._rounds[row.view, row.parent] = row.round
        for each in intents:
            self._keep(each)

    async def load(self, epochs: Mapping[int, int], bodies_of: Collection[str]) -> StoredState | None:  # noqa: ARG002
        """Give what they began with."""
        self.epochs = epochs
        return self._stored

    async def intents_of(
        self, levels: Sequence[ViewParent], unknown: Sequence[ViewParent]
    ) -> tuple[Mapping[ViewParent, Sequence[SqlIntent]], Rounds]:
        """Find them by level."""
        found = {level: self._open(level) for level in levels}
        return found, {(*level, uid): at for level in unknown for uid, at in self._last_rounds.get(level, {}).items()}

    def _open(self, level: ViewParent) -> Sequence[KeptIntent]:
        of_round = self._rounds.get(level)
        held = (self.intents[key] for key in self._of.get(level, ()))
        found = (each for each in held if each.round == of_round or each.intent.state in UNSETTLED)
        wanted = (each for each in found if each.intent.state != "superseded" and each.intent.verb != "event")
        return sorted(wanted, key=lambda each: (each.round, each.ordinal))

    async def last_applied(self, targets: Collection[str]) -> Mapping[str, bytes]:
        """Find the last of each target."""
        rows = ((target, reversed(self._on.get(target, ()))) for target in targets)
        found = ((target, next(filter(self._is_applied, of), None)) for target, of in rows)
        return {target: each.body for target, each in found if each is not None}

    def _is_applied(self, kept: KeptIntent) -> bool:
        state = self.intents[kept.intent.key].intent.state
        return kept.intent.verb == "apply" and state in ("claimed", "written", "settled", "satisfied")

    async def flush(self, state: State, *, read_to: int, has_time: bool) -> None:  # noqa: ARG002 - nothing is behind
        """Take what folded records end."""
        state.levels |= {(row.view, row.parent): row for row in self._end(state.ends)}
        state.mark_written()

    @asynccontextmanager
    async def deciding(
        self, state: State, batch: Sequence[Decided], claimant: Claimant | None
    ) -> AsyncGenerator[WrittenDecisions]:
        """Take the decisions, and what folded records end."""
        self._end(state.ends)
        yield self._decide(batch, claimant)
        state.mark_written()

    def _end(self, ends: Ends) -> list[LevelRow]:
        """Take what folded records end, by the rules of `write_ends`; returns the levels that are made."""
        for level in ends.gone:
            self._rounds.pop(level, None)
        for partition, resource in ends.reverted:
            for each in [*self.intents.values()]:
                is_of = each.partition == partition and each.intent.target.startswith(f"{resource}/")
                if is_of and each.intent.state == "written":
                    self._change(each.intent.key, "settled")
        named = dict.fromkeys(each.record.key for each, _ in ends.receipts)
        named |= dict.fromkeys(each.key for each in ends.observations)
        for intent in ends.applied_to(self.intents[key] for key in named if key in self.intents):
            self.intents[intent.key] = replace(self.intents[intent.key], intent=intent)
        self._supersede(ends.gone)
        made = ends.made(self.intents)
        self._rounds |= {(row.view, row.parent): row.round for row in (*made, *ends.levels.values())}
        return made

    def _decide(self, batch: Sequence[Decided], claimant: Claimant | None) -> WrittenDecisions:
        """Take decisions by the rules of `write_valid`."""
        named = {key for each in batch for key in (*each.withdrawn, *each.continued)}
        waiting = {key for key in named if self.intents[key].intent.state == "pending"}
        for key in waiting.intersection(key for each in batch for key in each.withdrawn):
            self._change(key, "superseded")
        valid = [each for each in batch if waiting.issuperset((*each.withdrawn, *each.continued))]
        for each in valid:
            self._rounds[each.name] = each.level.round
            self._ordinal += each.is_recorded
            if each.is_evaluated:
                kept = history_of(self.scope, each, self.scope.fingerprint) | {"ordinal": self._ordinal}
                asked = [Asked(key=row.key, verb=row.verb, target=row.target, body=row.body) for row in each.intents]
                self.decided.append((decision_of(kept), asked))
        self._supersede({each.name: each.level.parent_uid for each in valid if each.withdraws})
        for key in (key for each in valid for key in each.settled):
            self._settle(key)
        rows = [(each, row) for each in valid for row in each.intents]
        for key in (row.key for _, row in rows if row.verb == "call" and row.key in self.intents):
            if self.intents[key].intent.state in ENDED:  # it is asked for again under the key that it had
                self._forget(key)
        claimed = set(claimant.choose([row for _, row in rows])) if claimant is not None else set[str]()
        claimed = {row.key for each, row in rows if row.key in claimed and self._claim(each, row)}
        for each, row in rows:
            if row.key not in claimed:
                self._insert(each, row, row.state)
        return WrittenDecisions(valid, claimed)

    def _claim(self, decided: Decided, row: IntentRow) -> bool:
        """Insert an intent as claimed, unless something else waits for its target; tells whether it was."""
        on = (self.intents[each.intent.key].intent.state for each in self._on.get(row.target, ()))
        is_free = row.state == "pending" and row.key not in self.intents and not any(map(_WAITING.__contains__, on))
        if is_free:
            self._insert(decided, row, "claimed")
        return is_free

    def _insert(self, decided: Decided, row: IntentRow, state: str) -> None:
        """Keep an intent; a call that goes on is one of its new round."""
        view, parent = decided.name
        known = self.intents.get(row.key)
        if known is not None:
            self._keep(replace(known, round=row.round, ordinal=row.ordinal))
            return
        intent = OpenIntent(
            key=row.key,
            view=view,
            parent=parent,
            verb=row.verb,
            target=row.target,
            is_watched=row.is_watched,
            state=state,
            is_folded=False,
            attempts=int(state == "claimed"),
            was_claimed=state == "claimed",
            request=request_of(row.verb, row.target, row.body, row.options),
        )
        of, at = decided.wake.partition, decided.level.evaluated_at
        self._keep(KeptIntent(decided.level.parent_uid, "", intent, of, row.round, row.ordinal, at, row.body))

    def _keep(self, kept: KeptIntent) -> None:
        """Keep one that is new, or of a new round."""
        intent = kept.intent
        level = intent.view, intent.parent
        last_rounds, of = self._last_rounds.setdefault(level, {}), self._of.setdefault(level, set())
        if kept.round > last_rounds.get(kept.uid, 0):
            last_rounds[kept.uid] = kept.round
            of -= {key for key in of if self.intents[key].intent.state in ("settled", "satisfied", "failed")}
        of.add(intent.key)
        if intent.key not in self.intents:
            insort(self._on.setdefault(intent.target, []), kept, key=_in_order)
        self.intents[intent.key] = kept

    def _forget(self, key: str) -> None:
        intent = self.intents.pop(key).intent
        self._of[intent.view, intent.parent].discard(key)
        self._on[intent.target] = [each for each in self._on[intent.target] if each.intent.key != key]

    def _change(self, key: str, state: str) -> None:
        kept = self.intents[key]
        self.intents[key] = replace(kept, intent=replace(kept.intent, state=state))

    def _settle(self, key: str) -> None:
        self._change(key, "failed" if self.intents[key].intent.error else "settled")

    def _supersede(self, of: Mapping[ViewParent, str]) -> None:
        """Withdraw the unclaimed intents of levels, and settle what was written for other parents than these uids."""
        for level, uid in of.items():
            for kept in map(self.intents.__getitem__, self._of.get(level, ())):
                intent = kept.intent
                if intent.state == "pending":
                    self._change(intent.key, "superseded")
                elif intent.state == "written" and intent.is_folded and kept.uid != uid:
                    self._settle(intent.key)


def _in_order(kept: KeptIntent) -> tuple[datetime | None, int, int]:
    return kept.decided_at, kept.round, kept.ordinal
