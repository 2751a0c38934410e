"""What a processor does next, and why: wakeups now, those that only echo or end a write with others, or later."""

from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from levelog_processors.decide.tally import EvaluationBatch
from levelog_processors.fold.batches import parts
from levelog_processors.program import Program
from levelog_processors.state.state import State
from levelog_processors.state.wakes import Wakes
from levelog_processors.waiting import ECHO_WAIT, MOMENT, REST, RESYNC, Schedule
from levelog_store.fold.changes import MOST, Causes, Wake, added, noted, read_causes
from levelog_store.rows import ViewParent
from rigs.intents import intent
from rigs.shown import shown_webs
from rigs.waiting import until
from rigs.webs import NOON, deleted, logged, pod, receipt, web

SHOP, HALL = ("webs/pods", "webs.example.com/default/shop"), ("webs/pods", "webs.example.com/default/hall")
ECHO, CHANGE, END = Wake(0, (1,), is_echo=True, is_end=True), Wake(0, (2,)), Wake(0, (1, 3), is_end=True)


def looked_at(*, is_alone: bool = True) -> Schedule:
    schedule = Schedule(monotonic, is_alone=is_alone)
    schedule.resynced()
    schedule.close()
    return schedule


async def test_a_change_is_looked_at_now() -> None:
    schedule = looked_at()
    assert not schedule.is_open
    schedule.take({SHOP: CHANGE})
    assert schedule.is_open
    assert not schedule.put_off


async def test_an_echo_is_put_off_for_a_moment() -> None:
    schedule = looked_at()
    schedule.take({SHOP: ECHO})
    assert not schedule.is_open
    assert set(schedule.put_off) == {SHOP}
    assert timedelta(0) < schedule.wait <= ECHO_WAIT
    schedule.take({SHOP: ECHO})
    await until(lambda: schedule.is_open, "the moment to be over")
    schedule.close()
    assert not schedule.put_off


async def test_what_else_happens_to_the_level_ends_that_and_what_happens_to_others_does_not() -> None:
    schedule = looked_at()
    schedule.take({SHOP: ECHO, HALL: CHANGE})
    assert schedule.is_open
    schedule.close()
    assert set(schedule.put_off) == {SHOP}
    schedule.take({SHOP: CHANGE})
    assert schedule.is_open
    assert not schedule.put_off


@pytest.mark.parametrize(("is_alone", "rest"), [(True, REST), (False, MOMENT)])
async def test_the_end_of_a_write_waits_a_while_unless_others_may_wait_for_it(is_alone: bool, rest: timedelta) -> None:
    schedule = looked_at(is_alone=is_alone)
    schedule.take({SHOP: ECHO})
    schedule.take({SHOP: END})
    assert schedule.is_resting
    assert timedelta(0) < schedule.wait <= rest
    await until(lambda: schedule.is_open, "the while to be over")
    assert not schedule.is_resting
    schedule.close()
    assert not schedule.is_open


async def test_the_end_of_a_write_is_joined_by_what_comes_next() -> None:
    schedule = looked_at()
    schedule.take({SHOP: END})
    schedule.take({HALL: CHANGE})
    assert schedule.is_open
    assert not schedule.is_resting
    assert not schedule.put_off
    schedule.close()
    assert not schedule.is_resting


async def test_ends_of_writes_wait_but_a_moment_while_more_follows_from_them() -> None:
    schedule, now = looked_at(), datetime.now(UTC)
    schedule.note(EvaluationBatch([], at=now))
    assert schedule.rest == REST
    schedule.note(EvaluationBatch([], at=now, has_news=True))
    assert schedule.rest == MOMENT


LONGEST = RESYNC + ECHO_WAIT
INSTANT = 1e-6
"""Seconds that a batch takes."""
LEVELS: list[ViewParent] = [("webs/pods", f"webs.example.com/default/{name}") for name in "abc"]
Step: TypeAlias = tuple[str, float, list[ViewParent]]
named = st.lists(st.sampled_from(LEVELS), min_size=1, unique=True)
steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.sampled_from(["change", "echo", "end", "unannounced", "notified"]), st.just(0.0), named),
    st.tuples(st.sampled_from(["scheduled", "passes"]), st.floats(0.001, 15), named),
    st.tuples(st.just("hurries"), st.just(0.0), named),
)


