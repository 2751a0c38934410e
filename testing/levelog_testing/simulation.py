"""Simulation: an operator's whole loop, stepped by a test."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec
from sqlalchemy import select

from levelog.objects import CLUSTER_SCOPE
from levelog.operator import Operator
from levelog.resources import Manifest, ResourceBase
from levelog_store.inputs import read_levels
from levelog_store.tables import intents
from levelog_testing.views import SeenIntent, SeenLevel, seen_level
from levelog_testing.world import Clock, Refusal, World, open_world

T = TypeVar("T")

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Simulation:
    """A cluster in memory and an operator on it, on the fold, decide and sending that run live; no server is needed.

    What it does not imitate: time passes only by `advance`, processes do not fail, and the cluster is the sandbox, with
    the limits that its docstring lists. Used as `with Simulation(op) as simulation`, in tests with a running event loop
    too. With `echo=False` the operator's own writes do not reach the log until `echo` is set to True.
    """

    def __init__(self, *operators: Operator, echo: bool = True, now: datetime = BEGIN) -> None:
        self._operators = operators
        self._echo = echo
        self._clock = Clock(now)
        self._loop = asyncio.new_event_loop()
        # A loop of its own: a test may run in another one, and then could not wait for it.
        self._thread = threading.Thread(target=self._loop.run_forever, name="levelog simulation", daemon=True)
        self._stack = AsyncExitStack()
        self._world: World | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._world = self._call(self._stack.enter_async_context(open_world(self._operators, self._clock)))
        except BaseException:
            self._end()
            raise
        self.echo = self._echo
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._call(self._stack.aclose())
        finally:
            self._end()

    @property
    def echo(self) -> bool:
        """Whether the operator's own writes come back to it through the log."""
        return self._open.is_echoing

    @echo.setter
    def echo(self, value: bool) -> None:
        self._open.is_echoing = value

    @property
    def now(self) -> datetime:
        """The time of the simulation."""
        return self._clock.now

    def apply(self, manifest: Manifest) -> Manifest:
        """Create or change an object as a user with server-side apply; returns what the cluster stores."""
        return self._in_loop(lambda: self._open.sandbox.user.apply(manifest))

    def patch_status(
        self, resource: type[ResourceBase], name: str, status: Mapping[str, Any], *, namespace: str = "default"
    ) -> Manifest:
        """Merge into an object's status, as another controller does."""
        user = self._open.sandbox.user
        kind = str(resource.resource_type.group_resource)
        return self._in_loop(
            lambda: user.patch(kind, name, {"status": dict(status)}, namespace=namespace, subresource="status")
        )

    def delete(self, resource: type[ResourceBase], name: str, *, namespace: str = "default") -> None:
        """Delete an object as a user; what it owns is collected."""
        kind = str(resource.resource_type.group_resource)
        self._in_loop(lambda: self._open.sandbox.user.delete(kind, name, namespace=namespace))

    def objects(self, resource: type[ResourceBase]) -> list[Manifest]:
        """Every object of a resource, by namespace and name."""
        kind = str(resource.resource_type.group_resource)
        return self._in_loop(lambda: self._open.sandbox.user.list(kind))

    def refuse(self, status: int, *, target: str = "", times: int = -1) -> None:
        """Answer writes with a status code: to one target (`pods/default/shop-0`) or all, so often or for good."""
        self._open.refusals.append(Refusal(status, target, times))

    def run(self) -> None:
        """Fold, decide and write until nothing is pending at this time.

        Raises LevelogError if that does not end.
        """
        self._call(self._open.run())

    def advance(self, time: timedelta) -> None:
        """Let time pass, then run."""
        self._clock.now += time
        self.run()

    def level(self, view: str, namespace: str, name: str) -> SeenLevel:
        """The level of a view's parent.

        Raises KeyError if there is no such view, or no level: the parent is gone, or was not evaluated yet.
        """
        source = self._source(view)
        resource = self._open.program.views[source].handler.resource
        parent = f"{resource.group_resource}/{namespace or CLUSTER_SCOPE}/{name}"
        return self._call(self._level(source, parent))

    @property
    def intents(self) -> list[SeenIntent]:
        """Every intent, in the order of decision."""
        return self._call(self._intents())

    @property
    def calls(self) -> dict[str, int]:
        """How often each function was called, by its name."""
        return {name.partition("/")[2]: n for name, n in self._open.decider.calls.functions.items()}

    @property
    def _open(self) -> World:
        if self._world is None:
            raise RuntimeError("use the simulation as: with Simulation(op) as simulation")
        return self._world

    def _source(self, view: str) -> str:
        found = [source for source in self._open.program.views if source.partition("/")[2] == view]
        if len(found) != 1:
            raise KeyError(
                f"there is {'no' if not found else 'more than one'} view {view!r}: {sorted(self._open.program.views)}"
            )
        return found[0]

    async def _level(self, source: str, parent: str) -> SeenLevel:
        world = self._open
        async with world.database.reading() as connection:
            rows = await read_levels(connection, world.scope.number, [parent])
        row = rows.get((source, parent))
        if row is None:
            raise KeyError(f"{source} has no level for {parent}: run() the simulation, or apply the object first")
        return seen_level(row, world.program.views[source].handler.returns)

    async def _intents(self) -> list[SeenIntent]:
        world = self._open
        async with world.database.reading() as connection:
            rows = await connection.execute(
                select(intents)
                .where(intents.c.scope == world.scope.number)
                .order_by(intents.c.decided_at, intents.c.round, intents.c.ordinal)
            )
            return [
                SeenIntent(
                    verb=row["verb"],
                    target=row["target"],
                    idempotency_key=row["key"],
                    state=row["state"],
                    body=msgspec.json.decode(row["body"]),
                    error=row["error"],
                )
                for row in rows.mappings()
            ]

    def _in_loop(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._call(call())

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
