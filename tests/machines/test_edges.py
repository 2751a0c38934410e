"""Invariants 15 to 17 hold whatever happens, in any order: see rigs/machine/edges."""

import pytest

from rigs.machine.edges.edgeworld import EdgeLaboratory
from rigs.machine.running import run_machine

pytestmark = pytest.mark.timeout(900)  # seconds of work, however busy the machine is


@pytest.mark.parametrize("examples", [4, pytest.param(40, marks=pytest.mark.long)])
def test_invariant_15_no_edge_is_lost_and_16_none_is_invented_and_17_calls_are_in_order_on_sqlite(
    sqlite_edges: EdgeLaboratory, examples: int
) -> None:
    run_machine(sqlite_edges, examples)


@pytest.mark.parametrize("examples", [1, pytest.param(15, marks=pytest.mark.long)])
def test_invariant_17_calls_are_in_order_and_15_no_edge_is_lost_and_16_none_is_invented_on_postgresql(
    postgresql_edges: EdgeLaboratory, examples: int
) -> None:
    run_machine(postgresql_edges, examples)
