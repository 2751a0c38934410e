"""Progress bars on stderr, where that is a terminal: one for each first list, and one for a way through the log."""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from levelog_ingest.status import ResourceStatus


_FIRST_SECONDS: Final = 0.5
"""What is done sooner needs no bar."""
_PAUSE_SECONDS: Final = 0.2


class FirstLists:
    """Shows how far the first list of each resource is, until all are complete; `with FirstLists(names)`.

    It is called with each status of ingest.
    """

    def __init__(self, resources: list[str]) -> None:
        from rich.console import Console  # noqa: PLC0415 - loaded for terminals only
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn  # noqa: PLC0415

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[resource]:<32}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {
            name: self._progress.add_task("", total=None, resource=name, state="starting") for name in resources
        }
        self._waiting = set(resources)

    @staticmethod
    def is_wanted() -> bool:
        """Whether somebody watches."""
        return sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, status: "ResourceStatus") -> None:
        """Take note of a status."""
        name = str(status.watched.resource)
        if name not in self._waiting:
            return
        self._progress.update(
            self._tasks[name],
            completed=status.objects,
            total=status.total if status.phase != "watching" else status.objects,
            state=status.detail or status.phase,
        )
        if status.phase == "watching":
            self._waiting.discard(name)
        if not self._waiting:
            self._progress.stop()


class RecordBar:
    """Shows how many records are done, and how many a second; where nobody watches, it does nothing."""

    def __init__(self) -> None:
        self._is_wanted = sys.stderr.isatty()
        self._progress: Progress | None = None

    def put_away(self) -> None:
        """Take the bar off the terminal for good, since something else is shown there."""
        self._is_wanted = False
        self._clear()

    @asynccontextmanager
    async def following(self, label: str, total: int, done: Callable[[], int]) -> AsyncGenerator[None]:
        """Show a number of records, out of `total`, while the context lasts."""
        task = asyncio.create_task(self._follow(label, total, done), name="progress")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self._clear()

    async def _follow(self, label: str, total: int, done: Callable[[], int]) -> None:
        begun = time.monotonic()
        await asyncio.sleep(_FIRST_SECONDS)
        if not self._is_wanted:
            return
        self._progress = _record_progress()
        shown = self._progress.add_task(label, total=total, rate="")
        self._progress.start()
        while self._is_wanted:
            rate = done() / (time.monotonic() - begun)
            self._progress.update(shown, completed=min(done(), total), rate=f"{rate:,.0f} records/s")
            await asyncio.sleep(_PAUSE_SECONDS)

    def _clear(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _record_progress() -> "Progress":
    from rich.console import Console  # noqa: PLC0415 - loaded for terminals only
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        console=Console(stderr=True),
        transient=True,
    )
