"""Where records for people to look at come from: the log, or a bundle of one."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from levelog.errors import ConfigurationError
from levelog.wire.objects import Sequence as LogSequence
from levelog.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen, ReceiptNoted, TargetSighted
from levelog.wire.subjects import receipt_subjects
from levelog_cli.servers.nats import opened_log
from levelog_cli.settings import Settings
from levelog_history.moments import Moment
from levelog_history.records import read_about, resources_of
from levelog_history.selection import Selected, has_any
from levelog_log.stream import LogStream


class RecordSource(Protocol):
    """Records from the first to the last that are there."""

    @property
    def name(self) -> str:
        """What it is, in a sentence."""
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


class LogSource:
    """The log of a cluster."""

    def __init__(self, stream: LogStream) -> None:
        self.stream = stream
        self.name = "the log"
        self.cluster: str = stream.cluster

    async def ends(self) -> tuple[int, LoggedRecord | None, int]:
        """As of now."""
        state = await self.stream.state()
        return state.first_seq, await self.stream.record_at(LogSequence(state.first_seq)), state.last_seq

    async def resources(self) -> Sequence[str]:
        """Those whose lists are in the log."""
        return await resources_of(self.stream)

    def about(
        self, selected: Sequence[Selected], *, has_receipts: bool = False, is_followed: bool = False
    ) -> AsyncIterator[LoggedRecord]:
        """Only what is asked for is read."""
        receipts = receipt_subjects(self.stream.cluster) if has_receipts else ""
        return read_about(self.stream, selected, receipts=receipts, is_followed=is_followed)


class BundleSource:
    """A file that `levelog export` wrote; it is read whole."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigurationError as `open_bundle`."""
        from levelog_replay.bundles.reading import open_bundle  # noqa: PLC0415 - loads what folds, which takes a second

        self.bundle = open_bundle(path)
        self.name = "the bundle"
        self.cluster: str = self.bundle.origin.cluster

    async def ends(self) -> tuple[int, LoggedRecord | None, int]:
        """As when it was exported."""
        async for records in self.bundle.records():
            return self.bundle.first, records[0], self.bundle.last
        return self.bundle.first, None, self.bundle.last

    async def resources(self) -> Sequence[str]:
        """As its heading says."""
        return sorted(self.bundle.heading.resources)

    async def about(
        self, selected: Sequence[Selected], *, has_receipts: bool = False, is_followed: bool = False
    ) -> AsyncIterator[LoggedRecord]:
        """Raises ConfigurationError if it is to be followed."""
        if is_followed:
            raise ConfigurationError("nothing more happens in a bundle: leave --follow out")
        resources = {each.resource for each in selected}
        async for records in self.bundle.records():
            for logged in records:
                match logged.record:
                    case ObjectSeen(key=key) | ObjectDeleted(key=key):
                        is_about = has_any(selected, key)
                    case ReceiptNoted() | TargetSighted():
                        is_about = has_receipts
                    case record:
                        is_about = getattr(record, "resource", None) in resources
                if is_about:
                    yield logged


@asynccontextmanager
async def opened_source(settings: Settings, bundle: Path | None) -> AsyncGenerator[LogSource | BundleSource]:
    """The bundle if one is named, else the log that the settings name. Raises as `opened_log` and `open_bundle`."""
    if bundle is not None:
        yield BundleSource(bundle)
        return
    async with opened_log(settings) as stream:
        yield LogSource(stream)


async def refuse_beyond(source: RecordSource, moment: Moment) -> None:
    """Raise ConfigurationError for a moment after the last record, or before the first."""
    first, record, last = await source.ends()
    if moment.time is None and moment.sequence > last:
        raise ConfigurationError(f"{source.name} ends at sequence {last}, before {moment}")
    if record is not None and moment.precedes(record):
        raise ConfigurationError(
            f"{moment} is before {source.name} begins: its first record is {first}, of "
            f"{record.record.time:%Y-%m-%d %H:%M:%S} UTC"
        )


def refuse_expired(first: Moment | None, moment: Moment | None) -> None:
    """Raise ConfigurationError for a moment before `first`, from which on everything is known; None: there is none."""
    if first is None:
        raise ConfigurationError(
            "older records have expired, and the log holds no complete list since: nothing can be rebuilt from it yet"
        )
    if moment is not None and first.is_later(moment):
        at = f" ({first.time:%Y-%m-%d %H:%M:%S} UTC)" if first.time else ""
        raise ConfigurationError(
            f"{moment} is before history begins: what was before sequence {first.sequence}{at} has expired; "
            "that is the first moment that can be given"
        )
