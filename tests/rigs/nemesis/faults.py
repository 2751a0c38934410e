"""What the nemesis does: each fault begins, lasts, and is undone, all within one call."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

from levelog_log.transport.connection import connect
from rigs.natscluster import NAMES as SERVERS
from rigs.nemesis.site import Site
from rigs.nemesis.supervised import ROLES

Excuse = Literal["again", "older"]
"""What docs/reliability.md allows after a fault: a call made again under its key, a write of a paused actuator."""

PAUSES: Final = (6, 20)
AWAY_SECONDS: Final = 5.0
BEHIND_SECONDS: Final = 3.0
_WHO: Final = ("the leader", "no leader")


class Fault(NamedTuple):
    """A fault that was drawn; `act` returns when everything runs, or can run, again."""

    kind: str
    name: str
    act: Callable[[Site], Awaitable[None]]
    excuses: frozenset[Excuse] = frozenset()


def drawn(dice: random.Random, kinds: list[str] | None = None) -> Iterator[Fault]:
    """Faults without end: all kinds, or those given, in a random order, and again."""
    while True:
        for kind in dice.sample(kinds or list(KINDS), len(kinds or KINDS)):
            yield KINDS[kind](dice)


def _kill(dice: random.Random) -> Fault:
    process = dice.choice(list(ROLES))

    async def act(site: Site) -> None:
        site.processes.kill(process)

    return Fault("kill", f"SIGKILL of {process}", act, _of_an_actuator(process, "again"))


def _pause(dice: random.Random) -> Fault:
    process, seconds = dice.choice(list(ROLES)), dice.choice(PAUSES)

    async def act(site: Site) -> None:
        pid = site.processes.pause(process)
        await asyncio.sleep(seconds)
        site.processes.resume(process, pid)

    return Fault("pause", f"{process} paused", act, _of_an_actuator(process, "again", "older"))


def _of_an_actuator(process: str, *excuses: Excuse) -> frozenset[Excuse]:
    return frozenset(excuses if process == "actuate" else ())


def _nats_kill(dice: random.Random) -> Fault:
    who = dice.choice(_WHO)

    async def act(site: Site) -> None:
        server = site.nats.servers[await _server(site, who)]
        server.kill()
        await asyncio.sleep(AWAY_SECONDS)
        await server.start()

    return Fault("nats-kill", f"SIGKILL of the NATS server that is {who}", act)


def _nats_pause(dice: random.Random) -> Fault:
    who, seconds = dice.choice(_WHO), dice.choice(PAUSES)

    async def act(site: Site) -> None:
        server = site.nats.servers[await _server(site, who)]
        server.pause()
        await asyncio.sleep(seconds)
        server.resume()

    return Fault("nats-pause", f"the NATS server that is {who} paused", act)


def _cut(dice: random.Random) -> Fault:
    count, seconds = dice.choice((1, 2, 3)), dice.choice(PAUSES)
    who = dice.sample(SERVERS, count)

    async def act(site: Site) -> None:
        for name in who:
            site.nats.isolate(name)
        await asyncio.sleep(seconds)
        site.nats.heal()

    return Fault("cut", f"{count} of 3 NATS servers cut off from the others; clients reach them", act)


def _clients_cut(dice: random.Random) -> Fault:
    count, seconds = dice.choice((1, 2, 3)), dice.choice(PAUSES)
    who = dice.sample(SERVERS, count)

    async def act(site: Site) -> None:
        for name in who:
            site.nats.fronts[name].pause()
        await asyncio.sleep(seconds)
        for name in who:
            site.nats.fronts[name].cut("reset")
            site.nats.fronts[name].resume()

    return Fault("clients-cut", f"{count} of 3 NATS servers hang for clients", act)


def _step_down(dice: random.Random) -> Fault:
    times = dice.randint(1, 3)

    async def act(site: Site) -> None:
        for _ in range(times):
            await _step_down_once(site)

    return Fault("step-down", "leader of the log steps down, once or up to three times", act)


def _wiped(dice: random.Random) -> Fault:
    who = dice.choice(_WHO)

    async def act(site: Site) -> None:
        server = site.nats.servers[await _server(site, who)]
        await server.start_empty()

    return Fault("wiped-disk", f"disk of the NATS server that is {who} wiped", act)


def _spoiled(dice: random.Random) -> Fault:
    how, place = dice.choice(("truncated", "flipped")), dice.random()
    who = dice.choice(_WHO)

    async def act(site: Site) -> None:
        name = await _server(site, who)
        site.damaged.add(name)
        server = site.nats.servers[name]
        server.kill()
        blocks = sorted(server.store_dir.glob(f"jetstream/*/streams/{site.stream}/msgs/*.blk"))
        _spoil(blocks[int(place * len(blocks))], how, place)
        await server.start()
        await _step_down_once(site)  # who was spoiled may lead now
        await asyncio.sleep(AWAY_SECONDS)

    what = "block truncated" if how == "truncated" else "bit flipped in a block"
    return Fault("spoiled-block", f"{what} of the stopped NATS server that is {who}", act)


def _spoil(block: Path, how: str, place: float) -> None:
    content = bytearray(block.read_bytes())
    at = int(place * (len(content) - 1))
    if how == "truncated":
        del content[at:]
    else:
        content[at] ^= 1
    block.write_bytes(content)


def _primary_kill(dice: random.Random) -> Fault:
    seconds = dice.choice((1, 6))

    async def act(site: Site) -> None:
        site.pair.primary.kill()
        await asyncio.sleep(seconds)
        await site.pair.primary.start()

    return Fault("primary-kill", "SIGKILL of the primary", act)


def _primary_hangs(dice: random.Random) -> Fault:
    seconds, is_promoted = dice.choice(PAUSES), dice.random() < 0.5

    async def act(site: Site) -> None:
        old = site.pair.front
        old.pause()
        await asyncio.sleep(seconds)
        if is_promoted:
            await site.pair.promote()
            old.resume()
            await asyncio.sleep(seconds)  # it lives, and says that it is a primary
            await site.pair.add_standby()
        else:
            old.resume()

    what = ", then the standby is promoted while it lives" if is_promoted else ""
    return Fault("primary-hangs", f"the primary hangs{what}", act)


def _promotion(dice: random.Random) -> Fault:
    is_behind = dice.random() < 0.5

    async def act(site: Site) -> None:
        if is_behind:
            await site.pair.is_synchronous(False)
            assert site.pair.replication is not None
            site.pair.replication.refuse()
            site.pair.replication.cut("reset")
            await asyncio.sleep(BEHIND_SECONDS)
        site.pair.primary.kill()
        await site.pair.promote()
        await site.pair.add_standby()

    what = f"asynchronous, {BEHIND_SECONDS:g} s behind" if is_behind else "synchronous"
    excuses: frozenset[Excuse] = frozenset({"again"} if is_behind else ())
    return Fault("promotion", f"the primary dies, its standby is promoted ({what})", act, excuses)


def _clock(dice: random.Random) -> Fault:
    hours = dice.choice((-1, 1))

    async def act(site: Site) -> None:
        await site.pair.set_clock(hours)
        await asyncio.sleep(AWAY_SECONDS)
        await site.pair.set_clock(0)

    there, back = ("ahead", "back") if hours > 0 else ("back", "ahead")
    excuses: frozenset[Excuse] = frozenset({"again"})  # claims end, as those of an actuator that was killed
    return Fault("clock", f"clock of PostgreSQL set {there} by an hour, and {back}", act, excuses)


def _at_once(dice: random.Random) -> Fault:
    one, other = (KINDS[dice.choice(kinds)](dice) for kinds in (_OF_NATS, _OF_OTHERS))

    async def act(site: Site) -> None:
        await asyncio.gather(one.act(site), other.act(site))

    return Fault("at-once", f"at once: {one.kind} and {other.kind}", act, one.excuses | other.excuses)


async def _step_down_once(site: Site) -> None:
    await site.nats.leader(site.stream)
    async with await connect(site.nats.servers["a"].url) as connection:
        await connection.request_again(f"$JS.API.STREAM.LEADER.STEPDOWN.{site.stream}")
    await site.nats.leader(site.stream)


async def _server(site: Site, who: str) -> str:
    leader = await site.nats.leader(site.stream)
    return leader if who == _WHO[0] else next(name for name in SERVERS if name != leader)


KINDS: Final[dict[str, Callable[[random.Random], Fault]]] = {
    "kill": _kill,
    "pause": _pause,
    "nats-kill": _nats_kill,
    "nats-pause": _nats_pause,
    "cut": _cut,
    "clients-cut": _clients_cut,
    "step-down": _step_down,
    "wiped-disk": _wiped,
    "spoiled-block": _spoiled,
    "primary-kill": _primary_kill,
    "primary-hangs": _primary_hangs,
    "promotion": _promotion,
    "clock": _clock,
    "at-once": _at_once,
}
_OF_NATS: Final = ("nats-kill", "nats-pause", "cut", "clients-cut", "step-down", "wiped-disk", "spoiled-block")
_OF_OTHERS: Final = ("kill", "pause", "primary-kill", "primary-hangs", "promotion", "clock")
