"""The tables of a replay, in memory: what it decides, for nobody else to read, and for nobody to send."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from msgspec.structs import replace

from levelog.wire.objects import ObjectKey
from levelog_processors.decide.overlay import told
from levelog_processors.state.state import State
from levelog_processors.tables import Rounds, Tables
from levelog_store.actuate.claims import Claimant
from levelog_store.decide.decisions import Asked, Decided, Decision, IntentRow, OpenIntent, Read, request_of
from levelog_store.decide.decisionwrites import WrittenDecisions
from levelog_store.decide.inputreads import KeptIntent, ToldIntent
from levelog_store.fold.changes import Causes, read_causes
from levelog_store.fold.ends import Ends
from levelog_store.fold.statereads import StoredState
from levelog_store.rows import ENDED, UNSETTLED, LevelRow, Scope, Verdict, ViewParent, is_of_levels

WithWrites: TypeAlias = tuple[Decision, Sequence[Asked]]
"""A decision, and the writes that it asked for."""


class MemoryTables(Tables):
    """Levels' rounds, intents and decisions; they change as the rows of `SqlTables` do."""

    hold_state = False

    def __init__(self, scope: Scope, stored: StoredState | None = None, intents: Sequence[KeptIntent] = ()) -> None:
        """They begin with what is `stored`, and with these intents, in the order in which they were decided."""
        self.scope = scope
        self._stored = stored
        self.epochs: Mapping[int, int] = {}
        self.decided: list[WithWrites] = []
        """In their order; the caller takes them away."""
        self.intents: dict[str, KeptIntent] = {}
        """By key."""
        self._ordinal = 0
        self._rounds: dict[ViewParent, int] = {}
        self._last_rounds: dict[ViewParent, dict[str, int]] = {}
        """Of which there are intents, by the uid of the parent."""
        self._of: dict[ViewParent, set[str]] = {}
        """Keys of each level's intents, but for ended ones of earlier rounds."""
        self._waiting: dict[str, set[str]] = {}
        """Keys of intents that are to be sent, by target."""
        self._applied: dict[str, list[str]] = {}
        """Keys of all applies to each target, in their order."""
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
    ) -> tuple[Mapping[ViewParent, Sequence[ToldIntent]], Rounds]:
        """Find them by level."""
        found = {level: [each.told for each in self._open(level)] for level in levels}
        return found, {(*level, uid): at for level in unknown for uid, at in self._last_rounds.get(level, {}).items()}

    def _open(self, level: ViewParent) -> list[KeptIntent]:
        held = (self.intents[key] for key in self._of.get(level, ()))
        of_round = self._rounds.get(level)
        return sorted(
            (
                each
                for each in held
                if each.told.intent.verb != "event"
                and each.told.intent.state != "superseded"
                and (each.round == of_round or each.told.intent.state in UNSETTLED)
            ),
            key=lambda each: (each.round, each.ordinal),
        )

    async def last_applied(self, targets: Collection[str]) -> Mapping[str, bytes]:
        """Find the last of each target."""
        return {target: found.body for target in targets if (found := self._last_applied(target)) is not None}

    def _last_applied(self, target: str) -> KeptIntent | None:
        newest: KeptIntent | None = None
        for each in map(self.intents.__getitem__, reversed(self._applied.get(target, ()))):
            if each.told.intent.state in ("pending", "failed", "superseded"):
                continue
            if newest is not None and each.decided_at != newest.decided_at:
                break
            if newest is None or (each.round, each.ordinal) > (newest.round, newest.ordinal):
                newest = each
        return newest

    async def flush(self, state: State, *, read_to: int, has_time: bool) -> None:  # noqa: ARG002 - nothing is behind
        """Take what folded records end."""
        state.levels |= {(row.view, row.parent): row for row in self._end(state.ends)}
        state.written()

    @asynccontextmanager
    async def deciding(
        self, state: State, batch: Sequence[Decided], claimant: Claimant | None
    ) -> AsyncGenerator[WrittenDecisions]:
        """Take the decisions, and what folded records end."""
        self._end(state.ends)
        yield self._decide(batch, claimant)
        state.written()

    def _end(self, ends: Ends) -> list[LevelRow]:
        """Take what folded records end, by the rules of `write_ends`; returns the levels that are made."""
        for level in ends.gone:
            self._rounds.pop(level, None)
        for partition, resource in ends.reverted:
            for each in [*self.intents.values()]:
                of = str(ObjectKey.parse(each.told.intent.target).group_resource)
                if each.partition == partition and of == resource and each.told.intent.state == "written":
                    self._change(each, "settled")
        named = [*(receipt.record.key for receipt, _ in ends.receipts), *(each.key for each in ends.observations)]
        known = [self.intents[key] for key in dict.fromkeys(named) if key in self.intents]
        for each, intent in zip(known, told([each.told for each in known], ends), strict=True):
            self._put(replace(each, told=ToldIntent(each.told.uid, each.told.owner, intent)))
        self._supersede(ends.gone)
        lost = sorted((row for key, row in ends.unmade.items() if key not in self.intents), key=lambda row: row.round)
        made = {(row.view, row.parent): row for row in lost}
        self._rounds |= {level: row.round for level, row in (made | ends.levels).items()}
        return [*made.values()]

    def _decide(self, batch: Sequence[Decided], claimant: Claimant | None) -> WrittenDecisions:
        """Take decisions by the rules of `write_valid`."""
        for key in (key for each in batch for key in each.withdrawn):
            self._change(self.intents[key], "superseded")
        for each in batch:
            self._rounds[each.name] = each.level.round
            if each.is_kept:
                self._ordinal += 1
                asked = [Asked(key=row.key, verb=row.verb, target=row.target, body=row.body) for row in each.intents]
                self.decided.append((_decision(each, self._ordinal, self.scope.fingerprint), asked))
        self._supersede({each.name: each.level.parent_uid for each in batch if each.withdraws})
        for key in (key for each in batch for key in each.settled):
            kept = self.intents[key]
            self._change(kept, "failed" if kept.told.intent.error else "settled")
        rows = [(each, row) for each in batch for row in each.intents]
        claimed = self._claim(rows, claimant) if claimant is not None else set[str]()
        for each, row in rows:
            if row.key not in claimed:
                self._insert(each, row, row.state)
        return WrittenDecisions([*batch], claimed)

    def _claim(self, rows: Sequence[tuple[Decided, IntentRow]], claimant: Claimant) -> set[str]:
        """Insert chosen intents as claimed, as far as nothing else waits for their targets."""
        chosen, claimed = set(claimant.choose([row for _, row in rows])), set[str]()
        for each, row in rows:
            is_free = row.key not in self.intents and not self._waiting.get(row.target)
            if row.key in chosen and row.state == "pending" and is_free:
                self._insert(each, row, "claimed", owner=claimant.owner)
                claimed.add(row.key)
        return claimed

    def _insert(self, decided: Decided, row: IntentRow, state: str, *, owner: str = "") -> None:
        """Keep an intent; a call that goes on is one of its new round."""
        level, uid = decided.name, decided.level.parent_uid
        known = self.intents.get(row.key)
        if known is not None and not (row.verb == "call" and known.told.intent.state in ENDED):
            self._put(replace(known, round=row.round, ordinal=row.ordinal))
            return
        intent = OpenIntent(
            key=row.key,
            view=level[0],
            parent=level[1],
            verb=row.verb,
            target=row.target,
            is_watched=row.is_watched,
            state=state,
            is_folded=False,
            attempts=int(state == "claimed"),
            request=request_of(row.verb, row.target, row.body, row.options),
        )
        self._keep(
            KeptIntent(
                told=ToldIntent(uid, owner, intent),
                partition=decided.wake.partition,
                round=row.round,
                ordinal=row.ordinal,
                decided_at=decided.level.evaluated_at,
                body=row.body,
            )
        )

    def _keep(self, kept: KeptIntent) -> None:
        """Keep a new one."""
        intent, uid = kept.told.intent, kept.told.uid
        level = intent.view, intent.parent
        last_rounds = self._last_rounds.setdefault(level, {})
        if kept.round > last_rounds.get(uid, 0):
            last_rounds[uid] = kept.round
            self._of[level] = {
                key for key in self._of.get(level, ()) if self.intents[key].told.intent.state in UNSETTLED
            }
        self._of.setdefault(level, set()).add(intent.key)
        if intent.verb == "apply":
            self._applied.setdefault(intent.target, []).append(intent.key)
        self._put(kept)

    def _change(self, kept: KeptIntent, state: str) -> None:
        intent = replace(kept.told.intent, state=state)
        self._put(replace(kept, told=ToldIntent(kept.told.uid, kept.told.owner, intent)))

    def _put(self, kept: KeptIntent) -> None:
        intent = kept.told.intent
        self.intents[intent.key] = kept
        waiting = self._waiting.setdefault(intent.target, set())
        (waiting.add if intent.state in ("pending", "claimed") else waiting.discard)(intent.key)
        if intent.state in UNSETTLED:  # also one that was superseded, and of which a receipt tells
            self._of.setdefault((intent.view, intent.parent), set()).add(intent.key)

    def _supersede(self, of: Mapping[ViewParent, str]) -> None:
        """Withdraw the unclaimed intents of levels, and settle what was written for other parents than these uids."""
        for level, uid in of.items():
            for kept in [self.intents[key] for key in self._of.get(level, ())]:
                intent = kept.told.intent
                if intent.state == "pending":
                    self._change(kept, "superseded")
                elif intent.state == "written" and intent.is_folded and kept.told.uid != uid:
                    self._change(kept, "failed" if intent.error else "settled")


_OF_LEVEL: Final = (*Verdict.__struct_fields__, "view", "parent", "parent_uid", "cause")


def _decision(decided: Decided, ordinal: int, fingerprint: str) -> Decision:
    """The decision as it is read back from SQL."""
    level, suppressed, at = decided.level, read_causes(decided.suppressed), decided.decided_at
    if at is None:
        raise TypeError(f"nobody says when {decided.name} was decided on")
    causes = read_causes(decided.wake.causes, newest=level.cause)
    asked = tuple(each for each in causes.sequences if each not in suppressed.sequences)
    return Decision(
        **{name: getattr(level, name) for name in _OF_LEVEL},
        ordinal=ordinal,
        parent_sequence=decided.parent_sequence,
        causes=Causes(asked, causes.has_more),
        suppressed=suppressed,
        is_called=decided.is_evaluated,
        reads=[
            Read(*place, version, decided.contents.get(place, b"[]" if version <= 0 else None))
            for place, version in sorted(decided.versions.items())
            if not is_of_levels(place)
        ],
        intents=[row.key for row in decided.intents],
        fingerprint=fingerprint,
        decided_at=at,
        basis=decided.basis,
    )
