"""The machine can fail: each planted bug breaks its invariant, and is found within a stated number of examples.

The steps that found it are kept in `planted.jsonl`, and repeated each time. The search begins with a seed that finds it
early, and is long where that has changed. Where steps do not find their bug any more, `LEVELOG_TEST_KEEP=1 pytest -m
long tests/machines/test_planted_bugs.py` searches and keeps others.
"""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from rigs.machine.bugs import planted
from rigs.machine.laboratory import Laboratory
from rigs.machine.planted import PLANTED
from rigs.machine.planting import Planted, keep_steps, kept_steps
from rigs.machine.running import find, repeat
from rigs.machine.steps import Step


def _names(cases: Sequence[Planted]) -> list[str]:
    return [f"invariant {case.invariants[0]} {case.bug.__name__}" for case in cases]


SEARCHED: Final = [case for case in PLANTED if case.examples]
FIRST: Final = {case.invariants[0]: case for case in reversed(PLANTED)}
"""A bug of each invariant, for `make test`."""

each_bug = pytest.mark.parametrize("case", PLANTED, ids=_names(PLANTED))


def steps_of(case: Planted) -> list[Step]:
    return [Step(*each) for each in kept_steps(case.machine, case.bug)]


@pytest.fixture
def laboratory(case: Planted, request: pytest.FixtureRequest) -> Laboratory[Any]:
    found: Laboratory[Any] = request.getfixturevalue(f"sqlite_{case.machine}")
    return found


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case in FIRST.values() else pytest.mark.long) for case in PLANTED],
    ids=_names(PLANTED),
)
def test_a_planted_bug_is_found_by_the_steps_that_are_kept(case: Planted, laboratory: Laboratory[Any]) -> None:
    with planted(case.bug, laboratory):
        broken = repeat(laboratory, steps_of(case))
    assert broken.number in case.invariants, broken


@pytest.mark.long
@each_bug
def test_the_steps_that_are_kept_break_nothing_by_themselves(case: Planted, laboratory: Laboratory[Any]) -> None:
    with pytest.raises(LookupError, match="no invariant is broken"):
        repeat(laboratory, steps_of(case))


@pytest.mark.long
@pytest.mark.timeout(900)  # seconds of work, however busy the machine is
@pytest.mark.parametrize("case", SEARCHED, ids=_names(SEARCHED))
def test_a_planted_bug_is_found_within_so_many_examples(case: Planted, laboratory: Laboratory[Any]) -> None:
    with planted(case.bug, laboratory):
        broken, steps = find(laboratory, case.examples, case.seed)
    assert broken.number in case.invariants, broken
    keep_steps(case.machine, case.bug, steps)
