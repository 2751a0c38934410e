"""Decides again on the history that the pages show, with a file loaded when they start, never one from a browser."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from levelog_base.errors import ConfigurationError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Application
from levelog_processors.program import Program
from levelog_replay.bundles.reading import Bundle, refuse_other
from levelog_replay.choice import Selection
from levelog_replay.comparing import Divergence, Tally
from levelog_replay.historysources import LiveHistory
from levelog_replay.travel.edits import Edits
from levelog_replay.versions import Versions
from levelog_ui.bundlepast import BundlePast
from levelog_ui.past import Past

MOST: Final = 100
"""Differences that an answer holds; of more, how many there are."""
THEN_NOW = ("then", "now")
_KEPT: Final = 8
"""Answers that are kept, for pages that come back for them."""
_SOON_SECONDS: Final = 2.0
"""So long a page waits for its answer before it is sent without."""
_LONGEST_SECONDS: Final = 600.0
"""A question that takes longer is one for a terminal."""

Opened: TypeAlias = Callable[[], AbstractAsyncContextManager[Past]]
"""Opens what the pages show once more."""


class MadeAgain(Struct, frozen=True, kw_only=True):
    """Make decisions once more on their recorded inputs: all, or one."""

    ordinal: int = 0


Question: TypeAlias = MadeAgain | Edits
"""Edits: decide in the order of the log, as it was and changed by them."""


class AgainAnswer(Struct, kw_only=True):
    """The answer to a question."""

    found: list[tuple[Divergence, int]] = []
    """The first difference of each level, with how many there are on it; in a changed history, each difference."""
    tally: Tally = field(default_factory=Tally)
    differing: int = 0
    levels: int = 0
    """On which something differs."""
    obstacles: dict[str, int] = {}
    """The number of decisions that could not be made again, by reason."""
    last: int = 0
    """The history went up to this record."""


class AgainRun(Struct, kw_only=True):
    """A question that is being answered, or was."""

    number: int
    question: Question
    ended: "asyncio.Future[None]" = field(default_factory=asyncio.Future)
    answer: AgainAnswer | None = None
    total: int = 0
    """Records of the pass that is under way; 0: it has not begun."""
    done: Callable[[], int] = lambda: 0
    name: str = ""
    """The code that the pass decides on, where there are two: `then` or `now`."""


class AgainCode:
    """Answers one question at a time, in a thread of its own: each reads the whole history, and pages go on."""

    def __init__(
        self,
        file: Path,
        application: Application,
        program: Program,
        opened: Opened,
        *,
        redactor: Redactor,
        threads: int,
    ) -> None:
        self.file = file
        self._application = application
        self._opened = opened
        self._versions = Versions(
            programs=[program],
            names=THEN_NOW,
            redactor=redactor,
            threads=threads,
            allows_network=False,
            stops=None,
            following=self._following,
        )
        self._numbers = count(1)
        self._runs: OrderedDict[int, AgainRun] = OrderedDict()
        self._under_way: tuple[AgainRun, asyncio.AbstractEventLoop, asyncio.Task[AgainAnswer]] | None = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="again")
        self._is_closed = False

    async def ask(self, question: Question, number: int = 0) -> AgainRun:
        """Begin to answer, and wait for a moment; `number` names a run that has begun, if it is still known.

        A question that is being answered is not asked twice. Raises what it failed with: ConfigurationError for
        records that are not there, and for a history that does not fit the code.
        """
        run = self._runs.get(number)
        if run is None or run.question != question:
            going = (each for each in self._runs.values() if each.question == question and not each.ended.done())
            run = next(going, None) or self._begin(question)
        if (await asyncio.wait([run.ended], timeout=_SOON_SECONDS))[0]:
            run.ended.result()
        return run

    def close(self) -> None:
        """Give up what is under way."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        if (under_way := self._under_way) is not None:  # the thread may end it meanwhile
            _, loop, task = under_way
            with suppress(RuntimeError):  # its loop has just ended
                loop.call_soon_threadsafe(task.cancel)

    def _begin(self, question: Question) -> AgainRun:
        over = [number for number, each in self._runs.items() if each.ended.done()]
        for number in over[: max(0, len(self._runs) + 1 - _KEPT)]:
            del self._runs[number]
        if len(self._runs) >= _KEPT:
            raise ConfigurationError(f"{len(self._runs)} other questions wait for their answers: ask again later")
        run = AgainRun(number=next(self._numbers), question=question)
        run.ended = asyncio.get_running_loop().run_in_executor(self._threads, self._carry_out, run)
        # asyncio logs an error that nobody has asked for: the page may have been closed
        run.ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        self._runs[run.number] = run
        return run

    def _carry_out(self, run: AgainRun) -> None:
        try:
            run.answer = asyncio.run(self._answered(run))
        except TimeoutError as error:
            raise ConfigurationError(f"it takes more than {_LONGEST_SECONDS:.0f} s: ask in a terminal") from error
        finally:
            self._under_way = None

    async def _answered(self, run: AgainRun) -> AgainAnswer:
        task = asyncio.ensure_future(self._answer(run))
        self._under_way = run, asyncio.get_running_loop(), task
        if self._is_closed:  # before it could be cancelled
            task.cancel()
        async with asyncio.timeout(_LONGEST_SECONDS):
            return await task

    async def _answer(self, run: AgainRun) -> AgainAnswer:
        async with self._opened() as past:
            history = await self._history(past)
            if isinstance(run.question, MadeAgain):
                return await self._repeated(history, run.question)
            return await self._changed(history, run.question)

    async def _changed(self, history: LiveHistory | Bundle, edits: Edits) -> AgainAnswer:
        """Decisions that differ on a changed history, as `levelog what-if` finds them."""
        answer = AgainAnswer(last=history.last)
        levels: set[tuple[str, str]] = set()
        twice = replace(self._versions, programs=[*self._versions.programs] * 2)
        async for each in twice.differing(history, edits):
            answer.differing += 1
            levels.add((each.past.view, each.past.parent))
            if len(answer.found) < MOST:
                answer.found.append((each, 1))
        answer.levels = len(levels)
        return answer

    async def _repeated(self, history: LiveHistory | Bundle, question: MadeAgain) -> AgainAnswer:
        """Make decisions once more as `levelog replay` does."""
        first: dict[tuple[str, str], Divergence] = {}
        counts: dict[tuple[str, str], int] = {}

        def take(found: Divergence) -> None:
            level = found.past.view, found.past.parent
            counts[level] = counts.get(level, 0) + 1
            if len(first) < MOST:
                first.setdefault(level, found)

        selection = Selection(ordinal=question.ordinal)
        report = await self._versions.compare(history, selection, show=None, take=take)
        if question.ordinal and not report.comparison.tallies:
            raise ConfigurationError(f"the history does not hold decision {question.ordinal} any more")
        return AgainAnswer(
            found=[(each, counts[level]) for level, each in first.items()],
            tally=report.comparison.total,
            differing=sum(counts.values()),
            levels=len(counts),
            obstacles=report.comparison.obstacles,
            last=history.last,
        )

    async def _history(self, past: Past) -> LiveHistory | Bundle:
        [program] = self._versions.programs
        history: LiveHistory | Bundle
        if isinstance(past, BundlePast):
            history = past.bundle
            refuse_other(history, self._application, program)
        else:
            history = await past.history(self._application)
        self._versions.redactor.refuse_history(past.source.name, history.redaction)
        return history

    @asynccontextmanager
    async def _following(self, name: str, total: int, done: Callable[[], int]) -> AsyncGenerator[None]:
        """Let the pages say how far it is."""
        if self._under_way is not None:
            run = self._under_way[0]
            run.name, run.total, run.done = name if name in THEN_NOW else "", total, done
        yield
