"""The invariants, as docs/architecture.md numbers them, checked on what a world shows."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.subjects import partition_of
from levelog_log.notifications import Topic
from levelog_processors.program import MAX_BACKOFF
from levelog_processors.state.state import State
from levelog_store.decide.decisions import UNDONE, Decided
from levelog_store.owners.handlers import CHANGED_CODE
from rigs.machine.cluster import PARTS, Happening, key_of
from rigs.machine.log import PARTITIONS, Log
from rigs.machine.operator import AWAITED, LAST_DEADLINE
from rigs.machine.reference import LEVELS, VIEWS, Look, Outcome, Reference
from rigs.machine.tables import Row, Tables, is_compared, shown_entry

Effects = Mapping[str, Sequence[Happening]]
"""What each intent changed in the cluster, by its key."""


class Broken(AssertionError):
    """An invariant does not hold."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"invariant {number}: {message}")
        self.number = number


class Call(Struct, frozen=True, kw_only=True):
    """One call of a user's function, and what the reference makes of it at that moment."""

    view: str
    parent: ObjectKey
    is_reconcile: bool
    look: Look
    outcome: Outcome
    shown: Counter[ObjectKey] = Counter()
    """Up to which version the history of each object was seen."""
    has_acted: bool = False
    """A round came of it."""

    @property
    def is_owed(self) -> bool:
        """A round may be owed to a level that differed while a write of it was unsettled."""
        return VIEWS[self.view].is_reconciled and drifts(self.outcome) and not self.has_acted


def named_level(view: str, parent: str) -> tuple[str, ObjectKey]:
    """View and parent as the rig names them."""
    return view.partition("/")[2], ObjectKey.parse(parent)


def drifts(outcome: Outcome) -> bool:
    return not outcome.error and not outcome.blocked and outcome.desired != outcome.actual


def is_led_to(call: Call, last: Call, tables: Tables, effects: Effects, happenings: Sequence[Happening]) -> bool:
    """Tell whether a view sees nothing else than in its last call, but for what its level's own writes have changed."""
    before, now = last.look, call.look
    if (now.uid, now.inputs) != (before.uid, before.inputs):
        return False
    (owned_before, rest_before), (owned, rest) = _owned_and_rest(before), _owned_and_rest(now)
    if rest != rest_before:
        return False
    own = {
        happening
        for row in tables.intents_of(call.view, call.parent, now.uid)
        for happening in effects.get(row["key"], ())
    }
    for key in {key_of(PARTS, name) for name, _ in owned ^ owned_before}:
        seen = {each for each in happenings if each.key == key and last.shown[key] < each.revision <= call.shown[key]}
        if not seen or not seen <= own:
            return False
    return True


def _owned_and_rest(look: Look) -> tuple[set[Any], list[Any]]:
    """What is under the keys of parts that the Web owns, and all else that was read."""
    owned = {part for index, _, values in look.reads if index == "owned" for part in values}
    return owned, [each for each in look.reads if each[0] != "owned"]


def check_waits_go_on(decided: Iterable[Decided], tables: Tables, now: datetime) -> None:
    """Compare due times with those before: a level that is not called, and stands as before, waits no longer."""
    for each in decided:
        row = tables.levels.get(named_level(*each.name))
        if row is None or each.is_evaluated or each.level.status != row["status"] or each.is_put_off:
            continue
        until = row["recheck_at"]
        if until is not None and row["decided_at"] <= now < until and (each.due_at is None or each.due_at > until):
            raise Broken(22, f"{each.name} was to wait until {until}, and waits until {each.due_at} now")


def check_call(
    call: Call,
    last: Call | None,
    tables: Tables,
    reference: Reference,
    log: Log,
    effects: Effects,
    now: datetime,
) -> None:
    """Judge a call on what was there when the batch began.

    `last` is the last one that the level was written from.
    """
    level = f"{call.view} of {call.parent}"
    wake = _wake_of(call, tables)
    intents = tables.intents_of(call.view, call.parent, call.look.uid)
    if call.is_reconcile:
        for row in intents:
            if row["state"] != "pending" and is_unsettled(row, reference, effects):  # those are withdrawn with it
                raise Broken(8, f"{level} is decided on while {row['verb']} {row['target']} is {row['state']}")
        return
    before = tables.levels.get((call.view, call.parent))  # none once the parent left the view's filters
    is_owed = last is not None and last.is_owed and not any(is_unsettled(row, reference, effects) for row in intents)
    has_cause = last is None or before is None or is_owed or wake["due_at"] is not None or last.look != call.look
    has_cause |= before is not None and _is_from_ahead(before, call.view, now)
    if before is not None and not has_cause:
        raise Broken(6, f"{level}, {before['status']}, is called, but sees what it saw before: {call.look}")
    view = VIEWS[call.view]
    needed = (view.resource, *view.sources, *view.behind_levels)
    unlisted = [resource for resource in needed if not reference.is_listed(resource)]
    if unlisted:
        raise Broken(9, f"{level} is called before {unlisted} are listed")
    if view.sources:
        for partition in range(PARTITIONS):
            if reference.folded_to[partition] < log.end(partition, up_to=wake["cause"]):
                raise Broken(
                    9,
                    f"{level} is called for record {wake['cause']}, but partition {partition} is folded up to "
                    f"{reference.folded_to[partition]} only",
                )
    if awaited := _awaited(call, last if before is not None else None, tables, now):
        raise Broken(9, f"{level} is called before {awaited} are decided on, which it stands on")


