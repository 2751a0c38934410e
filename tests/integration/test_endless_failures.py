"""What failed for days recovers within the pace's limit once its cause is gone, and says so meanwhile."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from levelog import Call, GiveUp, Index, Intent, Level, Operator, Owner, Resource, Struct, apply, call
from levelog.testing import Simulation
from levelog_store.look.levelpages import read_level_lines
from rigs.kinds import manifest
from rigs.simulated import run_with
from rigs.typed import ConfigMap

LIMIT = timedelta(minutes=16)
DAYS = timedelta(days=3)
OP = Operator("webs")
CALLED = Operator("calls")


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: dict[str, Any]


@OP.index
def maps(each: ConfigMap) -> Iterator[tuple[Owner, str]]:
    if owner := each.metadata.controlled_by(Web):
        yield owner, each.metadata.name


@OP.view
def made(web: Web, maps: Index[Owner, str]) -> Level[list[str]]:
    return Level(desired=[web.metadata.name], actual=list(maps[web.as_owner]))


@OP.reconcile(made)
def make(web: Web) -> Iterator[Intent]:
    yield apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": web.metadata.name}})


class Bill(Struct):
    team: str


@CALLED.effect
def bill(request: Bill) -> str:
    return "billed"


@CALLED.view
def billed(web: Web, bill: Index[str, Call[Bill, str]]) -> Level[list[str]]:
    return Level(desired=[web.spec["team"]], actual=[each.request.team for each in bill[web.metadata.uid]])


@CALLED.reconcile(billed)
def send_bill(web: Web) -> Iterator[Intent]:
    yield call(bill, Bill(team=web.spec["team"]))


def a_web(team: str = "a") -> dict[str, Any]:
    return manifest("Web", "shop", team=team)


def status(simulation: Simulation, view: str) -> str:
    return simulation.level(view, "default", "shop").status


def reason(simulation: Simulation) -> str:
    """As `levelog levels` shows it."""
    world = simulation._open  # pyright: ignore[reportPrivateUsage]

    async def read() -> str:
        async with world.database.reading() as connection:
            [line] = await read_level_lines(connection, world.scope)
            return line.reason

    return simulation._call(read())  # pyright: ignore[reportPrivateUsage]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(403, id="by RBAC"),
        pytest.param(422, id="by a schema"),
        pytest.param(400, id="by a webhook without a code"),
        503,
    ],
)
def test_a_write_that_was_refused_for_three_days_goes_through_within_the_limit(refusal: int) -> None:
    with Simulation(OP) as simulation:
        simulation.refuse(refusal)
        run_with(simulation, a_web())
        simulation.advance(DAYS)
        assert status(simulation, "made") in ("failed", "settling")
        sent = sum(each.attempts for each in simulation.intents)
        assert 3 * 24 * 60 / 16 * 0.9 < sent < 3000, "tried for as long, and ever less often"
        said = reason(simulation)
        assert " times since 2026-01-0" in said, said
        assert ", the next time at 2026-01-04 00:" in said, said
        simulation._open.refusals.clear()  # pyright: ignore[reportPrivateUsage]
        simulation.advance(LIMIT)
        assert status(simulation, "made") == "in_sync"


def test_an_effect_that_raised_for_a_day_is_called_within_the_limit_with_the_same_key() -> None:
    with Simulation(CALLED) as simulation:
        simulation.stub(bill, away)
        run_with(simulation, a_web())
        simulation.advance(timedelta(days=1))
        assert status(simulation, "billed") == "settling"
        assert 80 < simulation.calls["bill"] < 200
        assert "times since 2026-01-01 00:00:00 UTC, the next time at 2026-01-02 00:" in reason(simulation)
        simulation.stub(bill, lambda _: "billed")
        simulation.advance(LIMIT)
        assert status(simulation, "billed") == "in_sync"
        assert len({each.idempotency_key for each in simulation.intents}) == 1


def away(_: Bill) -> str:
    raise ConnectionResetError("by peer")


def gives_up(_: Bill) -> str:
    raise GiveUp("there is no such team")


@pytest.mark.parametrize("fails", [away, gives_up])
@pytest.mark.parametrize("time", [timedelta(seconds=10), timedelta(hours=1)], ids=["in doubt", "late"])
def test_a_call_that_keeps_failing_gives_way_to_what_its_view_sees_next(
    fails: Callable[[Bill], str], time: timedelta
) -> None:
    def fails_for_a(request: Bill) -> str:
        return fails(request) if request.team == "a" else request.team

    with Simulation(CALLED) as simulation:
        simulation.stub(bill, fails_for_a)
        run_with(simulation, a_web("a"))
        simulation.advance(time)
        simulation.apply(a_web("b"))
        simulation.advance(LIMIT)
        assert status(simulation, "billed") == "in_sync"
        assert [each.state for each in simulation.intents][-1] == "settled"


def recovers_and_is_soon_wrong_again(
    simulation: Simulation, fail: Callable[[], None], recover: Callable[[], None]
) -> None:
    """Let it fail for an hour, recover, and be wrong half a minute later."""
    fail()
    run_with(simulation, a_web())
    simulation.advance(timedelta(hours=1))
    assert " times since 2026-01-01 00:00:00 UTC" in reason(simulation)
    simulation.apply(a_web("z"))  # tried at once
    simulation.run()
    recover()
    run_with(simulation, a_web("b"))
    begun = simulation.now
    while status(simulation, "made") != "in_sync" and simulation.now < begun + LIMIT:
        simulation.advance(timedelta(seconds=10))
    assert status(simulation, "made") == "in_sync"
    simulation.advance(timedelta(seconds=30))
    fail()
    simulation.apply(a_web("c"))
    if simulation.objects(ConfigMap):
        simulation.delete(ConfigMap, "shop")
    simulation.run()
    assert f"; tried once since {simulation.now:%Y-%m-%d %H:%M:%S} UTC" in reason(simulation)


@pytest.mark.parametrize("part", ["view", "reconcile"])
@pytest.mark.parametrize("is_needed", [True, False], ids=["recovers by a write", "recovers without"])
def test_tries_are_counted_since_a_function_last_succeeded(part: str, *, is_needed: bool) -> None:
    op, faults = Operator("webs"), set[str]()

    @op.index
    def maps(each: ConfigMap) -> Iterator[tuple[Owner, str]]:
        if owner := each.metadata.controlled_by(Web):
            yield owner, each.metadata.name

    @op.view
    def made(web: Web, maps: Index[Owner, str]) -> Level[list[str]]:
        if "view" in faults:
            raise MemoryError(web.spec["team"])
        is_wanted = is_needed or web.spec["team"] != "b"
        return Level(desired=[web.metadata.name] if is_wanted else [], actual=list(maps[web.as_owner]))

    @op.reconcile(made)
    def make(web: Web) -> Iterator[Intent]:
        if "reconcile" in faults:
            raise MemoryError(web.spec["team"])
        yield apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": web.metadata.name}})

    with Simulation(op) as simulation:
        recovers_and_is_soon_wrong_again(simulation, lambda: faults.add(part), faults.clear)


def test_tries_of_a_write_are_counted_since_its_level_was_last_in_sync() -> None:
    with Simulation(OP) as simulation:
        refusals = simulation._open.refusals  # pyright: ignore[reportPrivateUsage]
        recovers_and_is_soon_wrong_again(simulation, lambda: simulation.refuse(403), refusals.clear)
