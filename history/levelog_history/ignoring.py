"""The changes of a level's objects that led to no decision, and why."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.subjects import partition_of
from levelog_history.happenings import Happened
from levelog_history.reach import Moment
from levelog_history.revisions import Revision
from levelog_store.decide.decisions import Decision, PastIntent
from levelog_store.fold.changes import Causes

Why: TypeAlias = Literal["not_read", "own_write", "looked_at", "waiting", "no_level"]
"""`not_read`: nothing that the view reads has changed; `own_write`: nor that, and levelog itself wrote it; `looked_at`:
something had, but nothing was left of it when the level was looked at; `waiting`: nobody has looked yet; `no_level`:
the parent was gone, and its level with it."""


class Asking(Struct, frozen=True, kw_only=True):
    """Which records woke a level, as far as the tables know."""

    decisions: Sequence[Decision]
    looked: Causes
    """Looks in vain since the last decision."""
    waiting: Causes
    intents: Mapping[str, PastIntent]
    folded: Mapping[int, int]
    """Sequence up to which each partition is folded now."""


class Ignored(Struct, kw_only=True):
    """Changes of one object, with no other one of it between them, of the same fields by the same writer."""

    why: Why
    object: str
    writer: str
    """Empty where the API does not say it, as for deletions."""
    fields: list[str]
    happened: str
    first: int
    last: int
    time: str
    """Time of the first, UTC."""
    count: int = 1


def ignored_changes(asking: Asking, happened: Happened, since: Moment | None, partitions: int) -> list[Ignored]:
    """The changes since the first decision, or since a moment, in the order of the log."""
    led = {sequence for each in asking.decisions for sequence in each.causes.sequences}
    looked = {sequence for each in asking.decisions for sequence in each.suppressed.sequences}
    looked.update(asking.looked.sequences)
    uncertain = [each.causes.sequences for each in asking.decisions if each.causes.has_more]
    seen = asking.decisions[0].basis.folded
    own = {(each.result_uid, each.result_version) for each in asking.intents.values() if each.result_version}
    parent = asking.decisions[0].parent
    has_parent = True
    found: list[Ignored] = []
    newest: dict[str, Ignored] = {}
    for sequence in sorted(happened.entries):
        for revision in happened.entries[sequence]:
            if not isinstance(revision, Revision):
                continue
            if revision.object == parent:
                has_parent = not revision.is_gone
            if sequence in led:
                continue
            partition = partition_of(ObjectKey.parse(revision.object), partitions)
            if partition < len(seen) and sequence <= seen[partition]:
                continue  # the first decision has seen it
            if any(few[0] < sequence < few[-1] for few in uncertain):
                continue  # one of very many, of which only some were noted
            if since is not None and not since.is_before(revision.sequence, revision.time):
                continue
            why: Why = "not_read"
            if sequence in asking.waiting.sequences or sequence > asking.folded.get(partition, 0):
                why = "waiting"
            elif sequence in looked:
                why = "looked_at"
            elif not has_parent:
                why = "no_level"
            elif (revision.uid, revision.version) in own:
                why = "own_write"
            told = _ignored(revision, why)
            last = newest.get(told.object)
            if last is not None and _is_alike(last, told):
                last.count += 1
                last.last = sequence
                continue
            newest[told.object] = told
            found.append(told)
    return found


def _ignored(revision: Revision, why: Why) -> Ignored:
    return Ignored(
        why=why,
        object=revision.object,
        writer="" if revision.is_gone or revision.is_doomed else revision.written.manager,
        fields=[each.path for each in revision.differences],
        happened=revision.happened,
        first=revision.sequence,
        last=revision.sequence,
        time=f"{revision.time:%Y-%m-%d %H:%M:%S}",
    )


def _is_alike(one: Ignored, other: Ignored) -> bool:
    return (one.why, one.writer, one.fields, one.happened) == (other.why, other.writer, other.fields, other.happened)