def _wake_of(call: Call, tables: Tables) -> Row:
    """What asked for a level when the batch began; its own cause if the clock was set back or the code changed."""
    place = call.view, call.parent
    return tables.wakes.get(place) or {"due_at": None, "cause": tables.levels.get(place, {}).get("cause", 0)}


def _is_from_ahead(row: Row, view: str, now: datetime) -> bool:
    """Tell whether a view was given a time that is not there yet, since the clock was set back."""
    at = row["evaluated_at"]
    return VIEWS[view].takes_now and at is not None and at > now


def _awaited(call: Call, last: Call | None, tables: Tables, now: datetime) -> list[tuple[str, ObjectKey]]:
    """Levels that have to be decided on first: of its parent, and of those that it looked up the last time.

    Of the latter those alone that were asked for no later than itself.
    """
    own, _ = _stands_on(call.look, call.parent)
    is_same = last is not None and last.look.uid == call.look.uid
    _, before = _stands_on(last.look, call.parent) if last is not None and is_same else ((), ())
    cause = _wake_of(call, tables)["cause"]
    late = [place for place in before if place in tables.wakes and tables.wakes[place]["cause"] <= cause]
    return [place for place in (*own, *late) if tables.is_due(*place, now)]


def _stands_on(look: Look, parent: ObjectKey) -> tuple[list[tuple[str, ObjectKey]], list[tuple[str, ObjectKey]]]:
    """Levels that a view read: those of its parent, and those of others, also where there are none."""
    of = [(each[0].removeprefix(LEVELS), each[1]) for each in look.reads if each[0].startswith(LEVELS)]
    read = [
        (name, key)
        for only, key in of
        for name, view in VIEWS.items()
        if (name == only if only else view.is_shown_of(key))
    ]
    return [each for each in read if each[1] == parent], [each for each in read if each[1] != parent]


def check_tables(
    tables: Tables, reference: Reference, effects: Effects, now: datetime, behind: Collection[int]
) -> None:
    """Compare the tables with the reference.

    `behind` are partitions that nobody holds, or whose processor has not heard yet of all that may wake their levels.
    """
    check_fold(tables, reference)
    _check_levels(tables, reference, effects, now, behind)
    _check_intents(tables, reference, effects)


def is_unsettled(row: Row, reference: Reference, effects: Effects) -> bool:
    """Tell whether an intent is under way, or the log has not shown yet what it did."""
    if row["state"] in ("pending", "claimed"):
        return True
    if row["state"] in ("superseded", "satisfied") or row["key"] in reference.settled:
        return False
    target = ObjectKey.parse(row["target"])
    wrote = [effect.revision for effect in effects.get(row["key"], ())]
    if row["is_watched"]:
        wrote.append(row["result_version"])  # what the API answered to a write that changed nothing, too
    is_shown = all(reference.shows(target, version) for version in wrote)
    return not (row["is_folded"] and is_shown)


def _is_unseen(row: Row, reference: Reference) -> bool:
    """Tell whether a target came and went between two lists: its level waits until somebody has looked for it."""
    shown = reference.known[ObjectKey.parse(row["target"])]
    return row["state"] == "written" and shown < int(row["result_version"])


def latest(now: datetime) -> datetime:
    """When a level is due at the latest that waits for its time."""
    return max(now + MAX_BACKOFF, LAST_DEADLINE)


def check_told(tables: Tables, told: Mapping[Topic, Tables], behind: Collection[int]) -> None:
    """Compare the tables with what those saw who wait, when they were notified last. Raises Broken."""
    if Topic.LEVELS not in told or Topic.INTENT not in told:
        return
    seen, shown = _awaited_levels(told[Topic.LEVELS], behind), _awaited_levels(tables, behind)
    if changed := [level for level in seen.keys() | shown.keys() if seen.get(level) != shown.get(level)]:
        raise Broken(
            23, f"nobody is told how {changed} stand: {[(seen.get(each), shown.get(each)) for each in changed]}"
        )
    known = told[Topic.INTENT].intents
    for key, row in tables.intents.items():
        if row["state"] == "pending" and row["partition"] not in behind and key not in known:
            raise Broken(23, f"nobody is told of {row['verb']} {row['target']}")


