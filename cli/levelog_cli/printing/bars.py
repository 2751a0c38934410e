"""Progress bars on stderr, where that is a terminal, for what takes long; the log says it where there is none."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from levelog_cli.settings import LogFormat

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from levelog_ingest.status import ResourceStatus
    from levelog_processors.health import WorkProgress


_FIRST_SECONDS: Final = 0.5
"""What is done sooner needs no bar."""
_PAUSE_SECONDS: Final = 0.2


class Bars:
    """The bars of one process, each by a name: the first that is shown begins them, with the last they go.

    Where nobody watches, or the log is lines of JSON for machines, all of it does nothing.
    """

    def __init__(self, log_format: LogFormat = LogFormat.TEXT) -> None:
        self._is_wanted = sys.stderr.isatty() and log_format is not LogFormat.JSON
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.RLock()

    @property
    def are_wanted(self) -> bool:
        """Whether somebody may see them, so that it is worth finding out what to show."""
        return self._is_wanted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.put_away()

    def put_away(self) -> None:
        """Take them off the terminal for good."""
        with self._lock:
            self._is_wanted = False
            self._clear()

    def show(self, name: str, done: int = 0, total: int | None = None, state: str = "") -> None:
        """Show a bar, or how far it is now; without a total it only says that something goes on."""
        with self._lock:
            if not self._is_wanted:
                return
            if self._progress is None:
                self._progress = _progress()
                self._progress.start()
            if name not in self._tasks:
                self._tasks[name] = self._progress.add_task(name, total=total, state=state)
            self._progress.update(self._tasks[name], completed=done, total=total, state=state)

    def end(self, name: str) -> None:
        """Take one away."""
        with self._lock:
            task = self._tasks.pop(name, None)
            if self._progress is None or task is None:
                return
            if self._tasks:
                self._progress.remove_task(task)
            else:
                self._clear()

    @contextmanager
    def meanwhile(self, name: str) -> Generator[Callable[[int, int], None]]:
        """Show that something goes on as long as the context is open, also if it keeps the event loop busy.

        What it gives may be told how much is done, of how much.
        """
        far: tuple[int, int | None] = (0, None)

        def begin() -> None:
            self.show(name, *far)

        def tell(done: int, total: int) -> None:
            nonlocal far
            far = done, total
            with self._lock:
                if name in self._tasks:
                    self.show(name, *far)

        timer = threading.Timer(_FIRST_SECONDS, begin)
        timer.start()
        try:
            yield tell
        finally:
            timer.cancel()
            timer.join()
            self.end(name)

    @asynccontextmanager
    async def following(self, label: str, total: int, done: Callable[[], int]) -> AsyncGenerator[None]:
        """Show how many records are done out of `total`, and how many a second, while the context is open."""
        task = asyncio.create_task(self._follow_records(label, total, done), name="progress")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self.end(label)

    async def _follow_records(self, label: str, total: int, done: Callable[[], int]) -> None:
        begun = time.monotonic()
        await asyncio.sleep(_FIRST_SECONDS)
        while self._is_wanted:
            rate = done() / (time.monotonic() - begun)
            self.show(label, min(done(), total), total, f"{rate:,.0f} records/s")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def follow(self, progress: "Callable[[], Sequence[WorkProgress]]") -> None:
        """Show how far a processor is with what takes long, until cancelled."""
        since: dict[str, float] = {}
        while self._is_wanted:
            there = {each.what: each for each in progress()}
            for name in since.keys() - there.keys():
                self.end(name)
            since = {name: since.get(name, time.monotonic()) for name in there}
            for name, each in there.items():
                if time.monotonic() - since[name] >= _FIRST_SECONDS:
                    self.show(name, each.done, each.total, each.unit)
            await asyncio.sleep(_PAUSE_SECONDS)

    def _clear(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = None
        self._tasks.clear()


class FirstLists:
    """Shows how far the first list of each resource is; it is called with each status of ingest."""

    def __init__(self, bars: Bars, resources: Sequence[str]) -> None:
        self._bars = bars
        self._waiting = set(resources)
        for name in resources:
            bars.show(name, state="starting")

    def __call__(self, status: "ResourceStatus") -> None:
        """Take note of a status."""
        name = str(status.watched.resource)
        if name not in self._waiting:
            return
        if status.phase == "watching":
            self._waiting.discard(name)
            self._bars.end(name)
        else:
            self._bars.show(name, status.objects, status.total, status.detail or status.phase)


def _progress() -> "Progress":
    from rich.console import Console  # noqa: PLC0415 - loaded for terminals only
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn  # noqa: PLC0415

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        console=Console(stderr=True),
        transient=True,
    )
