"""Bugs to plant: each breaks one real function as its name says, as long as the context lasts."""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import datetime
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec.structs import replace
from sqlalchemy import false

from levelog.resources import Owner, ResourceType
from levelog_base.wire.canonical import digest
from levelog_base.wire.objects import Uid
from levelog_base.wire.records import HistoryReverted, LoggedRecord
from levelog_ingest.feed import Feed
from levelog_kube.failures import NoAnswer
from levelog_log.trail import Trail
from levelog_processors import engine, guard, tables
from levelog_processors.bound import BoundView
from levelog_processors.decide import facts, functions, intents, lookups, settling, statereader
from levelog_processors.decide.facts import Outlook, Round
from levelog_processors.decide.readiness import Readiness
from levelog_processors.decide.rules import conclude
from levelog_processors.decide.statereader import StateReader
from levelog_processors.engine import Engine
from levelog_processors.fold import entries
from levelog_processors.fold import rules as folding
from levelog_processors.fold.lists import Mark, note_mark
from levelog_processors.fold.rules import Fold
from levelog_processors.program import Program
from levelog_processors.state.buckets import Buckets
from levelog_processors.state.contents import ABSENT
from levelog_processors.state.state import State
from levelog_processors.waiting import HighWatermark
from levelog_store.actuate.claims import Claimant, ClaimedIntent
from levelog_store.actuate.elapsed import elapsed
from levelog_store.decide import decisionwrites, inputreads
from levelog_store.decide.decisions import Decided, OpenIntent
from levelog_store.fold import ends
from levelog_store.fold.changes import Changes, Wake
from levelog_store.owners import leases
from levelog_store.rows import (
    ERRORS,
    Bucket,
    Entry,
    IndexKey,
    Input,
    Scope,
    SyncRow,
    ViewParent,
    is_of_levels,
    levels_place,
    shelf_at,
)
from rigs.machine.cluster import NAMESPACE
from rigs.machine.seam import SeamedDatabase
from rigs.machine.world import Laboratory

Bug = Callable[[Laboratory], Generator[None]]


@contextmanager
def planted(bug: Bug, laboratory: Laboratory) -> Generator[None]:
    """Plant a bug for a while."""
    with contextmanager(bug)(laboratory):
        yield


@contextmanager
def _replaced(*places: tuple[object, str], by: Any) -> Generator[None]:
    with ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(patch.object(owner, name, by))
        yield


def dropped_absent_key(_: Laboratory) -> Generator[None]:
    """A key that nothing was ever under is not remembered as read."""
    real = State.read

    def without_absent(self: State, level: ViewParent, keys: frozenset[IndexKey]) -> None:
        real(self, level, frozenset(place for place in keys if self.buckets.versions.get(place, -1) >= 0))

    with _replaced((State, "read"), by=without_absent):
        yield


def dropped_old_key(_: Laboratory) -> Generator[None]:
    """When an object moves from one key to another, who read the old one is not woken."""
    real = getattr(Fold, "_replace_entries")  # noqa: B009

    def without_old(self: Fold, name: str, partition: int, fresh: Iterable[Entry], sequence: int) -> None:
        fresh = list(fresh)
        keys = dict(self._changes.keys)  # pyright: ignore[reportPrivateUsage]
        real(self, name, partition, fresh, sequence)
        if fresh:
            new = {(entry.index, entry.key) for entry in fresh}
            changed = self._changes.keys  # pyright: ignore[reportPrivateUsage]
            for place in [each for each in changed if each not in keys and each not in new and each[1][0] != "*"]:
                del changed[place]

    with _replaced((Fold, "_replace_entries"), by=without_old):
        yield


def readers_of_levels_not_told(_: Laboratory) -> Generator[None]:
    """Who looks up a level of another parent is not woken when it stands otherwise."""
    with _replaced((State, "tell"), by=lambda *_: None):
        yield


def levels_go_untold(_: Laboratory) -> Generator[None]:
    """Who looks up a level of another parent is not woken when it goes."""

    def forget(self: Fold, views: Iterable[BoundView], name: str, _: int) -> None:
        self._changes.gone |= {(view.name, name) for view in views}  # pyright: ignore[reportPrivateUsage]

    with _replaced((Fold, "_forget"), by=forget):
        yield


def children_no_dependency(_: Laboratory) -> Generator[None]:
    """The levels of children are looked up, and not remembered as read."""
    real = getattr(lookups.LevelLookups, "_find")  # noqa: B009

    def find(self: Any, parent: str) -> Any:
        found = real(self, parent)
        if self.view.name == "machine/family":
            self.bucket.__self__.versions.pop(levels_place(self.view.operator, parent))
        return found

    with _replaced((lookups.LevelLookups, "_find"), by=find):
        yield


