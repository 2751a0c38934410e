"""Levels that daemons wait for: in a simulation, and where the processor and the actuator are apart."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from levelog import Intent, Level, Operator, OperatorError, Resource, Struct, patch_status
from levelog.daemons import Daemon
from levelog.levels import LevelStatus
from levelog.testing import Simulation
from levelog_actuator import Actuator, ActuatorSettings
from levelog_actuator.awaited import REST, AwaitedLevels
from levelog_actuator.outbox import Outbox
from levelog_base.wire.objects import Application
from levelog_base.wire.records import ObjectSeen
from levelog_kube.client import connect as connect_kube
from levelog_kube.discovery import cluster_uid
from levelog_log.notifications import Listener, Notifier
from levelog_log.publisher import BatchPublisher
from levelog_log.transport.connection import connect as connect_nats
from levelog_processors.live import LiveIndices
from levelog_processors.program import Program
from levelog_sandbox import Sandbox
from levelog_store.connect.database import Database
from rigs.acting import QUICK
from rigs.kinds import Pod, manifest
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.simulated import run_with, simulated
from rigs.statements import counting
from rigs.typed import WebSpec
from rigs.waiting import until
from rigs.webs import WEBS, deleted
from rigs.webs import web as seen_web

MINUTE = timedelta(minutes=1)
NEVER = timedelta(hours=1)


class WebStatus(Struct):
    replicas: int = 1


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec
    status: WebStatus = WebStatus()


def web(name: str = "shop", /, **spec: Any) -> dict[str, Any]:
    return manifest("Web", name, **({"image": "a"} | spec))


def sized() -> tuple[Operator, Callable[..., Level[int]]]:
    """An operator with a view of the size of a Web, which nothing brings about."""
    op = Operator("webs")

    @op.view(when=lambda web: web.spec.image != "none")
    def size(web: Web) -> Level[int]:
        return Level(desired=web.spec.replicas, actual=1)

    return op, size


def status(level_status: LevelStatus | None) -> str | None:
    return level_status.status if level_status is not None else None


def test_a_daemon_waits_until_a_level_is_in_sync() -> None:
    op = Operator("webs")
    told: list[Any] = []

    @op.view
    def size(web: Web) -> Level[int]:
        return Level(desired=web.spec.replicas, actual=web.status.replicas)

    @op.reconcile(size)
    def resize(web: Web) -> Iterator[Intent]:
        yield patch_status(web, {"replicas": web.spec.replicas})

    @op.daemon
    async def announce(web: Web, daemon: Daemon[Web, None]) -> None:
        level = daemon.level(size)
        while await daemon.until(lambda web: web.spec.replicas > 1):
            if (level_status := await level.until(lambda level: level.status == "in_sync")) is None:
                break
            told.append((level_status.status, level_status.since, status(await level.get())))
            await daemon.until(lambda web: web.spec.replicas == 1)
        told.append(daemon.reason)

    with simulated(op, web(), through=[announce]) as simulation:
        simulation.refuse(503, times=1)
        run_with(simulation, web(replicas=2))
        assert told == []
        assert simulation.level("size", "default", "shop").status != "in_sync"
        simulation.advance(MINUTE)
        assert [(now, later) for now, _, later in told] == [("in_sync", "in_sync")]
        assert told[0][1] is not None
        simulation.delete(Web, "shop")
        simulation.run()
        assert told[1:] == ["unwanted"]


def test_changes_of_a_level_are_how_it_stands_and_then_each_other_way() -> None:
    op, size = sized()
    told: list[Any] = []

    @op.daemon
    async def follow(web: Web, daemon: Daemon[Web, None]) -> None:
        async for level_status in daemon.level(size).changes():
            told.append(level_status and (level_status.status, dict(level_status.drift)))  # noqa: PERF401 - told at once
        told.extend((daemon.reason, await daemon.level(size).until(lambda level: True)))  # it has to end already

    with simulated(op, web(), through=[follow]) as simulation:
        assert told == [("in_sync", {})]
        run_with(simulation, web(image="b"))
        simulation.advance(MINUTE)
        assert told == [("in_sync", {})]  # it stands as before
        run_with(simulation, web(replicas=2))
        assert told[1:] == [("drifting", {"changed": (".",)})]
        run_with(simulation, web(image="none"))
        assert told[2:] == [None]  # the view leaves it out
        run_with(simulation, web())
        assert told[3:] == [("in_sync", {})]
        simulation.delete(Web, "shop")
        simulation.run()
        assert told[4:] == ["unwanted", None]


def test_a_level_that_a_daemon_cannot_wait_for_is_refused_with_a_sentence() -> None:
    op, other = Operator("webs"), Operator("others")
    told: list[str] = []

    @op.view
    def pods(pod: Pod) -> Level[int]:
        return Level(1, 1)

    @other.view
    def theirs(web: Web) -> Level[int]:
        return Level(1, 1)

    @op.daemon
    async def follow(web: Web, daemon: Daemon[Web, None]) -> None:
        wrong: list[Any] = [pods, theirs, follow, len, "pods", {}]
        for view in wrong:
            with pytest.raises(OperatorError) as refused:
                daemon.level(view)
            told.append(str(refused.value))

    op.conditions(Web)
    with Simulation(op, other) as simulation:
        simulation.call_through(follow)
        run_with(simulation, web())
    takes = "daemon follow: level takes a function of @op.view or @op.children of operator 'webs', and"
    assert told == [
        "daemon follow is of webs.example.com, and the view 'pods' is of pods",
        f"{takes} 'theirs' is none",
        "daemon follow: it cannot wait for its own level, 'follow', which settles for as long as it runs",
        f"{takes} 'len' is none",
        f"{takes} 'pods' is none",
        f"{takes} {{}} is none",
    ]


def test_notifications_are_for_views_that_a_daemon_of_their_operator_may_ask_for() -> None:
    op, _ = sized()
    assert Program([op]).awaited == set()

    @op.view
    def pods(pod: Pod) -> Level[int]:
        return Level(1, 1)

    @op.daemon
    async def deaf(web: Web) -> None:
        """Is given no Daemon."""

    assert Program([op]).awaited == set()

    @op.daemon
    async def follow(web: Web, daemon: Daemon[Web, None]) -> None:
        """May ask."""

    assert Program([op]).awaited == {"webs/size"}


class Told:
    """What daemons have seen of the level `size`, by the names of their Webs."""

    def __init__(self) -> None:
        self.statuses: dict[str, list[str | None]] = {}
        self.op, self._size = sized()
        self.op.daemon(self.follow())

    def follow(self) -> Callable[..., Any]:
        async def follow(web: Web, daemon: Daemon[Web, None]) -> None:
            told = self.statuses.setdefault(web.metadata.name, [])
            async for level_status in daemon.level(self._size).changes():
                told.append(status(level_status))

        return follow

    async def until(self, name: str, *wanted: str | None) -> None:
        async def is_told() -> bool:
            return self.statuses.get(name, [])[-len(wanted) :] == [*wanted]

        await until(is_told, f"that {name} was {wanted}, of {self.statuses}")


@asynccontextmanager
async def apart(
    nats_url: str, database_url: str, folder: Path, told: Told, settings: ActuatorSettings, notified: str = "webs"
) -> AsyncGenerator[Processing]:
    """A processor and an actuator with connections of their own; the actuator listens to an application."""
    async with Sandbox() as sandbox, await connect_kube(sandbox.kubeconfig(folder / "kubeconfig")) as client:
        cluster = await cluster_uid(client)
        async with (
            Processing(nats_url, database_url, [told.op], cluster=cluster) as stack,
            await connect_nats(nats_url) as connection,
            Notifier(connection, cluster, Application(notified)) as notifier,
        ):
            database = await Database.open(database_url) if stack.database.is_shared else stack.database
            async with LiveIndices(database, stack.scope, stack.program, notifier, resync=settings.resync) as live:
                effects = stack.program.effects
                actuator = Actuator(
                    database,
                    stack.scope,
                    client,
                    BatchPublisher(stack.stream),
                    notifier,
                    settings=settings,
                    effects=effects,
                    index=live.index,
                )
                running = asyncio.create_task(actuator.run(), name="actuator")
                stack.start()
                try:
                    yield stack
                finally:
                    running.cancel()
                    await asyncio.wait({running})
                    if database is not stack.database:
                        await database.close()


async def test_levels_and_objects_are_seen_at_once_where_processor_and_actuator_are_apart(
    nats_server: NatsServer, database_url: str, tmp_path: Path
) -> None:
    told, images = Told(), list[str]()

    @told.op.daemon(when=lambda web: web.metadata.name == "shop")
    async def watch(web: Web, daemon: Daemon[Web, None]) -> None:
        async for shown in daemon.changes():
            images.append(shown.spec.image)
        images.append(str(daemon.reason))

    async def until_last(wanted: str) -> None:
        await until(lambda: images[-1:] == [wanted], f"{wanted} after {images}")

    async with apart(nats_server.url, database_url, tmp_path, told, replace(QUICK, resync=NEVER)) as stack:
        shop = seen_web("shop", 1)
        await stack.listed(shop, seen_web("cart", 2), version=3, of=[WEBS])
        await told.until("shop", "in_sync")
        await told.until("cart", "in_sync")
        await until_last("a")
        await stack.tell(seen_web("shop", 4, replicas=2))
        await told.until("shop", "in_sync", "drifting")
        await stack.tell(seen_web("shop", 5))
        await told.until("shop", "drifting", "in_sync")
        await stack.tell(seen_web("shop", 6, image="none"))
        await told.until("shop", "in_sync", None)
        await until_last("none")
        await stack.tell(deleted(shop, 7))
        await until_last("unwanted")
        assert told.statuses["cart"][-1] == "in_sync"


@pytest.mark.parametrize("meanwhile", [(), (seen_web("shop", 4, image="b"),)], ids=["alone", "with a record"])
async def test_a_level_that_other_code_has_not_is_gone_at_once(
    nats_server: NatsServer, database_url: str, tmp_path: Path, meanwhile: Sequence[ObjectSeen]
) -> None:
    """Also if the level goes as a change of an index is written, which a daemon follows."""
    told = Told()
    async with apart(nats_server.url, database_url, tmp_path, told, replace(QUICK, resync=NEVER)) as stack:
        await stack.listed(seen_web("shop", 1), version=3, of=[WEBS])
        await told.until("shop", "in_sync")
        await stack.stop()
        without = Operator("webs")
        without.daemon(told.follow())  # else the daemon ends, maybe before it is told
        stack.program = Program([without])
        await stack.open()
        await stack.tell(*meanwhile)
        stack.start()
        await told.until("shop", "in_sync", None)


async def test_a_level_whose_notification_was_lost_is_seen_by_the_resync(
    nats_server: NatsServer, database_url: str, tmp_path: Path
) -> None:
    told = Told()
    settings = replace(QUICK, resync=timedelta(milliseconds=100))
    async with apart(nats_server.url, database_url, tmp_path, told, settings, notified="nobody") as stack:
        await stack.listed(seen_web("shop", 1), version=3, of=[WEBS])
        await told.until("shop", "in_sync")
        await stack.tell(seen_web("shop", 4, replicas=2))
        await told.until("shop", "in_sync", "drifting")


async def test_all_that_wait_share_one_statement(nats_server: NatsServer, database_url: str) -> None:
    told = Told()
    async with Processing(nats_server.url, database_url, [told.op]) as stack:
        await stack.listed(*[seen_web(f"web-{n}", 1 + n) for n in range(50)], version=99, of=[WEBS])
        stack.start()
        await stack.folded(await stack.tell(seen_web("web-0", 100, replicas=2)))
        await stack.stop()
        levels = AwaitedLevels(Outbox(stack.database, stack.scope, "me", QUICK), Listener())
        woken: list[int] = []
        with ExitStack() as waits, counting() as count:
            waiting = [
                waits.enter_context(levels.awaiting(place(n), f"uid-web-{n}", partial(woken.append, n)))
                for n in range(50)
            ]
            assert await levels.look()
            assert count.statements == 1
            assert sorted(woken) == [*range(50)]
            assert [status(each.level_status) for each in waiting] == ["drifting", *["in_sync"] * 49]
            assert not await levels.look()
            assert (count.statements, len(woken)) == (2, 50)
            with levels.awaiting(place(1), "uid of another", woken.clear) as other:
                assert await levels.look()
            assert (other.level_status, woken) == (None, [])
        with counting() as count:
            assert not await levels.look()
            assert count.statements == 0


async def test_reading_takes_a_tenth_of_the_time_however_many_notifications_come(
    nats_server: NatsServer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    async with Processing(nats_server.url, database_url, [told.op]) as stack:
        listener, clock = Listener(), asyncio.get_running_loop().time
        levels = AwaitedLevels(Outbox(stack.database, stack.scope, "me", QUICK), listener)
        looks: list[tuple[float, float]] = []
        look = levels.look

        async def slow_look() -> bool:
            began = clock()
            listener.notify()  # another one comes meanwhile
            await asyncio.sleep(0.01)
            is_told = await look()
            looks.append((began, clock()))
            return is_told

        monkeypatch.setattr(levels, "look", slow_look)
        with levels.awaiting(place(1), "uid-web-1", lambda: None):
            running = asyncio.create_task(levels.run())
            await until(lambda: len(looks) > 2, "three looks")
            running.cancel()
            await asyncio.wait([running])
        for (began, ended), (following, _) in itertools.pairwise(looks):
            assert following - ended >= min(REST * (ended - began), QUICK.resync.total_seconds()) - 0.001


def place(number: int) -> tuple[str, str]:
    return "webs/size", f"webs.example.com/default/web-{number}"
