"""Bugs to plant: each breaks one real function as its name says, as long as the context lasts.

Most are the function that stands in place of the real one; those that need more are generators.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import datetime
from functools import update_wrapper
from inspect import signature
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec.structs import replace
from sqlalchemy import false

from levelog.resources import Owner, ResourceType
from levelog_actuator.requests import Precondition
from levelog_base.wire.canonical import digest
from levelog_base.wire.objects import Uid
from levelog_base.wire.records import HistoryReverted, LoggedRecord
from levelog_ingest.feed import Feed
from levelog_kube.requestfailures import NoAnswer
from levelog_log.notifications import Topic
from levelog_log.trail import Trail
from levelog_processors import engine, tables
from levelog_processors.announcements import Announcements
from levelog_processors.bound import BoundView
from levelog_processors.decide import facts, functions, intents, lookups, statereader
from levelog_processors.decide.decisionrules import conclude
from levelog_processors.decide.facts import Outlook, Round
from levelog_processors.decide.readiness import Readiness
from levelog_processors.decide.statereader import StateReader
from levelog_processors.decide.tally import EvaluationBatch
from levelog_processors.engine import Engine
from levelog_processors.fold import entries
from levelog_processors.fold import foldrules as folding
from levelog_processors.fold.batches import Folded
from levelog_processors.fold.foldrules import Fold
from levelog_processors.fold.lists import Mark, note_mark
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
from levelog_store.fold.changes import Changes
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
from rigs.machine.laboratory import Laboratory
from rigs.machine.seam import SeamedDatabase

Bug = Callable[[Laboratory[Any]], Generator[None]]


@contextmanager
def planted(bug: Bug, laboratory: Laboratory[Any]) -> Generator[None]:
    """Plant a bug for a while."""
    with contextmanager(bug)(laboratory):
        yield


@contextmanager
def _replaced(*places: tuple[object, str], by: Any) -> Generator[None]:
    with ExitStack() as stack:
        for owner, name in places:
            stack.enter_context(patch.object(owner, name, by))
        yield


def replaces(name: str, *owners: object) -> Callable[[Callable[..., Any]], Bug]:
    """Make a bug of a function that stands in place of those of this name; it may take the `real` one first."""

    def bug_of(by: Callable[..., Any]) -> Bug:
        takes_real = "real" in signature(by).parameters

        def bug(_: Laboratory[Any]) -> Generator[None]:
            real = getattr(owners[0], name)

            def called(*args: Any, **options: Any) -> Any:
                return by(real, *args, **options)

            with _replaced(*((owner, name) for owner in owners), by=called if takes_real else by):
                yield

        return update_wrapper(bug, by)

    return bug_of


@replaces("set_reads", State)
def dropped_absent_key(real: Any, self: State, level: ViewParent, keys: frozenset[IndexKey]) -> None:
    """A key that nothing was ever under is not remembered as read."""
    real(self, level, frozenset(place for place in keys if self.buckets.versions.get(place, -1) >= 0))


@replaces("_replace_entries", Fold)
def dropped_old_key(real: Any, self: Fold, name: str, partition: int, fresh: Iterable[Entry], sequence: int) -> None:
    """When an object moves from one key to another, who read the old one is not woken."""
    fresh = list(fresh)
    keys = dict(self._changes.keys)  # pyright: ignore[reportPrivateUsage]
    real(self, name, partition, fresh, sequence)
    if fresh:
        new = {(entry.index, entry.key) for entry in fresh}
        changed = self._changes.keys  # pyright: ignore[reportPrivateUsage]
        for place in [each for each in changed if each not in keys and each not in new and each[1][0] != "*"]:
            del changed[place]


@replaces("wake_lookups", State)
def readers_of_levels_not_told(*_: Any) -> None:
    """Who looks up a level of another parent is not woken when it stands otherwise."""


@replaces("_drop_levels", Fold)
def levels_go_untold(self: Fold, views: Iterable[BoundView], name: str, _: int) -> None:
    """Who looks up a level of another parent is not woken when it goes."""
    self._changes.gone |= {(view.name, name) for view in views}  # pyright: ignore[reportPrivateUsage]


@replaces("_find", lookups.LevelLookups)
def children_no_dependency(real: Any, self: Any, parent: str) -> Any:
    """The levels of children are looked up, and not remembered as read."""
    found = real(self, parent)
    if self.view.name == "machine/family":
        self.bucket.__self__.versions.pop(levels_place(self.view.operator, parent))
    return found


@replaces("woken", engine)
def readers_of_own_levels_not_woken(*_: Any) -> Any:
    """A view that is given the levels of its parent is not woken when one of them is decided on."""
    return {}


@replaces("_wake_readers", Fold)
def left_out_untold(*_: Any) -> None:
    """Nor is it when a filter leaves its parent out of another view."""


@replaces("is_early", StateReader)
def readers_do_not_wait(*_: Any) -> Any:
    """A view that reads levels is decided on although these are to be decided on first."""
    return False


@replaces("places_of", Program)
def levels_by_name_wake_nobody(real: Any, self: Program, view: str, parent: str) -> list[IndexKey]:
    """Who looks up a level by the name of its view is not woken when that stands otherwise."""
    return [place for place in real(self, view, parent) if "/" not in shelf_at(place)]


@replaces("contents_of", lookups)
def every_telling_counts(real: Any, index: str, key: str, bucket: Bucket) -> tuple[bytes, ...]:
    """How new the levels of another parent are is part of what their readers saw."""
    found: tuple[bytes, ...] = real(index, key, bucket)
    return (*found, str(bucket.version).encode()) if is_of_levels((index, key)) else found


@replaces("is_withheld", functions)
def deletions_are_not_held_back(*_: Any) -> Any:
    """A level deletes children while an index fails for an object which may concern it."""
    return False


@replaces("get", Buckets)
def failures_under_keys_count_for_nobody(real: Any, self: Any, place: Any) -> Any:
    """Who reads old entries of an object that an index fails for goes on with them."""
    return replace(real(self, place), errors=())


@replaces("change_key", entries)
def failures_wake_nobody(real: Any, changes: Changes, entry: Entry, *args: Any) -> None:
    """An object that an index fails for from now on changes none of its keys."""
    if not entry.key.startswith(ERRORS):
        real(changes, entry, *args)


@replaces("parent_inputs", folding, statereader)
def wake_by_version(real: Any, view: BoundView, body: bytes, fields_read: bytes | None) -> str | None:
    """A parent's resourceVersion counts as something that its views see."""
    inputs = real(view, body, fields_read)
    return inputs and digest(inputs, str(msgspec.json.decode(body)["metadata"]["resourceVersion"]))