def readers_of_own_levels_not_woken(_: Laboratory) -> Generator[None]:
    """A view that is given the levels of its parent is not woken when one of them is decided on."""
    with _replaced((engine, "woken"), by=lambda *_: {}):
        yield


def left_out_untold(_: Laboratory) -> Generator[None]:
    """Nor is it when a filter leaves its parent out of another view."""
    with _replaced((Fold, "_wake_readers"), by=lambda *_: None):
        yield


def readers_do_not_wait(_: Laboratory) -> Generator[None]:
    """A view that reads levels is decided on although these are to be decided on first."""
    with _replaced((StateReader, "is_early"), by=lambda *_: False):
        yield


def levels_by_name_wake_nobody(_: Laboratory) -> Generator[None]:
    """Who looks up a level by the name of its view is not woken when that stands otherwise."""
    real = Program.places_of

    def without_names(self: Program, view: str, parent: str) -> list[IndexKey]:
        return [place for place in real(self, view, parent) if "/" not in shelf_at(place)]

    with _replaced((Program, "places_of"), by=without_names):
        yield


def every_telling_counts(_: Laboratory) -> Generator[None]:
    """How new the levels of another parent are is part of what their readers saw."""
    real = lookups.contents_of

    def with_version(index: str, key: str, bucket: Bucket) -> tuple[bytes, ...]:
        found: tuple[bytes, ...] = real(index, key, bucket)
        return (*found, str(bucket.version).encode()) if is_of_levels((index, key)) else found

    with _replaced((lookups, "contents_of"), by=with_version):
        yield


def deletions_are_not_held_back(_: Laboratory) -> Generator[None]:
    """A level deletes children while an index fails for an object which may concern it."""
    with _replaced((functions, "is_withheld"), by=lambda *_: False):
        yield


def failures_under_keys_count_for_nobody(_: Laboratory) -> Generator[None]:
    """Who reads old entries of an object that an index fails for goes on with them."""
    real = Buckets.get
    with _replaced((Buckets, "get"), by=lambda self, place: replace(real(self, place), errors=())):
        yield


def failures_wake_nobody(_: Laboratory) -> Generator[None]:
    """An object that an index fails for from now on changes none of its keys."""
    real = entries.change_key

    def but_for_errors(changes: Changes, entry: Entry, *args: Any) -> None:
        if not entry.key.startswith(ERRORS):
            real(changes, entry, *args)

    with _replaced((entries, "change_key"), by=but_for_errors):
        yield


def wake_by_version(_: Laboratory) -> Generator[None]:
    """A parent's resourceVersion counts as something that its views see."""
    real = guard.parent_inputs

    def with_version(view: BoundView, body: bytes, looked_at: bytes | None) -> str | None:
        inputs = real(view, body, looked_at)
        return inputs and digest(inputs, str(msgspec.json.decode(body)["metadata"]["resourceVersion"]))

    with _replaced((folding, "parent_inputs"), (statereader, "parent_inputs"), by=with_version):
        yield


def key_without_round(_: Laboratory) -> Generator[None]:
    """The same wish has the same idempotency key in every round."""

    def without_round(*parts: bytes | str) -> str:
        return digest(*parts[:4], *parts[5:])

    with _replaced((intents, "digest"), by=without_round):
        yield


def rounds_begin_anew(_: Laboratory) -> Generator[None]:
    """A level that was forgotten begins with the first round, whatever its intents are."""

    async def none(*_: Any) -> dict[tuple[str, str, str], int]:
        return {}

    with _replaced((inputreads, "read_last_rounds"), by=none):
        yield


def owners_have_no_namespace(_: Laboratory) -> Generator[None]:
    """An object counts as the child of whatever uid it names."""

    def owner(self: ResourceType, _: str, uid: Uid) -> Owner:
        return Owner(self.group, self.kind, NAMESPACE, uid)

    with _replaced((ResourceType, "owner"), by=owner):
        yield


def strangers_are_adopted(_: Laboratory) -> Generator[None]:
    """An apply takes over what is there."""
    with _replaced((intents, "_refuse_stranger"), by=lambda *_: None):
        yield


def settled_by_receipt(_: Laboratory) -> Generator[None]:
    """What was written counts as shown by the log once its receipt is there."""
    real = settling.is_settled

    def by_receipt(intent: OpenIntent) -> bool:
        return real(intent) or intent.state == "written"

    with _replaced((facts, "is_settled"), by=by_receipt):
        yield


