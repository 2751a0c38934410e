"""The records of the log: about given objects, or all up to a moment."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing
from typing import Protocol

from levelog_base.wire.objects import CLUSTER_SCOPE, Application, GroupResource, ObjectKey, Partition
from levelog_base.wire.objects import Sequence as LogSequence
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen, SyncFinished, SyncStarted
from levelog_base.wire.subjects import Control, control_subjects, list_subjects, receipt_subjects, resource_subjects
from levelog_history.selection import Selected, is_meant
from levelog_log.reader import Reader, read_up_to_now
from levelog_log.stream import LogStream
from levelog_log.transport.jetstream import StreamState
from levelog_store.rows import Origin


class Recording(Protocol):
    """All records of one cluster up to a moment, as one application sees them."""

    @property
    def origin(self) -> Origin:
        """Whose history it is."""
        ...

    @property
    def first(self) -> int:
        """Sequence of the first record that is there."""
        ...

    @property
    def last(self) -> int:
        """Sequence of the last one, 0 if there is none."""
        ...

    def records(self) -> AsyncGenerator[LoggedRecord]:
        """All records up to `last`, in the order of the log; end it by `aclosing` unless you read them all."""
        ...


async def records_to(history: Recording, last: int) -> AsyncGenerator[LoggedRecord]:
    """Records of a recording up to one, which may be before its last; to be ended likewise."""
    async with aclosing(history.records()) as records:
        async for logged in records:
            if logged.sequence > last:
                return
            yield logged


class RecordSource(Protocol):
    """Records from the first to the last that are there."""

    @property
    def name(self) -> str:
        """The name of the source, for a sentence."""
        ...

    @property
    def cluster(self) -> str:
        """Uid of the cluster."""
        ...

    async def ends(self) -> tuple[int, LoggedRecord | None, int]:
        """Sequence of the first record, the record itself if it is there, and sequence of the last."""
        ...

    async def resources(self) -> Sequence[str]:
        """Names of the resources of which it has records, sorted, as far as that is known."""
        ...

    def about(
        self, selected: Sequence[Selected], *, has_receipts: bool = False, is_followed: bool = False
    ) -> AsyncIterator[LoggedRecord]:
        """Records as `read_about` gives them."""
        ...

    async def recorded(self) -> Recording:
        """All records that there are now."""
        ...


class LogSource:
    """The log of a cluster, as it grows."""

    def __init__(self, stream: LogStream, application: str = "") -> None:
        """`application`: whose history is recorded, for those who decide on it."""
        self.stream = stream
        self.redaction = stream.redaction
        self._application = Application(application)
        self.name = "the log"
        self.cluster: str = stream.cluster

    async def ends(self) -> tuple[int, LoggedRecord | None, int]:
        """As of now."""
        state = await self.stream.state()
        return state.first_seq, await self.stream.record_at(LogSequence(state.first_seq)), state.last_seq

    async def resources(self) -> Sequence[str]:
        """The resources whose lists are in the log; one whose lists have expired is not among them."""
        listed: set[str] = set()
        async for logged in read_up_to_now(self.stream, list_subjects(self.stream.cluster, Partition(0))):
            if isinstance(logged.record, SyncStarted | SyncFinished):
                listed.add(str(logged.record.resource))
        return sorted(listed)

    def about(
        self, selected: Sequence[Selected], *, has_receipts: bool = False, is_followed: bool = False
    ) -> AsyncIterator[LoggedRecord]:
        """Reads only the requested subjects."""
        receipts = [receipt_subjects(self.stream.cluster)] if has_receipts else []
        return read_about(self.stream, selected, receipts=receipts, is_followed=is_followed)

    async def recorded(self) -> "LogRecording":
        """The log up to where it ends now."""
        return LogRecording(self.stream, self._application, await self.stream.state())


class LogRecording:
    """The log up to where it ended once."""

    def __init__(self, stream: LogStream, application: Application, state: StreamState) -> None:
        self._stream = stream
        self.first, self.last = max(state.first_seq, 1), state.last_seq
        self.read_to = self.first - 1
        """Sequence up to which somebody has read."""
        self.redaction = stream.redaction
        """Digest of the key and the rules by which secret values were replaced; empty if none is noted."""
        self.origin = Origin(
            cluster=stream.cluster,
            application=application,
            partitions=stream.partitions,
            stream_created=stream.identity.created,
        )

    async def records(self) -> AsyncGenerator[LoggedRecord]:
        """All records up to `last`, in the order of the log."""
        if self.last < self.first:
            return
        async with Reader(self._stream, start=LogSequence(self.first)) as reader:
            while reader.position < self.last:
                for logged in await reader.next_batch():
                    if logged.sequence <= self.last:
                        self.read_to = max(self.read_to, logged.sequence)
                        yield logged


async def chosen(source: RecordSource, texts: Sequence[str]) -> list[Selected]:
    """The objects that texts select: `RESOURCE[.GROUP][/NAMESPACE[/NAME]]`, or ends of the names of recorded objects.

    Where nothing is recorded of such a namespace, `RESOURCE/NAME` is an object, as for kubectl. Raises
    ConfigurationError.
    """
    held = await source.resources()
    found: list[Selected] = []
    for text in texts:
        *place, name = parts = text.split("/")
        keys: Collection[ObjectKey] = ()
        if held and len(parts) < 3 and all(parts) and parts[0] not in held:
            ends = [Selected(GroupResource.parse(each), place[0] if place else "", name) for each in held]
            keys = await _recorded(source, ends)
        if not keys and len(parts) == 2 and all(parts):
            alike = [GroupResource.parse(each) for each in held if is_meant(parts[0], each)]
            keys = await _recorded(source, [Selected(each, "", name) for each in alike])
            if keys and await _recorded(source, [Selected(each, name) for each in alike]):
                keys = ()
        named = [Selected(key.group_resource, key.namespace or CLUSTER_SCOPE, key.name) for key in keys]
        found += named or [Selected.parse(text)]
    return found


async def _recorded(source: RecordSource, selected: Sequence[Selected]) -> Collection[ObjectKey]:
    """The objects of those that are selected of which there are records."""
    if not selected:
        return ()
    keys: dict[ObjectKey, None] = {}
    async for logged in source.about(selected):
        if isinstance(logged.record, ObjectSeen | ObjectDeleted):
            keys[logged.record.key] = None
    return keys


def read_about(
    stream: LogStream, selected: Sequence[Selected], *, receipts: Sequence[str] = (), is_followed: bool = False
) -> AsyncGenerator[LoggedRecord]:
    """Records of the selected objects, of lists and gaps of their resources, and receipts under subjects, if given."""
    return read_under(stream, [*_subjects(stream, selected), *receipts], is_followed=is_followed)


async def read_under(
    stream: LogStream, subjects: Sequence[str], *, is_followed: bool = False
) -> AsyncGenerator[LoggedRecord]:
    """Records under subjects, in their order, up to the last that is there now, or for ever. Raises as `Reader`."""
    newest = [await stream.last_record(each) for each in subjects]
    last = max((each.sequence for each in newest if each), default=0)
    async with Reader(stream, subjects=subjects) as reader:
        while is_followed or reader.position < last:
            for logged in await reader.next_batch():
                if is_followed or logged.sequence <= last:
                    yield logged


def _subjects(stream: LogStream, selected: Sequence[Selected]) -> list[str]:
    """The subjects to request from JetStream; no two of its filters may overlap."""
    widest = [one for one in dict.fromkeys(selected) if not any(_covers(other, one) for other in selected)]
    subjects = [
        resource_subjects(stream.cluster, each.resource, namespace=each.namespace, name=each.name) for each in widest
    ]
    for resource in dict.fromkeys(each.resource for each in widest):
        subjects += [control_subjects(stream.cluster, kind, resource) for kind in (Control.SYNC, Control.GAP)]
    return subjects


def _covers(wide: Selected, narrow: Selected) -> bool:
    """Tell whether all that one selects is selected by another, wider one."""
    return wide != narrow and (
        wide.resource == narrow.resource and wide.namespace in ("", narrow.namespace) and wide.name in ("", narrow.name)
    )
