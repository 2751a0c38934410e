"""Readers see holes, swaps, repeats and second histories in what several wrote, and nothing in what is whole."""

from collections.abc import Iterable
from random import Random

import pytest

from levelog_base.wire.objects import GroupResource, Partition, Sequence, Version
from levelog_base.wire.records import GapNoted, LoggedRecord, Unreadable
from levelog_log import chains as linking
from levelog_log.chains import LINK, ChainBreak, Chains, ChainWriter
from levelog_log.transport.wire import Message, parse_header_lines
from rigs.logs import linked
from rigs.webs import NOON

ZERO = Partition(0)


def batch(*payloads: bytes, partition: int = 0) -> list[Message]:
    return [Message(f"levelog.c.{partition}.core.pods.d.n", b"ce-id: x\r\n", payload) for payload in payloads]


class Log:
    """What a stream would hold."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def write(self, writer: ChainWriter, *payloads: bytes, partition: int = 0, is_acknowledged: bool = True) -> None:
        self.messages += linked(writer, batch(*payloads, partition=partition))
        if is_acknowledged:
            writer.acknowledge()

    def numbered(self) -> list[tuple[int, Message]]:
        return list(enumerate(self.messages, 1))


def read(messages: Iterable[tuple[int, Message]], chains: Chains | None = None) -> list[ChainBreak]:
    chains = chains or Chains("test")
    for sequence, message in messages:
        partition = Partition(int(message.subject.split(".")[2]))
        record = Unreadable(error="", subject=message.subject, key=None, time=NOON)
        logged = LoggedRecord(sequence=Sequence(sequence), partition=partition, record_id="", record=record)
        chains.see(logged, parse_header_lines(message.headers).get(LINK, ""), message.payload)
    return chains.breaks


def places(breaks: Iterable[ChainBreak]) -> list[tuple[str, int, int]]:
    return [(each.kind, each.after, each.before) for each in breaks]


def ten() -> list[tuple[int, Message]]:
    log, writer = Log(), ChainWriter(Sequence(0))
    for number in range(5):
        log.write(writer, b"%d" % number, b"and %d" % number)
    return log.numbered()


def test_what_several_writers_wrote_is_whole_from_wherever_it_is_read() -> None:
    chance, log = Random(1), Log()
    writers = [ChainWriter(Sequence(0))]
    for number in range(400):
        if chance.random() < 0.05:
            writers.append(ChainWriter(Sequence(len(log.messages))))
        writer, partition = chance.choice(writers[-3:]), chance.randrange(2)
        payloads = [b"%d" % number] * chance.randint(1, 3)
        fate = chance.random()
        if fate < 0.1:  # not written, and not acknowledged
            writer.link(batch(*payloads, partition=partition))
        log.write(writer, *payloads, partition=partition, is_acknowledged=fate < 0.8)
    log.messages[50:50] = batch(b"of a version without links", partition=1)
    for start in range(1, 400, 13):
        for partitions in ((0,), (1,), (0, 1)):
            some = [
                (at, each)
                for at, each in log.numbered()
                if at >= start and int(each.subject.split(".")[2]) in partitions
            ]
            assert places(read(some)) == []


def test_a_hole_is_named_with_its_positions() -> None:
    found = read(each for each in ten() if each[0] not in (4, 5))
    assert places(found) == [("missing", 3, 6)]
    assert str(found[0]) == "history is missing from 4 to 5: at least 2 records of partition 0"


def test_a_hole_at_the_beginning_of_a_writer_that_began_later_is_named() -> None:
    log, first = Log(), ChainWriter(Sequence(0))
    log.write(first, b"a")
    second = ChainWriter(Sequence(1))
    for payload in (b"b", b"c", b"d"):
        log.write(second, payload)
    whole = log.numbered()
    assert places(read(whole)) == []
    assert places(read(each for each in whole if each[0] not in (2, 3))) == [("missing", 1, 4)]
    assert places(read(whole[3:])) == []  # it may have begun before


def test_a_swap_is_named() -> None:
    log = ten()
    swapped = [*log[:3], (4, log[4][1]), (5, log[3][1]), *log[5:]]
    assert places(read(swapped)) == [("missing", 3, 4), ("out of order", 4, 5)]


def test_a_repeat_is_named_and_what_is_published_again_is_none() -> None:
    log, writer = Log(), ChainWriter(Sequence(0))
    log.write(writer, b"a")
    log.write(writer, b"b", is_acknowledged=False)
    log.write(writer, b"b")
    assert places(read(log.numbered())) == []
    log.messages.append(log.messages[-1])
    assert places(read(log.numbered())) == [("repeated", 3, 4)]


def test_a_batch_that_nobody_acknowledged_may_come_late_and_one_that_is_missed_may_not() -> None:
    """A server that stood still for a while stores it after what its writer has published instead of it."""
    log, writer = Log(), ChainWriter(Sequence(0))
    log.write(writer, b"a")
    late = linked(writer, batch(b"b", b"c"))
    for payload in (b"b", b"c", b"d"):
        log.write(writer, payload)
    whole = log.numbered()
    for start in range(4):  # with and without what was before it, and what shows it
        assert places(read([*whole[start:], *enumerate(late, 5)])) == []
    assert places(read([*(each for each in whole if each[0] != 3), *enumerate([whole[2][1], *late], 5)])) == [
        ("missing", 2, 4),
        ("out of order", 4, 5),
    ]


def test_a_second_history_is_named() -> None:
    """Three positions were read before they were written again by another writer, or by a copy of the same one."""
    first, other = ChainWriter(Sequence(0)), ChainWriter(Sequence(2))
    old, new = Log(), Log()
    old.write(first, b"a", b"b")
    new.messages = old.messages.copy()
    old.write(first, b"c", b"d", b"e")
    for payload in (b"x", b"y", b"z", b"!"):
        new.write(other, payload)
    chains = Chains("test")
    read(old.numbered(), chains)
    assert places(read(new.numbered()[5:], chains)) == [("second history", 2, 6)]
    changed = [(at, each._replace(payload=b"other") if at == 5 else each) for at, each in ten()]
    assert places(read(changed)) == [("second history", 4, 6)]


def test_a_gap_that_is_noted_ends_a_break_of_its_partition() -> None:
    chains = Chains("test")
    assert read([each for each in ten() if each[0] != 4], chains)
    gap = GapNoted(resource=GroupResource("", "pods"), reason="", since=Version(0), time=NOON)
    for partition, left in ((Partition(1), 1), (ZERO, 0)):
        chains.see(LoggedRecord(sequence=Sequence(11), partition=partition, record_id="", record=gap), "", b"")
        assert len(chains.breaks) == left


def test_links_that_cannot_be_read_are_passed() -> None:
    texts = ("", "x", "1-a 2 1", "1-a b 1 00", "a-1 1 1 00", "1-a 1 1 zz", "1-a 2 1 00 00")
    messages = batch(*[b"x"] * len(texts))
    strange = [
        each._replace(headers=f"{LINK}: {text}\r\n".encode()) for each, text in zip(messages, texts, strict=True)
    ]
    assert read(enumerate(strange, 1)) == []


def test_a_writer_that_was_forgotten_and_goes_on_is_no_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "_MOST_CHAINS", 4)
    log, writers = Log(), [ChainWriter(Sequence(0)) for _ in range(12)]
    for _ in range(3):
        for writer in writers:
            log.write(writer, b"x")
    assert read(log.numbered()) == []
