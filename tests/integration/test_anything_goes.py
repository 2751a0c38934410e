"""Whatever a user's functions return, yield or raise: their own level says so in a sentence, and the loop goes on."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import count
from random import Random
from typing import Any, Final

import pytest
from greenlet import GreenletExit
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from levelog import Call, GiveUp, Index, Intent, Level, Operator, Resource, Retry, apply, call, delete, event, patch
from levelog.intents import IntentOptions
from levelog.testing import Simulation
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.run.examples import examples
from rigs.webs import deleted
from rigs.webs import web as web_record

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass


class ConfigMap(Resource, version="v1", plural="configmaps", kind="ConfigMap"):
    pass


class Broken(Exception):
    def __str__(self) -> str:
        raise ValueError("\ud800")


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
    st.sampled_from(
        [KeyboardInterrupt, GeneratorExit, GreenletExit, asyncio.CancelledError, StopIteration, StopAsyncIteration]
    ).map(lambda kind: kind()),
    st.sampled_from([RecursionError, MemoryError, Broken, TimeoutError, BaseException]).map(lambda kind: kind("x")),
    ANYTHING.map(SystemExit),
    ANYTHING.map(ValueError),
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
RESULTS: Final = either(ANYTHING) | (RETRIES | st.builds(GiveUp, TEXTS | ANYTHING)).map(raising)


class Does:
    """What the functions of the one operator do for the object `odd`; for `well` they do as they should."""

    def __init__(self) -> None:
        self.look: Callable[[], Any] = returning(Level(1, 1))
        self.index: Callable[[], Any] = dict
        self.act: list[Callable[[], Any]] = []
        self.effect: Callable[[], Any] = returning(None)
        self.when: Callable[[], Any] = returning(True)


def operator(does: Does) -> Operator:
    op = Operator("shop")

    @op.effect
    def page(request: Any) -> Any:
        raise AssertionError("a simulation calls no effect")

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

    return op


class Loop:
    """A simulation in which one object after the other meets odd functions."""

    def __init__(self, simulation: Simulation, operator: Operator, does: Does) -> None:
        self._simulation = simulation
        self._does = does
        self.page = operator.effects["page"].function
        self.reason = ""
        """Of the level of the object that was met last."""
        simulation.stand_in(self.page, lambda _: does.effect())
        simulation.apply(web("well"))
        simulation.run()

    def meets(self, **odd: Any) -> None:
        """Have an object for which functions do something odd; nothing but its own levels may suffer."""
        simulation = self._simulation
        for name, value in odd.items():
            setattr(self._does, name, value)
        simulation.apply(web("odd"))
        simulation.advance(timedelta(minutes=1))
        assert simulation.level("view", "default", "well").status == "in_sync"
        if "when" not in odd:
            level = simulation.level("view", "default", "odd")
            self.reason = level.reason
            assert level.reason or level.status in ("in_sync", "settling")
            assert level.reason == level.reason.encode().decode().replace("\0", "")
        for intent in simulation.intents[-3:]:
            assert intent.error == intent.error.encode().decode().replace("\0", "")
        vars(self._does).update(vars(Does()))
        simulation.delete(Web, "odd")
        simulation.run()
        assert simulation.level("reading", "default", "well").status == "in_sync"


@pytest.fixture
def loop() -> Iterator[Loop]:
    op = operator(does := Does())
    with Simulation(op) as simulation:
        yield Loop(simulation, op, does)


def web(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Web", "metadata": metadata}


MANY: Final = settings(
    max_examples=examples(60),
    deadline=None,
)
DRIFTS: Final = returning(Level(1, 0))
FOUND_WITHIN: Final = 200
"""Examples."""


@MANY
@given(LEVELS)
def test_a_view_may_return_and_raise_anything(loop: Loop, look: Callable[[], Any]) -> None:
    loop.meets(look=look)


@MANY
@given(ENTRIES)
def test_an_index_function_may_return_and_raise_anything(loop: Loop, index: Callable[[], Any]) -> None:
    loop.meets(index=index)


@MANY
@given(either(ANYTHING))
def test_a_filter_may_return_and_raise_anything(loop: Loop, when: Callable[[], Any]) -> None:
    loop.meets(when=when)


@MANY
@given(st.lists(INTENTS | ERRORS.map(raising), max_size=3))
def test_a_reconcile_function_may_yield_and_raise_anything(loop: Loop, act: list[Callable[[], Any]]) -> None:
    loop.meets(look=DRIFTS, act=act)


@MANY
@given(RESULTS)
def test_an_effect_may_return_and_raise_anything(loop: Loop, effect: Callable[[], Any]) -> None:
    loop.meets(look=DRIFTS, act=[made(call, loop.page, "x")], effect=effect)


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


@pytest.mark.parametrize("delay", [timedelta.max, timedelta.min, timedelta(0), 5, "soon"], ids=str)
def test_an_effect_with_any_delay_ends_no_process(loop: Loop, delay: Any) -> None:
    loop.meets(look=DRIFTS, act=[made(call, loop.page, "x")], effect=raising(Retry("later", delay=delay)))


@pytest.mark.parametrize(
    ("check", "without", "odd"),
    [
        ("levelog_processors.decide.views._moment", lambda asked: asked, LEVELS.map(lambda look: {"look": look})),
        (
            "levelog.calls.caller._contained",
            lambda function: function,
            ERRORS.map(lambda error: {"look": DRIFTS, "act": [raising(error)]}),
        ),
    ],
    ids=["time", "raise"],
)
def test_a_check_that_is_taken_away_is_missed(
    monkeypatch: pytest.MonkeyPatch, check: str, without: Callable[..., Any], odd: st.SearchStrategy[dict[str, Any]]
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

    monkeypatch.setattr(check, without)
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # what is said may be no text
    find(odd, fails, settings=settings(MANY, max_examples=FOUND_WITHIN, phases=[Phase.generate]), random=Random(1))


ONE_ODD: Final = st.one_of(
    LEVELS.map(lambda look: {"look": look}),
    ENTRIES.map(lambda index: {"index": index}),
    either(ANYTHING).map(lambda when: {"when": when}),
    st.lists(INTENTS | ERRORS.map(raising), max_size=3).map(lambda act: {"look": DRIFTS, "act": act}),
)


def test_a_processor_outlives_anything(nats_server: NatsServer, database_url: str) -> None:
    """Live: records come from NATS, and times are the database's."""
    does = Does()

    async def meet(stack: Processing, odd: dict[str, Any], version: int) -> None:
        vars(does).update(odd)
        await stack.folded(await stack.tell(web_record("odd", version, uid=f"odd-{version}")))
        vars(does).update(vars(Does()))
        gone = deleted(web_record("odd", version, uid=f"odd-{version}"), version + 1)
        await stack.folded(await stack.tell(gone, web_record("well", version + 2)))
        assert (await stack.level("well"))["status"] == "in_sync"

    with asyncio.Runner() as runner:
        stack = Processing(nats_server.url, database_url, [operator(does)])
        runner.run(stack.__aenter__())
        versions = count(10, 3)

        @settings(MANY, max_examples=examples(25))
        @given(ONE_ODD)
        def meets(odd: dict[str, Any]) -> None:
            runner.run(meet(stack, odd, next(versions)))

        try:
            runner.run(begin(stack))
            meets()
        finally:
            runner.run(stack.__aexit__(None, None, None))


async def begin(stack: Processing) -> None:
    """Have a processor, and an object that nothing odd is done with."""
    stack.start()
    await stack.folded(await stack.listed(web_record("well", 1)))


@pytest.mark.parametrize(
    ("asked", "looks"), [(timedelta(days=-1), 1), (timedelta(0), 1), (timedelta(microseconds=1), 61)]
)
def test_a_time_that_is_over_or_always_near_is_no_hot_loop(asked: timedelta, looks: int) -> None:
    op = Operator("shop")

    @op.view
    def view(web: Web, now: datetime) -> Level[int]:
        return Level(1, 1, recheck_at=now + asked)

    with Simulation(op) as simulation:
        simulation.apply(web("odd"))
        simulation.advance(timedelta(minutes=1))
        assert simulation.calls["view"] == looks
