"""Invariants 3 to 11 hold whatever happens, in any order: see rigs/machine."""

import pytest

from rigs.machine.running import run_machine
from rigs.machine.world import Laboratory

ON_SQLITE = 20
ON_POSTGRESQL = 10

pytestmark = pytest.mark.timeout(900)  # seconds of work, however busy the machine is


def test_invariant_3_tables_are_the_fold_of_their_records_and_4_to_11_hold_on_sqlite(
    sqlite_laboratory: Laboratory,
) -> None:
    run_machine(sqlite_laboratory, ON_SQLITE)


def test_invariant_4_levels_are_those_of_a_recomputation_and_3_to_11_hold_on_postgresql(
    postgresql_laboratory: Laboratory,
) -> None:
    run_machine(postgresql_laboratory, ON_POSTGRESQL)
