"""Simulation: an operator's whole loop, one step at a time."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, Protocol, Self, TypeVar

import msgspec
from sqlalchemy import select

from levelog.operator import Operator
from levelog.resources import External, Manifest, ResourceBase
from levelog_base.wire.objects import ObjectKey
from levelog_sandbox import StatusError, User
from levelog_store.tables import intents
from levelog_testing.clock import Clock
from levelog_testing.loopthread import LoopThread
from levelog_testing.readings import NotSeen, SeenEvent, SeenIntent, SeenLevel, seen_event, seen_level
from levelog_testing.world import Refusal, World, open_world

T = TypeVar("T")
RequestT = TypeVar("RequestT")

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SHOWN: Final = 5


class Simulation:
    """A cluster in memory with an operator on it: fold, decisions and writes are the live code. It needs no server.

    Use it once, as `with Simulation(op) as simulation`, also in tests with a running event loop. Pass operators that
    run together to one simulation. `now` is the time at which it begins; only `advance` moves it. With `echo=False` the
    operator's own writes do not reach the log until you set `echo` to True. `kubeconfig` is a path to which it writes a
    kubeconfig of its cluster, before start-up hooks run, for functions with a client of their own.

    What it does not imitate: its processes never fail, and the cluster is the sandbox, whose docstring lists further
    limits. It serves the built-in kinds and the resources that the operators' classes declare, those without
    validation and with every field that is written; apply a CustomResourceDefinition for other resources, or to have
    objects validated and unknown fields dropped.
    """

    def __init__(
        self, *operators: Operator, echo: bool = True, now: datetime = BEGIN, kubeconfig: Path | None = None
    ) -> None:
        self._operators = operators
        self._echo = echo
        self._clock = Clock(now)
        self._kubeconfig = kubeconfig
        self._stack = AsyncExitStack()
        self._thread: LoopThread | None = None
        self._world: World | None = None
        self._is_closed = False

    def __enter__(self) -> Self:
        if self._thread is not None or self._is_closed:
            raise RuntimeError("a simulation is entered once: make another one")
        self._thread = LoopThread("the simulation's thread")
        try:
            world = open_world(self._operators, self._clock, self._kubeconfig)
            self._world = self._call(self._stack.enter_async_context(world))
        except BaseException:
            self._end()
            raise
        self.echo = self._echo
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._world = None
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
        """Create or change an object by server-side apply, as a user does; returns what the cluster stores.

        Raises StatusError, with the `code` and message of the API, if the cluster refuses it.
        """
        world = self._open
        return self._in_loop(lambda: world.user_apply(manifest))

    def patch_status(
        self, resource: type[ResourceBase], name: str, status: Mapping[str, Any], *, namespace: str = "default"
    ) -> Manifest:
        """Merge a patch into an object's status, as another controller does. Raises like `apply`."""
        change = {"status": dict(status)}
        options = {"namespace": namespace, "subresource": "status"}
        return self._as_user(resource, lambda user, kind: user.patch(kind, name, change, **options))

    def patch(
        self, resource: type[ResourceBase], name: str, change: Mapping[str, Any], *, namespace: str = "default"
    ) -> Manifest:
        """Merge a patch into an object, like somebody who edits it by hand."""
        return self._as_user(resource, lambda user, kind: user.patch(kind, name, dict(change), namespace=namespace))

    def mutate(self, resource: type[ResourceBase], change: Callable[[Manifest], Manifest]) -> None:
        """Change every later write of a resource by a function, as a mutating webhook does."""
        kind = str(resource.resource_type.group_resource)
        self._in_loop(lambda: self._open.sandbox.mutate(kind, change))

    def delete(self, resource: type[ResourceBase], name: str, *, namespace: str = "default") -> None:
        """Delete an object and its dependents, as a user does. Raises like `apply`, also for an absent object."""
        self._as_user(resource, lambda user, kind: user.delete(kind, name, namespace=namespace))

    def objects(self, resource: type[ResourceBase]) -> list[Manifest]:
        """Every object of a resource, by namespace and name."""
        return self._as_user(resource, lambda user, kind: user.list(kind))

    def observe(self, record: type[External], records: Iterable[External]) -> None:
        """Let a source list this set of records; a record that is no longer in it is gone.

        A source's set is empty at first. A simulation calls the source itself only for `poll`. Raises LevelogError for
        a record that cannot be recorded.
        """
        world = self._open
        self._call(world.fold(world.externals.observe(record, records, self.now)))

    def poll(self, record: type[External]) -> None:
        """Call the source of a class once, as ingest does; an exception has the effect of `fail_source`."""
        self._call(self._poll(record))

    def fail_source(self, record: type[External], error: str) -> None:
        """Let the source of a class fail: its records stay, and indices of them are stale until it answers again."""
        world = self._open
        self._call(world.fold(world.externals.lose(record, error, self.now)))

    def refuse(self, status: int, *, target: str = "", times: int = -1) -> None:
        """Let the cluster answer the operator's writes with an HTTP status instead of carrying them out.

        This concerns all writes, or those to one target, named as in intents (`pods/default/shop-0`); for good, or the
        given number of times. 422 fails the level for 16 minutes; 409, 429 and 503 are retried soon. For a conflict
        over fields, `apply` them yourself.

        Raises ValueError for a target that no write can have, since the cluster does not serve its resource.
        """
        if not 400 <= status <= 599:
            raise ValueError(f"an API server refuses with a status of 400 to 599, not {status}")
        if target:
            self._check_served(ObjectKey.parse(target), target)
        self._open.refusals.append(Refusal(status, target, times))

    def stub(self, effect: Callable[Concatenate[RequestT, ...], Any], function: Callable[[RequestT], Any]) -> None:
        """Replace an effect by a function of the request, which returns a result or raises.

        A simulation does not call effects themselves: without a stub they return None. `Retry`, `GiveUp` and other
        exceptions work as they do live. `intents` has the requests, and `calls` their number.

        Raises KeyError for a function that is not an effect of the operators.
        """
        world = self._open
        self._in_loop(lambda: world.effects.put(effect, function))

    def call_through(self, *effects: Callable[..., Any]) -> None:
        """Call the real functions of these effects, handlers, timers and daemons from now on.

        Raises KeyError for a function that is not registered in the operators.
        """
        world = self._open
        self._in_loop(lambda: world.effects.call_through(effects))

    @property
    def events(self) -> list[SeenEvent]:
        """Every Kubernetes Event in the cluster, by namespace and name."""
        user = self._open.sandbox.user
        return [seen_event(found) for found in self._in_loop(lambda: user.list("events.events.k8s.io"))]

    def run(self) -> None:
        """Fold, decide and write until nothing is pending at the current time.

        Raises LevelogError if that does not end.
        """
        self._call(self._open.run())

    def advance(self, time: timedelta) -> None:
        """Run, then let time pass; it stops at each moment at which something is due, and at the end, and runs.

        So a level with a `recheck_at` each minute is evaluated sixty times in an hour, at those times. Raises
        LevelogError like `run`, and ValueError for a negative time.
        """
        self._call(self._open.advance(time))

    def level(self, view: str, namespace: str | None, name: str) -> SeenLevel:
        """The level of a view's parent, as of the last `run`.

        `view` is its name, or `operator/view` if several operators have a view of that name. For a parent without a
        namespace pass "" or None.

        Raises KeyError if there is no such view or no level: the parent is gone, or was not evaluated yet.
        """
        source = self._source(view)
        resource = self._open.program.views[source].handler.resource
        parent = str(resource.key(namespace or "", name))
        levels = self._open.engine.state.levels
        if (row := levels.get((source, parent))) is None:
            held = sorted(of for view, of in levels if view == source)
            shown = ", ".join(held[:_SHOWN]) + (f" and {len(held) - _SHOWN} more" if len(held) > _SHOWN else "")
            raise NotSeen(
                f"view {source} has no level for {parent}: apply the object and run() the simulation; "
                f"it has {'one for ' + shown if held else 'none at all'}"
            )
        return seen_level(row, self._open.program.views[source].handler.returns)

    @property
    def intents(self) -> list[SeenIntent]:
        """Every intent, in the order of the decisions."""
        return self._call(_intents(self._open))

    @property
    def calls(self) -> dict[str, int]:
        """The number of calls of each view, reconcile function and effect, by name, without those never called."""
        return {name.partition("/")[2]: n for name, n in self._open.engine.evaluator.calls.functions.items()}

    @property
    def _open(self) -> World:
        if self._world is None:
            state = "is closed: ask it inside" if self._is_closed else "is not open: use it inside"
            raise RuntimeError(f"the simulation {state} `with Simulation(op) as simulation:`")
        return self._world

    def _source(self, view: str) -> str:
        views = sorted(self._open.program.views)
        found = [source for source in views if view in (source, source.partition("/")[2])]
        if len(found) != 1:
            what = "more than one view is named" if found else "there is no view"
            raise NotSeen(f"{what} {view!r}; views are: {', '.join(found or views)}")
        return found[0]

    async def _poll(self, record: type[External]) -> None:
        world = self._open
        await world.fold(await world.externals.poll(record, self.now))

    def _check_served(self, key: ObjectKey, target: str) -> None:
        user, resource = self._open.sandbox.user, str(key.group_resource)
        try:
            self._in_loop(lambda: user.list(resource))
        except StatusError as error:
            raise ValueError(
                f"refuse {target}: the cluster serves no resource {resource!r}: write its plural, and its group if it "
                "has one, as in pods/default/shop-0 or webs.example.com/default/shop"
            ) from error

    def _as_user(self, resource: type[ResourceBase], act: Callable[[User, str], T]) -> T:
        user, kind = self._open.sandbox.user, str(resource.resource_type.group_resource)
        return self._in_loop(lambda: act(user, kind))

    def _in_loop(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._call(call())

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self._thread is not None  # noqa: S101 - there is a world only while there is a thread
        return self._thread.call(coroutine)

    def _end(self) -> None:
        thread, self._thread, self._is_closed = self._thread, None, True
        if thread is not None:
            thread.end()


async def _intents(world: World) -> list[SeenIntent]:
    async with world.database.reading() as connection:
        rows = await connection.execute(
            select(intents)
            .where(intents.c.scope == world.scope.number)
            .order_by(intents.c.decided_at, intents.c.round, intents.c.ordinal)
        )
        return [
            SeenIntent(
                idempotency_key=row["key"],
                verb=row["verb"],
                target=row["target"],
                body=msgspec.json.decode(row["body"]),
                state=row["state"],
                attempts=row["attempts"],
                error=row["error"],
            )
            for row in rows.mappings()
        ]


class Simulate(Protocol):
    """The fixture `simulate`: it starts simulations, which end with the test."""

    def __call__(self, *operators: Operator, echo: bool = True, now: datetime = BEGIN) -> Simulation:
        """Start a simulation of operators; the options are those of Simulation."""
        ...
