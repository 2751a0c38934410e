"""Which changes of the objects that a level is about led to no decision, and why not."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from levelog.objects import ObjectKey
from levelog.subjects import partition_of
from levelog_history.happenings import Happened
from levelog_history.moments import Moment
from levelog_history.revisions import Revision
from levelog_store.causes import Causes
from levelog_store.recall import PastDecision, PastIntent

Why: TypeAlias = Literal["not_read", "own_write", "looked_at", "waiting"]
"""`not_read`: nothing that the view reads has changed; `own_write`: nor that, and levelog itself wrote it; `looked_at`:
something had, but nothing was left of it when the level was looked at; `waiting`: nobody has looked yet."""


class Asking(Struct, frozen=True, kw_only=True):
    """Which records asked for a level, as far as the tables know."""

    decisions: Sequence[PastDecision]
    looked: Causes
    """In vain, since the last decision."""
    waiting: Causes
    intents: Mapping[str, PastIntent]
    folded: Mapping[int, int]
    """Sequence up to which each partition is folded now."""


class Ignored(Struct, kw_only=True):
    """Changes of one object, one after the other, of the same fields by the same writer and to no effect."""

    why: Why
    object: str
    writer: str
    fields: list[str]
    happened: str
    first: int
    last: int
    time: str
    """Of the first, UTC."""
    count: int = 1


def ignored_changes(asking: Asking, happened: Happened, since: Moment | None, partitions: int) -> list[Ignored]:
    """The changes since the first decision, or since a moment, in the order of the log."""
    led = {sequence for each in asking.decisions for sequence in each.causes.sequences}
    looked = {sequence for each in asking.decisions for sequence in each.suppressed.sequences}
    looked.update(asking.looked.sequences)
    uncertain = [each.causes.sequences for each in asking.decisions if each.causes.has_more]
    seen = asking.decisions[0].basis.folded
    own = {(each.result_uid, each.result_version) for each in asking.intents.values() if each.result_version}
    found: list[Ignored] = []
    for sequence in sorted(happened.entries):
        for revision in happened.entries[sequence]:
            if not isinstance(revision, Revision) or sequence in led:
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
            elif (revision.uid, revision.version) in own:
                why = "own_write"
            _add(found, revision, why)
    return found


def _add(found: list[Ignored], revision: Revision, why: Why) -> None:
    fields = [each.path for each in revision.differences]
    last = found[-1] if found else None
    if last is not None and (last.why, last.object, last.writer, last.fields, last.happened) == (
        why,
        revision.object,
        revision.written.manager,
        fields,
        revision.happened,
    ):
        last.count += 1
        last.last = revision.sequence
        return
    found.append(
        Ignored(
            why=why,
            object=revision.object,
            writer=revision.written.manager,
            fields=fields,
            happened=revision.happened,
            first=revision.sequence,
            last=revision.sequence,
            time=f"{revision.time:%Y-%m-%d %H:%M:%S}",
        )
    )
