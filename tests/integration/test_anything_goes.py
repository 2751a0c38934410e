"""Whatever a user's functions return, yield or raise: their own level says so in a sentence, and the loop goes on."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, nullcontext
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import count, cycle
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import Phase, example, find, given, settings
from hypothesis import strategies as st

from levelog import Call, GiveUp, Index, Intent, Level, Operator, Retry, apply, call, delete, event, patch
from levelog.intents import IntentOptions
from levelog.testing import Simulation
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import ObjectSeen
from levelog_kube.client import KubeClient, connect
from levelog_kube.discovery import cluster_uid
from levelog_sandbox import Sandbox
from levelog_store.tables import levels
from rigs.kinds import ConfigMap, Web, web
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.run.examples import examples
from rigs.waiting import until
from rigs.webs import deleted
from rigs.webs import web as web_record

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Broken(Exception):
    def __str__(self) -> str:
        raise ValueError("\ud800")


class Leaving(Exception):
    """Of which not even the message can be asked."""

    def __str__(self) -> str:
        raise SystemExit(3)


class BrokenZone(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        raise KeyError("zone")


class Unequal:
    def __eq__(self, _: object) -> bool:
        raise RuntimeError("\0")

    __hash__ = None  # type: ignore[assignment]


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


TEXTS: Final = st.sampled_from(
    ["", "a", "\ud800", "a\0b", "a\nb", "/", "a/b", ".", "..", "_", "x" * 5000, "ü" * 600, "%"]
)
NUMBERS: Final = st.sampled_from(
    [0, -1, 2**63, -(2**70), 10**400, 1e308, 5e-324, float("nan"), float("inf"), -0.0, True]
)
TIMES: Final = st.sampled_from(
    [
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-5))),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
        datetime(2026, 1, 1),  # noqa: DTZ001 - as a user may write it
        NOW,
        NOW + timedelta(microseconds=1),
        NOW.date(),
    ]
) | st.builds(datetime, st.just(2026), st.just(1), st.just(1), tzinfo=st.builds(BrokenZone))
UNSTORABLE: Final = ValueError("\0\ud800")
DELAYS: Final = st.sampled_from([timedelta.max, timedelta.min, timedelta(0), timedelta(microseconds=1)])
ODD: Final[st.SearchStrategy[Any]] = st.builds(
    lambda make: make(),
    st.sampled_from(
        [
            object,
            Unequal,
            cyclic,
            lambda: nested(200),
            lambda: nested(3000),
            lambda: print,
            lambda: Web,
            lambda: b"\xff",
        ]
    ),
)
ANYTHING: Final[st.SearchStrategy[Any]] = st.recursive(
    st.none() | TEXTS | NUMBERS | TIMES | DELAYS | ODD,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.tuples(inner, inner)
        | st.dictionaries(TEXTS | st.integers() | st.none() | st.tuples(TEXTS), inner, max_size=2)
        | st.sets(TEXTS | NUMBERS, max_size=2)
    ),
    max_leaves=4,
)
ERRORS: Final[st.SearchStrategy[BaseException]] = st.one_of(
    st.sampled_from([KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration, StopAsyncIteration]).map(
        lambda kind: kind()
    ),
    st.sampled_from([RecursionError, MemoryError, Broken, Leaving, TimeoutError, BaseException]).map(
        lambda kind: kind("x")
    ),
    ANYTHING.map(SystemExit),
    (TEXTS | ANYTHING).map(ValueError),
    st.just(BaseExceptionGroup("two", [KeyboardInterrupt(), SystemExit(2)])),
)


def raising(error: BaseException) -> Callable[[], Any]:
    def throw() -> Any:
        raise error

    return throw


def returning(value: Any) -> Callable[[], Any]:
    return lambda: value


def either(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Callable[[], Any]]:
    """A value that is returned, or an error that is raised."""
    return values.map(returning) | ERRORS.map(raising)


def made(function: Callable[..., Any], *given: Any, **options: Any) -> Callable[[], Any]:
    return lambda: function(*given, **options)


LEVELS: Final = either(
    st.builds(Level, ANYTHING, ANYTHING, recheck_at=TIMES | ANYTHING)
    | st.builds(Level, st.just(1), st.just(1), recheck_at=TIMES | ANYTHING)
    | st.builds(lambda: Level.__new__(Level))
    | ANYTHING
)
ENTRIES: Final = either(
    st.lists(st.tuples(ANYTHING, ANYTHING), max_size=3) | st.dictionaries(TEXTS, ANYTHING, max_size=2) | ANYTHING
)
MANIFESTS: Final = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1") | ANYTHING,
        "kind": st.just("ConfigMap") | ANYTHING,
        "metadata": ANYTHING
        | st.fixed_dictionaries(
            {"name": TEXTS | ANYTHING}, optional={"namespace": TEXTS | ANYTHING, "labels": ANYTHING}
        ),
    },
    optional={"data": ANYTHING, "spec": ANYTHING},
)
CHILDREN: Final = either(MANIFESTS | st.lists(MANIFESTS | ANYTHING, max_size=3) | ANYTHING)
OPTIONS: Final = st.builds(
    IntentOptions, force=ANYTHING, patch_type=ANYTHING, propagation=ANYTHING, name=TEXTS | ANYTHING
)
INTENTS: Final = st.one_of(
    st.builds(made, st.just(apply), MANIFESTS),
    st.builds(made, st.just(apply), MANIFESTS, force=ANYTHING, owned=ANYTHING, if_unchanged=ANYTHING),
    st.builds(made, st.just(patch), st.just(ConfigMap), TEXTS | ANYTHING, ANYTHING, namespace=TEXTS | ANYTHING),
    st.builds(made, st.just(delete), st.just(ConfigMap), TEXTS | ANYTHING, propagation=ANYTHING),
    st.builds(made, st.just(event), TEXTS | ANYTHING, TEXTS | ANYTHING, action=TEXTS | ANYTHING),
    st.builds(made, st.just(Intent), verb=ANYTHING, name=TEXTS, body=ANYTHING, options=OPTIONS | ANYTHING),
    st.builds(made, st.just(Intent), verb=st.just("delete"), resource=st.just(ConfigMap), name=TEXTS, options=OPTIONS),
    ANYTHING.map(returning),
)
RETRIES: Final = st.builds(Retry, TEXTS | ANYTHING, delay=DELAYS | ANYTHING)


def cancel() -> None:
    """End the task that asks, as one that is async can."""
    if task := asyncio.current_task():
        task.cancel()


RESULTS: Final = either(ANYTHING) | (RETRIES | st.builds(GiveUp, TEXTS | ANYTHING)).map(raising)


class Does:
    """What the functions of the one operator do for the object `odd`; for `well` they do as they should."""

    def __init__(self) -> None:
        self.look: Callable[[], Any] = returning(Level(1, 1))
        self.index: Callable[[], Any] = dict
        self.act: list[Callable[[], Any]] = []
        self.act_later: list[Callable[[], Any]] = []
        self.children: Callable[[], Any] = list
        self.effect: Callable[[], Any] = returning(None)
        self.handler: Callable[[], Any] = returning(None)
        self.told: set[str] = set()
        """Record handlers, and what they were told of."""
        self.when: Callable[[], Any] = returning(True)


def operator(does: Does) -> Operator:
    op = Operator("shop")

    @op.effect
    def page(request: Any) -> Any:
        return does.effect()

    @op.effect
    async def send(request: Any) -> Any:
        return does.effect()

    @op.index
    def names(web: Web) -> Any:
        return does.index() if web.metadata.name == "odd" else {web.metadata.name: 1}

    def chosen(web: Web) -> object:
        return does.when() if web.metadata.name == "odd" else True

    @op.view(when=chosen)
    def view(web: Web, page: Index[str, Call[Any, Any]]) -> Level[Any]:
        return does.look() if web.metadata.name == "odd" else Level(1, 1)

    @op.view(when=chosen)
    def reading(web: Web, names: Index[Any, Any]) -> Level[Any]:
        return Level(1, len(names["well"]))

    @op.reconcile(view)
    def act(web: Web) -> Iterator[Intent]:
        for each in does.act:
            yield each()

    @op.view
    def awaited(web: Web) -> Level[int]:
        return Level(1, 0 if web.metadata.name == "odd" and does.act_later else 1)

    @op.reconcile(awaited)
    async def act_later(web: Web) -> AsyncIterator[Intent]:
        for each in does.act_later:
            yield each()

    @op.children(Web, of=ConfigMap)
    def parts(web: Web) -> Any:
        return does.children() if web.metadata.name == "odd" else []

    @op.on.create
    async def handle(web: Web) -> Any:
        result = does.handler() if web.metadata.name == "odd" else None
        await asyncio.sleep(0)
        return result

    @op.on.create
    def handle_plainly(web: Web) -> Any:
        return does.handler() if web.metadata.name == "odd" else None

    @op.on.create(writes={ConfigMap: ["apply", "patch", "delete"]})
    def publish(web: Web) -> Iterator[Intent]:
        if web.metadata.name == "odd":
            yield does.handler()

    @op.on.event(when=chosen)
    async def hear(web: Web) -> Any:
        result = does.handler() if web.metadata.name == "odd" else None
        await asyncio.sleep(0)
        does.told.add(f"hear {web.metadata.name}")
        return result

    @op.on.event(labels={"app": lambda _: bool(does.when())})
    def hear_plainly(web: Web) -> Any:
        does.told.add(f"hear_plainly {web.metadata.name}")
        return does.handler() if web.metadata.name == "odd" else None

    return op


VIEWS: Final = ("view", "awaited", "parts")
EFFECTS: Final = ("page", "send")


def check(status: str, reason: str) -> None:
    """A level either goes on or says why not, in a text that every database takes."""
    assert reason or status in ("in_sync", "settling")
    assert reason == reason.encode().decode().replace("\0", "")


def calling(op: Operator) -> list[dict[str, Any]]:
    """What has each kind of effect called."""
    page, send = (op.effects[name].function for name in EFFECTS)
    return [{"look": DRIFTS, "act": [made(call, page, "x")]}, {"look": DRIFTS, "act": [made(call, send, "x")]}]


class Loop:
    """A simulation in which one object after the other meets odd functions."""

    def __init__(self, simulation: Simulation, operator: Operator, does: Does) -> None:
        self._simulation = simulation
        self._does = does
        self._calling = cycle(calling(operator))
        self.reason = ""
        """Of the level of the object that was met last."""
        for name in EFFECTS:  # which a simulation does not call
            simulation.stub(operator.effects[name].function, lambda _: does.effect())
        simulation.apply(web("well"))
        simulation.run()

    def meets(self, **odd: Any) -> None:
        """Have an object for which functions do something odd; nothing but its own levels may suffer."""
        simulation = self._simulation
        vars(self._does).update(next(self._calling) | odd if "effect" in odd else odd)
        simulation.apply(web("odd"))
        simulation.advance(timedelta(minutes=1))
        assert simulation.level("view", "default", "well").status == "in_sync"
        if "when" not in odd:
            levels = [simulation.level(view, "default", "odd") for view in VIEWS]
            for level in levels:
                check(level.status, level.reason)
            self.reason = levels[0].reason
        for intent in simulation.intents[-3:]:
            assert intent.error == intent.error.encode().decode().replace("\0", "")
            assert ObjectKey.parse(intent.target).is_sound
        vars(self._does).update(vars(Does()))
        simulation.delete(Web, "odd")
        simulation.run()
        assert simulation.level("reading", "default", "well").status == "in_sync"


@pytest.fixture
def loop() -> Iterator[Loop]:
    op = operator(does := Does())
    with Simulation(op) as simulation:
        yield Loop(simulation, op, does)


MANY: Final = settings(max_examples=examples(60), deadline=None)
DRIFTS: Final = returning(Level(1, 0))
FOUND_WITHIN: Final = 200
"""Examples."""


ODD_FUNCTIONS: Final[dict[str, st.SearchStrategy[dict[str, Any]]]] = {
    "view": LEVELS.map(lambda look: {"look": look}),
    "index": ENTRIES.map(lambda index: {"index": index}),
    "filter": either(ANYTHING).map(lambda when: {"when": when}),
    "reconcile": st.lists(INTENTS | ERRORS.map(raising), max_size=3).map(lambda act: {"look": DRIFTS, "act": act}),
    "async reconcile": st.lists(INTENTS | ERRORS.map(raising), min_size=1, max_size=3).map(
        lambda act: {"act_later": act}
    ),
    "children": CHILDREN.map(lambda children: {"children": children}),
    "effect": RESULTS.map(lambda effect: {"effect": effect}),
    "handler": (RESULTS | INTENTS | st.just(cancel)).map(lambda handler: {"handler": handler}),
}


@pytest.mark.parametrize("odd", ODD_FUNCTIONS.values(), ids=ODD_FUNCTIONS)
@MANY
@given(st.data())
def test_a_function_may_return_yield_and_raise_anything(
    loop: Loop, odd: st.SearchStrategy[dict[str, Any]], data: st.DataObject
) -> None:
    loop.meets(**data.draw(odd))


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-5))), "after year 9999 in UTC"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), "before year 1 or"),
        (datetime(2026, 1, 1), "recheck_at=2026-01-01T00:00:00 has no time zone: datetime(…, tzinfo=UTC)"),  # noqa: DTZ001
        ("2026-01-01T00:00:00Z", "recheck_at is of type str, not a datetime"),
        (5, "recheck_at is of type int, not a datetime"),
        (timedelta(seconds=5), "recheck_at is of type timedelta, not a datetime"),
        (NOW.date(), "recheck_at is of type date, not a datetime"),
    ],
    ids=str,
)
def test_a_level_with_no_time_to_look_again_fails_with_a_sentence(loop: Loop, asked: Any, sentence: str) -> None:
    loop.meets(look=returning(Level(1, 1, recheck_at=asked)))
    assert sentence in loop.reason


@pytest.mark.long
@pytest.mark.parametrize(
    ("checks", "without", "odd"),
    [
        (["levelog_processors.decide.viewcalls._moment"], lambda asked: asked, LEVELS.map(lambda look: {"look": look})),
        (
            ["levelog.calls.caller.containing"],
            lambda *_: nullcontext(),
            ERRORS.map(lambda error: {"look": DRIFTS, "act": [raising(error)]}),
        ),
        (
            ["levelog.calls.faults.storable", "levelog_actuator.results.storable"],
            str,
            LEVELS.map(lambda look: {"look": look}),
        ),
        (["levelog.intents._refuse_names"], lambda _: None, INTENTS.map(lambda act: {"look": DRIFTS, "act": [act]})),
    ],
    ids=["time", "raise", "text", "name"],
)
def test_a_check_that_is_taken_away_is_missed(
    monkeypatch: pytest.MonkeyPatch,
    checks: list[str],
    without: Callable[..., Any],
    odd: st.SearchStrategy[dict[str, Any]],
) -> None:
    """What is searched above does find its faults."""

    def fails(odd: dict[str, Any]) -> bool:
        op = operator(does := Does())
        try:
            with Simulation(op) as simulation:
                Loop(simulation, op, does).meets(**odd)
        except BaseException:  # noqa: BLE001 - which may end the process
            return True
        return False

    for check in checks:
        monkeypatch.setattr(check, without)
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # what is said may be no text
    find(odd, fails, settings=settings(MANY, max_examples=FOUND_WITHIN, phases=[Phase.generate]), random=Random(1))


def recorded(name: str, version: int, *, uid: str = "") -> ObjectSeen:
    return web_record(name, version, uid=uid, creationTimestamp="2026-01-01T00:00:00Z")


class Live:
    """A processor and an actuator in which one object after the other meets odd functions."""

    def __init__(self, stack: Processing, operator: Operator, does: Does) -> None:
        self._stack = stack
        self._does = does
        self._versions = count(10, 3)
        self._calling = cycle(calling(operator))

    async def begin(self, client: KubeClient) -> None:
        """Have an object that nothing odd is done with."""
        self._stack.start()
        self._stack.actuate(client)
        resources = [each.resource_type.group_resource for each in (Web, ConfigMap)]
        await self._stack.folded(await self._stack.listed(recorded("well", 1), of=resources))

    async def meets(self, odd: dict[str, Any]) -> None:
        """Have an object for which functions do something odd; nothing but its own levels may suffer."""
        stack, version = self._stack, next(self._versions)
        vars(self._does).update(next(self._calling) | odd if "effect" in odd else odd)
        record = recorded("odd", version, uid=f"odd-{version}")
        await stack.folded(await stack.tell(record))
        await stack.tried()
        for level in await stack.rows(levels):
            check(level["status"], level["reason"])
        vars(self._does).update(vars(Does()))
        await stack.folded(await stack.tell(deleted(record, version + 1), recorded("well", version + 2)))
        await until(lambda: self._does.told >= {"hear well", "hear_plainly well"}, "what the record handlers are told")
        own = [level for level in await stack.rows(levels) if level["parent"].endswith("/well")]
        assert {level["status"] for level in own} == {"in_sync"}


def test_invariant_14_processor_and_actuator_outlive_anything(
    nats_server: NatsServer, database_url: str, tmp_path: Path
) -> None:
    """Live: records come from NATS, times are the database's, and writes go to an API."""
    op = operator(does := Does())
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            sandbox = runner.run(stack.enter_async_context(Sandbox()))
            client = runner.run(stack.enter_async_context(runner.run(connect(sandbox.kubeconfig(tmp_path / "config")))))
            processing = Processing(nats_server.url, database_url, [op], cluster=runner.run(cluster_uid(client)))
            live = Live(runner.run(stack.enter_async_context(processing)), op, does)
            runner.run(live.begin(client))

            @settings(MANY, max_examples=examples(60))
            @example({"look": raising(UNSTORABLE)})
            @example({"effect": raising(UNSTORABLE)})
            @example({"look": DRIFTS, "act": [raising(UNSTORABLE)]})
            @example({"act_later": [raising(UNSTORABLE)]})
            @example({"children": raising(UNSTORABLE)})
            @example({"handler": raising(Leaving())})
            @example({"handler": cancel})
            @example({"when": raising(SystemExit(3))})
            @given(st.one_of(*ODD_FUNCTIONS.values()))
            def meets(odd: dict[str, Any]) -> None:
                runner.run(live.meets(odd))

            meets()
        finally:
            runner.run(stack.aclose())