class Turns:
    """A processor's turns as far as its schedule is concerned; a batch takes one level, so that there may be more."""

    def __init__(self, *, is_alone: bool) -> None:
        self.now = 0.0
        self.schedule = Schedule(lambda: self.now, is_alone=is_alone)
        self.due_at: dict[ViewParent, float] = {}
        """Since when levels are to be decided on, or from when on."""

    def ask(self, levels: list[ViewParent], at: float) -> None:
        self.due_at |= {level: min(at, self.due_at.get(level, at)) for level in levels}

    def turn(self) -> None:
        schedule = self.schedule
        while True:
            self.now += INSTANT
            if schedule.is_overdue:
                schedule.resynced()
            if not schedule.is_open:
                return
            schedule.close()
            due = [level for level, at in self.due_at.items() if at <= self.now and level not in schedule.put_off]
            for level in due[:1]:
                del self.due_at[level]
            if len(due) > 1:
                schedule.open()
            later = min((at for at in self.due_at.values() if at > self.now), default=None)
            schedule.plan(None if later is None else NOON + timedelta(seconds=later - self.now), NOON)

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + max(self.schedule.wait.total_seconds(), INSTANT))
            self.turn()


@given(st.lists(steps, max_size=40), st.booleans())
def test_no_level_waits_for_longer_than_a_resync_whatever_does_not_come(taken: list[Step], is_alone: bool) -> None:
    turns = Turns(is_alone=is_alone)
    turns.turn()
    for step, seconds, levels in taken:
        if step == "passes":
            turns.pass_time(seconds)
        elif step == "notified":
            turns.schedule.notified()
        elif step == "hurries":
            turns.schedule.note(EvaluationBatch([], at=NOON, has_news=True))
        else:
            turns.ask(levels, turns.now + seconds)
            if step not in ("unannounced", "scheduled"):
                turns.schedule.take(dict.fromkeys(levels, {"change": CHANGE, "echo": ECHO, "end": END}[step]))
        turns.turn()
        waits = max((turns.now - at for at in turns.due_at.values()), default=0.0)
        note(f"{turns.now:.3f} {step} {seconds:.3f} {levels}: the longest waits for {waits:.3f} s")
        assert waits <= LONGEST.total_seconds() + 0.001
    turns.pass_time(LONGEST.total_seconds() + 15)
    assert not turns.due_at


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


APPLY: Final = intent("pods/default/a", verb="apply")
DELETE: Final = intent("pods/default/a", verb="delete")
ENDING: Final = pod("a", 7, deletionTimestamp="2026-01-01T12:00:00Z")


@pytest.mark.parametrize("are_together", [True, False], ids=["folded at once", "one by one"])
@pytest.mark.parametrize(
    ("told", "is_shown"),
    [
        ([receipt(APPLY, version=7)], False),
        ([receipt(APPLY, version=7), pod("a", 7)], True),
        ([pod("a", 7), receipt(APPLY, version=7)], True),
        ([receipt(APPLY, version=7), pod("a", 9)], True),
        ([receipt(APPLY, version=7), pod("a", 6)], False),
        ([receipt(APPLY, version=7), pod("a", 7, uid="another")], False),
        ([receipt(APPLY, version=7), pod("b", 7)], False),
        ([receipt(APPLY, version=7, outcome="conflict"), pod("a", 7)], False),
        ([receipt(APPLY, version=7, outcome="unchanged"), pod("a", 7)], False),
        ([receipt(APPLY, outcome="failed"), pod("a", 7)], False),
        ([receipt(APPLY, version=7), receipt(APPLY, version=9), pod("a", 8)], False),
        ([receipt(APPLY, version=9), receipt(APPLY, version=7), pod("a", 8)], False),
        ([receipt(APPLY, version=7), receipt(APPLY, version=9), pod("a", 9)], True),
        ([receipt(DELETE, version=7), pod("a", 7)], False),
        ([receipt(DELETE, version=7), ENDING], True),
        ([receipt(DELETE, version=7), deleted(pod("a", 6), 7)], True),
        ([receipt(DELETE, version=7), deleted(pod("b", 6), 7)], False),
    ],
)
def test_a_write_is_settled_with_its_receipt_if_both_are_folded(
    told: list[Any], is_shown: bool, are_together: bool
) -> None:
    state = State(Program([shown_webs("webs")]), "webs", 4)
    records = logged([web("shop", 1), *told])
    for batch in [records] if are_together else [[each] for each in records]:
        for part in parts(batch):
            state.apply(state.fold(part))
    assert {is_shown} == {left == "settled" for _, left in state.ends.receipts}
