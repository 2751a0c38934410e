"""Progress bars on stderr, where that is a terminal, for what takes long; the log says it where there is none."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from levelog_cli.settings import LogFormat

if TYPE_CHECKING:
    from rich.progress import Progress

    from levelog_ingest.status import ResourceStatus
    from levelog_processors.health import WorkProgress


_FIRST_SECONDS: Final = 0.5
"""What is done sooner needs no bar."""
_PAUSE_SECONDS: Final = 0.2

Far: TypeAlias = "Callable[[], tuple[int, int | None, str]]"
"""How much is done, of how much if that is known, and a word on it; it is asked in a thread that draws."""


class Bars:
    """The bars of one process, each by a name. There are none if nobody watches, or the log is JSON for machines."""

    def __init__(self, log_format: LogFormat = LogFormat.TEXT) -> None:
        self.are_wanted = sys.stderr.isatty() and log_format is not LogFormat.JSON
        """Whether somebody may see them, so that it is worth finding out what to show."""
        self._progress: Progress | None = None
        self._lock = threading.RLock()

    def put_away(self) -> None:
        """Take them off the terminal for good."""
        with self._lock:
            self.are_wanted = False
            if self._progress is not None:
                self._progress.stop()

    @contextmanager
    def following(self, name: str, far: Far) -> Generator[None]:
        """Show how far something is while the context is open, also if it keeps the event loop busy."""
        if not self.are_wanted:
            yield
            return
        timer = threading.Timer(_FIRST_SECONDS, self.show, (name, far))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            self.end(name)

    @contextmanager
    def meanwhile(self, name: str) -> Generator[Callable[[int, int], None]]:
        """Show that something goes on; what it gives may be told how much is done, of how much."""
        told: tuple[int, int | None] = (0, None)

        def tell(done: int, total: int) -> None:
            nonlocal told
            told = done, total

        with self.following(name, lambda: (*told, "")):
            yield tell

    @asynccontextmanager
    async def records(self, name: str, total: int, done: Callable[[], int]) -> AsyncGenerator[None]:
        """Show how many records are done out of `total`, and how many a second."""
        begun = time.monotonic()

        def far() -> tuple[int, int, str]:
            return min(done(), total), total, f"{done() / (time.monotonic() - begun):,.0f} records/s"

        with self.following(name, far):
            yield

    async def follow(self, progress: "Callable[[], Sequence[WorkProgress]]") -> None:
        """Show how far a processor is with what takes long, until cancelled."""

        def far() -> tuple[int, int | None, str]:
            return next(((each.done, each.total, each.unit) for each in progress()), (0, None, ""))

        while self.are_wanted:
            if progress():
                with self.following("the log", far):
                    while progress():  # noqa: ASYNC110 - nothing tells of it
                        await asyncio.sleep(_PAUSE_SECONDS)
            await asyncio.sleep(_PAUSE_SECONDS)

    def show(self, name: str, far: Far) -> None:
        """Show how far something is, until `end`."""
        with self._lock:
            if self.are_wanted:
                self._progress = self._progress or _progress()
                self._progress.add_task(name, total=None, far=far, state="")
                self._progress.start()

    def end(self, name: str) -> None:
        """Take the bar of that name off, if there is one."""
        with self._lock:
            if self._progress is None:
                return
            for task in self._progress.tasks:
                if task.description == name:
                    self._progress.remove_task(task.id)
            if not self._progress.tasks:
                self._progress.stop()


class FirstLists:
    """Shows how far the first list of each resource is; it is called with each status of ingest."""

    def __init__(self, bars: Bars, resources: Iterable[str]) -> None:
        self._far: dict[str, tuple[int, int | None, str]] = dict.fromkeys(resources, (0, None, "starting"))
        self._bars = bars
        for name in self._far:
            bars.show(name, partial(self._far.__getitem__, name))

    def __call__(self, status: "ResourceStatus") -> None:
        """Take note of a status."""
        name = str(status.watched.resource)
        self._far[name] = status.objects, status.total, status.detail or status.phase
        if status.phase == "watching":
            self._bars.end(name)


def _progress() -> "Progress":
    from rich import progress as bars  # noqa: PLC0415 - loaded for terminals only
    from rich.console import Console, RenderableType  # noqa: PLC0415

    class Polled(bars.Progress):
        def get_renderables(self) -> Iterable[RenderableType]:
            for task in self.tasks:
                done, total, state = task.fields["far"]()
                with suppress(KeyError):  # the work has ended meanwhile
                    self.update(task.id, completed=done, total=total, state=state)
            return super().get_renderables()

    return Polled(
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description:<32}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.fields[state]}"),
        console=Console(stderr=True),
        transient=True,
    )
