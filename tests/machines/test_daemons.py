"""Invariant 18 holds whatever happens, in any order: see rigs/machine/daemons."""

import pytest

from rigs.machine.daemons.daemonmachine import DaemonsMachine
from rigs.machine.daemons.daemonworld import HOLDERS, DaemonWorld
from rigs.machine.laboratory import Laboratory
from rigs.machine.running import run_machine
from rigs.run.examples import short_or_whole

pytestmark = pytest.mark.timeout(900)  # seconds of work, however busy the machine is


def test_invariant_18_one_daemon_counts_for_each_object_and_its_state_is_handed_over_on_sqlite(
    sqlite_daemons: Laboratory[DaemonWorld],
) -> None:
    run_machine(sqlite_daemons, short_or_whole(4, 60))


def test_invariant_18_one_daemon_counts_for_each_object_and_its_state_is_handed_over_on_postgresql(
    postgresql_daemons: Laboratory[DaemonWorld],
) -> None:
    run_machine(postgresql_daemons, short_or_whole(1, 15))


@pytest.mark.parametrize("back", ["killed", "shut down", "lapsed"])
def test_invariant_18_what_stood_still_does_not_go_on_where_another_has_kept_more_and_is_gone(
    sqlite_daemons: Laboratory[DaemonWorld], back: str
) -> None:
    machine = DaemonsMachine(sqlite_daemons)
    machine.begin(webs=("w0",), is_shared=False, then="claim")
    machine.hand_over(holder="P", heir="Q", back=back)
    machine.rest()
    assert machine.world.tenures.keeps >= 2


@pytest.mark.parametrize("late", ["keeps late", "returns"])
@pytest.mark.parametrize("back", ["killed", "shut down", "lapsed"])
def test_invariant_18_what_comes_late_of_a_claim_does_not_count_for_the_next_one_of_its_actuator(
    sqlite_daemons: Laboratory[DaemonWorld], back: str, late: str
) -> None:
    machine = DaemonsMachine(sqlite_daemons)
    machine.begin(webs=("w0",), is_shared=False, then="claim")
    machine.come_late(holder="P", heirs=HOLDERS, back=back, late=late)
    machine.rest()
    assert machine.world.tenures.keeps >= 2
    assert not machine.world.tenures.finished


def test_invariant_18_an_end_that_was_not_stored_in_time_is_dropped_when_its_run_is_claimed_again(
    sqlite_daemons: Laboratory[DaemonWorld],
) -> None:
    machine = DaemonsMachine(sqlite_daemons)
    machine.begin(webs=("w0",), is_shared=False, then="claim")
    machine.command(holder="P", number=0, what="returns")
    machine.disturb(holder="P", finder="Q", what="lapse")
    machine.claim(holder="Q", most=1000, is_late=False)
    machine.command(holder="Q", number=0, what="keeps")
    machine.disturb(holder="Q", finder="R", what="kill")
    machine.bury()
    machine.claim(holder="P", most=1000, is_late=False)
    machine.act(holder="P", what="store")
    machine.rest()
    assert not machine.world.tenures.finished