@replaces("digest", intents)
def key_without_round(*parts: bytes | str) -> str:
    """The same wish has the same idempotency key in every round."""
    return digest(*parts[:4], *parts[5:])


@replaces("read_last_rounds", inputreads)
async def rounds_begin_anew(*_: Any) -> dict[tuple[str, str, str], int]:
    """A level that was forgotten begins with the first round, whatever its intents are."""
    return {}


@replaces("owner", ResourceType)
def owners_have_no_namespace(self: ResourceType, _: str, uid: Uid) -> Owner:
    """An object counts as the child of whatever uid it names."""
    return Owner(self.group, self.kind, NAMESPACE, uid)


@replaces("_refuse_stranger", intents)
def strangers_are_adopted(*_: Any) -> None:
    """An apply takes over what is there."""


def incarnations_are_not_asked_for(_: Laboratory[Any]) -> Generator[None]:
    """A write is sent for whatever has the name of its target."""
    real = Precondition.__dict__["metadata"].fget
    with _replaced((Precondition, "metadata"), by=property(lambda self: real(replace(self, uid="")))):
        yield


@replaces("is_settled", facts)
def settled_by_receipt(real: Any, intent: OpenIntent) -> bool:
    """What was written counts as shown by the log once its receipt is there."""
    return real(intent) or intent.state == "written"


@replaces("apply", State)
def others_are_not_followed(real: Any, self: State, changes: Changes, *, is_leased: bool = True) -> Any:
    """Of partitions that others hold nothing is known but that they are folded, and listed."""
    known = changes if is_leased else Changes(checkpoints=changes.checkpoints, syncs=changes.syncs)
    return real(self, known, is_leased=is_leased)


