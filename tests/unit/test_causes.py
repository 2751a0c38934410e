"""Which records asked for a level: noted by folds, read back from wakeups."""

import pytest

from levelog_processors.state.wakes import Wakes
from levelog_store.fold.changes import MOST, Causes, Wake, added, noted, read_causes

LEVEL = "webs/pods", "webs.example.com/default/shop"


def asked(*batches: tuple[int, ...]) -> str:
    wakes = Wakes()
    for batch in batches:
        wakes.ask(LEVEL, Wake(0, batch))
    return wakes.pending[LEVEL].causes


def test_all_records_that_ask_are_noted_over_several_folds() -> None:
    assert asked((12,), (15, 17), (21,)) == "12,15,17,21"


def test_what_is_noted_does_not_grow_beyond_all_measure() -> None:
    text = asked(*(tuple(range(start, start + 50)) for start in range(100_000, 100_500, 50)))
    assert len(text) == MOST
    found = read_causes(text, newest=100_499)
    assert found.has_more
    assert found.sequences == (*range(100_000, 100_142), 100_499)


@pytest.mark.parametrize(
    ("text", "sequences"), [("", ()), ("7", (7,)), (noted([3, 5]), (3, 5)), (added("9,4", "4"), (4, 9))]
)
def test_few_are_read_as_they_were_noted(text: str, sequences: tuple[int, ...]) -> None:
    assert read_causes(text, newest=99) == Causes(sequences, has_more=False)