def _awaited_levels(tables: Tables, behind: Collection[int]) -> Mapping[tuple[str, ObjectKey], Any]:
    return {
        level: (row["parent_uid"], row["status"], row["reason"], row["drift"])
        if (level[0], row["partition"]) not in tables.unfinished
        else CHANGED_CODE
        for level, row in tables.levels.items()
        if level[0] in AWAITED and row["partition"] not in behind
    }


def check_waits(tables: Tables, now: datetime) -> None:
    """Compare due times with those that may be asked for now. Raises Broken."""
    for level, wake in tables.wakes.items():
        if wake["due_at"] is not None and wake["due_at"] > latest(now):
            raise Broken(21, f"{level} waits until {wake['due_at']}, it is {now}")


def check_settling(decided: Iterable[Decided], tables: Tables, reference: Reference, effects: Effects) -> None:
    """Compare decisions with what was under way in the tables when they began: such a level waits."""
    for each in decided:
        level = each.level
        view = level.view.rpartition("/")[2]
        for row in tables.intents_of(view, ObjectKey.parse(level.parent), level.parent_uid):
            if level.status == "drifting" and row["state"] != "pending" and is_unsettled(row, reference, effects):
                raise Broken(
                    8, f"{level.view} of {level.parent} drifts while {row['verb']} {row['target']} is under way"
                )


def check_deletions(decided: Iterable[Decided], tables: Tables, reference: Reference, now: datetime) -> None:
    """Compare decisions with what indices fail for: who may lack an object deletes nothing. Raises Broken."""
    for each in decided:
        view, parent = each.level.view.rpartition("/")[2], ObjectKey.parse(each.level.parent)
        if any(row.verb == "delete" for row in each.intents) and not VIEWS[view].is_of_children:
            outcome = reference.outcome(view, parent, now, tables.levels)
            if outcome.lacks or outcome.blocked:
                raise Broken(14, f"{view} of {parent} deletes, while indices fail: {outcome}")


def check_fold(tables: Tables, reference: Reference) -> None:
    """Compare what is folded with the reference."""
    if tables.checkpoints != reference.folded_to:
        raise Broken(3, f"checkpoints are {tables.checkpoints}, folded is up to {reference.folded_to}")
    if tables.mirrored != tables.checkpoints:
        return
    held = {key: (row["uid"], row["version"], row["body"]) for key, row in tables.objects.items()}
    shown = {key: (each.uid, each.version, each.body) for key, each in reference.objects.items()}
    if held != shown:
        raise Broken(3, f"objects are {_brief(held)}, should be {_brief(shown)}")
    entries = reference.entries()
    if tables.entries != entries:
        raise Broken(3, f"entries are {tables.entries - entries} too many, {entries - tables.entries} too few")


def check_state(state: State, reference: Reference) -> None:
    """Compare the state in memory with the reference, unless the tables have lost commits and are behind it."""
    if state.folded_to != reference.folded_to:
        if any(state.folded_to[partition] < at for partition, at in reference.folded_to.items()):
            raise Broken(3, f"the state is at {state.folded_to}, folded is up to {reference.folded_to}")
        return
    held = {ObjectKey.parse(name): (row.uid, row.version, row.body) for name, row in state.objects.items()}
    shown = {key: (each.uid, each.version, each.body) for key, each in reference.objects.items()}
    whole = {key: (uid, version, body or shown.get(key, ("", 0, b""))[2]) for key, (uid, version, body) in held.items()}
    if whole != shown:
        raise Broken(3, f"objects of the state are {_brief(held)}, should be {_brief(shown)}")
    found = {
        shown_entry(name, each.index, each.key, each.ordinal, each.value)
        for name, entries in state.buckets.by_object.items()
        for each in entries.values()
        if is_compared(each.index)
    }
    if found != (entries := reference.entries()):
        raise Broken(3, f"entries of the state are {found - entries} too many, {entries - found} too few")


