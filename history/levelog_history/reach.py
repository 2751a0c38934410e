"""How far back history reaches, and the messages for moments outside it."""

import re
from collections.abc import Collection, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import GroupResource
from levelog_base.wire.records import LoggedRecord, SyncFinished, SyncStarted
from levelog_base.wire.subjects import Control, control_subjects
from levelog_history.records import RecordSource, read_under
from levelog_history.selection import Selected, meant
from levelog_log.stream import LogStream
from levelog_store.decide.decisions import Decision


class Moment(Struct, frozen=True):
    """A place in the log: a sequence, or a time by what the records say."""

    sequence: int = 0
    time: datetime | None = None

    @classmethod
    def parse(cls, text: str, now: datetime) -> "Moment":
        """Read `812`, `2026-11-21T14:05:09Z` (UTC if no zone is given), or `15m` (s, m, h, d) for so long before `now`.

        Raises ConfigurationError.
        """
        if _SEQUENCE.fullmatch(text):
            return cls(sequence=int(text))
        try:
            if (ago := so_long(text)) is not None:
                return cls(time=now - ago)
            time = datetime.fromisoformat(text)
            return cls(time=time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC))
        except OverflowError as error:
            raise ConfigurationError(f"{text!r} is longer ago than there are dates") from error
        except ValueError as error:
            raise ConfigurationError(
                f"{text!r} is no moment: write a sequence as in 812, a time as in 2026-11-21T14:05:09Z, or how long "
                "ago as in 15m"
            ) from error

    def precedes(self, logged: LoggedRecord) -> bool:
        """Tell whether a record came after the moment."""
        return self.is_before(logged.sequence, logged.record.time)

    def is_before(self, sequence: int, time: datetime) -> bool:
        """Tell whether the moment is before what took place at a sequence and a time."""
        return time > self.time if self.time is not None else sequence > self.sequence

    def has_seen(self, decision: Decision) -> bool:
        """Tell whether a decision was there at the moment."""
        return not self.is_before(decision.sequence, decision.decided_at)

    def is_later(self, other: "Moment") -> bool:
        """Tell whether another moment is before this one; False where one is a time and the other a sequence alone."""
        if other.time is not None:
            return self.time is not None and self.time > other.time
        return self.sequence > other.sequence > 0

    def __str__(self) -> str:
        return f"sequence {self.sequence}" if self.time is None else f"{self.time:%Y-%m-%d %H:%M:%S} UTC"


async def beginning(stream: LogStream, resources: Collection[str]) -> Moment | None:
    """The end of the oldest complete list of all the resources; the first record of a log that has lost none.

    None: there is no such moment yet. A list is complete if it began in the log, in each partition.
    """
    state = await stream.state()
    if state.first_seq <= 1:
        return Moment(sequence=1)
    begun: set[tuple[int, str, str]] = set()
    ends: dict[tuple[int, str], LoggedRecord] = {}
    wanted = {(partition, name) for partition in range(stream.partitions) for name in resources}
    subjects = [control_subjects(stream.cluster, Control.SYNC, GroupResource.parse(name)) for name in sorted(resources)]
    async with aclosing(read_under(stream, subjects)) as records:
        async for logged in records:
            record = logged.record
            if isinstance(record, SyncStarted):
                begun.add((logged.partition, str(record.resource), record.sync_id))
            elif isinstance(record, SyncFinished):
                place = logged.partition, str(record.resource)
                if (*place, record.sync_id) in begun:
                    ends.setdefault(place, logged)
            if wanted <= ends.keys():
                break
    if not wanted or not wanted <= ends.keys():
        return None
    end = max((ends[place] for place in wanted), key=lambda logged: logged.sequence)
    return Moment(sequence=end.sequence, time=end.record.time)


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
            "you can ask for that moment and later ones"
        )


async def nothing_of(source: RecordSource, selected: Sequence[Selected], selector: str = "") -> str:
    """A sentence that says that the selection has no record, and why that may be."""
    what = " or ".join(map(str, selected)) + (f" with labels {selector}" if selector else "")
    nothing = f"{source.name} of cluster {source.cluster} holds no record of {what}"
    for resource in dict.fromkeys(each.resource for each in selected):
        if why := await unread(source, resource):
            return f"{nothing}: {why}"
    for each in selected:
        if each.namespace and not each.name:
            return (
                f"{nothing}, which means all {each.resource} of a namespace {each.namespace}: one object is "
                f"{each.resource}/NAMESPACE/NAME, with _ for no namespace"
            )
    return f"{nothing}: no such object existed while {source.name} was written"


async def unread(source: RecordSource, resource: GroupResource) -> str:
    """A warning about a resource without records; none if there are records, or that is not known."""
    held = await source.resources()
    name = str(resource)
    if not held or name in held:
        return ""
    close = meant(name, held)
    return f"recorded is what the operators read: {', '.join(held)}" + (f" (did you mean {close}?)" if close else "")


def so_long(text: str) -> timedelta | None:
    """Read `15m` (s, m, h, d); None: it is no such text."""
    found = _AGO.fullmatch(text)
    return timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else None


_SEQUENCE: Final = re.compile(r"[1-9][0-9]{0,17}")
_AGO: Final = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
