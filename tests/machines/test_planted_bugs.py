"""The machine can fail: each planted bug breaks its invariant, and is found within a stated number of examples."""

import pytest

from rigs.machine.bugs import planted
from rigs.machine.planted import PLANTED, Planted
from rigs.machine.running import find
from rigs.machine.world import Laboratory

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # seconds of work, however busy the machine is


def breaking(number: int) -> pytest.MarkDecorator:
    """The bugs that break an invariant, or first of all this one."""
    cases = [case for case in PLANTED if case.invariants[0] == number]
    return pytest.mark.parametrize("case", cases, ids=[case.bug.__name__ for case in cases])


def check(case: Planted, laboratory: Laboratory) -> None:
    with planted(case.bug, laboratory):
        broken, _ = find(laboratory, case.examples)
    assert broken.number in case.invariants, broken


@breaking(3)
def test_invariant_3_a_fold_that_is_wrong_is_found(case: Planted, sqlite_laboratory: Laboratory) -> None:
    check(case, sqlite_laboratory)


@breaking(5)
def test_invariant_5_a_lost_wake_is_found(case: Planted, sqlite_laboratory: Laboratory) -> None:
    check(case, sqlite_laboratory)


@breaking(6)
def test_invariant_6_a_spurious_wake_is_found(case: Planted, sqlite_laboratory: Laboratory) -> None:
    check(case, sqlite_laboratory)


@breaking(7)
def test_invariant_7_rounds_that_share_a_key_are_found(case: Planted, sqlite_laboratory: Laboratory) -> None:
    check(case, sqlite_laboratory)


@breaking(8)
def test_invariant_8_a_decision_on_what_is_not_shown_yet_is_found(case: Planted, sqlite_laboratory: Laboratory) -> None:
    check(case, sqlite_laboratory)


@breaking(9)
def test_invariant_9_a_decision_on_what_is_not_read_yet_is_found(case: Planted, sqlite_laboratory: Laboratory) -> None:
    check(case, sqlite_laboratory)


@breaking(10)
def test_invariant_10_a_commit_without_a_lease_is_found(case: Planted, sqlite_laboratory: Laboratory) -> None:
    check(case, sqlite_laboratory)
