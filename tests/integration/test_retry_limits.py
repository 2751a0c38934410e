"""How often and for how long a function that fails is tried: each kind has its own limits, or its operator's."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from levelog import GiveUp, Intent, Level, Operator, Retry, call
from levelog.testing import Simulation
from rigs.kinds import web
from rigs.simulated import simulated
from rigs.typed import Web

SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)
KINDS: dict[str, Callable[..., Any]] = {
    "handler": lambda op, **limits: op.on.create(**limits),
    "timer": lambda op, **limits: op.timer(every=DAY, **limits),
    "daemon": lambda op, **limits: op.daemon(**limits),
    "record handler": lambda op, **limits: op.on.event(**limits),
    "timer without records": lambda op, **limits: op.timer(every=DAY, recorded=False, **limits),
}
KEEP_LEVELS = ("handler", "timer", "daemon")
"""Kinds whose level is failed once they have given up; the others go on with what comes next."""
FAILURES: dict[str, tuple[Exception, dict[str, Any], int]] = {
    "gives up": (GiveUp("never"), {"retries": 2}, 1),
    "fails too often": (ValueError("no"), {"retries": 2}, 3),
    "waits too often": (Retry("no", delay=10 * SECOND), {"retries": 2}, 3),
    "fails for too long": (ValueError("no"), {"give_up_after": 25 * SECOND}, 3),
    "waits for too long": (Retry("no", delay=5 * SECOND), {"give_up_after": 25 * SECOND}, 5),
}
"""What it raises, its limits, and the attempts that these allow; a daemon runs for as long as it likes."""


@pytest.mark.parametrize(
    ("kind", "failure"),
    [(kind, each) for kind in KINDS for each in FAILURES if kind != "daemon" or "too long" not in each],
)
def test_a_function_is_given_up_at_its_limit_or_that_of_its_operator_and_called_for_what_comes_next(
    kind: str, failure: str
) -> None:
    """Nor does it hold up that of another operator which has its name."""
    error, limited, attempts = FAILURES[failure]
    limits: dict[str, Any] = {"backoff": 10 * SECOND, **limited}
    own, general = Operator("own"), Operator("general", **limits)
    called: dict[str, list[tuple[str, int]]] = {"own": [], "general": []}

    def noting(name: str) -> Callable[..., Any]:
        async def function(web: Web, retry: int) -> None:
            called[name].append((web.spec.image, retry))
            if web.spec.image == "a":
                raise error

        return function

    functions = KINDS[kind](own, **limits)(noting("own")), KINDS[kind](general)(noting("general"))
    with Simulation(own, general) as simulation:
        simulation.call_through(*functions)
        simulation.apply(web(image="a"))
        simulation.advance(10 * MINUTE)
        tries = [("a", retry) for retry in range(attempts)]
        assert called == {"own": tries, "general": tries}
        for name in called if kind in KEEP_LEVELS else ():
            level = simulation.level(f"{name}/function", "default", "shop")
            assert (level.status, str(error) in level.reason) == ("failed", True), level
        if "timer" in kind:
            simulation.advance(DAY)
            assert called == {"own": tries * 2, "general": tries * 2}, (
                "it is due again, although its object is as before"
            )
        for each in called.values():
            each.clear()
        simulation.apply(web(image="b"))
        simulation.advance(DAY)
        assert [set(each) for each in called.values()] == [{("b", 0)}] * 2


def test_limits_of_an_operator_hold_for_each_function_that_says_nothing_else() -> None:
    op = Operator("limited", retries=2, backoff=MINUTE, give_up_after=timedelta(hours=1))
    called: list[str] = []

    def note(name: str) -> None:
        called.append(name)
        raise ValueError("no")

    @op.on.create(retries=0)
    def once(web: Web) -> None:
        note("once")

    @op.on.create(retries=1000)
    def timed(web: Web) -> None:
        note("timed")

    @op.effect
    def paged(request: str) -> None:
        note("paged")

    @op.effect(retries=0)
    def rung(request: str) -> None:
        note("rung")

    @op.view
    def told(web: Web) -> Level[int]:
        return Level(desired=1, actual=0)

    @op.reconcile(told)
    def tell(web: Web) -> Iterator[Intent]:
        yield call(paged, web.metadata.name)
        yield call(rung, web.metadata.name)

    with simulated(op, web("a"), through=[once, timed, paged, rung]) as simulation:
        simulation.advance(10 * MINUTE)
        assert Counter(called) == {"once": 1, "timed": 11, "paged": 3, "rung": 1}
        simulation.advance(timedelta(hours=2))
        assert called.count("timed") in (60, 61)
