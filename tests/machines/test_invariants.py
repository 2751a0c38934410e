"""Invariants 3 to 11, 15 to 19, 22 and 23 hold whatever happens, in any order: see rigs/machine and its folders."""

import pytest

from rigs.machine.daemons.daemonmachine import DaemonsMachine
from rigs.machine.daemons.daemonworld import HOLDERS, DaemonWorld
from rigs.machine.edges.edgeworld import EdgeWorld
from rigs.machine.laboratory import Laboratory
from rigs.machine.running import run_machine
from rigs.machine.world import World
from rigs.run.examples import short_or_whole

pytestmark = pytest.mark.timeout(900)  # seconds of work, however busy the machine is


def test_invariant_3_tables_are_the_fold_and_19_nothing_foreign_written_and_22_and_23_and_4_to_11_hold_on_sqlite(
    sqlite_laboratory: Laboratory[World],
) -> None:
    run_machine(sqlite_laboratory, short_or_whole(5, 20))


def test_invariant_4_levels_are_recomputed_and_19_nothing_foreign_written_and_22_and_23_and_3_to_11_hold_on_postgresql(
    postgresql_laboratory: Laboratory[World],
) -> None:
    run_machine(postgresql_laboratory, short_or_whole(2, 10))


def test_invariant_15_no_edge_is_lost_and_16_none_is_invented_and_17_calls_are_in_order_on_sqlite(
    sqlite_edges: Laboratory[EdgeWorld],
) -> None:
    run_machine(sqlite_edges, short_or_whole(4, 40))


def test_invariant_17_calls_are_in_order_and_15_no_edge_is_lost_and_16_none_is_invented_on_postgresql(
    postgresql_edges: Laboratory[EdgeWorld],
) -> None:
    run_machine(postgresql_edges, short_or_whole(1, 15))


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
