"""Invariants 3 to 11, 19, 22 and 23 hold whatever happens, in any order: see rigs/machine."""

import pytest

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
