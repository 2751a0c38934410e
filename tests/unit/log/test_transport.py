"""Headers and notifications of NATS, and when a log that seems to have lost history is believed."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_base.errors import HistoryInDoubt, IdentityMismatch, RecordError
from levelog_log.doubts import LOST_QUORUM, Doubts, Sign
from levelog_log.messages import header_lines
from levelog_log.notifications import Listener
from levelog_log.transport.wire import parse_header_lines
from rigs.clocks import Clock

NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=20)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=40)


@given(st.dictionaries(NAMES, VALUES))
def test_headers_are_read_as_they_were_written(headers: dict[str, str]) -> None:
    assert parse_header_lines(b"NATS/1.0\r\n" + header_lines(headers) + b"\r\n") == headers


@pytest.mark.parametrize("value", ["a\r\nce-type: other", "a\nb", "a\rb"])
def test_a_header_with_a_line_break_is_refused_by_name(value: str) -> None:
    with pytest.raises(RecordError, match="header ce-subject"):
        header_lines({"ce-id": "1", "ce-subject": value})


def test_a_status_line_is_no_header() -> None:
    assert parse_header_lines(b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 3\r\n\r\n") == {
        "Nats-Last-Consumer": "3"
    }


LONG = timedelta(hours=1)


async def test_a_nudge_before_the_wait_ends_it_and_is_no_notification() -> None:
    listener = Listener()
    listener.nudge()
    async with asyncio.timeout(20):
        assert not await listener.wait(LONG)
    assert not await listener.wait(timedelta(0))


async def test_a_nudge_does_not_hide_a_notification_that_came_before_it() -> None:
    listener = Listener()
    listener.notify()
    listener.nudge()
    assert await listener.wait(LONG)
    assert not await listener.wait(timedelta(0))


LOSS = IdentityMismatch("the log ends at 10, before 20")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_invariant_13_a_loss_counts_once_it_has_lasted(clock: Clock) -> None:
    doubts = Doubts(3, clock)
    first = doubts.loss("ends before", 20, LOSS)
    assert isinstance(first, HistoryInDoubt)
    assert str(LOSS) in str(first)
    clock.now += LOST_QUORUM.total_seconds()
    assert doubts.loss("ends before", 20, LOSS) is LOSS


def test_invariant_13_a_loss_that_the_log_contradicts_has_to_last_anew(clock: Clock) -> None:
    doubts = Doubts(3, clock)
    doubts.loss("ends before", 20, LOSS)
    doubts.dispel("ends before", 20)
    clock.now += LOST_QUORUM.total_seconds()
    assert isinstance(doubts.loss("ends before", 20, LOSS), HistoryInDoubt)


@pytest.mark.parametrize(("sign", "up_to"), [("ends before", 19), ("other record", 20)])
def test_invariant_13_what_contradicts_another_loss_dispels_no_doubt(clock: Clock, sign: Sign, up_to: int) -> None:
    doubts = Doubts(3, clock)
    doubts.loss("ends before", 20, LOSS)
    doubts.dispel(sign, up_to)
    clock.now += LOST_QUORUM.total_seconds()
    assert doubts.loss("ends before", 20, LOSS) is LOSS


def test_a_log_of_one_replica_has_no_old_answers(clock: Clock) -> None:
    assert Doubts(1, clock).loss("gone", 0, LOSS) is LOSS
