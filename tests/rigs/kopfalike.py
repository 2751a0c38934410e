"""Stories of which Kopf and levelog have to make the same: the same file of handlers, run by each."""

import time
from collections.abc import Awaitable, Callable
from typing import Final

from rigs.faults import Hold
from rigs.kopfrivals import SHOPS, Case, Rival, Seen
from rigs.waiting import until


async def _has(rival: Rival, field: str, value: object) -> None:
    """Wait until the status of `a` has a value."""

    async def is_there() -> bool:
        return bool(rival.sandbox.user.get(SHOPS, "a").get("status", {}).get(field) == value)

    await until(is_there, f"{field} {value} in the status")


def _patched(field: str) -> Callable[[Rival], Awaitable[Seen]]:
    """Each call is given what the one before it patched, and the last one's patch is there too."""

    async def story(rival: Rival) -> Seen:
        rival.make("a")
        await _has(rival, field, 2)
        told = [each[1:] for each in rival.told(field)]
        return Seen(f"calls by retry and status: {told}", told == [[0, None], [1, 0], [2, 1]])

    return story


async def _going(rival: Rival) -> Seen:
    rival.make("a")
    await rival.tells("made", "a")
    await rival.is_calm()
    rival.delete("a")
    await rival.tells("gone", 2)
    told = [each[1:] for each in rival.told("gone")]
    return Seen(f"calls by retry and status: {told}", told == [[0, None], [1, 0], [2, 1]])


async def _again(rival: Rival) -> Seen:
    rival.make("a")
    await rival.tells("two", 0)
    await _has(rival, "outer/one", 1)
    await rival.is_calm(1)
    await rival.stop()
    rival.start()
    await _has(rival, "outer/two", 2)
    told = rival.told("one") + rival.told("two")
    return Seen(f"calls by retry: {told}", told == [["one", 0], ["two", 0], ["two", 1]])


async def _beginning(rival: Rival) -> Seen:
    rival.make("a")
    await rival.tells("made", "a")
    told = [retry for _, retry in rival.told("begins")]
    return Seen(f"calls by retry before anything is handled: {told}", told == [0, 1, 2])


async def _cleaning(rival: Rival) -> Seen:
    rival.make("a")
    await rival.tells("follows")
    await rival.is_calm()
    rival.delete("a")
    await rival.tells("is told to end")
    was_there = bool(rival.sandbox.user.list(SHOPS))
    await rival.tells("has cleaned up")
    assert await rival.goes(seconds=30)
    patches = [each.status_code for each in rival.writes() if each.subresource == "status"]
    where = "is still there" if was_there else "has gone"
    text = f"the object {where} while the daemon cleans up, and its patch is answered with {patches}"
    return Seen(text, was_there and patches == [200])


async def _cancelled(rival: Rival) -> Seen:
    rival.make("a")
    await rival.tells("follows", "at once")
    await rival.tells("follows", "after two seconds")
    await rival.is_calm()
    began = time.time()
    rival.delete("a")
    took = [round((await rival.tells("cancelled", name))[2] - began) for name in ("at once", "after two seconds")]
    assert await rival.goes(seconds=30)
    return Seen(f"they are cancelled after {took} s", took == [0, 2])


async def _filled(rival: Rival) -> Seen:
    metadata = {"name": "map", "namespace": "default"}
    rival.sandbox.user.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    rival.make("a")
    rule = rival.proxy.add(Hold(stage="request"), lambda request: request.resource == "configmaps", times=None)
    rival.start()
    await until(lambda: any(each.request.resource == SHOPS for each in rival.proxy.log), "a list of Shops")
    is_early = await rival.comes("looked", seconds=5)
    rival.proxy.remove(rule)
    _, maps = await rival.tells("looked")
    when = "before" if is_early else "after"
    return Seen(f"the handler is called {when} the list, and finds {maps}", not is_early and maps == ["map"])


async def _out_of_time(rival: Rival) -> Seen:
    rival.make("a", size=1)
    await rival.tells("plain", 2)
    await rival.tells("patches", 2)
    rival.change("a", size=2)
    await rival.comes("plain", 3, seconds=6)
    told = [[retry for _, retry in rival.told(name)] for name in ("plain", "patches")]
    lasts = bool(rival.told("goes on"))
    how = "goes on" if lasts else "is ended"
    text = f"those that raise are run {told[0]} and {told[1]}, and the one that does not raise {how}"
    return Seen(text, told == [[0, 1, 2], [0, 1, 2]] and lasts)


async def _noisy(rival: Rival) -> Seen:
    rival.make("a")
    for n in range(12):
        rival.sandbox.user.patch(SHOPS, "a", {"status": {"last": n, f"field{n}": n}}, subresource="status")
        await rival.comes("called again", seconds=1)
    told = [[retry for _, retry in rival.told(name)] for name in ("thrice", "later")]
    return Seen(f"calls by retry: {told[0]}, and {told[1]} with a longer delay", told == [[0, 1, 2], [0]])


async def _above(rival: Rival) -> Seen:
    rival.make("a")
    is_right = await rival.comes("found", {"n": 1}, seconds=20)
    return Seen(f"the second is {'called with' if is_right else 'kept from'} the result of the first", is_right)


async def _resumed(rival: Rival) -> Seen:
    rival.make("a")
    rival.start()
    await rival.tells("made", "a")
    rival.make("b")
    await rival.tells("made", "b")
    await rival.is_calm()
    early = rival.told("resumed")
    await rival.stop()
    rival.make("c")
    rival.start()
    await rival.tells("made", "c")
    await rival.tells("resumed", "a")
    await rival.tells("resumed", "b")
    await rival.is_calm()
    made, resumed = (sorted(each for _, each in rival.told(name)) for name in ("made", "resumed"))
    text = f"{made} are created, {early or 'none'} resumed at the first start, and {resumed} at the second"
    return Seen(text, (made, early, resumed) == (["a", "b", "c"], [], ["a", "b"]))


