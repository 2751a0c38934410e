"""What a log lost or reordered inside: each writer links its records in each partition, and readers compare.

Several processes write to one partition, so each has a chain of its own there. A link, in a header, says the writer and
its term, the record's number, how many numbers lie back to the last one that was acknowledged, and the hash of that
record. What is published again after a lost acknowledgement gets new numbers: it is no repeat. Records from before
there were links have none, and are passed.
"""

import logging
import secrets
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, assert_never
from zlib import crc32

from msgspec import Struct

from levelog_base.counting import counted
from levelog_base.wire.objects import Partition, Sequence
from levelog_base.wire.records import GapNoted, LoggedRecord
from levelog_log.transport.wire import Message

log = logging.getLogger(__name__)

LINK: Final = "levelog-chain"
_MOST_CHAINS: Final = 4096
"""Chains that a reader follows: 256 starts of a writer with 16 partitions."""
_MOST_LATE: Final = 8
"""Most ranges of numbers of one chain that may still come late, of those that are missed and of those that are not."""
_MOST_BREAKS: Final = 64
"""Breaks that a reader keeps; one list makes up for all."""

BreakKind: TypeAlias = Literal["missing", "out of order", "repeated", "second history"]


class ChainBreak(Struct, frozen=True, kw_only=True):
    """Records of one partition that are not as their writer wrote them."""

    kind: BreakKind
    partition: Partition
    after: Sequence
    """The last record that was as it should be; 0: none was read."""
    before: Sequence
    """The record that shows it."""
    count: int = 1
    """Records that are missing, at least."""

    def __str__(self) -> str:
        between, of = f"from {self.after + 1} to {self.before - 1}", f"partition {self.partition}"
        match self.kind:
            case "missing":
                return f"history is missing {between}: at least {counted(self.count, 'record')} of {of}"
            case "out of order":
                return f"record {self.before} of {of} came after record {self.after}, which was written later"
            case "repeated":
                return f"record {self.before} of {of} repeats one up to {self.after}"
            case "second history":
                return (
                    f"record {self.before} of {of} follows others than were read after {self.after}: a second history"
                )
            case _ as never:
                assert_never(never)


class _Written(Struct):
    """The chain of a partition, as far as its writer knows."""

    used: int = 0
    last: int = 0
    checksum: int = 0
    acknowledged: tuple[int, int] = (0, 0)
    """What `last` and `checksum` were after the last batch that is known to be in the log."""


class ChainWriter:
    """Links the records of one writer; one batch at a time. Its term is where the log ended as it began."""

    def __init__(self, term: Sequence) -> None:
        self._name = f"{term}-{secrets.token_hex(4)}".encode()
        self._chains: dict[str, _Written] = {}

    def link(self, messages: Iterable[Message]) -> list[bytes]:
        """The header lines to add to each message of the next batch; numbers of one that failed are not used again."""
        for chain in self._chains.values():
            chain.last, chain.checksum = chain.acknowledged
        chains, name, lines = self._chains, self._name, list[bytes]()
        for subject, _, payload, _ in messages:
            partition = subject.split(".", 3)[2]
            chain = chains.get(partition) or chains.setdefault(partition, _Written())
            chain.used = number = chain.used + 1
            line = b"levelog-chain: %b %d %d %08x\r\n" % (name, number, number - chain.last, chain.checksum)
            chain.last, chain.checksum = number, crc32(payload, crc32(line))
            lines.append(line)
        return lines

    def acknowledge(self) -> None:
        """Note that the last batch is in the log."""
        for chain in self._chains.values():
            chain.acknowledged = chain.last, chain.checksum


class _Read(Struct):
    """The chain of one writer in one partition, as far as it was read."""

    number: int
    checksum: int
    sequence: Sequence
    holes: list[range]
    unsure: list[range]
    """Numbers from before what was read, and of batches that nobody acknowledged: a server that stood still may store
    one of these later, after what was published instead of it."""


class Chains:
    """Compares records that one reader gets in order, of some partitions or all, with their links.

    Where reading begins, chains may have begun before: their first record is taken as it is. A writer whose term is
    not before that has to be seen from its first record on. The end of a chain that is lost shows once its writer goes
    on; the end of one whose writer has ended does not.
    """

    def __init__(self, stream_name: str) -> None:
        self._stream_name = stream_name
        self.breaks: list[ChainBreak] = []
        """What was lost or reordered, until a later record of its partition notes a gap."""
        self._chains: dict[tuple[Partition, str], _Read] = {}
        self._begins_at: int | None = None
        self._newest: dict[Partition, Sequence] = {}

    def see(self, logged: LoggedRecord, link: str, payload: bytes) -> bool:
        """Go on to a record, with its link and payload as they are in the log; tells whether something is broken."""
        found = self._compare(logged.partition, logged.sequence, link, payload)
        if found is not None:
            log.error("stream %s: %s", self._stream_name, found, extra={"sequence": logged.sequence})
            self.breaks = [*self.breaks[1 - _MOST_BREAKS :], found]
        if self.breaks and isinstance(logged.record, GapNoted):
            self.breaks = [each for each in self.breaks if each.partition != logged.partition]
        return found is not None

    def _compare(self, partition: Partition, sequence: Sequence, link: str, payload: bytes) -> ChainBreak | None:
        if self._begins_at is None:
            self._begins_at = sequence
        newest = self._newest.get(partition, Sequence(0))
        self._newest[partition] = sequence
        try:
            writer, digits, back, previous = link.split(" ")
            number, last, checksum = int(digits), int(digits) - int(back), int(previous, 16)
            chain = self._chains.get((partition, writer))
            term = Sequence(int(writer.partition("-")[0])) if chain is None else newest
        except ValueError:
            return None
        own = crc32(payload, crc32(f"{LINK}: {link}\r\n".encode()))
        if chain is None:
            self._begin((partition, writer), _Read(number, own, sequence, [], [range(number)]))
            if last == 0 or term + 1 < self._begins_at:
                return None
            kind: BreakKind = "second history" if newest > term else "missing"
            return ChainBreak(kind=kind, partition=partition, after=term, before=sequence, count=last)
        after = chain.sequence
        if number <= chain.number:
            if any(number in each for each in chain.unsure):
                return None
            is_late = any(number in hole for hole in chain.holes)
            kind = "out of order" if is_late else "repeated"
            if number == chain.number and own != chain.checksum:
                kind = "second history"
            return ChainBreak(kind=kind, partition=partition, after=after, before=sequence)
        found = None
        if last + 1 < number:
            chain.unsure = [*chain.unsure[1 - _MOST_LATE :], range(last + 1, number)]
        if last > chain.number:
            chain.holes = [*chain.holes[1 - _MOST_LATE :], range(chain.number + 1, last + 1)]
            count = last - chain.number
            found = ChainBreak(kind="missing", partition=partition, after=after, before=sequence, count=count)
        elif last == chain.number and checksum != chain.checksum:
            after = Sequence(after - 1)
            found = ChainBreak(kind="second history", partition=partition, after=after, before=sequence)
        chain.number, chain.checksum, chain.sequence = number, own, sequence
        return found

    def _begin(self, place: tuple[Partition, str], chain: _Read) -> None:
        if len(self._chains) >= _MOST_CHAINS:
            by_age = sorted(self._chains.items(), key=lambda each: each[1].sequence)
            half = len(by_age) // 2
            self._chains = dict(by_age[half:])
            # who is forgotten and goes on is one that began before
            self._begins_at = max(self._begins_at or 0, by_age[half - 1][1].sequence + 2)
        self._chains[place] = chain
