"""A bar for each first list, on a terminal; where there is none, the log tells the same in lines."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import TaskID

    from levelog_ingest.watched import ResourceStatus


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
