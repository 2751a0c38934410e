"""Invariants 15 to 17 hold whatever happens, in any order: see rigs/machine/edges."""

import pytest

from rigs.machine.edges.edgeworld import EdgeWorld
from rigs.machine.laboratory import Laboratory
from rigs.machine.running import run_machine
from rigs.run.examples import short_or_whole

pytestmark = pytest.mark.timeout(900)  # seconds of work, however busy the machine is


def test_invariant_15_no_edge_is_lost_and_16_none_is_invented_and_17_calls_are_in_order_on_sqlite(
    sqlite_edges: Laboratory[EdgeWorld],
) -> None:
    run_machine(sqlite_edges, short_or_whole(4, 40))


def test_invariant_17_calls_are_in_order_and_15_no_edge_is_lost_and_16_none_is_invented_on_postgresql(
    postgresql_edges: Laboratory[EdgeWorld],
) -> None:
    run_machine(postgresql_edges, short_or_whole(1, 15))
