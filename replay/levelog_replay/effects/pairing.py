"""Pairs recorded calls with repeated ones, or those of two versions, and compares them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from levelog_replay.comparing import FILTERED, NO_VIEW, Judged
from levelog_replay.effects.chosen import is_called, kind_of
from levelog_replay.effects.outcomes import NO_RECEIPT, CallComparison, CallDifference
from levelog_replay.effects.receipts import Came, PastCall
from levelog_replay.effects.repeating import Repeater, asked_of
from levelog_replay.stops.stopping import CallScene, Stops
from levelog_store.decide.decisions import Decision, IntentRow

T = TypeVar("T")
OtherT = TypeVar("OtherT")


class CallReplay:
    """Makes the calls again that decisions ask for, on one side or on both, and compares what comes of them."""

    def __init__(
        self, functions: Mapping[str, str], past: Mapping[str, PastCall], sides: Sequence[Repeater], stops: Stops | None
    ) -> None:
        """`functions`: those that are called again, by their effects; `past`: what their calls came to, by key."""
        self._functions = functions
        self._past = past
        self._sides = sides
        self._stops = stops
        self._seen: set[str] = set()
        """Keys of calls that were taken."""
        self._last: list[tuple[Repeater, CallScene]] = []
        """The first call that differs, with the code of each side to make it again."""
        self.comparison = CallComparison(functions)

    async def take(self, judged: Sequence[Judged]) -> None:
        """Make the calls of a decision again, as each side has made it. Raises DebuggerLeft."""
        if len(judged) == 1:
            await self._with_recorded(judged[0])
        else:
            await self._with_other(*judged)

    async def again(self) -> None:
        """Make the first call that differs once more, in the debugger, unless that has asked of an error of it."""
        first = self.comparison.first
        if first is None or self._stops is None or self._stops.has_asked_of_error(first.past):
            return
        with self._stops.choosing(first.past):
            for side, wanted in self._last:
                await side.call(wanted)

    async def _with_recorded(self, judged: Judged) -> None:
        past, [side] = judged.past, self._sides
        seen = self._seen.intersection([*past.intents, *(row.key for row in judged.rows)])
        ended = {key: self._past[key] for key in past.intents if key in self._past and key not in seen}
        self._seen.update(past.intents)
        before = {key: each for key, each in ended.items() if self._is_called(each)}
        if judged.conclusion is None:
            for each in before.values():
                self._miss(self._functions[each.effect], judged)
            return
        after: dict[str, IntentRow] = {}
        for row in self._rows(judged, side):
            if row.key in past.intents and row.key not in ended and row.key not in seen:
                self.comparison.skip(self._name(past, row), NO_RECEIPT)
            elif row.key not in seen:
                after[row.key] = row
        for one, other in _paired(before, after, lambda each: each.effect, lambda row: asked_of(past, row)):
            if one is not None and other is not None:
                await self._compare([(side, self._wanted(past, other, one, side))], one.came)
            elif one is not None:
                self.comparison.tally(self._functions[one.effect]).only_before += 1
            elif other is not None:
                self.comparison.tally(self._name(past, other)).only_after += 1

    async def _with_other(self, one: Judged, other: Judged) -> None:
        past = one.past
        first, second = (
            {row.key: row for row in self._rows(each, side) if row.key not in self._seen}
            for each, side in zip((one, other), self._sides, strict=True)
        )
        self._seen.update(first, second)
        obstacle = next((each.obstacle for each in (one, other) if each.obstacle not in ("", NO_VIEW, FILTERED)), "")
        if obstacle:
            for row in (first or second).values():
                self.comparison.skip(self._name(past, row), obstacle)
            return
        for before, after in _paired(first, second, _target, _target):
            if before is not None and after is not None:
                ended = self._past.get(before.key)
                rows = zip(self._sides, (before, after), strict=True)
                await self._compare([(side, self._wanted(past, row, ended, side)) for side, row in rows], None)
            elif before is not None:
                self.comparison.tally(self._name(past, before)).only_before += 1
            elif after is not None:
                self.comparison.tally(self._name(past, after)).only_after += 1

    async def _compare(self, calls: list[tuple[Repeater, CallScene]], recorded: Came | None) -> None:
        made = [await side.call(wanted) for side, wanted in calls]
        side, wanted = calls[-1]
        effect = side.effect(asked_of(wanted.past, wanted.row))
        was_same = self.comparison.first is None
        self.comparison.take(
            CallDifference(
                name=wanted.name,
                kind=kind_of(effect) if effect is not None else "",
                past=wanted.past,
                request=wanted.request,
                retry=wanted.retry,
                before=recorded if recorded is not None else made[0],
                after=made[-1],
            )
        )
        if was_same and self.comparison.first is not None:
            self._last = calls

    def _wanted(self, past: Decision, row: IntentRow, ended: PastCall | None, side: Repeater) -> CallScene:
        retry, then = (ended.retry, ended.came) if ended is not None else (0, None)
        return CallScene(past=past, name=self._name(past, row), row=row, retry=retry, then=then, program=side.name)

    def _miss(self, name: str, judged: Judged) -> None:
        if judged.obstacle in (NO_VIEW, FILTERED):
            self.comparison.tally(name).only_before += 1
        else:
            self.comparison.skip(name, judged.obstacle)

    def _name(self, past: Decision, row: IntentRow) -> str:
        return self._functions[asked_of(past, row)]

    def _rows(self, judged: Judged, side: Repeater) -> list[IntentRow]:
        """The intents of a decision, as it is made now, that call one of the functions."""
        found: list[IntentRow] = []
        for row in judged.rows:
            name = asked_of(judged.past, row) if row.verb == "call" else ""
            effect = side.effect(name) if name in self._functions else None
            if effect is not None and is_called(effect, msgspec.json.decode(row.body)):
                found.append(row)
        return found

    def _is_called(self, past: PastCall) -> bool:
        effects = (side.effect(past.effect) for side in self._sides)
        return all(effect is None or is_called(effect, past.request) for effect in effects)


def _paired(
    before: Mapping[str, T],
    after: Mapping[str, OtherT],
    effect_before: Callable[[T], str],
    effect_after: Callable[[OtherT], str],
) -> Iterator[tuple[T | None, OtherT | None]]:
    """Calls of two sides by their keys, and those that are left, in their order, by what they call."""
    left = {key: each for key, each in after.items() if key not in before}
    for key, one in before.items():
        if key in after:
            yield one, after[key]
        else:
            like = (other for other, each in left.items() if effect_after(each) == effect_before(one))
            yield one, left.pop(next(like, ""), None)
    for each in left.values():
        yield None, each


def _target(row: IntentRow) -> str:
    return row.target