def _check_levels(
    tables: Tables, reference: Reference, effects: Effects, now: datetime, behind: Collection[int]
) -> None:
    is_quiet = not any(tables.is_due(*level, now) for level in tables.wakes)
    expected: set[tuple[str, ObjectKey]] = set()
    for view in VIEWS:
        for parent in reference.parents(view):
            expected.add((view, parent))
            if tables.is_due(view, parent, now) or VIEWS[view].is_of_children:
                continue
            read = _stands_on(reference.look(view, parent, now, tables.levels), parent)
            if any(tables.is_due(*place, now) for places in read for place in places):
                continue  # it is woken when they are decided on
            partition = partition_of(parent, PARTITIONS)
            if partition in behind or (view, partition) in tables.unfinished:
                continue  # its processor has yet to fold what may wake it, or to decide on it
            row = tables.levels.get((view, parent))
            if row is not None and _is_from_ahead(row, view, now):
                continue  # it is called again
            if flaw := _flaw(row, view, parent, tables, reference, effects, now):
                raise Broken(4 if is_quiet else 5, f"{view} of {parent}: no wake is pending, but {flaw}")
    if gone := tables.levels.keys() - expected:
        raise Broken(4, f"levels without a parent: {sorted(gone)}")


def _flaw(
    row: Row | None,
    view: str,
    parent: ObjectKey,
    tables: Tables,
    reference: Reference,
    effects: Effects,
    now: datetime,
) -> str:
    """How a level that nothing will change differs from what it should be; empty: not at all."""
    if row is None:
        return "it has no level"
    shown = reference.objects[parent]
    if "deletionTimestamp" in shown.metadata:
        return "" if row["status"] == "deleting" else f"it is {row['status']}, its parent is being deleted"
    outcome = reference.outcome(view, parent, now, tables.levels)
    intents = tables.intents_of(view, parent, shown.uid)
    unsettled = [each for each in intents if is_unsettled(each, reference, effects)]
    status, reason = row["status"], row["reason"]
    untold = [index for index in outcome.lacks if f"index machine/{index} " not in reason]
    if untold and status != "settling":
        return f"its reason ({reason}) does not say that {untold} fail for objects"
    if not (outcome.lacks or outcome.blocked) and "index machine/" in reason:
        return f"its reason ({reason}) tells of a failure that is over"
    if status == "settling" and not unsettled:
        # A parent that another one of its name took the place of, unseen, may still be written for: that is awaited.
        is_awaited = any(is_unsettled(each, reference, effects) for each in tables.intents_of(view, parent))
        is_unseen = any(_is_unseen(each, reference) for each in intents)
        return "" if is_awaited or is_unseen else "it is settling, while all its intents are settled"
    if outcome.blocked:
        is_told = status == "blocked" and f"machine/{outcome.blocked} " in reason
        return "" if is_told else f"it is {status} ({reason}), not blocked by {outcome.blocked}"
    if outcome.error:
        is_told = status == "failed" and outcome.error in reason
        return "" if is_told or unsettled else f"it is {status} ({reason}), not failed: {outcome.error}"
    if unsettled and status != "settling":
        return f"it is {status} while {unsettled[0]['target']} is not settled"
    is_contested = status == "failed" and reason.startswith(UNDONE)
    if not unsettled and not is_contested and (status == "in_sync") == drifts(outcome):
        return f"it is {status} ({reason}): {outcome}"
    desired, actual = (msgspec.json.decode(row[name]) if row[name] else None for name in ("desired", "actual"))
    said = Outcome(desired=desired, actual=actual)
    outcome = msgspec.structs.replace(outcome, lacks=())
    return "" if said == outcome else f"it says {said}, should say {outcome}"


def _check_intents(tables: Tables, reference: Reference, effects: Effects) -> None:
    for key, changes in effects.items():
        if len(changes) > 1:
            raise Broken(7, f"intent {key} changed {changes[0].key} {len(changes)} times")
    rounds: dict[str, tuple[Any, ...]] = {}
    acting: set[tuple[Any, ...]] = set()
    for row in tables.decisions:
        keys: list[str] = msgspec.json.decode(row["intents"])
        place = (row["view"], row["parent"], row["parent_uid"], row["round"])
        if keys and place in acting:
            raise Broken(7, f"round {row['round']} of {row['parent']} is decided twice")
        if keys:
            acting.add(place)
        for key in keys:
            if rounds.setdefault(key, place) != place:
                raise Broken(7, f"rounds {rounds[key][-1]} and {row['round']} of {row['parent']} ask with one key")
    waiting: dict[tuple[Any, ...], int] = {}
    for row in tables.intents.values():
        level = (row["view"], row["parent"], row["parent_uid"])
        if row["state"] == "pending" and waiting.setdefault(level, row["round"]) != row["round"]:
            raise Broken(8, f"intents of two rounds of {row['parent']} wait to be sent")
        parent = ObjectKey.parse(row["parent"])
        is_parent = reference.has_level(row["view"].rpartition("/")[2], parent)
        if row["state"] == "pending" and not (is_parent and reference.objects[parent].uid == row["parent_uid"]):
            raise Broken(11, f"{row['verb']} {row['target']} is wanted by {row['parent_uid']}, which is gone")


def _brief(objects: Mapping[ObjectKey, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    return {key.name: (uid, version) for key, (uid, version, _) in objects.items()}
