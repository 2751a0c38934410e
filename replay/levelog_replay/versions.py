"""Repeats the decisions of a history with one or two versions of the code, and compares the results."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from functools import partial
from typing import TypeAlias

from msgspec import Struct

from levelog_base.secrets.redaction import Redactor
from levelog_history.records import Recording
from levelog_processors.program import Program
from levelog_replay.calling import ReplayCaller
from levelog_replay.choice import Selection
from levelog_replay.comparing import DecisionComparison, Divergence
from levelog_replay.effects.outcomes import CallComparison
from levelog_replay.effects.pairing import CallReplay
from levelog_replay.effects.receipts import read_past_calls
from levelog_replay.effects.repeating import Repeater
from levelog_replay.historysources import History
from levelog_replay.inorder import LogReplay, Side, pairs
from levelog_replay.judging import Judge
from levelog_replay.recordedinputs import RecordedReplay
from levelog_replay.stops.stopping import Stops
from levelog_replay.tape import Rebuilt
from levelog_replay.travel.edits import Edited, Edits, PastWrites
from levelog_replay.travel.expressions import Expression
from levelog_replay.travel.orders import Inevitable, Orders

Following: TypeAlias = Callable[[str, int, Callable[[], int]], AbstractAsyncContextManager[None]]
"""Shows how many records are done, by a name, out of so many, while the context lasts."""


class Report(Struct, frozen=True, kw_only=True):
    """The result of a replay."""

    comparison: DecisionComparison
    names: tuple[str, str]
    """The first is compared with the second."""
    records: int
    seconds: float
    is_first_told: bool = False
    """The first difference was shown already."""
    calls: CallComparison | None = None
    """The comparison of calls made again; None: none were to be."""

    @property
    def is_same(self) -> bool:
        """Whether nothing differed of what could be compared."""
        return self.comparison.is_same and (self.calls is None or self.calls.is_same)


class Versions(Struct, frozen=True, kw_only=True):
    """One version of the code, compared with what was recorded, or two with each other."""

    programs: Sequence[Program]
    names: tuple[str, str]
    redactor: Redactor
    threads: int
    allows_network: bool
    stops: Stops | None
    """The stops at which somebody is asked; None: nobody can be."""
    following: Following
    functions: Mapping[str, str] = {}
    """Functions that are called again, `operator/function`, by their effects."""

    async def compare(
        self,
        history: History,
        selection: Selection,
        *,
        show: Callable[[Divergence], None] | None,
        take: Callable[[Divergence], None] | None = None,
    ) -> Report:
        """Decide again; `show` is given the first difference before somebody is asked about it, None: nobody is.

        `take` is given each difference.
        """
        begun = time.monotonic()
        comparison = DecisionComparison(take)
        calls: CallReplay | None = None
        async with AsyncExitStack() as stack:
            if self.stops is not None:
                stack.enter_context(self.stops.heeding())
            named = list(zip(("",) if len(self.programs) == 1 else self.names, self.programs, strict=True))
            judge_of = partial(Judge, redactor=self.redactor, stops=self.stops)
            judges = [judge_of(Rebuilt(code, history.origin), self.caller(), name=name) for name, code in named]
            for judge in judges:
                stack.push_async_callback(judge.close)
            replay = RecordedReplay(history, selection, judges)
            if self.functions:
                past = await read_past_calls(history, self.functions)
                repeater_of = partial(
                    Repeater, threads=self.threads, allows_network=self.allows_network, redactor=self.redactor
                )
                repeaters = [repeater_of(code, stops=self.stops, name=name) for name, code in named]
                for repeater in repeaters:
                    stack.push_async_callback(repeater.close)
                calls = CallReplay(self.functions, past, repeaters, self.stops)
            is_told = await self._as_recorded(comparison, history, selection, replay, calls, show)
        seconds = time.monotonic() - begun
        return Report(
            comparison=comparison,
            names=self.names,
            records=replay.records,
            seconds=seconds,
            is_first_told=is_told,
            calls=calls.comparison if calls is not None else None,
        )

    def caller(self) -> ReplayCaller:
        """Calls the functions of one version."""
        return ReplayCaller(threads=self.threads, allows_network=self.allows_network, stops=self.stops)

    async def _as_recorded(
        self,
        comparison: DecisionComparison,
        history: History,
        selection: Selection,
        replay: RecordedReplay,
        calls: CallReplay | None,
        show: Callable[[Divergence], None] | None,
    ) -> bool:
        """Compare each decision as it is made again; tells whether the first difference was shown."""
        before = history.first - 1
        end = selection.end.sequence if selection.end is not None else 0
        is_told = False
        async with (
            self.following("replay", (end or history.last) - before, lambda: max(replay.position - before, 0)),
            aclosing(replay.run()) as made,
        ):
            async for judged in made:
                was_same = comparison.is_same
                if len(judged) == 1:
                    comparison.take_recorded(judged[0])
                else:
                    comparison.take_both(*judged)
                if was_same and not comparison.is_same and show is not None and self.stops is not None:
                    is_told = await self._look_at(comparison, replay, self.stops, show)
                if calls is not None:
                    was_same = calls.comparison.first is None
                    await calls.take(judged)
                    if was_same and show is not None:
                        await calls.again()
        return is_told

    async def _look_at(
        self,
        comparison: DecisionComparison,
        replay: RecordedReplay,
        stops: Stops,
        show: Callable[[Divergence], None],
    ) -> bool:
        """Show the first difference and make its decision again in the debugger, unless that has asked of it."""
        first = comparison.first
        if first is None or stops.has_asked_of_error(first.past):
            return False
        show(first)
        with stops.choosing(first.past):
            await replay.again(first.past)
        return True

    async def differing(self, history: Recording, edits: Edits) -> AsyncGenerator[Divergence]:
        """Decide in the order of the log, as it was and with changes; those decisions that differ, from there on.

        Without changes, these are the differences of two versions of the code. A write that was sent is under way until
        its receipt comes, as it was live.
        """
        comparison = DecisionComparison()
        both = Edited(history, edits, is_applied=False), Edited(history, edits)
        written = await PastWrites.read(history)
        async with AsyncExitStack() as stack:
            sides: list[Side] = []
            for name, program, edited in zip(self.names, self.programs, both, strict=True):
                replay = LogReplay(edited, program, redactor=self.redactor, caller=self.caller(), claimant=written)
                stack.push_async_callback(replay.close)
                every = history.last - history.first + 1
                await stack.enter_async_context(self.following(name, every, partial(getattr, replay, "records")))
                sides.append(Side(replay, edited))
            async for at, one, other in await stack.enter_async_context(aclosing(pairs(sides))):
                start = both[0].start  # which is read by the time that something differs
                if start is not None and at >= start and (found := comparison.take_both(one, other)) is not None:
                    yield found

    async def inevitable(self, history: Recording, expression: Expression, *, most: int) -> Inevitable | None:
        """From which record on an expression comes out in every order, with the first version of the code."""
        replay = partial(LogReplay, redactor=self.redactor, caller=self.caller())
        orders = Orders(history, expression, self.programs[0], replay, most)
        async with self.following("orders", most, partial(getattr, orders, "orders")):
            return await orders.run()
