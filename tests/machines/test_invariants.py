"""Invariants 3 to 11 and 19 hold whatever happens, in any order: see rigs/machine."""

import pytest

from rigs.machine.running import run_machine
from rigs.machine.world import Laboratory

pytestmark = pytest.mark.timeout(900)  # seconds of work, however busy the machine is


@pytest.mark.parametrize("examples", [5, pytest.param(20, marks=pytest.mark.long)])
def test_invariant_3_tables_are_the_fold_of_their_records_and_19_nothing_foreign_is_written_and_4_to_11_hold_on_sqlite(
    sqlite_laboratory: Laboratory, examples: int
) -> None:
    run_machine(sqlite_laboratory, examples)


@pytest.mark.parametrize("examples", [2, pytest.param(10, marks=pytest.mark.long)])
def test_invariant_4_levels_are_the_recomputed_ones_and_19_nothing_foreign_is_written_and_3_to_11_hold_on_postgresql(
    postgresql_laboratory: Laboratory, examples: int
) -> None:
    run_machine(postgresql_laboratory, examples)
