"""The reads of one cut, in one snapshot: the facts of levels, and the index entries that their views look up."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.wire.objects import ObjectKey
from levelog_processors.decide.facts import Facts, digest_with, level_before
from levelog_processors.decide.lookups import digest_of, digest_of_versions, sight
from levelog_processors.decide.readiness import is_watched
from levelog_processors.decide.standings import read_standings, standings
from levelog_processors.fold.rules import parent_inputs
from levelog_processors.program import Program
from levelog_store.decide import inputreads as stored
from levelog_store.decide.decisions import OpenIntent, PendingWake
from levelog_store.decide.inputreads import Inputs
from levelog_store.rows import Bucket, IndexKey, Scope, WholeIndex, is_of_levels

Namespaces = Mapping[str, tuple[str, ...]]
"""Namespaces that alone are watched, by resource."""


class TableFetch(Struct, frozen=True):
    """Reads buckets for views from the tables."""

    connection: AsyncConnection
    scope: Scope
    program: Program

    async def buckets(self, keys: Sequence[IndexKey]) -> Mapping[IndexKey, Bucket]:
        """Values under the keys, including those of levels."""
        of_levels = [place for place in keys if is_of_levels(place)]
        if not of_levels:
            return await stored.read_buckets(self.connection, self.scope, keys)
        rest = [place for place in keys if not is_of_levels(place)]
        return {
            **await read_standings(self.connection, self.scope, self.program, of_levels),
            **await stored.read_buckets(self.connection, self.scope, rest),
        }

    async def whole(self, index: str) -> WholeIndex:
        """Return every bucket of an index."""
        return await stored.read_whole_index(self.connection, self.scope, index)


Known: TypeAlias = tuple[Facts, Mapping[IndexKey, Bucket]]
"""The facts of a level, and what the keys hold that it read the last time."""


async def read_facts(
    connection: AsyncConnection,
    scope: Scope,
    program: Program,
    namespaces: Namespaces,
    wakes: Sequence[PendingWake],
    now: datetime,
    folded_to: Mapping[int, int] | None,
    inputs: Inputs,
) -> list[Known]:
    """The facts of the levels that wakeups ask for; those are left out whose parent is gone, or not the view's.

    `folded_to`: the checkpoints, where they are known; None: they are read. `inputs` that are known are not, either.
    """
    named = [(wake.view, wake.parent) for wake in wakes]
    await inputs.read(connection, scope, named)
    rounds = await stored.read_last_rounds(connection, scope, [each for each in named if each not in inputs.levels])
    checkpoints = folded_to or await stored.read_checkpoints(connection, scope)
    folded = tuple([checkpoints[partition] for partition in sorted(checkpoints)])
    found: list[Facts] = []
    for wake in wakes:
        level, view, parent = (wake.view, wake.parent), program.views[wake.view], inputs.parents.get(wake.parent)
        held = inputs.levels.get(level)
        identity = parent_inputs(view, parent.body, held.looked_at if held else None) if parent else None
        if parent is None or identity is None:
            continue
        row = level_before(wake, parent, held, rounds.get((*level, parent.uid), 0))
        read = inputs.dependencies.get(level, {}) if program.reads_elsewhere(view) else {}
        facts = Facts(
            wake=wake,
            view=view,
            parent=parent,
            before=row,
            intents=[as_watched(intent, program, namespaces) for intent in inputs.intents.get(level, ())],
            inputs=identity,
            reads=row.reads,
            versions=digest_of_versions(read),
            dependencies=frozenset(read),
            standings=standings(program, program.siblings_of(view), parent, inputs.levels),
            now=now,
            folded=folded,
            longest=program.max_backoff,
        )
        found.append(facts)
    # what keys hold is read where it may be something else than it was, or is about to be looked at
    asked = [facts for facts in found if facts.needs_evaluation or not (_is_as_read(facts) or facts.is_put_off)]
    places = sorted({place for facts in asked for place in facts.dependencies})
    buckets = await TableFetch(connection, scope, program).buckets(places)
    return [_with_reads(facts, buckets) for facts in found]


def _is_as_read(facts: Facts) -> bool:
    """Tell whether no key has changed since the level was evaluated; levels that it is given have no key."""
    handler = facts.view.handler
    return facts.versions == facts.before.versions and not handler.reads_levels and not handler.stands_on


def _with_reads(facts: Facts, buckets: Mapping[IndexKey, Bucket]) -> Known:
    known = {place: buckets[place] for place in facts.dependencies if place in buckets}
    if _is_as_read(facts) or facts.is_put_off:
        return facts, known
    reads = digest_of(known, sight(facts.view, facts.parent.uid, facts.before.desired))
    return replace(facts, reads=digest_with(reads, facts.standings)), known


def as_watched(intent: OpenIntent, program: Program, namespaces: Namespaces) -> OpenIntent:
    """The intent as the log will show it: not at all if its target is not watched any more."""
    is_awaited = intent.state == "written" and intent.is_watched
    if not is_awaited or is_watched(program, namespaces, ObjectKey.parse(intent.target)):
        return intent
    return replace(intent, is_watched=False)