def others_are_not_followed(_: Laboratory) -> Generator[None]:
    """Of partitions that others hold nothing is known but that they are folded, and listed."""
    real = State.apply

    def apply(self: State, changes: Changes, *, is_leased: bool = True) -> dict[ViewParent, Wake]:
        known = changes if is_leased else Changes(checkpoints=changes.checkpoints, syncs=changes.syncs)
        return real(self, known, is_leased=is_leased)

    with _replaced((State, "apply"), by=apply):
        yield


def others_wake_nothing(_: Laboratory) -> Generator[None]:
    """What the partitions of others show is followed, and wakes no level."""
    real = State.apply

    def apply(self: State, changes: Changes, *, is_leased: bool = True) -> dict[ViewParent, Wake]:
        if is_leased:
            return real(self, changes)
        with _replaced((State, "ask"), by=lambda *_: None):
            return real(self, changes, is_leased=False)

    with _replaced((State, "apply"), by=apply):
        yield


def levels_of_others_stay_as_read(_: Laboratory) -> Generator[None]:
    """How levels stand on which others decide is read once, when the partitions are taken."""

    async def nothing(self: Engine) -> None:
        self._has_lookups = False  # pyright: ignore[reportPrivateUsage]

    with _replaced((Engine, "_look_around"), by=nothing):
        yield


def never_superseded(_: Laboratory) -> Generator[None]:
    """Unclaimed intents of a level stay when it goes, or decides anew."""
    real = getattr(ends, "_supersede")  # noqa: B009

    async def nothing(*_: Any) -> None: ...

    async def pretended(connection: Any, scope: Scope, keys: Collection[str], to: str) -> set[str]:
        return set(keys)

    with (
        _replaced((ends, "_supersede"), by=lambda dialect: real(dialect).where(false())),
        _replaced((decisionwrites, "supersede"), by=nothing),
        _replaced((decisionwrites, "_change_unclaimed"), by=pretended),
    ):
        yield


def committed_without_lease(_: Laboratory) -> Generator[None]:
    """Whoever lost its partitions can still commit."""

    async def admit(*_: object, **__: object) -> None:
        pass

    with _replaced((tables, "guard"), by=admit):
        yield


def reads_not_checked_again(_: Laboratory) -> Generator[None]:
    """What a decision read counts as unchanged when it is written."""
    real = getattr(Engine, "_commit")  # noqa: B009

    async def as_read(self: Engine, batch: Sequence[Decided]) -> Any:
        held = [{place: self.state_reader.version(place) for place in each.versions} for each in batch]
        return await real(self, [replace(each, versions=now) for each, now in zip(batch, held, strict=True)])

    with _replaced((Engine, "_commit"), by=as_read):
        yield


def unlisted_objects_stay(_: Laboratory) -> Generator[None]:
    """What a complete list left out is not deleted."""
    with _replaced((folding, "is_unlisted"), by=lambda *_, **__: False):
        yield


def late_records_count(_: Laboratory) -> Generator[None]:
    """A record counts as news whatever its version is."""
    with _replaced((folding, "follows"), by=lambda *_, **__: True):
        yield


def lists_not_awaited(_: Laboratory) -> Generator[None]:
    """Views decide although what they read was never listed."""

    def every(self: Readiness) -> list[str]:
        return list(self._program.views)  # pyright: ignore[reportPrivateUsage]

    with _replaced((Readiness, "views"), by=property(every)):
        yield


def late_decisions_by_wakeup_alone(_: Laboratory) -> Generator[None]:
    """What a slow function gave counts if nobody has asked for its level since, whatever its parent is now."""

    def is_asked(self: Engine, look: Outlook) -> bool:
        wake = self.state.wakes.pending.get(look.facts.name)
        return wake is not None and wake.generation == look.facts.wake.generation

    with _replaced((StateReader, "is_as_seen"), by=is_asked):
        yield


def folded_on_after_a_crash(_: Laboratory) -> Generator[None]:
    """What the tables have is not looked at again: a processor goes on from what it remembers."""
    with _replaced((leases, "check_commits"), (tables, "check_commits"), by=lambda *_: None):
        yield


def bodies_leave_too_soon(_: Laboratory) -> Generator[None]:
    """Bodies leave memory before the tables have them, where an older one is read then."""

    def let_go(self: State) -> None:
        self.objects |= {name: replace(row, body=ABSENT) for name, row in self.objects.items()}

    with _replaced((State, "let_go"), by=let_go):
        yield


