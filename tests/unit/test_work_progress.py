"""How far a processor is that catches up with the log."""

import pytest

from levelog_processors.health import CatchingUp, WorkProgress
from rigs.clocks import Clock


def test_it_counts_from_where_it_began_until_it_has_caught_up() -> None:
    catching_up = CatchingUp(Clock())
    assert catching_up.progress is None
    catching_up.go_on(200, 500, 1200)
    catching_up.go_on(500, 700, 1200)
    assert catching_up.progress == WorkProgress(what="the log", done=500, total=1000, unit="records")
    catching_up.reach()
    assert catching_up.progress is None
    catching_up.go_on(1200, 1300, 1400)
    assert catching_up.progress == WorkProgress(what="the log", done=100, total=200, unit="records")
    catching_up.reach()
    catching_up.go_on(1400, 1400, 1400)  # its end is asked for again
    assert catching_up.progress is None


def test_the_log_of_the_process_tells_of_it_once_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    catching_up = CatchingUp(clock)
    with caplog.at_level("INFO"):
        for seconds in range(25):
            clock.now = float(seconds)
            catching_up.go_on(0, seconds * 100, 10_000)
    assert [record.getMessage() for record in caplog.records] == [
        "folds the log before it decides: 1000 of 10000 records",
        "folds the log before it decides: 2000 of 10000 records",
    ]
