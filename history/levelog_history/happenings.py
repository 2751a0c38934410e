"""The text of given records and of the changes that they made to their objects."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from typing import Final, Self, TypeAlias

from msgspec import Struct

from levelog_base.wire.objects import CLUSTER_SCOPE, Application, ObjectKey
from levelog_base.wire.objects import Sequence as LogSequence
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen, ReceiptNoted, TargetObserved
from levelog_base.wire.subjects import partition_of, receipt_subject
from levelog_history.reach import Moment
from levelog_history.records import read_about
from levelog_history.revisions import Missing, Revision, Revisions
from levelog_history.selection import Selected, has_any
from levelog_log.stream import LogStream

Ending: TypeAlias = ReceiptNoted | TargetObserved
Entry: TypeAlias = Revision | Missing | Ending

_MANY: Final = 20
"""Objects of one namespace; of more, all records of the namespace are read, in place of so many filters."""


class Happened(Struct, frozen=True, kw_only=True):
    """Records of the log, as entries of a history."""

    entries: dict[int, list[Entry]]
    """Entries by sequence, in the order of the log; a list that deletes objects has one for each."""
    receipts: dict[str, tuple[int, ReceiptNoted]]
    """Receipts by idempotency key, with their sequence."""
    others: dict[int, LoggedRecord]
    """Records asked for that are no entry, such as lists and repeated versions."""

    @classmethod
    def of(cls, told: Iterable[tuple[Entry, int]], asked: Iterable[LoggedRecord]) -> Self:
        """Put entries together, each with its sequence, and records that were asked for."""
        entries: dict[int, list[Entry]] = {}
        for entry, sequence in told:
            entries.setdefault(sequence, []).append(entry)
        noted = ((sequence, each) for sequence, some in entries.items() for each in some)
        return cls(
            entries=entries,
            receipts={each.key: (sequence, each) for sequence, each in noted if isinstance(each, ReceiptNoted)},
            others={each.sequence: each for each in asked if each.sequence not in entries},
        )

    def revisions_of(self, name: str) -> list[tuple[int, Revision]]:
        """Revisions of an object, with their sequences."""
        found = ((sequence, entry) for sequence, entries in self.entries.items() for entry in entries)
        return [(sequence, entry) for sequence, entry in found if isinstance(entry, Revision) and entry.object == name]


async def entries_in(
    records: AsyncIterator[LoggedRecord],
    is_wanted: Callable[[ObjectKey], bool],
    tells: Callable[[Ending], bool] = lambda _: False,
) -> AsyncIterator[tuple[Entry, int]]:
    """Revisions of wanted objects, gaps, and receipts that are told of, each with its sequence."""
    revisions = Revisions(is_wanted)
    async for logged in records:
        record = logged.record
        if not isinstance(record, ReceiptNoted | TargetObserved):
            for entry in revisions.take(logged):
                yield entry, logged.sequence
        elif tells(record) and not (isinstance(record, ReceiptNoted) and record.is_repeated):
            yield record, logged.sequence


async def read_happened(
    stream: LogStream, sequences: Collection[int], objects: Iterable[str], *, parent: str, application: Application
) -> Happened:
    """Read the records at the sequences, and the whole history of their objects and of `objects`.

    Receipts are those of an application in the partition of a parent. Expired records are left out. Raises like
    `Reader`.
    """
    asked: dict[int, LoggedRecord] = {}
    keys = {ObjectKey.parse(name) for name in objects}
    for sequence in sorted(sequences):
        logged = await stream.record_at(LogSequence(sequence))
        if logged is not None:
            asked[sequence] = logged
            if isinstance(logged.record, ObjectSeen | ObjectDeleted):
                keys.add(logged.record.key)
    selected = selected_for(keys)
    partition = partition_of(ObjectKey.parse(parent), stream.partitions)
    records = read_about(stream, selected, receipts=[receipt_subject(stream.cluster, partition, application)])

    def tells(record: Ending) -> bool:
        return has_any(selected, record.parent) or has_any(selected, record.target)

    return Happened.of([each async for each in entries_in(records, keys.__contains__, tells)], asked.values())


async def read_there(stream: LogStream, objects: Iterable[str], moment: Moment) -> dict[str, str]:
    """Uids of those objects that were there at a moment; what the log says nothing of by then is left out.

    Raises as `Reader` does.
    """
    keys = {ObjectKey.parse(name) for name in objects}
    there: dict[str, str] = {}
    async for entry, sequence in entries_in(read_about(stream, selected_for(keys)), keys.__contains__):
        if moment.is_before(sequence, entry.time):
            break
        if isinstance(entry, Revision):
            there[entry.object] = "" if entry.is_gone else entry.uid
    return {name: uid for name, uid in there.items() if uid}


def selected_for(keys: Collection[ObjectKey]) -> list[Selected]:
    """The subjects to read for the history of some objects: each of few, all of a namespace for many."""
    counted = Counter((key.group_resource, key.namespace or CLUSTER_SCOPE) for key in keys)
    selected: dict[Selected, None] = {}
    for key in sorted(keys, key=str):
        place = key.group_resource, key.namespace or CLUSTER_SCOPE
        selected[Selected(*place) if counted[place] > _MANY else Selected(*place, key.name)] = None
    return list(selected)