@replaces("apply", State)
def others_wake_nothing(real: Any, self: State, changes: Changes, *, is_leased: bool = True) -> Any:
    """What the partitions of others show is followed, and wakes no level."""
    if is_leased:
        return real(self, changes)
    with _replaced((State, "ask"), by=lambda *_: None):
        return real(self, changes, is_leased=False)


@replaces("_look_around", Engine)
async def levels_of_others_stay_as_read(self: Engine) -> None:
    """How levels stand on which others decide is read once, when the partitions are taken."""
    self._has_new_lookups = False  # pyright: ignore[reportPrivateUsage]


def never_superseded(_: Laboratory[Any]) -> Generator[None]:
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


@replaces("guard", tables)
async def committed_without_lease(*_: object, **__: object) -> None:
    """Whoever lost its partitions can still commit."""


@replaces("_commit", Engine)
async def reads_not_checked_again(real: Any, self: Engine, batch: Sequence[Decided]) -> Any:
    """What a decision read counts as unchanged when it is written."""
    held = [{place: self.state_reader.version(place) for place in each.versions} for each in batch]
    return await real(self, [replace(each, versions=now) for each, now in zip(batch, held, strict=True)])


@replaces("is_unlisted", folding)
def unlisted_objects_stay(*_: Any, **__: Any) -> Any:
    """What a complete list left out is not deleted."""
    return False


@replaces("follows", folding)
def late_records_count(*_: Any, **__: Any) -> Any:
    """A record counts as news whatever its version is."""
    return True


def lists_not_awaited(_: Laboratory[Any]) -> Generator[None]:
    """Views decide although what they read was never listed."""

    def every(self: Readiness) -> list[str]:
        return list(self._program.views)  # pyright: ignore[reportPrivateUsage]

    with _replaced((Readiness, "views"), by=property(every)):
        yield


@replaces("is_as_seen", StateReader)
def late_decisions_by_wakeup_alone(self: Engine, look: Outlook) -> bool:
    """What a slow function gave counts if nobody has asked for its level since, whatever its parent is now."""
    wake = self.state.wakes.pending.get(look.facts.name)
    return wake is not None and wake.generation == look.facts.wake.generation


def folded_on_after_a_crash(_: Laboratory[Any]) -> Generator[None]:
    """What the tables have is not looked at again: a processor goes on from what it remembers."""
    with _replaced((leases, "check_commits"), (tables, "check_commits"), by=lambda *_: None):
        yield


@replaces("let_go", State)
def bodies_leave_too_soon(self: State) -> None:
    """Bodies leave memory before the tables have them, where an older one is read then."""
    self.objects |= {name: replace(row, body=ABSENT) for name, row in self.objects.items()}


@replaces("take", State)
def settling_counts_as_rest(real: Any, self: State, decided: Decided) -> None:
    """What is under way of a level is not looked up, as if its last writes were settled."""
    real(self, decided)
    self.at_rest.add(decided.name)


@replaces("is_reached", HighWatermark)
async def old_history_acted_on(self: HighWatermark, *, has_records: bool) -> bool:
    """Who begins to read, or begins anew, decides after each batch on the way to the end."""
    return True


def due_by_own_clock(laboratory: Laboratory[Any]) -> Generator[None]:
    """Due times are made by the processor's clock, and compared with the database's."""

    def by_own_clock(look: Outlook, round_: Round | None, _: datetime) -> Decided:
        return conclude(look, round_, laboratory.world.processors_now)

    with _replaced((engine, "conclude"), by=by_own_clock):
        yield


@replaces("wake_from_ahead", engine)
def clock_set_back_unnoticed(*_: Any) -> None:
    """What was decided on by a clock that was ahead stays until that time is there."""


def waits_not_begun_anew(_: Laboratory[Any]) -> Generator[None]:
    """A level whose wait was said by a clock that was ahead is due when it said."""
    with _replaced((facts.Facts, "planned"), by=property(lambda self: self.before.recheck_at)):
        yield


def blocked_levels_owe_a_round(_: Laboratory[Any]) -> Generator[None]:
    """A level that differed before an index failed for what it reads is called again for nothing."""
    differed = property(lambda self: self.before.drift is not None and self.before.status != "in_sync")
    with _replaced((facts.Facts, "has_stored_drift"), by=differed):
        yield


