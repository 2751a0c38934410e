"""Limits of retries that an operator says for all of its functions."""

from collections.abc import Iterator
from datetime import timedelta

from levelog import Intent, Level, Operator, call
from levelog.testing import Simulation
from rigs.kinds import Web, web

MINUTE = timedelta(minutes=1)


def test_limits_of_an_operator_hold_for_each_function_that_says_nothing_else() -> None:
    op = Operator("limited", retries=2, backoff=MINUTE, give_up_after=timedelta(hours=1))
    called: list[str] = []

    def note(name: str) -> None:
        called.append(name)
        raise ValueError("no")

    @op.on.create
    def plain(web: Web) -> None:
        note("plain")

    @op.on.create(retries=0)
    def once(web: Web) -> None:
        note("once")

    @op.on.create(retries=1000)
    def timed(web: Web) -> None:
        note("timed")

    @op.timer(every=timedelta(days=1))
    def ticked(web: Web) -> None:
        note("ticked")

    @op.effect
    def paged(request: str) -> None:
        note("paged")

    @op.view
    def told(web: Web) -> Level[int]:
        return Level(desired=1, actual=0)

    @op.reconcile(told)
    def tell(web: Web) -> Iterator[Intent]:
        yield call(paged, web.metadata.name)

    with Simulation(op) as simulation:
        simulation.call_through(plain, once, timed, ticked, paged)
        simulation.apply(web("a"))
        simulation.advance(timedelta(seconds=30))
        first = {name: called.count(name) for name in set(called)}
        simulation.advance(timedelta(minutes=10))
        assert (first["plain"], called.count("plain"), called.count("once")) == (1, 3, 1)
        assert (called.count("ticked"), called.count("timed")) == (3, 11)
        assert called.count("paged") == 3
        simulation.advance(timedelta(hours=2))
        assert called.count("timed") in (60, 61)