_RAISES: Final = """
{decorator}
def handler(patch, retry, status, **_):
    tell("{field}", retry, status.get("{field}"))
    patch.status["{field}"] = retry
    if retry == 0:
        raise kopf.TemporaryError("not yet", delay=1)
    if retry == 1:
        raise ValueError("wrong")
    raise kopf.PermanentError("no use")
"""

ALIKE: Final = {
    "created": Case(
        "a handler patches the status, then raises",
        _RAISES.format(decorator="@kopf.on.create(*SHOPS, backoff=1)", field="tries"),
        _patched("tries"),
    ),
    "ticking": Case(
        "a timer patches the status, then raises",
        _RAISES.format(decorator="@kopf.timer(*SHOPS, interval=300, backoff=1)", field="ticks"),
        _patched("ticks"),
    ),
    "noisy": Case(
        "handlers raise while others write the status again and again",
        """
@kopf.on.create(*SHOPS, retries=3)
def thrice(retry, **_):
    tell("thrice", retry)
    raise kopf.TemporaryError("not yet", delay=3)


@kopf.on.create(*SHOPS)
def later(retry, **_):
    tell("later", retry)
    raise kopf.TemporaryError("not yet", delay=60)
""",
        _noisy,
    ),
    "above": Case(
        "a handler raises until the result of the one above it is there",
        """
@kopf.on.create(*SHOPS)
def one(**_):
    return {"n": 1}


@kopf.on.create(*SHOPS)
def two(status, **_):
    if "one" not in status:
        raise kopf.TemporaryError("not yet", delay=300)
    tell("found", status["one"])
""",
        _above,
    ),
    "resumed": Case(
        "an object is there before the first start, another is made before the second",
        """
@kopf.on.resume(*SHOPS)
def resumed(name, **_):
    tell("resumed", name)
""",
        _resumed,
        starts=False,
    ),
    "lasting": Case(
        "a daemon patches the status, then raises",
        _RAISES.format(decorator="@kopf.daemon(*SHOPS, backoff=1)", field="runs"),
        _patched("runs"),
    ),
    "out_of_time": Case(
        "daemons with a timeout, which raise again and again, and one that does not",
        """
@kopf.daemon(*SHOPS, timeout=10)
async def plain(retry, **_):
    tell("plain", retry)
    raise kopf.TemporaryError("not yet", delay=4)


@kopf.daemon(*SHOPS, timeout=10, backoff=4)
def patches(retry, patch, **_):
    tell("patches", retry)
    patch.status["tries"] = retry
    raise ValueError("wrong")


@kopf.daemon(*SHOPS, timeout=2)
async def lasts(stopped, **_):
    await stopped.wait(6)
    tell("goes on")
    await stopped.wait()
""",
        _out_of_time,
    ),
    "filled": Case(
        "an index of another resource whose list takes its time",
        """
@kopf.index("v1", "configmaps")
def maps(name, **_):
    return {name: None}


@kopf.on.create(*SHOPS, id="looks")
def looks(maps: kopf.Index, **_):
    tell("looked", sorted(maps))
""",
        _filled,
        starts=False,
    ),
    "inner": Case(
        "one of two handlers inside of a handler has ended, and the operator is started again",
        """
@kopf.on.create(*SHOPS)
def outer(**_):
    @kopf.subhandler(id="one")
    def one(retry, **_):
        tell("one", retry)
        return 1

    @kopf.subhandler(id="two")
    def two(retry, **_):
        tell("two", retry)
        if retry == 0:
            raise kopf.TemporaryError("not yet", delay=6)
        return 2
""",
        _again,
    ),
    "beginning": Case(
        "a start-up handler raises",
        """
@kopf.on.startup(backoff=1)
def begin(retry, **_):
    tell("begins", retry)
    if retry == 0:
        raise ValueError("no database")
    if retry == 1:
        raise kopf.TemporaryError("not yet", delay=1)
""",
        _beginning,
    ),
    "cleaning": Case(
        "a daemon cleans up when its object is deleted",
        """
@kopf.daemon(*SHOPS, cancellation_polling=1)
async def follow(stopped, patch, **_):
    tell("follows")
    await stopped.wait()
    tell("is told to end")
    await asyncio.sleep(2)
    patch.status["phase"] = "cleaned up"
    tell("has cleaned up")
""",
        _cleaning,
    ),
    "cancelled": Case(
        "daemons with cancellation_timeout=1, one with cancellation_backoff=2",
        """
async def wait(name):
    tell("follows", name)
    try:
        await asyncio.sleep(60)
    finally:
        tell("cancelled", name, time.time())


@kopf.daemon(*SHOPS, cancellation_timeout=1)
async def one(**_):
    await wait("at once")


@kopf.daemon(*SHOPS, cancellation_timeout=1, cancellation_backoff=2)
async def two(**_):
    await wait("after two seconds")
""",
        _cancelled,
    ),
    "deleted": Case(
        "a delete handler patches the status, then raises",
        """
@kopf.on.delete(*SHOPS)
def gone(patch, retry, status, **_):
    tell("gone", retry, status.get("gone"))
    patch.status["gone"] = retry
    if retry < 2:
        raise kopf.TemporaryError("not yet", delay=1)
""",
        _going,
    ),
}
"""By name."""