def settling_counts_as_rest(_: Laboratory) -> Generator[None]:
    """What is under way of a level is not looked up, as if its last writes were settled."""
    real = State.take

    def take(self: State, decided: Decided) -> None:
        real(self, decided)
        self.at_rest.add(decided.name)

    with _replaced((State, "take"), by=take):
        yield


def old_history_acted_on(_: Laboratory) -> Generator[None]:
    """Who begins to read, or begins anew, decides after each batch on the way to the end."""

    async def at_once(self: HighWatermark, *, has_records: bool) -> bool:
        return True

    with _replaced((HighWatermark, "is_reached"), by=at_once):
        yield


def due_by_own_clock(laboratory: Laboratory) -> Generator[None]:
    """Due times are made by the processor's clock, and compared with the database's."""

    def by_own_clock(look: Outlook, round_: Round | None, _: datetime) -> Decided:
        return conclude(look, round_, laboratory.processors_now)

    with _replaced((engine, "conclude"), by=by_own_clock):
        yield


def clock_set_back_unnoticed(_: Laboratory) -> Generator[None]:
    """What was decided on by a clock that was ahead stays until that time is there."""
    with _replaced((engine, "wake_from_ahead"), by=lambda *_: None):
        yield


def waits_not_begun_anew(_: Laboratory) -> Generator[None]:
    """A level whose wait was said by a clock that was ahead is due when it said."""
    with _replaced((facts.Facts, "planned"), by=property(lambda self: self.before.recheck_at)):
        yield


def blocked_levels_owe_a_round(_: Laboratory) -> Generator[None]:
    """A level that differed before an index failed for what it reads is called again for nothing."""
    differed = property(lambda self: self.before.drift is not None and self.before.status != "in_sync")
    with _replaced((facts.Facts, "has_stored_drift"), by=differed):
        yield


def holes_are_jumped_over(_: Laboratory) -> Generator[None]:
    """Where records expired unread, who reads goes on with the next one that is left."""
    real = Trail.take

    def take(self: Trail, sequence: Any, record_id: str) -> bool:
        self.read_to = sequence - 1
        return real(self, sequence, record_id)

    with _replaced((Trail, "take"), by=take), _replaced((Trail, "check"), by=lambda *_, **__: None):
        yield


def half_seen_list_continued(_: Laboratory) -> Generator[None]:
    """A streamed list that ends cleanly in the middle goes on within the same list."""
    real = getattr(Feed, "_list_and_watch")  # noqa: B009

    async def going_on(self: Feed) -> bool:
        try:
            return bool(await real(self))
        except NoAnswer as error:
            if "ended before it was complete" not in str(error):
                raise
            return True

    with _replaced((Feed, "_list_and_watch"), by=going_on):
        yield


def history_not_asked_for(_: Laboratory) -> Generator[None]:
    """Watches and lists begin without a look at the server's version."""

    async def nothing(self: Feed) -> None: ...

    with _replaced((Feed, "_check_history"), by=nothing):
        yield


def reverted_list_compared(_: Laboratory) -> Generator[None]:
    """After history went back, what is listed is compared with the versions that were held."""
    with _replaced((State, "await_list"), by=lambda *_: None):
        yield


def readers_not_blocked(_: Laboratory) -> Generator[None]:
    """After history went back, a resource counts as listed."""

    def without(changes: Changes, held: Mapping[Input, SyncRow], logged: LoggedRecord, record: Mark) -> None:
        if not isinstance(record, HistoryReverted):
            note_mark(changes, held, logged, record)

    with _replaced((folding, "note_mark"), by=without):
        yield


def sent_before_it_is_durable(_: Laboratory) -> Generator[None]:
    """An intent is handed over as it is claimed, before the commit."""

    class Hasty(list[ClaimedIntent]):
        def __init__(self, claimant: Claimant | None) -> None:
            self._claimant = claimant

        def extend(self, claimed: Iterable[ClaimedIntent]) -> None:
            found = list(claimed)
            if self._claimant is not None and found:
                self._claimant.begin(found, elapsed())

    with _replaced((tables, "handing_over"), by=lambda claimant: nullcontext(Hasty(claimant))):
        yield


def claims_are_not_durable(_: Laboratory) -> Generator[None]:
    """Decisions are committed as those are whose intents nobody sends yet."""
    real = SeamedDatabase.transaction

    def hasty(self: SeamedDatabase, *, durable: bool = True) -> Any:
        return real(self, durable=False)

    with _replaced((SeamedDatabase, "transaction"), by=hasty):
        yield
