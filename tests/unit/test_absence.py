"""What is logged of a server that is away, and what its waiters do."""

import asyncio
import logging

import pytest

from levelog.absence import Absence, level_of
from levelog_base.errors import Unavailable


class Outage:
    """A server with a clock that the test moves."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._caplog = caplog
        self.now = 100.0
        self.absence = Absence("NATS at nats://a", clock=lambda: self.now)
        self.absence.ended()

    def fail_each_second(self, seconds: int) -> None:
        for _ in range(seconds):
            for task in range(5):
                self.absence.began(f"refused to task {task}")
            self.now += 1

    @property
    def said(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def outage(caplog: pytest.LogCaptureFixture) -> Outage:
    return Outage(caplog)


def test_half_a_minute_is_three_lines_however_many_tasks_fail(outage: Outage) -> None:
    outage.fail_each_second(30)
    outage.absence.ended()
    outage.absence.ended()
    assert outage.said == [
        "NATS at nats://a is away: refused to task 0",
        "NATS at nats://a has been away for 10 s: refused to task 0",
        "NATS at nats://a is back after 30 s",
    ]


def test_reminders_of_a_day_get_rarer(outage: Outage) -> None:
    outage.fail_each_second(24 * 3600)
    assert len(outage.said) == 1 + 6


def test_an_old_connection_that_breaks_after_the_server_is_back_is_not_another_outage(outage: Outage) -> None:
    outage.fail_each_second(3)
    outage.absence.ended()
    outage.now += 1
    outage.absence.began("the old connection is closed")
    outage.absence.ended()
    assert outage.said[-1] == "NATS at nats://a is back after 3 s"


def test_a_server_that_goes_again_at_once_is_said_to_be_away_after_a_while(outage: Outage) -> None:
    outage.fail_each_second(3)
    outage.absence.ended()
    outage.fail_each_second(7)
    outage.absence.ended()
    assert outage.said[2:] == [
        "NATS at nats://a has been away for 5 s: refused to task 0",
        "NATS at nats://a is back after 7 s",
    ]


def test_a_server_that_never_answered_is_left_to_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    absence = Absence("NATS at nats://a")
    absence.began("refused")
    assert not absence.is_on
    assert not caplog.records


def test_what_fails_since_the_server_is_away_is_logged_for_debugging_only(outage: Outage) -> None:
    def failure() -> Unavailable:
        error = Unavailable("publishing: no answer")
        outage.absence.covers(error)
        wrapped = Unavailable("JetStream does not answer")
        wrapped.__cause__ = error
        return wrapped

    assert level_of(failure()) == logging.WARNING
    outage.fail_each_second(1)
    assert level_of(failure()) == logging.DEBUG
    outage.absence.ended()
    assert level_of(failure()) == logging.DEBUG
    outage.now += 6
    assert level_of(failure()) == logging.WARNING


async def test_whoever_pauses_goes_on_when_the_server_is_back(outage: Outage) -> None:
    outage.fail_each_second(1)
    pausing = asyncio.create_task(outage.absence.pause(3600))
    await asyncio.sleep(0)
    outage.absence.ended()
    async with asyncio.timeout(5):
        await pausing


def test_what_an_outage_took_is_one_warning_for_all_and_another_outage_is_another(outage: Outage) -> None:
    def losses() -> list[int]:
        return [outage.absence.level_of_loss() for _ in range(3)]

    assert losses() == [logging.WARNING] * 3, "no outage took these"
    for _ in range(2):
        outage.fail_each_second(30)
        outage.absence.ended()
        assert losses() == [logging.WARNING, logging.DEBUG, logging.DEBUG]
        outage.now += 60
        assert losses() == [logging.WARNING] * 3
