"""Processors whose levels look each other up: they lock rows in one order, so that none waits in a circle."""

from collections.abc import Iterator
from itertools import count

from levelog import Index, Level, Operator
from levelog.levels import Levels
from levelog_store.tables import levels as level_rows
from rigs.kinds import Pod
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.typed import Web
from rigs.webs import pod, web

NAMES = [f"web-{n}" for n in range(8)]
ROUNDS = 8

op = Operator("webs")


@op.index
def sizes(web: Web) -> Iterator[tuple[str, int]]:
    """Read by the Web before."""
    yield web.metadata.name, web.spec.replicas


@op.index
def pods(pod: Pod) -> Iterator[tuple[str, str]]:
    """Read by every Web."""
    yield pod.metadata.namespace, pod.metadata.name


def next_to(web: Web) -> str:
    return NAMES[(NAMES.index(web.metadata.name) + 1) % len(NAMES)]


@op.view
def fits(web: Web, sizes: Index[str, int], pods: Index[str, str]) -> Level[int]:
    """Stands otherwise after nearly every change, which every Web is told."""
    return Level(web.spec.replicas, max(sizes[next_to(web)], default=0) + len(list(pods["default"])) % 2)


@op.view
def standing(web: Web, levels: Levels) -> Level[list[str]]:
    return Level([], [each.status for each in levels.values()])


@op.view(levels_of=[Web])
def beside(web: Web, levels: Levels) -> Level[list[str]]:
    return Level([], [each.status for name in NAMES for each in levels.of(Web, name).values()])


async def test_levels_that_look_each_other_up_are_decided_without_a_deadlock(
    nats_server: NatsServer, postgres_url: str
) -> None:
    """Each test fails at its end if its database has found a deadlock."""
    versions = count(1)
    async with Processing(nats_server.url, postgres_url, [op]) as stack:
        last = await stack.listed(*(web(name, next(versions)) for name in NAMES))
        stack.start()
        await stack.folded(last)
        for name in ("two", "three", "four"):
            await stack.start_more(name)
        for round_ in range(ROUNDS):
            for n, name in enumerate(NAMES):
                await stack.tell(web(name, next(versions), replicas=(round_ + n) % 3))
            await stack.folded(await stack.tell(pod(f"pod-{round_}", next(versions))))
        beside_ = [row["evaluations"] for row in await stack.rows(level_rows) if row["view"] == "webs/beside"]
    assert len(beside_) == len(NAMES)
    assert max(beside_) > 1