def what_waits_goes_between_claims(_: Laboratory[Any]) -> Generator[None]:
    """What the writes of a round that have ended led to counts as a change by somebody else."""
    real = Outlook.__dict__["has_progressed"].func

    def has_progressed(self: Outlook) -> bool:
        return bool(real(self)) and any(each.state != "pending" for each in self.facts.unsettled)

    with _replaced((Outlook, "has_progressed"), by=property(has_progressed)):
        yield


def rounds_are_owed_at_once(_: Laboratory[Any]) -> Generator[None]:
    """A level that differs is called again for each wakeup, although its writes are under way."""

    def needs_evaluation(self: facts.Facts) -> bool:
        return not self.withdraws and (
            self.is_changed or self.is_woken_by_time or (self.has_stored_drift and self.view.reconcile is not None)
        )

    with _replaced((facts.Facts, "needs_evaluation"), by=property(needs_evaluation)):
        yield


def waits_begin_anew(_: Laboratory[Any]) -> Generator[None]:
    """A level that is woken while it waits for its time, and has nothing new to say, waits as long again."""

    def planned(self: facts.Facts) -> datetime | None:
        at, since = self.before.recheck_at, self.before.decided_at
        return at if at is None or since is None else self.now + (at - since)

    with _replaced((facts.Facts, "planned"), by=property(planned)):
        yield


@replaces("fold", Announcements)
def ends_are_told_too_soon(real: Any, self: Announcements, folded: Folded) -> None:
    """Who waits is notified of what records have ended as these are folded, before the tables have it."""
    real(self, folded)
    self._due |= self._ended  # pyright: ignore[reportPrivateUsage]
    self._ended.clear()  # pyright: ignore[reportPrivateUsage]


@replaces("publish", Announcements)
async def ends_of_backfills_are_told_by_one_writer(real: Any, self: Announcements) -> None:
    """Who waits for what changed code decides on is not notified if a transaction writes it that writes keys too."""
    if self._keys:  # pyright: ignore[reportPrivateUsage]
        self.begin()
    await real(self)


@replaces("decide", Announcements)
def intents_go_untold(real: Any, self: Announcements, batch: EvaluationBatch) -> None:
    """Actuators are not notified of what is decided."""
    real(self, batch)
    self._due.discard(Topic.INTENT)  # pyright: ignore[reportPrivateUsage]


def holes_are_jumped_over(_: Laboratory[Any]) -> Generator[None]:
    """Where records expired unread, who reads goes on with the next one that is left."""
    real = Trail.take

    def take(self: Trail, sequence: Any, record_id: str) -> bool:
        self.read_to = sequence - 1
        return real(self, sequence, record_id)

    with _replaced((Trail, "take"), by=take), _replaced((Trail, "check"), by=lambda *_, **__: None):
        yield


@replaces("_list_and_watch", Feed)
async def half_seen_list_continued(real: Any, self: Feed) -> bool:
    """A streamed list that ends cleanly in the middle goes on within the same list."""
    try:
        return bool(await real(self))
    except NoAnswer as error:
        if "ended before it was complete" not in str(error):
            raise
        return True


@replaces("_check_history", Feed)
async def history_not_asked_for(self: Feed) -> None:
    """Watches and lists begin without a look at the server's version."""


@replaces("await_list", State)
def reverted_list_compared(*_: Any) -> None:
    """After history went back, what is listed is compared with the versions that were held."""


@replaces("note_mark", folding)
def readers_not_blocked(changes: Changes, held: Mapping[Input, SyncRow], logged: LoggedRecord, record: Mark) -> None:
    """After history went back, a resource counts as listed."""
    if not isinstance(record, HistoryReverted):
        note_mark(changes, held, logged, record)


def sent_before_it_is_durable(_: Laboratory[Any]) -> Generator[None]:
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


@replaces("transaction", SeamedDatabase)
def claims_are_not_durable(real: Any, self: SeamedDatabase, *, durable: bool = True) -> Any:
    """Decisions are committed as those are whose intents nobody sends yet."""
    return real(self, durable=False)
